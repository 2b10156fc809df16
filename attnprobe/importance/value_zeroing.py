"""What becomes of a transformer's states where a word says nothing (Mohebbi et al. 2023)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import functional as F

from attnprobe.importance.base import Subject
from attnprobe.importance.followed import Followed, in_shares
from attnprobe.models.base import Layers


@dataclass(frozen=True)
class ValueZeroing(Followed):
    """How far each state after a layer turns (cosine distance) when the value of one piece counts as 0 in this layer, made to
    sum to 1 for each state; followed through the layers as `rollout` does, without the ½ I, since a layer's own input is in
    it. Pieces of a word are added up. 0 to 1. (Mohebbi et al. 2023, section 3)

    Takes a pass per layer and piece.
    """

    name: ClassVar[str] = "value_zeroing"
    title: ClassVar[str] = "value zeroing"
    colour: ClassVar[str] = "#8B3A62"

    def maps(self, subject: Subject, layers: Layers) -> Sequence[Float[Tensor, "batch parts parts"]]:
        """How far each state turns, in shares of a row's sum."""
        own = subject.classifier.states_silencing(subject.batch, None, 0)
        return [turned(subject, layer, own[layer + 1].double(), layers.mask) for layer in range(len(layers.weights))]


def turned(
    subject: Subject, layer: int, own: Float[Tensor, "batch parts hidden"], mask: Bool[Tensor, "batch parts"]
) -> Float[Tensor, "batch parts parts"]:
    """The cosine distances after this layer, shares of each state's sum: how much of state i is due to part j. `own` are the
    states after it where nothing is silent."""
    columns = []
    for part in range(mask.shape[1]):
        other = subject.classifier.states_silencing(subject.batch, layer, part)[layer + 1].double()
        columns.append((1 - F.cosine_similarity(own, other, dim=-1)).clamp(min=0))
    return in_shares(torch.stack(columns, -1).masked_fill(~mask.unsqueeze(1), 0))
