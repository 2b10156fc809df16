"""How near is each vector to the state that they add up to? (ALTI, Ferrando et al. 2022)"""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.followed import Moved, in_shares
from attnprobe.models.anatomy import Mixing


@dataclass(frozen=True)
class Alti(Moved):
    """c_ij = max(0, ‖y_i‖₁ − ‖y_i − T_ij‖₁) in shares of each state's sum, y_i the state after the attention, its input and a
    normalisation where one follows, T_ij what part j adds to it; followed through the layers. A vector that
    points away from the state counts for nothing. Pieces of a word are added up. 0 to 1."""

    name: ClassVar[str] = "alti"
    title: ClassVar[str] = "ALTI"
    colour: ClassVar[str] = "#6B8E23"

    def of_mixing(self, mixing: Mixing) -> Float[Tensor, "batch parts parts"]:
        """Shares of each row."""
        return in_shares(self.by_query(mixing, own=True, normalised=True))

    def strength(
        self, vectors: Float[Tensor, "queries parts hidden"], whole: Float[Tensor, "queries hidden"]
    ) -> Float[Tensor, "queries parts"]:
        """By how much the vector brings the origin nearer to the state, in the sum of absolute differences."""
        away = (whole.unsqueeze(1) - vectors).abs().sum(-1)
        return (whole.abs().sum(-1, keepdim=True) - away).clamp(min=0)
