"""What is wrong with a data set, found before anything is trained on it: numbers, thresholds and a sentence for each."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import regex
from jaxtyping import Bool, Int, UInt64

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import percent, visible
from attnprobe.data.batching import TextSplit
from attnprobe.data.examples import Ragged
from attnprobe.data.local_files import SPLITS
from attnprobe.data.rows import OVER_MOST

Splits = Mapping[str, TextSplit]
Counts = Mapping[str, Mapping[str, Any]]

UNKNOWN_WORDS = "unknown words"
"""Does not hold of every model."""
EMPTY = ("text is null", "text is empty", "label is null", "question is null", "question is empty", "text2 is null",
         "text2 is empty")  # fmt: skip
"""Why a row has nothing to read, as the counts name it."""
MOST_NAMES = 8
"""Classes that a sentence names."""
RARE_IN_TRAINING, RARE_IN_TEST = 20, 5
"""A class with fewer rows is rare."""
LEAKED = 0.01
SPACELESS = 0.3
SCRIPTS = {
    "ja": (regex.compile(r"[\p{Hiragana}\p{Katakana}]"), "Japanese"),
    "zh": (regex.compile(r"\p{Han}"), "Chinese"),
    "th": (regex.compile(r"\p{Thai}"), "Thai"),
}
"""Scripts that leave no space between words; Japanese before Chinese, whose characters it has as well."""
CALLED = {"train": "training", "test": "test"}
"""The split that is looked at, in a sentence."""
ALWAYS = ("rows", "classes", "length")
"""Checks that are printed even where nothing is wrong."""


@dataclass(frozen=True)
class Check:
    """One measured property of a data set.

    Attributes:
        name: such as `texts in training and test`.
        value: what was measured, in the unit of `threshold`.
        threshold: from which value on, or below which, `warns`; None: nothing is wrong at any.
        warns: whether somebody should look at it.
        sentence: what was found, and where it warns what follows and what to do.
    """

    name: str
    value: float
    threshold: float | None
    warns: bool
    sentence: str

    def as_data(self) -> dict[str, Any]:
        """For the manifest."""
        return asdict(self)


HTML = regex.compile(r"<\s?/?\s?(?:p|br|div|span|li|ul|em|strong|h[1-6]|td|tr|script|img)\b[^<]*>", regex.I)
"""A tag, also where a tokenizer has put spaces into it; one letter alone may be a formula's."""
MOST_SEARCHED = 2000
"""Texts that are searched for tags, evenly over the split."""


class _Checks(list[Check]):
    def add(
        self,
        name: str,
        value: float,
        sentence: str,
        follows: str = "",
        *,
        from_on: float | None = None,
        below: float | None = None,
    ) -> None:
        warns = bool((from_on is not None and value >= from_on) or (below is not None and value < below))
        threshold = below if from_on is None else from_on
        self.append(Check(name, value, threshold, warns, f"{sentence}: {follows}" if warns else sentence))


def check_data(splits: Splits, counts: Counts, language: str | None, *, trains: bool = True) -> list[Check]:
    """All checks of a data set.

    Args:
        splits: encoded, every split of `SPLITS`.
        trains: a model will be trained on it; else the test split is what is looked at, and the others may be missing.
        counts: rows loaded, dropped and kept, as in the manifest.
        language: by whose rules texts were split into words; None: at spaces.
    """
    checks = _Checks()
    read = "train" if trains else "test"
    _check_rows(checks, splits, counts, read)
    _check_copies(checks, splits, read)
    _check_words(checks, splits, counts, language, read)
    return checks


