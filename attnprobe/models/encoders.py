"""Encoders: word vectors → one hidden state per position.

Every encoder is called as `encoder(embeddings, mask, content)`, has `size` (features of a hidden state) and says
with `contextual` whether a state has seen other positions.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import MinLen
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from attnprobe.core.batch import Batch
from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked, Count, Dropout, Size
from attnprobe.models.base import Unit

Embedded = Float[Tensor, "batch tokens embed"]
States = Float[Tensor, "batch tokens hidden"]
Tokens = Bool[Tensor, "batch tokens"]


class TextEncoder(nn.Module, metaclass=Checked):
    """A batch → the hidden states that attention is spread over: one per token, or one per sentence.

    `size` is the number of features of a state; padding and its length never change a state. `unit`: what a
    state is that of. `asks`: the first state is the attention's query, where no question is asked.
    """

    settings_place: ClassVar[str] = "model.encoder"

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

    def states(self, embeddings: Embedded, batch: Batch) -> tuple[States, None]:
        return self(embeddings, batch.mask, batch.content), None

    def positions(self, batch: Batch) -> Bool[Tensor, "batch tokens"]:
        return batch.content

    @abstractmethod
    def forward(self, embeddings: Embedded, mask: Tokens, content: Tokens) -> States:
        """Hidden states, zero on padding."""

    def summary(self, hidden: States, mask: Tokens) -> Float[Tensor, "batch hidden"]:
        """One vector for the whole text, used as the query where the text is a question: the mean state."""
        weight = mask.to(hidden.dtype).unsqueeze(-1)
        return (hidden * weight).sum(1) / weight.sum(1)


# Gradient × input of a token is the derivative of the prediction by a factor that its vector is multiplied by. The factor
# may as well multiply what the vector adds to an LSTM's gates: then no gradient of a vector is computed, which is most of the
# work of PyTorch's own backward pass.


class _Recurrence(torch.autograd.Function):
    """Factors of the inputs → hidden states, of several networks side by side, by the equations of `torch.nn.LSTM`. Gates are
    in PyTorch's order: in, forget, cell, out. All that a backward pass needs of a step is computed with the step."""

    @staticmethod
    def forward(
        ctx: Any,
        scale: Float[Tensor, "steps networks batch"],
        read: Int[Tensor, "steps networks batch"],
        inputs: Float[Tensor, "rows four_hidden"],
        bias: Float[Tensor, "networks 1 four_hidden"],
        recurrent: Float[Tensor, "networks four_hidden hidden"],
    ) -> Float[Tensor, "steps networks batch hidden"]:
        slopes = inputs.new_empty(*read.shape, inputs.shape[1])
        hidden, kept, through = (inputs.new_empty(*read.shape, recurrent.shape[-1]) for _ in range(3))
        cell, transposed = torch.zeros_like(hidden[0]), recurrent.transpose(1, 2).contiguous()
        for step in range(len(read)):
            gates = _at(inputs, read[step]).mul_(scale[step].unsqueeze(-1)).add_(bias)
            if step:
                gates.baddbmm_(hidden[step - 1], transposed)
            let_in, keep, new, show = gates.chunk(4, -1)
            of_in, of_keep, of_new, of_show = slopes[step].chunk(4, -1)
            let_in.sigmoid_(), keep.sigmoid_(), new.tanh_(), show.sigmoid_()
            kept[step] = keep
            # by how much the input of a gate moves the cell, or the state
            torch.addcmul(let_in, let_in, let_in, value=-1, out=of_in).mul_(new)
            torch.addcmul(keep, keep, keep, value=-1, out=of_keep).mul_(cell)
            torch.mul(new, new, out=of_new).neg_().add_(1).mul_(let_in)
            cell = (keep * cell).addcmul_(let_in, new)
            shown = cell.tanh()
            torch.addcmul(show, show, show, value=-1, out=of_show).mul_(shown)
            torch.mul(show, shown, out=hidden[step])
            # and the cell the state
            torch.addcmul(show, hidden[step], shown, value=-1, out=through[step])
        ctx.save_for_backward(slopes, kept, through, read, inputs, recurrent)
        return hidden

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, of_hidden: Float[Tensor, "steps networks batch hidden"]
    ) -> tuple[Float[Tensor, "steps networks batch"], None, None, None, None]:
        slopes, kept, through, read, inputs, recurrent = ctx.saved_tensors
        of_scale = slopes.new_empty(read.shape)
        state, cell = torch.zeros_like(kept[0]), torch.zeros_like(kept[0])
        of_gates = torch.empty_like(slopes[0])
        for step in range(len(read) - 1, -1, -1):
            state = state + of_hidden[step]
            cell.addcmul_(state, through[step])
            moved = (cell, cell, cell, state)
            for slope, by, result in zip(slopes[step].chunk(4, -1), moved, of_gates.chunk(4, -1), strict=True):
                torch.mul(slope, by, out=result)
            torch.sum(_at(inputs, read[step]).mul_(of_gates), -1, out=of_scale[step])
            cell *= kept[step]
            state = torch.bmm(of_gates, recurrent)
        return of_scale, None, None, None, None


