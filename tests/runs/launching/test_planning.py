import re
import shutil
import sys
from pathlib import Path

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from attnprobe.__main__ import CONFIGURATION
from attnprobe.core.errors import UserError
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import read_results
from attnprobe.runs.launching import (
    Job,
    Machine,
    Outcome,
    conclude,
    launch,
    objective,
    places_of,
    planned,
)
from attnprobe.runs.prepare import is_finished
from attnprobe.runs.run import run
from attnprobe.runs.settings import Settings, resumed
from tests.small_runs import SMALL, composed, small_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(
        small_run(
            tmp_path_factory.mktemp("runs"), "model=average", probes="[permutation,single_weight]"
        )
    )


def plan(*jobs):
    with initialize_config_dir(config_dir=str(CONFIGURATION), version_base="1.3"):
        config = compose("config", return_hydra_config=True)
        HydraConfig.instance().set_config(config)
        load = GlobalHydra.instance().config_loader().load_sweep_config
        return planned(lambda overrides: load(config, overrides), [list(job) for job in jobs], 5)


def job(finished, *overrides):
    return [*SMALL, f"output={finished.parent.parent}", "model=average", *overrides]


def test_finished_jobs_are_recognised_by_their_tables_and_settings(finished):
    jobs, on_gpu = plan(
        job(finished, "probe=[permutation]"),
        job(finished, "probe=[permutation,single_weight]"),
        job(finished, "probe=[permutation,adversarial]"),
        job(finished, "probe=[permutation]", "probe.permutation.samples=7"),
        job(finished, "probe=[permutation]", "seed=1"),
        job(finished, "probe=[permutation]", "on_finished=replace"),
        job(finished, "model/attention=imposed", "teacher=auto"),
        [f"run={finished}", "probe=[permutation]", "trainer.accelerator=cpu"],
    )
    done = [number for number, job in enumerate(jobs) if job.done]
    same_directory = [number for number, job in enumerate(jobs) if job.directory == finished]
    assert len(jobs) == 8
    assert done == [0, 1, 7]
    assert same_directory == [0, 1, 2, 3, 5, 7]
    assert jobs[6].directory is None  # its teacher decides it, and is not trained yet
    assert [job.log.stem for job in jobs[4:7]] == [
        "9-testbed-average_additive-seed1",
        "10-testbed-average_additive-seed0",
        "11",
    ]
    assert not on_gpu
    assert plan([])[1]  # which may use a card, as it does not ask for the processor


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ("seed=abc", "seed=abc: expected a whole number"),
        ("probe=[permuation]", "there is no probe/permuation in conf/; did you mean permutation?"),
        ("seed=${nope}", "seed refers to ${nope}, which is not a setting"),
        ("run=nowhere", "no run of attnprobe there"),
        ("run=3", "no run of attnprobe there"),  # a number until it is a path
        ("model/attention=imposed", "learns from a teacher"),
        ("trainer.devices=2", "trainer.devices=2 in a sweep"),
        ("page=a.html", "page=a.html is of a single run: leave it out"),
    ],
)
def test_a_mistake_in_one_job_is_found_before_any_begins(mistake, message):
    good = ["trainer.accelerator=cpu", "seed=1"]
    with pytest.raises(UserError) as caught:
        plan(good, [good[0], mistake])
    assert message in str(caught.value)
    assert str(caught.value).endswith(f"(in the job {mistake}; no job was started)")


def test_jobs_with_other_settings_have_no_run_directory_in_common(finished, tmp_path):
    place = f"run_dir={tmp_path / 'a'}"
    jobs, _ = plan(
        job(finished, place, "probe=[permutation]"), job(finished, place, "probe=[erasure]")
    )
    assert len({job.directory for job in jobs}) == 1  # one training, other probes
    with pytest.raises(UserError, match=r"run_dir=.*/a: .*leave run_dir out.*in the job seed=2; "):
        plan(job(finished, place, "seed=1"), job(finished, place, "seed=2"))


