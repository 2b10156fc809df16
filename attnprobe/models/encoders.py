"""Encoders: word vectors → one hidden state per position."""

from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar

import torch
from annotated_types import MinLen
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from attnprobe.core.batch import Batch
from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked, Count, Dropout, Size
from attnprobe.data.pieces import PieceReader
from attnprobe.data.vocabulary import UNKNOWN
from attnprobe.models.base import Unit
from attnprobe.models.recurrence import bidirectional_states

Embedded = Float[Tensor, "batch tokens embed"]
States = Float[Tensor, "batch tokens hidden"]
Tokens = Bool[Tensor, "batch tokens"]


LONG_INPUTS = 128
"""Length of word vectors from which an LSTM's products with each distinct word pay: 400 texts of 22
words take 43 ms and not 78 with 300 inputs and 128 units, 18 and not 22 with 128 and 64, but 38 and
not 30 with 48 and 128 (float32, one thread)."""


class TextEncoder(nn.Module, metaclass=Checked):
    """A batch → the hidden states that attention is spread over. Padding never changes a state.

    Attributes:
        size: features of a state.
        unit: whether there is a state per token, or per sentence.
        asks: the first state is the attention's query, where no question is asked.
        pretrained: its weights are those of a checkpoint, and it takes `offline`.
        reader: cuts words into pieces, where it reads these; it then has `inputs` of its own.
        mask: the word, or the piece, that stands for a masked one; None: its tokenizer has none.
        precision: what it is examined in.
    """

    settings_place: ClassVar[str] = "model.encoder"

    size: int
    unit: ClassVar[Unit] = Unit.WORD
    asks: bool = False
    pretrained: ClassVar[bool] = False
    reader: PieceReader | None = None
    mask: int | None = UNKNOWN
    precision: torch.dtype = torch.float64

    inputs: Callable[[Batch], Float[Tensor, "batch pieces embed"]]
    """The vectors of a batch's pieces; only with a `reader`."""

    def check(self, batch: Batch) -> None:
        """Called before anything is trained, with a few texts.

        Raises:
            UserError: it cannot read them.
        """

    def states(
        self,
        embeddings: Float[Tensor, "batch tokens embed"],
        batch: Batch,
    ) -> tuple[
        Float[Tensor, "batch seq hidden"],
        Bool[Tensor, "batch seq"],
        Float[Tensor, "batch tokens"] | None,
    ]:
        """Encode a batch.

        Args:
            embeddings: vectors of its texts' words, or of their pieces.
            batch: the texts.

        Returns:
            Hidden states, zero on padding; the positions that attention may be given to; and the
            attention over the words of each sentence, in hierarchical models.
        """
        return self(embeddings, batch.mask, batch.content), batch.content, None

    def states_of_words(
        self,
        words: Float[Tensor, "distinct embed"],
        word_of_token: Int[Tensor, "batch tokens"],
        batch: Batch,
        scale: Float[Tensor, "batch tokens"] | None = None,
    ) -> tuple[
        Float[Tensor, "batch seq hidden"],
        Bool[Tensor, "batch seq"],
        Float[Tensor, "batch tokens"] | None,
    ]:
        """As `states`, from the distinct words, many of which may stand in several places.

        Args:
            words: the vectors of the distinct words.
            word_of_token: the row of `words` that is read at each token.
            batch: the texts.
            scale: a factor of each token's vector, to be differentiated by it and by nothing else;
                None: without factors, and not to be differentiated.

        Returns:
            As of `states`.
        """
        embeddings = words[word_of_token]
        if scale is not None:
            embeddings = embeddings * scale.unsqueeze(-1)
        return self.states(embeddings, batch)


class Encoder(TextEncoder):
    """Word vectors → one hidden state per token.

    A subclass defines `forward(embeddings: Embedded, mask: Tokens, content: Tokens) -> States`,
    zero on padding.
    """

    def summary(self, hidden: States, mask: Tokens) -> Float[Tensor, "batch hidden"]:
        """One vector for a whole text that is a question, the attention's query: the mean state."""
        weight = mask.to(hidden.dtype).unsqueeze(-1)
        return (hidden * weight).sum(1) / weight.sum(1)


