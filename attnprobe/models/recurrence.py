"""An LSTM of both directions, differentiated by a factor of each input alone.

Gradient × input of a token is the derivative of the prediction by a factor that its vector is multiplied by. The factor
may as well multiply what the vector adds to the gates: then no gradient of a vector is computed, which is most of the
work of PyTorch's own backward pass.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def scaled_bidirectional(
    forwards: nn.LSTM,
    backwards: nn.LSTM,
    words: Float[Tensor, "distinct embed"],
    which: Int[Tensor, "batch tokens"],
    scale: Float[Tensor, "batch tokens"],
    order: Int[Tensor, "batch tokens"],
) -> Float[Tensor, "batch tokens hidden"]:
    """States of both directions, those of `bidirectional`, as a function of the factors; padding is not made zero.

    Args:
        words: the distinct inputs.
        which: of them is read at each token.
        scale: factor of each token's input. Nothing else is differentiated, parameters included.
        order: in which the second network reads (`reversed_positions`).
    """
    networks = [
        [getattr(rnn, f"{name}_l0").detach() for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]
        for rnn in (forwards, backwards)
    ]
    read = torch.stack([which, which.gather(1, order) + len(words)])
    states = _Recurrence.apply(
        torch.stack([scale, scale.gather(1, order)]).permute(2, 0, 1),
        read.permute(2, 0, 1),
        torch.cat([words @ of_inputs.t() for of_inputs, *_ in networks]),
        torch.stack([bias + other for *_, bias, other in networks]).unsqueeze(1),
        torch.stack([of_states for _, of_states, *_ in networks]),
    )
    left, right = states.permute(1, 2, 0, 3).unbind()
    return torch.cat([left, right.gather(1, order.unsqueeze(-1).expand_as(right))], -1)


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
