"""Attention followed through all layers of a transformer (Abnar & Zuidema 2020)."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.attribution import per_word
from attnprobe.importance.base import Importance, Subject
from attnprobe.models.base import Layers


def layers_of(subject: Subject) -> Layers | None:
    """The attention of all layers; None where the model has none."""
    return subject.classifier.layers(subject.batch)


@dataclass(frozen=True)
class Followed(Importance):
    """An importance that says of every layer what each state owes to each part, and follows it through all of them."""

    shares: ClassVar[bool] = True

    @abstractmethod
    def maps(self, subject: Subject, layers: Layers) -> Sequence[Float[Tensor, "batch parts parts"]]:
        """What each state after a layer (row) owes to each state before it (column), layer by layer."""

    def is_defined(self, subject: Subject) -> bool:
        """Of transformers alone."""
        return subject.cached(layers_of) is not None

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """0 to 1; 0 outside content."""
        layers = subject.cached(layers_of)
        assert layers is not None
        return per_word(deciding(product(self.maps(subject, layers)), layers).double(), subject)


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
        own = torch.eye(layers.mask.shape[1], dtype=torch.float64, device=layers.mask.device)
        return [(one.mean(1) + own) / 2 for one in layers.weights]


def product(maps: Sequence[Float[Tensor, "batch parts parts"]]) -> Float[Tensor, "batch parts parts"]:
    """M_L … M_1."""
    followed = maps[0]
    for one in maps[1:]:
        followed = one @ followed
    return followed


def deciding(followed: Float[Tensor, "batch parts parts"], layers: Layers) -> Float[Tensor, "batch parts"]:
    """The row of the part whose state decides; the mean of all where the mean state does."""
    if layers.row is not None:
        return followed[torch.arange(len(followed), device=followed.device), layers.row]
    there = layers.mask.unsqueeze(-1).to(followed.dtype)
    return (followed * there).sum(1) / there.sum(1)
