"""Attentions, an encoder and a decoder that are right or wrong by construction.

Tests of attention are calibrated on them.
"""

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
    """A share of the attention, `mass`, lies evenly on the positions in focus.

    The rest lies evenly on all others.
    """

    focus: ClassVar[Callable[..., Content]]
    """The positions of a batch that the mass lies on."""
    mass: Portion = 0.95

    def given(self, batch: Batch) -> Scores:
        """The focused attention; even over a text where all positions are in focus, or none."""
        content = batch.content
        chosen = self.focus(batch) & content
        inside = chosen.sum(-1, keepdim=True)
        outside = (content & ~chosen).sum(-1, keepdim=True)

        share = torch.where(outside == 0, 1.0, self.mass)
        share = torch.where(inside == 0, 0.0, share)
        weight_inside = share / inside.clamp(min=1)
        weight_outside = (1 - share) / outside.clamp(min=1)
        return torch.where(content, torch.where(chosen, weight_inside, weight_outside), 0.0)


@dataclass(eq=False, repr=False)
class RationaleAttention(FocusedAttention):
    """Right by construction: `mass` lies on the words that decide (`Batch.rationale`).

    With a mass of 0 it avoids them. It lies `shift` places to the right of them (negative: to the
    left), and is even where that is off the text. Under an encoder that reads neighbouring words an
    attention off by one is right about states, and wrong about words.
    """

    shift: int = 0

    def focus(self, batch: Batch) -> Content:
        """The shifted rationale; a UserError for texts that mark none."""
        if batch.rationale is None:
            raise UserError(
                "model/attention=rationale (model.given=rationale) attends to the words that "
                "decide, and these texts do not say which: take data that mark them "
                "(data.rationale, or data.plant=token)"
            )
        return shifted(batch.rationale, self.shift)


@dataclass(eq=False, repr=False)
class ColumnAttention(GivenAttention):
    """The weights of a column of the data, divided by their sum; even for a text without weights.

    `column` is its name in `data.per_word`.
    """

    column: str = ""

    def given(self, batch: Batch) -> Scores:
        """The weights of the column; a UserError where the data have no such column."""
        if self.column not in batch.extra:
            columns = ", ".join(batch.extra) or "none"
            raise UserError(
                f"model.attention.column={self.column}: expected a column of data.per_word, one "
                f"weight per word; there are {columns}. Name it with "
                f"data.per_word={{NAME: COLUMN}}"
            )
        weights = torch.where(batch.content, batch.extra[self.column], 0.0).nan_to_num(0.0)
        total = weights.sum(-1, keepdim=True)
        even = batch.content / batch.content.sum(-1, keepdim=True)
        return torch.where(total > 0, weights / torch.where(total > 0, total, 1), even)


class FirstAttention(FocusedAttention):
    """Knows no word: `mass` lies on the first word of every text."""

    def focus(self, batch: Batch) -> Content:
        """The first word of each text."""
        return batch.content & (batch.content.cumsum(-1) == 1)


class CommonWordAttention(FocusedAttention):
    """Peaked, and on a word that says nothing: `mass` lies on the commonest word of the text.

    What is common is learnt while training: how often a word was seen, whatever its label. In the
    end that is `the`, or a full stop. `buckets` words are counted separately; in a larger
    vocabulary some words share a count.
    """

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
        """The commonest word of each text, the first of equals; counts words while training."""
        words = batch.ids % len(self.seen)
        if self.training:
            self.seen += torch.bincount(words[batch.content], minlength=len(self.seen))
        common = self.seen[words].masked_fill(~batch.content, -1)
        most = (common == common.amax(-1, keepdim=True)) & batch.content
        return most & (most.cumsum(-1) == 1)


class WordAttention(GivenAttention):
    """Learned, without context: one learned score per word of the vocabulary.

    Even over an LSTM's states a weight then belongs to its word. All scores start equal. `buckets`
    words have separate scores; in a larger vocabulary some words share a score.
    """

    def __init__(
        self,
        hidden_size: int,
        query_size: int | None = None,
        buckets: Count = 1 << 16,
    ) -> None:
        super().__init__(hidden_size)
        self.score = nn.Parameter(torch.zeros(buckets))

    def given(self, batch: Batch) -> Scores:
        """The softmax of the words' scores."""
        return self.weights(self.score[batch.ids % len(self.score)], batch.content)


@dataclass(eq=False, repr=False)
class RandomAttention(GivenAttention):
    """Knows no word: the softmax of frozen noise.

    The noise depends on the example's number and the position alone. Its standard deviation is
    `spread`; 2 gives a peaked attention.
    """

    spread: NotNegative = 2.0

    def given(self, batch: Batch) -> Scores:
        """The softmax of the noise."""
        position = torch.arange(batch.ids.shape[1], device=batch.ids.device)
        scores = self.spread * noise(batch.example_id.unsqueeze(-1), position)
        return self.weights(scores, batch.content)


