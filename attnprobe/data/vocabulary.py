"""Words and their numbers."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

from attnprobe.errors import UserError
from attnprobe.results.checksums import LARGEST_JSON
from attnprobe.results.files import write_json
from attnprobe.results.untrusted import read_json

PADDING, UNKNOWN, START, END = range(4)
SPECIAL = ("<PAD>", "<UNK>", "<SOS>", "<EOS>")


class Vocabulary:
    """Ids of words: 0 padding, 1 unknown, 2 `<SOS>`, 3 `<EOS>`, then the words in alphabetical order.

    >>> vocabulary = Vocabulary(["good", "bad"])
    >>> vocabulary.encode(["good", "film"])
    [5, 1]
    >>> vocabulary.decode([2, 4, 3])
    ['<SOS>', 'bad', '<EOS>']
    """

    def __init__(self, words: Iterable[str]):
        # a word of the text that looks like a marker must not become one
        self.words = [*SPECIAL, *sorted(set(words) - set(SPECIAL))]
        self.ids = {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: str) -> bool:
        return self.ids.get(word, 0) >= len(SPECIAL)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.words == other.words

    def id_of(self, word: str) -> int:
        """The word's id, or `UNKNOWN` (also for a word that is spelled like a marker)."""
        number = self.ids.get(word, UNKNOWN)
        return number if number >= len(SPECIAL) else UNKNOWN

    def encode(self, tokens: Iterable[str]) -> list[int]:
        """Ids of the tokens, without markers; unknown words get `UNKNOWN`."""
        return [self.id_of(token) for token in tokens]

    def decode(self, ids: Iterable[int]) -> list[str]:
        """The words of these ids, markers included."""
        return [self.words[number] for number in ids]

    def save(self, path: Path) -> None:
        """Write `{word: id}` as JSON."""
        write_json(self.ids, path)

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Read what `save` wrote.

        Raises:
            UserError: the file is missing, no JSON, or not a vocabulary of this layout.
        """
        try:
            ids = read_json(path, limit=LARGEST_JSON)
        except FileNotFoundError:
            raise UserError(f"{path} does not exist: expected the vocabulary.json of a finished run") from None
        except UserError as error:
            raise UserError(f"{error}: it is not a vocabulary. Expected the vocabulary.json of a run") from None
        vocabulary = cls(ids)
        if vocabulary.ids != ids:
            raise UserError(f"{path} is not a vocabulary of attnprobe: expected {{word: id}} with {SPECIAL} first")
        return vocabulary


def document_frequency(
    words: Int[np.ndarray, " tokens"], offsets: Int[np.ndarray, " documents_plus_one"], count: int
) -> Int[np.ndarray, " words"]:
    """In how many documents each of `count` words occurs; document i is `words[offsets[i]:offsets[i + 1]]`."""
    frequency = np.zeros(count, np.int64)
    size = 50_000  # documents at a time: bounds the memory of `np.unique` for millions of documents
    for start in range(0, len(offsets) - 1, size):
        bounds = offsets[start : start + size + 1]
        document = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        pairs = np.unique(document * count + words[bounds[0] : bounds[-1]])
        frequency += np.bincount(pairs % count, minlength=count)
    return frequency


def build_vocabulary(
    words: Sequence[str], frequency: Int[np.ndarray, " words"], min_df: int = 1, max_vocabulary: int | None = None
) -> Vocabulary:
    """The words that occur in at least `min_df` training documents; of these the `max_vocabulary` most frequent,
    ties in alphabetical order.

    Raises:
        UserError: no word is frequent enough.
    """
    kept = [(-int(n), word) for word, n in zip(words, frequency, strict=True) if n >= max(min_df, 1)]
    if not kept:
        raise UserError(
            f"data.min_df={min_df} leaves no word in the vocabulary: the most frequent word is in "
            f"{int(frequency.max(initial=0))} training texts. Lower it, for example data.min_df=1"
        )
    if max_vocabulary is not None:
        kept = sorted(kept)[:max_vocabulary]
    return Vocabulary(word for _, word in kept)
