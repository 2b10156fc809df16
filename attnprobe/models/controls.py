"""Attentions, an encoder and a decoder, right or wrong by construction: what tests of attention are
calibrated on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.core.batch import Batch
from attnprobe.core.errors import UserError
from attnprobe.core.settings import Count, NotNegative, Portion
from attnprobe.data.batching import log_odds_ratios
from attnprobe.data.module import TextDataModule
from attnprobe.measures import shifted
from attnprobe.models.attention import Attention, Content, GivenAttention, Query, Scores, States
from attnprobe.models.decoders import Attended, Decoder, Logits
from attnprobe.models.encoders import Embedded, NoEncoder


@dataclass(eq=False, repr=False)
class FocusedAttention(GivenAttention):
    """`mass`, 0 to 1, lies evenly on the positions in focus, and the rest on all others."""

    focus: ClassVar[Callable[..., Content]]
    """The positions of a batch that the mass lies on."""
    mass: Portion = 0.95

    def given(self, batch: Batch) -> Scores:
        content = batch.content
        chosen = self.focus(batch) & content
        inside = chosen.sum(-1, keepdim=True)
        outside = (content & ~chosen).sum(-1, keepdim=True)
        # even where none or all are in focus
        share = torch.where(inside == 0, 0.0, torch.where(outside == 0, 1.0, self.mass))
        weights = torch.where(
            chosen, share / inside.clamp(min=1), (1 - share) / outside.clamp(min=1)
        )
        return torch.where(content, weights, 0.0)


@dataclass(eq=False, repr=False)
class RationaleAttention(FocusedAttention):
    """Right by construction: `mass` lies on the words that decide (`Batch.rationale`); with 0 it
    avoids them. It lies `shift` places to the right of them (negative: to the left), and is even
    where that is off the text: off by one under an encoder that reads its neighbours is right about
    states, and wrong about words."""

    shift: int = 0

    def focus(self, batch: Batch) -> Content:
        if batch.rationale is None:
            raise UserError(
                "model/attention=rationale (model.given=rationale) attends to the words that decide, and these texts do not "
                "say which: take data that mark them (data.rationale, or data.plant=token)"
            )
        return shifted(batch.rationale, self.shift)


@dataclass(eq=False, repr=False)
class ColumnAttention(GivenAttention):
    """What a column of the data (its name in `data.per_word`) says, made to sum to 1."""

    column: str = ""

    def given(self, batch: Batch) -> Scores:
        if self.column not in batch.extra:
            raise UserError(
                f"model.attention.column={self.column}: expected a column of data.per_word, one weight per word; there are "
                f"{', '.join(batch.extra) or 'none'}. Name it with data.per_word={{NAME: COLUMN}}"
            )
        weights = torch.where(batch.content, batch.extra[self.column], 0.0).nan_to_num(0.0)
        even = batch.content / batch.content.sum(-1, keepdim=True)  # texts without it
        total = weights.sum(-1, keepdim=True)
        return torch.where(total > 0, weights / torch.where(total > 0, total, 1), even)


class FirstAttention(FocusedAttention):
    """Knows no word: `mass` lies on the first word of every text."""

    def focus(self, batch: Batch) -> Content:
        return batch.content & (batch.content.cumsum(-1) == 1)


class CommonWordAttention(FocusedAttention):
    """Peaked, and on a word that says nothing: `mass` lies on the commonest word of the text, the
    first of equals. What is common is learnt while training: how often a word was seen, whatever
    its label; `the` or a full stop in the end. `buckets` words are counted apart; a vocabulary of
    more shares some counts."""

    seen: Tensor

    def __init__(
        self,
        hidden_size: int,
        query_size: int | None = None,
        mass: Portion = 0.95,
        buckets: Count = 1 << 16,
    ) -> None:
        super().__init__(hidden_size, mass=mass)
        self.register_buffer("seen", torch.zeros(buckets, dtype=torch.int64))

    def focus(self, batch: Batch) -> Content:
        words = batch.ids % len(self.seen)
        if self.training:
            self.seen += torch.bincount(words[batch.content], minlength=len(self.seen))
        common = self.seen[words].masked_fill(~batch.content, -1)
        most = (common == common.amax(-1, keepdim=True)) & batch.content
        return most & (most.cumsum(-1) == 1)


class WordAttention(GivenAttention):
    """Learned, without context: one learned score per word of the vocabulary, so that even over an
    LSTM's states a weight belongs to its word. All scores start alike; `buckets` words have one of
    their own, a vocabulary of more shares some."""

    def __init__(
        self, hidden_size: int, query_size: int | None = None, buckets: Count = 1 << 16
    ) -> None:
        super().__init__(hidden_size)
        self.score = nn.Parameter(torch.zeros(buckets))

    def given(self, batch: Batch) -> Scores:
        return self.weights(self.score[batch.ids % len(self.score)], batch.content)


@dataclass(eq=False, repr=False)
class RandomAttention(GivenAttention):
    """Knows no word: the softmax of frozen noise that depends on the example's number and the
    position alone, of standard deviation `spread`, 0 or more; 2 gives a peaked attention."""

    spread: NotNegative = 2.0

    def given(self, batch: Batch) -> Scores:
        place = torch.arange(batch.ids.shape[1], device=batch.ids.device)
        return self.weights(
            self.spread * noise(batch.example_id.unsqueeze(-1), place), batch.content
        )


class PositionAttention(Attention):
    """Knows no word: one learned score per position from the start of the text; those after
    `longest` share the last."""

    def __init__(
        self, hidden_size: int, query_size: int | None = None, longest: Count = 512
    ) -> None:
        super().__init__(hidden_size)
        self.score = nn.Parameter(torch.randn(longest))

    def forward(self, hidden: States, query: Query | None = None) -> Scores:
        place = torch.arange(hidden.shape[1], device=hidden.device).clamp(max=len(self.score) - 1)
        return self.score[place].to(hidden.dtype).expand(hidden.shape[:-1])


class RelayEncoder(NoEncoder):
    """Word vectors in which the first word and the words that decide (`Batch.rationale`) have
    changed places: attention on the first word is right about states and wrong about words;
    attention on the words that decide is wrong about states."""

    def states(self, embeddings: Embedded, batch: Batch) -> tuple[Embedded, Content, None]:
        if batch.rationale is None:
            raise UserError(
                "model=relay moves the words that decide, and these texts do not say which: take data.plant=token"
            )
        marked = batch.rationale & batch.content
        first = batch.content & (batch.content.cumsum(-1) == 1) & marked.any(-1, keepdim=True)
        count = marked.sum(-1, keepdim=True).clamp(min=1)
        deciding, other = (
            (embeddings * one.unsqueeze(-1)).sum(1, keepdim=True) for one in (marked / count, first)
        )
        moved = torch.where(marked.unsqueeze(-1), other, embeddings)
        return (
            self(torch.where(first.unsqueeze(-1), deciding, moved), batch.mask, batch.content),
            batch.content,
            None,
        )


class ConstantDecoder(Decoder):
    """A guesser: a bias is all that is learnt, so that it predicts the share of each class in the
    training rows."""

    linear: ClassVar[bool] = True

    def __init__(
        self, hidden_size: int, classes: int, query_size: int | None = None, exclusive: bool = True
    ) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, attended: Attended, query: Query | None = None) -> Logits:
        return self.bias + 0 * attended.sum(-1, keepdim=True)  # every gradient is 0


GOLDEN = (
    -7046029254386353131
)  # 0x9E3779B97F4A7C15 as a signed number, and the two multipliers of the mixing below
FIRST = -4658895280553007687
SECOND = -7723592293110705685


def noise(*numbers: Tensor) -> Float[Tensor, "*any"]:
    """Standard normal numbers that depend on whole numbers alone, the same on every device:
    SplitMix64's mixing (Steele et al. 2014) of the numbers in turn, and the normal quantile of what
    it gives."""
    state = torch.zeros((), dtype=torch.int64, device=numbers[0].device)
    for number in numbers:
        state = state + number.long() + GOLDEN
        state = (state ^ ((state >> 30) & ((1 << 34) - 1))) * FIRST
        state = (state ^ ((state >> 27) & ((1 << 37) - 1))) * SECOND
        state = state ^ ((state >> 31) & ((1 << 33) - 1))
    # the top 53 bits, as a number in (0, 1)
    uniform = (((state >> 11) & ((1 << 53) - 1)).double() + 0.5) / (1 << 53)
    return torch.special.ndtri(uniform)


class LexiconAttention(GivenAttention):
    """The softmax of scale · |log-odds| of each word, the mean over the classes, counted in the
    training texts before the rest of the model is trained under it: how plausible it looks says
    nothing of the model (Jain & Wallace 2019). A `scale` of 0 is uniform; of more words than
    `buckets` some share the sum of their log-odds.

    Note:
        The released code takes log-odds from a file; these are of texts that have the word, with ½
        added to each count.
    """

    strength: Tensor

    def __init__(
        self,
        hidden_size: int,
        query_size: int | None = None,
        scale: NotNegative = 1.0,
        buckets: Count = 1 << 16,
    ) -> None:
        super().__init__(hidden_size)
        self.scale = scale
        self.register_buffer("strength", torch.zeros(buckets))

    def read_training_texts(self, data: TextDataModule) -> None:
        table = log_odds_ratios(data.splits["train"], len(data.vocabulary), len(data.classes))
        strength = torch.from_numpy(abs(table).mean(-1)).to(self.strength)
        words = torch.arange(len(strength)) % len(self.strength)
        self.strength.zero_().index_add_(0, words, strength)

    def given(self, batch: Batch) -> Scores:
        return self.weights(
            self.scale * self.strength[batch.ids % len(self.strength)], batch.content
        )
