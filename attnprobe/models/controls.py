"""Attentions whose rightness is known because they were built that way, and a decoder that reads nothing: what tests of
attention are calibrated on."""

from abc import abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnprobe.batch import Batch
from attnprobe.errors import UserError
from attnprobe.models.attention import Attention, masked_softmax
from attnprobe.models.decoders import Decoder


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


class CommonWordAttention(FocusedAttention):
    """Peaked, and on a word that says nothing: `mass` lies on the commonest word of the text, the first of equals. What is
    common is learnt while training: how often a word was seen, whatever its label; `the` or a full stop in the end.

    Attributes:
        buckets: words that are counted apart; a vocabulary of more shares some counts.
    """

    seen: Tensor

    def __init__(
        self, hidden_size: int, query_size: int | None = None, mass: float = 0.95, buckets: int = 1 << 16
    ) -> None:
        super().__init__(hidden_size, mass=mass)
        self.register_buffer("seen", torch.zeros(checked_buckets(buckets), dtype=torch.int64))

    def focus(self, batch: Batch) -> Bool[Tensor, "batch seq"]:
        """The commonest word."""
        words = batch.ids % len(self.seen)
        if self.training:
            self.seen += torch.bincount(words[batch.content], minlength=len(self.seen))
        common = self.seen[words].masked_fill(~batch.content, -1)
        most = (common == common.amax(-1, keepdim=True)) & batch.content
        return most & (most.cumsum(-1) == 1)


class WordAttention(GivenAttention):
    """Learned, without context: one learned score per word of the vocabulary, whatever the encoder makes of the text, so
    that even over an LSTM's states a weight belongs to its word. All scores start alike.

    Attributes:
        buckets: words that have a score of their own; a vocabulary of more shares some.
    """

    def __init__(self, hidden_size: int, query_size: int | None = None, buckets: int = 1 << 16) -> None:
        super().__init__(hidden_size)
        self.score = nn.Parameter(torch.zeros(checked_buckets(buckets)))

    def given(self, batch: Batch) -> Float[Tensor, "batch seq"]:
        """The attention over the words; its gradient reaches the scores, and no word vector."""
        return masked_softmax(self.score[batch.ids % len(self.score)], batch.content)


def checked_buckets(buckets: int) -> int:
    """The number, if it is one of words."""
    if buckets < 1:
        raise UserError(f"model.attention.buckets={buckets}: expected at least 1, such as 65536")
    return buckets


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


class ConstantDecoder(Decoder):
    """A guesser: the same logits for every text, whose bias is all that is learnt, so that it predicts the share of each
    class in the training rows, and decides for the majority."""

    linear: ClassVar[bool] = True

    def __init__(self, hidden_size: int, classes: int, query_size: int | None = None, exclusive: bool = True) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(
        self, attended: Float[Tensor, "*any hidden"], query: Float[Tensor, "batch query"] | None = None
    ) -> Float[Tensor, "*any classes"]:
        """Logits `[..., classes]`. They depend on the text by 0 times what was attended to, so that every gradient is 0."""
        return self.bias + 0 * attended.sum(-1, keepdim=True)


def noise(*numbers: Tensor) -> Float[Tensor, "*any"]:
    """Standard normal numbers that depend on whole numbers alone, the same on every device: SplitMix64's mixing (Steele et
    al. 2014) of the numbers in turn, and the normal quantile of what it gives."""
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
