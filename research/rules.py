"""Texts whose label follows a rule that is known, and the words by which it does: what the verdict
on words is judged on."""

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import datasets
import pyarrow as pa

from attnprobe.data.local_files import SPLITS
from attnprobe.data.sources import Source, Splits
from attnprobe.data.testbed import RULES as REVIEW_RULES
from attnprobe.data.testbed import generate_reviews

FILLER = [f"w{number}" for number in range(120)]
Between = tuple[int, int]
Row = tuple[list[str], set[int]]
Make = Callable[[Random, int], Row]
Say = Callable[[Random, int, list[int]], dict[int, str]]
"""Label → words, and the places of those that decide it; label and places → the words there."""


def filler(draw: Random, words: int) -> list[str]:
    """Words that say nothing; the first are the commonest."""
    return [
        FILLER[min(int(draw.paretovariate(0.8)) - 1, 10 * len(FILLER)) % len(FILLER)]
        for _ in range(words)
    ]


def put(words: Between, count: int | Between, say: Say, first: int = 0) -> Make:
    """So many words into filler, as `say` has them; those from `first` on decide."""

    def make(draw: Random, label: int) -> Row:
        many = count if isinstance(count, int) else draw.randint(*count)
        text = filler(draw, words[0] if words[0] == words[1] else draw.randint(*words))
        said = say(draw, label, sorted(draw.sample(range(len(text)), many)))
        return [said.get(place, word) for place, word in enumerate(text)], set([*said][first:])

    return make


def in_order(say: Callable[[Random, int], Iterable[str]]) -> Say:
    """These words at all places, one after the other."""
    return lambda draw, label, places: dict(zip(places, say(draw, label), strict=True))


def tokens(count: int | Between = 1, words: Between = (8, 14), lexicon: int = 1) -> Make:
    """Words of the label's class, each of them enough, out of a lexicon of so many."""
    return put(
        words,
        count,
        lambda draw, label, places: {
            place: f"class{label}_{draw.randrange(lexicon)}" for place in places
        },
    )


