"""Attention followed through all layers of a transformer (Abnar & Zuidema 2020)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.base import Subject
from attnprobe.importance.followed import Followed, with_own
from attnprobe.models.base import Layers


@dataclass(frozen=True)
class Rollout(Followed):
    """How much of the deciding state comes from each word, if every layer passed on what it attends to, and its own input as
    much again: the row of ½ (A_L + I) … ½ (A_1 + I), A the mean over a layer's heads. Pieces of a word are added up. 0 to 1.

    Note:
        Values, output projections and feed-forward networks play no part in it.
    """

    name: ClassVar[str] = "rollout"
    title: ClassVar[str] = "attention rollout"
    colour: ClassVar[str] = "#B8860B"

    def maps(self, subject: Subject, layers: Layers) -> Sequence[Float[Tensor, "batch parts parts"]]:
        """½ (A + I)."""
        return rollout_maps(layers)


def rollout_maps(layers: Layers) -> Sequence[Float[Tensor, "batch parts parts"]]:
    """½ (A + I) of every layer; A of one that does not add its own input."""
    return [with_own(one.mean(1), own) for one, own in zip(layers.weights, layers.own, strict=True)]
