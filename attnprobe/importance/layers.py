"""Importances of transformers: what each state owes to each part.

Followed from the deciding state down to the words.
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy.sparse import coo_array
from scipy.sparse.csgraph import maximum_flow
from torch import Tensor
from torch.nn import functional as F

from attnprobe.importance.attribution import Attribution, per_position
from attnprobe.importance.base import Importance, Scores, Subject
from attnprobe.measures import normalised
from attnprobe.models.base import Layers
from attnprobe.models.linearised_layers import (
    Affine,
    Inner,
    Linearised,
    Mixing,
    Norm,
    normalised_parts,
)

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
    """What the layers do, some texts at a time.

    All of the numbers of a network are kept for as many parts as `PARTS`.
    """
    width = subject.classifier.word_of(subject.batch).shape[1]
    size = max(1, PARTS // width)
    for start in range(0, len(subject.batch), size):
        rows = slice(start, min(start + size, len(subject.batch)))
        linearised = subject.classifier.linearised(subject.batch.rows(rows))
        assert isinstance(linearised, Linearised)
        yield rows, linearised


class Rollout(Importance):
    """How much of the deciding state comes from each word, 0 to 1, by the attention of all layers.

    If every layer passed on what it attends to, and its own input as much again: the row of
    ½ (A_L + I) … ½ (A_1 + I), A the mean over a layer's heads. Pieces of a word are added up.

    Values, output projections and feed-forward networks play no part in it. Others say otherwise
    what a state owes to each part (`maps`), and are followed through the layers in the same way.
    """

    name = "rollout"
    title = "attention rollout"
    colour = "#B8860B"
    shares = of_layers = of_words = True

    def is_defined(self, subject: Subject) -> bool:
        """Where the attention of all layers is known."""
        return subject.cached(layers_of) is not None

    def maps(self, subject: Subject, layers: Layers) -> Sequence[Maps]:
        """What each state after a layer (row) owes to each state before it (column).

        Layer by layer, the first first. An input that a layer adds counts as much as all that it
        attends to.
        """
        identity = torch.eye(layers.mask.shape[1]).to(layers.weights[0])
        maps = []
        for weights, adds_input in zip(layers.weights, layers.adds_input, strict=True):
            mean = weights.mean(1)
            maps.append((mean + identity) / 2 if adds_input else mean)
        return maps

    def scores(self, subject: Subject) -> Scores:
        """What the deciding state owes to each word, 0 to 1."""
        layers = subject.cached(layers_of)
        assert layers is not None
        rollout, *upper_maps = self.maps(subject, layers)
        for layer_map in upper_maps:
            rollout = layer_map @ rollout
        if layers.row is not None:  # of the part whose state decides
            deciding = rollout[torch.arange(len(rollout), device=rollout.device), layers.row]
        else:  # the mean state does
            mask = layers.mask.unsqueeze(-1).to(rollout.dtype)
            deciding = (rollout * mask).sum(1) / mask.sum(1)
        return per_position(deciding.double(), subject)


class Moved(Rollout):
    """What each part contributes to the vectors that a layer adds up in each of its states.

    Attributes:
        with_input: the layer's input is one of the vectors (of the state's own part), where the
            layer adds it; else ½ I is.
        normed: the vectors are taken after the layer's normalisation, where one follows.
        needs_norm: there has to be one.
        nearness: a vector counts by how much nearer it brings the origin to the state (in the sum
            of absolute differences); else by its length.
    """

    with_input: ClassVar[bool] = True
    normed: ClassVar[bool] = False
    needs_norm: ClassVar[bool] = False
    nearness: ClassVar[bool] = False

    def is_defined(self, subject: Subject) -> bool:
        """Where these vectors are known.

        That is through the library's attention interface, and where what the attention gives is
        added to a layer's input, normalised after it or not.
        """
        linearised = subject.cached(first_linearised)
        if not isinstance(linearised, Linearised):
            return False
        if not self.needs_norm:
            return True
        return all(block.mixing.after is not None for block in linearised.blocks)

    def maps(self, subject: Subject, layers: Layers) -> Sequence[Maps]:
        """See `mixing_map`."""
        groups = []
        for _, linearised in linearised_parts(subject):
            groups.append([self.mixing_map(block.mixing) for block in linearised.blocks])
        return [torch.cat(maps) for maps in zip(*groups, strict=True)]

    def mixing_map(self, mixing: Mixing) -> Maps:
        """What each state after the attention (row) owes to each state before it (column).

        Shares of how much the vectors that make the state up count for it; some states of one text
        at a time.
        """
        count, parts = mixing.state.shape[:2]
        strengths = mixing.weights.new_zeros(count, parts, parts)
        size = max(1, CELLS // (parts * mixing.state.shape[-1]))
        heads = mixing.output.weight.unflatten(1, (mixing.values.shape[1], -1))
        for text in range(count):
            # W_O v of every head and part
            projected = torch.einsum("dhs,hjs->hjd", heads, mixing.values[text])
            for queries in torch.arange(parts, device=strengths.device).split(size):
                strengths[text, queries] = self._strengths(mixing, text, queries, projected)
        shares = normalised(strengths).nan_to_num(nan=0)
        if self.with_input or not mixing.adds_input:
            return shares
        return (shares + torch.eye(parts).to(shares)) / 2

    def _strengths(
        self,
        mixing: Mixing,
        text: int,
        queries: Int[Tensor, "queries"],
        projected: Float[Tensor, "heads parts hidden"],
    ) -> Float[Tensor, "queries parts"]:
        """How much each part's vector counts for each of these states of a text."""
        vectors = torch.einsum("hij,hjd->ijd", mixing.weights[text][:, queries], projected)
        if self.with_input and mixing.adds_input:
            vectors[torch.arange(len(queries)), queries] += mixing.state[text, queries]
        if self.normed and mixing.after is not None:
            spread = mixing.after.spread[text, queries, None]
            vectors = normalised_parts(mixing.after, vectors, spread)
        if not self.nearness:
            return vectors.norm(dim=-1)
        # to the state that they add up to but for biases
        state = mixing.result[text, queries]
        distance = (state.unsqueeze(1) - vectors).abs().sum(-1)
        return (state.abs().sum(-1, keepdim=True) - distance).clamp(min=0)


