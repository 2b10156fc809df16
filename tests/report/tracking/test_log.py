import hashlib
import json
import re
import shutil
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import wandb
from numpy.testing import assert_array_equal
from pandas.testing import assert_frame_equal

import attnprobe
from attnprobe.core.errors import UserError
from attnprobe.evidence.verdicts import Verdict
from attnprobe.findings import findings
from attnprobe.findings.groups import read_run
from attnprobe.report import tracking as log
from attnprobe.report.tracking import example_table
from attnprobe.results.numbers import numbers_of
from attnprobe.results.table import read_examples, read_results
from attnprobe.runs.run import run
from tests.invented_runs import invented_run
from tests.report.tracking import sent
from tests.report.tracking.conftest import keep_offline
from tests.small_runs import seal_again, small_run

IDENTITY = {"run_id": "run", "experiment": "jain", "data": "sst", "model": "lstm", "seed": 0}


@dataclass(frozen=True)
class SentRun:
    """A run, and the records that W&B would send of it."""

    directory: Path
    records: list[Any]

    def rows_of(self, name: str) -> list[dict[str, Any]]:
        """The rows of a logged table."""
        return sent.files_of_table(self.records, f"tables/{name}")[0]

    @property
    def summary(self) -> dict[tuple[str, ...], Any]:
        return sent.summary_of(self.directory)


@pytest.fixture(scope="module")
def sent_run(tmp_path_factory) -> SentRun:
    """A run of two probes, logged with its figures and eight examples."""
    folder = tmp_path_factory.mktemp("sent")
    with pytest.MonkeyPatch.context() as patch:
        keep_offline(patch, folder)
        run = invented_run(folder, "jain/sst #1", count=20, names=["bad", "good"])
        log.log_run(run, project="attention", mode="offline", examples=8)
        assert wandb.run is None  # finished, so that the next run of this process is another one
        return SentRun(run, sent.of_run(run))


def test_an_offline_run_has_a_name_a_group_tags_and_its_config(sent_run):
    start, *_ = sent.of_kind(sent_run.records, "run")
    assert (start.project, start.run_group) == ("attention", "jain_adversarial")
    assert (start.display_name, start.job_type) == (
        "jain/sst #1: permutation, adversarial",
        "sst-lstm_additive",
    )
    assert set(start.tags) == {"sst", "lstm_additive", "seed-0", "permutation", "adversarial"}
    config = {item.key: json.loads(item.value_json) for item in start.config.update}
    assert config["data"] == {"name": "sst"}


def test_an_offline_run_holds_numbers_tables_and_figures(sent_run):
    history = sent.history_of(sent_run.records)
    assert history["adversarial/found_jsd",] > 0
    assert history["tables/adversarial", "_type"] == "table-file"
    assert history["figures/adversarial_heatmaps", "_type"] == "image-file"
    (folder,) = sent_run.directory.glob("wandb/offline-run-*")
    assert (folder / "files" / history["figures/permutation", "path"]).stat().st_size > 1000


def test_the_summary_has_published_numbers_and_intervals_and_no_long_cell(sent_run):
    summary = sent_run.summary
    assert summary["performance/accuracy_published",] == pytest.approx(0.808116)
    assert summary["adversarial/found_jsd/good_low",] < summary["adversarial/found_jsd/good",]
    # what the settings of W&B's table of runs are made of: no cell of it is long
    assert all(len(value) <= 250 for value in summary.values() if isinstance(value, str))


def test_curves_go_by_epochs_and_of_a_verdict_the_last_one_counts(sent_run):
    defined = {metric.glob_name: metric for metric in sent.of_kind(sent_run.records, "metric")}
    assert defined["train/*"].step_metric == defined["validation/*"].step_metric == "epoch"
    assert defined["verdict/*"].summary.last


def adversarial_numbers(directory: Path) -> pd.DataFrame:
    """A row for every example, a column for every metric."""
    return read_results(directory, probe="adversarial").pivot_table(
        index="example_id", columns="metric", values="value"
    )


def test_a_probes_table_has_one_row_per_example_without_numbers_per_position(sent_run):
    rows = sent_run.rows_of("adversarial")
    optima = {row["example_id"]: row["optimum_jsd"] for row in rows}
    expected = adversarial_numbers(sent_run.directory)["optimum_jsd"]
    assert optima == pytest.approx(expected.to_dict())
    assert len(rows) == 20
    assert "found_attention" not in rows[0]


