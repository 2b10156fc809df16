import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from numpy.testing import assert_allclose
from sklearn import metrics

from attnprobe.core.errors import UserError
from attnprobe.core.metrics import ANY_NUMBER, SCORE
from attnprobe.evidence.published import NUMBERS
from attnprobe.evidence.statistics import Interval, student
from attnprobe.results.table import read_results
from research.papers import causes, page
from research.papers.__main__ import main
from research.papers.cells import (
    ALL_TEXTS,
    NO_DATA,
    RANDOM,
    Cell,
    CellName,
    Measured,
    Setup,
    cells_of,
    headings,
    headline_rows,
    measured_numbers,
    over_seeds,
)
from research.papers.guides import scores
from research.papers.record import read_record
from tests.invented_runs import invented_run

# whole pages are made
pytestmark = pytest.mark.whole

PLAIN = Setup()
STARTED = Setup("glove")


PAGE = Path(__file__).parents[2] / "docs/results/papers.md"


def copy_of(file, folder):
    """A copy of a file in another folder."""
    return Path(shutil.copy(file, folder))


def starting_from(vectors):
    return {"data": {"vectors": vectors}}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    base = tmp_path_factory.mktemp("papers")
    for seed in (0, 1, 2):
        invented_run(base, f"random{seed}", seed=seed, training=starting_from(None))
    invented_run(base, "started", seed=3, training=starting_from("corpora/glove.vec"))
    return base


def numbers_below(*places):
    return measured_numbers(headline_rows(list(map(str, places))))


@pytest.fixture(scope="module")
def cells(runs):
    return cells_of(numbers_below(runs))


@pytest.fixture(scope="module")
def parts(runs):
    return page.parts_of_page(numbers_below(runs), [])


def cell(cells, metric, group="overall", model="lstm_additive"):
    place = ("sst", model, metric, group)
    (published,) = [published for published in cells if place_of(published) == place]
    return published


def place_of(published):
    return (published.data, published.model, published.metric, published.group)


def invented_cell(published, *measured, model="lstm_dot", metric="accuracy"):
    return Cell("paper", "sst", model, metric, "overall", published, list(measured))


def measured(setup, value, half):
    return Measured(setup, 3, Interval(value, value - half, value + half))


def test_every_published_number_is_a_cell():
    tables = [
        pd.read_csv(NUMBERS / name, comment="#")
        for name in ("jain_wallace.csv", "serrano_smith.csv")
    ]
    cells = cells_of(numbers_below())
    assert len(cells) == sum(map(len, tables))
    assert [each.published for each in cells] == [
        value for table in tables for value in table["value"]
    ]
    assert not any(each.measured for each in cells)


def test_a_cells_number_is_the_mean_over_seeds_with_students_interval(runs, cells):
    accuracy = cell(cells, "accuracy")
    results = read_results(runs, "performance")
    is_accuracy = results["metric"] == "accuracy"
    values = results[is_accuracy].set_index("run_id")["value"].astype(float)
    random = values[["random0", "random1", "random2"]].to_numpy()

    with_vectors = accuracy.in_setup(STARTED)
    without = accuracy.in_setup(PLAIN)
    assert (with_vectors.seeds, without.seeds) == (1, 3)
    assert with_vectors.number[0] == pytest.approx(values["started"])
    ends = scipy.stats.t.interval(0.95, 2, random.mean(), scipy.stats.sem(random))
    assert_allclose(without.number, [random.mean(), *ends])


@pytest.mark.parametrize(("scale", "ends_at_1"), [(SCORE, True), (ANY_NUMBER, False)])
def test_an_interval_over_seeds_ends_where_the_number_does(scale, ends_at_1):
    """Accuracies of 0.99, 1 and 1, whose Student's interval goes on to 1.01."""
    runs = pd.DataFrame({"seed": [0, 1, 2], "mean": [0.99, 1.0, 1.0], "scale": [scale] * 3})
    high = over_seeds(PLAIN, runs).number.high
    assert (high == 1) == ends_at_1
    assert high >= 1


