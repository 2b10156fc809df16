"""Texts that are nearly copies of others."""

import numpy as np
from jaxtyping import Bool, Int
from scipy.sparse import csr_array

from attnprobe.data.examples import Ragged

WORDS = 3
"""Words of a run: texts are compared by their runs of three words."""
SIMILAR = 0.8
"""Jaccard's index of two texts' runs of words from which on they are near copies."""
AT_ONCE = 1024
"""Texts, and then pairs of texts, that are compared at a time."""


def near_copies(among: Ragged, texts: Ragged) -> Bool[np.ndarray, " texts"]:
    """Which texts have a near copy among others.

    Two texts are near copies if at least `SIMILAR` of the distinct runs of three words in either
    are in both. The answer is exact, and fast because near copies share one of the rarest fifth of
    their runs: other pairs are not compared (prefix filter; Chaudhuri, Ganti & Kaushik 2006).

    Args:
        among: numbers of the words of the other texts.
        texts: numbers of the words of the texts.

    Returns:
        True for a text that has a near copy. Texts of fewer than three words have none.
    """
    is_copy = np.zeros(len(texts), bool)
    runs = _runs_of_texts(among, texts)
    if not runs.nnz:
        return is_copy
    size = np.diff(runs.indptr)
    rare = _rarest_runs(runs)

    first = len(among)
    for start in range(first, first + len(texts), AT_ONCE):
        rows, partners = (rare[start : start + AT_ONCE] @ rare[:first].T).nonzero()
        for pairs in np.array_split(np.arange(len(rows)), 1 + len(rows) // AT_ONCE):
            text = start + rows[pairs]
            partner = partners[pairs]
            shared = (runs[text] * runs[partner]).sum(1)
            jaccard = shared / (size[text] + size[partner] - shared)
            is_copy[text[jaccard >= SIMILAR] - first] = True
    return is_copy


def _runs_of_texts(among: Ragged, texts: Ragged) -> csr_array:
    """A matrix `[among + texts, distinct runs]` with 1 where a text has a run."""
    base = 1 + int(max(part.flat.max(initial=0) for part in (among, texts)))
    owners = []
    runs = []
    for before, part in ((0, among), (len(among), texts)):
        text = np.repeat(np.arange(len(part)), part.lengths)
        first = np.flatnonzero(text[: -WORDS + 1] == text[WORDS - 1 :])
        owners.append(before + text[first])
        # a run's words are the digits of its number
        runs.append(_number_of_digits([part.flat[first + place] for place in range(WORDS)], base))
    distinct, number = np.unique(np.concatenate(runs), return_inverse=True)
    shape = (len(among) + len(texts), len(distinct))
    ones = np.ones(len(number), np.int32)
    matrix = csr_array((ones, (np.concatenate(owners), number)), shape)
    matrix.data[:] = 1  # also where a text has a run several times
    return matrix


def _number_of_digits(
    digits: list[Int[np.ndarray, " runs"]], base: int
) -> Int[np.ndarray, " runs"]:
    """The numbers with these digits, the lowest one first, modulo 2**64."""
    total = np.zeros(len(digits[0]), np.uint64)
    for place, digit in enumerate(digits):
        total += digit.astype(np.uint64) * np.uint64(base**place)
    return total


def _rarest_runs(runs: csr_array) -> csr_array:
    """Of every text the runs that decide which pairs are compared.

    Let the runs be ordered from the rarest to the most frequent one, in the same way for all texts.
    A near copy of a text with n runs shares ⌈0.8 n⌉ of them at least. The n − ⌈0.8 n⌉ + 1 rarest
    leave ⌈0.8 n⌉ − 1, so one of the rarest is shared; and the rarest shared run is so in both
    texts.
    """
    size = np.diff(runs.indptr)
    text = np.repeat(np.arange(runs.shape[0]), size)
    frequency = np.bincount(runs.indices, minlength=runs.shape[1])
    rarest_first = np.lexsort((runs.indices, frequency[runs.indices], text))
    place = np.arange(len(text)) - runs.indptr[text]
    shared_at_least = np.ceil(SIMILAR * size[text] - 1e-9)
    chosen = rarest_first[place <= size[text] - shared_at_least]
    ones = np.ones(len(chosen), np.int32)
    return csr_array((ones, (text[chosen], runs.indices[chosen])), runs.shape)
