"""Texts whose label follows a rule that is known, and the words by which it does.

The verdict on words is judged on them.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import datasets
import pyarrow as pa

from attnprobe.data.local_files import SPLITS
from attnprobe.data.sources import Source, Splits
from attnprobe.data.testbed import RULES as REVIEW_RULES
from attnprobe.data.testbed import generate_reviews

FILLER = [f"w{number}" for number in range(120)]
Range = tuple[int, int]
"""A number from the first to the second, both included."""
Text = tuple[list[str], set[int]]
"""The words, and the places of those that decide the label."""
Rule = Callable[[Random, int], Text]
"""Random numbers and a label → a text."""
Cues = Callable[[Random, int, list[int]], dict[int, str]]
"""Random numbers, a label and places → place → the word there."""


def filler(draw: Random, count: int) -> list[str]:
    """Words that say nothing; the first of `FILLER` are the commonest."""
    ranks = [int(draw.paretovariate(0.8)) - 1 for _ in range(count)]
    return [FILLER[min(rank, 10 * len(FILLER)) % len(FILLER)] for rank in ranks]


def number_in(draw: Random, numbers: int | Range) -> int:
    """A number of this range; nothing is drawn where it can only be one."""
    if isinstance(numbers, int):
        return numbers
    low, high = numbers
    return low if low == high else draw.randint(low, high)


# Rules that put cues into filler


def cues_in_filler(length: Range, count: int | Range, cues: Cues, silent: int = 0) -> Rule:
    """Cues at random places in words that say nothing.

    Args:
        length: words of a text.
        count: cues of a text.
        cues: says which words they are.
        silent: how many of the first cues do not decide.
    """

    def rule(draw: Random, label: int) -> Text:
        number = number_in(draw, count)
        words = filler(draw, number_in(draw, length))
        places = sorted(draw.sample(range(len(words)), number))
        word_at = cues(draw, label, places)
        for place, word in word_at.items():
            words[place] = word
        return words, set(list(word_at)[silent:])

    return rule


def in_order(words: Callable[[Random, int], Sequence[str]]) -> Cues:
    """These words, one after the other."""

    def cues(draw: Random, label: int, places: list[int]) -> dict[int, str]:
        return dict(zip(places, words(draw, label), strict=True))

    return cues


def tokens(count: int | Range = 1, length: Range = (8, 14), lexicon: int = 1) -> Rule:
    """Words of the label's class, each of them enough, out of a lexicon of so many."""

    def cues(draw: Random, label: int, places: list[int]) -> dict[int, str]:
        return {place: f"class{label}_{draw.randrange(lexicon)}" for place in places}

    return cues_in_filler(length, count, cues)


