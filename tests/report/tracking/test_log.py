import hashlib
import json
import re
import shutil
from collections import Counter
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
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
    assert start.project == "attention"
    assert start.run_group == "jain_adversarial"
    assert start.display_name == "jain/sst #1: permutation, adversarial"
    assert start.job_type == "sst-lstm_additive"
    assert set(start.tags) == {"sst", "lstm_additive", "seed-0", "permutation", "adversarial"}
    config = {item.key: item.value_json for item in start.config.update}
    assert json.loads(config["data"]) == {"name": "sst"}


def test_an_offline_run_holds_numbers_tables_and_figures(sent_run):
    history = sent.history_of(sent_run.records)
    assert history["adversarial/found_jsd",] > 0
    assert history["tables/adversarial", "_type"] == "table-file"
    assert history["figures/adversarial_heatmaps", "_type"] == "image-file"
    (folder,) = sent_run.directory.glob("wandb/offline-run-*")
    figure = folder / "files" / history["figures/permutation", "path"]
    assert figure.stat().st_size > 1000


def test_the_summary_has_published_numbers_and_intervals_and_no_long_cell(sent_run):
    summary = sent_run.summary
    assert summary["performance/accuracy_published",] == pytest.approx(0.808116)
    assert summary["adversarial/found_jsd/good_low",] < summary["adversarial/found_jsd/good",]
    # what the settings of W&B's table of runs are made of: no cell of it is long
    texts = [value for value in summary.values() if isinstance(value, str)]
    assert all(len(text) <= 250 for text in texts)


def test_curves_go_by_epochs_and_of_a_verdict_the_last_one_counts(sent_run):
    metrics = sent.of_kind(sent_run.records, "metric")
    by_name = {metric.glob_name: metric for metric in metrics}
    assert by_name["train/*"].step_metric == "epoch"
    assert by_name["validation/*"].step_metric == "epoch"
    assert by_name["verdict/*"].summary.last


def adversarial_numbers(directory: Path) -> pd.DataFrame:
    """A row for every example, a column for every metric."""
    results = read_results(directory, probe="adversarial")
    return results.pivot_table(index="example_id", columns="metric", values="value")


def test_a_probes_table_has_one_row_per_example_without_numbers_per_position(sent_run):
    rows = sent_run.rows_of("adversarial")
    optima = {row["example_id"]: row["optimum_jsd"] for row in rows}
    expected = adversarial_numbers(sent_run.directory)["optimum_jsd"]
    assert optima == pytest.approx(expected.to_dict())
    assert len(rows) == 20
    assert "found_attention" not in rows[0]


def test_the_verdicts_are_a_table_and_numbers_of_the_summary(sent_run):
    stored = findings(sent_run.directory)
    primary = stored[stored["primary"]]
    place_and_verdict = ["criterion", "level", "verdict"]
    verdicts = pd.DataFrame(sent_run.rows_of("verdicts"))
    logged = verdicts[place_and_verdict].astype(str)
    expected = primary[place_and_verdict].astype(str)
    assert sorted(logged.to_numpy().tolist()) == sorted(expected.to_numpy().tolist())

    summary = sent_run.summary
    for line in primary.itertuples(index=False):
        if line.verdict != Verdict.NOT_TESTED:
            name = f"verdict/{line.criterion}/{line.level}"
            assert summary[name,] == line.verdict
            assert summary[f"{name}_value",] == line.value

    first = stored.iloc[0]
    notes = [part.notes for part in sent.of_kind(sent_run.records, "run") if part.notes]
    assert notes[-1] == f"{first['chip']}. {first['sentence']}"


def test_the_findings_are_a_table(sent_run):
    rows = sent_run.rows_of("findings")
    (search_row,) = [row for row in rows if row["claim"] == "the_search_falls_short"]
    numbers = adversarial_numbers(sent_run.directory)
    shortfall = numbers["optimum_jsd"] - numbers["found_jsd"]
    assert search_row["value"] == pytest.approx(shortfall.mean(), rel=0.2)


def tokens_of(html: str) -> tuple[list[str], list[float]]:
    """The words and the weights of a heat map."""
    words = []
    weights = []
    for number, word in re.findall(r'<i[^>]* title="\d+: .*? — (\S+)">(.*?)</i>', html):
        words.append(unescape(word))
        weights.append(float(number))
    return words, weights


