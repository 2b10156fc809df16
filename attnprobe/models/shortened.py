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
"""Steps of a text between two looks at whether a state is back at the unchanged one: looking costs about as much as a
third of a step."""


class ChangedStates(NamedTuple):
    """States that are not those of the unchanged text, n of them.

    With the token at `removed[i]` taken out of `example[i]`, the token at `position[i]` (counted in the unchanged text)
    has the state `hidden[i]`. One item holds a pair (example, removed) at most once, and all changed positions of a
    pair together with the removed one are a single stretch of the text.
    """

    example: Int[Tensor, "changed"]
    removed: Int[Tensor, "changed"]
    position: Int[Tensor, "changed"]
    hidden: Float[Tensor, "changed hidden"]


class Gates:
    """One LSTM's arithmetic, with tanh(x) = 2σ(2x) − 1: a single sigmoid for all four gates, which PyTorch computes
    several times faster than tanh."""

    def __init__(self, rnn: nn.LSTM) -> None:
        size = rnn.hidden_size
        of_inputs, of_states, bias, other_bias = (
            getattr(rnn, name).detach() for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        )
        # rows i f g o; the factor 2 of g's argument goes into its weights (and changes no digit)
        factor = torch.ones_like(bias)
        factor[2 * size : 3 * size] = 2
        self.size = size
        self.inputs = of_inputs * factor.unsqueeze(1)
        self.bias = (bias + other_bias) * factor
        self.recurrent = (of_states * factor.unsqueeze(1)).t().contiguous()

    def project(self, embeddings: Float[Tensor, "batch steps embed"]) -> Float[Tensor, "batch steps gates"]:
        """What every input adds to the gates, whatever was read before it."""
        return F.linear(embeddings, self.inputs, self.bias)

    def advance(
        self,
        projected: Float[Tensor, "rows gates"],
        hidden: Float[Tensor, "rows hidden"],
        cell: Float[Tensor, "rows hidden"],
    ) -> tuple[Float[Tensor, "rows hidden"], Float[Tensor, "rows hidden"]]:
        """Hidden state and cell after one more input; `projected` is used up."""
        let_in, keep, new, show = projected.addmm_(hidden, self.recurrent).sigmoid_().chunk(4, -1)
        cell = (keep * cell).addcmul_(let_in, new, value=2).sub_(let_in)
        return (cell * 2).sigmoid_().mul_(2).sub_(1).mul_(show), cell


def recurrent_changes(
    rnn: nn.LSTM,
    embeddings: Float[Tensor, "batch steps embed"],
    content: Bool[Tensor, "batch steps"],
    tolerance: float,
) -> Iterator[tuple[Tensor, Tensor, int, Tensor]]:
    """An LSTM's states after each removed token, all shortened texts of all examples advanced together.

    The shortened text without step t starts at step t from the shared state before it, and ends where its hidden state
    and cell are both within `tolerance` of the unchanged text's (an LSTM forgets), or after the last content step. Each
    shortened text ends by itself, looked at on every fourth step of its own text, so that no other text in the batch
    changes a number.

    Args:
        embeddings: inputs in the network's reading order, padding last.
        content: steps that are removed in turn, in the same order.
        tolerance: largest difference of any entry of hidden state or cell that counts as the same.

    Yields:
        per step, `(example [n], removed [n], step, hidden [n, hidden])`.
    """
    # below some units in the last place float32 states never meet again
    nearest = max(tolerance, 16 * torch.finfo(embeddings.dtype).eps) if tolerance else 0.0
    gates = Gates(rnn)
    projected = gates.project(embeddings)
    batch, steps = content.shape
    count = torch.arange(steps, device=content.device)
    last = torch.where(content, count, -1).amax(1)
    base = torch.arange(batch, device=content.device)
    # the first rows are the unchanged texts, behind them come the shortened ones
    example, removed = base, torch.full_like(base, -1)
    hidden = cell = projected.new_zeros(batch, gates.size)
    before = unchanged = hidden, cell
    for step in range(int(last.max()) + 1):
        if step:
            joining = (content[:, step - 1] & (last >= step)).nonzero().squeeze(-1)
            example = torch.cat([example, joining])
            removed = torch.cat([removed, torch.full_like(joining, step - 1)])
            hidden, cell = torch.cat([hidden, before[0][joining]]), torch.cat([cell, before[1][joining]])
            before = unchanged
        hidden, cell = gates.advance(projected[:, step][example], hidden, cell)
        unchanged = hidden[:batch], cell[:batch]
        yield example[batch:], removed[batch:], step, hidden[batch:]

        alive = last[example] > step
        if step % CHECK_EVERY == 0:
            for now, shared in zip((hidden, cell), unchanged, strict=True):
                alive &= (now - shared[example]).abs().amax(1) > nearest
        alive[:batch] = True
        chosen = alive.nonzero().squeeze(-1)
        if len(chosen) < len(alive):
            example, removed, hidden, cell = (x.index_select(0, chosen) for x in (example, removed, hidden, cell))


def convolution_changes(
    convolutions: Sequence[nn.Conv1d],
    embeddings: Float[Tensor, "batch tokens embed"],
    content: Bool[Tensor, "batch tokens"],
) -> Iterator[ChangedStates]:
    """States (after the ReLU) of the content tokens around each removed one, whose neighbours move up.

    What a token adds to a filter at each place of its window is computed once for all shortened texts.

    Args:
        convolutions: of odd widths, stride 1, padded to keep the length, side by side in the hidden state.
        embeddings: zero on padding.
        content: positions that are removed in turn.
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
        owner, gap = example[there], removed[there]
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
        yield ChangedStates(owner, gap, position, torch.cat(states, -1).relu())
