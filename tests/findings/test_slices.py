"""The answer by parts: each part's share is that of its texts, however many questions they have."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from attnprobe.findings.groups import grouped, read_run
from attnprobe.findings.slices import slices_of
from attnprobe.results.files import write_table
from attnprobe.results.table import Rows
from tests.small_runs import seal

PREMISES = 90
CLASSES = ("entailment", "neutral", "contradiction")
SHARE_OF_CLASS = {"entailment": 0.9, "neutral": 0.5, "contradiction": 0.0}
ROOM = 0.8


@pytest.fixture
def pairs(make_run):
    """Makes a run over premises, each with hypotheses whose share and class are given."""

    def make(shares, predictions, regions):
        questions = shares.shape[1]
        count = shares.size
        name = f"asked {questions}"
        directory = make_run(name, probes=(), count=count, classes=len(CLASSES))
        path = directory / "examples/test.parquet"
        examples = pq.read_table(path).to_pandas()
        premise = np.repeat(np.arange(PREMISES), questions)
        examples["tokens"] = [["premise", str(number)] for number in premise]
        examples["question"] = [["hypothesis", str(row % questions)] for row in range(count)]
        examples["slice"] = [regions[number] for number in premise]
        examples["label"] = premise % len(CLASSES)
        examples["prediction"] = predictions.ravel()
        pq.write_table(pa.Table.from_pandas(examples, preserve_index=False), path)

        ids = np.arange(count)
        rows = Rows()
        rows.add("swap_excess", ids, shares.ravel() * ROOM)
        rows.add("swap_room", ids, np.full(count, ROOM))
        rows.add("swap_strength", ids, np.full(count, 0.2))
        rows.add("predicted_class", ids, predictions.ravel())
        facts = {
            "experiment": "x",
            "data": "snli",
            "model": "m",
            "seed": 0,
            "split": "test",
        }
        table = rows.table({"run_id": name, "probe": "swaps", **facts})
        write_table(table, directory / "tables/swaps.parquet")
        training = {"data": {"slice": "region"}}
        seal(
            directory,
            run_id=name,
            tables={"swaps": {}},
            classes=list(CLASSES),
            training=training,
        )
        (group,) = grouped([read_run(directory)])
        return slices_of(group)

    return make


def test_hypotheses_of_one_premise_count_each_for_the_class_that_is_predicted(pairs):
    """One of each class for every premise: the mean of their numbers would be the second class."""
    shares = np.tile([SHARE_OF_CLASS[name] for name in CLASSES], (PREMISES, 1))
    predictions = np.tile([0, 1, 2], (PREMISES, 1))
    regions = ["north", "south"] * (PREMISES // 2)
    classes, parts = pairs(shares, predictions, regions)
    by_name = {row.name: row for row in classes.rows}
    assert by_name.keys() == set(CLASSES)
    for name, row in by_name.items():
        assert row.texts == PREMISES
        assert row.share.value == pytest.approx(SHARE_OF_CLASS[name], abs=1e-12)
    assert by_name["entailment"].answer == "yes"
    assert by_name["neutral"].answer == "yes"
    assert by_name["contradiction"].answer == "no"

    mean = np.mean(list(SHARE_OF_CLASS.values()))
    assert {row.name for row in parts.rows} == {"north", "south"}
    for row in parts.rows:
        assert row.share.value == pytest.approx(mean, abs=1e-12)


def test_a_part_has_the_share_of_its_own_texts(pairs):
    """Beside a plain loop over the texts; parts of different sizes, in no order."""
    draw = np.random.default_rng(3)
    regions = draw.choice(["north", "south", "east"], PREMISES, p=[0.2, 0.2, 0.6])
    means = {"north": 0.9, "south": 0.0, "east": 0.45}
    shares = np.array([means[region] for region in regions])
    shares += draw.normal(0, 0.1, PREMISES)
    predictions = draw.integers(0, 3, (PREMISES, 1))
    _, parts = pairs(shares[:, None], predictions, regions)
    assert {row.name for row in parts.rows} == set(means)
    for row in parts.rows:
        texts = shares[regions == row.name]
        assert row.texts == len(texts)
        assert row.share.value == pytest.approx(texts.mean(), abs=1e-12)
        assert row.share.low < row.share.value < row.share.high


def test_three_questions_about_a_text_tell_no_more_than_one(pairs):
    """Where they all have its number, the interval is that of the texts."""
    draw = np.random.default_rng(4)
    once = draw.normal(0.4, 0.5, (PREMISES, 1))
    regions = ["north", "south"] * (PREMISES // 2)
    three_times = np.repeat(once, 3, axis=1)
    _, single_parts = pairs(once, np.zeros(once.shape, int), regions)
    _, repeated_parts = pairs(three_times, np.zeros(three_times.shape, int), regions)
    for single, repeated in zip(single_parts.rows, repeated_parts.rows, strict=True):
        assert repeated.name == single.name
        assert repeated.share == pytest.approx(single.share, abs=1e-9)
        assert repeated.right == pytest.approx(single.right, abs=1e-9)
        assert 0 < repeated.right.low < repeated.right.high < 1


def test_a_division_into_small_parts_has_no_row_and_names_them(pairs):
    regions = [f"region {number}" for number in range(PREMISES)]
    _, parts = pairs(np.full((PREMISES, 1), 0.9), np.zeros((PREMISES, 1), int), regions)
    assert not parts.rows
    assert parts.notes[0].startswith("Not asked, with fewer than 10 test texts: region ")
