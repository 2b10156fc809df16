"""Does a scoring point at the tokens that are known to be the reason?

Agreement with a rationale says that a scoring looks right, not that it is faithful to the model
(Jacovi & Goldberg 2020), and depends on how much of the text the rationale covers (DeYoung et al.
2020): read it together with `covered`.
"""

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
    """Share of the content that is rationale, 0 to 1: what a random position would hit."""
    return (rationale & content).sum(-1).double() / content.sum(-1)


def top_hit(scores: Scores, rationale: Marks, content: Marks) -> PerText:
    """Whether the position with the largest score is rationale, 1 or 0.

    Between where positions tie for the largest score: the share of these that are. NaN where a
    score is.
    """
    masked = scores.double().masked_fill(~content, -torch.inf)
    largest = masked == masked.amax(-1, keepdim=True)
    hit = (largest & rationale).sum(-1).double() / largest.sum(-1)
    return torch.where((scores.isnan() & content).any(-1), torch.nan, hit)


def average_precision_by_chance(rationale: Marks, content: Marks) -> PerText:
    """The average precision that a random order has on average, 0 to 1.

    (r − 1) / (n − 1) + (n − r) H_n / (n (n − 1)), r of n positions being rationale and H_n the sum
    of 1 to 1/n (Bestgen 2015).
    """
    marked = (rationale & content).sum(-1).double()
    n = content.sum(-1).double()
    place = content.long().cumsum(-1).clamp(min=1).double()
    harmonic = torch.where(content, 1 / place, 0).sum(-1)
    rest = (n - 1).clamp(min=1)
    expected = (marked - 1) / rest + (n - marked) * harmonic / (n * rest)
    single = torch.where(marked > 0, 1.0, torch.nan)
    return torch.where(n > 1, expected, single)


def mass_inside(scores: Scores, rationale: Marks, content: Marks) -> PerText:
    """Share of the scores' sum that lies on the rationale, 0 to 1.

    NaN where all are 0, and where one is negative: a sum of both signs has no shares.
    """
    shares = normalised(scores.double(), content)
    inside = torch.where(rationale & content, shares, 0).sum(-1)
    undefined = (shares.isnan() | ((scores < 0) & content)).any(-1)
    return torch.where(undefined, torch.nan, inside)


def average_precision(scores: Scores, rationale: Marks, content: Marks) -> PerText:
    """Area under the precision-recall curve as average precision, 0 to 1.

    The mean over the rationale's positions of the share of rationale among all positions with as
    large a score. Tied positions count together, so that equal scores give the rationale's share of
    the text. NaN without a rationale, and where a score is.
    """
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
    """Alignment error rate of a step whose one link goes to its top position, 0 to 1.

    1 − 2 |A ∩ G| / (|A| + |G|), all gold links G being sure (Och & Ney 2003). Where every step has
    one gold link the mean over steps is the corpus's rate. Tied positions share the link; 1 where
    nothing is gold, NaN where a score is.
    """
    links = 1 + (rationale & content).sum(-1)
    return 1 - 2 * top_hit(scores, rationale, content) / links


def matched_spans(chosen: Marks, rationale: Marks, least: float = 0.5) -> tuple[PerText, PerText]:
    """Precision and recall of the chosen spans, 0 to 1.

    A span is found where its intersection over union with a span of the rationale is `least` or
    more (DeYoung et al. 2020, section 4.1). 0 where there are no spans to count.

    Note:
        As in ERASER's released code, recall counts the chosen spans that match over the rationale's
        spans. No span of one side matches two of the other from `least` = 0.5 on, but for halves.
    """
    precision = []
    recall = []
    for chosen_marks, rationale_marks in zip(chosen, rationale, strict=True):
        chosen_spans = _spans(chosen_marks)
        rationale_spans = _spans(rationale_marks)
        hits = 0
        for span in chosen_spans:
            hits += any(
                len(span & target) >= least * len(span | target) for target in rationale_spans
            )
        precision.append(hits / len(chosen_spans) if chosen_spans else 0.0)
        recall.append(hits / len(rationale_spans) if rationale_spans else 0.0)
    return torch.tensor(precision, dtype=torch.float64), torch.tensor(recall, dtype=torch.float64)


def _spans(marks: Bool[Tensor, "seq"]) -> list[set[int]]:
    """The positions of each unbroken run of marks."""
    places = np.flatnonzero(marks.numpy())
    breaks = np.flatnonzero(np.diff(places) > 1) + 1
    return [set(run.tolist()) for run in np.split(places, breaks) if len(run)]


