"""The seam: the frozen map "attention → prediction" of one batch, which is all that attention-only
probes see."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.core.batch import Task, prediction_distance, probabilities

MOST_NUMBERS = 1 << 25
"""Numbers (float64: 256 MiB) that `decode` may hold at a time; one attention per text may exceed
it."""


@dataclass(frozen=True)
class Readout:
    """The frozen map "attention → class probabilities" of one batch: all that an attention-only
    probe may see.

    Where the decoder is linear in the attended vector, `position_logits[b, t]` = W h_t + b is set
    and `logits(a) = Σ_t a_t · position_logits[t]`; else `decode` runs what the model does after its
    attention. All tensors are float64, unless the model is examined in another precision
    (`Model.precision`).

    Attributes:
        unattended: logits under no attention at all, the decoder's bias; None where that is not
            defined.
        recorded: the model's own logits, as it computed them; None: those of `attention`.
        activations: how many numbers `decode` holds at its peak, about, for one attention of every
            text of the batch. Many attentions are decoded a few at a time (`MOST_NUMBERS`).
    """

    attention: Float[Tensor, "batch seq"]
    content: Bool[Tensor, "batch seq"]
    example_id: Int[Tensor, "batch"]
    task: Task = Task.SINGLE_LABEL
    position_logits: Float[Tensor, "batch seq classes"] | None = None
    decode: Callable[[Tensor], Tensor] | None = None
    unattended: Float[Tensor, "batch classes"] | None = None
    recorded: Float[Tensor, "batch classes"] | None = None
    activations: int = 0

    def logits(
        self, attention: Float[Tensor, "*samples batch seq"]
    ) -> Float[Tensor, "*samples batch classes"]:
        """Logits under other attentions; leading sample axes are free."""
        if self.position_logits is not None:
            # [..., batch, seq] × [batch, seq, classes]: one matrix product per example over all
            # samples
            flat = attention.reshape(-1, *attention.shape[-2:]).transpose(0, 1)
            result = torch.bmm(flat, self.position_logits).transpose(0, 1)
            return result.reshape(*attention.shape[:-1], result.shape[-1])
        assert self.decode is not None, (
            "a Readout needs position_logits (linear decoder) or decode (any other)"
        )
        at_once = max(1, MOST_NUMBERS // max(1, self.activations))
        if attention.ndim == 2 or attention.shape[:-2].numel() <= at_once:
            return self.decode(attention)
        parts = attention.reshape(-1, *attention.shape[-2:]).split(at_once)
        result = torch.cat([self.decode(part) for part in parts])
        return result.reshape(*attention.shape[:-1], result.shape[-1])

    def predict(
        self, attention: Float[Tensor, "*samples batch seq"]
    ) -> Float[Tensor, "*samples batch classes"]:
        """Probabilities under other attentions `[..., batch, seq]`, each of which sums to 1 over
        `content`."""
        return probabilities(self.logits(attention), self.task)

    def prediction(self) -> Float[Tensor, "batch classes"]:
        """Probabilities under the model's own attention."""
        return self.predict(self.attention)

    def distance(
        self, p: Float[Tensor, "*p classes"], q: Float[Tensor, "*q classes"]
    ) -> Float[Tensor, "*any"]:
        """`prediction_distance` of two predictions of this task."""
        return prediction_distance(p, q, self.task)

    def gradient(self) -> Float[Tensor, "batch seq"]:
        """∂(probability of the predicted class)/∂α_t, signed, the weights taken for free inputs; 0
        outside content.

        Positive: more weight on this position speaks for the decision. With a linear decoder and
        exclusive classes it is p_c (w_c − Σ_k p_k w_k) · h_t, no backward pass needed. For
        multi-label tasks: of the label with the largest probability. (Serrano & Smith 2019, section
        4)

        Note:
            The weights are free: they need not sum to 1. Therefore the decoder's bias, which
            position logits hold, is not in it.

        Raises:
            ValueError: there are position logits, and what of them is the bias (`unattended`) is
                not known.
        """
        linear = self.position_logits
        bias = self.unattended
        if linear is not None and bias is None:
            raise ValueError(
                "the gradient of a linear decoder needs the logits under no attention (unattended)"
            )
        effect = None if linear is None or bias is None else linear - bias.unsqueeze(1)
        if effect is not None and self.task is Task.SINGLE_LABEL:
            with torch.no_grad():
                logits = self.logits(self.attention) if self.recorded is None else self.recorded
                p = probabilities(logits, self.task)
                chosen = p.argmax(-1)
                of_chosen = effect.gather(
                    -1, chosen[:, None, None].expand(*effect.shape[:2], 1)
                ).squeeze(-1)
                expected = torch.einsum("bc,bsc->bs", p, effect)
                result = p.gather(-1, chosen.unsqueeze(-1)) * (of_chosen - expected)
            return result.masked_fill(~self.content, 0)
        with torch.enable_grad():
            free = self.attention.detach().clone().requires_grad_()
            logits = (
                self.logits(free)
                if effect is None or bias is None
                else torch.einsum("bs,bsc->bc", free, effect) + bias
            )
            (result,) = torch.autograd.grad(probabilities(logits, self.task).amax(-1).sum(), free)
        return result.masked_fill(~self.content, 0)
