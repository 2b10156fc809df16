"""What a run found, in sentences for somebody who has read none of the papers."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from attnprobe.report.numbers import Numbers, numbers_of
from attnprobe.report.quality import Quality
from attnprobe.report.readings.adversarial import FAR, LN2

MOVED = 0.05
"""Total variation distance from which on a prediction is said to have moved."""


def plain_words(numbers: pd.DataFrame | Numbers, quality: Quality | None) -> list[str]:
    """A few sentences, the most important last; none about tests that were not run.

    Args:
        numbers: of one run; its long table will do.
        quality: of its classifier, where a largest class can be named.
    """
    said = [] if quality is None else [about_quality(quality)]
    for sentence in (about_agreement(numbers), about_flips(numbers), about_shuffling(numbers), about_another(numbers)):
        said += [] if sentence is None else [sentence]
    return said


def about_quality(quality: Quality) -> str:
    """How good the classifier is, beside guessing."""
    better = "not shown to be better than" if quality.warning else "better than"
    return (
        f"The classifier is right on {percent(quality.accuracy)} of {quality.n:,} test texts; always naming the largest "
        f"class is right on {percent(quality.majority)}. It is {better} guessing."
    )


def about_shuffling(numbers: pd.DataFrame | Numbers) -> str | None:
    """Whether it matters which words get the weights."""
    tvd = values(numbers, "permutation", "median_tvd")
    if tvd is None:
        return None
    return (
        f"Giving the weights to other words at random moves the prediction by more than {MOVED}, on a scale from 0 to 1, for "
        f"{percent(float((tvd > MOVED).mean()))} of the texts."
    )


def about_another(numbers: pd.DataFrame | Numbers) -> str | None:
    """Whether another attention gives the same prediction."""
    jsd = values(numbers, "adversarial", "optimum_jsd")
    if jsd is None:
        return None
    share, middle = percent(float((jsd > FAR).mean())), float(np.median(jsd))
    return (
        f"For {share} of the texts a very different attention gives the same prediction (median distance {middle:.2f} of at "
        f"most {LN2:.2f}), so the weights cannot be presented as the only possible reason there."
    )


def about_agreement(numbers: pd.DataFrame | Numbers) -> str | None:
    """Whether attention ranks words as leaving them out does."""
    tau = values(numbers, "correlation", "tau_attention_leave_one_out")
    if tau is None:
        return None
    return (
        f"The order of the weights agrees with what leaving each word out does by τ = {tau.mean():.2f} (1: the same order, "
        f"0: unrelated)."
    )


def about_flips(numbers: pd.DataFrame | Numbers) -> str | None:
    """Whether erasing attention can change decisions at all."""
    never = values(numbers, "erasure", "never_flips")
    if never is None:
        return None
    return (
        f"For {percent(float(never.mean()))} of the texts no erasure of attention, however large, changes the decision."
    )


def values(numbers: pd.DataFrame | Numbers, probe: str, metric: str) -> np.ndarray | None:
    """A metric's defined values over the examples; None where there are none."""
    rows = numbers_of(numbers).rows(probe, (metric,))
    found = rows.loc[rows["example_id"] >= 0, "value"].to_numpy(float)
    found = found[~np.isnan(found)]
    return found if len(found) else None


def percent(share: float) -> str:
    """A share in whole percent, never rounded to all or nothing.

    >>> percent(0.5), percent(0.9996), percent(1.0), percent(0.0004)
    ('50 %', 'more than 99 %', '100 %', 'less than 1 %')
    """
    if 0.995 <= share < 1:
        return "more than 99 %"
    return "less than 1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def numbered(sentences: Sequence[str]) -> list[str]:
    """The sentences as the last lines of a command's output."""
    return ["what was found:", *(f"  {sentence}" for sentence in sentences)] if sentences else []
