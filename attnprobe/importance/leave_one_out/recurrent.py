"""Leave-one-out's short cut for the LSTM.

Removing the token at t leaves each network's states before t (in its reading direction) as they
are, and what each word gives to the gates is the same in every shortened text. All shortened texts
of all examples are advanced together.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnprobe.importance.leave_one_out.changed_states import (
    ChangedStates,
    EncodedTexts,
    changed_states,
)
from attnprobe.models.encoders import LSTMEncoder, reversed_positions
from attnprobe.models.linearised_layers import Affine

FEWEST = 128
"""Rows from which a convolution is faster than a matrix product: it lays out the matrix again every
time."""
IMAGES = 16
"""PyTorch leaves convolutions of fewer images to MKL where there is one thread."""
CHECK_EVERY = 4
"""Steps of a text between two looks at which shortened texts are back at the unchanged one: looking
costs about as much as a third of a step."""
FIRST_LOOK = 16
"""Steps of a text before the first such check: hardly any text is back sooner."""
NONE = -1
"""The number of no shortened text."""


def product_with(matrix: Float[Tensor, "into out"]) -> Callable[[Tensor], Tensor]:
    """rows ↦ rows · matrix, for many products with the same matrix.

    A matrix product is also a convolution one token wide. For float32 on a CPU PyTorch computes
    matrix products by MKL and convolutions by oneDNN, and on an AMD processor with AVX-512 only
    oneDNN uses it: twice as fast, and equal up to rounding.
    """
    matrix = matrix.t().contiguous().t()  # column by column, as the product reads it fastest
    filters = None
    on_cpu = matrix.device.type == "cpu" and torch.backends.mkldnn.is_available()
    if on_cpu and matrix.dtype == torch.float32:
        filters = matrix.t()[:, :, None, None].contiguous(memory_format=torch.channels_last)

    def product(rows: Float[Tensor, "rows into"]) -> Float[Tensor, "rows out"]:
        count, width = rows.shape
        if filters is None or count < FEWEST:
            return rows @ matrix
        if count % IMAGES:  # no padding would be a copy, too
            rows = F.pad(rows, (0, 0, 0, -count % IMAGES))
        images = rows.view(IMAGES, 1, -1, width).permute(0, 3, 1, 2)
        return F.conv2d(images, filters).permute(0, 2, 3, 1).flatten(0, 2)[:count]

    return product


@changed_states.register
def _lstm_changes(
    encoder: LSTMEncoder, texts: EncodedTexts, layer: Affine, tolerance: float
) -> Iterator[ChangedStates]:
    """After a removed token the states of the forward network, before it the backward one's."""
    half = encoder.size // 2
    first = layer.weight[:, :half]
    second = layer.weight[:, half:]
    left = texts.hidden[..., :half]
    right = texts.hidden[..., half:]

    order = torch.arange(texts.mask.shape[1], device=texts.mask.device).expand_as(texts.mask)
    steps = Steps.of(texts, order, F.linear(right, second, layer.bias))
    yield from recurrent_changes(encoder.forwards, texts.words, steps, first, tolerance)

    order = reversed_positions(texts.mask)
    steps = Steps.of(texts, order, F.linear(left, first, layer.bias))
    yield from recurrent_changes(encoder.backwards, texts.words, steps, second, tolerance)


@dataclass(frozen=True)
class Steps:
    """Texts as one network reads them, step by step in its own order, padding last.

    A column is a text, the one that is read longest first, so that those still being read stay side
    by side.

    Attributes:
        word: the row of the distinct words that is read.
        position: its place in the text.
        number: of the text without this token, in the order of `content.nonzero()`; `NONE` for a
            token that is not removed.
        other_direction: what the layer after the encoder sees of the other network's states.
        going_on: for each step the number of texts that have content after it.
        starts: for each step whether one of those texts loses its token.
    """

    word: Int[Tensor, "steps columns"]
    position: Int[Tensor, "steps columns"]
    number: Int[Tensor, "steps columns"]
    other_direction: Float[Tensor, "steps columns out"]
    going_on: list[int]
    starts: list[bool]

    @classmethod
    def of(
        cls,
        texts: EncodedTexts,
        order: Int[Tensor, "batch tokens"],
        other_direction: Float[Tensor, "batch tokens out"],
    ) -> "Steps":
        """Lay out texts in the order of reading: `order` is the position that each step reads."""
        step = torch.arange(order.shape[1], device=order.device)
        last = torch.where(texts.content.gather(1, order), step, -1).amax(1)
        longest = last.argsort(descending=True, stable=True)
        position = order[longest].t().contiguous()

        number = (texts.content.flatten().cumsum(0) - 1).view_as(texts.content)
        number = number.masked_fill(~texts.content, NONE)[longest, position]
        going_on = last[longest] > step.unsqueeze(1)
        return cls(
            word=texts.which[longest, position],
            position=position,
            number=number,
            other_direction=other_direction[longest, position],
            going_on=going_on.sum(1).tolist(),
            starts=((number != NONE) & going_on).any(1).tolist(),
        )


