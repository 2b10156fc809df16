from collections import defaultdict

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import stats

from attnprobe.core.errors import UserError
from attnprobe.evidence.evidence import mean_of
from attnprobe.evidence.statistics import interval, wilson_of_whole_clusters
from attnprobe.findings.headlines import compare
from attnprobe.results.directory import COLUMNS, RunDirectory
from attnprobe.results.files import write_table
from attnprobe.results.pivot import per_example
from attnprobe.results.table import Rows, first_of_text, read_results, repeats_of, texts_of
from tests.results.test_rows import IDENTITY
from tests.small_runs import seal


def table(*parts, **identity):
    """Rows of these (metric, example ids, values)."""
    rows = Rows()
    for part in parts:
        rows.add(*part)
    return rows.table(IDENTITY | identity)


def finished_run(directory, examples=None, **tables):
    """A finished run with these tables by probe, and these columns of its examples."""
    if examples is not None:
        columns = {key: list(value) for key, value in examples.items()}
        write_table(pa.table(columns), directory / "examples/test.parquet")
    for name, content in tables.items():
        write_table(content, directory / "tables" / f"{name}.parquet")
    seal(directory, run_id="r", tables={name: {} for name in tables})


@pytest.fixture
def first(tmp_path):
    numbers = ("a", np.array([1, 2]), np.array([0.1, 0.2]))
    run = tmp_path / "x" / "one"
    finished_run(run, permutation=table(numbers), other=table(numbers, probe="other"))
    return run


@pytest.fixture
def second(tmp_path):
    numbers = ("a", np.array([1, 2]), np.array([0.1, 0.2]))
    run = tmp_path / "x" / "[two]"
    finished_run(run, permutation=table(numbers, run_id="s"))
    return run


def test_the_results_of_a_run_are_the_rows_of_its_tables(first):
    results = read_results(first)
    assert list(results.columns) == [*COLUMNS, "site"]
    assert set(results["site"]) == {""}
    assert len(results) == 4
    assert len(read_results(first, probe="permutation")) == 2


def test_read_results_takes_a_folder_a_pattern_or_a_list(tmp_path, first, second):
    assert set(read_results(tmp_path)["run_id"]) == {"r", "s"}
    assert len(read_results(str(tmp_path / "x" / "o*"))) == 4
    assert len(read_results([first, second])) == 6


def test_a_folder_without_a_manifest_or_none_at_all_is_said(tmp_path, first):
    (first / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"no manifest\.json there"):
        read_results(first)
    with pytest.raises(UserError, match="does not exist"):
        read_results(tmp_path / "nowhere")


def test_interval_of_a_skewed_sample_is_the_studentised_bootstraps():
    """By hand; the plain percentiles of the resampled means lie lower."""
    sample = np.random.default_rng(1).lognormal(0.0, 1.2, 40)
    draws = np.random.default_rng(2).choice(sample, (50_000, 40))
    means = draws.mean(1)
    standard_error = stats.sem(sample)
    pivots = (means - sample.mean()) / stats.sem(draws, axis=1)
    low = sample.mean() - standard_error * np.quantile(pivots, 0.975)
    high = sample.mean() - standard_error * np.quantile(pivots, 0.025)
    width = high - low
    assert high - np.quantile(means, 0.975) > 0.18 * width
    studentised = interval(sample)
    assert studentised.low == pytest.approx(low, abs=0.12 * width)
    assert studentised.high == pytest.approx(high, abs=0.12 * width)


TEXTS = 40


def asked_run(directory, questions, *, same_text=True):
    """A run of so many questions about each of 40 texts, which get one number each.

    Without `same_text` each question is about a text of its own.
    """
    numbers = np.random.default_rng(0).random(TEXTS)
    ids = np.arange(TEXTS * questions)
    text_of_question = ids // questions
    words = text_of_question if same_text else ids
    examples = {
        "example_id": ids,
        "tokens": [["text", str(word)] for word in words],
        "question": [["which", str(example)] for example in ids],
    }
    permutation = table(("median_tvd", ids, numbers[text_of_question]))
    finished_run(directory, examples, permutation=permutation)
    return directory


def headline_of(results):
    """How many texts there are, their mean and its interval."""
    headlines = compare(results).set_index("metric")
    return headlines.loc["median_tvd", ["n", "mean", "low", "high"]]