def _at(
    inputs: Float[Tensor, "rows four_hidden"], read: Int[Tensor, "networks batch"]
) -> Float[Tensor, "networks batch four_hidden"]:
    return inputs.index_select(0, read.flatten()).view(*read.shape, -1)


class LSTMEncoder(Encoder):
    """Bidirectional LSTM (Jain & Wallace: 128 per direction, no dropout).

    Note:
        The directions are two LSTMs, the second one over reversed texts (see `bidirectional`): the same numbers as one
        bidirectional LSTM over packed sequences, at 2 to 4 times the speed on a CPU, where packing keeps PyTorch
        from its fused kernel.
    """

    contextual = True

    def __init__(self, input_size: int, hidden_size: Size = 128) -> None:
        super().__init__()
        self.forwards = nn.LSTM(input_size, hidden_size, batch_first=True)
        self.backwards = nn.LSTM(input_size, hidden_size, batch_first=True)
        self.size = 2 * hidden_size

    def forward(self, embeddings: Embedded, mask: Tokens, content: Tokens) -> States:
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
        order = reversed_positions(batch.mask)  # in which the second network reads
        networks = [
            [getattr(rnn, f"{name}_l0").detach() for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
            for rnn in (self.forwards, self.backwards)
        ]
        states = _Recurrence.apply(
            torch.stack([scale, scale.gather(1, order)]).permute(2, 0, 1),
            torch.stack([which, which.gather(1, order) + len(words)]).permute(2, 0, 1),
            torch.cat([words @ of_inputs.t() for of_inputs, *_ in networks]),
            torch.stack([bias + other for *_, bias, other in networks]).unsqueeze(1),
            torch.stack([of_states for _, of_states, *_ in networks]),
        )
        left, right = states.permute(1, 2, 0, 3).unbind()
        right = right.gather(1, order.unsqueeze(-1).expand_as(right))
        return torch.cat([left, right], -1) * batch.mask.unsqueeze(-1)

    def summary(self, hidden: States, mask: Tokens) -> Float[Tensor, "batch hidden"]:
        """The last state: forward direction at the last token, backward direction at the first."""
        last = mask.sum(1) - 1
        half = self.size // 2
        forward = hidden[torch.arange(len(hidden), device=hidden.device), last, :half]
        return torch.cat([forward, hidden[:, 0, half:]], -1)


class GRUEncoder(Encoder):
    """Bidirectional GRU (Serrano & Smith: 50 per direction), as two networks like the `LSTMEncoder`."""

    contextual = True

    def __init__(self, input_size: int, hidden_size: Size = 50, dropout: Dropout = 0.0) -> None:
        super().__init__()
        self.forwards = nn.GRU(input_size, hidden_size, batch_first=True)
        self.backwards = nn.GRU(input_size, hidden_size, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.size = 2 * hidden_size

    def forward(self, embeddings: Embedded, mask: Tokens, content: Tokens) -> States:
        return self.dropout(bidirectional(self.forwards, self.backwards, embeddings, mask))


class NoEncoder(Encoder):
    """h_t = e_t: attention directly over the word vectors (Serrano & Smith's "no encoder")."""

    contextual = False

    def __init__(self, input_size: int, dropout: Dropout = 0.0) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.size = input_size

    def forward(self, embeddings: Embedded, mask: Tokens, content: Tokens) -> Embedded:
        return self.dropout(embeddings) * mask.unsqueeze(-1)


def reversed_positions(mask: Bool[Tensor, "batch tokens"]) -> Int[Tensor, "batch tokens"]:
    """For every position, the one to read from so that each text is reversed in its place; padding stays where it is."""
    position = torch.arange(mask.shape[1], device=mask.device)
    mirrored = mask.sum(1, keepdim=True) - 1 - position
    return torch.where(mirrored >= 0, mirrored, position)


def bidirectional(forwards: nn.RNNBase, backwards: nn.RNNBase, embeddings: Embedded, mask: Tokens) -> States:
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
        self.dropout = nn.Dropout(dropout)
        self.size = filters * len(kernel_sizes)

    def forward(self, embeddings: Embedded, mask: Tokens, content: Tokens) -> States:
        """Hidden states, zero at markers and padding."""
        # The padding row of a trained embedding is zero, but a probe may hand in other vectors.
        channels = (embeddings * mask.unsqueeze(-1)).transpose(1, 2)
        states = torch.cat([convolution(channels) for convolution in self.convolutions], 1).relu()
        return self.dropout(states.transpose(1, 2)) * content.unsqueeze(-1)


class AverageEncoder(Encoder):
    """h_t = tanh(W e_t + b): each position on its own, no context (Jain & Wallace's "Average": 128)."""

    contextual = False

    def __init__(self, input_size: int, hidden_size: Size = 128) -> None:
        super().__init__()
        self.projection = nn.Linear(input_size, hidden_size)
        self.size = hidden_size

    def forward(self, embeddings: Embedded, mask: Tokens, content: Tokens) -> States:
        return self.projection(embeddings).tanh() * mask.unsqueeze(-1)
