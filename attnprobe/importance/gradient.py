"""How strongly does the prediction react to each token? (Jain & Wallace 2019, section 4.1: gradients)"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.batch import Batch, Task, probabilities
from attnprobe.errors import UserError
from attnprobe.importance.base import Importance, Subject
from attnprobe.models.base import Model, Unit


@dataclass(frozen=True)
class Gradients:
    """|input · ∂ŷ/∂input| per position, 0 or more, not normalised; 0 outside content.

    Attributes:
        embedding: of the word vectors, the attention held fixed (the paper's).
        embedding_through_attention: the same, the attention reacting too.
        hidden: of the encoder's states, the attention held fixed: |α_t ∂ŷ/∂v · h_t| with v the attended vector; NaN where
            the model shows no states on the way to its prediction.
        hidden_through_attention: the same, the attention reacting too.
    """

    embedding: Float[Tensor, "batch seq"]
    embedding_through_attention: Float[Tensor, "batch seq"]
    hidden: Float[Tensor, "batch seq"]
    hidden_through_attention: Float[Tensor, "batch seq"]


def gradients(classifier: Model, batch: Batch) -> Gradients:
    """Gradient × input at the word vectors and at the hidden states, with the attention held fixed and without.

    ŷ is the probability of class 1 of two; of more classes (or labels) each one's probability in turn, the absolute
    values summed; for an instance with a question the probability of the predicted class. Works where gradients are
    switched off, and touches neither the parameters nor their `.grad`.

    Raises:
        UserError: the model attends to something else than single tokens.

    Note:
        The paper's code runs in train mode. For the hidden states it stores Σ_k ∂ŷ/∂h_tk with the attention held fixed,
        which is α_t times a number that does not depend on t, so that its rank correlation with the attention is 1 for
        every model; here it is gradient × state.
    """
    if classifier.unit is not Unit.WORD:
        raise UserError("gradients of words need a model that attends to words; this one attends to larger units")
    with torch.enable_grad():
        # input · gradient is the derivative by a factor of the input
        scale, reacting = classifier.scaled(batch)
        held = classifier.under(batch, scale, reacting, reacting.attention.detach())
        result = []
        for outputs in (held, reacting):
            probability, hidden = probabilities(outputs.logits, classifier.task), outputs.hidden
            of_embedding = torch.zeros_like(outputs.content, dtype=scale.dtype)
            of_hidden = of_embedding.clone()
            for target in targets(probability, batch, classifier.task):
                chosen = probability.gather(-1, target.unsqueeze(-1)).sum()
                # a model whose states are not on the way to its prediction has none to differentiate
                wanted = (scale, hidden) if hidden.requires_grad else (scale,)
                at_input, *at_hidden = torch.autograd.grad(chosen, wanted, retain_graph=True)
                of_embedding += classifier.per_position(batch, at_input).abs().detach()
                of_hidden += (at_hidden[0] * hidden).sum(-1).abs().detach() if at_hidden else torch.nan
            outside = ~outputs.content
            result.append((of_embedding.masked_fill(outside, 0), of_hidden.masked_fill(outside, 0)))
    (fixed, hidden_fixed), (through, hidden_through) = result
    return Gradients(fixed, through, hidden_fixed, hidden_through)


def targets(probability: Float[Tensor, "batch classes"], batch: Batch, task: Task) -> list[Int[Tensor, "batch"]]:
    """The classes whose probabilities are differentiated, one per example and pass."""
    predicted = probability.argmax(-1)
    if batch.question is not None:
        return [predicted]
    classes = probability.shape[-1]
    # p₀ = 1 − p₁: the second pass would give the same numbers again
    first = 1 if classes == 2 and task is Task.SINGLE_LABEL else 0
    return [torch.full_like(predicted, number) for number in range(first, classes)]


def gradients_of(subject: Subject) -> Gradients:
    """The batch's gradients."""
    return gradients(subject.classifier, subject.batch)


@dataclass(frozen=True)
class Gradient(Importance):
    """|word vector · ∂ŷ/∂word vector|, the attention held fixed, 0 or more: see `gradients`."""

    name: ClassVar[str] = "gradient"
    title: ClassVar[str] = "gradient"
    colour: ClassVar[str] = "#882255"
    shares: ClassVar[bool] = True
    of_words: ClassVar[bool] = True

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """0 or more, 0 outside content."""
        return subject.cached(gradients_of).embedding.double()
