"""Several people marked a text: how well does one of them agree with the others, and how well does a scoring?

Each annotator in turn is left out; the reference is what at least half of the others marked. Against the same references an
annotator and a method can be compared.
"""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.data.marks import MOST_ANNOTATORS
from attnprobe.importance.plausibility import average_precision, mass_inside, top_hit

Measure = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(scores, rationale, content) → one number per text."""


def left_out(
    annotators: Int[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Iterator[tuple[Bool[Tensor, "batch seq"], Bool[Tensor, "batch seq"]]]:
    """For each annotator (what they marked, what at least half of the others marked); the second is empty in texts that this
    annotator did not see, and where the others marked nothing together.

    Args:
        annotators: as `attnprobe.data.marks.packed` has it.
    """
    masks = [((annotators >> (2 * number + 1)) & 1).bool() & content for number in range(MOST_ANNOTATORS)]
    there = [
        (((annotators >> (2 * number)) & 1).bool() & content).any(-1, keepdim=True) for number in range(len(masks))
    ]
    votes, voters = torch.stack(masks).long().sum(0), torch.stack(there).long().sum(0)
    for mask, seen in zip(masks, there, strict=True):
        if not seen.any():
            continue
        others = votes - mask.long()
        yield mask, (2 * others >= voters - 1) & (others > 0) & seen


def against_others(
    scores: Float[Tensor, "batch seq"],
    annotators: Int[Tensor, "batch seq"],
    content: Bool[Tensor, "batch seq"],
    measure: Measure,
) -> Float[Tensor, "batch"]:
    """The measure of a scoring, mean over the references of `left_out`; NaN where there is none."""
    return mean_of(lambda mask, reference: measure(scores, reference, content), annotators, content)


def human(
    annotators: Int[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> dict[str, Float[Tensor, "batch"]]:
    """What the annotators reach themselves, each against the others, mean over them: `top` and `mass` (share of what one
    marked that the others marked; where nothing is marked `top` is chance and `mass` undefined), `f1` and `auprc`."""
    own: dict[str, Measure] = {"top": top_hit, "mass": mass_inside, "f1": f1, "auprc": average_precision}
    return {
        name: mean_of(lambda mask, reference, of=measure: of(mask.double(), reference, content), annotators, content)
        for name, measure in own.items()
    }


def mean_of(
    value: Callable[..., Tensor], annotators: Int[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch"]:
    """The mean of value(mask, reference) over each text's annotators whose reference is not empty; NaN without one."""
    found = [torch.full(content.shape[:1], torch.nan, dtype=torch.float64, device=content.device)]
    for mask, reference in left_out(annotators, content):
        found.append(torch.where(reference.any(-1), value(mask, reference), torch.nan))
    return torch.stack(found).nanmean(0)


def f1(
    scores: Float[Tensor, "batch seq"], reference: Bool[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch"]:
    """2 |A ∩ R| / (|A| + |R|) of the positions that score above 0 and the reference."""
    chosen = (scores > 0) & content
    return 2 * (chosen & reference).sum(-1).double() / (chosen.sum(-1) + (reference & content).sum(-1))
