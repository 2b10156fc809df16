"""Leave-one-out's short cut for the LSTM.

Removing the token at t leaves each network's states before t (in its reading direction) as they are, and the projections
of all inputs are the same in every shortened text. All shortened texts of all examples are advanced together.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnprobe.importance.leave_one_out.changed import ChangedStates, EncodedTexts, Projection, changed_states
from attnprobe.importance.leave_one_out.product import Product
from attnprobe.models.encoders import LSTMEncoder, reversed_positions

CHECK_EVERY = 4
"""Steps of a text between two looks at which shortened texts are back at the unchanged one: looking costs about as much
as a third of a step."""
FIRST_LOOK = 16
"""Steps of a text before the first such check: hardly any text is back sooner."""


@changed_states.register
def _lstm_changes(encoder: LSTMEncoder, texts: EncodedTexts, projection: Projection) -> Iterator[ChangedStates]:
    """After a removed token the states of the forward network, before it those of the backward one."""
    half, content = encoder.size // 2, texts.content
    number = (content.flatten().cumsum(0) - 1).view_as(content)
    position = torch.arange(content.shape[1], device=content.device).expand_as(content)
    starts = content.shape[1] * torch.arange(len(content), device=content.device).unsqueeze(1)
    first, second = projection.layer.weight[:, :half], projection.layer.weight[:, half:]
    left, right = texts.hidden[..., :half], texts.hidden[..., half:]
    for rnn, order, own, weight, other_direction in (
        (encoder.forwards, position, left, first, F.linear(right, second, projection.layer.bias)),
        (
            encoder.backwards,
            reversed_positions(texts.mask),
            right,
            second,
            F.linear(left, first, projection.layer.bias),
        ),
    ):
        # step by step in this network's reading order, the examples of a step side by side
        rows = (order + starts).t().flatten()

        def ordered(values: Tensor, rows: Tensor = rows) -> Tensor:
            return values.flatten(0, 1).index_select(0, rows).unflatten(0, (-1, len(content)))

        places = ordered(position)
        texts_read = RecurrentPass(
            which=ordered(texts.which),
            hidden=ordered(own),
            content=ordered(content),
            number=ordered(number),
            other_direction=ordered(other_direction),
        )
        for step, text, example, seen, rejoined, skipped in recurrent_changes(
            rnn, texts.words, texts_read, weight, projection.tolerance
        ):
            yield ChangedStates(text, places[step].index_select(0, example), seen, rejoined, skipped)


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
        self, gates: Float[Tensor, "rows gates"], cell: Float[Tensor, "rows hidden"]
    ) -> tuple[Float[Tensor, "rows hidden"], Float[Tensor, "rows hidden"]]:
        """h/2 and 2c after one more input, from 2c before it; `gates` become their sigmoid."""
        let_in, keep, new, show = gates.sigmoid_().chunk(4, -1)
        cell = (keep * cell).addcmul_(let_in, new, value=4).sub_(let_in, alpha=2)
        return cell.sigmoid().sub_(0.5).mul_(show), cell


@dataclass(frozen=True)
class RecurrentPass:
    """Texts as one recurrent network reads them: step by step in its own order, padding last.

    Attributes:
        which: of the distinct inputs is read.
        hidden: state of the unchanged text.
        content: steps that are removed in turn.
        number: of the shortened text without this step.
        other_direction: what the layer after the encoder sees of the other network's states.
    """

    which: Int[Tensor, "steps batch"]
    hidden: Float[Tensor, "steps batch half"]
    content: Bool[Tensor, "steps batch"]
    number: Int[Tensor, "steps batch"]
    other_direction: Float[Tensor, "steps batch out"]


class StepChanges(NamedTuple):
    """What one step of `recurrent_changes` finds: see `ChangedStates`."""

    step: int
    text: Int[Tensor, "changed"]
    example: Int[Tensor, "changed"]
    seen: Float[Tensor, "changed out"]
    rejoined: Int[Tensor, "rejoined"] | None
    skipped: Float[Tensor, "rejoined"] | None


def recurrent_changes(
    rnn: nn.LSTM,
    words: Float[Tensor, "distinct embed"],
    texts: RecurrentPass,
    weight: Float[Tensor, "out half"],
    tolerance: float,
) -> Iterator[StepChanges]:
    """An LSTM's states after each removed token.

    The shortened text without step t starts at step t + 1 from the shared state before t. It ends after the last content
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
    gates, content, halves = Gates(rnn), texts.content, texts.hidden / 2
    inputs = gates.inputs.of(words).add_(gates.bias)
    carried, cells = _unchanged(gates, inputs, texts, halves)
    seeing = Product((2 * weight).t())
    steps = torch.arange(len(content), device=content.device).unsqueeze(1)
    last = torch.where(content, steps, -1).amax(0)
    ends = set(last.tolist())
    removed, starting = (content & (steps < last)).nonzero(as_tuple=True)
    starts = starting.split(torch.bincount(removed, minlength=len(content)).tolist())
    # the shortened texts that are being read, and their states as `Gates` keeps them
    example = text = starting[:0]
    state = cell = inputs.new_zeros(0, rnn.hidden_size)
    for step in range(1, max(ends) + 1):
        joining, going = starts[step - 1], len(text)
        if len(joining):
            example = torch.cat([example, joining])
            text = torch.cat([text, texts.number[step - 1].index_select(0, joining)])
            cell = torch.cat([cell, cells[step].index_select(0, joining)])
        new = inputs.index_select(0, texts.which[step].index_select(0, example))
        gates.recurrent.add_to(new[:going], state)
        new[going:] += carried[step].index_select(0, joining)
        state, cell = gates.advance(new, cell)
        seen = seeing.of(state).add_(texts.other_direction[step].index_select(0, example))

        rejoined = skipped = going_on = None
        if step in ends:
            going_on = last.index_select(0, example) > step
        if near and step >= FIRST_LOOK and step % CHECK_EVERY == 0:
            apart = _apart(state, halves[step].index_select(0, example), cell, cells[step + 2].index_select(0, example))
            away = apart > near
            back = (~away if going_on is None else ~away & going_on).nonzero().squeeze(-1)
            rejoined, skipped = text.index_select(0, back), apart.index_select(0, back)
            going_on = away if going_on is None else away & going_on
        yield StepChanges(step, text, example, seen, rejoined, skipped)
        if going_on is not None and not going_on.all():
            chosen = going_on.nonzero().squeeze(-1)
            example, text, state, cell = (column.index_select(0, chosen) for column in (example, text, state, cell))


