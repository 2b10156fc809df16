"""Which column of the rows holds what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import regex
from jaxtyping import Bool, Int

from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked, Number, Text

KINDS = {
    "mask": "a list of one true or false per token",
    "spans": "a list of [start, end) token positions",
    "sentences": "a list of the numbers of sentences",
    "characters": "a list of [start, end) character positions in the text as it is in its cell",
}
MOST_ANNOTATORS = 15
"""An annotator takes two bits of a number."""
OPTIONAL = (
    "question",
    "text2",
    "candidates",
    "rationale",
    "annotators",
    "counterfactual",
    "group",
    "token",
)
"""Settings that name a column, besides the text's and the label's."""
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
    """What a person marked in a text, as one truth value per token; None where the cell does not
    fit the tokens.

    Args:
        cell: as `kind` says; a token is marked by characters where one of its own is.
        length: number of tokens.
        sentence: the sentence of each token, where there are sentences.
        places: [start, end) characters of each token in the text, where `kind` is characters.
        setting: the setting that names the column, for the message.
    """
    parts = cell if isinstance(cell, list | tuple) else [None]
    if kind in ("mask", "sentences"):
        fits = all(isinstance(one, int | float if kind == "mask" else int) for one in parts)
    else:
        pairs = [one for one in parts if isinstance(one, list | tuple) and len(one) == 2]
        fits = len(pairs) == len(parts) and all(
            isinstance(end, int) for pair in pairs for end in pair
        )
    if not fits:
        raise UserError(
            f"{setting}: data.rationale_kind={kind} expects {KINDS[kind]} in every cell, but one is {str(cell)[:60]!r}"
        )
    if kind == "mask":
        return np.array(cell, bool) if len(cell) == length else None
    if kind == "sentences":
        assert sentence is not None
        return np.isin(sentence, cell) if set(cell) <= set(sentence) else None
    mask = np.zeros(length, bool)
    if kind == "spans":
        for start, end in cell:
            if not 0 <= start <= end <= length:  # empty spans occur in ERASER's files
                return None
            mask[start:end] = True
        return mask
    if not cell:
        return mask
    begin, stop = np.array(places).reshape(-1, 2).T
    for start, end in cell:
        if not 0 <= start <= end:
            return None
        mask |= (begin < end) & (stop > start)
    # spans that touch no token lie outside the text
    return mask if mask.any() or all(start == end for start, end in cell) else None


def places_of(text: str, tokens: Sequence[str]) -> list[tuple[int, int]]:
    """Where the tokens of a text are in it, as [start, end) characters; spaces of the text are in
    none of them.

    >>> places_of("I  don't.", ["I", "do", "n't", "."])
    [(0, 1), (3, 5), (5, 8), (8, 9)]
    """
    solid = [number for number, one in enumerate(text) if not one.isspace()]
    found = []
    at = 0
    for token in tokens:
        size = sum(not one.isspace() for one in token)
        found.append((solid[at], solid[at + size - 1] + 1) if size else (0, 0))
        at += size
    return found


def packed(masks: Sequence[Bool[np.ndarray, " tokens"]]) -> Int[np.ndarray, " tokens"]:
    """What several annotators marked, in one number per token: of annotator k bit 2k says that
    there is one, and bit 2k + 1 that this token is marked.

    >>> packed([np.array([True, False]), np.array([False, False])]).tolist()
    [7, 5]
    """
    return sum((1 + 2 * mask.astype(np.int32)) << (2 * number) for number, mask in enumerate(masks))  # type: ignore[return-value]


def paired(
    first: Sequence[str], second: Sequence[str], attend_to: str
) -> tuple[list[str], Sequence[str] | None, Int[np.ndarray, " words"]]:
    """The words of a pair that are attended to, those of the other text (None: both are), and of
    which text, 0 or 1, each of the former is."""
    there = {"both": (0, 1), "first": (0,), "second": (1,)}[attend_to]
    pair = (first, second)
    words = [word for number in there for word in pair[number]]
    other = None if len(there) == 2 else pair[1 - there[0]]
    return words, other, np.repeat(there, [len(pair[number]) for number in there]).astype(np.int32)


@dataclass(frozen=True)
class Columns(metaclass=Checked):
    """Which column of the rows holds what.

    A column within another, as JSON has them, is named by its path: `doc.body`, `notes.0.label`.

    Attributes:
        question: column of the question that is asked of the text (or the hypothesis); None:
            nothing is asked. It is cleaned and tokenised as the text is, and shares its vocabulary.
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
    filters: Mapping[str, Any] = field(default_factory=dict)
    token: str | None = None
    multi_label: bool = False
    above: Number | None = None
    label_delimiter: Text = ";"

    def __post_init__(self) -> None:
        if self.candidates is not None and self.candidates_pattern is not None:
            raise UserError(
                f"data.candidates={self.candidates} and data.candidates_pattern={self.candidates_pattern} exclude each "
                f"other: set one to null"
            )
        if self.text2 is not None and self.question is not None:
            raise UserError(
                f"data.text2={self.text2} and data.question={self.question} exclude each other: data.question is for models "
                f"that answer questions (task=qa), data.text2 for those that read pairs (model=pretrained); set one to null"
            )
        if (
            self.text2 is not None
            and self.rationale_kind == "characters"
            and self.attend_to == "both"
        ):
            raise UserError(
                "data.rationale_kind=characters counts in one text: with data.text2 set data.attend_to=first or second, or "
                "mark the words of both texts, in order (data.rationale_kind=mask)"
            )
        if self.candidates_pattern is not None:
            try:
                regex.compile(self.candidates_pattern)
            except regex.error as error:
                raise UserError(
                    f"data.candidates_pattern={self.candidates_pattern} is not a regular expression: {error}"
                ) from None
        if self.above is not None and self.multi_label:
            raise UserError(
                f"data.above={self.above:g} divides one number per row: set data.multi_label=false"
            )
        if self.restricted and self.multi_label:
            raise UserError(
                "candidates are for one answer per row: set data.multi_label=false or data.candidates=null"
            )

    @property
    def restricted(self) -> bool:
        """Whether rows may say which classes they can be answered with."""
        return self.candidates is not None or self.candidates_pattern is not None
