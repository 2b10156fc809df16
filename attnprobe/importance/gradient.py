"""How strongly does the prediction react to each token? (Jain & Wallace 2019, section 4.1: gradients)"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnprobe.batch import Batch, Outputs, Task, probabilities
from attnprobe.errors import UserError
from attnprobe.models.classifier import AttentionClassifier


@dataclass(frozen=True)
class Gradients:
    """|input · ∂ŷ/∂input| per position, 0 or more, not normalised; 0 outside content.

    Attributes:
        embedding: of the word vectors, the attention held fixed (the paper's).
        embedding_through_attention: the same, the attention reacting too.
        hidden: of the encoder's states, the attention held fixed: |α_t ∂ŷ/∂v · h_t| with v the attended vector.
        hidden_through_attention: the same, the attention reacting too.
    """

    embedding: Float[Tensor, "batch seq"]
    embedding_through_attention: Float[Tensor, "batch seq"]
    hidden: Float[Tensor, "batch seq"]
    hidden_through_attention: Float[Tensor, "batch seq"]


def gradients(classifier: AttentionClassifier, batch: Batch) -> Gradients:
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
    with torch.no_grad():
        query = classifier.encode_question(batch)
        content = classifier.content(batch)
    if content.shape != batch.ids.shape:
        raise UserError("gradients of words need a model that attends to words; this one attends to larger units")
    with torch.enable_grad():
        embeddings = classifier.embed(batch.ids).detach().requires_grad_()
        encoded = classifier.encode(batch, embeddings)
        # the decoder's and the attention's gradients stop here, and are carried on through the encoder below
        hidden = encoded.detach().requires_grad_()
        _, attention = classifier.attend(hidden, content, query, classifier.attention.given(batch))
        result = []
        for weights in (attention.detach(), attention):
            probability = probabilities(classifier.decode(hidden, weights, query, batch.candidates), classifier.task)
            of_embedding = torch.zeros_like(embeddings[..., 0]).detach()
            of_hidden = of_embedding.clone()
            for target in _targets(probability, batch, classifier.task):
                chosen = probability.gather(-1, target.unsqueeze(-1)).sum()
                (at_hidden,) = torch.autograd.grad(chosen, hidden, retain_graph=True)
                (at_embedding,) = torch.autograd.grad(encoded, embeddings, at_hidden, retain_graph=True)
                of_hidden += (at_hidden * hidden).sum(-1).abs().detach()
                of_embedding += (at_embedding * embeddings).sum(-1).abs().detach()
            result.append((of_embedding.masked_fill(~content, 0), of_hidden.masked_fill(~content, 0)))
    (fixed, hidden_fixed), (through, hidden_through) = result
    return Gradients(fixed, through, hidden_fixed, hidden_through)


def _targets(probability: Float[Tensor, "batch classes"], batch: Batch, task: Task) -> list[Int[Tensor, "batch"]]:
    """The classes whose probabilities are differentiated, one per example and pass."""
    predicted = probability.argmax(-1)
    if batch.question is not None:
        return [predicted]
    classes = probability.shape[-1]
    # p₀ = 1 − p₁: the second pass would give the same numbers again
    first = 1 if classes == 2 and task is Task.SINGLE_LABEL else 0
    return [torch.full_like(predicted, number) for number in range(first, classes)]


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
