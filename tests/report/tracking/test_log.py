import hashlib
import json
import re
import shutil
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pandas as pd
import pytest
import wandb

import attnprobe
from attnprobe.core.errors import UserError
from attnprobe.report import tracking as log
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.run import run
from tests.report.tracking.sent import artifacts_of, finished_records, history_of, of_kind, summary_of, values
from tests.runs import seal_again, small_run

IDENTITY = {"run_id": "run", "experiment": "jain", "data": "sst", "model": "lstm", "seed": 0}


def test_an_offline_run_holds_numbers_tables_figures_config_group_and_tags(make_run, offline):
    run = make_run("jain/sst #1", count=20)
    log.log_run(run, project="attention", mode="offline", log_text=True)
    assert wandb.run is None  # finished, so that the next run of this process is another one
    (path,) = run.glob("wandb/offline-run-*/*.wandb")
    written = finished_records(path)
    start, *_ = of_kind(written, "run")
    assert start.project == "attention"
    assert start.display_name == "jain/sst #1: permutation, adversarial"
    assert start.run_group == "jain_adversarial"
    assert start.job_type == "sst-lstm_additive"
    assert set(start.tags) == {"sst", "lstm_additive", "seed-0", "permutation", "adversarial"}
    config = {item.key: json.loads(item.value_json) for item in start.config.update}
    assert config["data"] == {"name": "sst"}
    history = history_of(written)
    assert history["adversarial/found_jsd",] > 0
    assert history["tables/adversarial", "_type"] == "table-file"
    assert history["tables/adversarial", "nrows"] == 20
    assert history["figures/adversarial_heatmaps", "_type"] == "image-file"
    assert (path.parent / "files" / history["figures/permutation", "path"]).stat().st_size > 1000
    summary = values(item for part in of_kind(written, "summary") for item in part.update)
    assert summary["performance/accuracy_published",] == pytest.approx(0.808116)
    assert summary["adversarial/found_jsd/class_1_low",] < summary["adversarial/found_jsd/class_1",]


def test_examples_are_heat_maps_in_cells(make_run, offline, no_figures):
    run = make_run(count=20)
    log.log_run(run, project="attention", mode="offline", examples=8)
    (path,) = run.glob("wandb/offline-run-*/*.wandb")
    (table,) = [
        {entry.path: Path(entry.local_path) for entry in artifact.manifest.contents}
        for artifact in of_kind(finished_records(path), "artifact")
        if any("tables/examples_test" in entry.path for entry in artifact.manifest.contents)
    ]
    (content,) = [json.loads(file.read_text()) for name, file in table.items() if name.endswith(".table.json")]
    rows = [dict(zip(content["columns"], row, strict=True)) for row in content["data"]]
    assert len(rows) == 8
    examples = read_examples(run).set_index("example_id")
    moved = read_results(run)
    moved = moved[moved["metric"] == "found_attention"]
    for row in rows:
        example = examples.loc[row["example_id"]]
        assert row["text"] == example["text"]
        found = moved[moved["example_id"] == row["example_id"]].sort_values("step")["value"]
        for column, weights in (("attention", example["attention"]), ("Adversary, found by search", found)):
            html = table[row[column]["path"]].read_text(encoding="utf-8")
            cells = re.findall(r'<i[^>]* title="(\d+): (.*?) — (\S+)">(.*?)</i>', html)
            assert [unescape(word) for _, _, _, word in cells] == list(example["tokens"])
            assert [float(number) for _, _, number, _ in cells] == pytest.approx(list(weights), abs=6e-4)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    return run(small_run(tmp_path_factory.mktemp("runs")))


@pytest.fixture
def directory(trained, tmp_path):
    """A run that logged nothing."""
    return Path(shutil.copytree(trained, tmp_path / trained.name))


def test_curves_are_logged_where_the_training_did_not_log_them(offline, directory, no_figures):
    log.log_run(directory, project="attention", mode="offline")
    (path,) = directory.glob("wandb/offline-run-*/*.wandb")
    steps = [values(history.item) for history in of_kind(finished_records(path), "history")]
    measured = read_results(directory, "training")
    losses = measured[measured["metric"] == "train_loss"].sort_values("step")["value"].tolist()
    assert [step["train/loss",] for step in steps if ("train/loss",) in step] == losses
    assert [step["epoch",] for step in steps if ("epoch",) in step] == [0, 1]
    assert ("validation/roc_auc",) in steps[0]


