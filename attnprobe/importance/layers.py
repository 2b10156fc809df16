"""Importances of transformers: what each state owes to each part, followed from the deciding state
down to the words."""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from scipy.sparse import coo_array
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor
from torch.nn import functional as F

from attnprobe.importance.attribution import Attribution, per_word
from attnprobe.importance.base import Importance, Scores, Subject
from attnprobe.measures import normalised
from attnprobe.models.base import Layers
from attnprobe.models.linearised_layers import Affine, Linearised, Mixing, Norm, normalised_parts

Maps = Float[Tensor, "batch parts parts"]
Vectors = Float[Tensor, "queries parts hidden"]

CELLS = 1 << 24
"""Numbers of vectors that are held at a time: 128 MiB in float64."""
PARTS = 1024
"""Parts of texts whose way through a network is held at a time: of BERT-base 500 MiB."""
UNIT = 1 << 28
"""The flow is computed in whole numbers; this is a flow of 1."""


def layers_of(subject: Subject) -> Layers | None:
    """The attention of all layers; None where the model has none."""
    return subject.classifier.layers(subject.batch)


def first_linearised(subject: Subject) -> Linearised | str:
    """What the layers do to the first text's vectors; else why that is not known."""
    return subject.classifier.linearised(subject.batch.rows(slice(0, 1)))


