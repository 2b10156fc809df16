"""Which column of the rows holds what."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from attnprobe.data.marks import KINDS
from attnprobe.data.patterns import check_pattern
from attnprobe.errors import UserError


def choice(setting: str, value: str, allowed: Sequence[str]) -> None:
    """Check a setting that has a few legal values."""
    if value not in allowed:
        raise UserError(f"data.{setting}={value}: expected {' or '.join(allowed)}")


@dataclass(frozen=True)
class Columns:
    """Which column of the rows holds what.

    A column within another, as JSON has them, is named by its path: `doc.body`, `notes.0.label`.

    Attributes:
        text: column of the text.
        label: column of the label.
        question: column of the question that is asked of the text (or the hypothesis); None: nothing is asked. It is
            cleaned and tokenised as the text is, and shares its vocabulary.
        candidates: column of the classes that a row may be answered with, as a list or as text with
            `label_delimiter`; None, or a null cell: all classes.
        candidates_pattern: instead of a column: the words of the text that match this regular expression in full; one that
            might take long is refused (`attnprobe.data.patterns`).
        rationale: column that says which tokens are the reason for the label.
        rationale_kind: `mask` (one bool per token), `spans` (list of [start, end) token positions), `sentences`
            (list of the numbers of sentences, from 0) or `characters` (list of [start, end) characters of the cell; a token
            is marked where one of its characters is).
        annotators: column with a list of what each of several people marked, each as `rationale_kind` says; None: not known.
        counterfactual: column of the same text with its reason changed, word for word, so that it is of the next class (of
            two: the other one); None: not known. It is tokenised as the text is, and has to have as many tokens.
        per_word: name → column that holds a list with one number per token of the text, such as scores of your own. A
            batch carries it under that name: as its field where it has one, else in `Batch.extra`.
        group: column of what rows have in common, such as the sentence that they are two versions of: rows of one group
            never come into different splits where splits are drawn.
        filters: column → allowed value(s); other rows are left out.
        multi_label: the label column holds several labels, as a list or as text with `label_delimiter`.
        label_delimiter: separates the labels (or the candidates) of one cell.
    """

    text: str = "text"
    label: str = "label"
    question: str | None = None
    candidates: str | None = None
    candidates_pattern: str | None = None
    rationale: str | None = None
    rationale_kind: str = "mask"
    annotators: str | None = None
    counterfactual: str | None = None
    per_word: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    filters: Mapping[str, Any] = field(default_factory=dict)
    multi_label: bool = False
    label_delimiter: str = ";"

    def __post_init__(self) -> None:
        choice("rationale_kind", self.rationale_kind, tuple(KINDS))
        if self.candidates is not None and self.candidates_pattern is not None:
            raise UserError(
                f"data.candidates={self.candidates} and data.candidates_pattern={self.candidates_pattern} exclude each "
                f"other: set one to null"
            )
        if self.candidates_pattern is not None:
            check_pattern(self.candidates_pattern, "data.candidates_pattern")
        if self.restricted and self.multi_label:
            raise UserError("candidates are for one answer per row: set data.multi_label=false or data.candidates=null")

    @property
    def restricted(self) -> bool:
        """Whether rows may say which classes they can be answered with."""
        return self.candidates is not None or self.candidates_pattern is not None

    @property
    def read(self) -> list[str]:
        """The names of all columns that are read."""
        optional = (self.question, self.candidates, self.rationale, self.annotators, self.counterfactual, self.group)
        given = [name for name in optional if name is not None]
        return [self.text, self.label, *given, *self.per_word.values(), *self.filters]
