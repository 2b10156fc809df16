"""Do intervals hold the true share, is an order by chance a yes, does a seed change a verdict?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attnprobe.evidence.deciding_words import answer_of_interval
from attnprobe.evidence.evidence import Evidence
from research.constructions.catalogue import by_absence, of_order, redundant, token
from research.constructions.models import (
    Attend,
    Construction,
    Text,
    Weights,
    on_cues,
    on_places,
    sometimes,
)
from research.constructions.samples import MeasuredTexts

MINORITIES = (0.02, 0.05, 0.1, 0.5)


@dataclass(frozen=True)
class Samples:
    """How often a construction is measured.

    Attributes:
        sizes: numbers of texts of a data set.
        runs: numbers of models that are asked together.
        data_sets: of each size.
    """

    sizes: Sequence[int]
    runs: Sequence[int]
    data_sets: int


SAMPLES = {
    "right in half": Samples(sizes=(50, 200, 400), runs=(1, 3), data_sets=30),
    "by absence": Samples(sizes=(50, 100, 200, 400), runs=(1,), data_sets=150),
}
"""By construction. Runs *by absence* are the same attention, so that one is asked."""
HALF = 0.5
"""Share of the texts in which the attention of *right in half* is on the word."""
BETWEEN_RUNS = 0.05
"""Standard deviation of that share between runs."""
ORDERS = 5
"""Random orders of the weights on a data set."""
NULL_DATA_SETS = 10
"""Of each of four constructions."""


def answer_of(share: Evidence) -> str:
    """Yes, no, open or not asked, by the interval alone."""
    return "not asked" if share.unasked else answer_of_interval(share)


@dataclass(frozen=True)
class Coverage:
    """How often the interval holds the true share: one line of the table.

    Attributes:
        base: which of `SAMPLES`.
        minority: share of the smaller class.
        texts: of a data set.
        runs: models that are asked together.
        truth: the true share, mean of all data sets of the largest size and most runs.
        shares: of each data set, with its interval.
    """

    base: str
    minority: float
    texts: int
    runs: int
    truth: float
    shares: Sequence[Evidence]

    @property
    def holds(self) -> int:
        """Data sets whose interval holds it."""
        return sum(bool(share.low <= self.truth <= share.high) for share in self.shares)

    @property
    def of_asked(self) -> "Coverage":
        """The same of the data sets alone of which the question can be asked."""
        return replace(self, shares=[share for share in self.shares if not share.unasked])

    @property
    def answers(self) -> dict[str, int]:
        """Answer → data sets."""
        answers = [answer_of(share) for share in self.shares]
        return {name: answers.count(name) for name in ("yes", "no", "open", "not asked")}

    @property
    def width(self) -> float:
        """Median width of the interval."""
        return float(np.median([share.high - share.low for share in self.shares]))


def construction_of(base: str, minority: float, texts: int) -> Construction:
    """The construction of a name in `SAMPLES`: near the threshold, or blind."""
    if base == "right in half":
        attend = sometimes(HALF, on_cues())
        return token(base, "", attend, "", minority=minority, texts=texts)
    return by_absence(base, "", on_places(0), minority, "").with_texts(texts)


def coverages(base: str, minority: float, samples: Samples) -> Iterator[Coverage]:
    """The lines of a construction with this minority, by number of texts and of runs."""
    shares: dict[tuple[int, int], list[Evidence]] = {}
    for texts in samples.sizes:
        construction = construction_of(base, minority, texts)
        for number in range(samples.data_sets):
            seed = seed_of(minority, texts, number)
            measured = MeasuredTexts.of(construction, seed)
            for runs in samples.runs:
                attentions = attention_of_runs(construction, measured.texts, seed, runs)
                line = shares.setdefault((texts, runs), [])
                line.append(measured.share(attentions))

    largest_samples = shares[samples.sizes[-1], samples.runs[-1]]
    truth = float(np.mean([share.value for share in largest_samples]))
    for (texts, runs), line in shares.items():
        yield Coverage(base, minority, texts, runs, truth, line)


def seed_of(minority: float, texts: int, number: int) -> int:
    """Of a data set by its number, another one for each line of the table."""
    return 1_000_000 * round(100 * minority) + 1000 * texts + number


def attention_of_runs(
    construction: Construction, texts: Sequence[Text], seed: int, runs: int
) -> list[list[Weights]]:
    """The weights of each run, `[runs][texts]`: several runs differ in how often they are right."""
    attentions = []
    for run in range(runs):
        draw = np.random.default_rng((seed, runs, run))
        attend: Attend = construction.attend
        if runs > 1 and construction.name == "right in half":
            attend = sometimes(draw.normal(HALF, BETWEEN_RUNS), on_cues())
        attentions.append([attend(draw, text) for text in texts])
    return attentions


def random_orders() -> list[Evidence]:
    """The shares of 200 attentions whose weights are in random order."""
    bases = [
        token("", "", on_cues(), ""),
        of_order(3, on_places(-1, weight=0.7), "", "", last=True),
        redundant(on_cues(0), ""),
        by_absence("", "", on_places(0), 0.25, ""),
    ]
    shares = []
    for base in bases:
        for seed in range(NULL_DATA_SETS):
            measured = MeasuredTexts.of(base, seed)
            draw = np.random.default_rng((seed, 77))
            for _ in range(ORDERS):
                weights = [draw.permutation(base.attend(draw, text)) for text in measured.texts]
                shares.append(measured.share([weights]))
    return shares


@dataclass(frozen=True)
class SeedChanges:
    """What the seed of the probe alone changes.

    Attributes:
        right: share of the texts in which the attention is right.
        shares: one per seed; texts, model and attention are the same.
    """

    right: float
    shares: Sequence[Evidence]

    @property
    def answers(self) -> list[str]:
        """One per seed."""
        return [answer_of(share) for share in self.shares]

    @property
    def changed(self) -> int:
        """Seeds with another answer than most."""
        counts = [self.answers.count(answer) for answer in set(self.answers)]
        return len(self.answers) - max(counts)


def seed_changes(seeds: int, rights: Sequence[float]) -> list[SeedChanges]:
    """The shares of attentions that are right in this share of the texts, one per seed."""
    construction = token("", "", on_cues(), "")
    attends = [sometimes(right, on_cues()) for right in rights]
    shares: list[list[Evidence]] = [[] for _ in rights]
    for seed in range(seeds):
        measured = MeasuredTexts.of(construction, seed=0, probe_seed=seed)
        for number, attend in enumerate(attends):
            draw = np.random.default_rng(number)
            weights = [attend(draw, text) for text in measured.texts]
            shares[number].append(measured.share([weights]))
    return [SeedChanges(right, line) for right, line in zip(rights, shares, strict=True)]
