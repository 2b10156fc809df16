"""The papers' criteria as they are put without a null that keeps the mechanism: the first column of the calibration.

These are not verdicts of this package. They are here so that what they would have said stays known.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.report.wide import per_example
from attnprobe.results.statistics import interval


@dataclass(frozen=True)
class Criterion:
    """One criterion as published: met where the mean's whole 95 % interval is above the threshold.

    Attributes:
        name: of the claim.
        criterion, level: what is asked, and of what (words, states).
        probe, metrics: the columns that `value` is given, in order.
        value: columns `[examples]` → one number per example, NaN where it is undefined.
        threshold: in that number's unit.
        source: the paper's section.
    """

    name: str
    criterion: str
    level: str
    probe: str
    metrics: tuple[str, ...]
    source: str
    value: Callable[..., np.ndarray] = lambda column: column
    threshold: float = 0.0

    def answer(self, numbers: pd.DataFrame) -> dict[str, Any]:
        """The mean with its bootstrap interval, and whether it is met: 1, 0, or NaN where the interval has the threshold
        inside; NaN everywhere without the probe's table."""
        rows = numbers[(numbers["probe"] == self.probe) & numbers["metric"].isin(self.metrics)]
        if set(rows["metric"].unique()) != set(self.metrics):
            return dict.fromkeys(("value", "low", "high", "met"), float("nan"))
        wide = per_example(rows, self.probe, self.metrics)
        mean, low, high = interval(
            np.asarray(self.value(*(wide[name].to_numpy() for name in self.metrics)), np.float64)
        )
        met = 1.0 if low > self.threshold else 0.0 if high <= self.threshold else float("nan")
        return {"value": mean - self.threshold, "low": low - self.threshold, "high": high - self.threshold, "met": met}


def removed_earlier(later: np.ndarray, earlier: np.ndarray, never: np.ndarray) -> np.ndarray:
    """How much larger a share one order removes until the decision flips; an order that does not flip it has removed all."""
    whole = (np.where(np.isnan(one), 1.0, one) for one in (later, earlier))
    return np.where(never == 0, np.subtract(*whole), np.nan)


def nearer_optimum(own: np.ndarray, random: np.ndarray, optimal: np.ndarray, never: np.ndarray) -> np.ndarray:
    """How much less attention's order removes than the middle of a random order and the smallest set."""
    own, random, optimal = (np.where(np.isnan(one), 1.0, one) for one in (own, random, optimal))
    return np.where(never == 0, (random + optimal) / 2 - own, np.nan)


def no_far_attention(jsd: np.ndarray) -> np.ndarray:
    """1 where no attention farther than 0.4 nats keeps the prediction."""
    return np.where(np.isnan(jsd), np.nan, jsd <= 0.4)


JAIN, SERRANO, ERASER = "Jain & Wallace 2019", "Serrano & Smith 2019", "DeYoung et al. 2020"
PUBLISHED = (
    Criterion("tau_with_gradient", "agreement", "word", "correlation", ("tau_attention_gradient",), f"{JAIN}, 4.1"),
    Criterion("tau_with_leave_one_out", "agreement", "word", "correlation", ("tau_attention_leave_one_out",), f"{JAIN}, 4.1"),
    Criterion("permutation_moves", "exclusivity", "state", "permutation", ("median_tvd",), f"{JAIN}, 4.2.1", threshold=0.05),
    Criterion("no_far_adversary", "exclusivity", "state", "adversarial", ("optimum_jsd",), f"{JAIN}, 4.2.2",
              no_far_attention, 0.5),
    Criterion("top_flips_more", "erasure", "state", "single_weight", ("flip_top_attention", "flip_random_attention"),
              f"{SERRANO}, 4, table 2", np.subtract),
    Criterion("delta_js", "erasure", "state", "single_weight", ("delta_js_attention",), f"{SERRANO}, 4, figure 3"),
    Criterion("effects_in_order", "erasure", "state", "single_weight", ("tau_attention_effect",), f"{SERRANO}, 4",
              threshold=0.5),
    Criterion("sooner_than_random", "erasure", "state", "erasure",
              ("removed_fraction_random", "removed_fraction_attention", "never_flips"), f"{SERRANO}, 5", removed_earlier),
    Criterion("nearer_to_optimum", "erasure", "state", "erasure",
              ("removed_fraction_attention", "removed_fraction_random", "removed_fraction_optimal", "never_flips"),
              f"{SERRANO}, 5; Edin et al. 2025", nearer_optimum),
    Criterion("top_word_in_rationale", "plausibility", "word", "plausibility",
              ("top_in_rationale_attention", "rationale_share"), f"{ERASER}, 4", np.subtract),
    Criterion("mass_on_rationale", "plausibility", "word", "plausibility",
              ("mass_in_rationale_attention", "rationale_share"), f"{ERASER}, 4", np.subtract),
)  # fmt: skip
"""Every one is worded so that yes speaks for the attention."""
