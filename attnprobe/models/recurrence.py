"""An LSTM of both directions over texts that share words; its derivative by factors of the inputs.

What a word's vector x adds to the gates, the product W x, is computed once for each distinct word
and not at each of its places: with vectors that are longer than the states it is most of the work.

Gradient × input of a token is the derivative of the prediction by a factor s that multiplies the
token's vector. The factor may as well multiply the product, since W (s x) = s (W x), so that the
backward pass never returns to the vectors, which is most of the work of PyTorch's own.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def bidirectional_states(
    forwards: nn.LSTM,
    backwards: nn.LSTM,
    words: Float[Tensor, "distinct embed"],
    word_of_token: Int[Tensor, "batch tokens"],
    order: Int[Tensor, "batch tokens"],
    scale: Float[Tensor, "batch tokens"] | None = None,
) -> Float[Tensor, "batch tokens hidden"]:
    """Compute the states of both directions.

    Args:
        forwards: of one layer, as `backwards`.
        backwards: reads each text from its end.
        words: the distinct input vectors.
        word_of_token: the row of `words` that is read at each token.
        order: the position that each step of `backwards` reads (`reversed_positions`).
        scale: the factor of each token's vector, the only argument that is differentiated; None:
            without factors, and without gradients.

    Returns:
        The states, as `RecurrentEncoder` has them, but for padding, which is not made zero.
    """
    products = []
    biases = []
    recurrent_weights = []
    for network in (forwards, backwards):
        weights = {name: weight.detach() for name, weight in network.named_parameters()}
        products.append(words @ weights["weight_ih_l0"].t())
        biases.append(weights["bias_ih_l0"] + weights["bias_hh_l0"])
        recurrent_weights.append(weights["weight_hh_l0"])

    # the second network reads in its own order, from its own half of the products
    rows = torch.stack([word_of_token, word_of_token.gather(1, order) + len(words)])
    rows = rows.permute(2, 0, 1)
    bias = torch.stack(biases).unsqueeze(1)
    recurrent = torch.stack(recurrent_weights)
    if scale is None:
        states = _states_without_gradient(rows, torch.cat(products), bias, recurrent)
    else:
        scales = torch.stack([scale, scale.gather(1, order)]).permute(2, 0, 1)
        states = _ScaledLSTM.apply(scales, rows, torch.cat(products), bias, recurrent)
    forward_states, backward_states = states.permute(1, 2, 0, 3)
    place = order.unsqueeze(-1).expand_as(backward_states)
    return torch.cat([forward_states, backward_states.gather(1, place)], -1)


@torch.no_grad()
def _states_without_gradient(
    rows: Int[Tensor, "steps networks batch"],
    products: Float[Tensor, "rows four_hidden"],
    bias: Float[Tensor, "networks 1 four_hidden"],
    recurrent: Float[Tensor, "networks four_hidden hidden"],
) -> Float[Tensor, "steps networks batch hidden"]:
    """The hidden states of several networks side by side; see `_ScaledLSTM`."""
    hidden = products.new_empty(*rows.shape, recurrent.shape[-1])
    cell = torch.zeros_like(hidden[0])
    transposed = recurrent.transpose(1, 2).contiguous()
    for step in range(len(rows)):
        inputs = _at(products, rows[step]).add_(bias)
        state = hidden[step - 1] if step else None
        i, f, g, o = _gates(inputs, state, transposed).chunk(4, -1)
        cell = (f * cell).addcmul_(i, g)
        torch.mul(o, cell.tanh(), out=hidden[step])
    return hidden


class _ScaledLSTM(torch.autograd.Function):
    """Factors of the inputs → hidden states, of several networks side by side.

    By the equations of `torch.nn.LSTM`, its gates in PyTorch's order (input i, forget f, candidate
    g, output o): c = f c' + i g and h = o tanh(c), with c' the cell before. All that the backward
    pass needs of a step is computed with the step.
    """

    @staticmethod
    def forward(  # noqa: PLR0914 -- the names of the equations
        ctx: Any,
        scale: Float[Tensor, "steps networks batch"],
        rows: Int[Tensor, "steps networks batch"],
        products: Float[Tensor, "rows four_hidden"],
        bias: Float[Tensor, "networks 1 four_hidden"],
        recurrent: Float[Tensor, "networks four_hidden hidden"],
    ) -> Float[Tensor, "steps networks batch hidden"]:
        """Run all steps, and keep the slopes that `backward` needs."""
        hidden = products.new_empty(*rows.shape, recurrent.shape[-1])
        # ∂c/∂ the arguments of i, f and g, and ∂h/∂ that of o
        gate_slopes = products.new_empty(*rows.shape, products.shape[-1])
        forgets = torch.empty_like(hidden)  # ∂c/∂c'
        cell_slopes = torch.empty_like(hidden)  # ∂h/∂c
        cell = torch.zeros_like(hidden[0])
        transposed = recurrent.transpose(1, 2).contiguous()

        for step in range(len(rows)):
            inputs = _at(products, rows[step]).mul_(scale[step].unsqueeze(-1)).add_(bias)
            state = hidden[step - 1] if step else None
            i, f, g, o = _gates(inputs, state, transposed).chunk(4, -1)

            i_slope, f_slope, g_slope, o_slope = gate_slopes[step].chunk(4, -1)
            torch.addcmul(i, i, i, value=-1, out=i_slope).mul_(g)
            torch.addcmul(f, f, f, value=-1, out=f_slope).mul_(cell)
            torch.mul(g, g, out=g_slope).neg_().add_(1).mul_(i)
            forgets[step] = f

            cell = (f * cell).addcmul_(i, g)
            squashed = cell.tanh()
            torch.addcmul(o, o, o, value=-1, out=o_slope).mul_(squashed)
            torch.mul(o, squashed, out=hidden[step])
            torch.addcmul(o, hidden[step], squashed, value=-1, out=cell_slopes[step])

        ctx.save_for_backward(gate_slopes, forgets, cell_slopes, rows, products, recurrent)
        return hidden

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, hidden_gradients: Float[Tensor, "steps networks batch hidden"]
    ) -> tuple[Float[Tensor, "steps networks batch"], None, None, None, None]:
        """The gradient by the factors; None for everything else."""
        gate_slopes, forgets, cell_slopes, rows, products, recurrent = ctx.saved_tensors
        scale_gradients = gate_slopes.new_empty(rows.shape)
        gate_gradients = torch.empty_like(gate_slopes[0])
        by_gate = gate_gradients.chunk(4, -1)
        state_gradient = torch.zeros_like(forgets[0])
        cell_gradient = torch.zeros_like(forgets[0])

        for step in reversed(range(len(rows))):
            state_gradient = state_gradient + hidden_gradients[step]
            cell_gradient.addcmul_(state_gradient, cell_slopes[step])
            i_slope, f_slope, g_slope, o_slope = gate_slopes[step].chunk(4, -1)
            torch.mul(i_slope, cell_gradient, out=by_gate[0])
            torch.mul(f_slope, cell_gradient, out=by_gate[1])
            torch.mul(g_slope, cell_gradient, out=by_gate[2])
            torch.mul(o_slope, state_gradient, out=by_gate[3])
            # the factor multiplies the word's product W x
            scale_gradients[step] = _at(products, rows[step]).mul_(gate_gradients).sum(-1)
            cell_gradient *= forgets[step]
            state_gradient = torch.bmm(gate_gradients, recurrent)

        return scale_gradients, None, None, None, None


def _gates(
    inputs: Float[Tensor, "networks batch four_hidden"],
    state: Float[Tensor, "networks batch hidden"] | None,
    recurrent: Float[Tensor, "networks hidden four_hidden"],
) -> Float[Tensor, "networks batch four_hidden"]:
    """The gates of one step, in PyTorch's order, written over the inputs.

    Args:
        inputs: what the words and the biases add to the gates.
        state: the hidden state before; None: there is none yet.
        recurrent: the weights that it is multiplied by.
    """
    if state is not None:
        inputs.baddbmm_(state, recurrent)
    i, f, g, o = inputs.chunk(4, -1)
    for gate in (i, f, o):
        gate.sigmoid_()
    g.tanh_()
    return inputs


def _at(
    products: Float[Tensor, "rows four_hidden"], rows: Int[Tensor, "networks batch"]
) -> Float[Tensor, "networks batch four_hidden"]:
    """Look up the rows of one step; faster than `products[rows]`."""
    return products.index_select(0, rows.flatten()).view(*rows.shape, -1)