def test_what_the_training_logged_is_logged_once_and_an_added_probe_joins_it(offline, tmp_path, no_figures):
    for probe in ("permutation", "gradient"):
        directory = run(small_run(tmp_path, "logger=wandb", "logger.mode=offline", probes=f"[{probe}]"))
    (path,) = directory.glob("wandb/offline-run-*/*.wandb")
    written = finished_records(path)
    start, *_ = of_kind(written, "run")
    assert {"permutation", "gradient"} <= set(start.tags)
    assert start.display_name.endswith(": permutation, gradient")
    steps = [values(history.item) for history in of_kind(written, "history")]
    curves = [value for step in steps for name, value in step.items() if name[0].startswith(("train/", "validation/"))]
    assert all(-50 < value < 1000 for value in curves if isinstance(value, int | float))  # none stands for none
    assert set(artifacts_of(written)) == {"model", "results"}
    steps = [{name[0] for name in step} for step in steps]
    assert sum("train/loss" in step for step in steps) == 2  # one per epoch
    for name in ("tables/permutation", "tables/gradient", "tables/examples_test", "performance/accuracy"):
        assert sum(name in step for step in steps) == 1


def test_the_two_artifacts_together_are_the_run(offline, directory, tmp_path, no_figures):
    log.log_run(directory, project="attention", mode="offline")
    (path,) = directory.glob("wandb/offline-run-*/*.wandb")
    written = finished_records(path)
    for files in artifacts_of(written).values():
        for name, local in files.items():
            place = tmp_path / "downloaded" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(local, place)
    pd.testing.assert_frame_equal(read_results(tmp_path / "downloaded"), read_results(directory))
    texts = ["a fine film"]
    again, first = (attnprobe.load_run(place).explain(texts) for place in (tmp_path / "downloaded", directory))
    pd.testing.assert_frame_equal(again, first)
    facts = {
        artifact.type: json.loads(artifact.metadata)
        for artifact in of_kind(written, "artifact")
        if artifact.type in ("model", "results")
    }
    weights = hashlib.sha256((directory / "model.safetensors").read_bytes()).hexdigest()
    assert facts["results"]["checkpoint_sha256"] == facts["model"]["checkpoint_sha256"] == weights
    names = {artifact.type: artifact.name for artifact in of_kind(written, "artifact")}
    assert facts["results"]["model_artifact"] == names["model"]


def test_the_summary_has_the_share_of_the_largest_class_a_warning_and_classes_by_name(make_run, offline, no_figures):
    run = make_run(count=40, names=["thumbs/down", "uplifting"])
    path = run / "examples/test.parquet"
    guessing = pd.read_parquet(path).assign(label=[0] * 30 + [1] * 10, prediction=0)
    guessing.to_parquet(path)
    seal_again(run)
    log.log_run(run, project="attention", mode="offline")
    summary = summary_of(run)
    assert summary["performance/majority",] == 0.75
    assert summary["performance/warning",].startswith("This classifier predicts one class for every text (thumbs/down)")
    assert {("adversarial/found_jsd/thumbs-down",), ("adversarial/found_jsd/uplifting_low",)} <= set(summary)
    assert not [name for name in summary if "class_" in name[0]]
    shutil.rmtree(run / "wandb")  # W&B's links are no files of the run
    guessing.assign(prediction=guessing["label"]).to_parquet(path)
    seal_again(run)
    log.log_run(run, project="attention", mode="offline", group="again")
    summary = summary_of(run)
    assert (summary["performance/majority",], summary["performance/warning",]) == (0.75, "")


def test_logging_again_replaces_what_was_not_sent(make_run, offline, no_figures):
    run = make_run(count=5)
    log.log_run(run, project="attention", mode="offline")
    (first,) = run.glob("wandb/offline-run-*")
    finished_records(next(first.glob("*.wandb")))
    second = first.with_name(first.name.replace("offline-run-2", "offline-run-1"))
    first.rename(second)  # two in one second would share a folder
    log.log_run(run, project="attention", mode="offline", group="mine", log_model=False)
    (left,) = run.glob("wandb/offline-run-*")
    assert left != second
    written = finished_records(next(left.glob("*.wandb")))
    assert of_kind(written, "run")[0].run_group == "mine"
    assert set(artifacts_of(written)) == {"results"}
    (left / "run.wandb.synced").touch()
    sent = left.rename(second)
    log.log_run(run, project="attention", mode="offline")
    assert sent.exists()
    assert len(list(run.glob("wandb/offline-run-*"))) == 2