def test_runs_of_one_seed_are_no_sample_of_seeds(tmp_path):
    for name, count in (("whole", 60), ("part", 40)):
        invented_run(tmp_path, name, seed=1, count=count, training=starting_from(None))
    with pytest.raises(UserError, match=r"sst, lstm_additive, random vectors: .* with seed 1"):
        cells_of(numbers_below(tmp_path))


def test_models_that_no_paper_reports_may_be_there_any_number_of_times(tmp_path):
    for name, count in (("near", 60), ("far", 40)):
        invented_run(
            tmp_path, name, model="average_guided", count=count, training=starting_from(None)
        )
    cells = cells_of(numbers_below(tmp_path))
    assert not any(each.measured for each in cells)


def test_a_training_that_was_examined_twice_counts_once(runs, tmp_path):
    invented_run(tmp_path, "random0", seed=0, training=starting_from(None))
    cells = cells_of(numbers_below(runs, tmp_path / "random0"))
    assert cell(cells, "accuracy").in_setup(PLAIN).seeds == 3


def test_a_setup_is_all_in_which_a_training_may_differ():
    training = {
        "data": {
            "name": "snli",
            "source": {"folder": "snli_20k"},
            "vectors": "v/glove.vec",
            "most": {"train": 4000},
            "class_weight": "balanced_positive",
        },
        "training": {"epochs": 6},
    }
    setup = Setup.of({"training": training})
    assert setup == Setup("glove", 6, "the part snli_20k; at most train 4,000", "balanced_positive")
    assert setup.differences(Setup("glove", 25)) == ["epochs", "texts", "loss"]


@pytest.mark.parametrize(
    ("found", "name"),
    [
        (996, "glove"),
        (995, "glove for more than 99 % of the words"),
        (498, "glove for 50 % of the words"),
    ],
)
def test_vectors_for_some_of_the_words_are_other_vectors(found, name):
    """Of a vocabulary of 1,000 four are markers, which no file has."""
    manifest = {
        "training": starting_from("v/glove.vec"),
        "counts": {"vectors": {"vocabulary": 1000, "found": found}},
    }
    assert Setup.of(manifest).vectors == name


def test_a_heading_says_the_vectors_and_what_varies():
    names = headings([Setup(epochs=8), Setup("glove", 8), Setup(epochs=25)])
    assert list(names.values()) == [
        f"{RANDOM}, 8 epochs",
        "glove, 8 epochs",
        f"{RANDOM}, 25 epochs",
    ]
    assert list(headings([PLAIN, STARTED]).values()) == [RANDOM, "glove"]


def test_a_heading_says_that_a_training_had_a_part_of_the_corpus():
    part = replace(PLAIN, texts="the part snli_20k")
    assert list(headings([part]).values()) == [f"{RANDOM}, the part snli_20k"]
    assert list(headings([part, PLAIN]).values())[1] == f"{RANDOM}, {ALL_TEXTS}"


@pytest.mark.parametrize(
    ("value", "half", "answer"),
    [
        (0.79, 0.02, causes.EXPLAINS),  # all the way, and beyond both intervals
        (0.75, 0.02, causes.IN_PART),  # half of the way, and not there
        (0.88, 0.02, causes.IN_PART),  # beyond it, and nearer than before
        (0.95, 0.02, causes.PAST_IT),  # beyond it, and farther than before
        (0.71, 0.02, causes.NOT_THIS),  # hardly any of it
        (0.61, 0.02, causes.NOT_THIS),  # away from it
        (0.79, 0.30, causes.CANNOT_DECIDE),  # holds it, as it would hold nearly anything
    ],
)
def test_a_cause_explains_where_changing_it_alone_moves_the_number_to_the_published_one(
    value, half, answer
):
    compared = invented_cell(0.80, measured(PLAIN, 0.70, 0.02), measured(STARTED, value, half))
    (test,) = causes.cause_tests(compared, PLAIN)
    assert (test.cause, test.answer()) == ("vectors", answer)
    assert test.way().value == pytest.approx((value - 0.70) / 0.10)
    mirrored = invented_cell(-0.80, measured(PLAIN, -0.70, 0.02), measured(STARTED, -value, half))
    (mirrored_test,) = causes.cause_tests(mirrored, PLAIN)
    assert mirrored_test.way() == pytest.approx(test.way())


