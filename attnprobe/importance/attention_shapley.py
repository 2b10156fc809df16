"""Exact Shapley values of the attention, as an importance."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.exact.shapley import ShapleyValues, attention_shapley
from attnprobe.importance.attribution import Targeted, lead
from attnprobe.importance.base import Note, Scores, Subject


@dataclass(frozen=True)
class AttentionShapley(Targeted):
    """Exact Shapley values of the positions, weights being erased and the others renormalised.

    Signed. v(S) is the target's logit under the attention that is left on S, without the decoder's
    bias, and 0 where nothing is left: the game between the positions that Serrano & Smith's (2019)
    erasure plays. Nothing is encoded again, so that it is about states, as erasure is.

    Where the bias is not known (`audit_tensors` without `bias`), every position gets 1/n of it.
    """

    name: ClassVar[str] = "attention_shapley"
    title: ClassVar[str] = "Shapley of the attention"
    colour: ClassVar[str] = "#117777"
    complete: ClassVar[bool] = True

    def is_defined(self, subject: Subject) -> bool:
        """For a linear decoder."""
        return subject.readout.position_logits is not None

    def payoffs(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """What each position says for the target by itself, without the decoder's bias."""
        effects = subject.readout.position_effects
        classes = self.target_classes(subject).unsqueeze(1).expand(*effects.shape[:2], 2)
        return lead(effects, classes)

    def solved(self, subject: Subject) -> ShapleyValues:
        """The values with their error; the class of number 1 is the target."""
        payoffs = subject.cached(self.payoffs)
        games = torch.stack([torch.zeros_like(payoffs), payoffs], -1)
        return attention_shapley(subject.readout.attention, games, subject.readout.content)

    def scores(self, subject: Subject) -> Scores:
        """Signed, in units of the logit; 0 outside content."""
        return subject.cached(self.solved).values[..., 1]

    def total(self, subject: Subject) -> Float[Tensor, "batch"]:
        """The target's logit under the whole attention, without the decoder's bias."""
        payoffs = subject.cached(self.payoffs)
        return (subject.readout.attention * payoffs).sum(-1)

    def notes(self, subject: Subject) -> Iterator[Note]:
        """How far a score can be from the exact value at most, in units of the logit."""
        error = subject.cached(self.solved).error[:, 1]
        yield Note(f"largest_error_{self.name}", float(error.max()), max)
