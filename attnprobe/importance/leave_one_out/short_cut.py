"""What a model's short cut for leave-one-out is, and which models have one."""

from abc import ABC, abstractmethod
from functools import singledispatch
from typing import NamedTuple

from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.batch import Batch, Outputs
from attnprobe.models.base import Model


class Removed(NamedTuple):
    """Texts without one token each: the token at `removed` of `example`, and what is predicted then.

    `skipped` is the largest difference of states that was taken for none, 0 where there was none.
    """

    example: Int[Tensor, "texts"]
    removed: Int[Tensor, "texts"]
    logits: Float[Tensor, "texts classes"]
    skipped: Float[Tensor, "texts"]


class ShortCut(ABC):
    """Predictions without each token for less than a pass per token."""

    @abstractmethod
    def removed(self, batch: Batch, outputs: Outputs) -> Removed:
        """Every content token of every text removed once; `outputs` are those of the whole texts."""


@singledispatch
def short_cut(model: Model, tolerance: float) -> ShortCut | None:
    """The model's short cut, or None where every shortened text has to go through the model.

    Register a function for a class of models that has one (`attnprobe.importance.leave_one_out.recombine`).

    Args:
        model: left as it is.
        tolerance: difference of states that may be taken for none; 0 approximates nothing.
    """
    return None
