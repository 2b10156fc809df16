"""What is wrong with a data set, found before anything is trained on it: numbers, thresholds and a
sentence for each."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import regex
from jaxtyping import Bool
from scipy.sparse import csr_array

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import percent, visible
from attnprobe.data.batching import TextSplit
from attnprobe.data.examples import Ragged
from attnprobe.data.local_files import SPLITS
from attnprobe.data.rows import OVER_MOST

Splits = Mapping[str, TextSplit]
Counts = Mapping[str, Mapping[str, Any]]

UNKNOWN_WORDS = "unknown words"
MOST_NAMES = 8
RARE_IN_TRAINING = 20
RARE_IN_TEST = 5
LEAKED = 0.01
SPACELESS = 0.3
SCRIPTS = {
    "ja": (regex.compile(r"[\p{Hiragana}\p{Katakana}]"), "Japanese"),
    "zh": (regex.compile(r"\p{Han}"), "Chinese"),
    "th": (regex.compile(r"\p{Thai}"), "Thai"),
}
"""Scripts that leave no space between words; Japanese before Chinese, whose characters it has as
well."""
CALLED = {"train": "training", "test": "test"}
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


HTML = regex.compile(
    r"<\s?/?\s?(?:p|br|div|span|li|ul|em|strong|h[1-6]|td|tr|script|img)\b[^<]*>", regex.I
)
"""A tag, also where a tokenizer has put spaces into it; one letter alone may be a formula's."""
MOST_SEARCHED = 2000
"""Texts that are searched for tags, evenly over the split."""


class _Checks(list[Check]):
    def add(
        self, name: str, value: float, sentence: str, follows: str = "", **limit: float
    ) -> None:
        """`limit`: `from_on` or `below` warns, and `follows` says of what."""
        (threshold,) = limit.values() or (None,)
        warns = threshold is not None and bool(
            value < threshold if "below" in limit else value >= threshold
        )
        self.append(
            Check(name, value, threshold, warns, f"{sentence}: {follows}" if warns else sentence)
        )


def check_data(
    splits: Splits, counts: Counts, language: str | None, *, trains: bool = True
) -> list[Check]:
    """All checks of a data set.

    Args:
        splits: encoded; without `trains`, where the test split is what is looked at, the others may
            be missing.
        counts: rows loaded, dropped and kept, as in the manifest.
        language: by whose rules texts were split into words; None: at spaces.
        trains: a model will be trained on it.
    """
    checks = _Checks()
    read = "train" if trains else "test"
    _check_rows(checks, splits, counts, read)
    _check_copies(checks, splits, read)
    _check_words(checks, splits, counts, language, read)
    return checks


