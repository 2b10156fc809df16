"""What each state owes to each part, layer by layer, followed from the deciding state down to the words."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.attribution import per_word
from attnprobe.importance.base import Importance, Subject
from attnprobe.models.anatomy import Anatomy, Mixing, normalised_parts
from attnprobe.models.base import Layers

CELLS = 1 << 24
"""Numbers of vectors that are held at a time: 128 MiB in float64."""
PARTS = 1024
"""Parts of texts whose way through a network is held at a time: of BERT-base 500 MiB."""


def layers_of(subject: Subject) -> Layers | None:
    """The attention of all layers; None where the model has none."""
    return subject.classifier.layers(subject.batch)


def first_anatomy(subject: Subject) -> Anatomy | str:
    """What the layers do to the first text's vectors; else why that is not known."""
    return subject.classifier.anatomy(subject.batch.rows(slice(0, 1)))


def anatomies(subject: Subject) -> Iterator[tuple[slice, Anatomy]]:
    """What the layers do, some texts at a time: all of the numbers of a network are kept for as many parts as `PARTS`."""
    width = subject.classifier.word_of(subject.batch).shape[1]
    at_once = max(1, PARTS // width)
    for start in range(0, len(subject.batch), at_once):
        rows = slice(start, min(start + at_once, len(subject.batch)))
        anatomy = subject.classifier.anatomy(subject.batch.rows(rows))
        assert isinstance(anatomy, Anatomy)
        yield rows, anatomy


@dataclass(frozen=True)
class Followed(Importance):
    """An importance that says of every layer what each state owes to each part, and follows it through all of them."""

    shares: ClassVar[bool] = True
    of_layers: ClassVar[bool] = True
    of_words: ClassVar[bool] = True

    @abstractmethod
    def maps(self, subject: Subject, layers: Layers) -> Sequence[Float[Tensor, "batch parts parts"]]:
        """What each state after a layer (row) owes to each state before it (column), layer by layer."""

    def is_defined(self, subject: Subject) -> bool:
        """Where the attention is over the text's own pieces alone."""
        return subject.cached(layers_of) is not None

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """0 to 1; 0 outside content."""
        layers = subject.cached(layers_of)
        assert layers is not None
        return per_word(deciding(product(self.maps(subject, layers)), layers).double(), subject)


@dataclass(frozen=True)
class Moved(Followed):
    """An importance of the vectors that a layer adds up in each of its states: what each part contributes to each."""

    def is_defined(self, subject: Subject) -> bool:
        """Where these vectors are known: through the library's attention interface, and where what the attention gives is
        added to a layer's input, normalised after it or not."""
        return super().is_defined(subject) and isinstance(subject.cached(first_anatomy), Anatomy)

    def maps(self, subject: Subject, layers: Layers) -> Sequence[Float[Tensor, "batch parts parts"]]:
        """By `of_mixing`."""
        found = [[self.of_mixing(block.mixing) for block in anatomy.blocks] for _, anatomy in anatomies(subject)]
        return [torch.cat(one) for one in zip(*found, strict=True)]

    @abstractmethod
    def of_mixing(self, mixing: Mixing) -> Float[Tensor, "batch parts parts"]:
        """What each state after the attention (row) owes to each state before it (column)."""

    def by_query(self, mixing: Mixing, *, own: bool, normalised: bool) -> Float[Tensor, "batch parts parts"]:
        """`strength` of the vectors that make up each state after an attention, some states of one text at a time.

        Args:
            own: the layer's input is one of the vectors (of the state's own part), where the layer adds it.
            normalised: after the layer's normalisation, where one follows.
        """
        count, parts = mixing.state.shape[:2]
        strengths = mixing.weights.new_zeros(count, parts, parts)
        at_once = max(1, CELLS // (parts * mixing.state.shape[-1]))
        for text in range(count):
            projected = projected_values(mixing, text)
            for queries in torch.arange(parts, device=strengths.device).split(at_once):
                vectors = torch.einsum("hij,hjd->ijd", mixing.weights[text][:, queries], projected)
                if own and mixing.own:
                    vectors[torch.arange(len(queries)), queries] += mixing.state[text, queries]
                if normalised and mixing.after is not None:
                    vectors = normalised_parts(mixing.after, vectors, mixing.after.spread[text, queries, None])
                strengths[text, queries] = self.strength(vectors, mixing.result[text, queries])
        return strengths

    def strength(
        self, vectors: Float[Tensor, "queries parts hidden"], whole: Float[Tensor, "queries hidden"]
    ) -> Float[Tensor, "queries parts"]:
        """How much each vector counts for the state that they add up to but for biases, `whole`: its length, 0 or more."""
        return vectors.norm(dim=-1)


def projected_values(mixing: Mixing, text: int) -> Float[Tensor, "heads parts hidden"]:
    """W_O v of every head and part of one text."""
    heads = mixing.output.weight.unflatten(1, (mixing.values.shape[1], -1))
    return torch.einsum("dhs,hjs->hjd", heads, mixing.values[text])


def in_shares(strengths: Float[Tensor, "batch parts parts"]) -> Float[Tensor, "batch parts parts"]:
    """Shares of each row's sum; 0 where that is 0."""
    total = strengths.sum(-1, keepdim=True)
    return torch.where(total > 0, strengths / torch.where(total > 0, total, 1), 0)


def with_own(maps: Float[Tensor, "batch parts parts"], own: bool) -> Float[Tensor, "batch parts parts"]:
    """½ (A + I), as if a layer passed on as much of its own input as of all that it attends to; A where it adds no input."""
    if not own:
        return maps
    return (maps + torch.eye(maps.shape[-1], dtype=maps.dtype, device=maps.device)) / 2


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
