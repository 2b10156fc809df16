import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from attnprobe.core.errors import UserError
from attnprobe.evidence.evidence import mean_of
from attnprobe.evidence.statistics import interval, wilson
from attnprobe.findings.headlines import compare
from attnprobe.results.directory import COLUMNS, RunDirectory
from attnprobe.results.files import write_table
from attnprobe.results.pivot import per_example
from attnprobe.results.table import Rows, first_of_text, read_results, repeats_of
from tests.results.test_rows import IDENTITY
from tests.small_runs import seal


def table(*parts, **identity):
    rows = Rows()
    for part in parts:
        rows.add(*part)
    return rows.table(IDENTITY | identity)


def finished_run(directory, examples=None, **tables):
    if examples is not None:
        columns = {key: list(value) for key, value in examples.items()}
        write_table(pa.table(columns), directory / "examples/test.parquet")
    for name, content in tables.items():
        write_table(content, directory / "tables" / f"{name}.parquet")
    seal(directory, run_id="r", tables={name: {} for name in tables})


def test_read_results_takes_a_run_a_folder_a_pattern_or_a_list(tmp_path):
    numbers = ("a", np.array([1, 2]), np.array([0.1, 0.2]))
    finished_run(
        tmp_path / "x" / "one", permutation=table(numbers), other=table(numbers, probe="other")
    )
    finished_run(tmp_path / "x" / "[two]", permutation=table(numbers, run_id="s"))
    read = read_results(tmp_path / "x" / "one")
    assert list(read.columns) == [*COLUMNS, "site"]
    assert set(read["site"]) == {""}
    assert len(read_results(tmp_path / "x" / "one")) == 4
    assert len(read_results(tmp_path / "x" / "one", probe="permutation")) == 2
    assert set(read_results(tmp_path)["run_id"]) == {"r", "s"}
    assert len(read_results(str(tmp_path / "x" / "o*"))) == 4
    assert len(read_results([tmp_path / "x" / "one", tmp_path / "x" / "[two]"])) == 6
    (tmp_path / "x" / "one" / "manifest.json").unlink()
    with pytest.raises(UserError, match=r"no manifest\.json there"):
        read_results(tmp_path / "x" / "one")
    with pytest.raises(UserError, match="does not exist"):
        read_results(tmp_path / "nowhere")


def test_interval_of_a_skewed_sample_is_the_studentised_bootstraps():
    """By hand; the plain percentiles of the resampled means lie lower."""
    sample = np.random.default_rng(1).lognormal(0.0, 1.2, 40)
    draws = np.random.default_rng(2).choice(sample, (50_000, 40))
    means = draws.mean(1)
    own = stats.sem(sample)
    pivots = (means - sample.mean()) / stats.sem(draws, axis=1)
    expected = sample.mean() - own * np.quantile(pivots, [0.975, 0.025])
    width = expected[1] - expected[0]
    assert expected[1] - np.quantile(means, 0.975) > 0.18 * width
    np.testing.assert_allclose(interval(sample)[1:], expected, atol=0.12 * width)


def test_the_questions_about_one_text_are_resampled_together(tmp_path):
    """Six questions about each of 40 texts, answered alike, are as much evidence as one about each:
    the same interval."""
    generator = np.random.default_rng(0)
    of_text = generator.random(40)
    evidence = {}
    headlines = {}
    for name, asked in (("one", 1), ("six", 6), ("unasked", 6)):
        count = 40 * asked
        text = np.arange(count) // asked
        words = [
            ["text", str(one if name != "unasked" else number)] for number, one in enumerate(text)
        ]
        which = [["which", str(one)] for one in range(count)]
        examples = {"example_id": range(count), "tokens": words, "question": which}
        finished_run(
            tmp_path / name,
            examples,
            permutation=table(("median_tvd", np.arange(count), of_text[text])),
        )
        assert first_of_text(RunDirectory(tmp_path / name)) == {
            number: asked * (number // asked)
            for number in range(count)
            if number % asked and name == "six"
        }
        results = read_results(tmp_path / name)
        evidence[name] = mean_of("median_tvd")(results)
        found = compare(results).set_index("metric")
        headlines[name] = found.loc["median_tvd", ["n", "mean", "low", "high"]].tolist()
    assert evidence["six"] == evidence["one"]
    assert headlines["six"] == headlines["one"]
    assert evidence["one"].n == 40
    widths = {name: one.high - one.low for name, one in evidence.items()}
    assert widths["unasked"] < 0.5 * widths["one"]  # the null: six times as many texts


def test_repeated_texts_are_one_text_in_every_interval(tmp_path):
    """Words and question both count; two questions about one text are two rows, and one text in an
    interval."""
    tokens = [["good", "film"], ["good film"], ["good", "film"], ["dull"], ["good", "film"]]
    questions = [["who"], ["who"], ["who"], ["who"], ["why"]]
    for name, asked, repeats in (
        ("asked", questions, {2}),
        ("plain", None, {2, 4}),
        ("none", [["0"], ["1"], ["2"], ["3"], ["4"]], set()),
    ):
        examples = {"example_id": range(10, 15), "tokens": tokens} | (
            {"question": asked} if asked else {}
        )
        ids = np.arange(10, 15)
        whole = np.array([-1])
        numbers = table(("median_tvd", ids, np.array([0.1, 0.2, 0.9, 0.3, 0.9])))
        performance = table(
            ("accuracy", whole, np.array([0.6])),
            ("examples", whole, np.array([5.0])),
            probe="performance",
        )
        finished_run(tmp_path / name, examples, permutation=numbers, performance=performance)
        assert repeats_of(RunDirectory(tmp_path / name)) == {10 + one for one in repeats}
        results = read_results(tmp_path / name)
        kept = [number for number in range(5) if number not in repeats]
        assert per_example(results, "permutation", ["median_tvd"])["example_id"].tolist() == [
            10 + one for one in kept
        ]
        found = compare(results).set_index("metric")
        of_text = {}
        for number in kept:
            of_text.setdefault(tuple(tokens[number]), []).append((0.1, 0.2, 0.9, 0.3, 0.9)[number])
        texts = [np.mean(one) for one in of_text.values()]
        assert found["n"][["median_tvd", "accuracy"]].tolist() == [len(texts), len(kept)]
        assert found["mean"]["median_tvd"] == pytest.approx(np.mean(texts))
        assert (found["low"]["accuracy"], found["high"]["accuracy"]) == wilson(
            0.6 * len(kept), len(kept)
        )[1:]