def test_the_verdicts_are_a_table_and_numbers_of_the_summary(sent_run):
    stored = findings(sent_run.directory)
    lines = [*stored[stored["primary"]].itertuples(index=False)]
    verdicts = {
        (row["criterion"], row["level"]): row["verdict"] for row in sent_run.rows_of("verdicts")
    }
    assert verdicts == {(line.criterion, line.level): line.verdict for line in lines}
    summary = sent_run.summary
    for line in lines:
        if line.verdict != Verdict.NOT_TESTED:
            name = f"verdict/{line.criterion}/{line.level}"
            assert (summary[name,], summary[f"{name}_value",]) == (line.verdict, line.value)
    notes = [part.notes for part in sent.of_kind(sent_run.records, "run") if part.notes]
    assert notes[-1:] == [f"{stored['chip'].iloc[0]}. {stored['sentence'].iloc[0]}"]


def test_the_findings_are_a_table(sent_run):
    claim = "the_search_falls_short"
    (search_row,) = [row for row in sent_run.rows_of("findings") if row["claim"] == claim]
    numbers = adversarial_numbers(sent_run.directory)
    shortfall = (numbers["optimum_jsd"] - numbers["found_jsd"]).mean()
    assert search_row["value"] == pytest.approx(shortfall, rel=0.2)


def test_examples_are_heat_maps_in_cells(sent_run):
    rows, files = sent.files_of_table(sent_run.records, "tables/examples_test")
    assert len(rows) == 8
    examples = read_examples(sent_run.directory).set_index("example_id")
    results = read_results(sent_run.directory)
    moved = results[results["metric"] == "found_attention"]
    for row in rows:
        example = examples.loc[row["example_id"]]
        assert row["text"] == example["text"]
        found_weights = moved[moved["example_id"] == row["example_id"]].sort_values("step")["value"]
        for column, weights in (
            ("attention", example["attention"]),
            ("Adversary, found by search", found_weights),
        ):
            html = files[row[column]["path"]].read_text(encoding="utf-8")
            cells = re.findall(r'<i[^>]* title="(\d+): (.*?) — (\S+)">(.*?)</i>', html)
            assert [unescape(word) for _, _, _, word in cells] == list(example["tokens"])
            assert [float(number) for _, _, number, _ in cells] == pytest.approx(
                list(weights), abs=6e-4
            )


def test_what_the_training_logged_is_logged_once_and_an_added_probe_joins_it(
    offline, tmp_path, no_figures
):
    for probe in ("permutation", "gradient"):
        directory = run(
            small_run(tmp_path, "logger=wandb", "logger.mode=offline", probes=f"[{probe}]")
        )
    written = sent.of_run(directory)
    start, *_ = sent.of_kind(written, "run")
    assert {"permutation", "gradient"} <= set(start.tags)
    steps = sent.steps_of(written)
    curves = [
        value
        for step in steps
        for name, value in step.items()
        if name[0].startswith(("train/", "validation/"))
    ]
    assert all(
        -50 < value < 1000 for value in curves if isinstance(value, int | float)
    )  # none stands for none
    assert set(sent.artifacts_of(written)) == {"model", "results"}
    steps = [{name[0] for name in step} for step in steps]
    assert sum("train/loss" in step for step in steps) == 2  # one per epoch
    for name in (
        "tables/permutation",
        "tables/gradient",
        "tables/examples_test",
        "performance/accuracy",
    ):
        assert sum(name in step for step in steps) == 1


@pytest.fixture
def logged_training(offline, tmp_path, no_figures) -> SentRun:
    """A run that was logged only after its training."""
    directory = run(small_run(tmp_path / "runs"))
    log.log_run(directory, project="attention", mode="offline")
    return SentRun(directory, sent.of_run(directory))


def test_the_two_artifacts_together_are_the_run_and_curves_are_logged_where_the_training_did_not(
    logged_training, tmp_path
):
    directory = logged_training.directory
    download = tmp_path / "downloaded"
    for files in sent.artifacts_of(logged_training.records).values():
        for name, local in files.items():
            place = download / name
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(local, place)
    assert_frame_equal(read_results(download), read_results(directory))
    again = attnprobe.load_run(download).explain(["a fine film"])
    first = attnprobe.load_run(directory).explain(["a fine film"])
    assert_frame_equal(again, first)
    check_artifacts_name_the_weights(logged_training)
    check_curves_are_those_of_the_training(logged_training)


