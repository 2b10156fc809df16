"""The order in which batches come, and which process takes which."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Int
from torch.utils.data import Sampler

MOST_POSITIONS = 1 << 15
"""Of an evaluation batch: long texts come in smaller ones, so that what a model and the probes hold of a batch does not
grow with the texts' length."""


def shard(batches: list[list[int]], rank: int, world_size: int, *, even: bool) -> list[list[int]]:
    """This process's part of the batches.

    `even` repeats some batches so that every process has the same number (training: gradient steps are taken
    together). Without it no batch comes twice (evaluation: no example may be counted twice).
    """
    if even:
        missing = -len(batches) % world_size
        batches = batches + [batches[i % len(batches)] for i in range(missing)]
    return batches[rank::world_size]


def chunks(order: Int[np.ndarray, " rows"], size: int) -> list[list[int]]:
    """Cut an order of rows into batches."""
    return [order[start : start + size].tolist() for start in range(0, len(order), size)]


def short_enough(
    order: Int[np.ndarray, " rows"], lengths: Int[np.ndarray, " rows"], size: int, most: int = MOST_POSITIONS
) -> list[list[int]]:
    """Cut an order of rows, shortest first, into batches of at most `size` rows and, padding included, `most` positions
    (a single row may exceed it)."""
    batches: list[list[int]] = []
    for row, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        if not batches or len(batches[-1]) == size or (len(batches[-1]) + 1) * (length + 2) > most:
            batches.append([])
        batches[-1].append(row)
    return batches


class BucketSampler(Sampler[list[int]]):
    """Training batches of similar length in random order.

    Rows are sorted by length · (1 + noise), noise uniform in ±10 %, cut into batches, and the batches are shuffled
    (Jain & Wallace's code). The order depends on (seed, epoch) alone; Lightning calls `set_epoch`.
    """

    def __init__(
        self,
        lengths: Int[np.ndarray, " rows"],
        batch_size: int,
        seed: int,
        rank: int = 0,
        world_size: int = 1,
        noise: float = 0.1,
    ):
        self.lengths, self.batch_size, self.seed, self.noise = lengths, batch_size, seed, noise
        self.rank, self.world_size, self.epoch = rank, world_size, 0

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of this epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        batches = -(-len(self.lengths) // self.batch_size)
        return -(-batches // self.world_size)

    def __iter__(self) -> Iterator[list[int]]:
        generator = np.random.default_rng((self.seed, self.epoch))
        size = len(self.lengths)
        # + 1: otherwise all texts of the same few words would keep the file's order for ever
        noisy = (self.lengths + 1) * (1 + generator.uniform(-self.noise, self.noise, size))
        batches = chunks(np.argsort(noisy, kind="stable"), self.batch_size)
        order = generator.permutation(len(batches))
        yield from shard([batches[i] for i in order], self.rank, self.world_size, even=True)


class SortedSampler(Sampler[list[int]]):
    """Evaluation batches, shortest texts first: deterministic, each row exactly once over all processes."""

    def __init__(self, lengths: Int[np.ndarray, " rows"], batch_size: int, rank: int = 0, world_size: int = 1):
        batches = short_enough(np.argsort(lengths, kind="stable"), lengths, batch_size)
        # kept as long as the loader: as numbers, not as objects
        self.batches = [np.array(batch) for batch in shard(batches, rank, world_size, even=False)]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in self.batches)