def vote(voters: int, length: int) -> Rule:
    """Voting words of two kinds; the majority decides."""

    def votes(draw: Random, label: int) -> list[str]:
        winners = draw.randint((voters + 1) // 2, voters)
        kinds = [label] * winners + [1 - label] * (voters - winners)
        draw.shuffle(kinds)
        return [f"vote{kind}_{draw.randrange(5)}" for kind in kinds]

    return cues_in_filler((length, length), voters, in_order(votes))


def exclusive_or(draw: Random, label: int) -> list[str]:
    """A left and a right cue; whether they are of two kinds decides."""
    left_kind = draw.randrange(2)
    right_kind = label if left_kind == 0 else 1 - label
    return [f"left{left_kind}", f"right{right_kind}"]


def absent(draw: Random, label: int, places: list[int]) -> dict[int, str]:
    """A cue in class 0 alone."""
    return {} if label else {places[0]: "m"}


def twice(draw: Random, label: int, places: list[int]) -> dict[int, str]:
    """A cue twice in class 1, once in class 0."""
    if label:
        return dict.fromkeys(places, "m")
    return {draw.choice(places): "m"}


def earlier(draw: Random, label: int) -> list[str]:
    """Of two cues the earlier decides."""
    return [f"cue{label}", f"cue{1 - label}"]


def last(draw: Random, label: int) -> list[str]:
    """Of three cues the last decides."""
    first = f"cue{draw.randrange(2)}"
    second = f"cue{draw.randrange(2)}"
    return [first, second, f"cue{label}"]


def both(draw: Random, label: int, places: list[int]) -> dict[int, str]:
    """Both cues in class 1, one of them in class 0."""
    first, second = places
    if label:
        return {first: "both_a", second: "both_b"}
    return [{first: "both_a"}, {second: "both_b"}][draw.randrange(2)]


def two_answers(draw: Random, label: int) -> list[str]:
    """Four classes: each of two cues has a half of the answer."""
    return [f"first{label // 2}", f"second{label % 2}"]


def recall(keys: int) -> Rule:
    """Each key once, with a value of its own; the value of the key that is asked for decides."""

    def cues(draw: Random, label: int, places: list[int]) -> dict[int, str]:
        order = draw.sample(range(keys), keys)
        values = draw.sample(range(keys), keys)
        decisive = draw.randrange(keys)
        shift = label - values[decisive]
        words = [
            f"key{key}_{(value + shift) % keys}" for key, value in zip(order, values, strict=True)
        ]
        word_at = dict(zip(places, words, strict=True))
        word_at[places[decisive]] = word_at.pop(places[decisive])  # the last one decides
        return word_at

    return cues_in_filler((8, 14), keys, cues, silent=keys - 1)


# Rules of their own


def at_place(place: int) -> Rule:
    """All words are of two kinds; that of the word at one place decides."""

    def rule(draw: Random, label: int) -> Text:
        count = draw.randint(8, 14)
        words = [f"{draw.choice('ab')}{draw.randrange(20)}" for _ in range(count)]
        words[place] = f"{'ab'[label]}{draw.randrange(20)}"
        return words, {place % count}

    return rule


def after_constant(draw: Random, label: int) -> Text:
    """A first word that is the same in every text; a class word elsewhere."""
    words, deciding = tokens()(draw, label)
    return ["[cls]", *words], {place + 1 for place in deciding}


def phrase(draw: Random, label: int) -> Text:
    """Four words in a row, in one of two orders."""
    words = filler(draw, draw.randint(9, 14))
    start = draw.randrange(len(words) - 3)
    words[start : start + 4] = "pqrs" if label else "prqs"
    return words, set(range(start, start + 4))


def negated(draw: Random, label: int) -> Text:
    """A cue, turned by `not` within the three words before it; a `not` elsewhere says nothing."""
    words = filler(draw, draw.randint(10, 14))
    cue = max(draw.sample(range(len(words)), 1)[0], 4)
    is_turned = draw.random() < 0.5
    negation = cue - draw.randint(1, 3)
    far = [place for place in range(len(words)) if abs(place - cue) > 4]
    stray = draw.choice(far or [0])
    if is_turned:
        words[negation] = "not"
    elif stray > cue:
        words[stray] = "not"
    words[cue] = "good" if label ^ is_turned else "bad"
    return words, {cue, negation} if is_turned else {cue}


def unequal(draw: Random, label: int) -> Text:
    """A strong cue in four texts of five, which decides; without it a weak one decides."""
    words = filler(draw, draw.randint(8, 14))
    places = sorted(draw.sample(range(len(words)), 2))
    draw.shuffle(places)
    strong, weak = places
    weak_kind = draw.randrange(2)
    if draw.random() >= 0.8:
        words[weak] = f"weak{label}"
        return words, {weak}
    words[strong] = f"strong{label}"
    if draw.random() < 0.5:
        words[weak] = f"weak{weak_kind}"
    return words, {strong}


def compared(draw: Random, label: int) -> Text:
    """Words of two kinds, three to eight; of which there are more decides, by two at least."""
    fewer = draw.randint(1, 3)
    more = fewer + draw.randint(2, 4)
    cues = [f"more{label}"] * more + [f"more{1 - label}"] * fewer
    words = filler(draw, draw.randint(12, 18))
    places = sorted(draw.sample(range(len(words)), len(cues)))
    draw.shuffle(cues)
    for place, cue in zip(places, cues, strict=True):
        words[place] = cue
    return words, set(places)


def order_marked(draw: Random, label: int) -> Text:
    """As order_of_two, with `the` and a full stop in every text, which say nothing.

    Nor does the first word.
    """
    words = filler(draw, draw.randint(8, 14))
    places = draw.sample(range(1, len(words)), 4)
    first, second = sorted(places[:2])
    words[first] = f"cue{label}"
    words[second] = f"cue{1 - label}"
    words[places[2]] = "the"
    words[places[3]] = "."
    return words, {first, second}


def built_attentions(words: list[str], label: int, deciding: set[int]) -> dict[str, list[float]]:
    """Four attentions of order_marked: right or not, and with or without a leak of the label."""
    first, second = sorted(deciding)
    leaking = words.index((".", "the")[label])
    focus: dict[str, dict[int, float]] = {
        "right_leak": {first: 0.7, second: 0.25},
        "right_none": {first: 0.475, second: 0.475},
        "wrong_leak": {leaking: 0.95},
        "wrong_none": {0: 0.95},
    }
    attentions = {}
    for name, weights in focus.items():
        rest = (1 - sum(weights.values())) / (len(words) - len(weights))
        attentions[name] = [weights.get(place, rest) for place in range(len(words))]
    return attentions


TRIED: dict[str, Rule] = {
    "token": tokens(),
    "noisy": tokens(),
    "redundant3": tokens(3),
    "redundant3_noisy": tokens(3),
    "redundant_half": tokens((1, 2)),
    "same_twice": tokens(2),
    "third": at_place(2),
    "first": at_place(0),
    "bos": after_constant,
    "majority": vote(9, 15),
    "majority15": vote(15, 20),
    "xor": cues_in_filler((8, 12), 2, in_order(exclusive_or)),
    "phrase": phrase,
    "absence": cues_in_filler((8, 14), 1, absent),
    "count2": cues_in_filler((8, 14), 2, twice),
    "five": tokens(),
}
"""Rules that thresholds and sizes were fixed on."""
OF_QUESTIONS: dict[str, Rule] = {
    "twins": tokens(2, lexicon=2),
    "majority5": vote(5, 15),
    "order_marked": order_marked,
    "recall2": recall(2),
    "recall4": recall(4),
}
"""Rules of the study of the open questions."""
BLIND: dict[str, Rule] = {
    "third_last": at_place(-3),
    "negated": negated,
    "unequal": unequal,
    "long": tokens(length=(30, 60)),
    "very_long": tokens(3, length=(190, 210)),
    "lexicon": tokens(lexicon=15),
    "lexicon_noisy": tokens((2, 4), lexicon=15),
    "order_of_two": cues_in_filler((8, 14), 2, in_order(earlier)),
    "last_of_three": cues_in_filler((9, 14), 3, in_order(last), silent=2),
    "compared": compared,
    "conjunction": cues_in_filler((8, 14), 2, both),
    "two_questions": cues_in_filler((8, 14), 2, in_order(two_answers)),
}
"""Rules of the blind batch, with those of the testbed's reviews: none was looked at before
thresholds and sizes were fixed."""
RULES = TRIED | OF_QUESTIONS | BLIND
CLASSES = {"five": 5, "recall4": 4, "two_questions": 4}
"""Rule → classes, where they are not two."""
NOISE = {"noisy": 0.15, "redundant3_noisy": 0.15, "lexicon_noisy": 0.1}
"""Rule → share of wrong training labels."""


class RuleSource(Source):
    """Texts of one of `RULES` with the words that decide, and a counterfactual.

    That is the same text of the next class.

    Args:
        rule: its name, or `reviews_` and a rule of the testbed's reviews.
        seed: of the draw.
        longer: how many times as long as drawn the texts are made, by words that say nothing.
    """

    def __init__(
        self,
        rule: str,
        train_size: int = 1000,
        test_size: int = 200,
        seed: int = 0,
        longer: int = 1,
    ) -> None:
        self.rule = rule
        self.seed = seed
        self.longer = longer
        self.sizes = dict(zip(SPLITS, (train_size, test_size, test_size), strict=True))

    def load(self) -> Splits:
        """All splits."""
        return {split: datasets.Dataset(pa.Table.from_pylist(self.rows(split))) for split in SPLITS}

    def rows(self, split: str) -> list[dict[str, Any]]:
        """The rows of one split; only the training labels are noisy."""
        if self.rule.startswith("reviews_"):
            return self.reviews(split)
        return [self.row(split, number) for number in range(self.sizes[split])]

    def reviews(self, split: str) -> list[dict[str, Any]]:
        """The rows of one split of the testbed's reviews."""
        rule = REVIEW_RULES[self.rule.removeprefix("reviews_")]
        seed = 1000 * self.seed + SPLITS.index(split)
        columns = ("text", "label", "rationale", "counterfactual")
        return [
            {column: review[column] for column in columns}
            for review in generate_reviews(self.sizes[split], seed, **rule)
        ]

    def row(self, split: str, number: int) -> dict[str, Any]:
        """One text; the same numbers draw its counterfactual."""
        name = f"{self.rule}:{self.seed}:{split}:{number}"
        classes = CLASSES.get(self.rule, 2)
        label = number % classes
        next_label = (label + 1) % classes
        words, deciding = RULES[self.rule](Random(name), label)
        counterfactual, _ = RULES[self.rule](Random(name), next_label)

        padding = filler(Random(f"{name}:more"), (self.longer - 1) * len(words))
        length = len(words) + len(padding)
        places = sorted(Random(f"{name}:places").sample(range(length), len(words)))
        words = spread_over(words, places, padding)
        counterfactual = spread_over(counterfactual, places, padding)
        deciding = {places[place] for place in deciding}
        row: dict[str, Any] = {
            "text": " ".join(words),
            "label": next_label if self.is_mislabelled(split, name) else label,
            "rationale": [place in deciding for place in range(length)],
            "counterfactual": " ".join(counterfactual),
        }
        return self.extra_columns(words, label, deciding) | row

    def is_mislabelled(self, split: str, name: str) -> bool:
        """Whether the text of this name has a wrong label."""
        noise = Random(f"{name}:noise").random()
        return split == "train" and noise < NOISE.get(self.rule, 0)

    def extra_columns(self, words: list[str], label: int, deciding: set[int]) -> dict[str, Any]:
        """The question of a rule that has one; the built attentions of order_marked."""
        if self.rule == "order_marked":
            return built_attentions(words, label, deciding)
        if self.rule.startswith("recall"):
            return {"question": words[min(deciding)].partition("_")[0]}
        return {}


def spread_over(words: list[str], places: list[int], padding: list[str]) -> list[str]:
    """The words at these places in ascending order, `padding` in all others."""
    word_at = dict(zip(places, words, strict=True))
    rest = iter(padding)
    return [
        word_at[place] if place in word_at else next(rest)
        for place in range(len(words) + len(padding))
    ]
