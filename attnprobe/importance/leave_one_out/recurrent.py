"""Leave-one-out's short cut for the LSTM.

Removing the token at t leaves each network's states before t (in its reading direction) as they are, and the projections
of all inputs are the same in every shortened text. All shortened texts of all examples are advanced together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnprobe.importance.leave_one_out.changed_states import (
    Affine,
    ChangedStates,
    EncodedTexts,
    Projection,
    changed_states,
)
from attnprobe.models.encoders import CNNEncoder, LSTMEncoder, reversed_positions

# Many rows times one matrix, as fast as PyTorch's libraries can.


class Product:
    """rows ↦ rows · matrix, for many products with the same matrix.

    A matrix product is also a convolution one token wide. For float32 on a CPU PyTorch computes matrix products by MKL and
    convolutions by oneDNN. On an AMD processor with AVX-512 only oneDNN uses it: twice as fast where it was measured (0.30
    against 0.60 ms for 512 × 128 × 512), and equal up to rounding.
    """

    FEWEST = 128
    """Rows from which the convolution is faster: it lays out the matrix again for every product."""
    IMAGES = 16
    """PyTorch leaves convolutions of fewer images than these to MKL where there is one thread."""

    def __init__(self, matrix: Float[Tensor, "into out"]) -> None:
        self.matrix = matrix.t().contiguous().t()  # column by column, as the product reads it fastest on a CPU
        self.filters: Tensor | None = None
        if matrix.device.type == "cpu" and matrix.dtype == torch.float32 and torch.backends.mkldnn.is_available():
            self.filters = matrix.t()[:, :, None, None].contiguous(memory_format=torch.channels_last)

    def of(self, rows: Float[Tensor, "rows into"]) -> Float[Tensor, "rows out"]:
        """The product."""
        if self.filters is None or rows.shape[0] < self.FEWEST:
            return rows @ self.matrix
        return self._convolved(rows)

    def _convolved(self, rows: Float[Tensor, "rows into"]) -> Float[Tensor, "rows out"]:
        assert self.filters is not None
        count = rows.shape[0]
        if count % self.IMAGES:  # an empty padding would be a copy
            rows = F.pad(rows, (0, 0, 0, -count % self.IMAGES))
        images = rows.view(self.IMAGES, 1, -1, rows.shape[1])
        return F.conv2d(images.permute(0, 3, 1, 2), self.filters).permute(0, 2, 3, 1).flatten(0, 2)[:count]


class Gates:
    """One LSTM's arithmetic, with tanh(x) = 2σ(2x) − 1: sigmoids alone, which PyTorch computes several times faster
    than tanh. Cells are kept as 2c, hidden states as h/2 (powers of two change no digit and save two passes)."""

    def __init__(self, rnn: nn.LSTM) -> None:
        size = rnn.hidden_size
        of_inputs, of_states, bias, other_bias = (
            getattr(rnn, name).detach() for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        )
        # rows i f g o; the factor 2 of g's argument goes into its weights
        factor = torch.ones_like(bias)
        factor[2 * size : 3 * size] = 2
        self.inputs = Product((of_inputs * factor.unsqueeze(1)).t())
        self.bias = (bias + other_bias) * factor
        self.recurrent = Product((of_states * 2 * factor.unsqueeze(1)).t())

    def advance(
        self,
        gates: Float[Tensor, "rows gates"],
        state: Float[Tensor, "rows hidden"],
        cell: Float[Tensor, "rows hidden"],
    ) -> None:
        """h/2 and 2c after one more input, in place of those before it; `gates` become their sigmoid."""
        let_in, keep, new, show = gates.sigmoid_().chunk(4, -1)
        cell.mul_(keep).addcmul_(let_in, new, value=4).sub_(let_in, alpha=2)
        torch.sigmoid(cell, out=state).sub_(0.5).mul_(show)


NONE = -1
"""The number of no shortened text."""


class SideBySide:
    """An LSTM's states of texts and of what is left of them without one token, step by step.

    A column for each text, in slot 0 the unchanged text, in the others shortened ones: rows side by side, which one matrix
    product advances, and to which each column's input is added where they lie. A shortened text that is back at the
    unchanged one, or has no removed token at this step, leaves an empty place until the column is closed up.

    Attributes:
        columns: texts that are still being read.
        slots: in use, that of the unchanged texts included.
    """

    def __init__(self, gates: Gates, inputs: Float[Tensor, "distinct gates"], columns: int, removals: int) -> None:
        """`removals`: of one text at most."""
        self.gates, self.inputs = gates, inputs
        self.columns, self.slots, self.most = columns, 1, removals + 1
        self.number = torch.full((self.most, columns), NONE, device=inputs.device)
        self.state, self.cell = self._empty(), self._empty()
        self.full = True

    def _empty(self) -> Float[Tensor, "rows hidden"]:
        """Rows for all slots, and some more, so that any number of them can be rounded up."""
        return self.inputs.new_zeros(self.most * self.columns + Product.IMAGES, self.inputs.shape[1] // 4)

    def unchanged(self) -> tuple[Float[Tensor, "columns hidden"], Float[Tensor, "columns hidden"]]:
        """Copies of the unchanged texts' h/2 and 2c."""
        return self.state[: self.columns].clone(), self.cell[: self.columns].clone()

    def changed(self) -> Float[Tensor, "rows hidden"]:
        """h/2 of the shortened texts, slot by slot, and of up to 15 rows without meaning."""
        return self.state[self.columns :][: _rounded((self.slots - 1) * self.columns)]

    def advance(self, which: Int[Tensor, "columns"]) -> None:
        """Read one more input in each column."""
        rows = self.slots * self.columns
        gates = self.gates.recurrent.of(self.state[: _rounded(rows)])[:rows]
        gates.view(self.slots, self.columns, -1).add_(self.inputs.index_select(0, which))
        self.gates.advance(gates, self.state[:rows], self.cell[:rows])

    def there(
        self, position: Int[Tensor, "columns"], seen: Float[Tensor, "rows out"]
    ) -> tuple[Int[Tensor, "there"], Int[Tensor, "there"], Float[Tensor, "there out"]]:
        """Numbers, positions and what is seen of the shortened texts, without the empty places."""
        text = self.number[1 : self.slots].flatten()
        position = position.expand(self.slots - 1, -1).flatten()
        if self.full:
            return text.clone(), position, seen
        some = (text != NONE).nonzero().squeeze(-1)
        return text.index_select(0, some), position.index_select(0, some), seen.index_select(0, some)

    def rejoin(self, near: float, going_on: int) -> tuple[Int[Tensor, "rejoined"], Float[Tensor, "rejoined"]]:
        """Take leave of the shortened texts whose state is this near to the unchanged one's, in the first `going_on` columns.

        Returns:
            their numbers, and how far they were by the hidden state or the cell.
        """
        # `Gates` keeps half of the one and twice the other
        apart = torch.maximum(self._apart(self.state) * 2, self._apart(self.cell) / 2)
        number = self.number[1 : self.slots]
        back = ~(apart > near) & (number != NONE)
        back[:, going_on:] = False
        rejoined, skipped = number[back], apart[back]
        if rejoined.numel():
            number[back] = NONE
            self._close_up()
        return rejoined, skipped

    def _apart(self, values: Float[Tensor, "rows hidden"]) -> Float[Tensor, "shortened columns"]:
        blocks = values[: self.slots * self.columns].view(self.slots, self.columns, -1)
        return (blocks[1:] - blocks[0]).abs_().amax(-1)

    def _close_up(self) -> None:
        """Move what there is of each column to its first slots, in the order in which it is."""
        empty = self.number[: self.slots] == NONE
        empty[0] = False
        taken = self.slots - empty.sum(0)
        slots = int(taken.max())
        order = empty.byte().argsort(dim=0, stable=True)[:slots]
        rows = (order * self.columns + torch.arange(self.columns, device=order.device)).flatten()
        for values in self.state, self.cell:
            values[: len(rows)] = values.index_select(0, rows)
        self.number[:slots] = self.number.gather(0, order)
        self.slots, self.full = slots, bool((taken == slots).all())

    def narrow(self, columns: int) -> None:
        """Go on with the first columns alone."""
        if columns == self.columns:
            return
        state, cell, number, before = self.state, self.cell, self.number, self.columns
        self.columns, self.number = columns, number[:, :columns].contiguous()
        self.state, self.cell = self._empty(), self._empty()
        for old, new in ((state, self.state), (cell, self.cell)):
            blocks = old[: self.slots * before].view(self.slots, before, -1)
            new[: self.slots * columns].view(self.slots, columns, -1).copy_(blocks[:, :columns])

    def start(
        self,
        before: tuple[Float[Tensor, "earlier hidden"], Float[Tensor, "earlier hidden"]],
        number: Int[Tensor, "batch"],
        removed: Bool[Tensor, "batch"],
        count: int,
    ) -> None:
        """One more shortened text in each of `count` columns, from the unchanged states before the token was read."""
        rows = slice(self.slots * self.columns, (self.slots + 1) * self.columns)
        for values, old in zip((self.state, self.cell), before, strict=True):
            values[rows] = old[: self.columns]
        self.number[self.slots] = torch.where(removed, number, NONE)[: self.columns]
        self.slots, self.full = self.slots + 1, self.full and count == self.columns


