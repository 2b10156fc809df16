"""Tokenised rows, before the vocabulary."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from jaxtyping import Int


@dataclass(frozen=True)
class Ragged:
    """Many sequences of different lengths in one flat array.

    Sequence i is `flat[offsets[i]:offsets[i + 1]]`. A million texts cost two arrays, not a million
    objects.
    """

    flat: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, sequences: Iterable[np.ndarray], dtype: type) -> "Ragged":
        """Store these sequences one after the other."""
        arrays = list(sequences)
        flat = np.concatenate(arrays) if arrays else np.empty(0)
        return cls(flat.astype(dtype, copy=False), np.cumsum([0, *map(len, arrays)]))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> np.ndarray:
        return self.flat[self.offsets[row] : self.offsets[row + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[row] for row in range(len(self)))

    @property
    def lengths(self) -> Int[np.ndarray, " rows"]:
        """Length of every sequence."""
        return np.diff(self.offsets)

    def select(self, rows: Int[np.ndarray, " chosen"]) -> "Ragged":
        """The sequences of these rows, in this order."""
        offsets = np.concatenate([[0], np.cumsum(self.lengths[rows])])
        flat = np.empty(offsets[-1], self.flat.dtype)
        bounds = offsets.tolist()
        for place, row in enumerate(rows.tolist()):
            flat[bounds[place] : bounds[place + 1]] = self[row]
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
"""Tokenised rows of one split, before the vocabulary, indexed by their number in the source.

Columns that no setting asks for are not there:

- `words` and `question` number distinct words in order of appearance.
- `length`, `sentences` and `longest_sentence` count tokens, sentences and the tokens of the longest
  sentence, all before truncation.
- `labels` and `candidates` are lists of raw answers; `candidates` is None for a row that may be
  answered with any class.
- `per_word` is a dictionary by name of arrays with one entry per word, which go into the batches as
  they are (`rationale`, `sentence`, the columns of `data.per_word`), and of `counterfactual`, which
  numbers words. What does not fit the tokens is missing.
- `group`: rows of one group stay together. Known before the rows are tokenised, and no longer.
- `slice`: the part of the texts that a row belongs to, for a report; empty where its cell is.
- `passages`: the text or pair as it stands in its cells (`Passages`), for models that read pieces.
"""