def check_artifacts_name_the_weights(logged: SentRun) -> None:
    artifacts = {
        artifact.type: artifact
        for artifact in sent.of_kind(logged.records, "artifact")
        if artifact.type in ("model", "results")
    }
    facts = {kind: json.loads(artifact.metadata) for kind, artifact in artifacts.items()}
    weights = hashlib.sha256((logged.directory / "model.safetensors").read_bytes()).hexdigest()
    assert facts["results"]["checkpoint_sha256"] == facts["model"]["checkpoint_sha256"] == weights
    assert facts["results"]["model_artifact"] == artifacts["model"].name


def check_curves_are_those_of_the_training(logged: SentRun) -> None:
    measured = read_results(logged.directory, "training")
    losses = measured[measured["metric"] == "train_loss"].sort_values("step")["value"].tolist()
    steps = sent.steps_of(logged.records)
    assert [step["train/loss",] for step in steps if ("train/loss",) in step] == losses
    assert [step["epoch",] for step in steps if ("epoch",) in step] == [0, 1]
    assert ("validation/roc_auc",) in steps[0]


def test_the_summary_has_the_share_of_the_largest_class_a_warning_and_classes_by_name(
    make_run, offline, no_figures
):
    run = make_run(count=40, names=["thumbs/down", "uplifting"])
    path = run / "examples/test.parquet"
    pd.read_parquet(path).assign(label=[0] * 30 + [1] * 10, prediction=0).to_parquet(path)
    seal_again(run)
    log.log_run(run, project="attention", mode="offline")
    summary = sent.summary_of(run)
    assert summary["performance/majority",] == 0.75
    assert "one class for every text (thumbs/down)" in summary["performance/warning",]
    assert {
        ("adversarial/found_jsd/thumbs-down",),
        ("adversarial/found_jsd/uplifting_low",),
    } <= set(summary)
    assert not [name for name in summary if "class_" in name[0]]


def test_logging_again_replaces_what_was_not_sent(make_run, offline, no_figures):
    run = make_run(count=5)
    log.log_run(run, project="attention", mode="offline")
    (first,) = run.glob("wandb/offline-run-*")
    sent.of_run(run)
    second = first.with_name(first.name.replace("offline-run-2", "offline-run-1"))
    first.rename(second)  # two in one second would share a folder
    log.log_run(run, project="attention", mode="offline", group="mine", log_model=False)
    (folder,) = run.glob("wandb/offline-run-*")
    assert folder != second
    written = sent.of_run(run)
    assert sent.of_kind(written, "run")[0].run_group == "mine"
    assert set(sent.artifacts_of(written)) == {"results"}
    (folder / "run.wandb.synced").touch()
    uploaded = folder.rename(second)
    log.log_run(run, project="attention", mode="offline")
    assert uploaded.exists()
    assert len(list(run.glob("wandb/offline-run-*"))) == 2


def test_online_the_checkpoint_is_an_input_and_a_resumed_run_goes_on(
    make_run, monkeypatch, no_figures
):
    directory = make_run(count=5)
    done: dict[str, Any] = {}
    run = MagicMock(
        offline=False,
        disabled=False,
        summary={},
        dir=str(directory / "wandb/run-1/files"),
        id="run",
    )
    monkeypatch.setattr(log.wandb, "init", lambda **arguments: done.update(arguments) or run)
    for resumed, resume in ((True, "allow"), (False, None)):
        log.open_run(
            IDENTITY | {"data": "d" * 80}, ["gradient"], {}, directory, project="p", resumed=resumed
        )
        assert done["resume"] == resume
    assert done["tags"] == [
        "d" * 63 + "…",
        "lstm",
        "seed-0",
        "permutation",
        "adversarial",
        "gradient",
    ]
    assert done["name"] == "run: permutation, adversarial, gradient"
    log.log_results(run, directory)
    (used,) = run.use_artifact.call_args.args
    (logged,) = run.log_artifact.call_args.args
    assert (used.type, logged.type) == ("model", "results")


def test_runs_of_one_experiment_share_a_group_unless_another_is_named(make_run, monkeypatch):
    done: dict[str, Any] = {}
    monkeypatch.setattr(log.wandb, "init", lambda **arguments: done.update(arguments))
    monkeypatch.delenv("WANDB_RUN_GROUP", raising=False)
    directory = make_run(count=5)

    def group(changed, **settings: Any) -> str:
        log.open_run(IDENTITY | changed, [], {}, directory, project="p", mode="offline", **settings)
        return done["group"]

    every = [
        group(changes)
        for changes in ({}, {"data": "imdb"}, {"seed": 3}, {"model": "cnn"}, {"run_id": "other"})
    ]
    assert set(every) == {"jain"}
    monkeypatch.setenv("WANDB_RUN_GROUP", "tuesday")
    assert (group({}), group({}, group="mine")) == ("tuesday", "mine")


