"""What becomes of a transformer's states where a word says nothing (Mohebbi et al. 2023)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnprobe.importance.attribution import per_word
from attnprobe.importance.base import Importance, Subject
from attnprobe.importance.rollout import deciding, layers_of, product


@dataclass(frozen=True)
class ValueZeroing(Importance):
    """How far each state after a layer turns (cosine distance) when the value of one piece counts as 0 in this layer, made to
    sum to 1 for each state; followed through the layers as `rollout` does, without the ½ I, since a layer's own input is in
    it. Pieces of a word are added up. 0 to 1. (Mohebbi et al. 2023, section 3)

    Takes a pass per layer and piece.
    """

    name: ClassVar[str] = "value_zeroing"
    title: ClassVar[str] = "value zeroing"
    colour: ClassVar[str] = "#8B3A62"
    shares: ClassVar[bool] = True

    def is_defined(self, subject: Subject) -> bool:
        """Of transformers alone."""
        return subject.cached(layers_of) is not None

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """0 to 1; 0 outside content."""
        layers = subject.cached(layers_of)
        assert layers is not None
        maps = [turned(subject, layer, layers.mask) for layer in range(len(layers.weights))]
        return per_word(deciding(product(maps), layers), subject)


def turned(subject: Subject, layer: int, mask: Tensor) -> Float[Tensor, "batch parts parts"]:
    """The cosine distances after this layer, shares of each state's sum: how much of state i is due to part j."""
    model, batch = subject.classifier, subject.batch
    own = model.states_silencing(batch, None, 0)[layer + 1].double()
    columns = []
    for part in range(mask.shape[1]):
        other = model.states_silencing(batch, layer, part)[layer + 1].double()
        columns.append((1 - F.cosine_similarity(own, other, dim=-1)).clamp(min=0))
    apart = torch.stack(columns, -1).masked_fill(~mask.unsqueeze(1), 0)
    total = apart.sum(-1, keepdim=True)
    return torch.where(total > 0, apart / torch.where(total > 0, total, 1), 0)
