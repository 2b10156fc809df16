"""Texts as they stand in their cells, and where their words are in them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Int


@dataclass(frozen=True)
class Passage:
    """A text, character by character, and the places of its words.

    Attributes:
        string: the text.
        spans: [start, end) characters of every word, in order; no two words overlap.
        cell: what the cell holds, where cleaning has changed it; None: `string`.
    """

    string: str
    spans: Int[np.ndarray, "words 2"]
    cell: str | None = None

    @classmethod
    def of_words(cls, words: Sequence[str], cell: str | None = None) -> "Passage":
        """The text that has these words with one space between them.

        >>> Passage.of_words(["a", "film"]).spans.tolist()
        [[0, 1], [2, 6]]
        """
        ends = np.cumsum([len(word) + 1 for word in words], dtype=np.int64) - 1
        starts = ends - [len(word) for word in words]
        return cls(" ".join(words), np.stack([starts, ends], -1).astype(np.int32), cell)

    @classmethod
    def of_tokens(cls, string: str, tokens: Sequence[str], cell: str | None = None) -> "Passage":
        """A text whose words are these tokens, which leave out nothing but white space."""
        spans = []
        end = 0
        for token in tokens:
            start = string.find(token, end)
            end = start + len(token)
            spans.append((start, end))
        if any(start < 0 for start, _ in spans):  # a token holds other white space than the text
            spans = places_of(string, tokens)
        return cls(string, np.array(spans, np.int32).reshape(-1, 2), cell)

    @classmethod
    def of_remaining(cls, string: str, spans: Int[np.ndarray, "words 2"]) -> "Passage":
        """A text without all words but some.

        A word that goes takes the white space after it along; the last words of a text take that
        before them.

        Args:
            string: the text.
            spans: [start, end) characters of every word that stays, in order.

        >>> Passage.of_remaining("a very  fine film\\n", np.array([[0, 1], [8, 12]])).string
        'a fine\\n'
        """
        if not len(spans):
            return cls(_white_space_before(string) + _white_space_after(string), spans)
        rest = ""
        end = 0
        places = []
        for first, last in spans.tolist():
            gap = string[end:first]
            rest += gap if gap.isspace() else _white_space_before(gap)
            places.append((len(rest), len(rest) + last - first))
            rest += string[first:last]
            end = last
        gap = string[end:]
        rest += gap if gap.isspace() else _white_space_after(gap)
        return cls(rest, np.array(places, np.int32))

    def __len__(self) -> int:
        return len(self.spans)

    @property
    def raw(self) -> str:
        """What the cell holds."""
        return self.string if self.cell is None else self.cell

    def words(self) -> list[str]:
        """The words, as they are in the text."""
        return [self.string[start:end] for start, end in self.spans.tolist()]

    def stretch(self, first: int, last: int) -> str:
        """The text from one word to another, both included."""
        return self.string[self.spans[first, 0] : self.spans[last, 1]]

    def without(self, first: int, last: int) -> "Passage":
        """The text without some successive words; see `of_remaining`.

        >>> Passage.of_words(["not", "a", "film"]).without(1, 1).string
        'not film'
        >>> Passage.of_words(["not", "a", "film"]).without(1, 2).words()
        ['not']
        """
        spans = np.delete(self.spans, np.arange(first, last + 1), axis=0)
        return Passage.of_remaining(self.string, spans)

    def up_to(self, end: int) -> "Passage":
        """The first characters of the text, and the words or parts of words in them."""
        spans = self.spans[self.spans[:, 0] < end].clip(max=end)
        return Passage(self.string[:end], spans, self.raw)

    def cut(self, words: int | None) -> "Passage":
        """The text up to the end of so many words; all of it where it has no more."""
        if words is None or words >= len(self):
            return self
        end = int(self.spans[words - 1, 1]) if words else 0
        return Passage(self.string[:end], self.spans[:words], self.raw)


@dataclass(frozen=True)
class Passages:
    """What a model that reads pieces is given: a text, or a pair of texts.

    Attributes:
        texts: the text, or the two texts of the pair in their order.
        attended: numbers of the texts whose words are attended to, in order.
    """

    texts: tuple[Passage, ...]
    attended: tuple[int, ...] = (0,)

    @classmethod
    def paired(cls, first: Passage, second: Passage, attend_to: str) -> "Passages":
        """A pair, of which `both` texts, the `first` or the `second` are attended to."""
        attended = {"first": (0,), "second": (1,)}.get(attend_to, (0, 1))
        return cls((first, second), attended)

    def __len__(self) -> int:
        return sum(len(self.texts[number]) for number in self.attended)

    def words(self) -> list[str]:
        """The words that are attended to."""
        return [word for number in self.attended for word in self.texts[number].words()]

    def first_words(self) -> dict[int, int]:
        """Number of each attended text → that of its first word among those attended to."""
        starts = {}
        start = 0
        for number in self.attended:
            starts[number] = start
            start += len(self.texts[number])
        return starts

    def _locate(self, word: int) -> tuple[int, int]:
        """Number of the text that an attended word is of, and that of the text's first word."""
        for number, start in reversed(self.first_words().items()):
            if word >= start:
                return number, start
        raise IndexError(word)

    def stretch(self, first: int, last: int) -> str:
        """The text from one attended word to another of the same text, both included."""
        number, start = self._locate(first)
        return self.texts[number].stretch(first - start, last - start)

    def without(self, first: int, last: int) -> "Passages":
        """The text or pair without some successive words of one text that are attended to."""
        number, start = self._locate(first)
        texts = list(self.texts)
        texts[number] = texts[number].without(first - start, last - start)
        return replace(self, texts=tuple(texts))

    def cut(self, limit: int | None) -> "Passages":
        """With at most so many words that are attended to."""
        if limit is None or limit >= len(self):
            return self
        texts = list(self.texts)
        for number, start in self.first_words().items():
            texts[number] = texts[number].cut(max(0, limit - start))
        return replace(self, texts=tuple(texts))


def _white_space_before(gap: str) -> str:
    """The white space that a stretch of text begins with."""
    return gap[: len(gap) - len(gap.lstrip())]


def _white_space_after(gap: str) -> str:
    """The white space that a stretch of text ends in."""
    return gap[len(gap.rstrip()) :]


def places_of(text: str, tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Where the tokens of a text are in it, as [start, end) characters without spaces around.

    >>> places_of("I  don't.", ["I", "do", "n't", "."])
    [(0, 1), (3, 5), (5, 8), (8, 9)]
    """
    solid = [place for place, character in enumerate(text) if not character.isspace()]
    places = []
    read = 0  # characters of the text that earlier tokens take, spaces not counted
    for token in tokens:
        size = sum(not character.isspace() for character in token)
        if size:
            last = solid[read + size - 1]
            places.append((solid[read], last + 1))
        else:
            places.append((0, 0))
        read += size
    return places