def _check_rows(checks: _Checks, splits: Splits, counts: Counts, read: str) -> None:
    train, validation, test = (len(splits.get(split, ())) for split in SPLITS)
    trains = read == "train"
    of = CALLED[read]
    size = len(splits[read])

    dropped = {split: counts[split].get("dropped", {}) for split in splits}
    left_out = {split: dropped[split].get(OVER_MOST, 0) for split in {read, "test"}}
    raised = {
        split: f"data.most left out {number:,} {CALLED[split]} rows: raise it"
        for split, number in left_out.items()
        if number
    }
    drop = "leave such a class out (data.labels=[…] data.unseen_labels=drop), or put it together with another"
    if trains:
        total = train + validation + test
        checks.add(
            "rows",
            total,
            f"{total:,} rows: {train:,} to train, {validation:,} to validate, {test:,} to test",
        )
        more = raised.get("train", "give more rows, or a smaller data.test_share")
        follows = f"a model trained on so few is hardly worth explaining; {more}"
        checks.add("training rows", train, f"{train:,} training rows", follows, below=200)
    else:
        checks.add("rows", test, f"{test:,} rows to test, none to train")
    more = raised.get("test", f"give more rows{', or a larger data.test_share' * trains}")
    follows = (
        f"an accuracy near 50 % is known only to ± {98 / np.sqrt(max(1, test)):.0f} points; {more}"
    )
    checks.add("test rows", test, f"{test:,} test rows", follows, below=100)

    per_class: dict[str, int] = counts[read]["per class"]
    tested: dict[str, int] = counts["test"]["per class"]
    common = sorted(per_class, key=lambda name: -per_class[name])
    named = ", ".join(f"{name} {percent(per_class[name] / size)}" for name in common[:MOST_NAMES])
    others = f" and {len(common) - MOST_NAMES:,} more" if len(common) > MOST_NAMES else ""
    checks.add("classes", len(common), f"{len(common):,} classes: {named}{others}")
    if splits[read].labels.ndim == 1:
        share = per_class[common[0]] / size
        sentence = f"{percent(share)} of the {of} rows are {common[0]!r}"
        follows = "always guessing it is right about as often, so that an accuracy says little here"
        checks.add("largest class", share, sentence, follows, from_on=0.9)
    few = RARE_IN_TRAINING if trains else RARE_IN_TEST
    if (
        len(common) <= size / few or "question" not in splits[read].columns
    ):  # many answers to questions are rare
        rare = [one for one in common if per_class[one] < few or tested.get(one, 0) < RARE_IN_TEST]
        learnt = {one: f"{per_class[one]} training, " if trains else "" for one in rare}
        named = ", ".join(
            f"{one!r} ({learnt[one]}{tested.get(one, 0)} test rows)" for one in rare[:MOST_NAMES]
        )
        others = f" and {len(rare) - MOST_NAMES:,} more" if len(rare) > MOST_NAMES else ""
        more = raised.get(read) or raised.get("test") or (drop if trains else "give more rows")
        follows = f"too few rows to be {'learnt or ' * trains}judged; {more}"
        checks.add(
            "rare classes",
            len(rare),
            f"rare classes: {named or 'none'}{others}",
            follows,
            from_on=1,
        )

    loaded = sum(counts[split].get("loaded", 0) for split in splits)
    empty = Counter[str]()
    for reasons in dropped.values():
        empty += Counter(
            {one: n for one, n in reasons.items() if one.endswith((" is null", " is empty"))}
        )
    why = ", ".join(f"{reason}: {number:,}" for reason, number in empty.items())
    total = sum(empty.values())
    sentence = f"{total:,} of {loaded:,} rows have no text or no label" + (
        f" ({why})" if why else ""
    )
    checks.add("empty cells", total / max(1, loaded), sentence, "they are left out", from_on=0.05)


def _check_copies(checks: _Checks, splits: Splits, read: str) -> None:
    """A text with another question is no copy."""
    train = splits[read]
    test = splits["test"]
    of = CALLED[read]
    keys: dict[str, list[tuple[bytes, bytes]]] = {}
    for split in {read, "test"}:
        part = splits[split]
        asked = part.columns.get("question")
        questions = asked if isinstance(asked, Ragged) else [np.zeros(0)] * len(part)
        keys[split] = [
            (part.words[row].tobytes(), questions[row].tobytes()) for row in range(len(part))
        ]
    copies = dict[tuple[bytes, bytes], int]()
    first = np.array([copies.setdefault(key, row) for row, key in enumerate(keys[read])])
    again = np.flatnonzero(first != np.arange(len(first)))
    share = len(again) / len(first)
    sentence = f"{len(again):,} {of} texts ({percent(share)}) repeat another one"
    where = "whatever is learnt" if read == "train" else "every number"
    checks.add(
        "repeated texts", share, sentence, f"they count several times in {where}", from_on=0.1
    )
    differ = train.labels[again] != train.labels[first[again]]
    different = int((differ.any(1) if differ.ndim == 2 else differ).sum())
    share = different / len(first)
    sentence = f"{different:,} {of} texts ({percent(share)}) have another label elsewhere"
    checks.add("contradicting labels", share, sentence, "no model can get both right", from_on=0.01)
    if read == "test":
        return

    copied = np.array([key in copies for key in keys["test"]], bool)
    share = float(copied.mean())
    sentence = f"{int(copied.sum()):,} of {len(copied):,} test texts ({percent(share)}) are training texts as well"
    follows = (
        "the test cannot tell what was learnt from what was remembered; take repeated rows out, or keep them together "
        "with data.group=COLUMN"
    )
    checks.add("texts in training and test", share, sentence, follows, from_on=LEAKED)
    if "question" not in train.columns:  # a text with several questions is its own near copy
        nearly = near_copies(train.words, test.words.select(np.flatnonzero(~copied)))
        share = float(nearly.sum()) / len(copied)
        sentence = (
            f"{int(nearly.sum()):,} more test texts ({percent(share)}) share {SIMILAR:.0%} of their wording with a "
            f"training text"
        )
        checks.add(
            "near copies in training and test",
            share,
            sentence,
            "they may be half remembered",
            from_on=0.05,
        )