def test_setups_that_differ_in_two_things_test_neither():
    changed_twice = Setup("glove", epochs=25)
    after = measured(changed_twice, 0.80, 0.02)
    compared = invented_cell(0.80, measured(PLAIN, 0.70, 0.02), after)
    assert causes.cause_tests(compared, PLAIN) == []
    assert causes.explanation(compared, PLAIN) == "not explained: nothing tested"


@pytest.mark.parametrize(
    ("before", "after", "cause"),
    [
        (PLAIN, STARTED, "vectors"),
        (STARTED, PLAIN, ""),
        (Setup(epochs=6), Setup(epochs=25), "epochs"),
        (Setup(epochs=25), Setup(epochs=6), ""),
        (Setup(texts="at most train 100"), PLAIN, "texts"),
        (PLAIN, Setup(texts="at most train 100"), ""),
        (PLAIN, Setup(loss="balanced_positive"), "loss"),
        (Setup(loss="balanced_positive"), PLAIN, ""),
        (PLAIN, Setup(loss="inverse_frequency"), ""),
        (PLAIN, PLAIN, ""),
    ],
)
def test_what_is_changed_away_from_the_papers_setup_is_no_cause(before, after, cause):
    assert before.cause_in(after) == cause


def test_a_number_that_agrees_needs_no_cause():
    compared = invented_cell(0.70, measured(PLAIN, 0.70, 0.02), measured(STARTED, 0.80, 0.02))
    assert causes.explanation(compared, PLAIN) == ""


def test_the_tally_counts_every_number_beyond_its_interval_once():
    reference = {"sst": PLAIN}
    plain = measured(PLAIN, 0.70, 0.02)
    invented = [
        invented_cell(0.80, plain, measured(STARTED, 0.80, 0.02)),
        invented_cell(0.80, plain, measured(STARTED, 0.75, 0.02)),
        invented_cell(0.80, plain, measured(STARTED, 0.70, 0.02)),
        invented_cell(0.80, plain),
        invented_cell(0.71, plain, measured(STARTED, 0.80, 0.02)),
        invented_cell(0.80),
        invented_cell(0.80, plain, measured(STARTED, 0.80, np.nan)),
    ]
    counted = causes.tally(invented, reference)
    assert counted == causes.Tally(beyond=5, explained=1, in_part=1, tested=1, undecidable=1)
    assert counted.untested == 1


def test_a_change_whose_number_has_no_interval_was_run_and_says_nothing():
    one_seed = Measured(STARTED, 1, Interval(0.80, np.nan, np.nan))
    compared = invented_cell(0.80, measured(PLAIN, 0.70, 0.02), one_seed)
    assert causes.cause_tests(compared, PLAIN) == []
    expected = "not explained (vectors: no interval after the change)"
    assert causes.explanation(compared, PLAIN) == expected