def test_the_questions_about_one_text_are_resampled_together(tmp_path):
    """Six questions about each of 40 texts, answered alike, are as much evidence as one each."""
    mean = mean_of("median_tvd", ends=(0, 1))
    one_question = read_results(asked_run(tmp_path / "one", 1))
    six_questions = read_results(asked_run(tmp_path / "six", 6))
    evidence = mean(one_question)
    assert evidence.n == TEXTS
    assert mean(six_questions) == evidence
    assert headline_of(six_questions).tolist() == headline_of(one_question).tolist()

    # the null: six times as many texts
    more_texts = read_results(asked_run(tmp_path / "unasked", 6, same_text=False))
    narrower = mean(more_texts)
    width = evidence.high - evidence.low
    assert narrower.high - narrower.low < 0.5 * width


def first_examples(run):
    """Example → the first one about its text, of all but the first ones."""
    return first_of_text(texts_of(RunDirectory(run)))


def test_a_question_knows_the_first_one_about_its_text(tmp_path):
    expected = {}
    for first in range(0, 6 * TEXTS, 6):
        for example in range(first + 1, first + 6):
            expected[str(example)] = first
    assert first_examples(asked_run(tmp_path / "six", 6)) == expected


def test_a_single_question_about_a_text_has_no_first_one_before_it(tmp_path):
    unasked = asked_run(tmp_path / "unasked", 6, same_text=False)
    assert first_examples(asked_run(tmp_path / "one", 1)) == {}
    assert first_examples(unasked) == {}


TOKENS = [
    ["good", "film"],
    ["good film"],
    ["good", "film"],
    ["dull"],
    ["good", "film"],
]
QUESTIONS = [["who"], ["who"], ["who"], ["who"], ["why"]]
NUMBERS = [0.1, 0.2, 0.9, 0.3, 0.9]


def test_a_table_that_was_kept_in_a_parquet_file_has_the_same_headlines(tmp_path):
    """It knows there as well which texts are repeated, and which are asked several questions."""
    ids = np.arange(10, 15)
    examples = {"example_id": ids, "tokens": TOKENS, "question": QUESTIONS}
    finished_run(tmp_path, examples, permutation=table(("median_tvd", ids, np.array(NUMBERS))))
    results = read_results(tmp_path)
    results.to_parquet(tmp_path / "kept.parquet")
    kept = pd.read_parquet(tmp_path / "kept.parquet")

    assert headline_of(kept).tolist() == headline_of(results).tolist()
    # the null: without what the file says beside its rows
    kept.attrs = {}
    assert headline_of(kept).tolist() != headline_of(results).tolist()


@pytest.mark.parametrize(
    ("questions", "repeats"),
    [
        pytest.param(QUESTIONS, {2}, id="asked"),
        pytest.param(None, {2, 4}, id="plain"),
        pytest.param([["0"], ["1"], ["2"], ["3"], ["4"]], set(), id="none repeated"),
    ],
)
def test_repeated_texts_are_one_text_in_every_interval(tmp_path, questions, repeats):
    """Words and question both count; two questions about one text are two rows, and one text in an
    interval."""
    ids = np.arange(10, 15)
    examples = {"example_id": ids, "tokens": TOKENS}
    if questions is not None:
        examples["question"] = questions
    performance = table(
        ("accuracy", np.array([-1]), np.array([0.6])),
        ("examples", np.array([-1]), np.array([5.0])),
        probe="performance",
    )
    permutation = table(("median_tvd", ids, np.array(NUMBERS)))
    finished_run(tmp_path, examples, permutation=permutation, performance=performance)

    assert repeats_of(texts_of(RunDirectory(tmp_path))) == [10 + number for number in repeats]
    results = read_results(tmp_path)
    distinct = [number for number in range(5) if number not in repeats]
    wide = per_example(results, "permutation", ["median_tvd"])
    assert wide["example_id"].tolist() == [10 + number for number in distinct]

    numbers_of_texts = defaultdict(list)
    for number in distinct:
        words = tuple(TOKENS[number])
        numbers_of_texts[words].append(NUMBERS[number])
    means = [np.mean(numbers) for numbers in numbers_of_texts.values()]
    sizes = [len(numbers) for numbers in numbers_of_texts.values()]

    headlines = compare(results).set_index("metric")
    median = headlines.loc["median_tvd"]
    assert median["n"] == len(means)
    assert median["mean"] == pytest.approx(np.mean(means))
    accuracy = headlines.loc["accuracy"]
    expected = wilson_of_whole_clusters(0.6, np.array(sizes))
    assert accuracy["n"] == len(distinct)
    assert accuracy["low"] == expected.low
    assert accuracy["high"] == expected.high
