"""What a run found, in sentences for somebody who has read none of the papers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from attnprobe.report.figures.adversarial import FAR, LN2
from attnprobe.report.numbers import Numbers, numbers_of
from attnprobe.report.quality import Quality
from attnprobe.shown import percent

MOVED = 0.05
"""Total variation distance from which on a prediction is said to have moved."""


@dataclass(frozen=True)
class Sentence:
    """What is said of one metric: `say` makes a sentence of its defined values over the examples, one or more."""

    probe: str
    metric: str
    say: Callable[[np.ndarray], str]


SENTENCES = (
    Sentence(
        "correlation",
        "tau_attention_leave_one_out",
        lambda tau: (
            f"The order of the weights agrees with what leaving each word out does by τ = {tau.mean():.2f} (1: the same "
            f"order, 0: unrelated)."
        ),
    ),
    Sentence(
        "erasure",
        "never_flips",
        lambda never: (
            f"For {percent(never.mean())} of the texts no erasure of attention, however large, changes the decision."
        ),
    ),
    Sentence(
        "permutation",
        "median_tvd",
        lambda tvd: (
            f"Giving the weights to other words at random moves the prediction by more than {MOVED}, on a scale from 0 to 1, "
            f"for {percent((tvd > MOVED).mean())} of the texts."
        ),
    ),
    Sentence(
        "adversarial",
        "optimum_jsd",
        lambda jsd: (
            f"For {percent((jsd > FAR).mean())} of the texts a very different attention gives the same prediction (median "
            f"distance {np.median(jsd):.2f} of at most {LN2:.2f}), so the weights cannot be presented as the only possible "
            f"reason there."
        ),
    ),
)
"""The most important last."""


def plain_words(numbers: pd.DataFrame | Numbers, quality: Quality | None) -> list[str]:
    """A few sentences, the most important last; none about tests that were not run.

    Args:
        numbers: of one run; its long table will do.
        quality: of its classifier, where a largest class can be named.
    """
    said = [] if quality is None else [about_quality(quality)]
    known = [(one, values(numbers, one.probe, one.metric)) for one in SENTENCES]
    return said + [one.say(value) for one, value in known if value is not None]


def about_quality(quality: Quality) -> str:
    """How good the classifier is, compared with guessing."""
    return (
        f"The classifier is right on {percent(quality.accuracy)} of {quality.n:,} test texts; always naming the largest "
        f"class is right on {percent(quality.majority)}. It is {quality.badge[0]}."
    )


def values(numbers: pd.DataFrame | Numbers, probe: str, metric: str) -> np.ndarray | None:
    """A metric's defined values over the examples; None where there are none."""
    rows = numbers_of(numbers).rows(probe, (metric,))
    known = rows.loc[rows["example_id"] >= 0, "value"].to_numpy(float)
    known = known[~np.isnan(known)]
    return known if len(known) else None


def numbered(sentences: Sequence[str]) -> list[str]:
    """The sentences as the last lines of a command's output."""
    return ["what was found:", *(f"  {sentence}" for sentence in sentences)] if sentences else []
