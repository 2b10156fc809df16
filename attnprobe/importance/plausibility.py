"""Does a scoring point at the tokens that are known to be the reason?

Agreement with a rationale says that a scoring looks right, not that it is faithful to the model (Jacovi & Goldberg
2020), and depends on how much of the text the rationale covers (DeYoung et al. 2020): read it beside `covered`.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.measures import normalised


def covered(rationale: Bool[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]) -> Float[Tensor, "batch"]:
    """Share of the content that is rationale, 0 to 1: what a random position or an even scoring would hit."""
    return (rationale & content).sum(-1).double() / content.sum(-1)


def top_hit(
    scores: Float[Tensor, "batch seq"], rationale: Bool[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch"]:
    """Whether the position with the largest score is rationale: 1, 0, or between where positions tie for the largest
    score (the share of these that are). NaN where a score is."""
    masked = scores.double().masked_fill(~content, -torch.inf)
    largest = masked == masked.amax(-1, keepdim=True)
    hit = (largest & rationale).sum(-1).double() / largest.sum(-1)
    return torch.where((scores.isnan() & content).any(-1), torch.nan, hit)


def mass_inside(
    scores: Float[Tensor, "batch seq"], rationale: Bool[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch"]:
    """Share of the scores' sum that lies on the rationale, 0 to 1; scores are not negative. NaN where all are 0."""
    shares = normalised(scores.double(), content)
    inside = torch.where(rationale & content, shares, 0).sum(-1)
    return torch.where(shares.isnan().any(-1), torch.nan, inside)
