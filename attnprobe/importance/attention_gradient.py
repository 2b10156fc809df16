"""How does the prediction react to each attention weight? (Serrano & Smith 2019, section 4)"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.batch import Batch, Outputs, Task, probabilities
from attnprobe.importance.base import Importance, Subject
from attnprobe.models.classifier import AttentionClassifier


def attention_gradient(classifier: AttentionClassifier, batch: Batch, outputs: Outputs) -> Float[Tensor, "batch seq"]:
    """∂(probability of the predicted class)/∂α_t, signed, the weights taken for free inputs; 0 outside content.

    Positive: more weight on this position speaks for the decision. With a linear decoder and exclusive classes it is
    p_c (w_c − Σ_k p_k w_k) · h_t, no backward pass needed. For multi-label tasks: of the label with the largest
    probability. (Serrano & Smith 2019, section 4)

    Note:
        The weights are free: they need not sum to 1. Therefore the decoder's bias, which position logits hold, is not
        in it.
    """
    hidden, query, candidates = outputs.hidden.detach(), outputs.query, batch.candidates
    if classifier.decoder.linear and candidates is None and classifier.task is Task.SINGLE_LABEL:
        with torch.no_grad():
            effect = classifier.decoder(hidden) - classifier.decoder(torch.zeros_like(hidden[:1, :1]))
            p = probabilities(outputs.logits, classifier.task)
            chosen = p.argmax(-1)
            of_chosen = effect.gather(-1, chosen[:, None, None].expand(*effect.shape[:2], 1)).squeeze(-1)
            expected = torch.einsum("bc,bsc->bs", p, effect)
            gradient = p.gather(-1, chosen.unsqueeze(-1)) * (of_chosen - expected)
    else:
        with torch.enable_grad():
            weights = outputs.attention.detach().clone().requires_grad_()
            logits = classifier.decode(hidden, weights, query, candidates)
            (gradient,) = torch.autograd.grad(probabilities(logits, classifier.task).amax(-1).sum(), weights)
    return gradient.masked_fill(~outputs.content, 0)


@dataclass(frozen=True)
class AttentionGradient(Importance):
    """∂p/∂α_t, p the probability of the predicted class, signed: see `attention_gradient`."""

    name: ClassVar[str] = "attention_gradient"
    title: ClassVar[str] = "weight gradient"
    colour: ClassVar[str] = "#009E73"
    signed: ClassVar[bool] = True

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """Signed, 0 outside content."""
        return attention_gradient(subject.classifier, subject.batch, subject.outputs).double()
