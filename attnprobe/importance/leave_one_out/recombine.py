"""Predictions of shortened texts from the unchanged text's states and the few that change."""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnprobe.core.batch import Batch, Outputs

# imported for what they register
from attnprobe.importance.leave_one_out import convolutional as _convolutional  # noqa: F401  above
from attnprobe.importance.leave_one_out import recurrent as _recurrent  # noqa: F401  above
from attnprobe.importance.leave_one_out.changed_states import (
    ChangedStates,
    EncodedTexts,
    changed_states,
    factored_score,
)
from attnprobe.models.attention import Attention
from attnprobe.models.base import Model
from attnprobe.models.decoders import Decoder
from attnprobe.models.encoders import TextEncoder
from attnprobe.models.linearised_layers import Affine

if TYPE_CHECKING:  # Lightning takes seconds, which a report need not wait for
    import attnprobe.models.classifier

SINGLE = 1e-6
"""Tolerance from which states are recomputed in float32.

Its rounding is well below, but depends on the batch, and in the ranks of nearly equal distances
that shows."""

LEAST_WEIGHT = 1e-200
"""Sum of weights relative to the text's largest one, below which they are summed by themselves."""
LOWEST = torch.finfo(torch.float64).min
"""Score that every position's exceeds, however far it is below the text's largest one."""
LOST_AT_ONCE = 64
"""Shortened texts of which that is done at a time."""


@dataclass
class SoftmaxAccumulator:
    """The softmax-weighted means of many texts, whose positions come in any order, in float64.

    Positions wait until there are many: a few long operations instead of many short ones.

    Attributes:
        top: the largest score so far.
        sums: of the weights relative to it, and of the weighted values.
    """

    LIMIT: ClassVar[int] = 2**20
    """Buffer limit, in numbers."""
    top: Float[Tensor, "texts"]
    sums: Float[Tensor, "texts values_and_1"]
    waiting: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    count: int = 0

    @classmethod
    def empty(cls, texts: int, values: int, device: torch.device) -> "SoftmaxAccumulator":
        """One without a position; the lowest finite score is below all that come."""
        top = torch.full((texts,), LOWEST, dtype=torch.float64, device=device)
        return cls(top, top.new_zeros(texts, values + 1))

    def add(
        self,
        text: Int[Tensor, "new"],
        score: Float[Tensor, "new"],
        value: Float[Tensor, "new values"],
    ) -> None:
        """Add one more position for each of these texts; a score of −inf adds nothing."""
        self.waiting.append((text, score, value))
        self.count += value.numel()
        if self.count > self.LIMIT:
            self.collect()

    def collect(self) -> None:
        """Take what waits into the sums, relative to the largest score so far: no overflow."""
        text, score, value = (torch.cat(column) for column in zip(*self.waiting, strict=True))
        score = score.double()
        top = self.top.scatter_reduce(0, text, score, "amax")
        weight = (score - top.index_select(0, text)).exp().unsqueeze(1)
        self.sums *= (self.top - top).exp().unsqueeze(1)
        self.sums.index_add_(0, text, torch.cat([weight, weight * value], 1))
        self.top = top
        self.waiting = []
        self.count = 0

    def means(
        self, weight: Float[Tensor, "texts"], mean: Float[Tensor, "texts values"]
    ) -> Float[Tensor, "texts values"]:
        """Merge with other positions of the same texts; no cancellation, no overflow.

        Args:
            weight: the log-sum-exp of the other positions' scores; −inf: none.
            mean: the weighted mean of their values.

        Returns:
            The mean over all positions.
        """
        if self.waiting:
            self.collect()
        total = self.sums[:, :1]
        collected_mean = torch.where(total > 0, self.sums[:, 1:] / total, 0)
        collected_weight = total.squeeze(1).log() + self.top

        total_weight = torch.logaddexp(collected_weight, weight)
        empty = total_weight.isneginf()
        collected_share = torch.where(empty, 0, (collected_weight - total_weight).exp())
        share = torch.where(empty, 0, (weight - total_weight).exp())
        return collected_share.unsqueeze(1) * collected_mean + share.unsqueeze(1) * mean


class Removed(NamedTuple):
    """Texts without one token each: the token at `removed` of `example`, and its prediction.

    `skipped` is the largest difference of states that was taken for none, 0 where there was none.
    """

    example: Int[Tensor, "texts"]
    removed: Int[Tensor, "texts"]
    logits: Float[Tensor, "texts classes"]
    skipped: Float[Tensor, "texts"]