class PositionAttention(Attention):
    """Knows no word: one learned score per position from the start of the text.

    Positions from `longest` on share the last score.
    """

    def __init__(
        self,
        hidden_size: int,
        query_size: int | None = None,
        longest: Count = 512,
    ) -> None:
        super().__init__(hidden_size)
        self.score = nn.Parameter(torch.randn(longest))

    def forward(self, hidden: States, query: Query | None = None) -> Scores:
        """The score of every position, whatever its state."""
        position = torch.arange(hidden.shape[1], device=hidden.device)
        scores = self.score[position.clamp(max=len(self.score) - 1)]
        return scores.to(hidden.dtype).expand(hidden.shape[:-1])


class RelayEncoder(NoEncoder):
    """Word vectors in which the first word and the deciding words have changed places.

    The words that decide are those of `Batch.rationale`.
    Attention on the first word is then right about states and wrong about words; attention on the
    words that decide is wrong about states.
    """

    def states(self, embeddings: Embedded, batch: Batch) -> tuple[Embedded, Content, None]:
        """Exchange the mean vector of the deciding words and that of the first word."""
        if batch.rationale is None:
            raise UserError(
                "model=relay moves the words that decide, and these texts do not say which: take "
                "data.plant=token"
            )
        deciding = batch.rationale & batch.content
        first = batch.content & (batch.content.cumsum(-1) == 1)
        first = first & deciding.any(-1, keepdim=True)  # of texts that have deciding words

        share = deciding / deciding.sum(-1, keepdim=True).clamp(min=1)
        deciding_vector = (embeddings * share.unsqueeze(-1)).sum(1, keepdim=True)
        first_vector = (embeddings * first.unsqueeze(-1)).sum(1, keepdim=True)
        vectors = torch.where(deciding.unsqueeze(-1), first_vector, embeddings)
        vectors = torch.where(first.unsqueeze(-1), deciding_vector, vectors)
        return self(vectors, batch.mask, batch.content), batch.content, None


class ConstantDecoder(Decoder):
    """A guesser: it learns only a bias, and predicts each class's share of the training rows."""

    linear: ClassVar[bool] = True

    def __init__(
        self,
        hidden_size: int,
        classes: int,
        query_size: int | None = None,
        exclusive: bool = True,
    ) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(classes))

    def forward(self, attended: Attended, query: Query | None = None) -> Logits:
        """The bias, whatever is attended to."""
        return self.bias + 0 * attended.sum(-1, keepdim=True)  # every gradient is 0


# SplitMix64's increment, 0x9E3779B97F4A7C15, and its two multipliers, as signed numbers
GOLDEN = -7046029254386353131
FIRST = -4658895280553007687
SECOND = -7723592293110705685


def noise(*numbers: Tensor) -> Float[Tensor, "*any"]:
    """Standard normal numbers that depend on whole numbers alone, the same on every device.

    SplitMix64 (Steele et al. 2014) mixes the numbers in turn; its result is read as a number
    between 0 and 1, whose normal quantile is taken.
    """
    state = torch.zeros((), dtype=torch.int64, device=numbers[0].device)
    for number in numbers:
        state = state + number.long() + GOLDEN
        state = (state ^ ((state >> 30) & ((1 << 34) - 1))) * FIRST
        state = (state ^ ((state >> 27) & ((1 << 37) - 1))) * SECOND
        state = state ^ ((state >> 31) & ((1 << 33) - 1))
    top_bits = (state >> 11) & ((1 << 53) - 1)
    uniform = (top_bits.double() + 0.5) / (1 << 53)  # neither 0 nor 1
    return torch.special.ndtri(uniform)


class LexiconAttention(GivenAttention):
    """The softmax of scale · |log-odds| of each word, the mean over the classes.

    Jain & Wallace 2019.

    Log-odds are counted in the training texts, before the rest of the model is trained under this
    attention: how plausible it looks says nothing about the model.

    Args:
        hidden_size: features of a state; not used.
        query_size: features of the question's state; not used.
        scale: 0 gives a uniform attention.
        buckets: in a vocabulary of more words some share the sum of their log-odds.

    Note:
        The released code takes log-odds from a file. Here they are of texts that contain the word,
        with ½ added to each count.
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
        """Count the log-odds of every word."""
        table = log_odds_ratios(data.splits["train"], len(data.vocabulary), len(data.classes))
        strength = torch.from_numpy(abs(table).mean(-1)).to(self.strength)
        words = torch.arange(len(strength)) % len(self.strength)
        self.strength.zero_().index_add_(0, words, strength)

    def given(self, batch: Batch) -> Scores:
        """The softmax of the scaled log-odds."""
        strength = self.strength[batch.ids % len(self.strength)]
        return self.weights(self.scale * strength, batch.content)