def test_where_the_jobs_run_in_words(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-7f,5")

    def words(workers, on_gpu=True):
        places = places_of({"name": "local", "workers": workers}, on_gpu=on_gpu, logs=tmp_path)
        return places.count, places.words

    assert words(None) == (2, "GPUs 3, GPU-7f")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert words(6) == (6, "6 workers on GPUs 0, 1")
    assert words(1, on_gpu=False) == (1, "1 CPU worker")


def test_a_job_that_is_killed_is_named_and_the_others_finish(tmp_path, monkeypatch, capsys):
    """The system kills a job where memory is short: it says nothing and tidies up nothing."""
    codes = ("import os; os.kill(os.getpid(), 9)", "import pathlib; pathlib.Path('other').touch()")
    monkeypatch.chdir(tmp_path)
    jobs = [
        Job(f"seed={number}", (sys.executable, "-c", code), Path(f"logs/{number}.log"))
        for number, code in enumerate(codes)
    ]
    outcomes = launch(jobs, Machine(1), logs=Path("logs"))
    conclude(outcomes, Path("runs"))
    assert [outcome.status for outcome in outcomes] == [-9, 0]
    assert (tmp_path / "other").exists()
    output = capsys.readouterr().out
    assert re.search(r"\nFAILED seed=0 after \d+ s: killed by SIGKILL \(out of memory\?\)", output)
    assert "FAILED seed=1" not in output
    assert "the same command again runs what is missing" in output


def test_the_closing_table_has_the_means_of_the_tables_of_jobs_done_now_and_before(
    finished, tmp_path, capsys
):
    done = Job("seed=0", (), tmp_path / "logs/0.log", directory=finished, done=True)
    before = launch([done], Machine(1), logs=tmp_path / "logs")
    job = Job("first", (), Path("log"), directory=finished)
    conclude([*before, Outcome(job, 0, 7.0)], Path("runs"))
    assert not (tmp_path / "logs").exists()
    plan, heads, skipped, line, report = capsys.readouterr().out.splitlines()
    assert plan == "1 job: 1 done, nothing to run"
    for name in ("performance/accuracy", "permutation/median_tvd", "single_weight/"):
        assert name in heads
    assert heads.count("permutation/") == 1  # the report has the probe's other numbers
    table = read_results(finished, probe="permutation")
    mean = table[table["metric"] == "median_tvd"]["value"].mean()
    assert skipped.split()[:3] == ["seed=0", "done", "before"]
    assert line.split()[:3] == ["first", "7", "s"]
    assert f" {mean:.3f}" in skipped
    assert f" {mean:.3f}" in line
    assert report == "report: attnprobe report runs"


def test_a_search_optimises_what_chose_the_epoch(finished, tmp_path):
    curve = read_results(finished, probe="training").query("metric == 'validation_roc_auc'")
    chosen = RunDirectory(finished).manifest()["chosen_epoch"]
    assert objective(finished) == curve.set_index("step")["value"][chosen]
    with pytest.raises(UserError, match="no finished run"):
        objective(tmp_path)


def again(finished, *overrides):
    overrides = [f"run={finished}", "trainer.accelerator=cpu", "figures=false", *overrides]
    return resumed(composed(*overrides), overrides)


def test_probes_are_added_to_a_run_that_is_named(finished, tmp_path):
    finished = Path(shutil.copytree(finished, tmp_path / "copy"))  # other tests count its tables
    before = (finished / "model.safetensors").stat().st_mtime_ns
    config = again(finished, "probe=[erasure]", "data.eval_batch_size=5")
    assert config.data.eval_batch_size == 5
    assert not is_finished(Settings.of(config))
    assert run(config) == finished
    assert is_finished(Settings.of(config))
    assert set(RunDirectory(finished).manifest()["tables"]) >= {
        "permutation",
        "single_weight",
        "erasure",
    }
    assert (finished / "model.safetensors").stat().st_mtime_ns == before
    assert set(read_results(finished)["experiment"]) == {"default"}


def test_a_run_trained_on_several_devices_is_known_by_them(tmp_path):
    config = small_run(tmp_path, "trainer.devices=2")
    assert Settings.of(config).directory != Settings.of(small_run(tmp_path)).directory
    (tmp_path / "config.yaml").write_text(OmegaConf.to_yaml(config, resolve=True))
    assert Settings.of(again(tmp_path)).training == Settings.of(config).training
    assert resumed(config, ["seed=1"]) is config  # without a named run nothing changes


def test_a_named_run_keeps_its_settings(finished):
    config = again(finished, "+experiment=serrano")
    assert config.experiment == "serrano"
    assert list(config.probe) == ["single_weight", "erasure"]
    assert config.teacher is None
    assert config.model.name == "average_additive"
    assert config.training == again(finished).training
    assert again(finished, f"teacher={finished}").teacher == str(finished)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            ["seed=1"],
            r"has its own data, .* leave out seed=1\. Beside run= only these may be given:",
        ),
        (["model/attention=dot", "data=sst"], "leave out model/attention=dot data=sst"),
        (["teacher=auto"], "teacher=auto: name the teacher"),
        (
            ["on_finished=replace"],
            "would remove that model and all its tables: on_finished=remeasure",
        ),
        (
            ["+experiment=audit"],
            r"experiment=audit, a study of several runs, .* leave one of the two out.* 'probe=",
        ),
    ],
)
def test_a_named_run_takes_no_settings_that_would_change_it(finished, overrides, message):
    with pytest.raises(UserError, match=message):
        again(finished, *overrides)


def test_a_named_run_must_be_there_undamaged(finished, tmp_path):
    with pytest.raises(UserError, match=r"no run of attnprobe there \(no config\.yaml\)"):
        again(tmp_path)
    for name in ("config.yaml", "training.json"):  # of a run that is not finished
        shutil.copy(finished / name, tmp_path)
    assert again(tmp_path).experiment == "default"
    saved = (finished / "config.yaml").read_text()
    changed = saved.replace("experiment: default", "experiment: another")
    (tmp_path / "config.yaml").write_text(changed)
    with pytest.raises(UserError, match=r"config\.yaml is damaged"):
        again(tmp_path)