def _check_rows(checks: _Checks, splits: Splits, counts: Counts, read: str) -> None:
    train, validation, test = (len(splits.get(split, ())) for split in SPLITS)
    trains, of, size = read == "train", CALLED[read], len(splits[read])

    def dropped(split: str, reason: str) -> int:
        return counts[split].get("dropped", {}).get(reason, 0)

    def more_rows(*names: str, otherwise: str) -> str:
        """Where to get more rows from: what `data.most` left out comes first."""
        out = {"training" if one == "train" else one: n for one in names if (n := dropped(one, OVER_MOST))}
        named = " and ".join(f"{number:,} {split} rows" for split, number in out.items())
        return f"data.most left out {named}: raise it" if out else otherwise

    if trains:
        total = train + validation + test
        checks.add("rows", total, f"{total:,} rows: {train:,} to train, {validation:,} to validate, {test:,} to test")
        more = more_rows("train", otherwise="give more rows, or a smaller data.test_share")
        follows = f"a model trained on so few is hardly worth explaining; {more}"
        checks.add("training rows", train, f"{train:,} training rows", follows, below=200)
    else:
        checks.add("rows", test, f"{test:,} rows to test, none to train")
    more = more_rows("test", otherwise=f"give more rows{', or a larger data.test_share' * trains}")
    follows = f"an accuracy near 50 % is known only to ± {98 / np.sqrt(max(1, test)):.0f} points; {more}"
    checks.add("test rows", test, f"{test:,} test rows", follows, below=100)

    def and_more(number: int) -> str:
        return f" and {number - MOST_NAMES:,} more" if number > MOST_NAMES else ""

    per_class: dict[str, int] = counts[read]["per class"]
    tested: dict[str, int] = counts["test"]["per class"]
    common = sorted(per_class, key=lambda name: -per_class[name])
    named = ", ".join(f"{name} {percent(per_class[name] / size)}" for name in common[:MOST_NAMES])
    checks.add("classes", len(common), f"{len(common):,} classes: {named}{and_more(len(common))}")
    if splits[read].labels.ndim == 1:
        share = per_class[common[0]] / size
        sentence = f"{percent(share)} of the {of} rows are {common[0]!r}"
        follows = "always guessing it is right about as often, so that an accuracy says little here"
        checks.add("largest class", share, sentence, follows, from_on=0.9)
    few = RARE_IN_TRAINING if trains else RARE_IN_TEST
    if len(common) <= size / few or "question" not in splits[read].columns:  # many answers to questions are rare
        rare = [one for one in common if per_class[one] < few or tested.get(one, 0) < RARE_IN_TEST]
        learnt = {one: f"{per_class[one]} training, " if trains else "" for one in rare}
        named = ", ".join(f"{one!r} ({learnt[one]}{tested.get(one, 0)} test rows)" for one in rare[:MOST_NAMES])
        drop = "leave such a class out (data.labels=[…] data.unseen_labels=drop), or put it together with another"
        more = more_rows("train", "test", otherwise=drop) if trains else more_rows("test", otherwise="give more rows")
        follows = f"too few rows to be {'learnt or ' * trains}judged; {more}"
        checks.add(
            "rare classes", len(rare), f"rare classes: {named or 'none'}{and_more(len(rare))}", follows, from_on=1
        )

    loaded = sum(counts[split].get("loaded", 0) for split in splits)
    empty = {reason: sum(dropped(split, reason) for split in splits) for reason in EMPTY}
    why = ", ".join(f"{reason}: {number:,}" for reason, number in empty.items() if number)
    total = sum(empty.values())
    sentence = f"{total:,} of {loaded:,} rows have no text or no label" + (f" ({why})" if why else "")
    checks.add("empty cells", total / max(1, loaded), sentence, "they are left out", from_on=0.05)


