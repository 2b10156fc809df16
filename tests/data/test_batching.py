from collections import Counter

import numpy as np
import pytest
import torch

from attnprobe.data.batching import BucketSampler, TextSplit, short_enough
from attnprobe.data.examples import Ragged

LENGTHS = np.random.default_rng(0).integers(1, 60, 103)


def test_split_serves_rows_and_finds_examples():
    words = Ragged.of([np.array([0, 1]), np.array([2])], np.int32)
    labels = np.array([[1, 0], [1, 1]], np.float32)
    split = TextSplit(np.array([3, 8]), words, np.array([4, 1, 5]), {"labels": labels})
    batch = split[[1, 0]]
    assert batch.ids.tolist() == [[2, 5, 3, 0], [2, 4, 1, 3]]
    assert batch.mask.tolist() == [[True, True, True, False], [True] * 4]
    assert batch.content.tolist() == [[False, True, False, False], [False, True, True, False]]
    assert batch.labels.tolist() == [[1, 1], [1, 0]]
    assert batch.example_id.tolist() == [8, 3]
    assert split.row_of(8) == 1
    for absent in (0, 4, 9):
        with pytest.raises(KeyError, match=f"example {absent} is not in this split"):
            split.row_of(absent)


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_processes_share_the_work(world_size):
    training = [BucketSampler(LENGTHS, 8, 0, rank, world_size) for rank in range(world_size)]
    assert {len(list(sampler)) for sampler in training} == {len(training[0])}
    assert {row for sampler in training for batch in sampler for row in batch} == set(range(103))
    fewer = np.ones(3)  # fewer batches than processes
    assert list(BucketSampler(fewer, 8, 0, 2, 4)) == list(BucketSampler(fewer, 8, 0))


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
    assert Counter(row for batch in first for row in batch) == Counter(range(103))


def test_buckets_hold_similar_lengths_in_random_order():
    batches = [LENGTHS[batch] for batch in BucketSampler(LENGTHS, 8, 0)]
    # a row's place is off by the noise only: ± 10 % on either side
    exact = {tuple(sorted(LENGTHS[batch])) for batch in short_enough(LENGTHS, 8)}
    own, unsorted = (
        [np.ptp(batch) for batch in some] for some in (batches, np.array_split(LENGTHS, 13))
    )
    assert np.mean(own) < 12 < np.mean(unsorted)
    assert {tuple(sorted(batch)) for batch in batches} != exact
    means = [batch.mean() for batch in batches]
    assert means != sorted(means)


def test_long_texts_come_in_smaller_batches_that_hold_every_row_once():
    lengths = np.array([5, 4096, 3, 3000, 7, 20000, 1])
    batches = short_enough(lengths, size=3, most=10_000)
    assert batches == [[6, 2, 0], [4, 3], [1], [5]]


def test_short_texts_do_not_keep_the_order_of_the_file():
    for length in (0, 1, 2):
        batches = list(BucketSampler(np.full(40, length), 10, seed=0))
        assert sorted(row for batch in batches for row in batch) == list(range(40))
        assert sorted(batches) != [list(range(start, start + 10)) for start in range(0, 40, 10)]
