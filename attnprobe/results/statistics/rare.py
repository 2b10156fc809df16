"""When a sample is too rare or too skewed for any interval of its mean to be trusted."""

import numpy as np
from jaxtyping import Float
from scipy import stats

FEWEST_NONZERO = 20
"""Values other than 0 below which the mean of a mostly zero sample is carried by too few texts: of an event in 1 % of the
texts, 20 texts show none four times out of five, and a bootstrap then knows nothing of it."""
FEWEST_PER_SKEWNESS = 25.0
"""n / skewness² below which the largest values rule the mean (Cochran 1977, section 2.15): of 100 lognormal values with
σ = 2, an interval holds the mean in 0.85 and not in 0.95 of the samples. The skewness is that of the sample and one standard
error: of 20 lognormal values with σ = 1, one sample in ten looks less skewed than it is, and a third of these gave a false
verdict."""


def is_too_rare(values: Float[np.ndarray, " n"], *, any_skewness: bool = False) -> bool:
    """Whether nothing should be decided from these values: all equal, fewer than 20 that are not 0, or so skewed that a few
    of them carry the mean (`any_skewness`: that does not matter, for a method that holds whatever it is). NaN values do not
    count.

    >>> is_too_rare(np.zeros(400)), is_too_rare(np.r_[np.ones(5), np.zeros(395)]), is_too_rare(np.arange(30.0))
    (True, True, False)
    """
    sample = values[~np.isnan(values)]
    if np.count_nonzero(sample) < FEWEST_NONZERO or is_constant(sample):
        return True
    return not any_skewness and len(sample) < FEWEST_PER_SKEWNESS * most_skewness(sample) ** 2


def is_constant(sample: Float[np.ndarray, " n"]) -> bool:
    """Whether all values are equal up to rounding (twelve digits)."""
    return len(sample) == 0 or bool(np.ptp(sample) <= 1e-12 * np.abs(sample).max())


def skewness(sample: Float[np.ndarray, " n"]) -> float:
    """Third standardised moment, corrected for the size of the sample (Fisher's G₁)."""
    return float(stats.skew(sample, bias=False))


def most_skewness(sample: Float[np.ndarray, " n"]) -> float:
    """How skewed the values may well be: the sample's skewness, and its standard error under normality (Joanes & Gill 1998).

    >>> round(most_skewness(np.r_[-np.arange(1.0, 11), np.arange(1.0, 11)]), 3)  # n = 20: the error alone
    0.512
    """
    n = len(sample)
    error = np.sqrt(6 * n * (n - 1) / ((n - 2) * (n + 1) * (n + 3)))
    return abs(skewness(sample)) + float(error)


def bernstein(
    values: Float[np.ndarray, " n"], reach: float, *, confidence: float = 0.95
) -> tuple[float, float, float] | None:
    """Mean with an interval that holds for any values within a known reach, however skewed (Maurer & Pontil 2009, theorem
    4: the empirical Bernstein bound, here on both sides). It is wide; None where the values are equal or fewer than 20 are
    other than 0, for these are no evidence of anything but how rare they are.

    Args:
        reach: largest minus smallest value that there can be.
    """
    sample = values[~np.isnan(values)]
    if np.count_nonzero(sample) < FEWEST_NONZERO or is_constant(sample):
        return None
    n, mean, log = len(sample), float(sample.mean()), float(np.log(4 / (1 - confidence)))
    half = float(np.sqrt(2 * sample.var(ddof=1) * log / n)) + 7 * reach * log / (3 * (n - 1))
    return mean, mean - half, mean + half