def _rounded(rows: int) -> int:
    return -(-rows // Product.IMAGES) * Product.IMAGES


CHECK_EVERY = 4
"""Steps of a text between two looks at which shortened texts are back at the unchanged one: looking costs about as much
as a third of a step."""
FIRST_LOOK = 16
"""Steps of a text before the first such check: hardly any text is back sooner."""


@changed_states.register
def _lstm_changes(encoder: LSTMEncoder, texts: EncodedTexts, projection: Projection) -> Iterator[ChangedStates]:
    """After a removed token the states of the forward network, before it those of the backward one."""
    half = encoder.size // 2
    position = torch.arange(texts.mask.shape[1], device=texts.mask.device).expand_as(texts.mask)
    first, second = projection.layer.weight[:, :half], projection.layer.weight[:, half:]
    left, right = texts.hidden[..., :half], texts.hidden[..., half:]
    for rnn, order, weight, other_direction in (
        (encoder.forwards, position, first, F.linear(right, second, projection.layer.bias)),
        (encoder.backwards, reversed_positions(texts.mask), second, F.linear(left, first, projection.layer.bias)),
    ):
        read = RecurrentPass.of(texts, order, other_direction)
        yield from recurrent_changes(rnn, texts.words, read, weight, projection.tolerance)


@dataclass(frozen=True)
class RecurrentPass:
    """Texts as one recurrent network reads them: step by step in its own order, padding last; first the text that it reads
    longest, so that those still being read stay side by side.

    Attributes:
        which: of the distinct inputs is read.
        position: in the text.
        content: steps that are removed in turn.
        number: of the shortened text without this step.
        other_direction: what the layer after the encoder sees of the other network's states.
        last: content step of each text; −1 where there is none.
    """

    which: Int[Tensor, "steps batch"]
    position: Int[Tensor, "steps batch"]
    content: Bool[Tensor, "steps batch"]
    number: Int[Tensor, "steps batch"]
    other_direction: Float[Tensor, "steps batch out"]
    last: Int[Tensor, "batch"]

    @classmethod
    def of(
        cls, texts: EncodedTexts, order: Int[Tensor, "batch tokens"], other_direction: Float[Tensor, "batch tokens out"]
    ) -> "RecurrentPass":
        """`order`: the position that each step reads."""
        width = order.shape[1]
        steps = torch.arange(width, device=order.device)
        last = torch.where(texts.content.gather(1, order), steps, -1).amax(1)
        longest = last.argsort(descending=True, stable=True)
        rows = (order.index_select(0, longest) + width * longest.unsqueeze(1)).t().flatten()

        def read(values: Tensor) -> Tensor:
            return values.flatten(0, 1).index_select(0, rows).unflatten(0, (width, -1))

        number = (texts.content.flatten().cumsum(0) - 1).view_as(texts.content)
        position = rows.remainder(width).view(width, -1)
        return cls(read(texts.which), position, read(texts.content), read(number), read(other_direction), last[longest])


def recurrent_changes(
    rnn: nn.LSTM,
    words: Float[Tensor, "distinct embed"],
    texts: RecurrentPass,
    weight: Float[Tensor, "out half"],
    tolerance: float,
) -> Iterator[ChangedStates]:
    """An LSTM's states after each removed token.

    The shortened text without step t starts at step t + 1 from the unchanged state before t. It ends after the last content
    step, or where it rejoins the unchanged text: hidden state and cell are both within `tolerance` of the unchanged
    text's. Most LSTMs forget, and a difference this small only shrinks. That is no law: a network can be built that makes
    it large again, hence the check in `removal`. Every fourth step from the 16th is looked at, each text by itself, so
    that no other text in the batch changes a number.

    Args:
        words: the distinct inputs.
        weight: how the layer after the encoder sees this network's states.
        tolerance: 0 never lets a text rejoin; in float32 it is at least 2e-6.
    """
    # below some units in the last place float32 states never meet again
    near = max(tolerance, 16 * torch.finfo(words.dtype).eps) if tolerance else 0.0
    gates, seeing = Gates(rnn), Product((2 * weight).t())
    inputs = gates.inputs.of(words.detach()).add_(gates.bias)
    steps = torch.arange(len(texts.which), device=texts.last.device).unsqueeze(1)
    going_on = (texts.last > steps).sum(1).tolist()
    starting = (texts.content & (texts.last > steps)).sum(1).tolist()
    removals = sum(count > 0 for count in starting)
    read = SideBySide(gates, inputs, texts.which.shape[1], removals)
    for step in range(len(going_on)):
        columns = read.columns
        before = read.unchanged()
        read.advance(texts.which[step, :columns])
        rejoined = skipped = None
        if read.slots > 1:
            seen = seeing.of(read.changed())[: (read.slots - 1) * columns]
            seen.view(-1, columns, len(weight)).add_(texts.other_direction[step, :columns])
            text, position, seen = read.there(texts.position[step, :columns], seen)
            if near and step >= FIRST_LOOK and step % CHECK_EVERY == 0:
                rejoined, skipped = read.rejoin(near, going_on[step])
            yield ChangedStates(text, position, seen, rejoined, skipped)
        if not going_on[step]:
            return
        read.narrow(going_on[step])
        if starting[step]:
            read.start(before, texts.number[step], texts.content[step], starting[step])


@changed_states.register
def _cnn_changes(encoder: CNNEncoder, texts: EncodedTexts, projection: Projection) -> Iterator[ChangedStates]:
    convolutions = [module for module in encoder.convolutions if isinstance(module, nn.Conv1d)]
    embeddings = texts.words[texts.which] * texts.mask.unsqueeze(-1)
    return convolution_changes(convolutions, embeddings, texts.content, projection.layer)


def convolution_changes(
    convolutions: Sequence[nn.Conv1d],
    embeddings: Float[Tensor, "batch tokens embed"],
    content: Bool[Tensor, "batch tokens"],
    layer: Affine,
) -> Iterator[ChangedStates]:
    """States (after the ReLU) of the content tokens around each removed one, whose neighbours move up.

    What a token adds to a filter at each place of its window is computed once for all shortened texts.

    Args:
        convolutions: of odd widths, stride 1, padded to keep the length, side by side in the hidden state.
        embeddings: zero on padding.
        content: positions that are removed in turn.
        layer: how the states are seen.
    """
    reach = max(convolution.kernel_size[0] // 2 for convolution in convolutions)
    # zeros around the text, as the convolution's own padding, so that windows may reach over its edge
    margin = reach + 1
    padded = F.pad(embeddings, (0, 0, margin, margin))
    parts = [torch.einsum("bse,fek->bskf", padded, convolution.weight.detach()) for convolution in convolutions]
    example, removed = content.nonzero(as_tuple=True)
    around = F.pad(content, (margin, margin))
    for distance in (*range(-reach, 0), *range(1, reach + 1)):
        there = around[example, removed + distance + margin]
        text = there.nonzero().squeeze(-1)
        owner, gap = example[text], removed[text]
        position = gap + distance
        states = []
        for convolution, part in zip(convolutions, parts, strict=True):
            half = convolution.kernel_size[0] // 2
            bias = convolution.bias
            total = part.new_zeros(len(owner), part.shape[-1]) if bias is None else bias.detach()
            for place in range(-half, half + 1):
                source = position + place
                # the removed token is stepped over, from whichever side the window comes
                over = source >= gap if distance < 0 else source <= gap
                source = source + over.long() * (1 if distance < 0 else -1)
                total = total + part[owner, source + margin, place + half]
            states.append(total)
        yield ChangedStates(text, position, F.linear(torch.cat(states, -1).relu(), *layer))