class Gates:
    """One LSTM's arithmetic by sigmoids alone, without autograd.

    tanh(x) = 2σ(2x) − 1, and PyTorch computes sigmoids several times faster than tanh. Cells are
    kept as 2c, hidden states as h/2: powers of two change no digit and save two passes.

    Attributes:
        inputs: what each of the distinct words gives to the gates.
        recurrent: h/2 ↦ what a state gives to them.
    """

    def __init__(self, network: nn.LSTM, words: Float[Tensor, "distinct embed"]) -> None:
        weights = {name: weight.detach() for name, weight in network.named_parameters()}
        bias = weights["bias_ih_l0"] + weights["bias_hh_l0"]
        # rows i f g o; the factor 2 of g's argument goes into its weights
        factor = torch.ones_like(bias)
        factor[2 * network.hidden_size : 3 * network.hidden_size] = 2
        input_weight = weights["weight_ih_l0"] * factor.unsqueeze(1)
        recurrent_weight = weights["weight_hh_l0"] * 2 * factor.unsqueeze(1)
        self.inputs = product_with(input_weight.t())(words.detach()).add_(bias * factor)
        self.recurrent = product_with(recurrent_weight.t())

    def advance(
        self,
        state: Float[Tensor, "slots columns hidden"],
        cell: Float[Tensor, "slots columns hidden"],
        word: Int[Tensor, "columns"],
    ) -> None:
        """Read one more word in each column: h/2 and 2c are replaced in place."""
        slots, columns, size = state.shape
        gates = self.recurrent(state.flatten(0, 1)).view(slots, columns, 4 * size)
        gates.add_(self.inputs.index_select(0, word)).sigmoid_()
        let_in, keep, new, show = gates.chunk(4, -1)
        cell.mul_(keep).addcmul_(let_in, new, value=4).sub_(let_in, alpha=2)
        torch.sigmoid(cell, out=state).sub_(0.5).mul_(show)


