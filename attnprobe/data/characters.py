"""The characters of texts as columns of a batch: a text without some words can be read anew."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from attnprobe.data.passages import Passage, Passages

ATTENDED = 0x110000
"""Stands before the characters of a text whose words are attended to: one more than the last
character of Unicode."""
OTHER = ATTENDED + 1
"""Stands before the characters of the other text of a pair."""


class Characters(NamedTuple):
    """A text or pair, character by character.

    Attributes:
        codes: the characters of each text as numbers, `ATTENDED` or `OTHER` before them.
        starts: where each unit of the attended texts starts in `codes`.
        ends: where it ends: one after its last character.
    """

    codes: Int[np.ndarray, " characters"]
    starts: Int[np.ndarray, " units"]
    ends: Int[np.ndarray, " units"]

    @classmethod
    def of(
        cls,
        text: Passages,
        first: Int[np.ndarray, " units"],
        last: Int[np.ndarray, " units"],
    ) -> "Characters":
        """The characters of a text or pair.

        Args:
            text: the text.
            first: the number of the first word of each unit, among those that are attended to.
            last: the number of its last word.
        """
        codes: list[int] = []
        spans = [np.zeros((0, 2), np.int64)]
        for number, passage in enumerate(text.texts):
            is_attended = number in text.attended
            codes.append(ATTENDED if is_attended else OTHER)
            if is_attended:
                spans.append(passage.spans + len(codes))
            codes += map(ord, passage.string)
        span = np.concatenate(spans)
        return cls(np.array(codes, np.int64), span[first, 0], span[last, 1])

    def text(self) -> Passages:
        """The text or pair with these units for its words, and without all other words."""
        beginnings = [*np.flatnonzero(self.codes >= ATTENDED).tolist(), len(self.codes)]
        passages: list[Passage] = []
        attended: list[int] = []
        for number, begin in enumerate(beginnings[:-1]):
            start = begin + 1
            end = beginnings[number + 1]
            string = "".join(map(chr, self.codes[start:end].tolist()))
            if self.codes[begin] == OTHER:
                passages.append(Passage(string, np.zeros((0, 2), np.int32)))
                continue
            attended.append(number)
            is_here = (self.starts >= start) & (self.ends <= end)
            spans = np.stack([self.starts[is_here], self.ends[is_here]], -1) - start
            passages.append(Passage.of_remaining(string, spans))
        return Passages(tuple(passages), tuple(attended))
