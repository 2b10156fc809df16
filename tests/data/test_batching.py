from collections import Counter
from dataclasses import fields
from itertools import chain

import numpy as np
import pytest
import torch

from attnprobe.data.batching import BucketSampler, TextSplit, short_enough
from attnprobe.data.examples import Ragged
from attnprobe.data.passages import Passage, Passages
from attnprobe.data.teacher import TeacherOutputs

LENGTHS = np.random.default_rng(0).integers(1, 60, 103)


@pytest.fixture
def split():
    return TextSplit(
        example_id=np.array([3, 8]),
        words=Ragged.of([np.array([0, 1]), np.array([2])], np.int32),
        vocabulary_id=np.array([4, 1, 5]),
        columns={"labels": np.array([[1, 0], [1, 1]], np.float32)},
    )


def test_a_split_serves_the_rows_that_it_is_asked_for(split):
    batch = split[[1, 0]]
    assert batch.ids.tolist() == [
        [2, 5, 3, 0],
        [2, 4, 1, 3],
    ]
    assert batch.mask.tolist() == [
        [True, True, True, False],
        [True, True, True, True],
    ]
    assert batch.content.tolist() == [
        [False, True, False, False],
        [False, True, True, False],
    ]
    assert batch.labels.tolist() == [[1, 1], [1, 0]]
    assert batch.example_id.tolist() == [8, 3]


def ragged(*numbers):
    return Ragged.of([np.array(row, float) for row in numbers], float)


def filled(record):
    """The fields of a dataclass that hold something."""
    return {name for name, value in vars(record).items() if value is not None}


@pytest.fixture
def full_split():
    """Three texts with whatever a split may have."""
    teacher = TeacherOutputs(
        ragged([0.2, 0.8], [1], [1]),
        np.eye(3, 2),
    )
    words = [np.array([0, 1]), np.array([2]), np.array([1])]
    split = TextSplit(
        example_id=np.array([3, 8, 9]),
        words=Ragged.of(words, np.int32),
        vocabulary_id=np.array([4, 1, 5]),
        columns={
            "labels": np.array([0, 1, 1]),
            "asked": ragged([0, 1], [1], [0]),
        },
        spelling=["a", "b", "c"],
        classes=["no", "yes"],
        teacher=teacher,
        passages=[
            Passages((Passage.of_words(["a", "b"]),)),
            Passages((Passage.of_words(["c"]),)),
            Passages((Passage.of_words(["b"]),)),
        ],
        units=[
            np.array([[0, 0], [1, 1]]),
            np.array([[0, 0]]),
            np.array([[0, 0]]),
        ],
        slices=["north", "south", "west"],
    )
    assert filled(split) == {field.name for field in fields(split)}
    return split


def test_rows_that_are_selected_take_along_whatever_a_split_has(full_split):
    chosen = full_split.select(np.array([0, 2]))
    assert chosen.slices == ["north", "west"]
    assert chosen.tokens(3) == ["a", "b"]
    assert chosen.tokens(9) == ["b"]

    batch = chosen[[0, 1]]
    expected = full_split[[0, 2]]
    columns = filled(batch)
    assert columns >= {"asked", "teacher_attention", "teacher_probability", "characters"}
    for name in columns - {"extra"}:
        assert getattr(batch, name).equal(getattr(expected, name)), name


def test_rows_are_selected_by_their_examples(full_split):
    assert full_split.only([3, 9]).slices == ["north", "west"]
    assert full_split.only([3, 8, 9]) is full_split


def test_a_split_finds_an_example(split):
    assert split.row_of(8) == 1


@pytest.mark.parametrize("absent", [0, 4, 9])
def test_a_split_names_an_example_that_it_does_not_have(split, absent):
    with pytest.raises(KeyError, match=f"example {absent} is not in this split"):
        split.row_of(absent)


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_processes_share_the_work(world_size):
    rows = set()
    counts = set()
    for rank in range(world_size):
        sampler = BucketSampler(LENGTHS, 8, 0, rank, world_size)
        batches = list(sampler)
        rows.update(*batches)
        counts |= {len(batches), len(sampler)}
    assert rows == set(range(103))
    assert len(counts) == 1


def test_batches_are_repeated_where_there_are_more_processes():
    lengths = np.ones(3)
    single_process = BucketSampler(lengths, 8, 0)
    third_of_four = BucketSampler(lengths, 8, 0, 2, 4)
    assert list(third_of_four) == list(single_process)


def test_training_order_depends_on_seed_and_epoch_alone():
    def order(seed, epoch):
        sampler = BucketSampler(LENGTHS, 8, seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002  the global state must not matter
    first = order(1, 0)
    assert first == order(1, 0)
    assert first != order(1, 1)
    assert first != order(2, 0)
    assert Counter(chain.from_iterable(first)) == Counter(range(103))


def mean_spread(batches):
    """How far the lengths in a batch are apart, on average."""
    return np.mean([np.ptp(lengths) for lengths in batches])


def test_buckets_hold_similar_lengths():
    batches = [LENGTHS[batch] for batch in BucketSampler(LENGTHS, 8, 0)]
    unsorted = np.array_split(LENGTHS, 13)
    assert mean_spread(batches) < 12 < mean_spread(unsorted)


def test_buckets_come_in_random_order_and_are_not_the_same_in_every_epoch():
    batches = [LENGTHS[batch] for batch in BucketSampler(LENGTHS, 8, 0)]
    # a row's place is off by the noise only: ± 10 % on either side
    exact = {tuple(sorted(LENGTHS[batch])) for batch in short_enough(LENGTHS, 8)}
    assert {tuple(sorted(lengths)) for lengths in batches} != exact
    means = [lengths.mean() for lengths in batches]
    assert means != sorted(means)


def test_long_texts_come_in_smaller_batches_that_hold_every_row_once():
    lengths = np.array([5, 4096, 3, 3000, 7, 20000, 1])
    batches = short_enough(lengths, size=3, most=10_000)
    assert batches == [[6, 2, 0], [4, 3], [1], [5]]


def test_rows_of_a_single_text_stay_together_however_long_it_is():
    lengths = np.array([4000, 4000, 4000, 4000, 4000, 7000, 7000])
    text = np.array([0, 0, 0, 0, 0, 1, 1])
    batches = short_enough(lengths, size=4, most=10_000, text_number=text)
    assert batches == [[0, 1, 2, 3], [4], [5, 6]]
    alone = short_enough(lengths, size=4, most=10_000)
    assert alone == [[0, 1], [2, 3], [4], [5], [6]]


@pytest.mark.parametrize("length", [0, 1, 2])
def test_short_texts_do_not_keep_the_order_of_the_file(length):
    batches = list(BucketSampler(np.full(40, length), 10, seed=0))
    in_order = np.arange(40).reshape(4, 10).tolist()
    assert sorted(chain.from_iterable(batches)) == list(range(40))
    assert sorted(batches) != in_order


def test_rows_of_one_text_follow_each_other_in_every_order():
    texts = np.repeat(np.arange(30), 4)
    lengths = np.random.default_rng(0).integers(1, 40, 30)[texts]
    for epoch in range(5):
        sampler = BucketSampler(lengths, 8, seed=0, texts=texts)
        sampler.set_epoch(epoch)
        batches = list(sampler)
        assert sorted(chain.from_iterable(batches)) == list(range(120))
        for batch in batches:
            first_text, second_text = texts[batch].reshape(2, 4)
            assert np.ptp(first_text) == 0
            assert np.ptp(second_text) == 0
