"""One step of an LSTM on many rows, without autograd."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnprobe.importance.leave_one_out.product import Product


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