def test_numbers_that_were_measured_both_ways_tell_how_far_a_change_moves_them():
    two_things = Setup("glove", epochs=25)
    invented = [
        invented_cell(0.80, measured(PLAIN, 0.70, 0.02), measured(STARTED, 0.81, 0.02)),
        invented_cell(0.80, measured(PLAIN, 0.83, 0.02), measured(STARTED, 0.75, 0.02)),
        invented_cell(0.80, measured(PLAIN, 0.83, 0.02), measured(two_things, 0.75, 0.02)),
        invented_cell(0.80, measured(STARTED, 0.75, 0.02)),
    ]
    pairs = causes.changed(invented, {"sst": PLAIN})
    assert [pair.cell for pair in pairs] == invented[:2]
    (row,) = page.changes_table(pairs).to_dict("records")
    assert row["changed"] == "vectors (glove)"
    assert row["distance from the published number before"] == "0.065"  # of 0.10 and 0.03
    assert row["after"] == "0.030"  # of 0.01 and 0.05
    assert row["nearer than before"] == "1 of 2"


def test_models_are_in_the_published_order_where_the_larger_is_the_larger():
    pairs = [
        page.Beside(invented_cell(published, model=model), measured(PLAIN, value, np.nan))
        for model, published, value in [("a", 0.1, 0.4), ("b", 0.2, 0.5), ("c", 0.3, 0.45)]
    ]
    assert page.same_order(pairs) == (2, 3)


def test_equal_numbers_have_no_order():
    cells = [
        invented_cell(0.8, measured(PLAIN, 0.7, 0.1), model="lstm_dot"),
        invented_cell(0.9, measured(PLAIN, 0.7, 0.1), model="cnn_dot"),
        invented_cell(0.9, measured(PLAIN, 0.75, 0.1), model="average_dot"),
    ]
    pairs = page.beside(cells, {"sst": PLAIN})
    assert page.same_order(pairs) == (1, 1)


def test_an_interval_holds_what_a_published_value_may_have_been_before_it_was_rounded():
    measured = Measured(PLAIN, 1, Interval(0.9996, 0.9960, 0.9996))
    assert measured.holds(1.0)
    assert measured.holds(0.9956)
    assert not measured.holds(0.9954)


def seen_in(seeds, distance, samples=400):
    """Cells with a published number so far from the truth, and how often an interval holds it.

    Args:
        seeds: of a cell; their accuracies spread by 0.01.
        distance: of the published number from the mean over all seeds.
        samples: cells.
    """
    draw = np.random.default_rng(seeds)
    published = 0.8 + distance
    pairs = []
    for _ in range(samples):
        interval = student(draw.normal(0.8, 0.01, seeds))
        measurement = Measured(PLAIN, seeds, interval)
        pairs.append(page.Beside(invented_cell(published), measurement))
    holds = [pair.measured.holds(published) for pair in pairs]
    return pairs, np.mean(holds)


def test_that_a_published_value_lies_in_an_interval_of_two_seeds_is_not_counted():
    """Four spreads of a seed away it lies in most of them, and in few of three seeds."""
    pairs_of_two, inside_two = seen_in(2, 0.04)
    assert inside_two > 0.5
    two = page.Kind.of(pairs_of_two)
    assert (two.intervals, two.inside, two.of_two_seeds) == (0, 0, 400)
    (row,) = page.kinds_table(pairs_of_two).to_dict("records")
    assert row["published in our interval"] == "no interval; 400 of two seeds"
    pairs_of_three, inside_three = seen_in(3, 0.04)
    assert inside_three < 0.3
    three = page.Kind.of(pairs_of_three)
    assert (three.intervals, three.inside) == (400, round(400 * inside_three))


def test_a_published_value_that_is_the_truth_lies_in_the_intervals_of_three_seeds():
    pairs, inside = seen_in(3, 0.0)
    assert inside >= 0.93
    same = page.Kind.of(pairs)
    assert same.inside >= 0.93 * same.intervals


def test_the_reference_has_no_vectors_even_where_more_runs_do():
    invented = [
        invented_cell(0.8, measured(PLAIN, 0.7, 0.1), measured(STARTED, 0.7, 0.1)),
        invented_cell(0.8, measured(STARTED, 0.7, 0.1)),
    ]
    assert page.references(invented) == {"sst": PLAIN}
    assert page.references(invented[1:]) == {"sst": STARTED}


