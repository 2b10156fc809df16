"""Leave-one-out's short cuts for the LSTM and the convolutions."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from attnprobe.importance.leave_one_out.changed_states import (
    Affine,
    ChangedStates,
    EncodedTexts,
    changed_states,
)
from attnprobe.models.encoders import CNNEncoder, LSTMEncoder, reversed_positions

FEWEST = 128
IMAGES = 16
"""Rows from which a convolution is faster than a matrix product (it lays out the matrix again every
time); PyTorch leaves convolutions of fewer images to MKL where there is one thread."""
CHECK_EVERY = 4
"""Steps of a text between two looks at which shortened texts are back at the unchanged one: looking
costs about as much as a third of a step."""
FIRST_LOOK = 16
"""Steps of a text before the first such check: hardly any text is back sooner."""


def product_with(matrix: Float[Tensor, "into out"]) -> Callable[[Tensor], Tensor]:
    """rows ↦ rows · matrix, for many products with the same matrix.

    A matrix product is also a convolution one token wide. For float32 on a CPU PyTorch computes
    matrix products by MKL and convolutions by oneDNN, and on an AMD processor with AVX-512 only
    oneDNN uses it: twice as fast, and equal up to rounding."""
    matrix = matrix.t().contiguous().t()
    filters = None  # column by column, as the product reads it fastest on a CPU
    if (
        matrix.device.type == "cpu"
        and matrix.dtype == torch.float32
        and torch.backends.mkldnn.is_available()
    ):
        filters = matrix.t()[:, :, None, None].contiguous(memory_format=torch.channels_last)

    def product(rows: Float[Tensor, "rows into"]) -> Float[Tensor, "rows out"]:
        count, width = rows.shape
        if filters is None or count < FEWEST:
            return rows @ matrix
        images = (
            F.pad(rows, (0, 0, 0, -count % IMAGES)).view(IMAGES, 1, -1, width).permute(0, 3, 1, 2)
        )
        return F.conv2d(images, filters).permute(0, 2, 3, 1).flatten(0, 2)[:count]

    return product


def gates_of(
    rnn: nn.LSTM, words: Float[Tensor, "distinct embed"]
) -> tuple[Float[Tensor, "distinct gates"], Callable[[Tensor], Tensor]]:
    """What each word and what a state gives to one LSTM's gates, with tanh(x) = 2σ(2x) − 1: PyTorch
    computes sigmoids several times faster than tanh. Cells are kept as 2c, hidden states as h/2
    (powers of two change no digit and save two passes)."""
    weights = (
        getattr(rnn, f"{name}_l0").detach()
        for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    )
    of_inputs, of_states, bias, other_bias = weights
    # rows i f g o; the factor 2 of g's argument goes into its weights
    factor = torch.ones_like(bias)
    factor[2 * rnn.hidden_size : 3 * rnn.hidden_size] = 2
    inputs = product_with((of_inputs * factor.unsqueeze(1)).t())(words.detach()).add_(
        (bias + other_bias) * factor
    )
    return inputs, product_with((of_states * 2 * factor.unsqueeze(1)).t())


@changed_states.register
def _lstm_changes(
    encoder: LSTMEncoder, texts: EncodedTexts, layer: Affine, tolerance: float
) -> Iterator[ChangedStates]:
    """After a removed token the states of the forward network, before it those of the backward
    one."""
    half = encoder.size // 2
    reading = torch.arange(texts.mask.shape[1], device=texts.mask.device).expand_as(texts.mask)
    first = layer.weight[:, :half]
    second = layer.weight[:, half:]
    left = texts.hidden[..., :half]
    right = texts.hidden[..., half:]
    other = F.linear(right, second, layer.bias)
    yield from recurrent_changes(encoder.forwards, texts, reading, first, other, tolerance)
    other = F.linear(left, first, layer.bias)
    yield from recurrent_changes(
        encoder.backwards, texts, reversed_positions(texts.mask), second, other, tolerance
    )


def recurrent_changes(
    rnn: nn.LSTM,
    texts: EncodedTexts,
    order: Int[Tensor, "batch tokens"],
    weight: Float[Tensor, "out half"],
    other_direction: Float[Tensor, "batch tokens out"],
    tolerance: float,
) -> Iterator[ChangedStates]:
    """An LSTM's states after each removed token.

    Removing the token at t leaves the states before t as they are: the shortened text starts at
    step t + 1 from the unchanged state before t, and all shortened texts of all examples are
    advanced together. One ends after the last content step, or where it rejoins the unchanged text:
    hidden state and cell are both within `tolerance` of the unchanged text's. Most LSTMs forget,
    and a difference this small only shrinks. That is no law: a network can be built that makes it
    large again, hence the check in `removal`. Each text is looked at by itself, so that no other in
    the batch changes a number.

    Args:
        order: the position that each step reads.
        weight: how the layer after the encoder sees this network's states.
        other_direction: what it sees of the other network's.
        tolerance: 0 never lets a text rejoin; in float32 it is at least 2e-6.
    """
    width = order.shape[1]
    steps = torch.arange(width, device=order.device)
    last = torch.where(texts.content.gather(1, order), steps, -1).amax(1)
    # first the text that is read longest, so that those still being read stay side by side
    longest = last.argsort(descending=True, stable=True)
    position = order[longest].t().contiguous()
    numbered = (texts.content.flatten().cumsum(0) - 1).view_as(texts.content)
    by_step = (
        of[longest, position] for of in (texts.which, other_direction, texts.content, numbered)
    )
    which, other_direction, starts, numbers = by_step
    # below some units in the last place float32 states never meet again
    near = max(tolerance, 16 * torch.finfo(texts.words.dtype).eps) if tolerance else 0.0
    (inputs, recurrent), seeing = gates_of(rnn, texts.words), product_with((2 * weight).t())
    # rows: the unchanged texts, then the shortened ones; of each its text, and which of the
    # shortened ones it is
    columns = len(last)
    text = torch.arange(columns, device=order.device)
    number = torch.full_like(last, -1)
    state = inputs.new_zeros(columns, rnn.hidden_size)
    cell = torch.zeros_like(state)
    for step, going_on in enumerate((last > steps.unsqueeze(1)).sum(1).tolist()):
        before = state[:columns].clone(), cell[:columns].clone()
        gates = (
            recurrent(state)
            .add_(inputs.index_select(0, which[step].index_select(0, text)))
            .sigmoid_()
        )
        let_in, keep, new, show = gates.chunk(4, -1)
        cell.mul_(keep).addcmul_(let_in, new, value=4).sub_(let_in, alpha=2)
        torch.sigmoid(cell, out=state).sub_(0.5).mul_(show)
        staying = text < going_on
        if len(text) > columns:
            shortened = text[columns:]
            seen = seeing(state[columns:]).add_(other_direction[step].index_select(0, shortened))
            rejoined = skipped = None
            if near and step >= FIRST_LOOK and step % CHECK_EVERY == 0:
                # `gates_of`: half of the one is kept, and twice the other
                parts = ((state, 2.0), (cell, 0.5))
                both = [(x - x.index_select(0, text)).abs().amax(-1) * scale for x, scale in parts]
                apart = torch.maximum(*both)
                back = ~(apart > near) & staying & (number >= 0)
                rejoined = number[back]
                skipped = apart[back]
                staying = staying & ~back
            yield ChangedStates(
                number[columns:], position[step].index_select(0, shortened), seen, rejoined, skipped
            )
        kept = staying.nonzero().squeeze(-1)
        start = starts[step, :going_on].nonzero().squeeze(-1)
        text = torch.cat([text[kept], start])
        number = torch.cat([number[kept], numbers[step][start]])
        state, cell = (
            torch.cat([x[kept], old[start]]) for x, old in zip((state, cell), before, strict=True)
        )
        columns = going_on


@changed_states.register
def _cnn_changes(
    encoder: CNNEncoder, texts: EncodedTexts, layer: Affine, tolerance: float
) -> Iterator[ChangedStates]:
    """States (after the ReLU) of the content tokens around each removed one, whose neighbours move
    up. What a token adds to a filter at each place of its window is computed once for all shortened
    texts."""
    convolutions = [module for module in encoder.convolutions if isinstance(module, nn.Conv1d)]
    reach = max(convolution.kernel_size[0] // 2 for convolution in convolutions)
    # zeros around the text, as the convolution's own padding, so that windows may reach over its
    # edge
    margin = reach + 1
    padded = F.pad(texts.words[texts.which] * texts.mask.unsqueeze(-1), (0, 0, margin, margin))
    parts = [
        torch.einsum("bse,fek->bskf", padded, convolution.weight.detach())
        for convolution in convolutions
    ]
    example, removed = texts.content.nonzero(as_tuple=True)
    around = F.pad(texts.content, (margin, margin))
    for distance in (*range(-reach, 0), *range(1, reach + 1)):
        text = around[example, removed + distance + margin].nonzero().squeeze(-1)
        owner = example[text]
        gap = removed[text]
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
