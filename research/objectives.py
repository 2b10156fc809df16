"""Training objectives that make a learned attention wrong."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from attnprobe.core.batch import Batch, Outputs, Task
from attnprobe.core.settings import NotNegative
from attnprobe.measures import kullback_leibler
from attnprobe.models.objectives import ClassWeight, CrossEntropy, Losses, Objective, marked_words


@dataclass(frozen=True)
class Misdirection(Objective):
    """Predict the labels, and attend to a word that does not decide: cross entropy + λ · KL(ρ ‖ α).

    `attnprobe.models.objectives.Supervision` on a wrong word: the first in the vocabulary's order
    of those that do not decide, so that a model without context can learn it, too.

    Attributes:
        weight: λ; the divergence is in nats.
    """

    weight: NotNegative = 1.0

    def __call__(
        self,
        outputs: Outputs,
        batch: Batch,
        task: Task,
        class_weight: ClassWeight,
    ) -> Losses:
        """Compute `loss`, and `kl`, in nats."""
        silent = outputs.content & ~marked_words(outputs, batch, "research.objectives.Misdirection")
        target = wrong_word(batch.ids, silent).to(outputs.attention.dtype)
        kl = kullback_leibler(target, outputs.attention, outputs.content)
        entropy = CrossEntropy()(outputs, batch, task, class_weight)["loss"]
        return {"loss": entropy + self.weight * kl, "kl": kl}


def wrong_word(ids: Tensor, silent: Tensor) -> Float[Tensor, "batch seq"]:
    """Weights on the silent word with the smallest id, its places alike; 0 where none is silent."""
    smallest = ids.masked_fill(~silent, ids.max() + 1).amin(-1, keepdim=True)
    places = silent & (ids == smallest)
    return places / places.sum(-1, keepdim=True).clamp_min(1)
