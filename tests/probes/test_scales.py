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
DRAWS = 8
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
# a campaign: some 2,300 tables are put to their claims
pytestmark = pytest.mark.whole


def levels_of(probe, names):
    """Metric → the places on its scale at which it stands, as its probe declares it."""
    metrics = importlib.import_module(f"attnprobe.probes.{probe}").METRICS
    levels = {}
    for name in names:
        scale = declared(name, metrics).scale
        low, high = max(scale.low, -NO_END), min(scale.high, NO_END)
        has_middle = len(names) <= MOST_WITH_A_MIDDLE
        levels[name] = np.array([low, (low + high) / 2, high] if has_middle else [low, high])
    return levels


def scale_of_number(probe, claim, levels):
    """The least and the greatest that a claim's number is on texts that are all alike."""
    numbers = []
    for corner in product(*levels.values()):
        metrics = {name: np.full(TEXTS, end) for name, end in zip(levels, corner, strict=True)}
        evidence = claim.measure(table(probe, metrics))
        if evidence is not None:
            numbers.append(evidence.value)
    return np.nanmin(numbers), np.nanmax(numbers)


def extreme_run(probe, levels, draw, seed):
    """A run in which nearly all texts stand at one end of each metric's scale."""
    metrics = {}
    for name, places in levels.items():
        usual, other = draw.permutation(len(places))[:2]
        is_apart = draw.random(TEXTS) < APART
        metrics[name] = places[np.where(is_apart, other, usual)]
    return table(probe, metrics).assign(seed=seed, run_id=f"run {seed}")


@pytest.mark.parametrize(("probe", "claim"), CLAIMS, ids=NAMES)
def test_no_interval_leaves_the_scale_of_its_number(probe, claim):
    names = {name.replace("class_*", "class_0") for name in claim.metrics}
    levels = levels_of(probe, sorted(names))
    low, high = scale_of_number(probe, claim, levels)
    draw = np.random.default_rng(0)
    intervals = 0
    for seeds in [1, 2] * DRAWS:
        runs = [extreme_run(probe, levels, draw, seed) for seed in range(seeds)]
        evidence = claim.measure(pd.concat(runs))
        if evidence is None or np.isnan(evidence.low):
            continue
        intervals += 1
        ends = (evidence.low, evidence.high)
        assert min(ends) >= low - 1e-9
        assert max(ends) <= high + 1e-9
    assert intervals
