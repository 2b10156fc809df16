"""Predictions of shortened texts from the unchanged text's states and the few that change."""

from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from attnprobe.core.batch import Batch, Outputs

# imported for what they register
from attnprobe.importance.leave_one_out import convolutional as _convolutional  # noqa: F401
from attnprobe.importance.leave_one_out import recurrent as _recurrent  # noqa: F401
from attnprobe.importance.leave_one_out.changed_states import (
    Affine,
    EncodedTexts,
    changed_states,
    factored_score,
)
from attnprobe.models.attention import Attention
from attnprobe.models.base import Model
from attnprobe.models.encoders import TextEncoder

if TYPE_CHECKING:  # Lightning takes seconds, which a report need not wait for
    import attnprobe.models.classifier

SINGLE = 1e-6
"""Tolerance from which states are recomputed in float32: its rounding is well below, but depends on
the batch, and in the ranks of nearly equal distances that shows."""


@dataclass
class SoftmaxAccumulator:
    """The softmax-weighted means of many texts, whose positions come in any order, in float64.

    Positions wait until there are many: a few long operations instead of many short ones.

    Attributes:
        top: any finite score for a start, best the largest that is to be expected.
        sums: of the weights relative to it, and of the weighted values; 0 at first.
    """

    LIMIT: ClassVar[int] = 2**20
    """Numbers that may wait."""
    top: Float[Tensor, "texts"]
    sums: Float[Tensor, "texts values_and_1"]
    waiting: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)
    count: int = 0

    def add(
        self,
        text: Int[Tensor, "new"],
        score: Float[Tensor, "new"],
        value: Float[Tensor, "new values"],
    ) -> None:
        """One more position for each of these texts; a score of −inf adds nothing."""
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
        """Of all positions so far and of others, with the log-sum-exp of their scores (−inf: none)
        and their values' weighted mean; no cancellation, no overflow."""
        if self.waiting:
            self.collect()
        total = self.sums[:, :1]
        own = total.squeeze(1).log() + self.top
        whole = torch.logaddexp(own, weight)
        shares = [
            torch.where(whole.isneginf(), 0, (one - whole).exp()).unsqueeze(1)
            for one in (own, weight)
        ]
        return shares[0] * torch.where(total > 0, self.sums[:, 1:] / total, 0) + shares[1] * mean


class Removed(NamedTuple):
    """Texts without one token each: the token at `removed` of `example`, and what is predicted
    then.

    `skipped` is the largest difference of states that was taken for none, 0 where there was none.
    """

    example: Int[Tensor, "texts"]
    removed: Int[Tensor, "texts"]
    logits: Float[Tensor, "texts classes"]
    skipped: Float[Tensor, "texts"]