def iou_f1(scores: Scores, rationale: Marks, content: Marks) -> PerText:
    """F1 of the spans that the top positions make, matched with the rationale's, 0 to 1.

    As many positions as the rationale has, of equal ones the earlier first; see `matched_spans`.
    NaN without a rationale, and where a score is.
    """
    inside = rationale & content
    masked = scores.double().masked_fill(~content, -torch.inf)
    order = masked.argsort(dim=-1, descending=True, stable=True)
    chosen = (order.argsort(dim=-1) < inside.sum(-1, keepdim=True)) & content
    precision, recall = matched_spans(chosen.cpu(), inside.cpu())
    total = precision + recall
    f1 = 2 * precision * recall / torch.where(total > 0, total, 1)
    undefined = (scores.isnan() & content).any(-1) | ~inside.any(-1)
    return torch.where(undefined, torch.nan, f1.to(scores.device))


def precision_at_size(scores: Scores, rationale: Marks, content: Marks) -> PerText:
    """Share of rationale among as many top positions as the rationale has, 0 to 1.

    Hence precision and recall at once. Where positions tie for the last place it is the mean over
    all orders of them. NaN without a rationale, and where a score is.
    """
    inside = rationale & content
    size = inside.sum(-1, keepdim=True)
    masked = scores.double().masked_fill(~content, -torch.inf)
    last = masked.sort(-1, descending=True).values.gather(-1, (size - 1).clamp(min=0))
    above = masked > last
    tied = (masked == last) & content
    open_places = size - above.sum(-1, keepdim=True)
    tied_rationale = (inside & tied).sum(-1, keepdim=True)
    expected = open_places * tied_rationale / tied.sum(-1, keepdim=True)
    hits = (inside & above).sum(-1, keepdim=True) + expected
    undefined = (scores.isnan() & content).any(-1) | (size.squeeze(-1) == 0)
    return torch.where(undefined, torch.nan, (hits.double() / size).squeeze(-1))


# Several people marked a text: against the same references an annotator and a method can be
# compared.


def against_others(
    scores: Scores | None, annotators: Int[Tensor, "batch seq"], content: Marks, measure: Measure
) -> PerText:
    """Measure a scoring, or what each annotator marked, against the other annotators.

    Args:
        scores: the scoring; None: each annotator's own marks.
        annotators: as `attnprobe.core.batch.Batch` has them.
        content: positions of the text.
        measure: takes what at least half of the others marked for the rationale.

    Returns:
        The mean over the annotators who saw the text; NaN where no reference holds anything.
    """
    bit = torch.arange(2 * MOST_ANNOTATORS, device=annotators.device).view(-1, 1, 1)
    marks = ((annotators >> bit) & 1).bool() & content
    masks = marks[1::2]
    seen = marks[::2].any(-1, keepdim=True)
    votes = masks.long().sum(0)
    voters = seen.long().sum(0)

    values = [torch.full(content.shape[:1], torch.nan, dtype=torch.float64, device=content.device)]
    for mask, present in zip(masks, seen, strict=True):
        if not present.any():
            continue
        rest = votes - mask.long()
        reference = (2 * rest >= voters - 1) & (rest > 0) & present
        value = measure(mask.double() if scores is None else scores, reference, content)
        values.append(torch.where(reference.any(-1), value, torch.nan))
    return torch.stack(values).nanmean(0)


def human(annotators: Int[Tensor, "batch seq"], content: Marks) -> dict[str, PerText]:
    """What the annotators reach themselves, each against the others, mean over them.

    `top` and `mass` (share of what one marked that the others marked; where nothing is marked `top`
    is chance and `mass` undefined), `f1` and `auprc`.
    """
    measures: dict[str, Measure] = {
        "top": top_hit,
        "mass": mass_inside,
        "f1": f1,
        "auprc": average_precision,
    }
    return {
        name: against_others(None, annotators, content, measure)
        for name, measure in measures.items()
    }


def f1(scores: Scores, reference: Marks, content: Marks) -> PerText:
    """2 |A ∩ R| / (|A| + |R|) of the positions that score above 0 and the reference."""
    chosen = (scores > 0) & content
    common = (chosen & reference).sum(-1).double()
    return 2 * common / (chosen.sum(-1) + (reference & content).sum(-1))
