"""From rows of attention over pieces to one weight per word, and back by the least change.

A site's rows are those of some heads at some queries. What a reader is shown is their mean, per word, over the words of the
text: e_w = mean over rows of Σ a_rp over the pieces of w; α = e / Σ e. Another α' is shown by the rows that are nearest to
the recorded ones (smallest Σ KL) of those that keep, each, its mass on the text and the shares of a word's pieces, and whose
mean is α' times the recorded mean mass: matrix scaling (Sinkhorn & Knopp 1967) of the words' masses.
"""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.models.pretrained.scaling import scaled

TINY = 1e-30
"""Least mass of a word in a row: what underflowed to 0 can be scaled up again."""


def membership(
    piece_word: Int[Tensor, "batch pieces"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch pieces seq"]:
    """1 where a piece belongs to a word of the text, else 0."""
    position = torch.arange(content.shape[1], device=content.device)
    return ((piece_word.unsqueeze(-1) == position) & content.unsqueeze(1)).double()


def masses(
    rows: Float[Tensor, "batch rows pieces"], member: Float[Tensor, "batch pieces seq"]
) -> Float[Tensor, "batch rows seq"]:
    """What each row gives to each word, 0 to 1; the rest is on special tokens and the other text."""
    return rows.to(member.dtype) @ member


def shown(
    mass: Float[Tensor, "batch rows seq"], valid: Bool[Tensor, "batch rows"]
) -> tuple[Float[Tensor, "batch seq"], Float[Tensor, "batch"]]:
    """The explanation, one weight per word that sums to 1, and the share of all attention that is on the text."""
    mean = mean_row(mass, valid)
    total = mean.sum(-1, keepdim=True)
    return mean / total, total.squeeze(-1)


def mean_row(rows: Float[Tensor, "batch rows any"], valid: Bool[Tensor, "batch rows"]) -> Float[Tensor, "batch any"]:
    """The mean of the rows that there are."""
    return (rows * valid.unsqueeze(-1)).sum(1) / valid.sum(1, keepdim=True)


class Lifting:
    """From another attention to the rows that show it, nearest to the recorded ones. What does not depend on that attention
    is computed once.

    Args:
        rows: as recorded.
        member: see `membership`.
        valid: which rows there are; others are padding, and stay as they are.
    """

    def __init__(
        self,
        rows: Float[Tensor, "batch rows pieces"],
        member: Float[Tensor, "batch pieces seq"],
        valid: Bool[Tensor, "batch rows"],
    ) -> None:
        self.rows, self.valid = rows.to(member.dtype), valid
        self.share = masses(rows, member)
        self.count = member.sum(1, keepdim=True)
        self.mass = torch.where(self.count > 0, self.share.clamp_min(TINY), 0)
        self.totals = self.mass.sum(-1, keepdim=True)
        # words are looked up: multiplying by `member` would take most of the time of everything where texts are long
        self.word = member.argmax(-1).unsqueeze(1)
        self.of_text = member.any(-1).unsqueeze(1)

    def __call__(self, attention: Float[Tensor, "*samples batch seq"]) -> Float[Tensor, "*samples batch rows pieces"]:
        """The rows.

        Args:
            attention: one weight per word; sums to 1 (an attention of sum s gives every row s times its mass).
        """
        alone = self.rows.shape[1] == 1
        wanted = (
            attention.unsqueeze(-2) * self.totals if alone else rescaled(attention, self.mass, self.totals, self.valid)
        )
        # each piece keeps its share of its word's mass; of a word that underflowed, all the same share
        there = self.share >= TINY
        factor = torch.where(there, wanted / self.share.clamp_min(TINY), 0)
        even = torch.where(there, 0, wanted / self.count.clamp_min(1))
        word = self.word.expand(*factor.shape[:-1], -1)
        changed = self.rows * factor.gather(-1, word) + even.gather(-1, word)
        return torch.where(self.of_text & self.valid.unsqueeze(-1), changed, self.rows)


def rescaled(
    attention: Float[Tensor, "*samples batch seq"],
    mass: Float[Tensor, "batch rows seq"],
    totals: Float[Tensor, "batch rows 1"],
    valid: Bool[Tensor, "batch rows"],
) -> Float[Tensor, "*samples batch rows seq"]:
    """The words' masses nearest to the recorded ones: columns with the attention's share of all mass, rows with their own."""
    there = valid.unsqueeze(-1).to(mass.dtype)
    totals = (totals * there).squeeze(-1)
    size = attention.sum(-1, keepdim=True)  # 1, but where weights are taken for free inputs
    return scaled(mass * there, totals * size, attention * totals.sum(-1, keepdim=True))
