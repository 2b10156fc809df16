"""What people marked in a text, as one truth value per token: the rationale, and what each of several annotators marked."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from attnprobe.errors import UserError

KINDS = {
    "mask": "a list of one true or false per token",
    "spans": "a list of [start, end) token positions",
    "sentences": "a list of the numbers of sentences",
    "characters": "a list of [start, end) character positions in the text as it is in its cell",
}
"""How a cell may say which tokens are marked (`data.rationale_kind`)."""
MOST_ANNOTATORS = 15
"""An annotator takes two bits of a number."""
PLACED = ("lower", "digits")
"""Token rules after which it is still known where in the text a token was."""

Places = Callable[[], list[tuple[int, int]]]
"""[start, end) characters of each token in the text, found out when they are needed."""


def marked(
    cell: Any, kind: str, length: int, sentence: Sequence[int] | None, places: Places, setting: str
) -> Bool[np.ndarray, " tokens"] | None:
    """One truth value per token, or None where the cell does not fit the tokens.

    Args:
        cell: as `kind` says; a token is marked by characters where one of its own is.
        length: number of tokens.
        sentence: the sentence of each token, where there are sentences.
        setting: the setting that names the column, for the message.

    Raises:
        UserError: the cell is of another form.
    """
    good = isinstance(cell, list | tuple)
    if kind == "mask":
        good = good and all(isinstance(one, bool | int | float) for one in cell)
    elif kind == "sentences":
        good = good and all(isinstance(one, int) for one in cell)
    else:
        good = good and all(is_span(one) for one in cell)
    if not good:
        raise UserError(
            f"{setting}: data.rationale_kind={kind} expects {KINDS[kind]} in every cell, but one is {str(cell)[:60]!r}"
        )
    if kind == "mask":
        return np.array(cell, bool) if len(cell) == length else None
    if kind == "sentences":
        assert sentence is not None
        return np.isin(sentence, cell) if set(cell) <= set(sentence) else None
    if kind == "characters":
        return touched(cell, places()) if cell else np.zeros(length, bool)
    mask = np.zeros(length, bool)
    for start, end in cell:
        if not 0 <= start <= end <= length:  # empty spans occur in ERASER's files
            return None
        mask[start:end] = True
    return mask


def is_span(one: Any) -> bool:
    """Whether it is a pair of whole numbers."""
    return isinstance(one, list | tuple) and len(one) == 2 and all(isinstance(end, int) for end in one)


def touched(spans: Sequence[tuple[int, int]], places: Sequence[tuple[int, int]]) -> Bool[np.ndarray, " tokens"] | None:
    """The tokens of which one character or more is in a span; None where a span is not within the text."""
    begin, end = np.array(places).reshape(-1, 2).T
    mask = np.zeros(len(places), bool)
    for first, last in spans:
        if not 0 <= first <= last:
            return None
        mask |= (begin < last) & (end > first)
    return mask if mask.any() or all(first == last for first, last in spans) else None


def places_of(text: str, tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Where the tokens of a text are in it, as [start, end) characters; spaces of the text are in none of them.

    >>> places_of("I  don't.", ["I", "do", "n't", "."])
    [(0, 1), (3, 5), (5, 8), (8, 9)]
    """
    solid = [number for number, one in enumerate(text) if not one.isspace()]
    found, at = [], 0
    for token in tokens:
        size = sum(not one.isspace() for one in token)
        found.append((solid[at], solid[at + size - 1] + 1) if size else (0, 0))
        at += size
    return found


def packed(masks: Sequence[Bool[np.ndarray, " tokens"]]) -> Int[np.ndarray, " tokens"]:
    """What several annotators marked, in one number per token: of annotator k bit 2k says that there is one, and bit 2k + 1
    that this token is marked.

    >>> packed([np.array([True, False]), np.array([False, False])]).tolist()
    [7, 5]
    """
    return sum((1 + 2 * mask.astype(np.int32)) << (2 * number) for number, mask in enumerate(masks))  # type: ignore[return-value]
