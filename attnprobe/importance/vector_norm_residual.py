"""How long are the vectors that a layer's attention moves, its own input among them? (Kobayashi et al. 2021)"""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.followed import Moved, in_shares
from attnprobe.models.anatomy import Mixing


@dataclass(frozen=True)
class VectorNormResidual(Moved):
    """‖Σ_h α_ij W_O v_j + [i = j] x_i‖, in shares of each state's sum, followed through the layers. What a layer adds may
    cancel its input. Pieces of a word are added up. 0 to 1."""

    name: ClassVar[str] = "vector_norm_residual"
    title: ClassVar[str] = "‖αVW + x‖, all layers"
    colour: ClassVar[str] = "#CD853F"

    def of_mixing(self, mixing: Mixing) -> Float[Tensor, "batch parts parts"]:
        """Shares of each row."""
        return in_shares(self.by_query(mixing, own=True, normalised=False))
