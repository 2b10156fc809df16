"""What happens to the prediction when attended positions are erased and the other weights renormalised."""

from attnprobe.erasure.ranked import ErasureCounts, erase_in_order
from attnprobe.erasure.single import SingleErasures, erase_each
from attnprobe.erasure.winning import WinningSet, smallest_winning_set

__all__ = [
    "ErasureCounts",
    "SingleErasures",
    "WinningSet",
    "erase_each",
    "erase_in_order",
    "smallest_winning_set",
]
