"""What is wrong with a data set, found before anything is trained on it.

Each check is a number, a threshold and a sentence.
"""

import unicodedata
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import regex

from attnprobe.core.errors import UserError
from attnprobe.core.printing import tell
from attnprobe.core.sanitise import percent, visible
from attnprobe.data.batching import TextSplit
from attnprobe.data.examples import Ragged
from attnprobe.data.filters import OVER_MOST
from attnprobe.data.local_files import SPLITS
from attnprobe.data.pieces import UNLIMITED
from attnprobe.data.repeats import SIMILAR, near_copies

Splits = Mapping[str, TextSplit]
Counts = Mapping[str, Mapping[str, Any]]

UNKNOWN_WORDS = "unknown words"
MOST_NAMES = 8
"""Classes that a sentence names."""
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
NOUNS = {"train": "training", "test": "test"}
ALWAYS = ("rows", "classes", "length", "library", "removal", "label pieces")
"""Checks that are printed even where nothing is wrong."""
HTML = regex.compile(
    r"<\s?/?\s?(?:p|br|div|span|li|ul|em|strong|h[1-6]|td|tr|script|img)\b[^<]*>", regex.I
)
"""A tag, also where a tokenizer has put spaces into it; one letter alone may be a formula's."""
MOST_SEARCHED = 2000
"""Texts that are searched for tags, evenly over the split."""


@dataclass(frozen=True)
class Check:
    """One measured property of a data set.

    Attributes:
        name: such as `texts in training and test`.
        value: what was measured, in the unit of `threshold`.
        threshold: from which value on, or below which, `warns`; None: nothing is wrong at any.
        warns: whether somebody should look at it.
        sentence: what was measured, and where it warns what follows and what to do.
    """

    name: str
    value: float
    threshold: float | None
    warns: bool
    sentence: str


class _Checks(list[Check]):
    """The checks that were made so far."""

    def fact(self, name: str, value: float, sentence: str) -> None:
        """Add a number of which no value is wrong."""
        self.append(Check(name, value, None, False, sentence))

    def below(
        self, name: str, value: float, threshold: float, sentence: str, consequence: str
    ) -> None:
        """Add a number that warns below a threshold, of a consequence."""
        warns = bool(value < threshold)
        text = f"{sentence}: {consequence}" if warns else sentence
        self.append(Check(name, value, threshold, warns, text))

    def from_on(
        self, name: str, value: float, threshold: float, sentence: str, consequence: str
    ) -> None:
        """Add a number that warns from a threshold on, of a consequence."""
        warns = bool(value >= threshold)
        text = f"{sentence}: {consequence}" if warns else sentence
        self.append(Check(name, value, threshold, warns, text))


@dataclass(frozen=True)
class _DataSet:
    """What is checked.

    Attributes:
        splits: the encoded splits.
        counts: rows loaded, dropped and kept, as in the manifest.
        trains: whether a model will be trained on it.
    """

    splits: Splits
    counts: Counts
    trains: bool

    @property
    def main(self) -> str:
        """The split that is looked at most."""
        return "train" if self.trains else "test"

    @property
    def part(self) -> TextSplit:
        return self.splits[self.main]

    @property
    def noun(self) -> str:
        """What the rows of this split are called."""
        return NOUNS[self.main]

    def dropped(self, split: str) -> Mapping[str, int]:
        """How many rows of a split were left out, by reason."""
        return self.counts[split].get("dropped", {})

    @property
    def draws_test(self) -> bool:
        """Whether the test rows are a share of all rows, and not a file or a split of their own."""
        return self.trains and "drawn from train" in self.counts.get("test", {})

    def larger_sample(self, split: str) -> str | None:
        """How to get more rows where `data.most` left some out."""
        number = self.dropped(split).get(OVER_MOST, 0)
        if not number:
            return None
        return (
            f"data.most left out {number:,} {NOUNS[split]} rows: raise it, or study.minutes, by "
            f"which an audit sets it"
        )


def check_data(
    splits: Splits, counts: Counts, language: str | None, *, trains: bool = True
) -> list[Check]:
    """All checks of a data set.

    Args:
        splits: encoded; without `trains` the test split is what is looked at, and the others may be
            missing.
        counts: rows loaded, dropped and kept, as in the manifest.
        language: the language whose rules split texts into words; None: they were split at spaces.
        trains: a model will be trained on it.
    """
    data = _DataSet(splits, counts, trains)
    checks = _Checks()
    _check_sizes(checks, data)
    _check_classes(checks, data)
    _check_rare_classes(checks, data)
    _check_spellings_of_classes(checks, data)
    _check_empty_cells(checks, data)
    _check_copies(checks, data)
    _check_lengths(checks, data)
    if language not in SCRIPTS:
        _check_script(checks, data)
    _check_cut_texts(checks, data)
    _check_html(checks, data)
    if trains:
        _check_unknown_words(checks, data)
    _check_letters(checks, data)
    return checks


