"""Attentions whose rightness is known because they were built that way: what tests of attention are calibrated on."""

from abc import abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnprobe.batch import Batch
from attnprobe.errors import UserError
from attnprobe.models.attention import Attention, masked_softmax


def concentrated(
    chosen: Bool[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"], mass: float
) -> Float[Tensor, "batch seq"]:
    """`mass` spread evenly over the chosen positions and the rest over all others; even where none or all are chosen."""
    chosen = chosen & content
    inside, outside = chosen.sum(-1, keepdim=True), (content & ~chosen).sum(-1, keepdim=True)
    share = torch.where(inside == 0, 0.0, torch.where(outside == 0, 1.0, mass))
    weights = torch.where(chosen, share / inside.clamp(min=1), (1 - share) / outside.clamp(min=1))
    return torch.where(content, weights, 0.0)


class GivenAttention(Attention):
    """An attention that nothing is learnt for. Subclasses say in `given` what it is."""

    def __init__(self, hidden_size: int, query_size: int | None = None) -> None:
        super().__init__()

    def forward(
        self, hidden: Float[Tensor, "batch seq hidden"], query: Float[Tensor, "batch query"] | None = None
    ) -> Float[Tensor, "batch seq"]:
        """There are no scores of its own.

        Raises:
            UserError: always; the classifier takes what `given` says.
        """
        raise UserError(f"{type(self).__name__} is given by the text and has no scores: the classifier asks `given`")


class FocusedAttention(GivenAttention):
    """`mass` lies evenly on the positions in focus, and the rest on all others.

    Attributes:
        mass: 0 to 1.
    """

    def __init__(self, hidden_size: int, query_size: int | None = None, mass: float = 0.95) -> None:
        super().__init__(hidden_size)
        if not 0 <= mass <= 1:
            raise UserError(f"model.attention.mass={mass}: expected a share of the attention from 0 to 1, such as 0.95")
        self.mass = mass

    def given(self, batch: Batch) -> Float[Tensor, "batch seq"]:
        """The attention over the words."""
        return concentrated(self.focus(batch), batch.content, self.mass)

    @abstractmethod
    def focus(self, batch: Batch) -> Bool[Tensor, "batch seq"]:
        """The positions that the mass lies on."""


class RationaleAttention(FocusedAttention):
    """Right by construction: `mass` lies on the words that decide (`Batch.rationale`), evenly, the rest on the others.
    With a mass at the words' share of the text it is uniform, with 0 it avoids them."""

    def focus(self, batch: Batch) -> Bool[Tensor, "batch seq"]:
        """The words that decide."""
        if batch.rationale is None:
            raise UserError(
                "model/attention=rationale attends to the words that decide, and these texts do not say which: take data "
                "that mark them (data.rationale, or data.plant=token)"
            )
        return batch.rationale


class FirstAttention(FocusedAttention):
    """Knows no word: `mass` lies on the first word of every text."""

    def focus(self, batch: Batch) -> Bool[Tensor, "batch seq"]:
        """The first word."""
        return batch.content & (batch.content.cumsum(-1) == 1)


class RandomAttention(GivenAttention):
    """Knows no word: the softmax of frozen noise that depends on the example's number and the position alone.

    Attributes:
        spread: standard deviation of the scores, 0 or more; 2 gives a peaked attention.
    """

    def __init__(self, hidden_size: int, query_size: int | None = None, spread: float = 2.0) -> None:
        super().__init__(hidden_size)
        if not spread >= 0:
            raise UserError(f"model.attention.spread={spread}: expected 0 or more, such as 2")
        self.spread = spread

    def given(self, batch: Batch) -> Float[Tensor, "batch seq"]:
        """The attention over the words."""
        place = torch.arange(batch.ids.shape[1], device=batch.ids.device)
        return masked_softmax(self.spread * noise(batch.example_id.unsqueeze(-1), place), batch.content)


class PositionAttention(Attention):
    """Knows no word: one learned score per position from the start of the text.

    Attributes:
        longest: positions that have a score of their own; later ones share the last.
    """

    positionwise: ClassVar[bool] = False

    def __init__(self, hidden_size: int, query_size: int | None = None, longest: int = 512) -> None:
        super().__init__()
        if longest < 1:
            raise UserError(f"model.attention.longest={longest}: expected at least 1")
        self.score = nn.Parameter(torch.randn(longest))

    def forward(
        self, hidden: Float[Tensor, "batch seq hidden"], query: Float[Tensor, "batch query"] | None = None
    ) -> Float[Tensor, "batch seq"]:
        """Unmasked scores."""
        place = torch.arange(hidden.shape[1], device=hidden.device).clamp(max=len(self.score) - 1)
        return self.score[place].to(hidden.dtype).expand(hidden.shape[:-1])


def noise(*numbers: Tensor) -> Float[Tensor, "*any"]:
    """Standard normal numbers that depend on whole numbers alone, the same on every device: SplitMix64's mixing (Steele et
    al. 2014) of the numbers one after the other, and the normal quantile of what it gives."""
    state = torch.zeros((), dtype=torch.int64, device=numbers[0].device)
    for number in numbers:
        state = mixed(state + number.long() + GOLDEN)
    # the top 53 bits, as a number in (0, 1)
    uniform = (((state >> 11) & ((1 << 53) - 1)).double() + 0.5) / (1 << 53)
    return torch.special.ndtri(uniform)


GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as a signed number, and the two multipliers of the mixing below
FIRST, SECOND = -4658895280553007687, -7723592293110705685


def mixed(state: Tensor) -> Tensor:
    """One step of SplitMix64's output function on 64-bit numbers, which wrap around."""
    state = (state ^ ((state >> 30) & ((1 << 34) - 1))) * FIRST
    state = (state ^ ((state >> 27) & ((1 << 37) - 1))) * SECOND
    return state ^ ((state >> 31) & ((1 << 33) - 1))
