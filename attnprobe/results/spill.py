"""Numbers that wait on disk until all have come: sorted at the end, whatever their number, in a fixed amount of memory."""

import os
import tempfile
import weakref
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path

import numpy as np

RECORD = np.dtype([("example_id", np.int64), ("step", np.float64), ("value", np.float64)])
"""One row of a long table, its metric aside; a step of NaN stands for no step."""


class Spill:
    """Records in one temporary file, filed under a key, in the order in which they came.

    The file has no name: however the process ends, nothing of it is left.
    """

    def __init__(self, folder: Path | None) -> None:
        """`folder`: a directory on the disk that is to hold the file; None: the system's place for temporary files."""
        self.file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 (open as long as this object)
        self.extents: dict[Hashable, list[tuple[int, int]]] = {}
        weakref.finalize(self, self.file.close)  # of a run that fails in between nobody closes it

    def append(self, key: Hashable, records: np.ndarray) -> None:
        """Add records, `[rows]` of dtype `RECORD`."""
        offset = self.file.seek(0, os.SEEK_END)
        self.file.write(np.ascontiguousarray(records).data)
        self.extents.setdefault(key, []).append((offset, len(records)))

    def read(self, key: Hashable) -> Iterator[np.ndarray]:
        """What was filed under this key, a piece at a time."""
        for offset, count in self.extents.get(key, []):
            self.file.seek(offset)
            yield np.frombuffer(self.file.read(count * RECORD.itemsize), RECORD)

    def count(self, key: Hashable) -> int:
        """How many records were filed under this key."""
        return sum(count for _, count in self.extents.get(key, []))

    def close(self) -> None:
        """Give the disk back."""
        self.file.close()


def in_order(spill: Spill, key: Hashable, *, most: int, folder: Path | None) -> Iterator[np.ndarray]:
    """The records of one key by example and step, in pieces of at most `most` rows (a single example may exceed it).

    Examples are dealt out, in a second file, to ranges of ids that hold about `most` rows each; each range is then
    sorted by itself.
    """
    if spill.count(key) <= most:
        yield ordered(spill.read(key))
        return
    range_of, first, counts = _ranges(spill.read(key), most)
    ends = counts.cumsum()
    place = ends - counts
    with tempfile.TemporaryFile(dir=folder) as dealt:
        for records in spill.read(key):
            number = range_of[records["example_id"] - first]
            together = np.argsort(number, kind="stable")
            records, number = records[together], number[together]
            starts = np.flatnonzero(np.diff(number, prepend=-1))
            for start, part in zip(starts, np.split(records, starts[1:]), strict=True):
                dealt.seek(int(place[number[start]]) * RECORD.itemsize)
                dealt.write(part.data)
                place[number[start]] += len(part)
        dealt.seek(0)
        for count in counts.tolist():
            yield ordered([np.frombuffer(dealt.read(count * RECORD.itemsize), RECORD)])


def _ranges(parts: Iterable[np.ndarray], most: int) -> tuple[np.ndarray, int, np.ndarray]:
    """The range that each example belongs to, ascending from 0, the id of the first example, and how many rows each range
    has."""
    rows, first = np.zeros(1, np.int64), 0
    for records in parts:
        ids = records["example_id"]
        lowest = min(first, int(ids.min()))
        size = max(first + len(rows), int(ids.max()) + 1) - lowest
        grown = np.bincount(ids - lowest, minlength=size)
        grown[first - lowest : first - lowest + len(rows)] += rows
        rows, first = grown, lowest
    # an example is never cut: it belongs where its last row falls
    _, range_of = np.unique(np.maximum(rows.cumsum() - 1, 0) // most, return_inverse=True)
    return range_of, first, np.bincount(range_of, rows).astype(np.int64)


def ordered(parts: Iterable[np.ndarray]) -> np.ndarray:
    """All these records by example and step, the one without a step first."""
    records = np.concatenate([np.zeros(0, RECORD), *parts])
    return records[np.lexsort((np.nan_to_num(records["step"], nan=-np.inf), records["example_id"]))]
