"""Statistics of ranks."""

import numpy as np
from jaxtyping import Float
from scipy import stats


def rank_biserial(difference: Float[np.ndarray, " examples"]) -> float:
    """Matched-pairs rank-biserial correlation of differences, −1 to 1; those of 0 are left out.

    >>> rank_biserial(np.array([1.0, 2.0, -3.0, 0.0]))
    0.0
    """
    difference = difference[difference != 0]
    if len(difference) == 0:
        return float("nan")
    ranks = stats.rankdata(np.abs(difference))
    return float((ranks * np.sign(difference)).sum() / ranks.sum())
