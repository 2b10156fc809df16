"""Word vectors from GloVe or fastText text files."""

import gzip
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.data.files import find_path
from attnprobe.data.settings import Words
from attnprobe.data.vocabulary import PADDING, UNKNOWN, Vocabulary
from attnprobe.errors import UserError


def random_vectors(vocabulary: int, size: int, generator: torch.Generator) -> Float[Tensor, "vocabulary embed"]:
    """N(0, 1) rows, and zeros for padding and for unknown words.

    Note:
        The paper's code draws a vector for unknown words as well. Where every training word is in the vocabulary
        nothing ever trains it, so that each unknown word of the test split adds the same noise to its text.
    """
    matrix = torch.randn(vocabulary, size, generator=generator)
    matrix[[PADDING, UNKNOWN]] = 0
    return matrix


def first_vectors(
    settings: Words, vocabulary: Vocabulary, seed: int
) -> tuple[Float[Tensor, "vocabulary embed"], int | None]:
    """The word vectors that a training starts from, and how many of them are the file's; None without a file.

    Raises:
        UserError: the file cannot be used.
    """
    generator = torch.Generator().manual_seed(seed)
    if settings.vectors is None:
        return random_vectors(len(vocabulary), settings.embedding_size, generator), None
    matrix, found = load_vectors(settings.vectors, vocabulary, missing=settings.missing_vectors, generator=generator)
    return torch.from_numpy(matrix), found


def load_vectors(
    path: str | os.PathLike,
    vocabulary: Vocabulary,
    *,
    missing: str = "zeros",
    generator: torch.Generator | None = None,
) -> tuple[Float[np.ndarray, "vocabulary embed"], int]:
    """The vectors of the vocabulary's words.

    Args:
        path: text file, plain or `.gz`, one `word value value …` a line; a fastText header line (`count size`) is
            recognised, words may hold spaces (glove.840B has such). Relative paths are looked up in the working
            directory, then in `ATTNPROBE_DATA_DIR`.
        vocabulary: words to look up, as they are spelled. The first of two equal words counts.
        missing: rows of words that the file does not have: `zeros` (the paper's), or `normal`: N(0, 1).
        generator: for `normal`; the rows drawn do not depend on which words the file has.

    Returns:
        (matrix float32 `[vocabulary, embed]` whose padding row is zero, number of words found).

    Raises:
        UserError: the file is missing, no such text file, or a line has another number of values than the first.
    """
    place = find_path(path)
    try:
        with open_text(place) as file:
            size, lines = numbered_lines(file, place)
            if missing == "normal":
                assert generator is not None
                matrix = random_vectors(len(vocabulary), size, generator).numpy()
            else:
                matrix = np.zeros((len(vocabulary), size), np.float32)
            found: set[str] = set()
            for number, line in lines:
                word, values = split_line(line, size, number, place)
                if word in vocabulary and word not in found:
                    matrix[vocabulary.id_of(word)] = parse(values, number, place)
                    found.add(word)
    except (OSError, EOFError) as error:
        raise UserError(f"data.vectors={path} cannot be read: {error}") from None
    return matrix, len(found)


def open_text(path: Path) -> TextIO:
    """Open as text, plain or gzip. Only `\\n` ends a line: vectors of odd space characters exist."""
    if path.name.lower().endswith(".gz"):
        return gzip.open(path, "rt", encoding="utf-8", errors="replace", newline="\n")
    return path.open(encoding="utf-8", errors="replace", newline="\n")


def numbered_lines(file: TextIO, path: Path) -> tuple[int, Iterator[tuple[int, str]]]:
    """The length of the vectors, and the lines that hold them with their numbers from 1."""
    first = file.readline().rstrip(" \r\n")
    fields = first.split(" ")
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        return int(fields[1]), enumerate(strip_ends(file), 2)
    size = len(fields) - 1
    while size and not are_numbers(fields[-size:]):  # the first word may hold spaces
        size -= 1
    if not size:
        raise UserError(
            f"data.vectors={path}: line 1 is not `word value value …`: {first[:60]!r}. Expected GloVe or fastText text"
        )
    return size, enumerate(strip_ends(chain_first(first, file)), 1)


def chain_first(first: str, file: TextIO) -> Iterator[str]:
    """The line that was read already, then the rest."""
    yield first
    yield from file


def strip_ends(lines: Iterator[str] | TextIO) -> Iterator[str]:
    """Lines without their ends; fastText has a space there."""
    return (line.rstrip(" \r\n") for line in lines)


def are_numbers(fields: list[str]) -> bool:
    """Whether every field is a number."""
    try:
        for field in fields:
            float(field)
    except ValueError:
        return False
    return True


def split_line(line: str, size: int, number: int, path: Path) -> tuple[str, list[str]]:
    """Word and values of one line; the word takes all that comes before the last `size` fields."""
    word, *values = line.rsplit(" ", size)
    # "0.1 0.2" before the values is not a word of two parts but a vector that is too long
    extra = word.split(" ")[1:]
    if len(values) != size or (extra and are_numbers(extra) and all("." in field for field in extra)):
        raise UserError(
            f"data.vectors={path}: line {number} has {line.count(' ')} values, expected {size} as in the first "
            f"line: {line[:40]!r}. The file may be cut off: get it again"
        )
    return word, values


def parse(values: list[str], number: int, path: Path) -> Float[np.ndarray, " embed"]:
    """The numbers of one line."""
    try:
        vector = np.array(values, np.float32)
    except ValueError as error:
        raise UserError(f"data.vectors={path}: line {number}: {error}. The file may be damaged: get it again") from None
    if not np.isfinite(vector).all():
        raise UserError(f"data.vectors={path}: line {number} has a value that is not finite. Get the file again")
    return vector