def test_examples_are_heat_maps_in_cells(sent_run):
    rows, files = sent.files_of_table(sent_run.records, "tables/examples_test")
    assert len(rows) == 8
    examples = read_examples(sent_run.directory).set_index("example_id")
    results = read_results(sent_run.directory)
    moved = results[results["metric"] == "found_attention"]
    for row in rows:
        example = examples.loc[row["example_id"]]
        assert row["text"] == example["text"]
        moved_of_example = moved[moved["example_id"] == row["example_id"]].sort_values("step")
        expected_weights = {
            "attention": example["attention"],
            "Adversary, found by search": moved_of_example["value"],
        }
        for column, expected in expected_weights.items():
            path = files[row[column]["path"]]
            words, weights = tokens_of(path.read_text(encoding="utf-8"))
            assert words == list(example["tokens"])
            assert weights == pytest.approx(list(expected), abs=6e-4)


def test_what_the_training_logged_is_logged_once_and_an_added_probe_joins_it(
    offline, tmp_path, no_figures
):
    for probe in ("permutation", "gradient"):
        settings = small_run(tmp_path, "logger=wandb", "logger.mode=offline", probes=f"[{probe}]")
        directory = run(settings)
    written = sent.of_run(directory)
    start, *_ = sent.of_kind(written, "run")
    assert {"permutation", "gradient"} <= set(start.tags)
    assert set(sent.artifacts_of(written)) == {"model", "results"}

    times_logged = Counter()
    for step in sent.steps_of(written):
        names = {name for name, *_ in step}
        times_logged.update(names)
        for (name, *_), value in step.items():
            if name.startswith(("train/", "validation/")) and isinstance(value, int | float):
                assert -50 < value < 1000, name  # none stands for none
    assert times_logged["train/loss"] == 2  # one per epoch
    assert times_logged["tables/permutation"] == 1
    assert times_logged["tables/gradient"] == 1
    assert times_logged["tables/examples_test"] == 1
    assert times_logged["performance/accuracy"] == 1


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
    artifacts = {artifact.type: artifact for artifact in sent.of_kind(logged.records, "artifact")}
    model = artifacts["model"]
    facts_of_model = json.loads(model.metadata)
    facts_of_results = json.loads(artifacts["results"].metadata)
    content = (logged.directory / "model.safetensors").read_bytes()
    digest = hashlib.sha256(content).hexdigest()
    assert facts_of_model["checkpoint_sha256"] == digest
    assert facts_of_results["checkpoint_sha256"] == digest
    assert facts_of_results["model_artifact"] == model.name


def check_curves_are_those_of_the_training(logged: SentRun) -> None:
    measured = read_results(logged.directory, "training")
    losses = measured[measured["metric"] == "train_loss"].sort_values("step")
    steps = sent.steps_of(logged.records)
    logged_losses = [step["train/loss",] for step in steps if ("train/loss",) in step]
    logged_epochs = [step["epoch",] for step in steps if ("epoch",) in step]
    assert logged_losses == losses["value"].tolist()
    assert logged_epochs == [0, 1]
    assert ("validation/roc_auc",) in steps[0]


def test_the_summary_has_the_share_of_the_largest_class_a_warning_and_classes_by_name(
    make_run, offline, no_figures
):
    run = make_run(count=40, names=["thumbs/down", "uplifting"])
    path = run / "examples/test.parquet"
    labels = [0] * 30 + [1] * 10
    examples = pd.read_parquet(path)
    examples.assign(label=labels, prediction=0).to_parquet(path)
    seal_again(run)
    log.log_run(run, project="attention", mode="offline")
    summary = sent.summary_of(run)
    assert summary["performance/majority",] == 0.75
    assert "one class for every text (thumbs/down)" in summary["performance/warning",]
    assert ("adversarial/found_jsd/thumbs-down",) in summary
    assert ("adversarial/found_jsd/uplifting_low",) in summary
    assert not any("class_" in name for name, *_ in summary)


def test_logging_again_replaces_what_was_not_sent(make_run, offline, no_figures):
    run = make_run(count=5)
    log.log_run(run, project="attention", mode="offline")
    (first,) = run.glob("wandb/offline-run-*")
    sent.of_run(run)
    earlier_name = first.name.replace("offline-run-2", "offline-run-1")
    second = first.with_name(earlier_name)
    first.rename(second)  # two in one second would share a folder
    log.log_run(run, project="attention", mode="offline", group="mine", log_model=False)
    (folder,) = run.glob("wandb/offline-run-*")
    assert folder != second
    written = sent.of_run(run)
    start, *_ = sent.of_kind(written, "run")
    assert start.run_group == "mine"
    assert set(sent.artifacts_of(written)) == {"results"}

    (folder / "run.wandb.synced").touch()
    uploaded = folder.rename(second)
    log.log_run(run, project="attention", mode="offline")
    folders = list(run.glob("wandb/offline-run-*"))
    assert uploaded.exists()
    assert len(folders) == 2


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
    identity = IDENTITY | {"data": "d" * 80}
    for resumed, resume in ((True, "allow"), (False, None)):
        log.open_run(identity, ["gradient"], {}, directory, project="p", resumed=resumed)
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
    (used_artifact,) = run.use_artifact.call_args.args
    (logged_artifact,) = run.log_artifact.call_args.args
    assert used_artifact.type == "model"
    assert logged_artifact.type == "results"