def vote(voters: int, words: int) -> Make:
    """Voting words of two kinds; the majority decides."""

    def say(draw: Random, label: int, places: list[int]) -> dict[int, str]:
        winners = draw.randint((voters + 1) // 2, voters)
        kinds = [label] * winners + [1 - label] * (voters - winners)
        draw.shuffle(kinds)
        return {
            place: f"vote{kind}_{draw.randrange(5)}"
            for place, kind in zip(places, kinds, strict=True)
        }

    return put((words, words), voters, say)


def at_place(place: int) -> Make:
    """All words are of two kinds; that of the word at one place decides."""

    def make(draw: Random, label: int) -> Row:
        text = [f"{draw.choice('ab')}{draw.randrange(20)}" for _ in range(draw.randint(8, 14))]
        text[place] = f"{'ab'[label]}{draw.randrange(20)}"
        return text, {place % len(text)}

    return make


def after_constant(draw: Random, label: int) -> Row:
    """A first word that is the same in every text; a class word elsewhere."""
    text, places = tokens()(draw, label)
    return ["[cls]", *text], {place + 1 for place in places}


def phrase(draw: Random, label: int) -> Row:
    """Four words in a row, in one of two orders."""
    text = filler(draw, draw.randint(9, 14))
    start = draw.randrange(len(text) - 3)
    text[start : start + 4] = "pqrs" if label else "prqs"
    return text, set(range(start, start + 4))


def negated(draw: Random, label: int) -> Row:
    """A cue, turned by `not` within the three words before it; a `not` elsewhere says nothing."""
    text = filler(draw, draw.randint(10, 14))
    cue = max(draw.sample(range(len(text)), 1)[0], 4)
    turned = draw.random() < 0.5
    scope = cue - draw.randint(1, 3)
    stray = draw.choice([place for place in range(len(text)) if abs(place - cue) > 4] or [0])
    if turned:
        text[scope] = "not"
    elif stray > cue:
        text[stray] = "not"
    text[cue] = "good" if label ^ turned else "bad"
    return text, {cue, scope} if turned else {cue}


def unequal(draw: Random, label: int) -> Row:
    """A strong cue in four texts of five, which decides; a weak one that decides where it is
    alone."""
    text = filler(draw, draw.randint(8, 14))
    places = sorted(draw.sample(range(len(text)), 2))
    draw.shuffle(places)
    strong, weak = places
    weak_kind = draw.randrange(2)
    if draw.random() >= 0.8:
        text[weak] = f"weak{label}"
        return text, {weak}
    text[strong] = f"strong{label}"
    if draw.random() < 0.5:
        text[weak] = f"weak{weak_kind}"
    return text, {strong}


def compared(draw: Random, label: int) -> Row:
    """Words of two kinds, three to eight; of which there are more decides, by two at least."""
    fewer = draw.randint(1, 3)
    said = [f"more{label}"] * (fewer + draw.randint(2, 4)) + [f"more{1 - label}"] * fewer
    text, places = put((12, 18), len(said), lambda _, label, places: dict.fromkeys(places, ""))(
        draw, label
    )
    draw.shuffle(said)
    for place, word in zip(sorted(places), said, strict=True):
        text[place] = word
    return text, places


def recall(keys: int) -> Make:
    """Each key once, with a value of its own; the value of the key that is asked for decides."""

    def say(draw: Random, label: int, places: list[int]) -> dict[int, str]:
        order = draw.sample(range(keys), keys)
        values = draw.sample(range(keys), keys)
        asked = draw.randrange(keys)
        own = [(value - values[asked] + label) % keys for value in values]
        said = {
            place: f"key{key}_{value}" for place, key, value in zip(places, order, own, strict=True)
        }
        said[places[asked]] = said.pop(places[asked])  # the last one decides
        return said

    return put((8, 14), keys, say, first=-1)


def order_marked(draw: Random, label: int) -> Row:
    """As order_of_two, with `the` and a full stop in every text, which say nothing; nor does the
    first word."""
    text = filler(draw, draw.randint(8, 14))
    places = draw.sample(range(1, len(text)), 4)
    cues = sorted(places[:2])
    for place, word in zip(
        [*cues, *places[2:]], [f"cue{label}", f"cue{1 - label}", "the", "."], strict=True
    ):
        text[place] = word
    return text, set(cues)


def built(tokens: list[str], label: int, deciding: set[int]) -> dict[str, list[float]]:
    """Four attentions of order_marked: right or not, and telling the label by where they lie or
    not."""
    first, second = sorted(deciding)
    leak = tokens.index((".", "the")[label])
    focus = {
        "right_leak": {first: 0.7, second: 0.25},
        "right_none": {first: 0.475, second: 0.475},
        "wrong_leak": {leak: 0.95},
        "wrong_none": {0: 0.95},
    }
    return {
        name: [
            on.get(place, (1 - sum(on.values())) / (len(tokens) - len(on)))
            for place in range(len(tokens))
        ]
        for name, on in focus.items()
    }


BOTH = ("both_a", "both_b")
RULES: dict[str, Make] = {
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
    "xor": put(
        (8, 12),
        2,
        in_order(
            lambda draw, label: [("left0", f"right{label}"), ("left1", f"right{1 - label}")][
                draw.randrange(2)
            ]
        ),
    ),
    "phrase": phrase,
    "absence": put((8, 14), 1, lambda _, label, places: {} if label else {places[0]: "m"}),
    "count2": put(
        (8, 14),
        2,
        lambda draw, label, places: dict.fromkeys(places if label else [draw.choice(places)], "m"),
    ),
    "five": tokens(),
    # of the study of the open questions
    "twins": tokens(2, lexicon=2),
    "majority5": vote(5, 15),
    "order_marked": order_marked,
    "recall2": recall(2),
    "recall4": recall(4),
    # none of these was looked at before thresholds and sizes were fixed
    "third_last": at_place(-3),
    "negated": negated,
    "unequal": unequal,
    "long": tokens(words=(30, 60)),
    "very_long": tokens(3, words=(190, 210)),
    "lexicon": tokens(lexicon=15),
    "lexicon_noisy": tokens((2, 4), lexicon=15),
    # of two cues the earlier decides, of three the last
    "order_of_two": put((8, 14), 2, in_order(lambda _, label: [f"cue{label}", f"cue{1 - label}"])),
    "last_of_three": put(
        (9, 14),
        3,
        in_order(lambda draw, label: [*(f"cue{draw.randrange(2)}" for _ in "ab"), f"cue{label}"]),
        first=2,
    ),
    "compared": compared,
    "conjunction": put(
        (8, 14),
        2,
        lambda draw, label, places: (
            dict(zip(places, BOTH, strict=True))
            if label
            else [{places[0]: BOTH[0]}, {places[1]: BOTH[1]}][draw.randrange(2)]
        ),
    ),
    "two_questions": put(
        (8, 14), 2, in_order(lambda _, label: [f"first{label // 2}", f"second{label % 2}"])
    ),
}
CLASSES = {"five": 5, "recall4": 4, "two_questions": 4}
NOISE = {"noisy": 0.15, "redundant3_noisy": 0.15, "lexicon_noisy": 0.1}
"""Of rules with more than two classes, or with wrong training labels."""
BLIND = [*RULES][21:]
"""Rules of the blind batch, with those of the testbed's reviews."""


class RuleSource(Source):
    """Texts of one of `RULES`, with the words that decide and a counterfactual: the same text of
    the next class. `seed`: of the draw; `longer`: how many times as long as drawn the texts are
    made, by words that say nothing."""

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
        return {split: datasets.Dataset(pa.Table.from_pylist(self.rows(split))) for split in SPLITS}

    def rows(self, split: str) -> list[dict[str, Any]]:
        """Of one split; only the training labels are noisy."""
        if self.rule.startswith("reviews_"):
            rule = REVIEW_RULES[self.rule.removeprefix("reviews_")]
            made = generate_reviews(
                self.sizes[split], 1000 * self.seed + SPLITS.index(split), **rule
            )
            return [
                {name: one[name] for name in ("text", "label", "rationale", "counterfactual")}
                for one in made
            ]
        make = RULES[self.rule]
        classes = CLASSES.get(self.rule, 2)
        noise = NOISE.get(self.rule, 0)
        rows = []
        for number in range(self.sizes[split]):
            name = f"{self.rule}:{self.seed}:{split}:{number}"
            label = number % classes
            tokens, deciding = make(Random(name), label)
            other, _ = make(Random(name), (label + 1) % classes)
            wrong = split == "train" and Random(f"{name}:noise").random() < noise
            more = filler(Random(f"{name}:more"), (self.longer - 1) * len(tokens))
            places = sorted(
                Random(f"{name}:places").sample(range(len(tokens) + len(more)), len(tokens))
            )
            deciding = {places[place] for place in deciding}
            for text in (tokens, other):
                rest = iter(more)
                own = dict(zip(places, text, strict=True))
                text[:] = [
                    own[place] if place in own else next(rest)
                    for place in range(len(own) + len(more))
                ]
            asked = (
                {"question": tokens[min(deciding)].partition("_")[0]}
                if self.rule.startswith("recall")
                else {}
            )
            extra: dict[str, Any] = (
                built(tokens, label, deciding) if self.rule == "order_marked" else asked
            )
            rows.append(
                extra
                | {
                    "text": " ".join(tokens),
                    "label": (label + 1) % classes if wrong else label,
                    "rationale": [place in deciding for place in range(len(tokens))],
                    "counterfactual": " ".join(other),
                }
            )
        return rows