def _check_copies(checks: _Checks, splits: Splits, read: str) -> None:
    """Texts that come twice, and those that the test shares with the training split; a text with another question is no
    copy."""
    train, test, of = splits[read], splits["test"], CALLED[read]
    asked, test_asked = (
        one if isinstance(one := part.columns.get("question"), Ragged) else None for part in (train, test)
    )
    first = first_copies(train.words, asked)
    again = np.flatnonzero(first != np.arange(len(first)))
    share = len(again) / len(first)
    sentence = f"{len(again):,} {of} texts ({percent(share)}) repeat another one"
    where = "whatever is learnt" if read == "train" else "every number"
    checks.add("repeated texts", share, sentence, f"they count several times in {where}", from_on=0.1)
    differ = train.labels[again] != train.labels[first[again]]
    different = int((differ.any(1) if differ.ndim == 2 else differ).sum())
    share = different / len(first)
    sentence = f"{different:,} {of} texts ({percent(share)}) have another label elsewhere"
    checks.add("contradicting labels", share, sentence, "no model can get both right", from_on=0.01)
    if read == "test":
        return

    known = set(_keys(train.words, asked))
    copied = np.fromiter((key in known for key in _keys(test.words, test_asked)), bool)
    share = float(copied.mean())
    sentence = f"{int(copied.sum()):,} of {len(copied):,} test texts ({percent(share)}) are training texts as well"
    follows = (
        "the test cannot tell what was learnt from what was remembered; take repeated rows out, or keep them together "
        "with data.group=COLUMN"
    )
    checks.add("texts in training and test", share, sentence, follows, from_on=LEAKED)
    if asked is None:  # a text with several questions is its own near copy
        nearly = near_copies(train.words, test.words.select(np.flatnonzero(~copied)))
        share = float(nearly.sum()) / len(copied)
        sentence = (
            f"{int(nearly.sum()):,} more test texts ({percent(share)}) share {SIMILAR:.0%} of their wording with a "
            f"training text"
        )
        checks.add("near copies in training and test", share, sentence, "they may be half remembered", from_on=0.05)