def _apart(
    state: Float[Tensor, "changed half"],
    unchanged_state: Float[Tensor, "changed half"],
    cell: Float[Tensor, "changed half"],
    unchanged_cell: Float[Tensor, "changed half"],
) -> Float[Tensor, " changed"]:
    """How far each shortened text is from the unchanged one, by its hidden state or its cell; `Gates` keeps half of the one
    and twice the other."""
    return torch.maximum((state - unchanged_state).abs().amax(1) * 2, (cell - unchanged_cell).abs().amax(1) / 2)


def _unchanged(
    gates: Gates,
    inputs: Float[Tensor, "distinct gates"],
    texts: RecurrentPass,
    halves: Float[Tensor, "steps batch half"],
) -> tuple[Float[Tensor, "steps_and_2 batch gates"], list[Float[Tensor, "batch half"]]]:
    """The unchanged texts: what the state before step t − 1 adds to the gates (`carried[t]`: with it step t starts in the
    text without step t − 1), and 2c before step t − 1 (`cells[t]`)."""
    steps, batch = texts.which.shape
    carried = F.pad(gates.recurrent.of(halves.flatten(0, 1)).unflatten(0, (steps, batch)), (0, 0, 0, 0, 2, 0))
    cells = [inputs.new_zeros(batch, halves.shape[-1])] * 2
    for step in range(steps):
        opened = inputs.index_select(0, texts.which[step]).add_(carried[step + 1])
        cells.append(gates.advance(opened, cells[-1])[1])
    return carried, cells
