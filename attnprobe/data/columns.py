"""Which column of the rows holds what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import regex
from jaxtyping import Bool, Int

from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked, Number, Text
from attnprobe.data.text import TextRules

KINDS = {
    "mask": "a list of one true or false per token",
    "spans": "a list of [start, end) token positions",
    "sentences": "a list of the numbers of sentences",
    "characters": "a list of [start, end) character positions in the text as it is in its cell",
}
MOST_ANNOTATORS = 15
"""An annotator takes two bits of a 32-bit number."""
OPTIONAL = (
    "question",
    "text2",
    "candidates",
    "rationale",
    "annotators",
    "counterfactual",
    "group",
    "slice",
    "token",
)
"""Settings that name a column and may be null."""
PLACED = ("lower", "digits")
"""Token rules after which it is still known where in the text a token was."""


def marked(
    cell: Any,
    kind: str,
    length: int,
    sentence: Sequence[int] | None,
    places: Sequence[tuple[int, int]],
    setting: str,
) -> Bool[np.ndarray, " tokens"] | None:
    """What a person marked in a text, as one truth value per token.

    Args:
        cell: the cell of the column; what it holds is said by `kind`.
        kind: one of `KINDS`. A token is marked by characters where one of its own is.
        length: number of tokens.
        sentence: the sentence of each token, where there are sentences.
        places: [start, end) characters of each token in the text, where `kind` is characters.
        setting: the setting that names the column, for the message.

    Returns:
        True at the tokens that are marked; None where the cell does not fit the tokens.

    Raises:
        UserError: the cell is not of this kind.
    """
    if not _is_of_kind(cell, kind):
        raise UserError(
            f"{setting}: data.rationale_kind={kind} expects {KINDS[kind]} in every cell, "
            f"but one is {str(cell)[:60]!r}"
        )
    if kind == "mask":
        return np.array(cell, bool) if len(cell) == length else None
    if kind == "sentences":
        assert sentence is not None
        return np.isin(sentence, cell) if set(cell) <= set(sentence) else None
    if kind == "spans":
        return _marked_by_tokens(cell, length)
    return _marked_by_characters(cell, places, length)


def _is_of_kind(cell: Any, kind: str) -> bool:
    if not isinstance(cell, list | tuple):
        return False
    if kind == "mask":
        return all(isinstance(value, int | float) for value in cell)
    if kind == "sentences":
        return all(isinstance(number, int) for number in cell)
    return all(_is_span(pair) for pair in cell)


def _is_span(pair: Any) -> bool:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        return False
    return all(isinstance(bound, int) for bound in pair)


def _marked_by_tokens(
    spans: Sequence[tuple[int, int]], length: int
) -> Bool[np.ndarray, " tokens"] | None:
    mask = np.zeros(length, bool)
    for start, end in spans:
        if not 0 <= start <= end <= length:  # empty spans occur in ERASER's files
            return None
        mask[start:end] = True
    return mask


def _marked_by_characters(
    spans: Sequence[tuple[int, int]], places: Sequence[tuple[int, int]], length: int
) -> Bool[np.ndarray, " tokens"] | None:
    mask = np.zeros(length, bool)
    if not spans:
        return mask
    begin, stop = np.array(places).reshape(-1, 2).T
    for start, end in spans:
        if not 0 <= start <= end:
            return None
        mask |= (begin < end) & (stop > start)
    if mask.any() or all(start == end for start, end in spans):
        return mask
    return None  # spans that touch no token lie outside the text


def packed(masks: Sequence[Bool[np.ndarray, " tokens"]]) -> Int[np.ndarray, " tokens"]:
    """What several annotators marked, in one number per token.

    Bit 2k says that there is an annotator k, and bit 2k + 1 that this token is marked by them.

    >>> packed([np.array([True, False]), np.array([False, False])]).tolist()
    [7, 5]
    """
    bits = np.zeros(len(masks[0]), np.int32)
    for annotator, mask in enumerate(masks):
        bits |= (1 + 2 * mask.astype(np.int32)) << (2 * annotator)
    return bits


def paired(
    first: Sequence[str], second: Sequence[str], attend_to: str
) -> tuple[list[str], Sequence[str] | None, Int[np.ndarray, " words"]]:
    """Divide a pair into the words that are attended to and the others.

    Args:
        first: the words of the first text.
        second: the words of the second text.
        attend_to: `both`, `first` or `second`.

    Returns:
        The words that are attended to; the words of the other text, or None where both texts are
        attended to; and for each of the former words the text that it belongs to, 0 or 1.
    """
    if attend_to == "first":
        return list(first), second, np.zeros(len(first), np.int32)
    if attend_to == "second":
        return list(second), first, np.ones(len(second), np.int32)
    segment = np.repeat([0, 1], [len(first), len(second)]).astype(np.int32)
    return [*first, *second], None, segment


def question_words(question: str, kind: str, rules: TextRules) -> list[str]:
    """The words of a question.

    Args:
        question: as it is in its cell.
        kind: `text`, or `label`: a name, which is one word.
        rules: how texts become tokens.

    Returns:
        No word where the question says nothing.
    """
    if kind == "text":
        return rules.words(question)
    name = question.strip()
    return [name] if name else []


@dataclass(frozen=True)
class Columns(metaclass=Checked):
    """Which column of the rows holds what.

    A column within another, as JSON has them, is named by its path: `doc.body`, `notes.0.label`.

    Attributes:
        question: column of the question that is asked of the text (or the hypothesis); None:
            nothing is asked.
        question_kind: `text`: it is cleaned and tokenised as the text is, and shares its
            vocabulary; `label`: it is the name of a label, one word whatever it consists of, and
            rows with the same `group` ask the same text for its labels.
        text2: column of the second text of a pair, for models that read two texts as a pair: a
            hypothesis, a passage.
        attend_to: whose words the attention is looked at over, and the tests are about: `both`, or
            the `first` or the `second` text alone. What belongs to each word (a rationale, scores)
            is about these words, in order.
        candidates: column of the classes that a row may be answered with, as a list or as text with
            `label_delimiter`; None, or a null cell: all classes.
        candidates_pattern: instead of a column: the words of the text that match this regular
            expression in full.
        rationale: column that says which tokens are the reason for the label.
        rationale_kind: `mask` (one bool per token), `spans` (list of [start, end) token positions),
            `sentences` (list of the numbers of sentences, from 0) or `characters` (list of [start,
            end) characters of the cell; a token is marked where one of its characters is).
        annotators: column with a list of what each of several people marked, each as
            `rationale_kind` says; None: not known.
        counterfactual: column of the same text with its reason changed, word for word, so that it
            is of the next class (of two: the other one); None: not known. It is tokenised as the
            text is, and has to have as many tokens.
        per_word: name → column that holds a list with one number per token of the text, such as
            scores of your own. A batch carries it under that name: as its field where it has one,
            else in `Batch.extra`.
        group: column of what rows have in common, such as the sentence that they are two versions
            of: rows of one group never come into different splits where splits are drawn.
        slice: column, such as a region or a source, by whose values a report divides its answer; no
            model and no test reads it.
        token: column with the number, from 0, of the word whose class the label is, for models that
            give one to every word.
        filters: column → allowed value(s); other rows are left out.
        multi_label: the label column holds several labels, as a list or as text with
            `label_delimiter`.
        above: labels are numbers, and the classes are those up to this one and those above it;
            None: they are names.
        label_delimiter: separates the labels (or the candidates) of one cell.
    """

    settings_place: ClassVar[str] = "data"

    text: str = "text"
    label: str = "label"
    question: str | None = None
    question_kind: Literal["text", "label"] = "text"
    text2: str | None = None
    attend_to: Literal["both", "first", "second"] = "both"
    candidates: str | None = None
    candidates_pattern: str | None = None
    rationale: str | None = None
    rationale_kind: Literal[tuple(KINDS)] = "mask"
    annotators: str | None = None
    counterfactual: str | None = None
    per_word: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    slice: str | None = None
    filters: Mapping[str, Any] = field(default_factory=dict)
    token: str | None = None
    multi_label: bool = False
    above: Number | None = None
    label_delimiter: Text = ";"

    def __post_init__(self) -> None:
        if self.label in (self.text, self.text2):
            raise UserError(
                f"data.label={self.label} is the column of the texts as well: expected the column "
                f"with each text's class"
            )
        if self.asks_labels and self.group is None:
            raise UserError(
                "data.question_kind=label: the rows of one text belong together; expected "
                "data.group=COLUMN with what they have in common, such as the text's number"
            )
        if self.candidates is not None and self.candidates_pattern is not None:
            raise UserError(
                f"data.candidates={self.candidates} and "
                f"data.candidates_pattern={self.candidates_pattern} exclude each other: "
                f"set one to null"
            )
        if self.text2 is not None and self.question is not None:
            raise UserError(
                f"data.text2={self.text2} and data.question={self.question} exclude each other: "
                f"data.question is for models that answer questions (task=qa), data.text2 for "
                f"those that read pairs (model=pretrained); set one to null"
            )
        if (
            self.text2 is not None
            and self.rationale_kind == "characters"
            and self.attend_to == "both"
        ):
            raise UserError(
                "data.rationale_kind=characters counts in one text: with data.text2 set "
                "data.attend_to=first or second, or mark the words of both texts, in order "
                "(data.rationale_kind=mask)"
            )
        if self.candidates_pattern is not None:
            try:
                regex.compile(self.candidates_pattern)
            except regex.error as error:
                raise UserError(
                    f"data.candidates_pattern={self.candidates_pattern} is not a regular "
                    f"expression: {error}"
                ) from None
        if self.above is not None and self.multi_label:
            raise UserError(
                f"data.above={self.above:g} divides one number per row: set data.multi_label=false"
            )
        if self.restricted and self.multi_label:
            raise UserError(
                "candidates are for one answer per row: set data.multi_label=false or "
                "data.candidates=null"
            )

    @property
    def names(self) -> list[str]:
        """The columns, or paths of values within them, that the settings name."""
        optional = [getattr(self, setting) for setting in OPTIONAL]
        named = [self.text, self.label, *optional, *self.per_word.values(), *self.filters]
        return [name for name in dict.fromkeys(named) if name is not None]

    @property
    def asks_labels(self) -> bool:
        """Whether a row is a text and one of its labels."""
        return self.question is not None and self.question_kind == "label"

    @property
    def restricted(self) -> bool:
        """Whether rows may say which classes they can be answered with."""
        return self.candidates is not None or self.candidates_pattern is not None
