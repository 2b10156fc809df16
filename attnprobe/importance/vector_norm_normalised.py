"""How long are the vectors that a layer's attention moves, after layer normalisation? (Kobayashi et al. 2021)"""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.base import Subject
from attnprobe.importance.followed import Moved, first_anatomy, in_shares
from attnprobe.models.anatomy import Anatomy, Mixing


@dataclass(frozen=True)
class VectorNormNormalised(Moved):
    """‖LN(Σ_h α_ij W_O v_j + [i = j] x_i)‖ in shares of each state's sum, followed through the layers: LN without its shift,
    and divided by the spread of the whole sum. Pieces of a word are added up. 0 to 1.

    Defined where the sum of attention and input is normalised, as in BERT and its kin. Elsewhere (GPT-2, Llama, a transformer
    trained from scratch) `vector_norm_residual` is the whole of it.
    """

    name: ClassVar[str] = "vector_norm_normalised"
    title: ClassVar[str] = "‖LN(αVW + x)‖, all layers"
    colour: ClassVar[str] = "#8B4513"

    def is_defined(self, subject: Subject) -> bool:
        """Where every layer normalises that sum."""
        anatomy = subject.cached(first_anatomy)
        return isinstance(anatomy, Anatomy) and all(one.mixing.after is not None for one in anatomy.blocks)

    def of_mixing(self, mixing: Mixing) -> Float[Tensor, "batch parts parts"]:
        """Shares of each row."""
        return in_shares(self.by_query(mixing, own=True, normalised=True))
