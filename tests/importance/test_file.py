import gzip
import json
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import attnprobe
from attnprobe.core.errors import UserError
from attnprobe.report.page.build import write_report
from attnprobe.results.directory import RunDirectory
from attnprobe.runs.run import run
from attnprobe.runs.settings import resumed
from tests.invented_runs import without_pictures
from tests.small_runs import composed, small_run

PROBES = "[correlation,plausibility,erasure,single_weight]"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A finished run, and what a user's own tool makes of its texts: one number per word."""
    directory = run(small_run(tmp_path_factory.mktemp("runs"), probes="[]"))
    examples = attnprobe.read_examples(directory)
    rows = []
    for number, tokens in zip(examples["example_id"], examples["tokens"], strict=True):
        row = {
            "example_id": int(number),
            "tokens": list(tokens),
            "scores": [score_of(word) for word in tokens],
        }
        rows.append(row)
    return directory, rows


def score_of(word):
    """By the word's length, and by its letters where two are equally long."""
    by_length = (len(word) - 4) / 8
    by_letters = sum(map(ord, word)) % 97 / 1000
    return by_length + by_letters


def written(path, rows):
    if path.name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        with (gzip.open if path.name.endswith(".gz") else open)(path, "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def measured(directory, path, *overrides, probes=PROBES):
    settings = [
        f"run={directory}",
        f"probe={probes}",
        "importances=[attention,file]",
        f"importance.file.path={path}",
    ]
    config = composed(*settings, "figures=false", *overrides)
    return run(resumed(config, [*settings, *overrides]))


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("own.parquet", ("example_id",)),
        ("own.jsonl", ("example_id", "tokens")),
        ("own.jsonl.gz", ("tokens",)),
    ],
)
def test_its_numbers_are_those_of_the_file(trained, tmp_path, name, keys):
    directory, rows = trained
    cells = []
    for place in np.random.default_rng(0).permutation(len(rows)):
        row = rows[place]
        cells.append({key: row[key] for key in (*keys, "scores")})
    path = written(tmp_path / name, cells)
    measured(
        directory,
        path,
        "importance.file.signed=true",
        "on_finished=remeasure",
        probes="[correlation]",
    )
    results = attnprobe.read_results(directory, probe="correlation")
    tau = results[results["metric"] == "tau_attention_file"].set_index("example_id")["value"]
    texts = attnprobe.read_examples(directory).set_index("example_id")
    assert len(tau) == len(rows)
    for row in rows:
        expected = stats.kendalltau(
            texts["attention"][row["example_id"]], np.abs(row["scores"])
        ).statistic
        assert tau[row["example_id"]] == pytest.approx(expected, nan_ok=True)


def test_it_stands_wherever_a_built_in_one_does(trained, tmp_path):
    directory, rows = trained
    path = written(tmp_path / "shap.parquet", rows)
    measured(
        directory,
        path,
        "importance.file.title=our own tool",
        "importance.file.colour='#123456'",
        "importance.file.signed=true",
        "on_finished=remeasure",
    )
    results = attnprobe.read_results(directory)
    assert {
        "tau_attention_file",
        "tau_shuffled_file",
        "top_in_rationale_file",
        "mass_in_rationale_file",
        "flip_top_file",
        "removed_fraction_file",
        "regret_file",
    } <= set(results["metric"].unique())
    facts = RunDirectory(directory).manifest()["tables"]["erasure"]["importances"]["file"]
    assert facts["name"] == "file"
    assert facts["title"] == "our own tool"
    assert facts["colour"] == "#123456"
    assert facts["signed"] is True
    assert facts["files"]["path"]["bytes"] == path.stat().st_size
    with without_pictures():
        page = write_report([directory], tmp_path / "report.html").read_text()
    assert "our own tool" in page