VARIABLES = {"project": "WANDB_PROJECT", "entity": "WANDB_ENTITY", "mode": "WANDB_MODE"}


@pytest.mark.parametrize("setting", VARIABLES)
def test_wandbs_variables_mean_what_they_mean_elsewhere(make_run, monkeypatch, setting):
    done: dict[str, Any] = {}
    monkeypatch.setattr(log.wandb, "init", lambda **arguments: done.update(arguments))
    for name in VARIABLES.values():
        monkeypatch.delenv(name, raising=False)
    directory = make_run(count=5)

    def asked(**settings):
        log.open_run(IDENTITY, [], {}, directory, **({"project": None} | settings))
        return done[setting]

    default = {"project": "attnprobe", "entity": None, "mode": "online"}[setting]
    assert asked() == default
    monkeypatch.setenv(VARIABLES[setting], "")
    assert asked() == default
    monkeypatch.setenv(VARIABLES[setting], "offline")
    assert asked() == "offline"
    assert asked(**{setting: "disabled"}) == "disabled"


def test_a_link_in_place_of_wandbs_folder_is_refused(make_run, tmp_path):
    directory = make_run(count=5)
    (tmp_path / "elsewhere").mkdir()
    (directory / "wandb").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="wandb is a symbolic link"):
        log.open_run(IDENTITY, [], {}, directory, project="p", mode="offline")
    assert not any((tmp_path / "elsewhere").iterdir())


def test_an_unfinished_run_or_an_unreachable_service_is_a_users_error(
    make_run, tmp_path, monkeypatch, offline
):
    with pytest.raises(UserError, match="nothing does not exist: expected a run directory"):
        log.log_run(tmp_path / "nothing", project="p", mode="offline")
    with pytest.raises(UserError, match="hold no number"):
        log.log_run(make_run("bare", probes=()), project="p", mode="offline")

    def refuse(*arguments, **named):
        raise wandb.Error("no API key configured")

    with monkeypatch.context() as patch:  # the run is finished even where logging fails
        patch.setattr(log, "png_figures", refuse)
        with pytest.raises(wandb.Error):
            log.log_run(make_run(count=5), project="p", mode="offline")
    assert wandb.run is None

    monkeypatch.setattr(log.wandb, "init", refuse)
    with pytest.raises(UserError, match=r"no API key configured.*wandb login.*mode=offline"):
        log.log_run(make_run("other"), project="p")
    with pytest.raises(UserError, match=r"logger\.examples=-1: expected how many"):
        log.log_results(MagicMock(), tmp_path, examples=-1)


def test_without_text_no_word_leaves(offline, tmp_path):
    """Words of the data, the names of the classes and the questions' words, in whatever file W&B
    would send."""
    overrides = (
        "task=qa",
        "data=stories",
        "data.source.train_size=60",
        "data.source.validation_size=20",
    )
    directory = run(
        small_run(tmp_path / "runs", *overrides, "figures=false", probes="[permutation,gradient]")
    )
    log.log_run(directory, project="attention", mode="offline", log_text=False)
    words = set(json.loads((directory / "vocabulary.json").read_text())) - {
        "<PAD>",
        "<UNK>",
        "<SOS>",
        "<EOS>",
    }
    long = {word.encode() for word in words if len(word) > 5}
    assert len(long) > 5
    (folder,) = directory.glob("wandb/offline-run-*")
    artifacts = sent.artifacts_of(sent.of_run(directory))
    content = sent.everything_sent(directory, offline)
    assert not {word for word in long if re.search(rb"\b" + re.escape(word) + rb"\b", content)}
    assert b'title="0: 0' in content  # positions stand where the words would
    assert not list(folder.rglob("*heatmaps*"))
    assert {path.name for path in directory.glob("*.json")} >= {
        "vocabulary.json"
    }  # nothing is lost here
    assert "vocabulary.json" not in artifacts["model"]
    assert pq.read_table(artifacts["results"]["examples/test.parquet"]).num_rows == len(
        read_examples(directory)
    )


def test_without_text_no_class_name_leaves_in_keys_warnings_tables_figures_or_files(
    make_run, offline
):
    run = make_run(count=40, names=["thumbs-down", "uplifting"])
    (run / "pipeline.json").write_text(json.dumps({"classes": ["thumbs-down", "uplifting"]}))
    path = run / "examples/test.parquet"
    pd.read_parquet(path).assign(prediction=1, label=1).to_parquet(path)
    seal_again(run)
    log.log_run(run, project="attention", mode="offline", log_text=False)
    assert b"uplifting" in (run / "manifest.json").read_bytes()
    summary = sent.summary_of(run)
    assert "one class for every text (name not logged)" in summary["performance/warning",]
    assert ("adversarial/found_jsd/class_1",) in summary
    content = sent.everything_sent(run, offline)
    assert b"name not logged" in content
    assert b"thumbs" not in content
    assert b"uplifting" not in content


