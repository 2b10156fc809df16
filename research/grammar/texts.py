"""Texts of a rule: filler words in which the cues of the rule stand."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise
from random import Random
from typing import Any

import datasets
import pyarrow as pa

from attnprobe.core.settings import Seed
from attnprobe.data.local_files import SPLITS
from attnprobe.data.sources import Source, Splits
from research.grammar.spec import KINDS, RuleSpec

FILLER = [f"w{number}" for number in range(120)]
"""Words that say nothing, the commonest first."""
FREQUENCIES = list(accumulate(1 / rank for rank in range(1, len(FILLER) + 1)))
"""Zipf's law, summed up."""
AROUND = {"ends": (("[start]",), ("[end]",)), "template": (("this", "text", "says"), ())}
"""Surroundings → words before and after all others, the same in every text."""
COMMON = "the"


class GrammarSource(Source):
    """Texts of a rule with the words that decide, and a counterfactual: the text of the next class.

    Each row has `text`, `label`, `rationale` (the words that decide; none where something missing
    does), `counterfactual` and `counterfactual_rationale` (the words that decide that one), and for
    attentions that are wrong by construction `overridden` (cues that do not decide) and `region`
    (where cues stand, but for those that decide). Validation and test texts are as many.

    Args:
        rule: the name of a `RuleSpec`.
        train_size: training texts; 0: as many as most models need.
        test_size: test texts; 0: as many as the rule recommends.
        seed: of the draw.
    """

    def __init__(self, rule: str, train_size: int = 0, test_size: int = 0, seed: Seed = 0) -> None:
        self.spec = RuleSpec.named(rule)
        self.seed = seed
        test = test_size or self.spec.test_size
        train = train_size or self.spec.train_size
        self.sizes = dict(zip(SPLITS, (train, test, test), strict=True))

    def load(self) -> Splits:
        """All splits; those that the last source of this process wrote are written once."""
        tables = written_tables(self.spec, self.seed, tuple(self.sizes.values()))
        splits = zip(SPLITS, tables, strict=True)
        return {split: datasets.Dataset(table) for split, table in splits}

    def rows(self, split: str) -> list[dict[str, Any]]:
        """The rows of one split; only the training labels are noisy."""
        rows = []
        for number, label in enumerate(labels(self.spec, self.sizes[split])):
            key = f"{self.spec.name}:{self.seed}:{split}:{number}"
            row = row_of(self.spec, key, label)
            if split == "train" and Random(f"{key}:noise").random() < self.spec.noise:
                row["label"] = (label + 1) % self.spec.classes
            rows.append(row)
        return rows


@lru_cache(maxsize=1)
def written_tables(spec: RuleSpec, seed: int, sizes: tuple[int, ...]) -> tuple[pa.Table, ...]:
    """The texts of every split, of so many texts each; an audit reads the same ones six times."""
    train, _, test = sizes
    source = GrammarSource(spec.name, train, test, seed)
    return tuple(pa.Table.from_pylist(source.rows(split)) for split in SPLITS)


def labels(spec: RuleSpec, count: int) -> list[int]:
    """So many labels; the first n have each class in its share, up to one text."""
    smallest = spec.classes - 1
    share = round(100 * spec.minority)
    if spec.minority >= 1 / spec.classes:
        return [number % spec.classes for number in range(count)]
    labels = []
    for number in range(count):
        rare_before = number * share // 100
        rare_until_here = (number + 1) * share // 100
        is_rare = rare_until_here > rare_before
        labels.append(smallest if is_rare else (number - rare_before) % smallest)
    return labels


def row_of(spec: RuleSpec, key: str, label: int) -> dict[str, Any]:
    """One text; the same random numbers draw its counterfactual."""
    next_label = (label + 1) % spec.classes
    count = length_of(spec, key, label)
    next_count = length_of(spec, key, next_label) if spec.kind == "length" else count
    text = written(spec, key, label, count)
    counterfactual = written(spec, key, next_label, next_count)

    def marks(marked: set[int]) -> list[float]:
        return [float(place in marked) for place in range(len(text.words))]

    return {
        "text": " ".join(text.words),
        "label": label,
        "rationale": [place in text.deciding for place in range(len(text.words))],
        "counterfactual": " ".join(counterfactual.words),
        "counterfactual_rationale": marks(counterfactual.deciding),
        "overridden": marks(text.overridden),
        "region": marks(text.region),
    }


