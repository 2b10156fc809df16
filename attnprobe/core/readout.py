"""The seam: the frozen map "attention → prediction" of one batch.

It is all that attention-only probes see.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.core.batch import Task, prediction_distance, probabilities

MOST_NUMBERS = 1 << 25
"""Numbers that `decode` may hold at a time, 256 MiB in float64; one per text may be more."""


@dataclass(frozen=True)
class Readout:
    """The frozen map "attention → class probabilities" of one batch.

    Where the decoder is linear in the attended vector, `position_logits[b, t]` = W h_t + b is set
    and `logits(a) = Σ_t a_t · position_logits[t]`; else `decode` runs what the model does after its
    attention. All tensors are float64, unless the model is examined in another precision
    (`Model.precision`).

    Attributes:
        attention: the model's own, which sums to 1 over `content`.
        content: positions that may be given attention.
        example_id: row number of each text within its split.
        task: how logits become probabilities.
        position_logits: W h_t + b of each position; None where the decoder is not linear.
        decode: from attentions to logits, for any other decoder.
        unattended: logits under no attention at all, the decoder's bias; None where that is not
            defined.
        recorded: the model's own logits, as it computed them; None: those of `attention`.
        activations: how many numbers `decode` holds at its peak, about, for one attention of every
            text of the batch. Many attentions are decoded a few at a time (`MOST_NUMBERS`).
        unseen: words of the text that may be given no attention; None: there are none.
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
    unseen: Bool[Tensor, "batch seq"] | None = None

    @property
    def text(self) -> Bool[Tensor, "batch seq"]:
        """Positions of the text: those of `content`, and those that are not seen."""
        return self.content if self.unseen is None else self.content | self.unseen

    @property
    def position_effects(self) -> Float[Tensor, "batch seq classes"]:
        """What each position says for each class by itself: its logits without the bias.

        Of a linear decoder. Where the bias is not known, each position's logits hold all of it.
        """
        assert self.position_logits is not None
        if self.unattended is None:
            return self.position_logits
        return self.position_logits - self.unattended.unsqueeze(1)

    def logits(
        self, attention: Float[Tensor, "*samples batch seq"]
    ) -> Float[Tensor, "*samples batch classes"]:
        """Logits under other attentions; leading sample axes are free."""
        if self.position_logits is not None:
            # [..., batch, seq] × [batch, seq, classes]: one matrix product per example over all
            # samples
            flat = attention.reshape(-1, *attention.shape[-2:]).transpose(0, 1)
            logits = torch.bmm(flat, self.position_logits).transpose(0, 1)
            return logits.reshape(*attention.shape[:-1], logits.shape[-1])

        if self.decode is None:
            raise ValueError("a Readout needs position_logits (linear decoder) or decode")
        chunk = max(1, MOST_NUMBERS // max(1, self.activations))
        if attention.ndim == 2 or attention.shape[:-2].numel() <= chunk:
            return self.decode(attention)
        samples = attention.reshape(-1, *attention.shape[-2:])
        logits = torch.cat([self.decode(some_samples) for some_samples in samples.split(chunk)])
        return logits.reshape(*attention.shape[:-1], logits.shape[-1])

    def predict(
        self, attention: Float[Tensor, "*samples batch seq"]
    ) -> Float[Tensor, "*samples batch classes"]:
        """Probabilities under other attentions, each of which sums to 1 over `content`."""
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
        """∂(probability of the predicted class)/∂α_t, signed; 0 outside content.

        Positive: more weight on this position speaks for the decision. For multi-label tasks, the
        label with the largest probability is meant. Serrano & Smith 2019, section 4.

        Note:
            The weights are free: they need not sum to 1. Therefore the decoder's bias, which
            position logits hold, is not in it.

        Raises:
            ValueError: there are position logits, and which part of them is the bias (`unattended`)
                is not known.
        """
        if self.position_logits is None:
            gradient = self._differentiated(self.logits)
        elif self.unattended is None:
            raise ValueError(
                "the gradient of a linear decoder needs the logits under no attention (unattended)"
            )
        else:
            bias = self.unattended
            effect = self.position_effects
            if self.task is Task.SINGLE_LABEL:
                gradient = self._closed_form(effect)
            else:
                gradient = self._differentiated(
                    lambda weights: torch.einsum("bs,bsc->bc", weights, effect) + bias
                )
        return gradient.masked_fill(~self.content, 0)

    @torch.no_grad()
    def _closed_form(
        self, effect: Float[Tensor, "batch seq classes"]
    ) -> Float[Tensor, "batch seq"]:
        """p_c (w_c − Σ_k p_k w_k) · h_t, of a linear decoder and exclusive classes.

        The effect of position t on class k is w_k · h_t.
        """
        logits = self.logits(self.attention) if self.recorded is None else self.recorded
        p = probabilities(logits, self.task)
        decision = p.argmax(-1)
        index = decision[:, None, None].expand(*effect.shape[:2], 1)
        decision_effect = effect.gather(-1, index).squeeze(-1)
        expected_effect = torch.einsum("bc,bsc->bs", p, effect)
        return p.gather(-1, decision.unsqueeze(-1)) * (decision_effect - expected_effect)

    @torch.enable_grad()
    def _differentiated(self, logits_of: Callable[[Tensor], Tensor]) -> Float[Tensor, "batch seq"]:
        """The gradient by a backward pass through this map from weights to logits."""
        weights = self.attention.detach().clone().requires_grad_()
        largest = probabilities(logits_of(weights), self.task).amax(-1)
        (gradient,) = torch.autograd.grad(largest.sum(), weights)
        return gradient