def _check_sizes(checks: _Checks, data: _DataSet) -> None:
    train, validation, test = (len(data.splits.get(split, ())) for split in SPLITS)
    if data.trains:
        total = train + validation + test
        checks.fact(
            "rows",
            total,
            f"{total:,} rows: {train:,} to train, {validation:,} to validate, {test:,} to test",
        )
        remedy = "give more rows"
        if data.draws_test:
            remedy = "give more rows, or a smaller data.test_share"
        checks.below(
            "training rows",
            train,
            200,
            f"{train:,} training rows",
            f"a model trained on so few is hardly worth explaining; "
            f"{data.larger_sample('train') or remedy}",
        )
    else:
        checks.fact("rows", test, f"{test:,} rows to test, none to train")

    remedy = "give more rows"
    if data.draws_test:
        remedy = "give more rows, or a larger data.test_share"
    # at 50 % the half width of a 95 % interval is 1.96 · √(¼ / n) = 0.98 / √n
    half_width = 98 / np.sqrt(max(1, test))
    checks.below(
        "test rows",
        test,
        100,
        f"{test:,} test rows",
        f"an accuracy near 50 % is known only to ± {half_width:.0f} points; "
        f"{data.larger_sample('test') or remedy}",
    )


def _check_classes(checks: _Checks, data: _DataSet) -> None:
    size = len(data.part)
    rows_of_class: dict[str, int] = data.counts[data.main]["per class"]
    names = sorted(rows_of_class, key=lambda name: -rows_of_class[name])
    shares = [f"{name} {percent(rows_of_class[name] / size)}" for name in names]
    checks.fact("classes", len(names), f"{len(names):,} classes: {_listed(shares)}")
    if data.part.labels.ndim == 1:
        largest = names[0]
        share = rows_of_class[largest] / size
        checks.from_on(
            "largest class",
            share,
            0.9,
            f"{percent(share)} of the {data.noun} rows are {largest!r}",
            "always guessing it is right about as often, so that an accuracy says little here",
        )


def _check_rare_classes(checks: _Checks, data: _DataSet) -> None:
    least = RARE_IN_TRAINING if data.trains else RARE_IN_TEST
    rows_of_class: dict[str, int] = data.counts[data.main]["per class"]
    tested: dict[str, int] = data.counts["test"]["per class"]
    # many answers to questions are rare
    if len(rows_of_class) > len(data.part) / least and "question" in data.part.columns:
        return

    rare = []
    for name in sorted(rows_of_class, key=lambda name: -rows_of_class[name]):
        trained_rows = rows_of_class[name]
        test_rows = tested.get(name, 0)
        if trained_rows < least or test_rows < RARE_IN_TEST:
            training = f"{trained_rows} training, " if data.trains else ""
            rare.append(f"{name!r} ({training}{test_rows} test rows)")
    remedy = "give more rows"
    purpose = "judged"
    if data.trains:
        purpose = "learnt or judged"
        remedy = (
            "leave such a class out (data.labels=[…] data.unseen_labels=drop), or put it together "
            "with another"
        )
    remedy = data.larger_sample(data.main) or data.larger_sample("test") or remedy
    checks.from_on(
        "rare classes",
        len(rare),
        1,
        f"rare classes: {_listed(rare) or 'none'}",
        f"too few rows to be {purpose}; {remedy}",
    )


def _check_spellings_of_classes(checks: _Checks, data: _DataSet) -> None:
    """Classes whose names differ in case, in spaces or in the form of their characters alone."""
    spellings: dict[str, list[str]] = {}
    for name in data.counts[data.main]["per class"]:
        plain = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
        spellings.setdefault(plain, []).append(name)
    alike = [" and ".join(map(repr, names)) for names in spellings.values() if len(names) > 1]
    checks.from_on(
        "classes spelt alike",
        len(alike),
        1,
        f"classes that differ in spelling alone: {_listed(alike) or 'none'}",
        "they count as different; give rows of one class the same label",
    )


