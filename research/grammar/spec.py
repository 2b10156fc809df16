"""A rule as a point of the grammar: its kind, and everything else that may make a verdict err."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from attnprobe.core.errors import UserError
from research.grammar import kinds
from research.grammar.kinds import Cues

Position = Literal["anywhere", "lead", "middle", "tail", "far", "together", "first", "last"]
"""Where the cues stand: in the first third, around the middle, in the last third, each in its own
part of the text, or side by side. For the kind `place` the place that decides: the third word, the
middle one, the third last, the first or the last."""
Surroundings = Literal["plain", "ends", "template", "common", "lengths"]
"""What else the texts have: the same first and last word, the same three first words, a common
word in every third place; or texts of the last class are often longer."""
Range = tuple[int, int]
"""A number from the first to the second, both included."""


@dataclass(frozen=True)
class Kind:
    """What rules of a kind may have.

    Attributes:
        cues_of: the slots of a text.
        cues: numbers of cues; the first is the usual one.
        classes: numbers of classes.
        without_context: whether a model that sees one word at a time can learn it.
        is_hard: whether it takes more texts.
        has_share: whether `share` means something.
        has_overridden: whether some cues do not decide.
        positions: where the cues may stand.
    """

    cues_of: Cues
    cues: tuple[int, ...] = (1,)
    classes: tuple[int, ...] = (2,)
    without_context: bool = False
    is_hard: bool = False
    has_share: bool = False
    has_overridden: bool = False
    positions: tuple[Position, ...] = ("anywhere", "lead", "middle", "tail")


SEVERAL: tuple[Position, ...] = ("anywhere", "lead", "middle", "tail", "far", "together")
PLACES: tuple[Position, ...] = ("lead", "middle", "tail", "first", "last")
MANY = (2, 3, 4, 5)
KINDS: dict[str, Kind] = {
    "token": Kind(kinds.token, classes=MANY, without_context=True),
    "redundant": Kind(
        kinds.redundant, (3, 2, 4, 5, 6, 8), MANY, without_context=True, positions=SEVERAL
    ),
    "lexicon": Kind(kinds.lexicon, (3, 2, 4), MANY, without_context=True, positions=SEVERAL),
    "halves": Kind(kinds.halves, (2,), (4,), without_context=True, positions=SEVERAL),
    "exclusion": Kind(kinds.exclusion, (2,), (3,), without_context=True, positions=SEVERAL),
    "absence": Kind(kinds.absence, (1, 2, 3), MANY, without_context=True),
    "rare_absence": Kind(kinds.rare_absence, (1, 2, 3), MANY, without_context=True),
    "conjunction": Kind(
        kinds.conjunction,
        (2, 3),
        without_context=True,
        is_hard=True,
        has_overridden=True,
        positions=SEVERAL,
    ),
    "length": Kind(kinds.length, (0,), positions=("anywhere",)),
    "place": Kind(kinds.place, (4, 2, 6), (2, 3, 4), has_overridden=True, positions=PLACES),
    "recency": Kind(
        kinds.recency, (3, 2, 4, 5), (2, 3), is_hard=True, has_overridden=True, positions=SEVERAL
    ),
    "primacy": Kind(
        kinds.primacy, (3, 2, 4, 5), (2, 3), is_hard=True, has_overridden=True, positions=SEVERAL
    ),
    "override": Kind(
        kinds.override,
        (2, 3),
        (2, 3),
        without_context=True,
        has_share=True,
        has_overridden=True,
        positions=SEVERAL,
    ),
    "strongest": Kind(
        kinds.strongest,
        (3, 2, 4),
        (2, 3),
        without_context=True,
        is_hard=True,
        has_overridden=True,
        positions=SEVERAL,
    ),
    "conditional": Kind(
        kinds.conditional, (3,), is_hard=True, has_overridden=True, positions=SEVERAL
    ),
    "doubt": Kind(kinds.doubt, (3,), is_hard=True, has_overridden=True, positions=SEVERAL),
    "vote": Kind(
        kinds.vote, (5, 3, 7, 9, 15), without_context=True, is_hard=True, positions=SEVERAL
    ),
    "comparison": Kind(
        kinds.comparison, (8, 6), without_context=True, is_hard=True, positions=SEVERAL
    ),
    "concession": Kind(
        kinds.concession,
        (4, 3),
        without_context=True,
        is_hard=True,
        has_share=True,
        has_overridden=True,
        positions=SEVERAL,
    ),
    "parity": Kind(kinds.parity, (3, 2), is_hard=True, positions=SEVERAL),
    "exclusive_or": Kind(kinds.exclusive_or, (2,), is_hard=True, positions=SEVERAL),
    "order": Kind(kinds.order, (2, 3, 4), is_hard=True, positions=SEVERAL),
    "negation": Kind(
        kinds.negation, (3,), is_hard=True, has_share=True, has_overridden=True, positions=SEVERAL
    ),
}
SMALLEST = (0.5, 0.25, 0.1, 0.05, 0.02)
"""Shares of the smallest class, which is the last."""


@dataclass(frozen=True)
class RuleSpec:
    """A rule.

    Attributes:
        kind: of `KINDS`.
        cues: slots for words with a meaning; 0: as many as is usual for its kind.
        classes: of the labels; 0: as many as is usual for its kind.
        minority: share of the smallest class, the last, of `SMALLEST`; at least 1 / classes: all
            classes are alike. `smallest_share` says what comes of it.
        length: words of a text, fewest and most; (0, 0): as few as its cues need, 8 at least, and
            up to six more.
        noise: share of wrong training labels.
        position: of the cues.
        lexicon: synonyms of each cue.
        share: of the texts in which a cue is overridden, conceded or negated.
        surroundings: what else the texts have.
    """

    kind: str
    cues: int = 0
    classes: int = 0
    minority: float = 0.5
    length: Range = (0, 0)
    noise: float = 0.0
    position: Position = "anywhere"
    lexicon: int = 1
    share: float = 0.5
    surroundings: Surroundings = "plain"

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise UserError(f"kind={self.kind}: expected one of {', '.join(KINDS)}")
        kind = KINDS[self.kind]
        if self.surroundings not in get_args(Surroundings):
            allowed = ", ".join(get_args(Surroundings))
            raise UserError(f"surroundings={self.surroundings}: expected one of {allowed}")
        if self.minority not in SMALLEST:
            allowed = ", ".join(map(str, SMALLEST))
            raise UserError(
                f"minority={self.minority}: expected one of {allowed}, the share of the smallest "
                "class; classes are even where it is at least 1 / classes"
            )
        object.__setattr__(self, "cues", self.cues or kind.cues[0])
        object.__setattr__(self, "classes", self.classes or kind.classes[0])
        if self.minority >= 1 / self.classes:
            object.__setattr__(self, "minority", 0.5)
        for name in ("cues", "classes"):
            value = getattr(self, name)
            if value not in getattr(kind, name):
                allowed = ", ".join(map(str, getattr(kind, name)))
                raise UserError(f"{self.kind} with {name}={value}: expected one of {allowed}")
        if self.position not in kind.positions:
            allowed = ", ".join(kind.positions)
            raise UserError(f"{self.kind} with position={self.position}: expected one of {allowed}")
        if self.length == (0, 0):
            object.__setattr__(self, "length", self.usual_length)
        if self.length[0] < self.least_words:
            raise UserError(
                f"{self.kind} with length={self.length}: expected at least {self.least_words} "
                f"words, as {self.cues} cues stand {self.position}"
            )

    @property
    def usual_length(self) -> Range:
        """As few words as the cues need, 8 at least, and up to six more."""
        low = max(8, self.least_words)
        return low, low + 6

    @property
    def least_words(self) -> int:
        """Words that the shortest text must have for its cues to stand where they should."""
        if self.position in ("lead", "middle", "tail") and self.kind != "place":
            return 3 * (self.cues + 1)
        if self.position == "far":
            return 2 * self.cues
        return self.cues + 2

    @property
    def name(self) -> str:
        """Everything that it has besides what is usual, such as `recency-2cues-10%-lead`."""
        kind = KINDS[self.kind]
        low, high = self.length
        parts = {
            f"{self.cues}cues": self.cues != kind.cues[0],
            f"{self.classes}classes": self.classes != kind.classes[0],
            f"{100 * self.minority:.0f}%": self.minority < 1 / self.classes,
            f"{low}to{high}words": self.length != self.usual_length,
            f"{100 * self.noise:.0f}%noise": self.noise > 0,
            self.position: self.position != "anywhere",
            f"{self.lexicon}synonyms": self.lexicon > 1,
            f"{100 * self.share:.0f}%share": self.share != 0.5,
            self.surroundings: self.surroundings != "plain",
        }
        named = [part for part, differs in parts.items() if differs]
        return "-".join([self.kind, *named])

    @classmethod
    def named(cls, name: str) -> RuleSpec:
        """The rule of this name.

        Raises:
            UserError: no rule is called that.
        """
        kind, *parts = name.split("-")
        values: dict[str, object] = {}
        for part in parts:
            field, value = read_part(part)
            if field in values or field == "":
                raise UserError(
                    f"rule={name}: {part} says nothing of a rule: expected parts such as "
                    "recency-5cues-3classes-10%-20to30words-15%noise-lead-4synonyms-ends"
                )
            values[field] = value
        return cls(kind, **values)  # type: ignore[arg-type]

    @property
    def smallest_share(self) -> float:
        """Share of the smallest class."""
        return min(self.minority, 1 / self.classes)

    @property
    def has_counterfactual(self) -> bool:
        """Whether the text of the next class differs in its words alone, not in their number."""
        return self.kind != "length"

    @property
    def train_size(self) -> int:
        """Training texts from which most models learn it."""
        size = 2000 if KINDS[self.kind].is_hard else 1000
        if self.minority < 0.1:
            return 3 * size
        return 2 * size if self.minority < 0.25 else size

    @property
    def test_size(self) -> int:
        """Test texts: twice as many where the smallest class is below a quarter."""
        return 200 if self.minority < 0.25 else 100


def read_part(part: str) -> tuple[str, object]:
    """The field that a part of a name speaks of, and its value; "" for a part without meaning."""
    if part in get_args(Position):
        return "position", part
    if part in get_args(Surroundings):
        return "surroundings", part
    numbers = [int(number) for number in re.findall(r"\d+", part)]
    unit = re.sub(r"\d+", "", part)
    if unit == "towords" and len(numbers) == 2:
        return "length", (numbers[0], numbers[1])
    units = {"cues": "cues", "classes": "classes", "synonyms": "lexicon"}
    if unit in units and len(numbers) == 1:
        return units[unit], numbers[0]
    shares = {"%": "minority", "%noise": "noise", "%share": "share"}
    if unit in shares and len(numbers) == 1:
        return shares[unit], numbers[0] / 100
    return "", None
