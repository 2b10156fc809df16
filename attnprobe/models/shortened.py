"""Which hidden states change, and to what, when one token is taken out of a text: without re-encoding everything.

Removing the token at t leaves an LSTM's states before t as they are (in its reading direction), and the projections of
all inputs are the same in every shortened text. A convolution changes only where its window holds t. An encoder without
context changes nowhere.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnprobe.models.product import Product, laid_out

CHECK_EVERY = 4
"""Steps of a text between two looks at which shortened texts are back at the unchanged one: looking costs about as much
as a third of a step."""
FIRST_LOOK = 16
"""Steps of a text before the first such look: hardly any text is back sooner."""
LINEAR = 0.1
"""Largest difference of two states that may be taken to act linearly on what follows, whatever the derivative."""


class Affine(NamedTuple):
    """x → weight x + bias: all that the layers behind the encoder see of a hidden state. Where states change by halves,
    only the changed half has to be multiplied."""

    weight: Float[Tensor, "out hidden"]
    bias: Float[Tensor, "out"]


@dataclass(frozen=True)
class Encoded:
    """Texts and the states that an encoder gave them.

    Attributes:
        words: the distinct inputs of all the texts.
        which: of them is read at each token.
        content: tokens that are removed in turn.
        hidden: the states of the unchanged texts.
    """

    words: Float[Tensor, "distinct embed"]
    which: Int[Tensor, "batch tokens"]
    mask: Bool[Tensor, "batch tokens"]
    content: Bool[Tensor, "batch tokens"]
    hidden: Float[Tensor, "batch tokens hidden"]


@dataclass(frozen=True)
class View:
    """What is made of the states, and how exactly it has to be known.

    Attributes:
        layer: how changed states are seen.
        tolerance: a state this close to the unchanged one may be taken for it; 0 approximates nothing.
        slopes: the derivatives of some sums over a text's tokens by what is seen of each token, in the unchanged text;
            None: what is made of the states is no such sums, or not known.
        spare: per removed token, the share of `tolerance` that the sums may be wrong by.
    """

    layer: Affine
    tolerance: float
    slopes: Float[Tensor, "batch tokens sums out"] | None = None
    spare: Float[Tensor, "batch tokens"] | None = None


class ChangedStates(NamedTuple):
    """States that are not those of the unchanged text, n of them, as an affine layer sees them.

    The shortened texts are numbered in the order of `content.nonzero()`. In text `text[i]` the token at `position[i]`
    (counted in the unchanged text) has a state that the layer maps to `seen[i]`. One item holds a text at most once,
    and all changed content positions of a text together with the removed one are a single stretch. The states beyond
    are the unchanged text's, but for differences which add `effect[i]` to the sums of text `settled[i]` (see `View`).
    """

    text: Int[Tensor, "changed"]
    position: Int[Tensor, "changed"]
    seen: Float[Tensor, "changed out"]
    settled: Int[Tensor, "settled"] | None = None
    effect: Float[Tensor, "settled sums"] | None = None


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
        recurrent = (of_states * 2 * factor.unsqueeze(1)).t()
        self.recurrent, self.back = Product(recurrent), laid_out(recurrent.t())

    def advance(
        self, gates: Float[Tensor, "rows gates"], cell: Float[Tensor, "rows hidden"]
    ) -> tuple[Float[Tensor, "rows hidden"], Float[Tensor, "rows hidden"]]:
        """h/2 and 2c after one more input, from 2c before it; `gates` become their sigmoid."""
        let_in, keep, new, show = gates.sigmoid_().chunk(4, -1)
        cell = (keep * cell).addcmul_(let_in, new, value=4).sub_(let_in, alpha=2)
        return cell.sigmoid().sub_(0.5).mul_(show), cell

    def retreat(
        self,
        gates: Float[Tensor, "batch gates"],
        before: Float[Tensor, "batch hidden"],
        after: Float[Tensor, "batch hidden"],
        of_state: Float[Tensor, "batch sums hidden"],
        of_cell: Float[Tensor, "batch sums hidden"],
    ) -> tuple[Float[Tensor, "batch sums hidden"], Float[Tensor, "batch sums hidden"]]:
        """The derivatives of some sums by h/2 and 2c before a step, from those by h/2 and 2c after it.

        Args:
            gates: of that step, behind their sigmoid.
            before: 2c before the step.
            after: and after it.
        """
        let_in, keep, new, show = gates.unsqueeze(1).chunk(4, -1)
        bent = after.unsqueeze(1).sigmoid()
        of_cell = of_cell + of_state * (show * bent * (1 - bent))
        parts = [
            of_cell * ((4 * new - 2) * let_in * (1 - let_in)),
            of_cell * (before.unsqueeze(1) * keep * (1 - keep)),
            of_cell * (4 * let_in * new * (1 - new)),
            of_state * ((bent - 0.5) * show * (1 - show)),
        ]
        return (torch.cat(parts, -1).flatten(0, 1) @ self.back).unflatten(0, of_cell.shape[:2]), of_cell * keep


@dataclass(frozen=True)
class Reading:
    """Texts as one recurrent network reads them: step by step in its own order, padding last.

    Attributes:
        which: of the distinct inputs is read.
        hidden: state of the unchanged text.
        content: steps that are removed in turn.
        number: of the shortened text without this step.
        others: what the layer behind sees of everything but this network's states.
        slopes: of the sums by this network's state, see `View`.
        spare: see `View`.
    """

    which: Int[Tensor, "steps batch"]
    hidden: Float[Tensor, "steps batch half"]
    content: Bool[Tensor, "steps batch"]
    number: Int[Tensor, "steps batch"]
    others: Float[Tensor, "steps batch out"]
    slopes: Float[Tensor, "steps batch sums half"] | None = None
    spare: Float[Tensor, "steps batch"] | None = None


class Changes(NamedTuple):
    """What one step of `recurrent_changes` finds: see `ChangedStates`."""

    step: int
    text: Int[Tensor, "changed"]
    example: Int[Tensor, "changed"]
    seen: Float[Tensor, "changed out"]
    settled: Int[Tensor, "settled"] | None
    effect: Float[Tensor, "settled sums"] | None


def recurrent_changes(
    rnn: nn.LSTM,
    words: Float[Tensor, "distinct embed"],
    reading: Reading,
    weight: Float[Tensor, "out half"],
    tolerance: float,
) -> Iterator[Changes]:
    """An LSTM's states after each removed token, all shortened texts of all examples advanced together.

    The shortened text without step t starts at step t + 1 from the shared state before t, and ends where it may rejoin
    the unchanged text (an LSTM forgets), or after the last content step. Whether it may is looked at on every fourth
    step from the 16th, of each text by itself, so that no other text in the batch changes a number. It may

    - where hidden state and cell are both within `tolerance` of the unchanged text's;
    - with `slopes` also where what they still differ by, δ, acts on the sums linearly: Σ |derivative · δ| · max |δ|, the
      size of what the derivative leaves out, is within `tolerance` times `spare`.

    Args:
        words: the distinct inputs.
        weight: how the layer behind sees this network's states.
        tolerance: 0 never lets a text rejoin.
    """
    # below some units in the last place float32 states never meet again
    nearest = max(tolerance, 16 * torch.finfo(words.dtype).eps) if tolerance else 0.0
    gates = Gates(rnn)
    content, halves = reading.content, reading.hidden / 2
    steps, batch = content.shape
    inputs = gates.inputs.of(words).add_(gates.bias)
    # what the state after each step adds to the gates of the next, in the unchanged text and in the one without that
    carried = F.pad(gates.recurrent.of(halves.flatten(0, 1)).unflatten(0, (steps, batch)), (0, 0, 0, 0, 2, 0))
    cells, opened = [inputs.new_zeros(batch, rnn.hidden_size)] * 2, []
    for step in range(steps):
        opened.append(inputs.index_select(0, reading.which[step]).add_(carried[step + 1]))
        cells.append(gates.advance(opened[-1], cells[-1])[1])
    spare = reading.spare
    rest: list[Tensor] = []
    if reading.slopes is not None and spare is not None and tolerance > 0:
        rest = _derivatives(gates, opened, cells, reading.slopes)

    seeing = Product((2 * weight).t())
    count = torch.arange(steps, device=content.device).unsqueeze(1)
    last = torch.where(content, count, -1).amax(0)
    ends = set(last.tolist())
    removed, starting = (content & (count < last)).nonzero(as_tuple=True)
    starts = starting.split(torch.bincount(removed, minlength=steps).tolist())
    example = text = starting[:0]
    state = cell = inputs.new_zeros(0, rnn.hidden_size)
    allowed = inputs.new_zeros(0)
    for step in range(1, max(ends) + 1):
        joining, going = starts[step - 1], len(example)
        if len(joining):
            example = torch.cat([example, joining])
            text = torch.cat([text, reading.number[step - 1].index_select(0, joining)])
            cell = torch.cat([cell, cells[step].index_select(0, joining)])
            if spare is not None:
                allowed = torch.cat([allowed, nearest * spare[step - 1].index_select(0, joining)])
        new = inputs.index_select(0, reading.which[step].index_select(0, example))
        gates.recurrent.add_to(new[:going], state)
        new[going:] += carried[step].index_select(0, joining)
        state, cell = gates.advance(new, cell)
        seen = seeing.of(state).add_(reading.others[step].index_select(0, example))

        settled = effect = None
        looking = tolerance > 0 and step >= FIRST_LOOK and step % CHECK_EVERY == 0
        alive = None
        if looking:
            of_state = state - halves[step].index_select(0, example)
            of_cell = cell - cells[step + 2].index_select(0, example)
            apart = torch.maximum(of_cell.abs().amax(1) / 2, of_state.abs().amax(1) * 2)
            alive = apart > nearest
            if rest:
                near = (apart < LINEAR).nonzero().squeeze(-1)
                owner = example.index_select(0, near)
                both = torch.cat([of_state.index_select(0, near), of_cell.index_select(0, near)], 1)
                parts = rest[step].index_select(0, owner) * both.unsqueeze(1)
                # what the derivative leaves out
                left_out = parts.abs().sum(-1).amax(-1) * apart.index_select(0, near)
                good = left_out <= allowed.index_select(0, near)
                done = near[good]
                alive[done] = False
                settled, effect = text.index_select(0, done), parts[good].sum(-1)
        yield Changes(step, text, example, seen, settled, effect)

        if step in ends:
            going_on = last.index_select(0, example) > step
            alive = going_on if alive is None else alive & going_on
        if alive is not None:
            chosen = alive.nonzero().squeeze(-1)
            if len(chosen) < len(alive):
                example, text, state, cell = (x.index_select(0, chosen) for x in (example, text, state, cell))
                allowed = allowed if spare is None else allowed.index_select(0, chosen)


def _derivatives(
    gates: Gates, opened: list[Tensor], cells: list[Tensor], slopes: Float[Tensor, "steps batch sums half"]
) -> list[Float[Tensor, "batch sums both"]]:
    """Per step, the derivatives of the sums over all later steps by h/2 and 2c after it."""
    of_state = of_cell = torch.zeros_like(slopes[0])
    rest = []
    for step in range(len(slopes) - 1, -1, -1):
        rest.append(torch.cat([of_state, of_cell], -1))
        of_state, of_cell = gates.retreat(
            opened[step], cells[step + 1], cells[step + 2], of_state + 2 * slopes[step], of_cell
        )
    return rest[::-1]


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