def _listed(names: list[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _check_empty_cells(checks: _Checks, data: _DataSet) -> None:
    loaded = sum(data.counts[split].get("loaded", 0) for split in data.splits)
    empty = Counter[str]()
    for split in data.splits:
        for reason, number in data.dropped(split).items():
            if number and reason.endswith((" is null", " is empty")):
                empty[reason] += number
    total = sum(empty.values())
    sentence = f"{total:,} of {loaded:,} rows have no text or no label"
    if empty:
        reasons = ", ".join(f"{reason}: {number:,}" for reason, number in empty.items())
        sentence += f" ({reasons})"
    checks.from_on("empty cells", total / max(1, loaded), 0.05, sentence, "they are left out")


def _check_copies(checks: _Checks, data: _DataSet) -> None:
    """Texts that come twice; a text with another question is no copy."""
    part = data.part
    row_of_text = dict[tuple[bytes, bytes], int]()
    first = np.array([row_of_text.setdefault(key, row) for row, key in enumerate(_copy_keys(part))])
    copies = np.flatnonzero(first != np.arange(len(first)))
    share = len(copies) / len(first)
    affected = "whatever is learnt" if data.trains else "every number"
    checks.from_on(
        "repeated texts",
        share,
        0.1,
        f"{len(copies):,} {data.noun} texts ({percent(share)}) repeat another one",
        f"they count several times in {affected}",
    )
    differs = part.labels[copies] != part.labels[first[copies]]
    if differs.ndim == 2:
        differs = differs.any(1)
    share = int(differs.sum()) / len(first)
    checks.from_on(
        "contradicting labels",
        share,
        0.01,
        f"{int(differs.sum()):,} {data.noun} texts ({percent(share)}) have another label elsewhere",
        "no model can get both right",
    )
    if not data.trains:
        return

    test = data.splits["test"]
    copied = np.array([key in row_of_text for key in _copy_keys(test)], bool)
    share = float(copied.mean())
    checks.from_on(
        "texts in training and test",
        share,
        LEAKED,
        f"{int(copied.sum()):,} of {len(copied):,} test texts ({percent(share)}) are training "
        f"texts as well",
        "repeated texts may inflate the test score; take repeated rows out, or "
        "keep them together with data.group=COLUMN",
    )
    if "question" not in part.columns:  # a text with several questions is its own near copy
        nearly = near_copies(part.words, test.words.select(np.flatnonzero(~copied)))
        share = float(nearly.sum()) / len(copied)
        checks.from_on(
            "near copies in training and test",
            share,
            0.05,
            f"{int(nearly.sum()):,} more test texts ({percent(share)}) share {SIMILAR:.0%} of "
            f"their wording with a training text",
            "they may be half remembered",
        )


def _copy_keys(part: TextSplit) -> list[tuple[bytes, bytes]]:
    """The words of each text and of its question (or the word that is asked about), as bytes."""
    texts = [words.tobytes() for words in part.words]
    question = part.columns.get("question", part.columns.get("asked"))
    if not isinstance(question, Ragged):
        return [(text, b"") for text in texts]
    return [(text, words.tobytes()) for text, words in zip(texts, question, strict=True)]


def _texts_cut(data: _DataSet) -> tuple[int, str]:
    """How many texts were cut, as a number and in words."""
    number = sum(data.counts[split]["truncated"] for split in data.splits)
    return number, f"{number:,} text{'' if number == 1 else 's'}"


def _check_lengths(checks: _Checks, data: _DataSet) -> None:
    length = data.part.words.lengths
    median = float(np.median(length))
    number, texts = _texts_cut(data)
    cut = f"; {texts} cut at data.max_tokens" if number else ""
    checks.below(
        "length",
        median,
        3,
        f"the median text has {median:.0f} word{'' if median == 1 else 's'} "
        f"(shortest {length.min():,}, longest {length.max():,}{cut})",
        "too short for attention to choose between words, or not split into words; see "
        "data.language",
    )


def _check_script(checks: _Checks, data: _DataSet) -> None:
    """Words that hold a script without spaces were not split by its language's rules."""
    for code, (script, name) in SCRIPTS.items():
        has_script = [script.search(word) is not None for word in data.part.spelling]
        share = float(np.array(has_script, bool)[data.part.words.flat].mean())
        if share >= SPACELESS:
            checks.from_on(
                "script",
                share,
                SPACELESS,
                f"{percent(share)} of the words hold {name}",
                f"it is written without spaces between words: set data.language={code}",
            )
            return


def _check_cut_texts(checks: _Checks, data: _DataSet) -> None:
    number, texts = _texts_cut(data)
    share = number / sum(map(len, data.splits.values()))
    checks.from_on(
        "cut texts",
        share,
        0.05,
        f"{texts} ({percent(share)}) cut at data.max_tokens",
        "what decides a label may lie in the rest",
    )


def _check_html(checks: _Checks, data: _DataSet) -> None:
    part = data.part
    sample = part.example_id[:: max(1, len(part) // MOST_SEARCHED)].tolist()
    texts = [" ".join(part.tokens(number)) for number in sample]
    share = float(np.mean([HTML.search(text) is not None for text in texts]))
    checks.from_on(
        "HTML",
        share,
        0.05,
        f"{percent(share)} of the texts hold HTML tags",
        "they are read as words; data.clean=[html] removes them",
    )


def _check_unknown_words(checks: _Checks, data: _DataSet) -> None:
    count = data.counts["test"]
    share = count["tokens out of vocabulary"] / max(1, count["tokens"])
    checks.from_on(
        UNKNOWN_WORDS,
        share,
        0.1,
        f"{percent(share)} of the test's words are not in the training texts",
        "all unknown words look the same to the model",
    )


def _check_letters(checks: _Checks, data: _DataSet) -> None:
    words = data.part.words
    has_letter = [regex.search(r"\p{L}", word) is not None for word in data.part.spelling]
    letters = np.array(has_letter, bool)[words.flat]
    share = 1 - float(letters.mean())
    letters_of_texts = np.add.reduceat(letters.astype(np.int64), words.offsets[:-1])
    bare = int((letters_of_texts == 0).sum())
    checks.from_on(
        "non-text",
        share,
        0.3,
        f"{percent(share)} of the words have no letter, and {bare:,} {data.noun} texts have none "
        f"at all",
        "is data.text the right column?",
    )


def check_pieces(counts: Counts, longest: int) -> list[Check]:
    """What a model that reads pieces of words loses of the texts of all splits.

    Args:
        counts: per split, with the counts of `attnprobe.data.pieces.left_out`.
        longest: pieces of the longest text that the model reads, or `UNLIMITED`.

    Raises:
        UserError: the model's tokenizer knows no word at all.
    """

    def total(name: str) -> int:
        return sum(count[name] for count in counts.values())

    words = total("words")
    unknown = total("words of unknown pieces")
    if words and unknown == words:
        raise UserError(
            f"the tokenizer knows none of the {words:,} words of these texts: take the model's "
            f"own, and texts of its language"
        )
    checks = _Checks()
    cut = total("cut at the model's longest text")
    if longest < UNLIMITED:
        checks.from_on(
            "texts cut at the model's longest",
            cut,
            1,
            f"{cut:,} of {total('kept'):,} texts are cut at {longest} pieces, "
            f"{total('words after the cut'):,} words in all",
            "what decides a label may lie in the rest; model.max_pieces=… takes more where the "
            "model does",
        )
    texts_of_token = Counter[str]()
    for count in counts.values():
        texts_of_token.update(count["texts with a special token"])
    tokens = _listed([f"{token!r} in {texts:,}" for token, texts in texts_of_token.items()])
    checks.from_on(
        "special tokens in texts",
        max(texts_of_token.values(), default=0),
        1,
        f"texts hold special tokens of the tokenizer: {tokens or 'none'}",
        "they are read as such, as transformers reads them, and not as characters; "
        "model.special_tokens=characters reads what stands there",
    )
    joined = total("units of several words")
    checks.fact(
        "words of one piece",
        joined,
        f"{joined:,} times several words share a piece, and are shown as one",
    )
    share = unknown / max(1, words)
    checks.from_on(
        "words of unknown pieces",
        share,
        0.05,
        f"{percent(share)} of the words are unknown to the tokenizer",
        "all unknown words look the same to the model; is it for texts of this language?",
    )
    return checks


def section_lines(name: str, section: Mapping[str, Any]) -> list[str]:
    """One line for each guess, each fact and each warning of a data set.

    Args:
        name: the data set's name.
        section: its section of the manifest, with `notes` and `checks`.

    >>> check = {"name": "test rows", "warns": True, "sentence": "12 test rows: few"}
    >>> section_lines("hotels", {"notes": ["hotels.csv: read as cp1252"], "checks": [check]})
    ['data hotels: hotels.csv: read as cp1252', 'warning: data hotels: 12 test rows: few']
    """
    lines = [f"data {name}: {note}" for note in section.get("notes", [])]
    warnings = []
    for check in section.get("checks", []):
        if check["warns"]:
            warnings.append(f"warning: data {name}: {check['sentence']}")
        elif check["name"] in ALWAYS:
            lines.append(f"data {name}: {check['sentence']}")
    return [visible(line) for line in lines + warnings]


_printed: set[str] = set()


def tell_section(name: str, section: Mapping[str, Any]) -> None:
    """Print the section, each line once in a process: a study's runs mostly share their data."""
    for line in section_lines(name, section):
        if line not in _printed:
            _printed.add(line)
            tell(line)
