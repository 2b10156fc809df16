"""Encoders: word vectors → one hidden state per position.

Every encoder is called as `encoder(embeddings, mask, content)`, has `size` (features of a hidden state) and says
with `contextual` whether a state has seen other positions.
"""

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Encoder(nn.Module, ABC):
    """Word vectors → hidden states; padding and its length never change a state."""

    size: int
    contextual: ClassVar[bool]

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
    """Bidirectional LSTM over packed sequences (Jain & Wallace: 128 per direction, no dropout)."""

    contextual = True

    def __init__(self, input_size: int, hidden_size: int = 128) -> None:
        super().__init__()
        self.rnn = nn.LSTM(input_size, hidden_size, batch_first=True, bidirectional=True)
        self.size = 2 * hidden_size

    def forward(
        self,
        embeddings: Float[Tensor, "batch tokens embed"],
        mask: Bool[Tensor, "batch tokens"],
        content: Bool[Tensor, "batch tokens"],  # noqa: ARG002 - the markers' states are left as they are
    ) -> Float[Tensor, "batch tokens hidden"]:
        """Hidden states, forward and backward concatenated; zero on padding."""
        return run_packed(self.rnn, embeddings, mask)

    def summary(
        self, hidden: Float[Tensor, "batch tokens hidden"], mask: Bool[Tensor, "batch tokens"]
    ) -> Float[Tensor, "batch hidden"]:
        """The last state: forward direction at the last token, backward direction at the first."""
        last = mask.sum(1) - 1
        half = self.size // 2
        forward = hidden[torch.arange(len(hidden), device=hidden.device), last, :half]
        return torch.cat([forward, hidden[:, 0, half:]], -1)


def run_packed(
    rnn: nn.RNNBase, embeddings: Float[Tensor, "batch tokens embed"], mask: Bool[Tensor, "batch tokens"]
) -> Float[Tensor, "batch tokens hidden"]:
    """Run a batch-first recurrent network over the real tokens only, so that padding cannot leak into a direction."""
    packed = pack_padded_sequence(embeddings, mask.sum(1).cpu(), batch_first=True, enforce_sorted=False)
    # cuDNN refuses to differentiate an RNN in eval mode, which is just what a gradient probe does.
    needs_gradient_in_eval = torch.is_grad_enabled() and not rnn.training
    with torch.backends.cudnn.flags(enabled=torch.backends.cudnn.enabled and not needs_gradient_in_eval):
        states, _ = rnn(packed)
    return pad_packed_sequence(states, batch_first=True, total_length=mask.shape[1])[0]


class CNNEncoder(Encoder):
    """Convolutions of several widths side by side, ReLU, zero at markers and padding (Jain & Wallace: widths 1, 3, 5
    and 7 with 32 filters each)."""

    contextual = True

    def __init__(self, input_size: int, kernel_sizes: tuple[int, ...] = (1, 3, 5, 7), filters: int = 32) -> None:
        super().__init__()
        if any(size % 2 == 0 for size in kernel_sizes):
            raise ValueError(f"kernel_sizes={tuple(kernel_sizes)}: even widths have no middle; use odd ones")
        self.convolutions = nn.ModuleList(
            nn.Conv1d(input_size, filters, size, padding=size // 2) for size in kernel_sizes
        )
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
        return states.transpose(1, 2) * content.unsqueeze(-1)


class AverageEncoder(Encoder):
    """h_t = tanh(W e_t + b): each position on its own, no context (Jain & Wallace's "Average": 128)."""

    contextual = False

    def __init__(self, input_size: int, hidden_size: int = 128) -> None:
        super().__init__()
        self.projection = nn.Linear(input_size, hidden_size)
        self.size = hidden_size

    def forward(
        self,
        embeddings: Float[Tensor, "batch tokens embed"],
        mask: Bool[Tensor, "batch tokens"],
        content: Bool[Tensor, "batch tokens"],  # noqa: ARG002 - a marker's state is never attended to
    ) -> Float[Tensor, "batch tokens hidden"]:
        """Hidden states, zero on padding."""
        return self.projection(embeddings).tanh() * mask.unsqueeze(-1)
