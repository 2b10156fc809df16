"""How long are the vectors that a layer's attention moves? (Kobayashi et al. 2020)"""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.followed import Moved, in_shares, with_own
from attnprobe.models.anatomy import Mixing


@dataclass(frozen=True)
class VectorNorm(Moved):
    """‖Σ_h α_ij W_O v_j‖, the length of what part j adds to state i over all heads, in shares of each state's sum;
    followed through the layers as `rollout` does, with ½ I for a layer's own input. Pieces of a word are added up. 0 to 1."""

    name: ClassVar[str] = "vector_norm"
    title: ClassVar[str] = "‖αVW‖, all layers"
    colour: ClassVar[str] = "#A0522D"

    def of_mixing(self, mixing: Mixing) -> Float[Tensor, "batch parts parts"]:
        """½ (N + I)."""
        return with_own(in_shares(self.by_query(mixing, own=False, normalised=False)), mixing.own)
