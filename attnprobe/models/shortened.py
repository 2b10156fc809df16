"""Which hidden states change, and to what, when one token is taken out of a text: without re-encoding everything.

Removing the token at t leaves an LSTM's states before t as they are (in its reading direction), and the projections of
all inputs are the same in every shortened text. A convolution changes only where its window holds t. An encoder without
context changes nowhere.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

CHECK_EVERY = 4
"""Steps of a text between two looks at which shortened texts are back at the unchanged one: looking costs about as much
as a third of a step."""


class Affine(NamedTuple):
    """x → weight x + bias: all that the layers behind the encoder see of a hidden state. Where states change by halves,
    only the changed half has to be multiplied."""

    weight: Float[Tensor, "out hidden"]
    bias: Float[Tensor, "out"]


class ChangedStates(NamedTuple):
    """States that are not those of the unchanged text, n of them, as an affine layer sees them.

    The shortened texts are numbered in the order of `content.nonzero()`. In text `text[i]` the token at `position[i]`
    (counted in the unchanged text) has a state that the layer maps to `seen[i]`. One item holds a text at most once,
    and all changed content positions of a text together with the removed one are a single stretch.
    """

    text: Int[Tensor, "changed"]
    position: Int[Tensor, "changed"]
    seen: Float[Tensor, "changed out"]


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
        self.inputs = of_inputs * factor.unsqueeze(1)
        self.bias = (bias + other_bias) * factor
        self.recurrent = (of_states * 2 * factor.unsqueeze(1)).t().contiguous()

    def advance(
        self, gates: Float[Tensor, "rows gates"], cell: Float[Tensor, "rows hidden"]
    ) -> tuple[Float[Tensor, "rows hidden"], Float[Tensor, "rows hidden"]]:
        """h/2 and 2c after one more input, from 2c before it; `gates`, before their sigmoid, are used up."""
        let_in, keep, new, show = gates.sigmoid_().chunk(4, -1)
        cell = (keep * cell).addcmul_(let_in, new, value=4).sub_(let_in, alpha=2)
        return cell.sigmoid().sub_(0.5).mul_(show), cell


def recurrent_changes(
    rnn: nn.LSTM,
    words: Float[Tensor, "distinct embed"],
    which: Int[Tensor, "steps batch"],
    hidden: Float[Tensor, "steps batch half"],
    content: Bool[Tensor, "steps batch"],
    number: Int[Tensor, "steps batch"],
    others: Float[Tensor, "steps batch out"],
    weight: Float[Tensor, "out half"],
    tolerance: float,
) -> Iterator[tuple[Tensor, Tensor, int, Tensor]]:
    """An LSTM's states after each removed token, all shortened texts of all examples advanced together.

    The shortened text without step t starts at step t + 1 from the shared state before t, and ends where its hidden
    state and cell are both within `tolerance` of the unchanged text's (an LSTM forgets), or after the last content
    step. The former is looked at on every fourth step of each text by itself, so that no other text in the batch
    changes a number.

    Args:
        words: the distinct inputs.
        which: of them is read at each step, in the network's reading order, padding last.
        hidden: states of the unchanged texts, in the same order.
        content: steps that are removed in turn.
        number: the number of the shortened text without this step.
        others: what the layer behind sees of everything but this network's states.
        weight: how that layer sees these.
        tolerance: largest difference of any entry of hidden state or cell that counts as the same.

    Yields:
        per step, `(text [n], example [n], step, seen [n, out])`.
    """
    # below some units in the last place float32 states never meet again
    nearest = max(tolerance, 16 * torch.finfo(words.dtype).eps) if tolerance else 0.0
    gates = Gates(rnn)
    steps, batch = content.shape
    inputs = F.linear(words, gates.inputs, gates.bias)
    halves = hidden / 2
    # what the state after each step adds to the gates of the next, in the unchanged text and in the one without that
    carried = F.pad(halves @ gates.recurrent, (0, 0, 0, 0, 2, 0))
    cells = [inputs.new_zeros(batch, rnn.hidden_size)] * 2
    for step in range(steps):
        cells.append(gates.advance(inputs.index_select(0, which[step]).add_(carried[step + 1]), cells[-1])[1])

    seeing = (2 * weight).t().contiguous()
    count = torch.arange(steps, device=content.device).unsqueeze(1)
    last = torch.where(content, count, -1).amax(0)
    ends = set(last.tolist())
    removed, starting = (content & (count < last)).nonzero(as_tuple=True)
    starts = starting.split(torch.bincount(removed, minlength=steps).tolist())
    example = text = starting[:0]
    state = cell = inputs.new_zeros(0, rnn.hidden_size)
    for step in range(1, max(ends) + 1):
        joining, going = starts[step - 1], len(example)
        if len(joining):
            example = torch.cat([example, joining])
            text = torch.cat([text, number[step - 1].index_select(0, joining)])
            cell = torch.cat([cell, cells[step].index_select(0, joining)])
        new = inputs.index_select(0, which[step].index_select(0, example))
        new[:going].addmm_(state, gates.recurrent)
        new[going:] += carried[step].index_select(0, joining)
        state, cell = gates.advance(new, cell)
        yield text, example, step, others[step].index_select(0, example).addmm_(state, seeing)

        looking = tolerance > 0 and step % CHECK_EVERY == 0
        if looking or step in ends:
            alive = last.index_select(0, example) > step
            if looking:
                apart = (cells[step + 2].index_select(0, example).sub_(cell)).abs_().amax(1) > 2 * nearest
                apart |= (halves[step].index_select(0, example).sub_(state)).abs_().amax(1) > nearest / 2
                alive &= apart
            chosen = alive.nonzero().squeeze(-1)
            if len(chosen) < len(alive):
                example, text, state, cell = (x.index_select(0, chosen) for x in (example, text, state, cell))


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
