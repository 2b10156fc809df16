"""Tokenised rows, before the vocabulary."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Int


@dataclass(frozen=True)
class Ragged:
    """Many sequences of different lengths in one flat array: sequence i is
    `flat[offsets[i]:offsets[i + 1]]`.

    A million texts cost two arrays, not a million objects.
    """

    flat: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, sequences: Iterable[np.ndarray], dtype: type) -> "Ragged":
        """Store these sequences one after the other."""
        every = list(sequences)
        flat = np.concatenate(every) if every else np.empty(0)
        return cls(flat.astype(dtype, copy=False), np.cumsum([0, *map(len, every)]))

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
        for row, start, stop in zip(
            rows.tolist(), offsets[:-1].tolist(), offsets[1:].tolist(), strict=True
        ):
            flat[start:stop] = self[row]
        return Ragged(flat, offsets)


class Lexicon(dict[str, int]):
    """Numbers words in the order in which they are asked for."""

    def __missing__(self, word: str) -> int:
        self[word] = len(self)
        return self[word]

    def numbers(self, tokens: Sequence[str]) -> Int[np.ndarray, " tokens"]:
        """The numbers of these words."""
        return np.array([self[token] for token in tokens], np.int32)


Examples = pd.DataFrame
"""Tokenised rows of one split, before the vocabulary, by their number in the source.

`words` and `question` number distinct words in order of appearance; `length`, `sentences` and
`longest_sentence` count tokens, sentences and the tokens of the longest one before truncation.
`labels` and `candidates` are lists of raw answers, None for a row that may be answered with any
class. `per_word` has by name what belongs to each word and goes into the batches as it is
(`rationale`, `sentence`, the columns of `data.per_word`), and `counterfactual`, which numbers
words; what does not fit the tokens is missing. Rows of one `group` stay together. Columns that
nobody asks for are not there. """