def test_guides_are_scored_as_sklearn_does():
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, 200)
    predictions = np.where(random.random(200) < 0.7, labels, 0)
    result = scores(labels, predictions)
    assert result["F1 of class 1"] == pytest.approx(metrics.f1_score(labels, predictions))
    assert result["F1 of class 0"] == pytest.approx(
        metrics.f1_score(labels, predictions, pos_label=0)
    )
    assert result["macro F1"] == pytest.approx(
        metrics.f1_score(labels, predictions, average="macro")
    )
    assert result["balanced accuracy"] == pytest.approx(
        metrics.balanced_accuracy_score(labels, predictions)
    )
    assert result["predicted class 1"] == predictions.mean()


def test_a_published_number_outside_the_interval_is_bold(cells, parts):
    accuracy = cell(cells, "accuracy")
    for each in accuracy.measured:
        value, low, high = each.number
        bold = "**" if not low <= accuracy.published <= high else ""
        assert f"| {bold}{value:.3f} [{low:.3f}, {high:.3f}]" in parts["cells"]


@pytest.mark.parametrize(
    ("published", "beyond"),
    [
        (0.5, False),
        (0.4, False),
        (0.39, True),
        (0.61, True),
    ],
)
def test_beyond_is_outside_of_the_ends(published, beyond):
    compared = invented_cell(published, measured(STARTED, 0.5, 0.1))
    assert compared.beyond(STARTED) is beyond
    assert compared.beyond(PLAIN) is None


def test_what_was_not_run_is_a_line_for_each_data_set(parts):
    content = parts["cells"]
    assert "**imdb**: 46 published numbers, not run." in content
    assert "lstm_dot (8), cnn_additive (8)" in content
    assert "| lstm_dot |" not in content.partition("## Serrano")[0]
    for reason in (NO_DATA["diabetes"], NO_DATA["tweets_adr"]):
        assert f"no data: {reason}" in content


def test_the_answer_is_five_lines_from_the_rows(cells, parts):
    lines = parts["answer"].splitlines()
    bullets = [line for line in lines if line.startswith("- ")]
    assert 3 <= len(bullets) <= 5
    assert "1 of the 48 models" in bullets[0]
    assert "accuracy" in bullets[1]
    accuracy = cell(cells, "accuracy")
    difference = accuracy.in_setup(PLAIN).number.value - accuracy.published
    assert page.signed(difference) in bullets[1]


def test_models_are_counted_by_their_seeds():
    """A model that was run in two setups counts once, with the one of more seeds."""
    once = Measured(STARTED, 1, Interval(0.8, 0.7, 0.9))
    three_times = measured(PLAIN, 0.8, 0.1)
    cells = [
        invented_cell(0.8, three_times, once, model="lstm_dot"),
        invented_cell(0.8, three_times, model="cnn_dot"),
        invented_cell(0.8, once, model="average_dot"),
    ]
    first_line = page.answer_of(cells).splitlines()[0]
    assert "3 of the 3 models whose data are at hand, 2 with 3 seeds and 1 with 1; " in first_line


def test_without_runs_the_answer_says_so():
    parts = page.parts_of_page({}, [])
    assert parts["answer"].splitlines()[-1].startswith("- **Run so far**: 0 of the 48 models")


def test_models_of_a_part_of_a_corpus_are_counted_in_the_answer():
    name = CellName("snli", "lstm_additive", "accuracy", "overall")
    setup = Setup(texts="the part snli_20k")
    number = Measured(setup, 1, Interval(0.58, 0.56, 0.60))
    parts = page.parts_of_page({name: [number]}, [])
    assert "**Run so far**: 1 (1 on a part of the corpus) of the 48 models" in parts["answer"]
    assert f"| {RANDOM}, the part snli_20k |" in parts["cells"]


def test_without_studies_the_page_keeps_its_part_about_them(parts):
    assert set(parts) == {"answer", "cells"}