def _check_words(
    checks: _Checks, splits: Splits, counts: Counts, language: str | None, read: str
) -> None:
    train = splits[read]
    length = train.words.lengths
    middle = float(np.median(length))
    cut = sum(counts[one]["truncated"] for one in splits)
    texts_cut = f"{cut:,} text{'' if cut == 1 else 's'}"
    sentence = (
        f"the median text has {middle:.0f} word{'' if middle == 1 else 's'} "
        f"(shortest {length.min():,}, longest {length.max():,}{f'; {texts_cut} cut at data.max_tokens' if cut else ''})"
    )
    follows = "too short for attention to choose between words, or not split into words; see data.language"
    checks.add("length", middle, sentence, follows, below=3)

    if language not in SCRIPTS:
        for code, (script, name) in SCRIPTS.items():
            written = np.array([script.search(word) is not None for word in train.spelling], bool)
            share = float(written[train.words.flat].mean())
            if share >= SPACELESS:
                follows = f"it is written without spaces between words: set data.language={code}"
                checks.add(
                    "script",
                    share,
                    f"{percent(share)} of the words hold {name}",
                    follows,
                    from_on=SPACELESS,
                )
                break

    share = cut / sum(map(len, splits.values()))
    sentence = f"{texts_cut} ({percent(share)}) cut at data.max_tokens"
    checks.add(
        "cut texts", share, sentence, "what decides a label may lie in the rest", from_on=0.05
    )

    sample = train.example_id[:: max(1, len(train) // MOST_SEARCHED)].tolist()
    share = float(
        np.mean([HTML.search(" ".join(train.tokens(number))) is not None for number in sample])
    )
    sentence = f"{percent(share)} of the texts hold HTML tags"
    checks.add(
        "HTML",
        share,
        sentence,
        "they are read as words; data.clean=[html] removes them",
        from_on=0.05,
    )

    if read == "train":
        share = counts["test"]["tokens out of vocabulary"] / max(1, counts["test"]["tokens"])
        sentence = f"{percent(share)} of the test's words are not in the training texts"
        follows = "the model cannot tell these from each other, whatever it attends to"
        checks.add(UNKNOWN_WORDS, share, sentence, follows, from_on=0.1)

    letters = np.array([regex.search(r"\p{L}", word) is not None for word in train.spelling], bool)[
        train.words.flat
    ]
    share = 1 - float(letters.mean())
    bare = int((np.add.reduceat(letters.astype(np.int64), train.words.offsets[:-1]) == 0).sum())
    of = CALLED[read]
    sentence = (
        f"{percent(share)} of the words have no letter, and {bare:,} {of} texts have none at all"
    )
    checks.add("non-text", share, sentence, "is data.text the right column?", from_on=0.3)


def check_pieces(counts: Counts, longest: int) -> list[Check]:
    """What a model that reads pieces of words, at most `longest` of a text, loses of the texts of
    all splits."""
    names = (
        "kept",
        "cut at the model's longest text",
        "words after the cut",
        "words",
        "words of unknown pieces",
    )
    kept, cut, after, words, unknown = (
        sum(count[name] for count in counts.values()) for name in names
    )
    if words and unknown == words:
        raise UserError(
            f"the tokenizer knows none of the {words:,} words of these texts: take the model's own, and texts of its language"
        )
    checks = _Checks()
    share = unknown / max(1, words)
    sentence = f"{cut:,} of {kept:,} texts are cut at {longest} pieces, {after:,} words in all"
    follows = "what decides a label may lie in the rest; model.max_pieces=… takes more where the model does"
    checks.add("texts cut at the model's longest", cut, sentence, follows, from_on=1)
    sentence = f"{percent(share)} of the words are unknown to the tokenizer"
    follows = "the model cannot tell these from each other, whatever it attends to; is it for texts of this language?"
    checks.add("words of unknown pieces", share, sentence, follows, from_on=0.05)
    return checks


def section_lines(name: str, section: Mapping[str, Any]) -> list[str]:
    """One line for each guess, each fact and each warning of a data set's section of the manifest.

    >>> check = {"name": "test rows", "value": 12, "threshold": 100, "warns": True, "sentence": "12 test rows: few"}
    >>> section_lines("hotels", {"notes": ["hotels.csv: read as cp1252"], "checks": [check]})
    ['data hotels: hotels.csv: read as cp1252', 'warning: data hotels: 12 test rows: few']
    """
    lines = [f"data {name}: {note}" for note in section.get("notes", [])]
    checks = section.get("checks", [])
    lines += [
        f"data {name}: {one['sentence']}"
        for one in checks
        if one["name"] in ALWAYS and not one["warns"]
    ]
    lines += [f"warning: data {name}: {one['sentence']}" for one in checks if one["warns"]]
    return [visible(line) for line in lines]


_told: set[str] = set()


def tell_section(name: str, section: Mapping[str, Any]) -> None:
    """Print the section, each line once in a process: the runs of a study mostly share their
    data."""
    for line in section_lines(name, section):
        if line not in _told:
            _told.add(line)
            print(line, flush=True)


WORDS = 3
SIMILAR = 0.8
"""Jaccard's index of two texts' runs of words from which on they are near copies."""
AT_ONCE = 1024
"""Texts, and then pairs of texts, that are compared at a time."""


def near_copies(among: Ragged, texts: Ragged) -> Bool[np.ndarray, " texts"]:
    """Which of `texts` have a near copy `among` others: at least `SIMILAR` of the distinct runs of
    three words in either are in both. Texts of fewer words have none, and are False.

    Exact, and fast because near copies share one of the rarest fifth of their runs: other pairs are
    not compared (prefix filter; Chaudhuri, Ganti & Kaushik 2006)."""
    is_copy = np.zeros(len(texts), bool)
    base = 1 + int(max(part.flat.max(initial=0) for part in (among, texts)))
    owner = []
    run = []
    for before, part in ((0, among), (len(among), texts)):
        text = np.repeat(np.arange(len(part)), part.lengths)
        first = np.flatnonzero(text[: -WORDS + 1] == text[WORDS - 1 :])
        owner.append(before + text[first])
        run.append(
            sum(
                part.flat[first + place].astype(np.uint64) * np.uint64(base**place)
                for place in range(WORDS)
            )
        )
    runs, number = np.unique(np.concatenate(run), return_inverse=True)
    if not len(runs):
        return is_copy
    shape = (len(among) + len(texts), len(runs))
    every = csr_array((np.ones(len(number), np.int32), (np.concatenate(owner), number)), shape)
    every.data[:] = 1
    size = np.diff(every.indptr)
    frequency = np.bincount(every.indices)
    text = np.repeat(np.arange(shape[0]), size)
    rarest_first = np.lexsort((every.indices, frequency[every.indices], text))
    place = np.arange(len(text)) - every.indptr[text]
    kept = rarest_first[place <= size[text] - np.ceil(SIMILAR * size[text] - 1e-9)]
    rare = csr_array((np.ones(len(kept), np.int32), (text[kept], every.indices[kept])), shape)
    for start in range(0, len(texts), AT_ONCE):
        own = len(among) + start
        ours, theirs = (rare[own : own + AT_ONCE] @ rare[: len(among)].T).nonzero()
        for some in np.array_split(np.arange(len(ours)), 1 + len(ours) // AT_ONCE):
            one = own + ours[some]
            other = theirs[some]
            shared = (every[one] * every[other]).sum(1)
            near = shared / (size[one] + size[other] - shared) >= SIMILAR
            is_copy[one[near] - len(among)] = True
    return is_copy