def test_runs_of_one_experiment_share_a_group_unless_another_is_named(make_run, monkeypatch):
    done: dict[str, Any] = {}
    monkeypatch.setattr(log.wandb, "init", lambda **arguments: done.update(arguments))
    monkeypatch.delenv("WANDB_RUN_GROUP", raising=False)
    directory = make_run(count=5)

    def group(changes, **settings: Any) -> str:
        identity = IDENTITY | changes
        log.open_run(identity, [], {}, directory, project="p", mode="offline", **settings)
        return done["group"]

    assert group({}) == "jain"
    assert group({"data": "imdb"}) == "jain"
    assert group({"seed": 3}) == "jain"
    assert group({"model": "cnn"}) == "jain"
    assert group({"run_id": "other"}) == "jain"
    monkeypatch.setenv("WANDB_RUN_GROUP", "tuesday")
    assert group({}) == "tuesday"
    assert group({}, group="mine") == "mine"


VARIABLES = {"project": "WANDB_PROJECT", "entity": "WANDB_ENTITY", "mode": "WANDB_MODE"}
DEFAULTS = {"project": "attnprobe", "entity": None, "mode": "online"}


@pytest.mark.parametrize("setting", VARIABLES)
def test_wandbs_variables_mean_what_they_mean_elsewhere(make_run, monkeypatch, setting):
    done: dict[str, Any] = {}
    monkeypatch.setattr(log.wandb, "init", lambda **arguments: done.update(arguments))
    for name in VARIABLES.values():
        monkeypatch.delenv(name, raising=False)
    directory = make_run(count=5)

    def value(**settings):
        arguments = {"project": None} | settings
        log.open_run(IDENTITY, [], {}, directory, **arguments)
        return done[setting]

    default = DEFAULTS[setting]
    variable = VARIABLES[setting]
    assert value() == default
    monkeypatch.setenv(variable, "")
    assert value() == default
    monkeypatch.setenv(variable, "offline")
    assert value() == "offline"
    assert value(**{setting: "disabled"}) == "disabled"


def test_a_link_in_place_of_wandbs_folder_is_refused(make_run, tmp_path):
    directory = make_run(count=5)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (directory / "wandb").symlink_to(elsewhere)
    with pytest.raises(UserError, match="wandb is a symbolic link"):
        log.open_run(IDENTITY, [], {}, directory, project="p", mode="offline")
    assert not any(elsewhere.iterdir())


def test_an_unfinished_run_or_an_unreachable_service_is_a_users_error(
    make_run, tmp_path, monkeypatch, offline
):
    with pytest.raises(UserError, match="nothing does not exist: expected a run directory"):
        log.log_run(tmp_path / "nothing", project="p", mode="offline")
    without_probes = make_run("bare", probes=())
    with pytest.raises(UserError, match="hold no number"):
        log.log_run(without_probes, project="p", mode="offline")

    def refuse(*arguments, **named):
        raise wandb.Error("no API key configured")

    five_texts = make_run(count=5)
    other_run = make_run("other")
    with monkeypatch.context() as patch:  # the run is finished even where logging fails
        patch.setattr(log, "png_figures", refuse)
        with pytest.raises(wandb.Error):
            log.log_run(five_texts, project="p", mode="offline")
    assert wandb.run is None

    monkeypatch.setattr(log.wandb, "init", refuse)
    with pytest.raises(UserError, match=r"no API key configured.*wandb login.*mode=offline"):
        log.log_run(other_run, project="p")
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
        "figures=false",
    )
    settings = small_run(tmp_path / "runs", *overrides, probes="[permutation,gradient]")
    directory = run(settings)
    log.log_run(directory, project="attention", mode="offline", log_text=False)
    content = sent.everything_sent(directory, offline)
    assert b'title="0: 0' in content  # positions stand where the words would
    long_words = long_words_of(directory)
    assert len(long_words) > 5
    for word in long_words:
        whole_word = rb"\b" + re.escape(word.encode()) + rb"\b"
        assert not re.search(whole_word, content), word

    (folder,) = directory.glob("wandb/offline-run-*")
    assert not list(folder.rglob("*heatmaps*"))
    assert (directory / "vocabulary.json").exists()  # nothing is lost here
    artifacts = sent.artifacts_of(sent.of_run(directory))
    assert "vocabulary.json" not in artifacts["model"]
    logged_examples = pq.read_table(artifacts["results"]["examples/test.parquet"])
    assert logged_examples.num_rows == len(read_examples(directory))


