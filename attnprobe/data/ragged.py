"""Sequences of different lengths, stored one after the other."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int


@dataclass(frozen=True)
class Ragged:
    """Many sequences of different lengths in one flat array: sequence i is `flat[offsets[i]:offsets[i + 1]]`.

    A million texts cost two arrays, not a million objects.
    """

    flat: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, sequences: Sequence[np.ndarray], dtype: type) -> "Ragged":
        """Store these sequences one after the other."""
        offsets = np.zeros(len(sequences) + 1, np.int64)
        np.cumsum([len(sequence) for sequence in sequences], out=offsets[1:])
        flat = np.concatenate(sequences) if len(sequences) else np.empty(0)
        return cls(flat.astype(dtype, copy=False), offsets)

    @classmethod
    def joined(cls, parts: Sequence["Ragged"]) -> "Ragged":
        """The sequences of all the parts, each of which begins its own `flat`."""
        ends = np.cumsum([0, *(len(part.flat) for part in parts)])
        offsets = [part.offsets[1:] + end for part, end in zip(parts, ends[:-1], strict=True)]
        return cls(np.concatenate([part.flat for part in parts]), np.concatenate([ends[:1], *offsets]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        return self.flat[self.offsets[row] : self.offsets[row + 1]]

    @property
    def lengths(self) -> Int[np.ndarray, " rows"]:
        """Length of every sequence."""
        return np.diff(self.offsets)

    def select(self, rows: Int[np.ndarray, " chosen"]) -> "Ragged":
        """The sequences of these rows, in this order."""
        offsets = np.concatenate([[0], np.cumsum(self.lengths[rows])])
        flat = np.empty(offsets[-1], self.flat.dtype)
        for row, start, stop in zip(rows.tolist(), offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            flat[start:stop] = self[row]
        return Ragged(flat, offsets)