def test_half_are_the_largest_of_each_class_and_half_evenly_spaced(make_run):
    run = make_run(count=50, classes=3)
    results = read_results(run)
    examples = read_examples(run)

    chosen = example_table(read_run(run), most=12, log_text=True)

    assert chosen["chosen"].tolist() == ["largest"] * 6 + ["evenly spaced"] * 6
    ids = chosen["example_id"].tolist()
    jsd = results[results["metric"] == "optimum_jsd"].set_index("example_id")["value"]
    decision = examples.set_index("example_id")["prediction"]
    largest = set()
    for class_ in range(3):
        largest |= set(jsd[decision == class_].nlargest(2).index)
    assert set(ids[:6]) == largest
    # each class's largest before any class's second one
    assert sorted(decision[ids[:3]]) == [0, 1, 2]

    rest = [number for number in range(50) if number not in largest]
    assert ids[6:] == [rest[round(place * 43 / 5)] for place in range(6)]


def test_without_the_adversary_the_largest_weight_counts(make_run):
    run = make_run(count=30, longest=10, probes=("performance", "permutation"))
    examples = read_examples(run)
    assert any(len(weights) == 1 for weights in examples["attention"])

    chosen = example_table(read_run(run), most=3, log_text=True)

    # a text of one word has all weight on it, and shows nothing
    examples["largest"] = examples["attention"].map(
        lambda weights: max(weights) if len(weights) > 1 else 0
    )
    strongest = examples.loc[examples["largest"].idxmax()]
    of_its_class = examples[examples["prediction"] == strongest["prediction"]]
    expected = of_its_class.loc[of_its_class["largest"].idxmax(), "example_id"]
    assert chosen["example_id"].iloc[0] == expected


def test_the_cells_are_those_of_the_tables_and_hold_no_words_on_request(make_run):
    run = make_run(count=6)
    results = read_results(run)
    examples = read_examples(run)
    gone = (results["metric"] == "found_attention") & (results["example_id"] == 2)
    table = example_table(
        replace(read_run(run), numbers=numbers_of(results[~gone])), most=6, log_text=True
    )
    assert [cell is not None for cell in table["Adversary, found by search"]] == [
        True,
        True,
        False,
        True,
        True,
        True,
    ]
    assert table["text"].tolist() == examples["text"].tolist()
    assert table["probability"][0].startswith("[0.")
    jsd = results[results["metric"] == "optimum_jsd"].sort_values("example_id")["value"]
    assert_array_equal(table["optimum_jsd"], jsd)
    assert "gradient" not in table
    silent = example_table(read_run(run), most=6, log_text=False)
    assert set(table) - set(silent) == {"text"}
    tokens = {token for tokens in examples["tokens"] for token in tokens if len(token) > 2}
    assert not any(
        f">{token}<" in cell.html for token in tokens for cell in silent["Farthest attention"]
    )
    assert ">0</i>" in silent["attention"][0].html


def test_several_labels_and_sentences(make_run):
    run = make_run(count=2)
    examples = read_examples(run)
    several = {
        "label": [[0, 1], [1, 1]],
        "prediction": [[0, 1], [1, 0]],
        "attention": [[0.4, 0.6], [1.0]],
        "tokens": [["it rains .", "stay"], ["<b>"]],
        "words": [[["it", "rains", "."], ["stay"]], [["<b>"]]],
        "word_attention": [[[0.2, 0.7, 0.1], [1.0]], [[1.0]]],
    }
    examples = examples.assign(**{name: pd.Series(values) for name, values in several.items()})
    pq.write_table(
        pa.Table.from_pandas(examples, preserve_index=False), run / "examples/test.parquet"
    )
    seal_again(run)
    bare = read_results(run)
    bare = bare[bare["step"].isna()]
    table = example_table(replace(read_run(run), numbers=numbers_of(bare)), most=2, log_text=True)
    assert table["label"].tolist() == ["[0, 1]", "[1, 1]"]
    first, second = (cell.html for cell in table["attention"])
    assert 'title="1: rains — 0.700"' in first
    assert "&lt;b&gt;" in second
    assert "<b>" not in second