def test_a_changed_file_is_measured_again_and_an_unchanged_one_is_not(trained, tmp_path):
    directory, rows = trained
    path = written(tmp_path / "own.jsonl", rows)
    measured(directory, path, "on_finished=remeasure", probes="[plausibility]")
    with pytest.raises(UserError, match="already holds this finished run"):
        measured(directory, path, probes="[plausibility]")
    doubled_rows = []
    for row in rows:
        doubled = [2 * value for value in row["scores"]]
        doubled_rows.append(row | {"scores": doubled})
    written(path, doubled_rows)
    assert measured(directory, path, probes="[plausibility]") == directory


def test_a_text_without_scores_is_undefined(trained, tmp_path):
    directory, rows = trained
    rows = [rows[0] | {"scores": None}, *rows[1:]]
    measured(directory, written(tmp_path / "own.jsonl", rows), "on_finished=remeasure")
    results = attnprobe.read_results(directory)
    measured_by_file = results[
        results["metric"].astype(str).str.endswith("_file") & results["step"].isna()
    ]
    none = measured_by_file[measured_by_file["example_id"] == rows[0]["example_id"]]
    assert len(none) == measured_by_file["metric"].nunique()
    assert none["value"].isna().all()
    tau = measured_by_file[measured_by_file["metric"] == "tau_attention_file"]
    assert tau["value"].isna().sum() < len(rows) / 2


def changed(rows, place, **values):
    """The rows, one of them with other values."""
    changed_rows = list(rows)
    changed_rows[place] = rows[place] | values
    return changed_rows


WRONG = {
    "missing": (lambda rows: rows[2:], r"no scores for 2 of the 30 texts .* \(example 0, 1\)"),
    "unknown id": (
        lambda rows: [*rows, rows[0] | {"example_id": 999}],
        r"row 31 .* about no text of the test",
    ),
    "twice": (
        lambda rows: [*rows, rows[3]],
        r"row 4 \(example_id 3\) and row 31 are about the same example",
    ),
    "short": (
        lambda rows: changed(rows, 1, scores=rows[1]["scores"][1:]),
        r"\d+ scores, and example 1 has \d+ words",
    ),
    "NaN": (
        lambda rows: changed(rows, 1, scores=[*rows[1]["scores"][:-1], float("nan")]),
        r"word \d+, '\S+', is nan",
    ),
    "null": (
        lambda rows: changed(rows, 1, scores=[None, *rows[1]["scores"][1:]]),
        r"score of word 1, '\S+', is nan",
    ),
    "other words": (
        lambda rows: changed(rows, 1, tokens=["other", *rows[1]["tokens"][1:]]),
        "there 'other ",
    ),
    "no key": (
        lambda rows: [{"scores": row["scores"]} for row in rows],
        "one of the columns example_id, tokens, text",
    ),
    "no scores": (
        lambda rows: [{"score": row["scores"], "example_id": 1} for row in rows],
        r"did you mean score\?",
    ),
    "words": (
        lambda rows: [row | {"scores": row["tokens"]} for row in rows],
        r"type list<.*expected a list of numbers",
    ),
    "ids are text": (
        lambda rows: [row | {"example_id": str(row["example_id"])} for row in rows],
        "expected a whole number",
    ),
    "an id is missing": (
        lambda rows: changed(rows, 1, example_id=None),
        "no value in some row: expected a whole number",
    ),
}


@pytest.mark.parametrize(
    ("name", "wrong"), [*zip(cycle(["own.parquet", "own.jsonl"]), WRONG, strict=False)]
)
def test_what_does_not_fit_is_refused_in_one_line(trained, tmp_path, wrong, name):
    directory, rows = trained
    change, expected = WRONG[wrong]
    before = attnprobe.read_results(directory)
    path = written(tmp_path / name, change(rows))
    with pytest.raises(UserError, match=expected) as refused:
        measured(directory, path, "on_finished=remeasure")
    assert "\n" not in str(refused.value)
    assert str(path) in str(refused.value)
    assert attnprobe.read_results(directory).equals(before)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (None, "no path"),
        ("missing.parquet", "missing.parquet does not exist"),
        ("own.csv", "own.csv: expected .* ends in .parquet"),
    ],
)
def test_no_file_is_refused_before_anything_is_read(trained, tmp_path, name, expected):
    directory, _ = trained
    written(tmp_path / "own.csv", [])
    path = "null" if name is None else tmp_path / name
    with pytest.raises(UserError, match=expected):
        measured(directory, path, "on_finished=remeasure")