@dataclass(frozen=True)
class Extent:
    """How far the changed states of each shortened text reach, the removed token among them.

    Attributes:
        first: position that changes.
        last: position that changes.
        skipped: the largest difference of states that was taken for none.
    """

    first: Int[Tensor, "texts"]
    last: Int[Tensor, "texts"]
    skipped: Float[Tensor, "texts"]

    def changed(self, texts: Int[Tensor, "some"], width: int) -> Bool[Tensor, "some positions"]:
        """Which of the first `width` positions change in some of the shortened texts."""
        place = torch.arange(width, device=texts.device)
        is_from_first = place >= self.first[texts].unsqueeze(1)
        return is_from_first & (place <= self.last[texts].unsqueeze(1))

    def include(self, states: ChangedStates) -> None:
        """Widen it to these states."""
        self.first.scatter_reduce_(0, states.text, states.position, "amin")
        self.last.scatter_reduce_(0, states.text, states.position, "amax")
        if states.rejoined is not None and states.skipped is not None:
            difference = states.skipped.to(self.skipped.dtype)
            self.skipped.scatter_reduce_(0, states.rejoined, difference, "amax")


@dataclass(frozen=True)
class Recombination:
    """The short cut of a classifier of three stages.

    Attributes:
        encoder: the layers that a changed state comes from, in the precision that the tolerance
            asks for.
        attention: those that it goes through, in the same.
        dtype: that precision.
        tolerance: the difference of states that is taken for none.
    """

    classifier: "attnprobe.models.classifier.AttentionClassifier"
    encoder: TextEncoder
    attention: Attention
    dtype: torch.dtype
    tolerance: float

    def removed(self, batch: Batch, outputs: Outputs) -> Removed:
        """Remove every content token of every text once, and decode what remains.

        Args:
            batch: whole texts.
            outputs: the classifier's for them; their scores and values are taken for the states
                that do not change.
        """
        as_value = value_layer(self.classifier.decoder, outputs.hidden)
        example, removed = batch.content.nonzero(as_tuple=True)
        changed = SoftmaxAccumulator.empty(len(example), len(as_value.bias), example.device)
        extent = self._accumulate(changed, batch, outputs, as_value)

        weights, means = _outside(extent, batch, outputs, as_value)
        mean = changed.means(weights, means)
        logits = self._decoded(mean, batch, outputs, example)
        return Removed(example, removed, logits, extent.skipped)

    def _accumulate(
        self, changed: SoftmaxAccumulator, batch: Batch, outputs: Outputs, as_value: Affine
    ) -> "Extent":
        """Put the changed states into an accumulator."""
        hidden = outputs.hidden.to(self.dtype)
        query = None if outputs.query is None else outputs.query.to(self.dtype)
        as_score, score = factored_score(self.attention, hidden)
        width = len(as_score.bias)
        layer = Affine(
            torch.cat([as_score.weight, as_value.weight.to(self.dtype)]),
            torch.cat([as_score.bias, as_value.bias.to(self.dtype)]),
        )
        example, removed = batch.content.nonzero(as_tuple=True)
        extent = Extent(removed.clone(), removed.clone(), torch.zeros_like(changed.top))
        texts = self._encoded(batch, hidden)
        for states in changed_states(self.encoder, texts, layer, self.tolerance):
            extent.include(states)
            row = example.index_select(0, states.text)
            scores = score(states.seen[:, :width], None if query is None else query[row])
            outside = ~batch.content[row, states.position]
            # a copy: a view would keep all of `seen` in memory while it waits
            values = states.seen[:, width:].clone()
            changed.add(states.text, scores.masked_fill(outside, -torch.inf), values)
        return extent

    def _encoded(self, batch: Batch, hidden: Float[Tensor, "batch seq hidden"]) -> EncodedTexts:
        distinct, which = batch.ids.unique(return_inverse=True)
        words = self.classifier.embedding(distinct).to(self.dtype)
        return EncodedTexts(words, which, batch.mask, batch.content, hidden)

    def _decoded(
        self,
        mean: Float[Tensor, "texts values"],
        batch: Batch,
        outputs: Outputs,
        example: Int[Tensor, "texts"],
    ) -> Float[Tensor, "texts classes"]:
        """Logits from the mean values (see `value_layer`).

        −inf for classes that are no candidates.
        """
        decoder = self.classifier.decoder
        candidates = None if batch.candidates is None else batch.candidates[example]
        if not has_one_weight(decoder):
            attended = mean.to(outputs.hidden.dtype).unsqueeze(1)
            query = None if outputs.query is None else outputs.query[example]
            weight = torch.ones_like(attended[..., 0])
            return decoder.decode(attended, weight, query, candidates)

        if outputs.query is not None:  # what the question adds is the same at every position
            nothing = torch.zeros_like(outputs.hidden[:, 0])
            mean = mean + (decoder(nothing, outputs.query) - decoder(nothing))[example]
        return mean if candidates is None else mean.masked_fill(~candidates, -torch.inf)