# The record


@pytest.fixture
def record(runs, tmp_path):
    """The record of the runs with random vectors and of one with others."""
    path = tmp_path / "record.csv"
    main([str(runs), "--record", str(path)])
    return path


def test_a_record_is_the_runs_that_it_was_made_of(runs, record):
    recorded = read_record(record)
    measured = numbers_below(runs)
    assert recorded
    for name, numbers in recorded.items():
        for number, of_runs in zip(numbers, measured[name], strict=True):
            assert number.setup == of_runs.setup
            assert number.seeds == of_runs.seeds
            assert number.number == pytest.approx(of_runs.number, abs=1e-4, nan_ok=True)


def test_runs_of_another_day_join_the_record_and_replace_what_was_measured_before(record, tmp_path):
    """The run with vectors is there again, with another number; those without stay."""
    before = read_record(record)
    later = tmp_path / "later"
    for seed in (5, 6):
        invented_run(
            later, f"started{seed}", seed=seed, training=starting_from("corpora/glove.vec")
        )
    main([str(later), "--record", str(record)])
    after = read_record(record)
    name = CellName("sst", "lstm_additive", "accuracy", "overall")
    seeds_before = {number.setup: number.seeds for number in before[name]}
    seeds_after = {number.setup: number.seeds for number in after[name]}
    assert seeds_before == {PLAIN: 3, STARTED: 1}
    assert seeds_after == {PLAIN: 3, STARTED: 2}


def test_fewer_seeds_replace_none_of_more(record, tmp_path):
    before = record.read_bytes()
    later = tmp_path / "later"
    invented_run(later, "alone", seed=7, training=starting_from(None))
    with pytest.raises(SystemExit, match=r"sst, lstm_additive, .*: 1 of the 3 seeds"):
        main([str(later), "--record", str(record)])
    assert record.read_bytes() == before


def test_a_record_with_words_for_numbers_is_one_line(record):
    record.write_text(record.read_text().replace(",3,", ",three,", 1))
    with pytest.raises(SystemExit, match="column seeds has other values than numbers"):
        main(["--record", str(record)])


def test_a_record_that_lacks_a_column_is_one_line(tmp_path):
    path = tmp_path / "record.csv"
    path.write_text("data,model\nsst,lstm_dot\n")
    with pytest.raises(SystemExit, match=r"record\.csv: no column metric: expected data, model"):
        main(["--record", str(path)])


def test_a_page_without_its_parts_leaves_the_record_as_it_was(runs, record, tmp_path):
    before = record.read_bytes()
    page_without_parts = tmp_path / "page.md"
    page_without_parts.write_text("nothing\n")
    with pytest.raises(SystemExit, match="has 0 parts <!-- answer -->"):
        main([str(runs), "--record", str(record), "--page", str(page_without_parts)])
    assert record.read_bytes() == before


def test_the_shipped_page_is_that_of_the_shipped_record(tmp_path):
    copy = copy_of(PAGE, tmp_path)
    record = copy_of(PAGE.with_suffix(".csv"), tmp_path)
    main(["--record", str(record), "--page", str(copy)])
    assert copy.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


def test_the_page_of_runs_is_the_page_of_their_record(runs, tmp_path):
    record = tmp_path / "record.csv"
    page_of_runs = copy_of(PAGE, tmp_path)
    main([str(runs), "--record", str(record), "--page", str(page_of_runs)])
    made_of_runs = page_of_runs.read_text(encoding="utf-8")
    main(["--record", str(record), "--page", str(page_of_runs)])
    assert page_of_runs.read_text(encoding="utf-8") == made_of_runs


def test_a_record_that_is_written_again_is_the_same(tmp_path):
    shipped = PAGE.with_suffix(".csv")
    copy = copy_of(shipped, tmp_path)
    main(["--record", str(copy)])
    assert copy.read_bytes() == shipped.read_bytes()