@dataclass(frozen=True)
class ScoredReviews:
    """A run on reviews some of which are there twice, and scores that name them by their text."""

    directory: Path
    settings: list[str]
    rows: list[dict[str, object]]

    def measured_with(self, path, *overrides):
        """The run, examined with the scores of a file beside attention."""
        file_settings = ["importances=[attention,file]", f"importance.file.path={path}"]
        return run(composed(*self.settings, "probe=[correlation]", *file_settings, *overrides))


@pytest.fixture
def scored_reviews(tmp_path):
    reviews = [
        {"review": f"{word.title()} film, number {number % 9}!", "label": number % 2}
        for number in range(60)
        for word in ("good", "bad")
    ]
    data = written(tmp_path / "reviews.jsonl", reviews)
    settings = [
        "data=files",
        f"data.path={data}",
        "data.text=review",
        "data.embedding_size=12",
        "training.epochs=1",
        "trainer.accelerator=cpu",
        "figures=false",
        f"output={tmp_path}",
    ]
    directory = run(composed(*settings, "probe=[]"))
    pipeline = attnprobe.load_run(directory).pipeline
    rows = []
    for review in reviews:
        words = pipeline.tokens(review["review"])
        rows.append({"text": review["review"], "scores": list(range(len(words)))})
    return ScoredReviews(directory, settings, rows)


def test_scores_by_the_texts_themselves(scored_reviews, tmp_path):
    """The data's own texts name the rows; texts that are there twice may have one row each."""
    examples = attnprobe.read_examples(scored_reviews.directory)
    assert len(examples) < len(scored_reviews.rows)  # of all splits
    scored_reviews.measured_with(written(tmp_path / "own.jsonl", scored_reviews.rows))

    results = attnprobe.read_results(scored_reviews.directory, probe="correlation")
    tau = results[results["metric"] == "tau_attention_file"]
    assert len(tau)
    attentions = examples.set_index("example_id")["attention"]
    for number, value in zip(tau["example_id"], tau["value"], strict=True):
        attention = attentions[number]
        expected = stats.kendalltau(attention, range(len(attention))).statistic
        assert value == pytest.approx(expected)


def test_two_rows_of_one_text_may_not_differ(scored_reviews, tmp_path):
    first = scored_reviews.rows[0]
    contradiction = first | {"scores": [9.0] * len(first["scores"])}
    path = written(tmp_path / "own.jsonl", [*scored_reviews.rows, contradiction])
    message = r"are about the same words, with other scores: expected one row for each"
    with pytest.raises(UserError, match=message):
        scored_reviews.measured_with(path)


def test_new_texts_have_their_scores_in_the_file(trained, tmp_path):
    directory, _ = trained
    texts = ["the film was good", "the acting was bad"]
    rows = [{"text": text, "scores": [0.0, 0.25, -1.0, 4.0]} for text in [*texts, "another text"]]
    path = written(tmp_path / "new.jsonl", rows)
    trained_run = attnprobe.load_run(directory)
    trained_run.config["importance"]["file"]["path"] = str(path)
    explained = trained_run.explain(texts, importance=["file"])
    assert explained["file"].tolist() == [[0.0, 0.25, -1.0, 4.0]] * 2
    with pytest.raises(UserError, match=r"no scores for 1 of the 1 texts of those to explain"):
        trained_run.explain(["an unknown text"], importance=["file"])
