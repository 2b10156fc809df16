"""Solvers that replace a search by the optimum, for models whose decoder is linear in the attended vector."""

from attnprobe.exact.farthest import FarthestAttention, farthest_attention
from attnprobe.exact.flipping import FlippingSet, OvertakingSets, smallest_flipping_set, smallest_overtaking_sets

__all__ = [
    "FarthestAttention",
    "FlippingSet",
    "OvertakingSets",
    "farthest_attention",
    "smallest_flipping_set",
    "smallest_overtaking_sets",
]