@dataclass(frozen=True)
class Recombination:
    """The short cut of a classifier of three stages: the layers that a changed state comes from and
    goes through, in the precision that the tolerance asks for."""

    classifier: "attnprobe.models.classifier.AttentionClassifier"
    encoder: TextEncoder
    attention: Attention
    dtype: torch.dtype
    tolerance: float

    def removed(self, batch: Batch, outputs: Outputs) -> Removed:
        """Every content token of every text removed once: decoded from the unchanged scores and
        values, and the changed ones; `outputs` are those of the whole texts."""
        linear = self.classifier.decoder.linear
        classifier = self.classifier
        hidden = outputs.hidden.to(self.dtype)
        query = None if outputs.query is None else outputs.query.to(self.dtype)
        for_score, score = factored_score(self.attention, hidden)
        size = outputs.hidden.shape[-1]
        as_value = Affine(
            torch.eye(size).to(outputs.hidden), outputs.hidden.new_zeros(size)
        )  # the state itself
        if linear:  # the mean of the positions' logits is the logits of the mean
            bias = classifier.decoder(as_value.bias)
            as_value = Affine((classifier.decoder(as_value.weight) - bias).t(), bias)
        both = Affine(
            *(torch.cat([a, b.to(a.dtype)]) for a, b in zip(for_score, as_value, strict=True))
        )
        width = len(for_score.bias)
        distinct, which = batch.ids.unique(return_inverse=True)
        words = classifier.embedding(distinct.unsqueeze(0)).squeeze(0).to(self.dtype)
        texts = EncodedTexts(words, which, batch.mask, batch.content, hidden)

        example, removed = batch.content.nonzero(as_tuple=True)
        first = removed.clone()
        last = removed.clone()
        own = outputs.scores.double()
        top = own.amax(1)[example]
        changed = SoftmaxAccumulator(top, top.new_zeros(len(top), len(as_value.bias) + 1))
        skipped = changed.top.new_zeros(len(example))
        for text, position, seen, rejoined, difference in changed_states(
            self.encoder, texts, both, self.tolerance
        ):
            if rejoined is not None and difference is not None:
                skipped.scatter_reduce_(0, rejoined, difference.to(skipped.dtype), "amax")
            of = example.index_select(0, text)
            scores = score(seen[:, :width], None if query is None else query[of])
            changed.add(
                text, scores.masked_fill(~batch.content[of, position], -torch.inf), seen[:, width:]
            )
            first.scatter_reduce_(0, text, position, "amin")
            last.scatter_reduce_(0, text, position, "amax")

        # of each text without each of its tokens, all that lies outside the changed stretch
        values = F.linear(outputs.hidden, *as_value).double()
        place = torch.arange(batch.ids.shape[1], device=own.device)
        stretch = place.new_full((2, *batch.content.shape), -1)
        stretch[:, example, removed] = torch.stack([first, last])
        inside = (place >= stretch[0].unsqueeze(-1)) & (place <= stretch[1].unsqueeze(-1))
        unchanged = own.unsqueeze(1).masked_fill(inside, -torch.inf)
        means = unchanged.softmax(-1).nan_to_num(nan=0) @ values
        mean = changed.means(unchanged.logsumexp(-1)[example, removed], means[example, removed])
        candidates = None if batch.candidates is None else batch.candidates[example]
        if not linear:
            attended = mean.to(outputs.hidden.dtype).unsqueeze(1)
            question = None if outputs.query is None else outputs.query[example]
            logits = classifier.decoder.decode(
                attended, torch.ones_like(attended[..., 0]), question, candidates
            )
            return Removed(example, removed, logits, skipped)
        if outputs.query is not None:  # what the question adds is the same at every position
            nothing = torch.zeros_like(outputs.hidden[:, 0])
            mean = (
                mean
                + (classifier.decoder(nothing, outputs.query) - classifier.decoder(nothing))[
                    example
                ]
            )
        if candidates is not None:
            mean = mean.masked_fill(~candidates, -torch.inf)
        return Removed(example, removed, mean, skipped)


def short_cut(classifier: Model, tolerance: float) -> Recombination | None:
    """The short cut of a model whose states, scores and values are known apart; None for any other,
    for an encoder that no short cut is known for, and for an attention whose scores depend on more
    than the single state. `tolerance`: the difference of states that may be taken for none; 0
    approximates nothing."""
    from attnprobe.models.classifier import AttentionClassifier

    if not isinstance(classifier, AttentionClassifier) or not classifier.attention.positionwise:
        return None
    # not a base class's: what a subclass adds to `forward` would be ignored without a word
    if type(classifier.encoder) not in changed_states.registry:
        return None
    own = classifier.embedding.weight.dtype
    # where the user lets float32 products be rounded to fewer bits (TF32, bfloat16) they are not
    # good enough
    full = torch.get_float32_matmul_precision() == "highest"
    if own != torch.float64 or tolerance < SINGLE or not full:
        return Recombination(classifier, classifier.encoder, classifier.attention, own, tolerance)
    encoder = deepcopy(classifier.encoder)
    attention = deepcopy(classifier.attention)
    return Recombination(classifier, encoder.float(), attention.float(), torch.float32, tolerance)