def _check_words(checks: _Checks, splits: Splits, counts: Counts, language: str | None, read: str) -> None:
    train = splits[read]
    length = train.words.lengths
    middle = float(np.median(length))
    sentence = (
        f"the median text has {middle:.0f} word{'' if middle == 1 else 's'} "
        f"(shortest {length.min():,}, longest {length.max():,})"
    )
    follows = "too short for attention to choose between words, or not split into words; see data.language"
    checks.add("length", middle, sentence, follows, below=3)

    if language not in SCRIPTS:
        frequency = np.bincount(train.words.flat, minlength=len(train.spelling))
        for code, (script, name) in SCRIPTS.items():
            written = sum(int(n) for n, word in zip(frequency, train.spelling, strict=True) if script.search(word))
            share = written / len(train.words.flat)
            if share >= SPACELESS:
                follows = f"it is written without spaces between words: set data.language={code}"
                checks.add("script", share, f"{percent(share)} of the words hold {name}", follows, from_on=SPACELESS)
                break

    share = sum(counts[one]["truncated"] for one in splits) / sum(map(len, splits.values()))
    cut = sum(counts[one]["truncated"] for one in splits)
    sentence = f"{cut:,} text{'' if cut == 1 else 's'} ({percent(share)}) cut at data.max_tokens"
    checks.add("cut texts", share, sentence, "what decides a label may lie in the rest", from_on=0.05)

    sample = [train.words[row] for row in range(0, len(train.words), max(1, len(train.words) // MOST_SEARCHED))]
    share = float(
        np.mean([HTML.search(" ".join(train.spelling[word] for word in text)) is not None for text in sample])
    )
    sentence = f"{percent(share)} of the texts hold HTML tags"
    checks.add("HTML", share, sentence, "they are read as words; data.clean=[html] removes them", from_on=0.05)

    if read == "train":
        share = counts["test"]["tokens out of vocabulary"] / max(1, counts["test"]["tokens"])
        sentence = f"{percent(share)} of the test's words are not in the training texts"
        follows = "the model cannot tell these from each other, whatever it attends to"
        checks.add(UNKNOWN_WORDS, share, sentence, follows, from_on=0.1)

    letters = np.array([regex.search(r"\p{L}", word) is not None for word in train.spelling], bool)[train.words.flat]
    share = 1 - float(letters.mean())
    bare = int((np.add.reduceat(letters.astype(np.int64), train.words.offsets[:-1]) == 0).sum())
    of = CALLED[read]
    sentence = f"{percent(share)} of the words have no letter, and {bare:,} {of} texts have none at all"
    checks.add("non-text", share, sentence, "is data.text the right column?", from_on=0.3)


def check_pieces(counts: Counts, longest: int) -> list[Check]:
    """What a model that reads pieces of words, at most `longest` of a text, loses of the texts of all splits.

    Raises:
        UserError: every word is unknown to it.
    """
    names = ("kept", "cut at the model's longest text", "words after the cut", "words", "words of unknown pieces")
    kept, cut, after, words, unknown = (sum(count[name] for count in counts.values()) for name in names)
    if words and unknown == words:
        raise UserError(
            f"the tokenizer knows none of the {words:,} words of these texts: take the model's own, and texts of its language"
        )
    checks, share = _Checks(), unknown / max(1, words)
    sentence = f"{cut:,} of {kept:,} texts are cut at {longest} pieces, {after:,} words in all"
    follows = "what decides a label may lie in the rest; model.max_pieces=… takes more where the model does"
    checks.add("texts cut at the model's longest", cut, sentence, follows, from_on=1)
    sentence = f"{percent(share)} of the words are unknown to the tokenizer"
    follows = "the model cannot tell these from each other, whatever it attends to; is it for texts of this language?"
    checks.add("words of unknown pieces", share, sentence, follows, from_on=0.05)
    return checks


def section_lines(name: str, section: Mapping[str, Any]) -> list[str]:
    """One line for each guess, each fact and each warning.

    Args:
        name: of the data set.
        section: as in the manifest; an empty one, of an older run, gives no line.

    >>> check = {"name": "test rows", "value": 12, "threshold": 100, "warns": True, "sentence": "12 test rows: few"}
    >>> section_lines("hotels", {"notes": ["hotels.csv: read as cp1252"], "checks": [check]})
    ['data hotels: hotels.csv: read as cp1252', 'warning: data hotels: 12 test rows: few']
    """
    lines = [f"data {name}: {note}" for note in section.get("notes", [])]
    checks = section.get("checks", [])
    lines += [f"data {name}: {one['sentence']}" for one in checks if one["name"] in ALWAYS and not one["warns"]]
    lines += [f"warning: data {name}: {one['sentence']}" for one in checks if one["warns"]]
    return [visible(line) for line in lines]


_told: set[str] = set()


def tell_section(name: str, section: Mapping[str, Any]) -> None:
    """Print the section, each line once in a process: the runs of a study mostly share their data."""
    for line in section_lines(name, section):
        if line not in _told:
            _told.add(line)
            print(line, flush=True)


# Copies and near copies, in time linear in the number of words: MinHash with banding (Broder 1997; Leskovec, Rajaraman &
# Ullman, *Mining of Massive Datasets*, section 3.4), every candidate checked exactly. In numpy, because the libraries for it
# hash one text at a time.

WORDS = 3
"""Words in a row that are compared."""
SIMILAR = 0.8
"""Jaccard's index of two texts' runs of words from which on they are near copies."""
HASHES, BANDS = 64, 16
"""At an index of 0.8 all of 16 bands of 4 hashes differ in 2 of 10,000 pairs: that share of near copies is overlooked."""
AGREEING = 0.6
"""Share of equal hashes below which a pair is not looked at; at an index of 0.8 four standard deviations below the mean."""
CANDIDATES = 3
"""Texts with an equal band that a text is compared with, for each band."""
AT_ONCE = 4096
"""Texts whose signatures are held at a time."""


def first_copies(texts: Ragged, others: Ragged | None = None) -> Int[np.ndarray, " rows"]:
    """For each text the first row that is word for word the same: its own where it is the first.

    Args:
        texts: word numbers.
        others: what is asked of each text, in the same order; then both must be the same.
    """
    seen: dict[bytes, int] = {}
    return np.array([seen.setdefault(key, row) for row, key in enumerate(_keys(texts, others))], np.int64)


def _keys(texts: Ragged, others: Ragged | None) -> Iterator[bytes]:
    for row in range(len(texts)):
        words = texts[row].tobytes()
        yield words if others is None else len(texts[row]).to_bytes(4, "little") + words + others[row].tobytes()


def near_copies(among: Ragged, texts: Ragged) -> Bool[np.ndarray, " texts"]:
    """Which of `texts` have a near copy `among` others: at least `SIMILAR` of the runs of three words are shared. Texts of
    fewer words have none but copies, and are False."""
    is_copy = np.zeros(len(texts), bool)
    if not len(among) or not len(texts):
        return is_copy
    theirs = _runs(among)
    their_hashes = _signatures(theirs)
    width = HASHES // BANDS
    bands = [slice(start, start + width) for start in range(0, HASHES, width)]
    sorted_bands = []
    for band in bands:
        keys = _combined(their_hashes[:, band])
        order = np.argsort(keys, kind="stable")
        sorted_bands.append((keys[order], order))
    for start in range(0, len(texts), AT_ONCE):
        runs = _runs(Ragged(texts.flat, texts.offsets[start : start + AT_ONCE + 1]))
        hashes, found = _signatures(runs), is_copy[start : start + AT_ONCE]  # a view
        for band, (keys, order) in zip(bands, sorted_bands, strict=True):
            own = _combined(hashes[:, band])
            first, end = (np.searchsorted(keys, own, side) for side in ("left", "right"))
            for step in range(CANDIDATES):
                rows = np.flatnonzero((first + step < end) & ~found & (runs.lengths > 0))
                partners = order[first[rows] + step]
                alike = (hashes[rows] == their_hashes[partners]).mean(1) >= AGREEING
                for row, partner in zip(rows[alike].tolist(), partners[alike].tolist(), strict=True):
                    left, right = set(runs[row].tolist()), set(theirs[partner].tolist())
                    found[row] = len(left & right) / len(left | right) >= SIMILAR
    return is_copy


def _runs(texts: Ragged) -> Ragged:
    """A hash of every run of `WORDS` words within a text, in order; none for a shorter text."""
    begin = texts.offsets[0]  # of some of the texts it is not 0
    words = texts.flat[begin : texts.offsets[-1]].astype(np.uint64)
    kept = np.maximum(texts.lengths - (WORDS - 1), 0)
    offsets = np.concatenate([[0], np.cumsum(kept)])
    first = np.repeat(texts.offsets[:-1] - begin - offsets[:-1], kept) + np.arange(offsets[-1])
    with np.errstate(over="ignore"):
        numbers = sum(_hashed(words[first + place] + np.uint64(place << 40)) for place in range(WORDS))
    return Ragged(np.asarray(numbers, np.uint64).reshape(-1), offsets)


def _signatures(runs: Ragged) -> UInt64[np.ndarray, "rows hashes"]:
    """The least value of each of `HASHES` hash functions over a text's runs; all ones for a text without any."""
    smallest = np.full((len(runs), HASHES), np.uint64(2**64 - 1), np.uint64)
    filled = np.flatnonzero(runs.lengths)
    if len(filled):
        for one in range(HASHES):
            values = _hashed(runs.flat ^ _hashed(np.array([one + 1], np.uint64)))
            smallest[filled, one] = np.minimum.reduceat(values, runs.offsets[filled])
    return smallest


def _hashed(numbers: UInt64[np.ndarray, "..."]) -> UInt64[np.ndarray, "..."]:
    """A fixed mixing of 64 bits, one to one (SplitMix64's last steps)."""
    with np.errstate(over="ignore"):
        mixed = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def _combined(columns: UInt64[np.ndarray, "rows hashes"]) -> UInt64[np.ndarray, " rows"]:
    total = np.zeros(len(columns), np.uint64)
    for place in range(columns.shape[1]):
        total = _hashed(total ^ columns[:, place])
    return total
