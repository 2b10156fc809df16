"""What is wrong with a data set, found before anything is trained on it: numbers, thresholds and a sentence for each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import regex

from attnprobe.data.batching import TextSplit
from attnprobe.data.files import SPLITS
from attnprobe.data.filters import OVER_MOST
from attnprobe.data.looks import MOST_NAMES, Check, and_more, below, fact, from_on, percent
from attnprobe.data.ragged import Ragged
from attnprobe.data.repeats import SIMILAR, first_copies, keys_of, near_copies

LARGEST_CLASS = 0.9
RARE_IN_TRAINING, RARE_IN_TEST = 20, 5
SMALL_TRAINING, SMALL_TEST = 200, 100
LEFT_OUT = 0.05
REPEATED = 0.1
CONTRADICTED = 0.01
LEAKED = 0.01
NEARLY_LEAKED = 0.05
SHORT_TEXT = 3
TRUNCATED = 0.05
UNKNOWN_SHARE = 0.1
NO_LETTERS = 0.3
SPACELESS = 0.3

WITHOUT_RARE = "leave such a class out (data.labels=[…] data.unseen_labels=drop), or put it together with another"
"""What to do with a class of too few rows."""
TRAINING_ROWS, UNKNOWN_WORDS = "training rows", "unknown words"
"""Names of checks that do not hold of every model."""
EMPTY = ("text is null", "text is empty", "label is null", "question is null", "question is empty")
"""Why a row has nothing to read, in the words of the counts."""

HAS_LETTER = regex.compile(r"\p{L}")
SCRIPTS = {
    "ja": (regex.compile(r"[\p{Hiragana}\p{Katakana}]"), "Japanese"),
    "zh": (regex.compile(r"\p{Han}"), "Chinese"),
    "th": (regex.compile(r"\p{Thai}"), "Thai"),
}
"""Scripts that leave no space between words; Japanese before Chinese, whose characters it has as well."""


@dataclass(frozen=True)
class Subject:
    """What is looked at: encoded splits, the counts of what was left out, and the language that texts were split by."""

    splits: Mapping[str, TextSplit]
    counts: Mapping[str, Mapping[str, Any]]
    language: str | None

    @property
    def train(self) -> TextSplit:
        """The training rows."""
        return self.splits["train"]

    @property
    def test(self) -> TextSplit:
        """The test rows."""
        return self.splits["test"]

    def more_rows(self, *splits: str, otherwise: str) -> str:
        """How to come by more rows of these splits: from what `data.most` left out, where it did."""
        out = {split: number for split in splits if (number := self.dropped(split, OVER_MOST))}
        named = " and ".join(
            f"{number:,} {'training' if split == 'train' else split} rows" for split, number in out.items()
        )
        return f"data.most left out {named}: raise it" if out else otherwise

    def dropped(self, split: str, reason: str) -> int:
        """Rows of this split that were dropped for this reason."""
        dropped: Mapping[str, int] = self.counts[split].get("dropped", {})
        return dropped.get(reason, 0)


def check_data(
    splits: Mapping[str, TextSplit], counts: Mapping[str, Mapping[str, Any]], language: str | None
) -> list[Check]:
    """Everything that can be said of a data set before a model is trained on it.

    Args:
        splits: encoded, every split of `SPLITS`.
        counts: rows loaded, dropped and kept, as in the manifest.
        language: by whose rules texts were split into words; None: at spaces.
    """
    subject = Subject(splits, counts, language)
    return [check for look in LOOKS for check in look(subject)]


def rows(subject: Subject) -> list[Check]:
    """How many rows there are, and whether they suffice."""
    train, validation, test = (len(subject.splits[split]) for split in SPLITS)
    whole = train + validation + test
    checks = [fact("rows", whole, f"{whole:,} rows: {train:,} to train, {validation:,} to validate, {test:,} to test")]
    half = 98 / np.sqrt(max(1, test))
    checks += [
        below(
            TRAINING_ROWS, train, SMALL_TRAINING, f"{train:,} training rows",
            f"a model trained on so few is hardly worth explaining; "
            f"{subject.more_rows('train', otherwise='give more rows, or a smaller data.test_share')}",
        ),
        below(
            "test rows", test, SMALL_TEST, f"{test:,} test rows",
            f"an accuracy near 50 % is known only to ± {half:.0f} points; "
            f"{subject.more_rows('test', otherwise='give more rows, or a larger data.test_share')}",
        ),
    ]  # fmt: skip
    return checks


def classes(subject: Subject) -> list[Check]:
    """How often each class comes, and which are too rare, or so frequent that guessing looks good."""
    per_class: dict[str, int] = subject.counts["train"]["per class"]
    tested: dict[str, int] = subject.counts["test"]["per class"]
    size = len(subject.train)
    common = sorted(per_class, key=lambda name: -per_class[name])
    shown = ", ".join(f"{name} {percent(per_class[name] / size)}" for name in common[:MOST_NAMES])
    checks = [fact("classes", len(common), f"{len(common):,} classes: {shown}{and_more(len(common))}")]
    share = per_class[common[0]] / size
    if subject.train.labels.ndim == 1:
        checks.append(
            from_on(
                "largest class", share, LARGEST_CLASS, f"{percent(share)} of the training rows are {common[0]!r}",
                "always guessing it is right about as often, so that an accuracy says little here",
            )
        )  # fmt: skip
    if len(common) > size / RARE_IN_TRAINING:  # answers rather than classes: nearly all of them are rare
        return checks
    rare = [name for name in common if per_class[name] < RARE_IN_TRAINING or tested.get(name, 0) < RARE_IN_TEST]
    sizes = {one: f"{one!r} ({per_class[one]} training, {tested.get(one, 0)} test rows)" for one in rare[:MOST_NAMES]}
    checks.append(
        from_on(
            "rare classes", len(rare), 1, f"rare classes: {', '.join(sizes.values()) or 'none'}{and_more(len(rare))}",
            f"too few rows to be learnt or judged; {subject.more_rows('train', 'test', otherwise=WITHOUT_RARE)}",
        )
    )  # fmt: skip
    return checks


def left_out(subject: Subject) -> list[Check]:
    """Rows without a text or a label."""
    loaded = sum(subject.counts[split].get("loaded", 0) for split in SPLITS)
    dropped = {reason: sum(subject.dropped(split, reason) for split in SPLITS) for reason in EMPTY}
    total = sum(dropped.values())
    why = ", ".join(f"{reason}: {number:,}" for reason, number in dropped.items() if number)
    sentence = f"{total:,} of {loaded:,} rows have no text or no label" + (f" ({why})" if why else "")
    return [from_on("empty cells", total / max(1, loaded), LEFT_OUT, sentence, "they are left out")]


def repeats(subject: Subject) -> list[Check]:
    """Texts that come twice among the training rows, and those that the test shares with them."""
    train, test = subject.train, subject.test
    first = first_copies(train.words, asked(train))
    again = np.flatnonzero(first != np.arange(len(first)))
    differ = train.labels[again] != train.labels[first[again]]
    different = int((differ.any(1) if differ.ndim == 2 else differ).sum())
    share, contradicted = len(again) / len(first), different / len(first)
    return [
        from_on(
            "repeated texts", share, REPEATED, f"{len(again):,} training texts ({percent(share)}) repeat another one",
            "they count several times in whatever is learnt",
        ),
        from_on(
            "contradicting labels", contradicted, CONTRADICTED,
            f"{different:,} training texts ({percent(contradicted)}) have another label elsewhere",
            "no model can get both right",
        ),
        *leaks(train, test),
    ]  # fmt: skip


def leaks(train: TextSplit, test: TextSplit) -> list[Check]:
    """Test texts that are training texts, word for word or nearly."""
    known = set(keys_of(train.words, asked(train)))
    copied = np.fromiter((key in known for key in keys_of(test.words, asked(test))), bool)
    share = float(copied.mean())
    checks = [
        from_on(
            "texts in training and test", share, LEAKED,
            f"{int(copied.sum()):,} of {len(copied):,} test texts ({percent(share)}) are training texts as well",
            "the test cannot tell what was learnt from what was remembered; take repeated rows out, or keep them together "
            "with data.group=COLUMN",
        )
    ]  # fmt: skip
    if asked(train) is None:  # a text with several questions is its own near copy
        nearly = near_copies(train.words, test.words.select(np.flatnonzero(~copied)))
        share = float(nearly.sum()) / len(copied)
        checks.append(
            from_on(
                "near copies in training and test", share, NEARLY_LEAKED,
                f"{int(nearly.sum()):,} more test texts ({percent(share)}) share {SIMILAR:.0%} of their wording with a "
                f"training text", "they may be half remembered",
            )
        )  # fmt: skip
    return checks


def lengths(subject: Subject) -> list[Check]:
    """How long the texts are, whether they were split into words at all, and how many were cut."""
    length = subject.train.words.lengths
    middle = float(np.median(length))
    ends = f"shortest {length.min():,}, longest {length.max():,}"
    sentence = f"the median text has {middle:g} word{'' if middle == 1 else 's'} ({ends})"
    follows = "too short for attention to choose between words, or not split into words; see data.language"
    checks = [below("length", middle, SHORT_TEXT, sentence, follows)]
    code, share = spaceless(subject)
    if code is not None and subject.language not in SCRIPTS:
        follows = f"it is written without spaces between words: set data.language={code}"
        checks.append(
            from_on("script", share, SPACELESS, f"{percent(share)} of the words hold {SCRIPTS[code][1]}", follows)
        )
    cut = sum(subject.counts[split]["truncated"] for split in SPLITS) / sum(
        len(subject.splits[split]) for split in SPLITS
    )
    checks.append(
        from_on(
            "cut texts", cut, TRUNCATED, f"{percent(cut)} of the texts are cut at data.max_tokens",
            "what decides a label may lie in the rest",
        )
    )  # fmt: skip
    return checks


def unknown(subject: Subject) -> list[Check]:
    """Words of the test that the model has no vector for."""
    count = subject.counts["test"]
    share = count["tokens out of vocabulary"] / max(1, count["tokens"])
    sentence = f"{percent(share)} of the test's words are not in the training texts"
    return [
        from_on(
            UNKNOWN_WORDS,
            share,
            UNKNOWN_SHARE,
            sentence,
            "the model cannot tell these from each other, whatever it attends to",
        )
    ]


def non_text(subject: Subject) -> list[Check]:
    """Cells that hold numbers, codes or marks instead of sentences."""
    train = subject.train
    letters = np.array([HAS_LETTER.search(word) is not None for word in train.spelling], bool)[train.words.flat]
    share = 1 - float(letters.mean())
    bare = int((np.add.reduceat(letters.astype(np.int64), train.words.offsets[:-1]) == 0).sum())
    sentence = f"{percent(share)} of the words have no letter, and {bare:,} training texts have none at all"
    return [from_on("non-text", share, NO_LETTERS, sentence, "is data.text the right column?")]


LOOKS: Sequence[Callable[[Subject], list[Check]]] = (rows, classes, left_out, repeats, lengths, unknown, non_text)


def asked(split: TextSplit) -> Ragged | None:
    """The questions, where there are any: a text with another question is not a copy."""
    question = split.columns.get("question")
    return question if isinstance(question, Ragged) else None


def spaceless(subject: Subject) -> tuple[str | None, float]:
    """The language in whose script most words are written without spaces between them, if any, and the share of the training
    words that have it."""
    train = subject.train
    counts = np.bincount(train.words.flat, minlength=len(train.spelling))
    for code, (script, _) in SCRIPTS.items():
        share = sum(int(counts[n]) for n, word in enumerate(train.spelling) if script.search(word)) / counts.sum()
        if share >= SPACELESS:
            return code, share
    return None, 0.0