def _outside(
    extent: Extent, batch: Batch, outputs: Outputs, as_value: Affine
) -> tuple[Float[Tensor, "texts"], Float[Tensor, "texts values"]]:
    """What does not change in each shortened text.

    Returns:
        The log-sum-exp of the scores, and the weighted mean of the values, of all positions outside
        the changed stretch; see `SoftmaxAccumulator.means`.
    """
    example, _ = batch.content.nonzero(as_tuple=True)
    scores = outputs.scores.double()
    values = F.linear(outputs.hidden, *as_value).double()
    top = scores.amax(1, keepdim=True)
    weight = (scores - top).exp().unsqueeze(-1)
    terms = torch.cat([batch.content.unsqueeze(-1).double(), weight, weight * values], -1)
    outside = _sums_outside(extent, example, terms)
    positions, total, weighted = outside.split([1, 1, values.shape[-1]], -1)

    weights = (total.log() + top[example]).squeeze(1)
    means = torch.where(total > 0, weighted / total, 0)
    # beside the text's largest score these are rounded away: relative to their own they are not
    lost = ((positions > 0) & (total < LEAST_WEIGHT)).squeeze(1).nonzero().squeeze(1)
    for texts in lost.split(LOST_AT_ONCE):
        unchanged = scores[example[texts]]
        unchanged = unchanged.masked_fill(extent.changed(texts, scores.shape[1]), -torch.inf)
        weights[texts] = unchanged.logsumexp(-1)
        means[texts] = torch.einsum("ts,tsv->tv", unchanged.softmax(-1), values[example[texts]])
    return weights, means


def _sums_outside(
    extent: Extent, example: Int[Tensor, "texts"], terms: Float[Tensor, "batch seq numbers"]
) -> Float[Tensor, "texts numbers"]:
    """The sum of each text's terms outside the stretch that changes.

    From the sums up to each position and from it on: a text costs as much as it has positions, and
    nothing is subtracted.
    """
    before = F.pad(terms.cumsum(1), (0, 0, 1, 0))
    after = F.pad(terms.flip(1).cumsum(1), (0, 0, 1, 0)).flip(1)
    return before[example, extent.first] + after[example, extent.last + 1]


def has_one_weight(decoder: Decoder) -> bool:
    """Whether a state's logits are the same for all texts, but for what a question adds."""
    return decoder.linear and not decoder.weighs_by_query


def value_layer(decoder: Decoder, hidden: Float[Tensor, "batch seq hidden"]) -> Affine:
    """State → what the attention averages: position logits, or else the state itself.

    With a linear decoder of one weight the mean of the positions' logits is the logits of the mean.
    """
    size = hidden.shape[-1]
    identity = Affine(torch.eye(size).to(hidden), hidden.new_zeros(size))
    if not has_one_weight(decoder):
        return identity
    bias = decoder(identity.bias)
    return Affine((decoder(identity.weight) - bias).t(), bias)


def short_cut(classifier: Model, tolerance: float) -> Recombination | None:
    """The short cut of a model whose states, scores and values are known apart, if there is one.

    None for any other model, for an encoder that no short cut is known for, and for an attention
    whose scores depend on more than the single state.

    Args:
        classifier: is left as it is.
        tolerance: difference of states that may be taken for none; 0 approximates nothing.
    """
    from attnprobe.models.classifier import AttentionClassifier

    if not isinstance(classifier, AttentionClassifier) or not classifier.attention.positionwise:
        return None
    # not a base class's: what a subclass adds to `forward` would be ignored without a word
    if type(classifier.encoder) not in changed_states.registry:
        return None
    dtype = classifier.embedding.weight.dtype
    # where the user lets float32 products be rounded to fewer bits (TF32, bfloat16) they are not
    # good enough
    full_precision = torch.get_float32_matmul_precision() == "highest"
    if dtype != torch.float64 or tolerance < SINGLE or not full_precision:
        return Recombination(classifier, classifier.encoder, classifier.attention, dtype, tolerance)
    encoder = deepcopy(classifier.encoder)
    attention = deepcopy(classifier.attention)
    return Recombination(classifier, encoder.float(), attention.float(), torch.float32, tolerance)
