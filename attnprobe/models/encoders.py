"""Encoders: word vectors → one hidden state per position.

Every encoder is called as `encoder(embeddings, mask, content)`, has `size` (features of a hidden state) and says
with `contextual` whether a state has seen other positions.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnprobe.batch import Batch
from attnprobe.errors import UserError
from attnprobe.models.base import Unit
from attnprobe.models.construction import check_dropout, check_size
from attnprobe.models.recurrence import scaled_bidirectional


class TextEncoder(nn.Module, ABC):
    """A batch → the hidden states that attention is spread over: one per token, or one per sentence.

    `size` is the number of features of a state; padding and its length never change a state. `unit`: what a
    state is that of. `asks`: the first state is the attention's query, where no question is asked.
    """

    size: int
    unit: ClassVar[Unit] = Unit.WORD
    asks: bool = False

    @abstractmethod
    def states(
        self, embeddings: Float[Tensor, "batch tokens embed"], batch: Batch
    ) -> tuple[Float[Tensor, "batch seq hidden"], Float[Tensor, "batch tokens"] | None]:
        """Hidden states, zero on padding, and the attention over the words of each sentence, where there is one."""

    @abstractmethod
    def positions(self, batch: Batch) -> Bool[Tensor, "batch seq"]:
        """The states that attention may be given to."""

    def scaled_states(
        self,
        words: Float[Tensor, "distinct embed"],
        which: Int[Tensor, "batch tokens"],
        scale: Float[Tensor, "batch tokens"],
        batch: Batch,
    ) -> Float[Tensor, "batch seq hidden"]:
        """Hidden states with each token's vector, `words[which]`, multiplied by its factor: to be differentiated by the
        factors, and by nothing else."""
        return self.states(words[which] * scale.unsqueeze(-1), batch)[0]


class Encoder(TextEncoder):
    """Word vectors → one hidden state per token."""

    contextual: ClassVar[bool]

    def states(
        self, embeddings: Float[Tensor, "batch tokens embed"], batch: Batch
    ) -> tuple[Float[Tensor, "batch tokens hidden"], None]:
        """Hidden states of the tokens."""
        return self(embeddings, batch.mask, batch.content), None

    def positions(self, batch: Batch) -> Bool[Tensor, "batch tokens"]:
        """The tokens of the text itself."""
        return batch.content

    @abstractmethod
    def forward(
        self,
        embeddings: Float[Tensor, "batch tokens embed"],
        mask: Bool[Tensor, "batch tokens"],
        content: Bool[Tensor, "batch tokens"],
    ) -> Float[Tensor, "batch tokens hidden"]:
        """Hidden states, zero on padding."""

    def summary(
        self, hidden: Float[Tensor, "batch tokens hidden"], mask: Bool[Tensor, "batch tokens"]
    ) -> Float[Tensor, "batch hidden"]:
        """One vector for the whole text, used as the query where the text is a question: the mean state."""
        weight = mask.to(hidden.dtype).unsqueeze(-1)
        return (hidden * weight).sum(1) / weight.sum(1)


class LSTMEncoder(Encoder):
    """Bidirectional LSTM (Jain & Wallace: 128 per direction, no dropout).

    Note:
        The directions are two LSTMs, the second one over reversed texts (see `bidirectional`): the same numbers as one
        bidirectional LSTM over packed sequences, at 2 to 4 times the speed on a CPU, where packing keeps PyTorch
        from its fused kernel.
    """

    contextual = True

    def __init__(self, input_size: int, hidden_size: int = 128) -> None:
        super().__init__()
        check_size("model.encoder.hidden_size", hidden_size)
        self.forwards = nn.LSTM(input_size, hidden_size, batch_first=True)
        self.backwards = nn.LSTM(input_size, hidden_size, batch_first=True)
        self.size = 2 * hidden_size

    def forward(
        self,
        embeddings: Float[Tensor, "batch tokens embed"],
        mask: Bool[Tensor, "batch tokens"],
        content: Bool[Tensor, "batch tokens"],
    ) -> Float[Tensor, "batch tokens hidden"]:
        """Hidden states, forward and backward concatenated; zero on padding."""
        return bidirectional(self.forwards, self.backwards, embeddings, mask)

    def scaled_states(
        self,
        words: Float[Tensor, "distinct embed"],
        which: Int[Tensor, "batch tokens"],
        scale: Float[Tensor, "batch tokens"],
        batch: Batch,
    ) -> Float[Tensor, "batch tokens hidden"]:
        """As the base class has it, in less than half the time."""
        if type(self) is not LSTMEncoder:  # a subclass may read its texts in another way
            return super().scaled_states(words, which, scale, batch)
        order = reversed_positions(batch.mask)
        states = scaled_bidirectional(self.forwards, self.backwards, words, which, scale, order)
        return states * batch.mask.unsqueeze(-1)

    def summary(
        self, hidden: Float[Tensor, "batch tokens hidden"], mask: Bool[Tensor, "batch tokens"]
    ) -> Float[Tensor, "batch hidden"]:
        """The last state: forward direction at the last token, backward direction at the first."""
        last = mask.sum(1) - 1
        half = self.size // 2
        forward = hidden[torch.arange(len(hidden), device=hidden.device), last, :half]
        return torch.cat([forward, hidden[:, 0, half:]], -1)


class GRUEncoder(Encoder):
    """Bidirectional GRU (Serrano & Smith: 50 per direction), as two networks like the `LSTMEncoder`."""

    contextual = True

    def __init__(self, input_size: int, hidden_size: int = 50, dropout: float = 0.0) -> None:
        super().__init__()
        check_size("model.encoder.hidden_size", hidden_size)
        check_dropout("model.encoder.dropout", dropout)
        self.forwards = nn.GRU(input_size, hidden_size, batch_first=True)
        self.backwards = nn.GRU(input_size, hidden_size, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.size = 2 * hidden_size

    def forward(
        self,
        embeddings: Float[Tensor, "batch tokens embed"],
        mask: Bool[Tensor, "batch tokens"],
        content: Bool[Tensor, "batch tokens"],
    ) -> Float[Tensor, "batch tokens hidden"]:
        """Hidden states, forward and backward concatenated; zero on padding."""
        return self.dropout(bidirectional(self.forwards, self.backwards, embeddings, mask))


class NoEncoder(Encoder):
    """h_t = e_t: attention directly over the word vectors (Serrano & Smith's "no encoder")."""

    contextual = False

    def __init__(self, input_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        check_dropout("model.encoder.dropout", dropout)
        self.dropout = nn.Dropout(dropout)
        self.size = input_size

    def forward(
        self,
        embeddings: Float[Tensor, "batch tokens embed"],
        mask: Bool[Tensor, "batch tokens"],
        content: Bool[Tensor, "batch tokens"],
    ) -> Float[Tensor, "batch tokens embed"]:
        """The word vectors, zero on padding."""
        return self.dropout(embeddings) * mask.unsqueeze(-1)


def reversed_positions(mask: Bool[Tensor, "batch tokens"]) -> Int[Tensor, "batch tokens"]:
    """For every position, the one to read from so that each text is reversed in its place; padding stays where it is."""
    position = torch.arange(mask.shape[1], device=mask.device)
    mirrored = mask.sum(1, keepdim=True) - 1 - position
    return torch.where(mirrored >= 0, mirrored, position)


def bidirectional(
    forwards: nn.RNNBase,
    backwards: nn.RNNBase,
    embeddings: Float[Tensor, "batch tokens embed"],
    mask: Bool[Tensor, "batch tokens"],
) -> Float[Tensor, "batch tokens hidden"]:
    """States of two recurrent networks, one from the left and one from the right, concatenated; zero on padding.

    Padding is on the right, and the backward network reads each text reversed in its place: no state is computed after
    padding was read, so that nothing leaks into either direction.
    """
    order = reversed_positions(mask).unsqueeze(-1)
    # cuDNN refuses to differentiate an RNN in eval mode, which is just what a gradient probe does.
    needs_gradient_in_eval = torch.is_grad_enabled() and not forwards.training
    with torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled and not needs_gradient_in_eval):
        left, _ = forwards(embeddings)
        right, _ = backwards(embeddings.gather(1, order.expand_as(embeddings)))
    right = right.gather(1, order.expand_as(right))
    return torch.cat([left, right], -1) * mask.unsqueeze(-1)


class CNNEncoder(Encoder):
    """Convolutions of several widths side by side, ReLU, zero at markers and padding (Jain & Wallace: widths 1, 3, 5
    and 7 with 32 filters each)."""

    contextual = True

    def __init__(
        self,
        input_size: int,
        kernel_sizes: Sequence[int] = (1, 3, 5, 7),
        filters: int = 32,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        if not kernel_sizes or any(size % 2 == 0 or size < 1 for size in kernel_sizes):
            raise UserError(
                f"model.encoder.kernel_sizes={list(kernel_sizes)}: even widths have no middle, "
                f"expected one or more odd ones, such as [1, 3, 5]"
            )
        check_size("model.encoder.filters", filters)
        check_dropout("model.encoder.dropout", dropout)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(input_size, filters, size, padding=size // 2) for size in kernel_sizes
        )
        self.dropout = nn.Dropout(dropout)
        self.size = filters * len(kernel_sizes)

    def forward(
        self,
        embeddings: Float[Tensor, "batch tokens embed"],
        mask: Bool[Tensor, "batch tokens"],
        content: Bool[Tensor, "batch tokens"],
    ) -> Float[Tensor, "batch tokens hidden"]:
        """Hidden states, zero at markers and padding."""
        # The padding row of a trained embedding is zero, but a probe may hand in other vectors.
        channels = (embeddings * mask.unsqueeze(-1)).transpose(1, 2)
        states = torch.cat([convolution(channels) for convolution in self.convolutions], 1).relu()
        return self.dropout(states.transpose(1, 2)) * content.unsqueeze(-1)


class AverageEncoder(Encoder):
    """h_t = tanh(W e_t + b): each position on its own, no context (Jain & Wallace's "Average": 128)."""

    contextual = False

    def __init__(self, input_size: int, hidden_size: int = 128) -> None:
        super().__init__()
        check_size("model.encoder.hidden_size", hidden_size)
        self.projection = nn.Linear(input_size, hidden_size)
        self.size = hidden_size

    def forward(
        self,
        embeddings: Float[Tensor, "batch tokens embed"],
        mask: Bool[Tensor, "batch tokens"],
        content: Bool[Tensor, "batch tokens"],
    ) -> Float[Tensor, "batch tokens hidden"]:
        """Hidden states, zero on padding."""
        return self.projection(embeddings).tanh() * mask.unsqueeze(-1)