class Alti(Moved):
    """max(0, ‖y_i‖₁ − ‖y_i − T_ij‖₁) in shares of each state's sum, through the layers; 0 to 1.

    y_i is the state after the attention, its input and a normalisation where one follows, T_ij what
    part j adds to it. A vector that points away from the state counts for nothing. Pieces of a word
    are added up.
    """

    name = "alti"
    title = "ALTI"
    colour = "#6B8E23"
    normed = nearness = True


class DecompX(Attribution):
    """What each word gives to the logit, every state taken apart into vectors; signed.

    Every state is a sum of vectors, one for each part of the input, and each of them goes through
    attention, normalisations, feed-forward networks and the head by itself: attention weights, the
    spreads that normalisations divide by and act(x) / x of every activation count as constants. A
    bias b is shared out in proportion to |vector · b|.

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
        """Where all that the layers do is known."""
        linearised = subject.cached(first_linearised)
        return isinstance(linearised, Linearised) and not linearised.unknown

    def parts(self, subject: Subject) -> Float[Tensor, "batch parts"]:
        """What each part of the input gives to the logit (or the difference of two).

        Special tokens are among the parts.
        """
        classes = subject.cached(self.explained).classes.tolist()
        parts = torch.zeros(subject.classifier.word_of(subject.batch).shape, dtype=torch.float64)
        for rows, linearised in linearised_parts(subject):
            for text, (first, second) in enumerate(classes[rows]):
                class_logits = parts_of_logits(linearised, text)
                logit = class_logits[:, first]
                if second >= 0:
                    logit = logit - class_logits[:, second]
                parts[rows.start + text, : len(logit)] = logit
        return parts.to(subject.batch.ids.device)

    def scores(self, subject: Subject) -> Scores:
        """Signed, in units of the logit."""
        return per_position(subject.cached(self.parts), subject)

    def total(self, subject: Subject) -> Float[Tensor, "batch"]:
        """The logit (or the difference of two) without what special tokens give to it."""
        explained = subject.cached(self.explained)
        parts = subject.cached(self.parts)
        special = subject.classifier.word_of(subject.batch) < 0
        logit = explained.number_of(subject.outputs.logits.detach().double())
        return logit - (parts * special).sum(-1)


def parts_of_logits(linearised: Linearised, text: int) -> Float[Tensor, "parts classes"]:
    """What each part of one text gives to each class's logit; they add up to the logits."""
    size = int(linearised.mask[text].sum())
    state = linearised.blocks[0].mixing.state[text, :size]
    vectors = torch.zeros(size, *state.shape, dtype=state.dtype, device=state.device)
    place = torch.arange(size, device=state.device)
    vectors[place, place] = state
    for mixing, inner in linearised.blocks:
        vectors = _mixed(mixing, vectors, text)
        if inner is not None:
            # some states at a time
            groups = place.split(max(1, CELLS // (size * len(inner.first.weight))))
            vectors = torch.cat([_fed(inner, vectors[rows], text, rows) for rows in groups])

    assert linearised.row is not None
    deciding = vectors[int(linearised.row[text])]
    for stage in linearised.head:
        if isinstance(stage, Affine):
            deciding = shared(deciding @ stage.weight.T, stage.bias)
        elif isinstance(stage, Norm):
            scaled = normalised_parts(stage, deciding, stage.spread[text, None])
            deciding = shared(scaled, stage.shift)
        else:
            deciding = deciding * stage[text]
    return deciding


def _mixed(mixing: Mixing, vectors: Vectors, text: int) -> Vectors:
    """The vectors of all states of a text after the attention."""
    assert mixing.value is not None
    size = len(vectors)
    place = torch.arange(size, device=vectors.device)
    inputs = _normed(mixing.before, vectors, text, place)
    values = shared(inputs @ mixing.value.weight.T, mixing.value.bias)
    weights = mixing.weights[text, :, :size, :size]
    head_values = values.unflatten(-1, (len(weights), -1))
    attended = torch.einsum("hij,jphs->iphs", weights, head_values).flatten(2)
    result = shared(attended @ mixing.output.weight.T, mixing.output.bias)
    if mixing.adds_input:
        result = result + vectors
    return _normed(mixing.after, result, text, place)


def _fed(inner: Inner, vectors: Vectors, text: int, queries: Int[Tensor, "queries"]) -> Vectors:
    """The vectors of some states of a text after the feed-forward network."""
    inputs = _normed(inner.before, vectors, text, queries)
    active = shared(inputs @ inner.first.weight.T, inner.first.bias)
    active = active * inner.ratio[text, queries].unsqueeze(1)
    result = vectors + shared(active @ inner.second.weight.T, inner.second.bias)
    return _normed(inner.after, result, text, queries)


def _normed(
    norm: Norm | None, vectors: Vectors, text: int, queries: Int[Tensor, "queries"]
) -> Vectors:
    """The vectors after a normalisation, its shift shared out."""
    if norm is None:
        return vectors
    spread = norm.spread[text, queries].unsqueeze(-1)
    return shared(normalised_parts(norm, vectors, spread), norm.shift)


def shared(
    vectors: Float[Tensor, "*any parts features"], bias: Float[Tensor, "features"]
) -> Tensor:
    """The vectors with a bias shared out in proportion to |vector · bias|.

    Evenly where all of these are 0.
    """
    share = (vectors @ bias).abs()
    total = share.sum(-1, keepdim=True)
    even = torch.full_like(share, 1 / share.shape[-1])
    share = torch.where(total > 0, share / torch.where(total > 0, total, 1), even)
    return vectors + share.unsqueeze(-1) * bias


class AttentionFlow(Rollout):
    """The greatest flow from the deciding state down to the pieces of a word, 0 to 1.

    ½ (A + I) of each layer, A the mean over its heads, says how much an edge can carry. Words need
    not add up to 1.

    A greatest flow per word (SciPy): for L layers and n pieces there are L n² edges.
    """

    name = "attention_flow"
    title = "attention flow"
    colour = "#4682B4"

    def scores(self, subject: Subject) -> Scores:
        """0 to 1."""
        layers = subject.cached(layers_of)
        assert layers is not None
        maps = torch.stack(list(self.maps(subject, layers)), 1).cpu().numpy()
        content = subject.batch.content
        word = subject.classifier.word_of(subject.batch).cpu().numpy()
        scores = torch.zeros(content.shape, dtype=torch.float64)
        for text in range(len(content)):
            parts = int(layers.mask[text].sum())
            if layers.row is None:
                read = np.full(parts, 1 / parts)
            else:
                read = np.eye(parts)[int(layers.row[text])]
            for place in content[text].nonzero()[:, 0].tolist():
                into = np.flatnonzero(word[text, :parts] == place)
                scores[text, place] = greatest_flow(maps[text, :, :parts, :parts], read, into)
        return scores.to(content.device)


def greatest_flow(
    maps: Float[np.ndarray, "layers parts parts"],
    read: Float[np.ndarray, "parts"],
    into: Sequence[int] | np.ndarray,
) -> float:
    """The greatest flow from a source at the top layer to a sink below the first.

    Args:
        maps: of each layer, first layer first, what an edge from a state (row) to one before the
            layer (column) can carry.
        read: what the edge from the source to each state of the top layer can carry.
        into: the parts that are joined to the sink.
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
    """How far each state after a layer turns when the value of one piece counts as 0 in it.

    Cosine distances, made to sum to 1 for each state; followed through the layers as `rollout`
    does, without the ½ I, since a layer's own input is in it. Pieces of a word are added up. 0 to
    1. (Mohebbi et al. 2023, section 3)

    Takes a pass per layer and piece.
    """

    name = "value_zeroing"
    title = "value zeroing"
    colour = "#8B3A62"

    def maps(self, subject: Subject, layers: Layers) -> Sequence[Maps]:
        """Shares of the distances, layer by layer."""
        classifier = subject.classifier
        states = classifier.states_silencing(subject.batch, None, 0)
        maps = []
        for layer in range(1, len(layers.weights) + 1):
            state = states[layer].double()
            columns = []
            for part in range(layers.mask.shape[1]):
                silenced = classifier.states_silencing(subject.batch, layer - 1, part)[layer]
                similarity = F.cosine_similarity(state, silenced.double(), dim=-1)
                columns.append((1 - similarity).clamp(min=0))
            turned = torch.stack(columns, -1).masked_fill(~layers.mask.unsqueeze(1), 0)
            maps.append(normalised(turned).nan_to_num(nan=0))
        return maps


class ValueNorm(Importance):
    """α_t ‖h_t‖, 0 or more: the size of what a position adds to the attended vector.

    Kobayashi et al. 2020, for one layer.
    """

    name = "value_norm"
    title = "attention × norm"
    colour = "#CC79A7"
    shares = True

    def is_defined(self, subject: Subject) -> bool:
        """Where the model shows its states."""
        return subject.outputs.hidden.shape[-1] > 0

    def scores(self, subject: Subject) -> Scores:
        """0 or more."""
        return subject.readout.attention * subject.outputs.hidden.detach().double().norm(dim=-1)


class VectorNorm(Moved):
    """‖Σ_h α_ij W_O v_j‖ in shares of each state's sum, through the layers; 0 to 1.

    The length of what part j adds to state i over all heads, followed through the layers as
    `rollout` does, with ½ I for a layer's own input. Pieces of a word are added up.
    """

    name = "vector_norm"
    title = "‖αVW‖, all layers"
    colour = "#A0522D"
    with_input = False


class VectorNormNormalised(Moved):
    """‖LN(Σ_h α_ij W_O v_j + [i = j] x_i)‖ in shares of each state's sum, through the layers.

    LN without its shift, and divided by the spread of the whole sum. Pieces of a word are added up.
    0 to 1.

    Defined where the sum of attention and input is normalised, as in BERT and its kin. Elsewhere
    (GPT-2, Llama, a transformer trained from scratch) `vector_norm_residual` is the whole of it.
    """

    name = "vector_norm_normalised"
    title = "‖LN(αVW + x)‖, all layers"
    colour = "#8B4513"
    normed = needs_norm = True


class VectorNormResidual(Moved):
    """‖Σ_h α_ij W_O v_j + [i = j] x_i‖ in shares of each state's sum, through the layers; 0 to 1.

    What a layer adds may cancel its input. Pieces of a word are added up.
    """

    name = "vector_norm_residual"
    title = "‖αVW + x‖, all layers"
    colour = "#CD853F"