class RecurrentEncoder(Encoder):
    """Two recurrent networks, the second over reversed texts.

    The numbers are those of a bidirectional network over packed sequences, at 2 to 4 times the
    speed on a CPU, where packing keeps PyTorch from its fused kernel.
    """

    network: ClassVar[type[nn.LSTM | nn.GRU]]

    def __init__(self, input_size: int, hidden_size: Size = 128, dropout: Dropout = 0.0) -> None:
        super().__init__()
        self.forwards = self.network(input_size, hidden_size, batch_first=True)
        self.backwards = self.network(input_size, hidden_size, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.size = 2 * hidden_size

    def forward(self, embeddings: Embedded, mask: Tokens, content: Tokens) -> States:
        """States of both directions side by side, zero on padding.

        Padding is on the right, and a text is reversed in its place, so that no state is computed
        after padding was read.
        """
        order = reversed_positions(mask).unsqueeze(-1)
        reversed_embeddings = embeddings.gather(1, order.expand_as(embeddings))

        # cuDNN refuses to differentiate an RNN in eval mode: just what a gradient probe does
        needs_gradient_in_eval = torch.is_grad_enabled() and not self.training
        use_cudnn = torch.backends.cudnn.enabled and not needs_gradient_in_eval
        with torch.backends.cudnn.flags(enabled=use_cudnn):
            forward_states, _ = self.forwards(embeddings)
            backward_states, _ = self.backwards(reversed_embeddings)

        backward_states = backward_states.gather(1, order.expand_as(backward_states))
        states = torch.cat([forward_states, backward_states], -1)
        return self.dropout(states * mask.unsqueeze(-1))


class LSTMEncoder(RecurrentEncoder):
    """Bidirectional LSTM (Jain & Wallace: 128 per direction, no dropout)."""

    network = nn.LSTM
    forwards: nn.LSTM
    backwards: nn.LSTM

    @property
    def _has_long_inputs(self) -> bool:
        return self.forwards.input_size >= max(LONG_INPUTS, self.forwards.hidden_size)

    def states_of_words(
        self,
        words: Float[Tensor, "distinct embed"],
        word_of_token: Int[Tensor, "batch tokens"],
        batch: Batch,
        scale: Float[Tensor, "batch tokens"] | None = None,
    ) -> tuple[States, Tokens, Float[Tensor, "batch tokens"] | None]:
        """As the base class has it, in about half the time.

        Without factors that is so of long vectors alone, whose products with the weights are most
        of the work.
        """
        is_worth_it = scale is not None or self._has_long_inputs
        # its own steps are of one precision
        is_mixed = torch.is_autocast_enabled(words.device.type)
        # a subclass may read its texts in another way
        if type(self) is not LSTMEncoder or is_mixed or not is_worth_it:
            return super().states_of_words(words, word_of_token, batch, scale)
        order = reversed_positions(batch.mask)
        states = bidirectional_states(
            self.forwards, self.backwards, words, word_of_token, order, scale
        )
        return self.dropout(states * batch.mask.unsqueeze(-1)), batch.content, None

    def summary(self, hidden: States, mask: Tokens) -> Float[Tensor, "batch hidden"]:
        """The last state: forward direction at the last token, backward direction at the first."""
        last = mask.sum(1) - 1
        half = self.size // 2
        forward = hidden[torch.arange(len(hidden), device=hidden.device), last, :half]
        return torch.cat([forward, hidden[:, 0, half:]], -1)


class GRUEncoder(RecurrentEncoder):
    """Bidirectional GRU (Serrano & Smith: 50 per direction)."""

    network = nn.GRU

    def __init__(self, input_size: int, hidden_size: Size = 50, dropout: Dropout = 0.0) -> None:
        super().__init__(input_size, hidden_size, dropout)


class NoEncoder(Encoder):
    """h_t = e_t: attention directly over the word vectors (Serrano & Smith's "no encoder")."""

    def __init__(self, input_size: int, dropout: Dropout = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.size = input_size

    def forward(self, embeddings: Embedded, mask: Tokens, content: Tokens) -> Embedded:
        """The word vectors themselves, after dropout."""
        return self.dropout(embeddings) * mask.unsqueeze(-1)


class LabelVector(NoEncoder):
    """A label's own vector: its name is one word, between the markers of a question."""

    def summary(self, hidden: States, mask: Tokens) -> Float[Tensor, "batch hidden"]:
        """The vector of the name."""
        return hidden[:, 1]


def reversed_positions(mask: Bool[Tensor, "batch tokens"]) -> Int[Tensor, "batch tokens"]:
    """The positions to read from so that each text is reversed in its place.

    Padding stays where it is.
    """
    position = torch.arange(mask.shape[1], device=mask.device)
    mirrored = mask.sum(1, keepdim=True) - 1 - position
    return torch.where(mirrored >= 0, mirrored, position)


class CNNEncoder(Encoder):
    """Convolutions of several widths side by side, and ReLU; zero at markers and padding.

    Jain & Wallace: widths 1, 3, 5 and 7 with 32 filters each.
    """

    def __init__(
        self,
        input_size: int,
        kernel_sizes: Annotated[Sequence[Count], MinLen(1)] = (1, 3, 5, 7),
        filters: Size = 32,
        dropout: Dropout = 0.0,
    ) -> None:
        super().__init__()
        if any(size % 2 == 0 for size in kernel_sizes):
            raise UserError(
                f"model.encoder.kernel_sizes={list(kernel_sizes)}: even widths have no middle, "
                f"expected one or more odd ones, such as [1, 3, 5]"
            )
        self.convolutions = nn.ModuleList(
            nn.Conv1d(input_size, filters, size, padding=size // 2) for size in kernel_sizes
        )
        self.activation = nn.ReLU()
        self.dropout = nn.Dropout(dropout)
        self.size = filters * len(kernel_sizes)

    def forward(self, embeddings: Embedded, mask: Tokens, content: Tokens) -> States:
        """States of all widths side by side, zero outside `content`."""
        # the padding row of a trained embedding is zero, but a probe may hand in other vectors
        channels = (embeddings * mask.unsqueeze(-1)).transpose(1, 2)
        convolved = torch.cat([convolution(channels) for convolution in self.convolutions], 1)
        states = self.activation(convolved)
        return self.dropout(states.transpose(1, 2)) * content.unsqueeze(-1)


class AverageEncoder(Encoder):
    """h_t = tanh(W e_t + b): each position by itself, no context.

    Jain & Wallace's "Average", of 128 features.
    """

    def __init__(self, input_size: int, hidden_size: Size = 128) -> None:
        super().__init__()
        self.projection = nn.Linear(input_size, hidden_size)
        self.activation = nn.Tanh()
        self.size = hidden_size

    def forward(self, embeddings: Embedded, mask: Tokens, content: Tokens) -> States:
        """tanh(W e_t + b) of every token, zero on padding."""
        return self.activation(self.projection(embeddings)) * mask.unsqueeze(-1)