def test_logging_twice_into_one_run_shows_the_newer_tables_and_the_curves_once(offline, directory, no_figures):
    logged = log.open_run(IDENTITY, [], {}, directory, project="p", mode="offline", resumed=True)
    try:
        for examples in (5, 3):
            log.log_results(logged, directory, examples=examples)
    finally:
        logged.finish()
    written = finished_records(next(directory.glob("wandb/offline-run-*/*.wandb")))
    steps = [values(history.item) for history in of_kind(written, "history")]
    epochs = [step["epoch",] for step in steps if ("epoch",) in step]
    assert epochs == sorted(set(epochs))
    rows = [step["tables/examples_test", "nrows"] for step in steps if ("tables/examples_test", "nrows") in step]
    assert rows == [5, 3]


def test_online_the_checkpoint_is_an_input_and_a_resumed_run_goes_on(make_run, monkeypatch, no_figures):
    directory = make_run(count=5)
    done: dict[str, Any] = {}
    run = MagicMock(offline=False, disabled=False, summary={}, dir=str(directory / "wandb/run-1/files"), id="run")
    monkeypatch.setattr(log.wandb, "init", lambda **given: done.update(given) or run)
    for resumed, resume in ((True, "allow"), (False, None)):
        log.open_run(IDENTITY | {"data": "d" * 80}, ["gradient"], {}, directory, project="p", resumed=resumed)
        assert done["resume"] == resume
    assert done["tags"] == ["d" * 63 + "…", "lstm", "seed-0", "permutation", "adversarial", "gradient"]
    assert done["name"] == "run: permutation, adversarial, gradient"
    log.log_results(run, directory)
    (used,) = run.use_artifact.call_args.args
    (logged,) = run.log_artifact.call_args.args
    assert (used.type, logged.type) == ("model", "results")


def test_runs_of_one_experiment_share_a_group_unless_another_is_named(make_run, monkeypatch):
    done: dict[str, Any] = {}
    monkeypatch.setattr(log.wandb, "init", lambda **given: done.update(given))
    monkeypatch.delenv("WANDB_RUN_GROUP", raising=False)
    directory = make_run(count=5)

    def group(**given: Any) -> str:
        log.open_run(IDENTITY | given.pop("identity", {}), [], {}, directory, project="p", mode="offline", **given)
        return done["group"]

    one = group()
    assert one == "jain"
    for changed in ({"data": "imdb"}, {"seed": 3}, {"model": "cnn"}, {"run_id": "other"}):
        assert group(identity=changed) == one
    monkeypatch.setenv("WANDB_RUN_GROUP", "tuesday")
    assert group() == "tuesday"
    assert group(group="mine") == "mine"


def test_an_unfinished_run_or_an_unreachable_service_is_a_users_error(make_run, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="nothing does not exist: expected a run directory"):
        log.log_run(tmp_path / "nothing", project="p", mode="offline")
    with pytest.raises(UserError, match="hold no number"):
        log.log_run(make_run("bare", probes=()), project="p", mode="offline")

    def refuse(**given):
        raise wandb.Error("no API key configured")

    monkeypatch.setattr(log.wandb, "init", refuse)
    with pytest.raises(UserError, match=r"no API key configured.*wandb login.*mode=offline"):
        log.log_run(make_run(), project="p")
    with pytest.raises(UserError, match=r"logger\.examples=-1: expected how many"):
        log.log_results(MagicMock(), tmp_path, examples=-1)


def test_the_run_is_finished_even_where_logging_fails(make_run, monkeypatch, offline):
    def fail(*given, **named):
        raise RuntimeError("disk full")

    monkeypatch.setattr(log, "draw_figures", fail)
    with pytest.raises(RuntimeError, match="disk full"):
        log.log_run(make_run(count=5), project="p", mode="offline")
    assert wandb.run is None