def linearised_parts(subject: Subject) -> Iterator[tuple[slice, Linearised]]:
    """What the layers do, some texts at a time: all of the numbers of a network are kept for as
    many parts as `PARTS`."""
    width = subject.classifier.word_of(subject.batch).shape[1]
    at_once = max(1, PARTS // width)
    for start in range(0, len(subject.batch), at_once):
        rows = slice(start, min(start + at_once, len(subject.batch)))
        linearised = subject.classifier.linearised(subject.batch.rows(rows))
        assert isinstance(linearised, Linearised)
        yield rows, linearised


class Rollout(Importance):
    """How much of the deciding state comes from each word, if every layer passed on what it attends
    to, and its own input as much again: the row of ½ (A_L + I) … ½ (A_1 + I), A the mean over a
    layer's heads. Pieces of a word are added up. 0 to 1.

    Values, output projections and feed-forward networks play no part in it. Others say otherwise
    what a state owes to each part (`maps`), and are followed through the layers in the same way.
    """

    name = "rollout"
    title = "attention rollout"
    colour = "#B8860B"
    shares = of_layers = of_words = True

    def is_defined(self, subject: Subject) -> bool:
        return subject.cached(layers_of) is not None

    def maps(self, subject: Subject, layers: Layers) -> Sequence[Maps]:
        """What each state after a layer (row) owes to each state before it (column), layer by
        layer. An input that a layer adds counts as much as all that it attends to."""
        own = torch.eye(layers.mask.shape[1]).to(layers.weights[0])
        means = [one.mean(1) for one in layers.weights]
        return [
            (one + own) / 2 if adds else one
            for one, adds in zip(means, layers.adds_input, strict=True)
        ]

    def scores(self, subject: Subject) -> Scores:
        layers = subject.cached(layers_of)
        assert layers is not None
        followed, *others = self.maps(subject, layers)
        for one in others:
            followed = one @ followed
        if layers.row is not None:  # of the part whose state decides
            read = followed[torch.arange(len(followed), device=followed.device), layers.row]
        else:  # the mean state does
            there = layers.mask.unsqueeze(-1).to(followed.dtype)
            read = (followed * there).sum(1) / there.sum(1)
        return per_word(read.double(), subject)


class Moved(Rollout):
    """What each part contributes to the vectors that a layer adds up in each of its states.

    Attributes:
        own: the layer's input is one of the vectors (of the state's own part), where the layer adds
            it; else ½ I is.
        normed: the vectors are taken after the layer's normalisation, where one follows.
        needs_norm: there has to be one.
        nearness: a vector counts by how much nearer it brings the origin to the state (in the sum
            of absolute differences); else by its length.
    """

    own: ClassVar[bool] = True
    normed: ClassVar[bool] = False
    needs_norm: ClassVar[bool] = False
    nearness: ClassVar[bool] = False

    def is_defined(self, subject: Subject) -> bool:
        """Where these vectors are known: through the library's attention interface, and where what
        the attention gives is added to a layer's input, normalised after it or not."""
        linearised = subject.cached(first_linearised)
        if not isinstance(linearised, Linearised):
            return False
        return not self.needs_norm or all(one.mixing.after is not None for one in linearised.blocks)

    def maps(self, subject: Subject, layers: Layers) -> Sequence[Maps]:
        found = [
            [self.of_mixing(block.mixing) for block in one.blocks]
            for _, one in linearised_parts(subject)
        ]
        return [torch.cat(one) for one in zip(*found, strict=True)]

    def of_mixing(self, mixing: Mixing) -> Maps:
        """What each state after the attention (row) owes to each state before it (column): shares
        of how much the vectors that make it up count for it, some states of one text at a time."""
        count, parts = mixing.state.shape[:2]
        strengths = mixing.weights.new_zeros(count, parts, parts)
        at_once = max(1, CELLS // (parts * mixing.state.shape[-1]))
        for text in range(count):
            heads = mixing.output.weight.unflatten(1, (mixing.values.shape[1], -1))
            projected = torch.einsum(
                "dhs,hjs->hjd", heads, mixing.values[text]
            )  # W_O v of every head and part
            for queries in torch.arange(parts, device=strengths.device).split(at_once):
                vectors = torch.einsum("hij,hjd->ijd", mixing.weights[text][:, queries], projected)
                if self.own and mixing.adds_input:
                    vectors[torch.arange(len(queries)), queries] += mixing.state[text, queries]
                if self.normed and mixing.after is not None:
                    vectors = normalised_parts(
                        mixing.after, vectors, mixing.after.spread[text, queries, None]
                    )
                if self.nearness:  # to the state that they add up to but for biases
                    whole = mixing.result[text, queries]
                    away = (whole.unsqueeze(1) - vectors).abs().sum(-1)
                    strengths[text, queries] = (whole.abs().sum(-1, keepdim=True) - away).clamp(
                        min=0
                    )
                else:
                    strengths[text, queries] = vectors.norm(dim=-1)
        shares = normalised(strengths).nan_to_num(nan=0)
        return (
            shares
            if self.own or not mixing.adds_input
            else (shares + torch.eye(parts).to(shares)) / 2
        )


class Alti(Moved):
    """c_ij = max(0, ‖y_i‖₁ − ‖y_i − T_ij‖₁) in shares of each state's sum, y_i the state after the
    attention, its input and a normalisation where one follows, T_ij what part j adds to it;
    followed through the layers. A vector that points away from the state counts for nothing. Pieces
    of a word are added up. 0 to 1."""

    name = "alti"
    title = "ALTI"
    colour = "#6B8E23"
    normed = nearness = True


class DecompX(Attribution):
    """Every state is a sum of vectors, one for each part of the input, and each of them goes
    through attention, normalisations, feed-forward networks and the head by itself, signed:
    attention weights, the spreads that normalisations divide by and act(x) / x of every activation
    count as constants. A bias b is shared out in proportion to |vector · b|.

    The parts add up to the logit. What belongs to special tokens is no word's, so that the words'
    scores add up to the logit without it (`total`). Holds for a transformer trained from scratch,
    and for networks whose layers are attention, a linear map and two linear maps with one of the
    library's activations between them: BERT, RoBERTa, DistilBERT, ALBERT, ELECTRA, XLM-RoBERTa,
    GPT-2. Not for gated networks (Llama, Gemma, Qwen, ModernBERT), nor where values are hidden
    (DeBERTa, MPNet).

    Takes n³ numbers of arithmetic per feature and layer for n pieces, and n² features in memory.

    The released code can share a bias out in other ways (evenly, by length); this is its `absdot`.
    """

    name = "decompx"
    title = "DecompX"
    colour = "#9932CC"
    complete = of_layers = True

    def is_defined(self, subject: Subject) -> bool:
        linearised = subject.cached(first_linearised)
        return isinstance(linearised, Linearised) and not linearised.unknown

    def parts(self, subject: Subject) -> Float[Tensor, "batch parts"]:
        """What each part of the input, special tokens among them, gives to the logit (or the
        difference of two)."""
        classes = subject.cached(self.explained).classes.tolist()
        found = torch.zeros(subject.classifier.word_of(subject.batch).shape, dtype=torch.float64)
        for rows, linearised in linearised_parts(subject):
            for text, (first, second) in enumerate(classes[rows]):
                of_classes = parts_of_logits(linearised, text)
                of_class = of_classes[:, first] - (of_classes[:, second] if second >= 0 else 0)
                found[rows.start + text, : len(of_class)] = of_class
        return found.to(subject.batch.ids.device)

    def scores(self, subject: Subject) -> Scores:
        return per_word(subject.cached(self.parts), subject)

    def total(self, subject: Subject) -> Float[Tensor, "batch"]:
        explained = subject.cached(self.explained)
        parts = subject.cached(self.parts)
        special = subject.classifier.word_of(subject.batch) < 0
        return explained.number_of(subject.outputs.logits.detach().double()) - (
            parts * special
        ).sum(-1)


def parts_of_logits(linearised: Linearised, text: int) -> Float[Tensor, "parts classes"]:
    """What each part of one text gives to each class's logit; they add up to the logits."""

    def normed(norm: Norm | None, vectors: Vectors, queries: Tensor) -> Vectors:
        """The vectors after a normalisation, its shift shared out."""
        if norm is None:
            return vectors
        return shared(
            normalised_parts(norm, vectors, norm.spread[text, queries].unsqueeze(-1)), norm.shift
        )

    size = int(linearised.mask[text].sum())
    state = linearised.blocks[0].mixing.state[text, :size]
    vectors = torch.zeros(size, *state.shape, dtype=state.dtype, device=state.device)
    place = torch.arange(size, device=state.device)
    vectors[place, place] = state
    for mixing, inner in linearised.blocks:
        assert mixing.value is not None
        values = shared(
            normed(mixing.before, vectors, place) @ mixing.value.weight.T, mixing.value.bias
        )
        weights = mixing.weights[text, :, :size, :size]
        attended = torch.einsum(
            "hij,jphs->iphs", weights, values.unflatten(-1, (len(weights), -1))
        ).flatten(2)
        result = shared(attended @ mixing.output.weight.T, mixing.output.bias)
        vectors = normed(mixing.after, result + vectors if mixing.adds_input else result, place)
        if inner is None:
            continue
        moved = []  # by the feed-forward network, some states at a time
        for queries in place.split(max(1, CELLS // (size * len(inner.first.weight)))):
            given = vectors[queries]
            active = shared(
                normed(inner.before, given, queries) @ inner.first.weight.T, inner.first.bias
            )
            active = active * inner.ratio[text, queries].unsqueeze(1)
            result = given + shared(active @ inner.second.weight.T, inner.second.bias)
            moved.append(normed(inner.after, result, queries))
        vectors = torch.cat(moved)
    assert linearised.row is not None
    deciding = vectors[int(linearised.row[text])]
    for stage in linearised.head:
        if isinstance(stage, Affine):
            deciding = shared(deciding @ stage.weight.T, stage.bias)
        elif isinstance(stage, Norm):
            deciding = shared(
                normalised_parts(stage, deciding, stage.spread[text, None]), stage.shift
            )
        else:
            deciding = deciding * stage[text]
    return deciding


def shared(
    vectors: Float[Tensor, "*any parts features"], bias: Float[Tensor, "features"]
) -> Tensor:
    """The vectors with a bias shared out in proportion to |vector · bias|; evenly where all of
    these are 0."""
    share = (vectors @ bias).abs()
    total = share.sum(-1, keepdim=True)
    even = torch.full_like(share, 1 / share.shape[-1])
    share = torch.where(total > 0, share / torch.where(total > 0, total, 1), even)
    return vectors + share.unsqueeze(-1) * bias


class AttentionFlow(Rollout):
    """The greatest flow from the deciding state down to the pieces of a word, where ½ (A + I) of
    each layer, A the mean over its heads, says how much an edge can carry. 0 to 1, and words need
    not add up to 1.

    A greatest flow per word (SciPy): for L layers and n pieces there are L n² edges.
    """

    name = "attention_flow"
    title = "attention flow"
    colour = "#4682B4"

    def scores(self, subject: Subject) -> Scores:
        layers = subject.cached(layers_of)
        assert layers is not None
        maps = torch.stack(list(self.maps(subject, layers)), 1).cpu().numpy()
        content = subject.batch.content
        word = subject.classifier.word_of(subject.batch).cpu().numpy()
        scores = torch.zeros(content.shape, dtype=torch.float64)
        for text in range(len(content)):
            parts = int(layers.mask[text].sum())
            read = (
                np.full(parts, 1 / parts)
                if layers.row is None
                else np.eye(parts)[int(layers.row[text])]
            )
            for place in content[text].nonzero()[:, 0].tolist():
                into = np.flatnonzero(word[text, :parts] == place)
                scores[text, place] = greatest_flow(maps[text, :, :parts, :parts], read, into)
        return scores.to(content.device)


def greatest_flow(
    maps: Float[np.ndarray, "layers parts parts"],
    read: Float[np.ndarray, "parts"],
    into: Sequence[int] | np.ndarray,
) -> float:
    """From a source that is joined to the top layer's states by `read`, down to the parts `into`,
    which end in one sink.

    Args:
        maps: of each layer, first layer first, what an edge from a state (row) to one before the
            layer (column) can carry.
    """
    layers, parts = maps.shape[:2]
    nodes = (layers + 1) * parts
    layer, upper, lower = np.nonzero(maps)
    source = nodes
    sink = nodes + 1
    begins = [(layer + 1) * parts + upper, np.full(parts, source), np.asarray(into)]
    ends = [layer * parts + lower, layers * parts + np.arange(parts), np.full(len(into), sink)]
    carried = [maps[layer, upper, lower], read, np.ones(len(into))]
    capacity = np.rint(np.concatenate(carried) * UNIT).astype(np.int32)
    where = (np.concatenate(begins), np.concatenate(ends))
    graph = coo_array((capacity, where), shape=(nodes + 2, nodes + 2)).tocsr()
    return float(maximum_flow(graph, source, sink).flow_value) / UNIT


class ValueZeroing(Rollout):
    """How far each state after a layer turns (cosine distance) when the value of one piece counts
    as 0 in this layer, made to sum to 1 for each state; followed through the layers as `rollout`
    does, without the ½ I, since a layer's own input is in it. Pieces of a word are added up. 0 to
    1. (Mohebbi et al. 2023, section 3)

    Takes a pass per layer and piece.
    """

    name = "value_zeroing"
    title = "value zeroing"
    colour = "#8B3A62"

    def maps(self, subject: Subject, layers: Layers) -> Sequence[Maps]:
        own = subject.classifier.states_silencing(subject.batch, None, 0)
        maps = []
        for layer in range(1, len(layers.weights) + 1):
            columns = []
            for part in range(layers.mask.shape[1]):
                other = subject.classifier.states_silencing(subject.batch, layer - 1, part)[layer]
                columns.append(
                    (1 - F.cosine_similarity(own[layer].double(), other.double(), dim=-1)).clamp(
                        min=0
                    )
                )
            turned = torch.stack(columns, -1).masked_fill(~layers.mask.unsqueeze(1), 0)
            maps.append(normalised(turned).nan_to_num(nan=0))
        return maps


class ValueNorm(Importance):
    """α_t ‖h_t‖, 0 or more: the size of what a position adds to the attended vector (Kobayashi et
    al. 2020, for one layer)."""

    name = "value_norm"
    title = "attention × norm"
    colour = "#CC79A7"
    shares = True

    def is_defined(self, subject: Subject) -> bool:
        return subject.outputs.hidden.shape[-1] > 0

    def scores(self, subject: Subject) -> Scores:
        return subject.readout.attention * subject.outputs.hidden.detach().double().norm(dim=-1)


class VectorNorm(Moved):
    """‖Σ_h α_ij W_O v_j‖, the length of what part j adds to state i over all heads, in shares of
    each state's sum; followed through the layers as `rollout` does, with ½ I for a layer's own
    input. Pieces of a word are added up. 0 to 1."""

    name = "vector_norm"
    title = "‖αVW‖, all layers"
    colour = "#A0522D"
    own = False


class VectorNormNormalised(Moved):
    """‖LN(Σ_h α_ij W_O v_j + [i = j] x_i)‖ in shares of each state's sum, followed through the
    layers: LN without its shift, and divided by the spread of the whole sum. Pieces of a word are
    added up. 0 to 1.

    Defined where the sum of attention and input is normalised, as in BERT and its kin. Elsewhere
    (GPT-2, Llama, a transformer trained from scratch) `vector_norm_residual` is the whole of it.
    """

    name = "vector_norm_normalised"
    title = "‖LN(αVW + x)‖, all layers"
    colour = "#8B4513"
    normed = needs_norm = True


class VectorNormResidual(Moved):
    """‖Σ_h α_ij W_O v_j + [i = j] x_i‖, in shares of each state's sum, followed through the layers.
    What a layer adds may cancel its input. Pieces of a word are added up. 0 to 1."""

    name = "vector_norm_residual"
    title = "‖αVW + x‖, all layers"
    colour = "#CD853F"
