"""No interval of a claim leaves the scale of its number, whatever the numbers of the texts.

The scale is found without the claim's own word for it: metrics stand at the ends and in the middle
of their declared scales in all combinations, alike in all texts, and the number goes from the least
to the greatest that comes of it.
"""

import importlib
from itertools import product

import numpy as np
import pandas as pd
import pytest

from attnprobe.core.metrics import declared
from attnprobe.readings.registry import readings
from tests.probes.tables import table

TEXTS = 24
DRAWS = [2, pytest.param(8, marks=pytest.mark.slow)]
"""Skewed samples of one run, and as many of two: without the ends of the scales 2 notice as many
claims as 8, but for one of 37."""
MOST_DRAWS = 8
"""A few claims have no interval on the first samples."""
NO_END = 40.0
"""In the place of an end that a scale does not have."""
MOST_WITH_A_MIDDLE = 4
"""Metrics of a number up to which they stand in the middle of their scale, too."""
APART = 0.2
"""Share of the texts that stand at the other end, so that samples are skewed."""
ABOUT_LABELS = ("weight_is_on_deciding_words_of_every_label",)
"""Claims about several labels of a text: tests/probes/test_labels.py."""
CLAIMS = [
    (probe, claim)
    for probe, reading in readings().items()
    for claim in reading.claims
    if claim.name not in ABOUT_LABELS
]
NAMES = [f"{probe}-{claim.name}" for probe, claim in CLAIMS]
# a campaign: some 800 tables (2,300 of them with `pytest -m slow`) are put to their claims
pytestmark = pytest.mark.whole


def levels_of(probe, names):
    """Metric → the places on its scale at which it stands, as its probe declares it: ends first."""
    metrics = importlib.import_module(f"attnprobe.probes.{probe}").METRICS
    levels = {}
    for name in names:
        scale = declared(name, metrics).scale
        low = max(scale.low, -NO_END)
        high = min(scale.high, NO_END)
        middle = [(low + high) / 2] if len(names) <= MOST_WITH_A_MIDDLE else []
        levels[name] = np.array([low, high, *middle])
    return levels


def numbers_of_alike_texts(probe, claim, levels):
    """What a claim's number is on texts that are all alike: with metrics at their ends first."""
    places = [range(len(values)) for values in levels.values()]
    corners = sorted(product(*places), key=lambda corner: sum(place > 1 for place in corner))
    for corner in corners:
        metrics = {}
        for (name, values), place in zip(levels.items(), corner, strict=True):
            metrics[name] = np.full(TEXTS, values[place])
        evidence = claim.measure(table(probe, metrics))
        if evidence is not None and not np.isnan(evidence.value):
            yield evidence.value


def extreme_run(probe, levels, draw, seed):
    """A run in which nearly all texts stand at one end of each metric's scale."""
    metrics = {}
    for name, places in levels.items():
        usual, other = draw.permutation(len(places))[:2]
        is_apart = draw.random(TEXTS) < APART
        metrics[name] = places[np.where(is_apart, other, usual)]
    return table(probe, metrics).assign(seed=seed, run_id=f"run {seed}")


def interval_ends(probe, claim, levels, draws):
    """The ends of the intervals in skewed samples, of a single run and of two."""
    draw = np.random.default_rng(0)
    ends = []
    for number, seeds in enumerate([1, 2] * MOST_DRAWS):
        if ends and number >= 2 * draws:
            break
        runs = [extreme_run(probe, levels, draw, seed) for seed in range(seeds)]
        evidence = claim.measure(pd.concat(runs))
        if evidence is not None and not np.isnan(evidence.low):
            ends += [evidence.low, evidence.high]
    return ends


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize(("probe", "claim"), CLAIMS, ids=NAMES)
def test_no_interval_leaves_the_scale_of_its_number(probe, claim, draws):
    names = {name.replace("class_*", "class_0") for name in claim.metrics}
    levels = levels_of(probe, sorted(names))
    ends = interval_ends(probe, claim, levels, draws)
    assert ends

    # the number goes as far as the ends do: how much farther need not be known
    least = np.inf
    greatest = -np.inf
    for number in numbers_of_alike_texts(probe, claim, levels):
        least = min(least, number)
        greatest = max(greatest, number)
        if least <= min(ends) + 1e-9 and max(ends) <= greatest + 1e-9:
            break
    assert least <= min(ends) + 1e-9
    assert max(ends) <= greatest + 1e-9
