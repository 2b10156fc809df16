"""Does a scoring point at the tokens that are known to be the reason?

Agreement with a rationale says that a scoring looks right, not that it is faithful to the model
(Jacovi & Goldberg 2020), and depends on how much of the text the rationale covers (DeYoung et al.
2020): read it together with `covered`."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.data.columns import MOST_ANNOTATORS
from attnprobe.importance.base import Scores
from attnprobe.measures import normalised

Marks = Bool[Tensor, "batch seq"]
PerText = Float[Tensor, "batch"]
Measure = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(scores, rationale, content) → one number per text."""


def covered(rationale: Marks, content: Marks) -> PerText:
    """Share of the content that is rationale, 0 to 1: what a random position or an even scoring
    would hit."""
    return (rationale & content).sum(-1).double() / content.sum(-1)


def top_hit(scores: Scores, rationale: Marks, content: Marks) -> PerText:
    """Whether the position with the largest score is rationale: 1, 0, or between where positions
    tie for the largest score (the share of these that are). NaN where a score is."""
    masked = scores.double().masked_fill(~content, -torch.inf)
    largest = masked == masked.amax(-1, keepdim=True)
    hit = (largest & rationale).sum(-1).double() / largest.sum(-1)
    return torch.where((scores.isnan() & content).any(-1), torch.nan, hit)


def average_precision_by_chance(rationale: Marks, content: Marks) -> PerText:
    """The average precision that a random order has on average: (r − 1)/(n − 1) + (n − r) H_n / (n
    (n − 1)), r of n positions being wanted and H_n the sum of 1 to 1/n (Bestgen 2015)."""
    wanted = (rationale & content).sum(-1).double()
    n = content.sum(-1).double()
    place = content.long().cumsum(-1).clamp(min=1).double()
    harmonic = torch.where(content, 1 / place, 0).sum(-1)
    several = (n - 1).clamp(min=1)
    expected = (wanted - 1) / several + (n - wanted) * harmonic / (n * several)
    return torch.where(n > 1, expected, torch.where(wanted > 0, 1.0, torch.nan))


def mass_inside(scores: Scores, rationale: Marks, content: Marks) -> PerText:
    """Share of the scores' sum that lies on the rationale, 0 to 1. NaN where all are 0, and where
    one is negative: a sum of both signs has no shares."""
    shares = normalised(scores.double(), content)
    inside = torch.where(rationale & content, shares, 0).sum(-1)
    undefined = (shares.isnan() | ((scores < 0) & content)).any(-1)
    return torch.where(undefined, torch.nan, inside)


def average_precision(scores: Scores, rationale: Marks, content: Marks) -> PerText:
    """Area under the precision-recall curve as average precision, 0 to 1: the mean over the
    rationale's positions of the share of rationale among all positions with as large a score. Tied
    positions count together, so that equal scores give the rationale's share of the text. NaN
    without a rationale, and where a score is."""
    inside = rationale & content
    ordered, order = scores.double().masked_fill(~content, -torch.inf).sort(-1, descending=True)
    hits = inside.gather(-1, order).cumsum(-1)
    # how many positions score at least as much as each one
    above = torch.searchsorted(-ordered, -ordered, right=True)
    precision = hits.gather(-1, above - 1).double() / above
    total = inside.sum(-1)
    mean = torch.where(inside.gather(-1, order), precision, 0).sum(-1) / total
    return torch.where((scores.isnan() & content).any(-1) | (total == 0), torch.nan, mean)


def alignment_error(scores: Scores, rationale: Marks, content: Marks) -> PerText:
    """Alignment error rate of a step whose one link goes to its top position, 0 to 1: 1 − 2 |A ∩ G|
    / (|A| + |G|), all gold links G being sure (Och & Ney 2003). Where every step has one gold link
    the mean over steps is the corpus's rate. Tied positions share the link; 1 where nothing is
    gold, NaN where a score is."""
    return 1 - 2 * top_hit(scores, rationale, content) / (1 + (rationale & content).sum(-1))


def matched_spans(chosen: Marks, rationale: Marks, least: float = 0.5) -> tuple[PerText, PerText]:
    """Precision and recall of the chosen spans, 0 to 1: one is found where its intersection over
    union with a span of the rationale is `least` or more (DeYoung et al. 2020, section 4.1). 0
    where there are no spans to count.

    Note:
        As in ERASER's released code, recall counts the chosen spans that match over the rationale's
        spans. No span of one side matches two of the other from `least` = 0.5 on, but for halves.
    """

    def spans_of(marks: Bool[Tensor, "seq"]) -> list[set[int]]:
        places = np.flatnonzero(marks.numpy())
        return [
            set(run.tolist())
            for run in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1)
            if len(run)
        ]

    precision = []
    recall = []
    for own, truth in zip(chosen, rationale, strict=True):
        ours = spans_of(own)
        theirs = spans_of(truth)
        hits = sum(
            any(len(one & other) >= least * len(one | other) for other in theirs) for one in ours
        )
        precision.append(hits / len(ours) if ours else 0.0)
        recall.append(hits / len(theirs) if theirs else 0.0)
    return torch.tensor(precision, dtype=torch.float64), torch.tensor(recall, dtype=torch.float64)


