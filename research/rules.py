"""Texts of the rules that the open questions are asked on, with the words that decide.

They are longer at will, ask a question, or come with built attentions. What the verdict on words is
judged on is `research.grammar`.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import datasets
import pyarrow as pa

from attnprobe.data.local_files import SPLITS
from attnprobe.data.sources import Source, Splits

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
    words = []
    for _ in range(count):
        rank = int(draw.paretovariate(0.8)) - 1
        word = min(rank, 10 * len(FILLER)) % len(FILLER)
        words.append(FILLER[word])
    return words


# Rules that put cues into filler


def cues_in_filler(
    draw: Random, label: int, *, length: Range, count: int, cues: Cues, silent: int = 0
) -> Text:
    """Cues at random places in words that say nothing.

    Args:
        draw: random numbers.
        label: of the text.
        length: words of a text.
        count: cues of a text.
        cues: says which words they are.
        silent: how many of the first cues do not decide.
    """
    low, high = length
    size = low if low == high else draw.randint(low, high)
    words = filler(draw, size)
    places = sorted(draw.sample(range(size), count))
    word_at = cues(draw, label, places)
    for place, word in word_at.items():
        words[place] = word
    deciding = list(word_at)[silent:]
    return words, set(deciding)


def class_words(draw: Random, label: int, places: list[int], *, lexicon: int) -> dict[int, str]:
    """Words of the label's class, each of them enough, out of a lexicon of so many."""
    return {place: f"class{label}_{draw.randrange(lexicon)}" for place in places}


def votes(draw: Random, label: int, places: list[int]) -> dict[int, str]:
    """Voting words of two kinds; the majority decides."""
    voters = len(places)
    winners = draw.randint((voters + 1) // 2, voters)
    kinds = [label] * winners + [1 - label] * (voters - winners)
    draw.shuffle(kinds)
    words = [f"vote{kind}_{draw.randrange(5)}" for kind in kinds]
    return dict(zip(places, words, strict=True))


def keys_with_values(draw: Random, label: int, places: list[int]) -> dict[int, str]:
    """Each key once, with a value of its own; the value of the key that is asked for decides."""
    keys = len(places)
    order = draw.sample(range(keys), keys)
    values = draw.sample(range(keys), keys)
    decisive = draw.randrange(keys)
    shift = label - values[decisive]
    word_at = {}
    for place, key, value in zip(places, order, values, strict=True):
        word_at[place] = f"key{key}_{(value + shift) % keys}"
    word_at[places[decisive]] = word_at.pop(places[decisive])  # the last one decides
    return word_at


def recall(keys: int) -> Rule:
    """The rule of `keys_with_values`: of so many cues the last alone decides."""
    return partial(
        cues_in_filler, length=(8, 14), count=keys, cues=keys_with_values, silent=keys - 1
    )


def negated(draw: Random, label: int) -> Text:
    """A cue, turned by `not` within the three words before it; a `not` elsewhere says nothing."""
    words = filler(draw, draw.randint(10, 14))
    (place,) = draw.sample(range(len(words)), 1)
    cue = max(place, 4)
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
        free = 1 - sum(weights.values())
        rest = free / (len(words) - len(weights))
        attentions[name] = [weights.get(place, rest) for place in range(len(words))]
    return attentions


RULES: dict[str, Rule] = {
    "token": partial(cues_in_filler, length=(8, 14), count=1, cues=partial(class_words, lexicon=1)),
    "twins": partial(cues_in_filler, length=(8, 14), count=2, cues=partial(class_words, lexicon=2)),
    "majority5": partial(cues_in_filler, length=(15, 15), count=5, cues=votes),
    "order_marked": order_marked,
    "negated": negated,
    "recall2": recall(2),
    "recall4": recall(4),
}
CLASSES = {"recall4": 4}
"""Rule → classes, where they are not two."""


class RuleSource(Source):
    """Texts of one of `RULES` with the words that decide, and a counterfactual.

    That is the same text of the next class.

    Args:
        rule: its name.
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
        splits = {}
        for split in SPLITS:
            table = pa.Table.from_pylist(self.rows(split))
            splits[split] = datasets.Dataset(table)
        return splits

    def rows(self, split: str) -> list[dict[str, Any]]:
        """The rows of one split."""
        return [self.row(split, number) for number in range(self.sizes[split])]

    def row(self, split: str, number: int) -> dict[str, Any]:
        """One text; the same numbers draw its counterfactual."""
        name = f"{self.rule}:{self.seed}:{split}:{number}"
        write = RULES[self.rule]
        classes = CLASSES.get(self.rule, 2)
        label = number % classes
        next_label = (label + 1) % classes
        words, deciding = write(Random(name), label)
        counterfactual, _ = write(Random(name), next_label)

        padding = filler(Random(f"{name}:more"), (self.longer - 1) * len(words))
        length = len(words) + len(padding)
        places = Random(f"{name}:places").sample(range(length), len(words))
        places.sort()
        words = spread_over(words, places, padding)
        counterfactual = spread_over(counterfactual, places, padding)
        deciding = {places[place] for place in deciding}
        row: dict[str, Any] = {
            "text": " ".join(words),
            "label": label,
            "rationale": [place in deciding for place in range(length)],
            "counterfactual": " ".join(counterfactual),
        }
        return self.extra_columns(words, label, deciding) | row

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
    spread = []
    for place in range(len(words) + len(padding)):
        spread.append(word_at[place] if place in word_at else next(rest))
    return spread