@dataclass(frozen=True)
class Text:
    """A text of a rule.

    Attributes:
        words: of the text.
        deciding: places of the words that decide.
        overridden: places of the cues that do not.
        region: places where cues stand, but for `deciding`; none where they stand anywhere.
    """

    words: list[str]
    deciding: set[int]
    overridden: set[int]
    region: set[int]


def written(spec: RuleSpec, key: str, label: int, count: int) -> Text:
    """The text of a label.

    Args:
        spec: the rule.
        key: of the random numbers.
        label: of the text.
        count: words, but for those around.
    """
    words = filler(Random(f"{key}:filler"), count)
    if spec.surroundings == "common":
        words[::3] = [COMMON] * len(words[::3])

    before, after = AROUND.get(spec.surroundings, ((), ()))
    shift = len(before)
    deciding: set[int] = set()
    overridden: set[int] = set()
    slots = KINDS[spec.kind].cues_of(spec, Random(f"{key}:cues"), label)
    places = places_of(spec, Random(f"{key}:places"), count, len(slots))
    for place, cue in zip(places, slots, strict=True):
        if cue is None:
            continue
        words[place] = cue.word
        places_of_kind = deciding if cue.decides else overridden
        places_of_kind.add(place + shift)

    cue_region = region_of(spec, count)
    region: set[int] = set()
    if len(cue_region) < count:
        region = {place + shift for place in cue_region} - deciding
    return Text([*before, *words, *after], deciding, overridden, region)


def filler(draw: Random, count: int) -> list[str]:
    """Words that say nothing, by Zipf's law."""
    return draw.choices(FILLER, cum_weights=FREQUENCIES, k=count)


def length_of(spec: RuleSpec, key: str, label: int) -> int:
    """Words of a text, but for those around.

    It tells the label with the kind `length`; with the surroundings `lengths` two texts of three of
    the last class are among the longer ones, as are one of three of every other.
    """
    draw = Random(f"{key}:length")
    low, high = spec.length
    middle = (low + high) // 2
    shorter = (low, middle - 1)
    longer = (middle + 1, high)
    if spec.kind == "length":
        return draw.randint(*(longer if label else shorter))
    if spec.surroundings == "lengths":
        is_typical = draw.randrange(3) > 0
        is_last = label == spec.classes - 1
        return draw.randint(*(longer if is_typical == is_last else shorter))
    return draw.randint(low, high)


def region_of(spec: RuleSpec, count: int) -> range:
    """The part of a text of so many words in which the cues stand."""
    third = max(count // 3, spec.cues, 3)
    if spec.position in ("lead", "first"):
        return range(third)
    if spec.position in ("tail", "last"):
        return range(count - third, count)
    if spec.position == "middle":
        start = (count - third) // 2
        return range(start, start + third)
    return range(count)


def places_of(spec: RuleSpec, draw: Random, count: int, slots: int) -> list[int]:
    """The places of the slots, in their order."""
    region = region_of(spec, count)
    if spec.kind == "place":
        decisive = decisive_place(spec, count)
        free = [place for place in range(count) if place != decisive]
        return [decisive, *draw.sample(free, slots - 1)]
    if spec.position == "together":
        start = draw.randrange(count - slots + 1)
        return list(range(start, start + slots))
    if spec.position == "far":
        # each part begins with filler: no two cues are neighbours
        bounds = [part * count // slots for part in range(slots + 1)]
        return [draw.randrange(low + 1, high) for low, high in pairwise(bounds)]
    return sorted(draw.sample(region, slots))


def decisive_place(spec: RuleSpec, count: int) -> int:
    """The place that decides texts of so many words, by a rule of the kind `place`."""
    place_at = {
        "first": 0,
        "lead": 2,
        "middle": count // 2,
        "tail": count - 3,
        "last": count - 1,
    }
    return place_at[spec.position]