def iou_f1(scores: Scores, rationale: Marks, content: Marks) -> PerText:
    """F1 of the spans that the top positions make, as many as the rationale has (of equal ones the
    earlier first), that match the rationale's (`matched_spans`). NaN without a rationale, and where
    a score is."""
    inside = rationale & content
    order = (
        scores.double()
        .masked_fill(~content, -torch.inf)
        .argsort(dim=-1, descending=True, stable=True)
    )
    chosen = (order.argsort(dim=-1) < inside.sum(-1, keepdim=True)) & content
    precision, recall = matched_spans(chosen.cpu(), inside.cpu())
    f1 = (2 * precision * recall / torch.where(precision + recall > 0, precision + recall, 1)).to(
        scores.device
    )
    undefined = (scores.isnan() & content).any(-1) | ~inside.any(-1)
    return torch.where(undefined, torch.nan, f1)


def precision_at_size(scores: Scores, rationale: Marks, content: Marks) -> PerText:
    """Share of rationale among as many top positions as the rationale has, 0 to 1, hence precision
    and recall at once. Where positions tie for the last place it is the mean over all orders of
    them. NaN without a rationale, and where a score is."""
    inside = rationale & content
    size = inside.sum(-1, keepdim=True)
    masked = scores.double().masked_fill(~content, -torch.inf)
    last = masked.sort(-1, descending=True).values.gather(-1, (size - 1).clamp(min=0))
    above = masked > last
    tied = (masked == last) & content
    open_places = size - above.sum(-1, keepdim=True)
    wanted = open_places * (inside & tied).sum(-1, keepdim=True) / tied.sum(-1, keepdim=True)
    hits = (inside & above).sum(-1, keepdim=True) + wanted
    undefined = (scores.isnan() & content).any(-1) | (size.squeeze(-1) == 0)
    return torch.where(undefined, torch.nan, (hits.double() / size).squeeze(-1))


# Several people marked a text: against the same references an annotator and a method can be
# compared.


def against_others(
    scores: Scores | None, annotators: Int[Tensor, "batch seq"], content: Marks, measure: Measure
) -> PerText:
    """The measure of a scoring, or of what each annotator marked (None), against what at least half
    of the others marked: the mean over the annotators (as `attnprobe.core.batch.Batch` has them)
    who saw the text; NaN where no reference holds anything."""
    bits = (
        annotators >> torch.arange(2 * MOST_ANNOTATORS, device=annotators.device).view(-1, 1, 1)
    ) & 1
    marks = bits.bool() & content
    masks = marks[1::2]
    seen = marks[::2].any(-1, keepdim=True)
    votes = masks.long().sum(0)
    voters = seen.long().sum(0)
    found = [torch.full(content.shape[:1], torch.nan, dtype=torch.float64, device=content.device)]
    for mask, there in zip(masks, seen, strict=True):
        others = votes - mask.long()
        reference = (2 * others >= voters - 1) & (others > 0) & there
        if there.any():
            value = measure(mask.double() if scores is None else scores, reference, content)
            found.append(torch.where(reference.any(-1), value, torch.nan))
    return torch.stack(found).nanmean(0)


def human(annotators: Int[Tensor, "batch seq"], content: Marks) -> dict[str, PerText]:
    """What the annotators reach themselves, each against the others, mean over them: `top` and
    `mass` (share of what one marked that the others marked; where nothing is marked `top` is chance
    and `mass` undefined), `f1` and `auprc`."""
    own: dict[str, Measure] = {
        "top": top_hit,
        "mass": mass_inside,
        "f1": f1,
        "auprc": average_precision,
    }
    return {
        name: against_others(None, annotators, content, measure) for name, measure in own.items()
    }


def f1(scores: Scores, reference: Marks, content: Marks) -> PerText:
    """2 |A ∩ R| / (|A| + |R|) of the positions that score above 0 and the reference."""
    chosen = (scores > 0) & content
    return (
        2 * (chosen & reference).sum(-1).double() / (chosen.sum(-1) + (reference & content).sum(-1))
    )
