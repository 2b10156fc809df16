import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from attnprobe.core.errors import UserError
from attnprobe.findings.studies.base import Done, read_study
from attnprobe.findings.studies.criteria.exclusivity import chosen_adversary
from attnprobe.findings.studies.wiegreffe import Wiegreffe
from attnprobe.report.publish import write_study
from attnprobe.results.directory import RunDirectory
from attnprobe.runs.run import run
from attnprobe.runs.studies import carry_out_study, with_teacher
from tests.small_runs import NARROW, SMALL, composed

TINY = (
    "data.source.train_size=60",
    "data.source.validation_size=20",
    "data.source.test_size=20",
    "training.epochs=1",
    NARROW,
)
STUDY = ("study.seeds=[1]", "study.weights=[0.0,0.5]")


def command(output, *more):
    return ["+experiment=wiegreffe", *SMALL, *TINY, *STUDY, f"output={output}", *more]


def compose(overrides):
    return composed(*overrides)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return carry_out_study(command(tmp_path_factory.mktemp("runs")), compose)


def members(directory):
    return pd.DataFrame(json.loads((directory / "study.json").read_text())["members"])


def test_every_member_is_a_finished_run_with_the_teacher_it_should_have(finished):
    runs = members(finished)
    assert runs.groupby("role").size().to_dict() == {
        "base": 2,
        "uniform": 2,
        "adversary": 2,
        "guide_uniform": 2,
        "guide_trained": 2,
        "guide_base": 2,
        "guide_adversary": 2,
    }
    base = runs[runs["role"] == "base"].iloc[0]["run_id"]
    adversaries = {
        finished / row.directory: row.run_id
        for row in runs[runs["role"] == "adversary"].itertuples()
    }
    chosen = adversaries[chosen_adversary(list(adversaries), 0.4)]
    teachers = {
        "uniform": None,
        "guide_uniform": None,
        "guide_trained": None,
        "guide_adversary": chosen,
    }
    for row in runs.itertuples():
        manifest = RunDirectory(finished / row.directory).manifest()
        teacher = teachers.get(row.role, None if row.run_id == base else base)
        assert (manifest["teacher"] and manifest["teacher"]["run_id"]) == teacher, row.role
        assert manifest["experiment"] == f"wiegreffe_{row.role}"


@pytest.mark.slow
def test_a_killed_study_goes_on_and_ends_with_the_same_tables(finished, tmp_path):
    write_study(read_study(finished))
    output = tmp_path / "runs"
    shutil.copytree(finished.parents[1], output)
    copied = output / "testbed" / finished.name
    shutil.rmtree(copied)
    times = {path: path.stat().st_mtime_ns for path in sorted(output.rglob("manifest.json"))}
    for path in list(times)[::3]:  # as if killed before these were done
        shutil.rmtree(path.parent)
        del times[path]
    again = carry_out_study(command(output), compose)
    assert again.name == finished.name
    write_study(read_study(again))
    tables = sorted((finished / "tables").glob("*.csv"))
    assert len(tables) == 4
    for table in tables:
        assert (again / "tables" / table.name).read_bytes() == table.read_bytes()
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_teacher_auto_finds_or_trains_the_base(tmp_path, capsys):
    settings = [*SMALL, *TINY, "training=adversary", "probe=[teacher]", f"output={tmp_path}"]
    command_line = [*settings, "teacher=auto"]
    first = with_teacher(command_line, compose)
    directory = first[-1].removeprefix("teacher=")
    assert "teacher: " in capsys.readouterr().out
    recipe = RunDirectory(directory).manifest()["training"]["training"]["recipe"]
    assert recipe["selection_metric"] == "roc_auc"
    manifest = tmp_path / directory / "manifest.json"
    before = manifest.stat().st_mtime_ns
    assert with_teacher(command_line, compose) == first  # found this time
    assert manifest.stat().st_mtime_ns == before
    adversary = run(composed(*first))
    assert RunDirectory(adversary).manifest()["teacher"]["directory"] == directory
    named = [*settings, f"teacher={directory}"]
    assert with_teacher(named, compose) == named


def test_a_mismatched_teacher_is_refused_and_nothing_is_left_behind(tmp_path, finished):
    base = finished / members(finished).iloc[0]["directory"]
    adversary = ("training=adversary", "probe=[teacher]", f"teacher={base}")
    common = [*SMALL, *TINY, *adversary, f"output={tmp_path}"]
    with pytest.raises(UserError, match="another split: 60 examples in train there, 70 here"):
        run(composed(*common, "data.source.train_size=70"))
    with pytest.raises(UserError, match=r"another tokenisation: .* and 5 here"):
        run(composed(*common, "data.max_tokens=5"))
    assert not list(tmp_path.rglob("config.yaml"))


def test_an_adversary_needs_a_teacher_that_is_there(tmp_path):
    settings = (*SMALL, "training=adversary", f"output={tmp_path}")
    with pytest.raises(UserError, match="teacher=None: name a finished run"):
        run(composed(*settings))
    with pytest.raises(UserError, match="does not exist"):
        run(composed(*settings, f"teacher={tmp_path / 'no'}"))


WHOLE_MODEL = "attnprobe.models.pretrained.model.PretrainedClassifier"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"seeds": (1,), "weights": (0.1,), "model_class": WHOLE_MODEL},
            "guide and adversary train models of three stages",
        ),
        (
            {"tests": ["seed"]},
            r"study\.tests=.*seed.*: expected .*guide or adversary; did you mean seeds",
        ),
        ({"tests": ["seeds"]}, r"study\.seeds is empty"),
        ({"tests": ["guide"], "seeds": [1]}, r"study\.weights is empty"),
        ({"tests": []}, r"study\.tests is empty: expected one or more of uniform, "),
        (
            {"tests": ["adversary"], "weights": [0.0]},
            r"study\.weights=\[0\.0\]: expected a λ above 0 .*such as \[0\.0,0\.001",
        ),
        ({"seeds": [1], "weights": [0.1], "above": 0.7}, r"study\.above=0\.7: .*below 0\.69"),
    ],
)
def test_a_mistake_in_the_settings_is_named(settings, message):
    with pytest.raises(UserError, match=message):
        Wiegreffe(**settings)


def test_a_whole_model_has_two_of_the_four_tests():
    study = Wiegreffe(tests=("uniform", "seeds"), seeds=(1,), model_class=WHOLE_MODEL)
    done = []
    stages = study.stages(0, "bert", done)
    done += [Done(member, Path("base")) for member in next(stages)]
    uniform = [member.overrides[0] for member in next(stages) if member.role == "uniform"]
    assert uniform == ["model.given=uniform"] * 2


@pytest.mark.parametrize("guide", ["nonsense", "pretrained"])
def test_a_guide_that_no_attention_can_be_imposed_on_is_refused_before_any_training(
    guide, tmp_path
):
    with pytest.raises(UserError, match=f"study.guide={guide}: expected .* such as average"):
        carry_out_study([*command(tmp_path), f"study.guide={guide}"], compose)
    assert not list(tmp_path.rglob("model.safetensors"))


def test_a_study_that_guides_nothing_asks_for_no_guide():
    study = Wiegreffe(tests=("seeds",), seeds=(1,), guide="nonsense")
    assert study.plan(compose, measure=None).rows == {}
