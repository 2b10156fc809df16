"""Skill: where a number stands between that of an attention without meaning and the best there can be."""

from dataclasses import replace

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnprobe.report.evidence import Evidence, Measure, by_run, values_of
from attnprobe.results.statistics import (
    bernstein,
    clopper_pearson,
)
from attnprobe.results.statistics.rare import FEWEST_NONZERO

LEAST_GAIN = 0.02
"""Probability (or distance) by which the best possible attention must be ahead of a meaningless one, before skill is asked
for: where nothing that attention could point at makes a difference, no pointing can be right or wrong."""


def skill_of(statistic: str, *, least: float = LEAST_GAIN, reach: float = 1.0) -> Measure:
    """A measure: (own − null) / (best − null) of the means of `<statistic>_own`, `_null`, `_best`, 0 for an attention
    without meaning, 1 for the best there is.

    Not asked where the best is not ahead of the null by `least`, by the whole interval of that difference.

    Args:
        reach: largest minus smallest value that the statistic can have, for the interval of a skill that is (nearly) the same
            in all texts.
    """

    metrics = tuple(f"{statistic}_{kind}" for kind in ("own", "null", "best"))

    def measure(table: pd.DataFrame) -> Evidence | None:
        rows = values_of(table, *metrics)
        if rows is None:
            return None
        own, null, best = (by_run(rows, rows[name].to_numpy()) for name in metrics)
        parts = np.stack([own - null, best - null], -1)
        parts = parts[:, ~np.isnan(parts).any((0, 2))]
        if not parts.shape[1]:
            return None
        skill, gain = Evidence.of_ratio(parts), Evidence.of_runs(parts[..., 1], reach=2.0)
        if gain.high <= least or (gain.rare and gain.value <= least):
            return replace(skill, unasked=f"nothing it could point at moves the prediction by {least:g}")
        if len(parts) == 1 and (skill.rare or np.isnan(skill.low)):
            return bounded_skill(skill, parts[0], reach, gain)
        return skill

    return Measure(metrics, measure)


def bounded_skill(skill: Evidence, parts: Float[np.ndarray, "texts 2"], reach: float, gain: Evidence) -> Evidence:
    """The same skill with an interval for texts of which nearly all are alike, where a bootstrap knows nothing of the others.

    Where nearly all texts are at their best, or at the null, the share of those that are not is bounded exactly (Clopper &
    Pearson), and each of them is taken to be as far away as can be; else the empirical Bernstein bound holds.
    """
    if not gain.low > 0:
        return replace(skill, rare=True)
    over_null, over = parts.T
    others = {
        1.0: int((np.abs(over - over_null) > 1e-9).sum()),  # texts that are not at their best
        0.0: int((np.abs(over_null) > 1e-9).sum()),  # … not at the null
    }
    for at, count in others.items():
        if count < FEWEST_NONZERO:
            away = clopper_pearson(count, len(parts))[2] * reach / gain.low
            low, high = (at - away, at) if at == 1 else (at - away, at + away)
            return replace(skill, low=min(low, skill.value), high=max(high, skill.value), rare=False)
    influence = over_null - skill.value * over
    bounded = bernstein(influence, 2 * reach)
    if bounded is None:
        return replace(skill, rare=True)
    half = (bounded[2] - bounded[0]) / gain.low
    return replace(skill, low=skill.value - half, high=skill.value + half, rare=False)


def beyond_chance(own: str, chance: str) -> Measure:
    """A measure: (own − chance) / (1 − chance) of the means of two metrics from 0 to 1."""

    def measure(table: pd.DataFrame) -> Evidence | None:
        rows = values_of(table, own, chance)
        if rows is None:
            return None
        reached, expected = (by_run(rows, rows[name].to_numpy()) for name in (own, chance))
        evidence = Evidence.of_ratio(np.stack([reached - expected, 1 - expected], -1))
        return evidence if evidence.n else None

    return Measure((own, chance), measure)
