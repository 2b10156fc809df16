"""The kinds of rules: which words a text of a label has, and which of them decide it.

A kind is a function from a rule, random numbers and a label to the slots of a text in their order:
each holds a cue, or None where a filler word stays. A word *decides* if the label is a function of
the deciding words alone: another class needs other words in these slots, and no change of any other
word changes the label. Where a class is known by what is missing, no word decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from research.grammar.spec import RuleSpec


@dataclass(frozen=True)
class Cue:
    """A word with a meaning.

    Attributes:
        word: as it stands in the text.
        decides: whether it decides this text; a cue that does not is *overridden*.
    """

    word: str
    decides: bool = True


Slots = list[Cue | None]
Cues = Callable[["RuleSpec", Random, int], Slots]


def word(spec: RuleSpec, draw: Random, stem: str) -> str:
    """A word of this meaning, one of as many synonyms as the rule has."""
    return stem if spec.lexicon == 1 else f"{stem}_{draw.randrange(spec.lexicon)}"


def drawn_cue(spec: RuleSpec, draw: Random, stem: str, *, decides: bool = True) -> Cue:
    """A word of this meaning as a cue."""
    return Cue(word(spec, draw, stem), decides)


def random_classes(spec: RuleSpec, draw: Random, count: int) -> list[int]:
    """So many classes, each drawn by itself."""
    return [draw.randrange(spec.classes) for _ in range(count)]


def shuffled(draw: Random, slots: Slots) -> Slots:
    """The slots in a random order."""
    return draw.sample(slots, len(slots))


def kept_in_order(draw: Random, cues: Sequence[Cue], slots: int) -> Slots:
    """The cues in their order, in some of so many slots."""
    chosen = sorted(draw.sample(range(slots), len(cues)))
    filled: Slots = [None] * slots
    for slot, cue in zip(chosen, cues, strict=True):
        filled[slot] = cue
    return filled


# Words of the class


def token(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """One word of the class."""
    return [drawn_cue(spec, draw, f"class{label}")]


def redundant(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """Several words of the class, each of them enough: all of them decide."""
    return [drawn_cue(spec, draw, f"class{label}") for _ in range(spec.cues)]


def lexicon(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """At least one word of the class and at most `cues`: all of them decide."""
    count = draw.randint(1, spec.cues)
    cues = [drawn_cue(spec, draw, f"class{label}") for _ in range(count)]
    return kept_in_order(draw, cues, spec.cues)


def halves(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """Four classes: each of two words has a half of the answer, so both decide."""
    first_half, second_half = divmod(label, 2)
    return [
        drawn_cue(spec, draw, f"first{first_half}"),
        drawn_cue(spec, draw, f"second{second_half}"),
    ]


def exclusion(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """A word against every class but one, which is the answer: all of them decide."""
    cues: Slots = []
    for excluded in range(spec.classes):
        if excluded != label:
            cues.append(drawn_cue(spec, draw, f"no{excluded}"))
    return shuffled(draw, cues)


# Classes that are known by what is missing


def marks_of_class(spec: RuleSpec, draw: Random, label: int, *, are_missing: bool) -> Slots:
    """Marks of the class, or as many empty slots, by the same random numbers."""
    cues: Slots = [drawn_cue(spec, draw, f"mark{label}") for _ in range(spec.cues)]
    return [None] * spec.cues if are_missing else cues


def absence(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """Marks in every class but 0, which no word decides: they are missing there."""
    return marks_of_class(spec, draw, label, are_missing=label == 0)


def rare_absence(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """Marks in every class but the last, which is the smallest; no word decides that one."""
    return marks_of_class(spec, draw, label, are_missing=label == spec.classes - 1)


def conjunction(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """All parts in class 1, one of them missing in class 0.

    In class 0 no word decides: it would be the same class without the parts that are there. They
    are overridden.
    """
    missing = draw.randrange(spec.cues)
    slots: Slots = []
    for part in range(spec.cues):
        cue = drawn_cue(spec, draw, f"part{part}", decides=label == 1)
        is_missing = label == 0 and part == missing
        slots.append(None if is_missing else cue)
    return shuffled(draw, slots)


def length(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """Texts of class 0 are shorter than all others: no word decides."""
    return []


# One of several cues counts


def place(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """A word of the class at the place that decides, then words of any class at other places.

    Only the one at the place decides: the classes of the others are drawn at random.
    """
    classes = random_classes(spec, draw, spec.cues - 1)
    decisive = drawn_cue(spec, draw, f"cue{label}")
    overridden = [drawn_cue(spec, draw, f"cue{each}", decides=False) for each in classes]
    return [decisive, *overridden]


def recency(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """Of several cues the last decides, alone: the classes of all others are drawn at random."""
    earlier = random_classes(spec, draw, spec.cues - 1)
    cues = [drawn_cue(spec, draw, f"cue{each}", decides=False) for each in earlier]
    return [*cues, drawn_cue(spec, draw, f"cue{label}")]


def primacy(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """Of several cues the first decides, alone."""
    return recency(spec, draw, label)[::-1]


def override(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """Weak cues of one class, and in a share of the texts a strong cue, which then decides alone.

    The class of the weak ones is then drawn at random, and they are overridden, also where they
    agree: exchanging them changes nothing. Without a strong cue the weak ones decide.
    """
    is_overridden = draw.random() < spec.share
    any_class = draw.randrange(spec.classes)
    weak_class = any_class if is_overridden else label
    weak: Slots = [
        drawn_cue(spec, draw, f"weak{weak_class}", decides=not is_overridden)
        for _ in range(spec.cues - 1)
    ]
    strong = drawn_cue(spec, draw, f"strong{label}") if is_overridden else None
    return shuffled(draw, [*weak, strong])


def strongest(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """Cues of different strengths and of any class; the strongest decides, alone."""
    levels = draw.sample(range(1, spec.cues + 2), spec.cues)
    strength = max(levels)
    slots: Slots = []
    for level in levels:
        any_class = draw.randrange(spec.classes)
        cue_class = label if level == strength else any_class
        stem = f"level{level}class{cue_class}"
        slots.append(drawn_cue(spec, draw, stem, decides=level == strength))
    return slots


def conditional(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """A word says which of two cues counts: it decides, and so does that cue; the other does not.

    The condition decides since the other condition makes the other cue count.
    """
    sides = ("left", "right")
    counted = draw.randrange(2)
    classes = random_classes(spec, draw, 2)
    classes[counted] = label
    slots: Slots = [drawn_cue(spec, draw, f"if{sides[counted]}")]
    for number, side in enumerate(sides):
        stem = f"{side}{classes[number]}"
        slots.append(drawn_cue(spec, draw, stem, decides=number == counted))
    return shuffled(draw, slots)


def doubt(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """Two cues, one of either class; that after `maybe` does not count.

    `maybe` and the cue that counts decide: before the other cue, `maybe` reverses the label.
    """
    doubted = drawn_cue(spec, draw, f"cue{1 - label}", decides=False)
    counted = drawn_cue(spec, draw, f"cue{label}")
    maybe = Cue("maybe")
    doubt_comes_first = draw.randrange(2)
    if doubt_comes_first:
        return [maybe, doubted, counted]
    return [counted, maybe, doubted]


# Several cues together


def vote(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """An odd number of votes; the majority decides.

    All votes decide, those of the minority too: the label is a function of their count, and every
    vote counts the same.
    """
    winners = draw.randint(spec.cues // 2 + 1, spec.cues)
    classes = [label] * winners + [1 - label] * (spec.cues - winners)
    return shuffled(draw, [drawn_cue(spec, draw, f"vote{each}") for each in classes])


def comparison(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """At most `cues` cues of two classes; that with more of them, by two at least, decides.

    All of them decide, as in a vote.
    """
    fewer = draw.randint(1, (spec.cues - 2) // 2)
    more = draw.randint(fewer + 2, spec.cues - fewer)
    classes = [label] * more + [1 - label] * fewer
    cues: Slots = [drawn_cue(spec, draw, f"more{each}") for each in classes]
    empty = [None] * (spec.cues - len(cues))
    return shuffled(draw, [*cues, *empty])


def concession(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """Weak cues of one class against a strong one of the other, which outweighs all but `cues` - 1.

    In a share of the texts all weak cues are there: they decide together, as the label changes when
    any of them is missing, and the strong cue is overridden. In all others one at least is missing:
    then the strong cue decides and the weak ones are overridden.
    """
    most = spec.cues - 1
    weak_decide = draw.random() < spec.share
    fewer = draw.randint(1, most - 1)
    count = most if weak_decide else fewer
    weak_class = label if weak_decide else 1 - label
    strong_class = 1 - weak_class

    weak: Slots = []
    for _ in range(count):
        weak.append(drawn_cue(spec, draw, f"weak{weak_class}", decides=weak_decide))
    missing = [None] * (most - count)
    strong = drawn_cue(spec, draw, f"strong{strong_class}", decides=not weak_decide)
    return shuffled(draw, [*weak, *missing, strong])


def parity(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """One to `cues` marks, an odd number in class 1, an even one in class 0.

    All of them decide: with any of them missing the label is the other one.
    """
    counts = [count for count in range(1, spec.cues + 1) if count % 2 == label]
    count = draw.choice(counts)
    marks = [drawn_cue(spec, draw, "mark") for _ in range(count)]
    return kept_in_order(draw, marks, spec.cues)


def exclusive_or(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """A left and a right cue; whether they are of two kinds decides, so both of them do."""
    left_kind = draw.randrange(2)
    right_kind = left_kind ^ label
    left = drawn_cue(spec, draw, f"left{left_kind}")
    right = drawn_cue(spec, draw, f"right{right_kind}")
    return [left, right]


def order(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """The same cues in every text, in one of two orders; all of them decide."""
    cues: Slots = [drawn_cue(spec, draw, f"part{part}") for part in range(spec.cues)]
    return cues[::-1] if label else cues


def negation(spec: RuleSpec, draw: Random, label: int) -> Slots:
    """A cue, turned by a `not` before it; a `not` after it says nothing.

    The `not` that turns it decides with it; the other one is overridden.
    """
    is_turned = draw.random() < spec.share
    has_stray = draw.random() < 0.5
    cue = drawn_cue(spec, draw, f"cue{label ^ is_turned}")
    before = Cue("not") if is_turned else None
    after = Cue("not", False) if has_stray and not is_turned else None
    return [before, cue, after]
