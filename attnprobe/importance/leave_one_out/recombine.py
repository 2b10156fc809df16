"""Predictions of shortened texts from the unchanged text's states and the few that change."""

from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from attnprobe.core.batch import Batch, Outputs

# imported for what they register
from attnprobe.importance.leave_one_out import recurrent as _recurrent  # noqa: F401
from attnprobe.importance.leave_one_out.changed_states import (
    Affine,
    ChangedStates,
    EncodedTexts,
    Projection,
    Removed,
    SoftmaxAccumulator,
    WeightedMean,
    changed_states,
    factored_score,
    has_short_cut,
    merge,
    prefix_means,
    whole_state,
)
from attnprobe.models.attention import Attention
from attnprobe.models.base import Model
from attnprobe.models.encoders import TextEncoder

if TYPE_CHECKING:  # Lightning takes seconds, which a report need not wait for
    import attnprobe.models.classifier

SINGLE = 1e-6
"""Tolerance from which states are recomputed in float32: its rounding is well below, but depends on the batch, and in the
ranks of nearly equal distances that shows."""


@dataclass(frozen=True)
class Recombination:
    """The short cut of a classifier of three stages: the layers that a changed state comes from and goes through, in the
    precision that the tolerance asks for."""

    classifier: "attnprobe.models.classifier.AttentionClassifier"
    encoder: TextEncoder
    attention: Attention
    dtype: torch.dtype
    tolerance: float

    def removed(self, batch: Batch, outputs: Outputs) -> Removed:
        """Every content token of every text removed once: decoded from the unchanged scores and values, and the changed ones;
        `outputs` are those of the whole texts."""
        classifier, linear = self.classifier, self.classifier.decoder.linear
        hidden = outputs.hidden.to(self.dtype)
        query = None if outputs.query is None else outputs.query.to(self.dtype)
        for_score, score = factored_score(self.attention, hidden)
        as_value = whole_state(outputs.hidden)
        if linear:  # the mean of the positions' logits is the logits of the mean
            bias = classifier.decoder(as_value.bias)
            as_value = Affine((classifier.decoder(as_value.weight) - bias).t(), bias)
        both = Affine(*(torch.cat([a, b.to(a.dtype)]) for a, b in zip(for_score, as_value, strict=True)))
        width = len(for_score.bias)
        distinct, which = batch.ids.unique(return_inverse=True)
        words = classifier.embed(distinct.unsqueeze(0)).squeeze(0).to(self.dtype)
        texts = EncodedTexts(words, which, batch.mask, batch.content, hidden)

        outside = ~batch.content
        example, removed = batch.content.nonzero(as_tuple=True)
        first, last = removed.clone(), removed.clone()
        accumulator = SoftmaxAccumulator(outputs.scores.double().amax(1)[example], len(as_value.bias))
        skipped = accumulator.top.new_zeros(len(example))
        for text, position, seen in _blocks(
            changed_states(self.encoder, texts, Projection(both, self.tolerance)), skipped
        ):
            of = example.index_select(0, text)
            scores = score(seen[:, :width], None if query is None else query[of])
            accumulator.add(
                text, scores.masked_fill(outside.take(of * outside.shape[1] + position), -torch.inf), seen[:, width:]
            )
            first.scatter_reduce_(0, text, position, "amin")
            last.scatter_reduce_(0, text, position, "amax")

        unchanged = outputs.scores.double(), F.linear(outputs.hidden, *as_value).double()
        mean = accumulator.means()
        for side, at in ((prefix_means(*unchanged), first), (prefix_means(*unchanged, reverse=True), last + 1)):
            mean = merge(mean, WeightedMean(side.weight[example, at], side.mean[example, at]))
        candidates = None if batch.candidates is None else batch.candidates[example]
        logits = mean.mean
        if not linear:
            attended = mean.mean.to(outputs.hidden.dtype).unsqueeze(1)
            question = None if outputs.query is None else outputs.query[example]
            logits = classifier.decode(attended, torch.ones_like(attended[..., 0]), question, candidates)
        elif outputs.query is not None:  # what the question adds is the same at every position
            nothing = torch.zeros_like(hidden[:, 0], dtype=outputs.hidden.dtype)
            logits = logits + (classifier.decoder(nothing, outputs.query) - classifier.decoder(nothing))[example]
        if linear and candidates is not None:
            logits = logits.masked_fill(~candidates, -torch.inf)
        return Removed(example, removed, logits, skipped)


def short_cut(classifier: Model, tolerance: float) -> Recombination | None:
    """The short cut of a model whose states, scores and values are known apart; None for any other, for an encoder that no
    short cut is known for, and for an attention whose scores depend on more than the single state.

    Args:
        classifier: left as it is.
        tolerance: difference of states that may be taken for none; 0 approximates nothing.
    """
    from attnprobe.models.classifier import AttentionClassifier

    if not isinstance(classifier, AttentionClassifier):
        return None
    if not (has_short_cut(classifier.encoder) and classifier.attention.positionwise):
        return None
    own = classifier.embedding.weight.dtype
    # where the user lets float32 products be rounded to fewer bits (TF32, bfloat16) they are not good enough
    full = torch.get_float32_matmul_precision() == "highest"
    if own != torch.float64 or tolerance < SINGLE or not full:
        return Recombination(classifier, classifier.encoder, classifier.attention, own, tolerance)
    encoder, attention = deepcopy(classifier.encoder), deepcopy(classifier.attention)
    return Recombination(classifier, encoder.float(), attention.float(), torch.float32, tolerance)


def _blocks(
    items: Iterable[ChangedStates], skipped: Float[Tensor, "texts"], rows: int = 256
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Concatenate items (text, position, seen) into blocks of at least `rows` rows: fewer operations, still within the
    cache. What they skip goes into `skipped`."""
    waiting: list[tuple[Tensor, Tensor, Tensor]] = []
    count = 0
    for text, position, seen, rejoined, difference in items:
        if rejoined is not None and difference is not None:
            skipped.scatter_reduce_(0, rejoined, difference.to(skipped.dtype), "amax")
        waiting.append((text, position, seen))
        count += text.shape[0]
        if count >= rows:
            yield _concatenated(waiting)
            waiting, count = [], 0
    if waiting:
        yield _concatenated(waiting)


def _concatenated(items: list[tuple[Tensor, Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
    if len(items) == 1:
        return items[0]
    text, position, seen = (torch.cat(column) for column in zip(*items, strict=True))
    return text, position, seen
