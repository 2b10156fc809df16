import numpy as np
import pandas as pd
import pytest

from attnprobe.core.errors import UserError
from attnprobe.findings.bench.scores import KNOWN, FileScores
from tests.toy_bench import toy_model, write_bench

WORDS = 6


@pytest.fixture
def bench(tmp_path):
    return write_bench(tmp_path / "bench")


def rows_of(bench):
    """A row per text of every model: the truth."""
    return pd.DataFrame(
        {
            "model": model.name,
            "example_id": text.example_id,
            "scores": text.deciding.astype(float),
        }
        for model in bench.models()
        for text in bench.texts(model)
    )


def read(tmp_path, bench, rows, name="scores.parquet"):
    path = tmp_path / name
    if name.endswith("parquet"):
        rows.to_parquet(path)
    else:
        rows.to_json(path, orient="records", lines=True)
    return FileScores.read(path, bench, bench.models())


def by_word(rows):
    """The same with a row per word."""
    words = rows.explode("scores").rename(columns={"scores": "score"})
    return words.assign(position=np.tile(np.arange(WORDS), len(rows)))


def without_cell(rows, column, row):
    """The same with nothing in a column of one row, counted from 0."""
    return rows.assign(**{column: rows[column].where(np.arange(len(rows)) != row)})


def by_text(rows, bench):
    """The same by the words of the texts."""
    texts = {
        (model.name, text.example_id): " ".join(text.words)
        for model in bench.models()
        for text in bench.texts(model)
    }
    keys = zip(rows["model"], rows["example_id"], strict=True)
    return rows.assign(text=[texts[key] for key in keys]).drop(columns="example_id")


@pytest.mark.parametrize("form", ["lists", "words", "words in another order", "texts", "jsonl"])
def test_every_form_of_a_file_is_read_alike(tmp_path, bench, form):
    rows = rows_of(bench)
    match form:
        case "words":
            rows = by_word(rows)
        case "words in another order":
            rows = by_word(rows).sample(frac=1, random_state=0)
        case "texts":
            rows = by_text(rows, bench)
    scores = read(tmp_path, bench, rows, "s.jsonl" if form == "jsonl" else "s.parquet")
    model = toy_model()
    texts = bench.texts(model)
    for values, text in zip(scores(model, texts), texts, strict=True):
        assert values.tolist() == text.deciding.tolist()


def test_a_text_without_scores_has_none(tmp_path, bench):
    rows = rows_of(bench)
    rows.at[0, "scores"] = None
    model = bench.models()[0]
    first, second, *_ = read(tmp_path, bench, rows)(model, bench.texts(model))
    assert np.isnan(first).all()
    assert len(first) == WORDS
    assert np.isfinite(second).all()


def with_model(rows, name):
    return pd.concat([rows, rows.iloc[:1].assign(model=name)])


def with_scores(rows, scores, row=2):
    rows = rows.copy()
    rows.at[row, "scores"] = scores
    return rows


REFUSED = {
    "an unknown model": (
        lambda rows: with_model(rows, "gru"),
        "model gru is not in .*: expected names of its models.parquet, such as recency--lstm",
    ),
    "a missing model": (
        lambda rows: rows[rows["model"] != "token--cnn"],
        "no scores for 1 of 3 models .token--cnn.*: expected rows for all; --models PATTERN asks "
        "about fewer, such as --models 'recency--lstm'",
    ),
    "a missing text": (
        lambda rows: rows.iloc[1:],
        "no scores for 1 of the 40 texts of the model recency--lstm .example 10.: expected a row",
    ),
    "an unknown text": (
        lambda rows: pd.concat([rows, rows.iloc[:1].assign(example_id=999)]),
        "example_id 999.*about no text of the model recency--lstm.*: expected scores for the 40",
    ),
    "a text twice": (
        lambda rows: pd.concat([rows, rows.iloc[:1]]),
        "are about the same example: expected one row for each text",
    ),
    "too few words": (
        lambda rows: with_scores(rows, [1.0]),
        "has 1 scores, and example 12 has 6 words: expected one number per word",
    ),
    "no number": (
        lambda rows: with_scores(rows, [1.0, np.nan, 0, 0, 0, 0]),
        "score of word 2, 'w1', is nan: expected finite numbers",
    ),
    "a row of another model than the first": (
        lambda rows: with_scores(rows, [1.0], row=70),
        "row 71 .example_id 40. has 1 scores, and example 40 has 6 words: .*texts/token--cnn.parq",
    ),
    "no number of a text": (
        lambda rows: without_cell(rows, "example_id", 70),
        "row 71 has nothing in the column example_id: expected a whole number",
    ),
    "no number of a word's text": (
        lambda rows: without_cell(by_word(rows), "example_id", 8),
        "row 9 has nothing in the column example_id: expected a whole number",
    ),
    "numbers of texts that are words": (
        lambda rows: rows.assign(example_id="text " + rows["example_id"].astype(str)),
        "row 1 has 'text 10' in the column example_id: expected a whole number",
    ),
    "no place of a word": (
        lambda rows: without_cell(by_word(rows), "position", 8),
        "row 9 has nothing in the column position: expected a whole number",
    ),
    "no model in a row": (
        lambda rows: without_cell(rows, "model", 70),
        "row 71 has nothing in the column model: expected a text",
    ),
    "an infinite one": (
        lambda rows: with_scores(rows, [np.inf, 1.0, 0, 0, 0, 0]),
        "score of word 1, 'w0', is inf: expected finite numbers",
    ),
    "words as scores": (
        lambda rows: rows.assign(scores=[["a"] * WORDS] * len(rows)),
        "column scores holds something else than lists of numbers: expected one number",
    ),
    "a word twice": (
        lambda rows: pd.concat([by_word(rows), by_word(rows).iloc[1:2]]),
        "position 1 of example 10 of recency--lstm is there twice: expected one row for each word",
    ),
    "the first word left out": (
        lambda rows: by_word(rows).iloc[1:],
        "position 1 of example 10 of recency--lstm comes where an earlier one is missing",
    ),
    "the last word left out": (
        lambda rows: by_word(rows).iloc[:-1],
        "has 5 scores, and example 49 has 6 words: expected one number per word",
    ),
    "a word from 1": (
        lambda rows: by_word(rows).assign(position=lambda words: words["position"] + 1),
        "position 1 of example 10 of recency--lstm comes where an earlier one is missing",
    ),
    "no model column": (
        lambda rows: rows.drop(columns="model"),
        "has the columns example_id, scores: expected model, example_id .or text. and scores",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_file_that_leaves_a_doubt_is_refused(tmp_path, bench, case):
    spoil, message = REFUSED[case]
    with pytest.raises(UserError, match=message):
        read(tmp_path, bench, spoil(rows_of(bench)))


def test_another_kind_of_file_is_refused(tmp_path, bench):
    path = tmp_path / "scores.csv"
    path.write_text("model,example_id,scores\n")
    with pytest.raises(UserError, match=r"ends in .parquet or .jsonl"):
        FileScores.read(path, bench, bench.models())


def test_known_answers(bench):
    model = toy_model()
    texts = bench.texts(model)
    truth, reverse, attention = (KNOWN[name](model, texts) for name in KNOWN)
    assert [scores.argmax() for scores in truth] == [scores.argmin() for scores in reverse]
    assert all(scores == pytest.approx(1 / WORDS) for scores in attention)
