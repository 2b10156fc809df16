"""Solvers that replace a search by the optimum.

Over attentions, for models whose decoder is linear in the attended vector; and over the subsets of
a short text's words, for any model.
"""

from attnprobe.exact.farthest import FarthestAttention, farthest_attention
from attnprobe.exact.flipping import (
    FlippingSet,
    OvertakingSets,
    smallest_flipping_set,
    smallest_overtaking_sets,
)
from attnprobe.exact.identifiable import WeightRanges, weight_ranges
from attnprobe.exact.removal_orders import ErasureLimits, erasure_limits
from attnprobe.exact.shapley import ShapleyValues, attention_shapley
from attnprobe.exact.subsets import (
    PrefixLimits,
    SmallestSet,
    banzhaf_values,
    complement,
    minimal_sets,
    prefix_limits,
    shapley_interactions,
    shapley_values,
    smallest_set,
)

__all__ = [
    "ErasureLimits",
    "FarthestAttention",
    "FlippingSet",
    "OvertakingSets",
    "PrefixLimits",
    "ShapleyValues",
    "SmallestSet",
    "WeightRanges",
    "attention_shapley",
    "banzhaf_values",
    "complement",
    "erasure_limits",
    "farthest_attention",
    "minimal_sets",
    "prefix_limits",
    "shapley_interactions",
    "shapley_values",
    "smallest_flipping_set",
    "smallest_overtaking_sets",
    "smallest_set",
    "weight_ranges",
]
