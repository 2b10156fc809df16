"""The logit as a sum of one part per word, carried as vectors through every layer (DecompX, Modarressi et al. 2023)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.attribution import Attribution, per_word
from attnprobe.importance.base import Subject
from attnprobe.importance.followed import CELLS, anatomies, first_anatomy
from attnprobe.models.anatomy import Affine, Anatomy, Inner, Mixing, Norm, normalised_parts


@dataclass(frozen=True)
class DecompX(Attribution):
    """Every state is a sum of vectors, one for each part of the input, and each of them goes through attention,
    normalisations, feed-forward networks and the head by itself, signed: attention weights, the spreads that normalisations
    divide by and act(x) / x of every activation count as constants. A bias b is shared out in proportion to |vector · b|.

    The parts add up to the logit. What belongs to special tokens is no word's, so that the words' scores add up to the logit
    without it (`total`). Holds for a transformer trained from scratch, and for networks whose layers are attention, a linear
    map and two linear maps with one of the library's activations between them: BERT, RoBERTa, DistilBERT, ALBERT, ELECTRA,
    XLM-RoBERTa, GPT-2. Not for gated networks (Llama, Gemma, Qwen, ModernBERT), nor where values are hidden (DeBERTa, MPNet).

    Takes n³ numbers of arithmetic per feature and layer for n pieces, and n² features in memory.

    Note:
        The released code can share a bias out in other ways (evenly, by length); this is its `absdot`.
    """

    name: ClassVar[str] = "decompx"
    title: ClassVar[str] = "DecompX"
    colour: ClassVar[str] = "#9932CC"
    complete: ClassVar[bool] = True
    of_layers: ClassVar[bool] = True

    def is_defined(self, subject: Subject) -> bool:
        """Where all of the network can be taken apart."""
        anatomy = subject.cached(first_anatomy)
        return isinstance(anatomy, Anatomy) and not anatomy.unknown

    def parts(self, subject: Subject) -> Float[Tensor, "batch parts"]:
        """What each part of the input, special tokens among them, gives to the logit (or the difference of two)."""
        classes = subject.cached(self.explained).classes.tolist()
        found = torch.zeros(subject.classifier.word_of(subject.batch).shape, dtype=torch.float64)
        for rows, anatomy in anatomies(subject):
            for text, (first, second) in enumerate(classes[rows]):
                of_classes = parts_of_logits(anatomy, text)
                of_class = of_classes[:, first] - (of_classes[:, second] if second >= 0 else 0)
                found[rows.start + text, : len(of_class)] = of_class
        return found.to(subject.batch.ids.device)

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """Signed, 0 outside content."""
        return per_word(subject.cached(self.parts), subject)

    def total(self, subject: Subject) -> Float[Tensor, "batch"]:
        """The logit without the parts of what is no word."""
        explained, parts = subject.cached(self.explained), subject.cached(self.parts)
        special = subject.classifier.word_of(subject.batch) < 0
        return explained.number_of(subject.outputs.logits.detach().double()) - (parts * special).sum(-1)


def parts_of_logits(anatomy: Anatomy, text: int) -> Float[Tensor, "parts classes"]:
    """What each part of one text gives to each class's logit; they add up to the logits."""
    size = int(anatomy.mask[text].sum())
    state = anatomy.blocks[0].mixing.state[text, :size]
    vectors = torch.zeros(size, *state.shape, dtype=state.dtype, device=state.device)
    place = torch.arange(size, device=state.device)
    vectors[place, place] = state
    for mixing, inner in anatomy.blocks:
        vectors = mixed(mixing, vectors, text)
        if inner is not None:
            vectors = after_inner(inner, vectors, text)
    assert anatomy.row is not None
    row = int(anatomy.row[text])
    deciding = vectors[row]
    for stage in anatomy.head:
        if isinstance(stage, Affine):
            deciding = shared(deciding @ stage.weight.T, stage.bias)
        elif isinstance(stage, Norm):
            deciding = shared(normalised_parts(stage, deciding, stage.spread[text, None]), stage.shift)
        else:
            deciding = deciding * stage[text]
    return deciding


def mixed(
    mixing: Mixing, vectors: Float[Tensor, "queries parts hidden"], text: int
) -> Float[Tensor, "queries parts hidden"]:
    """The vectors after an attention, its input and its normalisation."""
    size = len(vectors)
    assert mixing.value is not None
    values = shared(normed(mixing.before, vectors, text) @ mixing.value.weight.T, mixing.value.bias)
    weights = mixing.weights[text, :, :size, :size]
    by_head = values.unflatten(-1, (len(weights), -1))
    attended = torch.einsum("hij,jphs->iphs", weights, by_head).flatten(2)
    result = shared(attended @ mixing.output.weight.T, mixing.output.bias)
    if mixing.own:
        result = result + vectors
    return normed(mixing.after, result, text)


def after_inner(
    inner: Inner, vectors: Float[Tensor, "queries parts hidden"], text: int
) -> Float[Tensor, "queries parts hidden"]:
    """The vectors after a feed-forward network, its input and its normalisation, some states at a time."""
    at_once = max(1, CELLS // (vectors.shape[1] * len(inner.first.weight)))
    results = []
    for queries in torch.arange(len(vectors), device=vectors.device).split(at_once):
        given = vectors[queries]
        active = shared(normed(inner.before, given, text, queries) @ inner.first.weight.T, inner.first.bias)
        active = active * inner.ratio[text, queries].unsqueeze(1)
        result = given + shared(active @ inner.second.weight.T, inner.second.bias)
        results.append(normed(inner.after, result, text, queries))
    return torch.cat(results)


def normed(
    norm: Norm | None, vectors: Float[Tensor, "queries parts hidden"], text: int, queries: Tensor | None = None
) -> Float[Tensor, "queries parts hidden"]:
    """The vectors after a normalisation, its shift shared out."""
    if norm is None:
        return vectors
    spread = norm.spread[text, : len(vectors)] if queries is None else norm.spread[text, queries]
    return shared(normalised_parts(norm, vectors, spread.unsqueeze(-1)), norm.shift)


def shared(vectors: Float[Tensor, "*any parts features"], bias: Float[Tensor, "features"]) -> Tensor:
    """The vectors with a bias shared out in proportion to |vector · bias|; evenly where all of these are 0."""
    share = (vectors @ bias).abs()
    total = share.sum(-1, keepdim=True)
    even = torch.full_like(share, 1 / share.shape[-1])
    share = torch.where(total > 0, share / torch.where(total > 0, total, 1), even)
    return vectors + share.unsqueeze(-1) * bias
