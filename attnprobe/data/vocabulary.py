"""Words, their numbers, and their vectors from GloVe or fastText text files."""

import io
import os
import zlib
from collections.abc import Iterable, Sequence
from itertools import chain, takewhile
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.core.errors import UserError
from attnprobe.data.local_files import find_path, opened
from attnprobe.results.files import read_json

PADDING, UNKNOWN, START, END = range(4)
SPECIAL = ("<PAD>", "<UNK>", "<SOS>", "<EOS>")


class Vocabulary:
    """Ids of words: 0 padding, 1 unknown, 2 `<SOS>`, 3 `<EOS>`, then words in alphabetical order.

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

    @classmethod
    def load(cls, path: Path) -> "Vocabulary":
        """Read `{word: id}` from a run's JSON.

        Raises:
            UserError: the file is missing, or is no vocabulary of a run.
        """
        try:
            ids = read_json(path)
        except FileNotFoundError:
            raise UserError(
                f"{path} does not exist: expected the vocabulary.json of a finished run"
            ) from None
        except UserError as error:
            raise UserError(
                f"{error}: it is not a vocabulary. Expected the vocabulary.json of a run"
            ) from None
        vocabulary = cls(ids)
        if vocabulary.ids != ids:
            raise UserError(
                f"{path} is not a vocabulary of attnprobe: expected {{word: id}} with {SPECIAL} "
                f"first"
            )
        return vocabulary


def document_frequency(
    words: Int[np.ndarray, " tokens"], offsets: Int[np.ndarray, " documents_plus_one"], count: int
) -> Int[np.ndarray, " words"]:
    """In how many documents each word occurs.

    Args:
        words: numbers of the words of all documents, one document after the other.
        offsets: document i is `words[offsets[i]:offsets[i + 1]]`.
        count: number of distinct words.
    """
    frequency = np.zeros(count, np.int64)
    size = 50_000  # documents at a time: bounds the memory of `np.unique` for millions of documents
    for start in range(0, len(offsets) - 1, size):
        bounds = offsets[start : start + size + 1]
        document = np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))
        word = words[bounds[0] : bounds[-1]]
        pairs = np.unique(document * count + word)
        frequency += np.bincount(pairs % count, minlength=count)
    return frequency


def build_vocabulary(
    words: Sequence[str],
    frequency: Int[np.ndarray, " words"],
    min_df: int = 1,
    max_vocabulary: int | None = None,
) -> Vocabulary:
    """Build the vocabulary of the words that are frequent enough.

    Args:
        words: all words.
        frequency: in how many training documents each word occurs.
        min_df: documents that a word of the vocabulary occurs in, at least.
        max_vocabulary: words of the vocabulary at most: the most frequent ones, ties in
            alphabetical order.

    Raises:
        UserError: no word is left.
    """
    frequent = [
        (-int(documents), word)
        for word, documents in zip(words, frequency, strict=True)
        if documents >= max(min_df, 1)
    ]
    if not frequent:
        raise UserError(
            f"data.min_df={min_df} leaves no word in the vocabulary: the most frequent word is in "
            f"{int(frequency.max(initial=0))} training texts. Lower it, for example data.min_df=1"
        )
    if max_vocabulary is not None:
        frequent = sorted(frequent)[:max_vocabulary]
    return Vocabulary(word for _, word in frequent)


def random_vectors(
    vocabulary: int, size: int, generator: torch.Generator
) -> Float[Tensor, "vocabulary embed"]:
    """N(0, 1) rows, and zeros for padding and for unknown words.

    Note:
        The paper's code draws a vector for unknown words as well. Where every training word is
        known nothing trains that vector, and it adds noise to test texts.
    """
    matrix = torch.randn(vocabulary, size, generator=generator)
    matrix[[PADDING, UNKNOWN]] = 0
    return matrix


def load_vectors(
    path: str | os.PathLike,
    vocabulary: Vocabulary,
    *,
    missing: str = "zeros",
    generator: torch.Generator | None = None,
) -> tuple[Float[np.ndarray, "vocabulary embed"], int]:
    """Read the vectors of the vocabulary's words from a text file of GloVe or fastText.

    Args:
        path: text file, plain or `.gz`, with `word value value …` on each line. A fastText header
            line (`count size`) is recognised, and words may hold spaces (glove.840B has such). The
            path is looked up as `find_path` does.
        vocabulary: words to look up, as they are spelled. The first of two equal words counts.
        missing: rows of words that the file does not have: `zeros` (the paper's), or `normal`: N(0,
            1).
        generator: for `normal`; the rows drawn do not depend on which words the file has.

    Returns:
        The vectors, float32 `[vocabulary, embed]` with a row of zeros for padding; and the number
        of words that the file has.

    Raises:
        UserError: the file is missing, is no such text file, or has a line with another number of
            values than the first.
    """
    place = find_path(path)
    try:
        # only \n ends a line, as vectors of odd space characters exist; fastText has a space before
        # it
        with io.TextIOWrapper(opened(place), "utf-8", errors="replace", newline="\n") as file:
            lines = (line.rstrip(" \r\n") for line in file)
            first = next(lines, "")
            size, has_header = _vector_size(first, place)
            matrix = np.zeros((len(vocabulary), size), np.float32)
            if missing == "normal":
                assert generator is not None
                matrix = random_vectors(len(vocabulary), size, generator).numpy()

            numbered = enumerate(lines, 2)
            if not has_header:
                numbered = enumerate(chain([first], lines), 1)
            words: set[str] = set()
            for number, line in numbered:
                word, *values = line.rsplit(" ", size)
                _check_line(word, values, size, line, f"data.vectors={place}: line {number}")
                if vocabulary.id_of(word) != UNKNOWN and word not in words:
                    matrix[vocabulary.id_of(word)] = _vector_of(
                        values, f"data.vectors={place}: line {number}"
                    )
                    words.add(word)
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"data.vectors={path} cannot be read: {error}") from None
    except MemoryError:
        raise UserError(
            f"data.vectors={path}: vectors of {size:,} values for {len(vocabulary):,} words do not "
            f"fit into memory: take shorter ones, or a smaller data.max_vocabulary"
        ) from None
    return matrix, len(words)


def _vector_size(line: str, place: Path) -> tuple[int, bool]:
    """How many values a vector has, by the first line; and whether that line is a header."""
    fields = line.split(" ")
    if len(fields) == 2 and all(field.isdecimal() for field in fields):
        size = int(fields[1])
        has_header = True
    else:
        # the first word may hold spaces
        size = len(list(takewhile(_is_number, reversed(fields[1:]))))
        has_header = False
    if size == 0:
        raise UserError(
            f"data.vectors={place}: line 1 is not `word value value …`: {line[:60]!r}. "
            f"Expected GloVe or fastText text"
        )
    return size, has_header


def _check_line(word: str, values: list[str], size: int, line: str, where: str) -> None:
    """Refuse a line with another number of values."""
    # "0.1 0.2" before the values is no word of two parts: the vector is too long
    extra = word.split(" ")[1:]
    too_long = bool(extra) and all("." in field and _is_number(field) for field in extra)
    if len(values) != size or too_long:
        raise UserError(
            f"{where} has {line.count(' ')} values, expected {size} as in the first line: "
            f"{line[:40]!r}. The file may be cut off: get it again"
        )


def _vector_of(values: list[str], where: str) -> Float[np.ndarray, " embed"]:
    numbers = [float(value) if _is_number(value) else np.nan for value in values]
    vector = np.array(numbers, np.float32)
    if not np.isfinite(vector).all():
        raise UserError(
            f"{where} has a value that is no finite number. The file may be damaged: get it again"
        )
    return vector


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