def long_words_of(directory: Path) -> list[str]:
    """The words of more than five letters that a run has read."""
    vocabulary = json.loads((directory / "vocabulary.json").read_text())
    return [word for word in vocabulary if len(word) > 5]


def test_without_text_no_class_name_leaves_in_keys_warnings_tables_figures_or_files(
    make_run, offline
):
    names = ["thumbs-down", "uplifting"]
    run = make_run(count=40, names=names)
    pipeline = json.dumps({"classes": names})
    (run / "pipeline.json").write_text(pipeline)
    path = run / "examples/test.parquet"
    examples = pd.read_parquet(path)
    examples.assign(prediction=1, label=1).to_parquet(path)
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
    optima = results[results["metric"] == "optimum_jsd"]
    jsd = optima.set_index("example_id")["value"]
    decision = examples.set_index("example_id")["prediction"]
    largest = set()
    for class_ in range(3):
        largest_of_class = jsd[decision == class_].nlargest(2)
        largest |= set(largest_of_class.index)
    assert set(ids[:6]) == largest
    # each class's largest before any class's second one
    assert sorted(decision[ids[:3]]) == [0, 1, 2]

    rest = [number for number in range(50) if number not in largest]
    evenly_spaced = []
    for step in range(6):
        place = round(step * 43 / 5)
        evenly_spaced.append(rest[place])
    assert ids[6:] == evenly_spaced


def test_without_the_adversary_the_largest_weight_counts(make_run):
    run = make_run(count=30, longest=10, probes=("performance", "permutation"))
    examples = read_examples(run)
    assert any(len(weights) == 1 for weights in examples["attention"])

    chosen = example_table(read_run(run), most=3, log_text=True)

    # a text of one word has all weight on it, and shows nothing
    has_words = examples["attention"].map(len) > 1
    largest_weight = examples["attention"][has_words].map(max)
    strongest = examples.loc[largest_weight.idxmax()]
    assert chosen["example_id"].iloc[0] == strongest["example_id"]


def test_the_cells_are_those_of_the_tables_and_hold_no_words_on_request(make_run):
    run = make_run(count=6)
    results = read_results(run)
    examples = read_examples(run)
    is_search_of_third = (results["metric"] == "found_attention") & (results["example_id"] == 2)
    numbers = numbers_of(results[~is_search_of_third])
    run_without_search = replace(read_run(run), numbers=numbers)
    table = example_table(run_without_search, most=6, log_text=True)
    searches = table["Adversary, found by search"].tolist()
    third = searches.pop(2)
    assert third is None
    assert None not in searches
    assert table["text"].tolist() == examples["text"].tolist()
    assert table["probability"][0].startswith("[0.")
    optima = results[results["metric"] == "optimum_jsd"].sort_values("example_id")
    assert_array_equal(table["optimum_jsd"], optima["value"])
    assert "gradient" not in table

    silent = example_table(read_run(run), most=6, log_text=False)
    assert set(table) - set(silent) == {"text"}
    cells = "".join(cell.html for cell in silent["Farthest attention"])
    for token in np.concatenate(examples["tokens"]):
        if len(token) > 2:
            assert f">{token}<" not in cells
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
    for name, values in several.items():
        examples[name] = pd.Series(values)
    stored = pa.Table.from_pandas(examples, preserve_index=False)
    pq.write_table(stored, run / "examples/test.parquet")
    seal_again(run)
    results = read_results(run)
    without_positions = results[results["step"].isna()]
    bare = replace(read_run(run), numbers=numbers_of(without_positions))
    table = example_table(bare, most=2, log_text=True)
    assert table["label"].tolist() == ["[0, 1]", "[1, 1]"]
    first, second = (cell.html for cell in table["attention"])
    assert 'title="1: rains — 0.700"' in first
    assert "&lt;b&gt;" in second
    assert "<b>" not in second
