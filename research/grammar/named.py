"""The rules that thresholds are fixed on, and rules that nobody has picked."""

import hashlib
from dataclasses import replace
from random import Random
from typing import Literal, get_args

from attnprobe.core.errors import UserError
from research.grammar.spec import KINDS, Range, RuleSpec, Surroundings

DEVELOPMENT: dict[str, RuleSpec] = {
    name: RuleSpec.named(rule)
    for name, rule in {
        "token": "token",
        "token of 100 words": "token-100to100words",
        "noisy": "token-15%noise",
        "five classes": "token-5classes",
        "rare": "token-10%",
        "very rare": "token-2%",
        "constant ends": "token-ends",
        "template": "token-template",
        "length beside": "token-lengths",
        "redundant": "redundant",
        "repeated": "redundant-6cues",
        "lexicon in the lead": "lexicon-30to40words-lead-15synonyms",
        "lexicon_noisy": "lexicon-4cues-10%noise-15synonyms",
        "spam10": "absence-10%",
        "spam25": "absence-25%",
        "spam50": "absence",
        "spam, few donors": "absence-5%",
        "spam in the lead": "absence-10%-lead",
        "lead20": "absence-28to32words-lead-20synonyms",
        "rare by absence": "rare_absence-10%",
        "conjunction": "conjunction",
        "length": "length",
        "third": "place-lead",
        "third_last": "place-6cues-tail",
        "last of two": "recency-2cues",
        "last_of_three": "recency",
        "last5": "recency-5cues",
        "first of three": "primacy",
        "overridden": "override",
        "overridden, seldom": "override-20%share",
        "longest": "strongest",
        "conditional": "conditional",
        "doubt": "doubt",
        "two of three": "vote-3cues",
        "majority": "vote-9cues-12to16words",
        "majority15": "vote-15cues-18to22words",
        "compared": "comparison-12to18words",
        "concession": "concession",
        "parity": "parity",
        "xor": "exclusive_or",
        "order_of_two": "order",
        "far order": "order-far",
        "negated": "negation",
        "two_questions": "halves",
        "third class": "exclusion",
    }.items()
}
"""Name in earlier studies → the rule."""


def development_rules() -> list[RuleSpec]:
    """The rules that thresholds, gates and sizes are fixed on."""
    return list(DEVELOPMENT.values())


Half = Literal["first", "second"]
STRATA: dict[str, tuple[str, ...]] = {
    "absence": ("absence", "rare_absence"),
    "place": ("place",),
    "recency": ("recency", "primacy"),
    "override": ("override", "strongest"),
    "vote": ("vote", "comparison"),
    "concession": ("concession",),
    "parity": ("parity",),
    "classes": ("token", "redundant", "lexicon", "halves", "exclusion"),
    "rare": ("token", "redundant", "lexicon", "absence", "rare_absence", "override"),
    "class": ("token", "redundant", "lexicon"),
    "order": ("order", "negation", "exclusive_or"),
    "condition": ("conditional", "doubt", "conjunction"),
}
"""Stratum → its kinds."""
TURNS = (
    *("absence", "place", "recency", "override", "vote", "concession", "parity", "classes"),
    *("rare",) * 6,
    *("class", "order", "condition", "recency", "override", "order"),
)
"""The strata in turn."""
LENGTHS: tuple[Range, ...] = ((14, 20), (20, 30), (35, 45))
"""Lengths beside the usual one, of rules whose cues find their places there."""
SURROUNDINGS: tuple[Surroundings, ...] = ("plain", "plain", "ends", "template", "common", "lengths")
COMMON_SHARES = (0.5, 0.5, 0.25)
RARE_SHARES = (0.02, 0.05, 0.1)
"""Shares of the smallest class, in the stratum `rare` in turn."""


def drawn_rules(commit: str, count: int, half: Half) -> list[RuleSpec]:
    """Rules that nobody has picked: they follow from the hash of a commit.

    Strata take turns (`TURNS`). Among 40 rules there are at least two of each, four with a smallest
    class of 2 %, four with 5 % and four with 10 %. A second hash puts every rule of the grammar
    into one of two halves, so none is in both, however many are drawn.

    Args:
        commit: hash of the commit that seals the plan.
        count: rules; fewer are the first of more.
        half: `second` is for later looks.

    Raises:
        UserError: there is no commit, no rule, or no such half.
    """
    if not commit or count < 1 or half not in get_args(Half):
        raise UserError(
            f"drawn_rules of commit={commit!r}, count={count}, half={half!r}: expected the hash of "
            f"a commit, at least one rule, and one of {', '.join(get_args(Half))}"
        )
    draw = Random(f"{commit}:{half}")
    seen = {rule.name for rule in development_rules()}
    turns = dict.fromkeys(STRATA, 0)
    rules: list[RuleSpec] = []
    while len(rules) < count:
        stratum = TURNS[len(rules) % len(TURNS)]
        rule = drawn_rule(draw, stratum, turns[stratum])
        if rule.name not in seen and half_of(rule, commit) == half:
            seen.add(rule.name)
            rules.append(rule)
            turns[stratum] += 1
    return rules


def half_of(rule: RuleSpec, commit: str) -> Half:
    """The half that a rule is in."""
    digest = hashlib.sha256(f"{commit}:{rule.name}".encode()).digest()
    return "second" if digest[0] % 2 else "first"


def drawn_rule(draw: Random, stratum: str, turn: int) -> RuleSpec:
    """A rule of a stratum.

    Args:
        draw: random numbers.
        stratum: of `STRATA`.
        turn: how many rules of the stratum there are already.
    """
    name = draw.choice(STRATA[stratum])
    kind = KINDS[name]
    is_many = stratum == "classes"
    rule = RuleSpec(
        name,
        cues=draw.choice(kind.cues),
        classes=draw.choice([each for each in kind.classes if each > 2] if is_many else [0]),
        minority=RARE_SHARES[turn % 3] if stratum == "rare" else draw.choice(COMMON_SHARES),
        noise=draw.choice((0.0, 0.0, 0.0, 0.05, 0.1)),
        position=draw.choice(kind.positions),
        lexicon=draw.choice((1, 1, 4) if kind.is_hard else (1, 1, 4, 15)),
        share=draw.choice((0.2, 0.5, 0.8)) if kind.has_share else 0.5,
        surroundings=draw.choice(SURROUNDINGS),
    )
    longer = [length for length in LENGTHS if length[0] >= rule.least_words]
    lengths = [rule.length, rule.length, *longer]
    return replace(rule, length=draw.choice(lengths))
