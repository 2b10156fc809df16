"""Distances between distributions and agreement between rankings, one number per row.

Every function reduces the last axis (positions or classes) and broadcasts the leading ones. A boolean `mask` (True =
keep) says which entries count; what the others hold never matters, to the value or to the gradient. Rows that are
distributions sum to 1 over their mask. What is undefined for a row is NaN, to be counted and reported by the caller.
"""

from attnprobe.measures.divergences import (
    LN2,
    entropy,
    jensen_shannon,
    kullback_leibler,
    normalised,
    total_variation,
)
from attnprobe.measures.kendall import kendall_tau, kendall_tau_test
from attnprobe.measures.spearman import spearman
from attnprobe.measures.top import rank_biased_overlap, tenth, top_overlap, top_tau

__all__ = [
    "LN2",
    "entropy",
    "jensen_shannon",
    "kendall_tau",
    "kendall_tau_test",
    "kullback_leibler",
    "normalised",
    "rank_biased_overlap",
    "spearman",
    "tenth",
    "top_overlap",
    "top_tau",
    "total_variation",
]