class SideBySide:
    """States of texts, and of what remains of each without one token, as a network reads on.

    A grid with a column for each text: the unchanged text in slot 0, shortened ones in the others.
    One matrix product advances them all, and a column's input is added to the whole column. Where a
    text has no shortened one, a place stays empty.

    Attributes:
        slots: in use. Memory is there from the beginning for as many as will be started: to grow
            step by step would copy every state at every step.
    """

    def __init__(self, columns: int, starts: int, like: Float[Tensor, "distinct gates"]) -> None:
        self.slots = 1
        self._state = like.new_zeros(1 + starts, columns, like.shape[1] // 4)
        self._cell = torch.zeros_like(self._state)
        self._number = torch.full((1 + starts, columns), NONE, device=like.device)

    @property
    def state(self) -> Float[Tensor, "slots columns hidden"]:
        """h/2, see `Gates`."""
        return self._state[: self.slots]

    @property
    def cell(self) -> Float[Tensor, "slots columns hidden"]:
        """2c."""
        return self._cell[: self.slots]

    @property
    def number(self) -> Int[Tensor, "slots columns"]:
        """That of the shortened text in each place, or `NONE`."""
        return self._number[: self.slots]

    def narrow(self, columns: int) -> None:
        """Go on with the first columns alone."""
        self._state = self._state[:, :columns].contiguous()
        self._cell = self._cell[:, :columns].contiguous()
        self._number = self._number[:, :columns].contiguous()

    def start(
        self,
        state: Float[Tensor, "columns hidden"],
        cell: Float[Tensor, "columns hidden"],
        number: Int[Tensor, "columns"],
    ) -> None:
        """Add a slot of shortened texts, from the states before the removed token was read."""
        self._state[self.slots] = state
        self._cell[self.slots] = cell
        self._number[self.slots] = number
        self.slots += 1

    def rejoin(
        self, near: float, going_on: int
    ) -> tuple[Int[Tensor, "rejoined"], Float[Tensor, "rejoined"]]:
        """Drop the shortened texts whose state is `near` the unchanged one's.

        Args:
            near: the largest difference of a hidden state or cell.
            going_on: only in that many columns; the others have ended anyhow.

        Returns:
            Their numbers, and their differences.
        """
        state_difference = 2 * (self.state[1:] - self.state[0]).abs_().amax(-1)
        cell_difference = (self.cell[1:] - self.cell[0]).abs_().amax(-1) / 2
        difference = torch.maximum(state_difference, cell_difference)
        back = ~(difference > near) & (self.number[1:] != NONE)
        back[:, going_on:] = False

        rejoined = self.number[1:][back]
        if len(rejoined):
            self.number[1:][back] = NONE
            self._close_up()
        return rejoined, difference[back]

    def _close_up(self) -> None:
        """Move what is present in each column to its first slots, in the order it has."""
        empty = self.number == NONE
        empty[0] = False  # the unchanged texts
        slots = int((~empty).sum(0).amax())
        if slots == len(empty):
            return
        order = empty.byte().argsort(dim=0, stable=True)[:slots]
        column = torch.arange(order.shape[1], device=order.device)
        for values in (self._state, self._cell, self._number):
            values[:slots] = values[order, column]
        self.slots = slots


def recurrent_changes(
    network: nn.LSTM,
    words: Float[Tensor, "distinct embed"],
    steps: Steps,
    weight: Float[Tensor, "out half"],
    tolerance: float,
) -> Iterator[ChangedStates]:
    """Find an LSTM's states after each removed token.

    Removing the token at t leaves the states before t as they are: the shortened text starts at
    step t + 1 from the unchanged state before t. One ends after the last content step, or where it
    rejoins the unchanged text: hidden state and cell are both within `tolerance` of the unchanged
    text's. Most LSTMs forget, and a difference this small only shrinks. That is no law: a network
    can be built that makes it large again, hence the check in `removal`. Each text is looked at by
    itself, so that no other in the batch changes a number.

    Args:
        network: one direction.
        words: the distinct input vectors.
        steps: the texts in the order in which this network reads them.
        weight: how the layer after the encoder sees this network's states.
        tolerance: 0 never lets a text rejoin; in float32 it is at least 2e-6.
    """
    # below some units in the last place float32 states never meet again
    near = max(tolerance, 16 * torch.finfo(words.dtype).eps) if tolerance else 0.0
    gates = Gates(network, words)
    project = product_with((2 * weight).t())
    texts = SideBySide(steps.word.shape[1], sum(steps.starts), gates.inputs)

    for step, going_on in enumerate(steps.going_on):
        slots, columns = texts.number.shape
        state_before = texts.state[0].clone()
        cell_before = texts.cell[0].clone()
        gates.advance(texts.state, texts.cell, steps.word[step, :columns])

        if slots > 1:
            seen = project(texts.state[1:].flatten(0, 1)).view(slots - 1, columns, -1)
            seen = seen.add_(steps.other_direction[step, :columns]).flatten(0, 1)
            places = texts.number[1:].flatten()
            present = (places != NONE).nonzero().squeeze(-1)
            number = places.index_select(0, present)
            position = steps.position[step].index_select(0, present % columns)
            if len(present) < len(seen):
                seen = seen.index_select(0, present)
            rejoined = skipped = None
            if near and step >= FIRST_LOOK and step % CHECK_EVERY == 0:
                rejoined, skipped = texts.rejoin(near, going_on)
            yield ChangedStates(number, position, seen, rejoined, skipped)

        if not going_on:
            return
        texts.narrow(going_on)
        if steps.starts[step]:
            number = steps.number[step, :going_on]
            texts.start(state_before[:going_on], cell_before[:going_on], number)
