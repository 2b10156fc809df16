"""Texts that come twice: copies, and texts that are nearly copies, in time linear in the number of words.

Near copies are found by MinHash with banding (Broder 1997; Leskovec, Rajaraman & Ullman, *Mining of Massive Datasets*,
section 3.4), and every candidate is checked exactly. It is written here in numpy because the libraries for it hash one text
at a time.
"""

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool, Int, UInt64

from attnprobe.data.ragged import Ragged

WORDS = 3
"""Words in a row that are compared."""
SIMILAR = 0.8
"""Shared runs of words, of all that either text has (Jaccard's index), from which on two texts are near copies."""
HASHES, BANDS = 64, 16
"""At an index of 0.8 all of 16 bands of 4 hashes differ in 2 of 10,000 pairs: that share of near copies is overlooked."""
AGREEING = 0.6
"""Share of equal hashes below which a pair is not looked at; at an index of 0.8 four standard deviations below the mean."""
CANDIDATES = 3
"""Texts with an equal band that a text is compared with, for each band."""
AT_ONCE = 4096
"""Texts whose signatures are held at a time."""
EMPTY_PLACE = np.uint64(2**64 - 1)


def first_copies(texts: Ragged, others: Ragged | None = None) -> Int[np.ndarray, " rows"]:
    """For each text the first row that is word for word the same: its own where it is the first.

    Args:
        texts: word numbers.
        others: what is asked of each text, in the same order; then both must be the same.
    """
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(key, row) for row, key in enumerate(keys_of(texts, others))], np.int64)


def keys_of(texts: Ragged, others: Ragged | None = None) -> Iterator[bytes]:
    """The words of each text (and of its question) as bytes, equal only for equal ones."""
    for row in range(len(texts)):
        words = texts[row].tobytes()
        yield words if others is None else len(texts[row]).to_bytes(4, "little") + words + others[row].tobytes()


def near_copies(among: Ragged, texts: Ragged) -> Bool[np.ndarray, " texts"]:
    """Which of `texts` have a near copy `among` others: at least `SIMILAR` of the runs of three words are shared. Texts of
    fewer words have none but copies, and are False."""
    is_copy = np.zeros(len(texts), bool)
    if not len(among) or not len(texts):
        return is_copy
    there = runs(among)
    theirs = signatures(there)
    sorted_bands = []
    for part in _bands():
        other = mixed(theirs[:, part])
        order = np.argsort(other, kind="stable")
        sorted_bands.append((other[order], order))
    for start in range(0, len(texts), AT_ONCE):
        some = Ragged(texts.flat, texts.offsets[start : start + AT_ONCE + 1])
        is_copy[start : start + AT_ONCE] = _near(there, theirs, sorted_bands, runs(some))
    return is_copy


def _bands() -> list[slice]:
    width = HASHES // BANDS
    return [slice(band * width, (band + 1) * width) for band in range(BANDS)]


def _near(
    there: Ragged,
    theirs: UInt64[np.ndarray, "among hashes"],
    sorted_bands: list[tuple[UInt64[np.ndarray, " among"], Int[np.ndarray, " among"]]],
    here: Ragged,
) -> Bool[np.ndarray, " some"]:
    """As `near_copies`, for the runs of some texts."""
    is_copy, mine = np.zeros(len(here), bool), signatures(here)
    for part, (other, order) in zip(_bands(), sorted_bands, strict=True):
        own = mixed(mine[:, part])
        first, end = (np.searchsorted(other, own, side) for side in ("left", "right"))
        for step in range(CANDIDATES):
            rows = np.flatnonzero((first + step < end) & ~is_copy & (here.lengths > 0))
            partners = order[first[rows] + step]
            alike = (mine[rows] == theirs[partners]).mean(1) >= AGREEING
            for row, partner in zip(rows[alike].tolist(), partners[alike].tolist(), strict=True):
                is_copy[row] = jaccard(here[row], there[partner]) >= SIMILAR
    return is_copy


def runs(texts: Ragged) -> Ragged:
    """A number for every run of `WORDS` words within a text, in order; none for a shorter text."""
    begin = texts.offsets[0]  # of some of the texts it is not 0
    words = texts.flat[begin : texts.offsets[-1]].astype(np.uint64)
    kept = np.maximum(texts.lengths - (WORDS - 1), 0)
    offsets = np.concatenate([[0], np.cumsum(kept)])
    first = np.repeat(texts.offsets[:-1] - begin - offsets[:-1], kept) + np.arange(offsets[-1])
    with np.errstate(over="ignore"):
        numbers = sum(spread(words[first + place] + np.uint64(place << 40)) for place in range(WORDS))
    return Ragged(np.asarray(numbers, np.uint64).reshape(-1), offsets)


def signatures(texts: Ragged) -> UInt64[np.ndarray, "rows hashes"]:
    """The least value of each of `HASHES` hash functions over a text's runs; all ones for a text without any."""
    smallest = np.full((len(texts), HASHES), EMPTY_PLACE, np.uint64)
    there = np.flatnonzero(texts.lengths)
    if len(there):
        for one in range(HASHES):
            values = spread(texts.flat ^ spread(np.array([one + 1], np.uint64)))
            smallest[there, one] = np.minimum.reduceat(values, texts.offsets[there])
    return smallest


def spread(numbers: UInt64[np.ndarray, "..."]) -> UInt64[np.ndarray, "..."]:
    """A fixed mixing of 64 bits, one to one (SplitMix64's last steps)."""
    with np.errstate(over="ignore"):
        mixed = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def mixed(columns: UInt64[np.ndarray, "rows hashes"]) -> UInt64[np.ndarray, " rows"]:
    """One number for each row."""
    total = np.zeros(len(columns), np.uint64)
    for place in range(columns.shape[1]):
        total = spread(total ^ columns[:, place])
    return total


def jaccard(a: np.ndarray, b: np.ndarray) -> float:
    """Shared numbers of all distinct ones, 0 to 1."""
    left, right = set(a.tolist()), set(b.tolist())
    return len(left & right) / len(left | right)
