"""What a transformer's layers do to their vectors on one batch, as linear maps.

They are linear once three things count as constants: attention weights, the standard deviations
that normalisations divide by, and the ratios act(x) / x of activation functions.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


class Affine(NamedTuple):
    """z = W y + b."""

    weight: Float[Tensor, "out in"]
    bias: Float[Tensor, "out"]


class Norm(NamedTuple):
    """A layer normalisation of these vectors: z = scale · (y − mean y) / spread + shift."""

    scale: Float[Tensor, "hidden"]
    shift: Float[Tensor, "hidden"]
    spread: Float[Tensor, "batch parts"]


class Mixing(NamedTuple):
    """An attention, and what is added to it.

    result = after(state + output(heads side by side of Σ_j weights_ij · values_j)), where the state
    is added only if `adds_input`.

    Attributes:
        state: what goes into the layer.
        before: the normalisation before the values; None: there is none.
        value: values = value(before(state)); None: this map is not known.
        weights: the attention.
        values: what the attention weights are multiplied with.
        output: the map of the attended vectors, heads side by side.
        after: the normalisation of the sum; None: there is none.
        adds_input: the state is added to what is attended to.
        result: the state after the attention.
    """

    state: Float[Tensor, "batch parts hidden"]
    before: Norm | None
    value: Affine | None
    weights: Float[Tensor, "batch heads parts parts"]
    values: Float[Tensor, "batch heads parts size"]
    output: Affine
    after: Norm | None
    adds_input: bool
    result: Float[Tensor, "batch parts hidden"]


class Inner(NamedTuple):
    """A feed-forward network on a state y: after(y + second(act(first(before(y))))).

    `ratio` is act(x) / x of every x.
    """

    before: Norm | None
    first: Affine
    ratio: Float[Tensor, "batch parts inner"]
    second: Affine
    after: Norm | None


class Block(NamedTuple):
    """A layer.

    `inner` is None where there is no feed-forward network, or one that is not known
    (`Linearised.unknown`).
    """

    mixing: Mixing
    inner: Inner | None


Stage = Affine | Norm | Tensor
"""One step from the deciding state to the logits: an affine map, a normalisation, or the ratios
act(x) / x of an activation function."""


class Linearised(NamedTuple):
    """A network on one batch.

    Attributes:
        blocks: its layers, first layer first, all over the same parts.
        row: the deciding part of each text; see `Layers`.
        mask: the parts that are not padding.
        head: what leads from the deciding state to the logits.
        unknown: why `head`, an `inner` or a `value` may be missing; empty: none is.
    """

    blocks: Sequence[Block]
    row: Int[Tensor, "batch"] | None
    mask: Bool[Tensor, "batch parts"]
    head: Sequence[Stage]
    unknown: str


def affine_of(module: Any) -> Affine:
    """Read the weights of a linear module, or of GPT-2's `Conv1D`, in float64."""
    weight = module.weight.detach().double()
    if type(module).__name__ == "Conv1D":  # which stores [in, out]
        weight = weight.T
    if module.bias is None:
        return Affine(weight, weight.new_zeros(len(weight)))
    return Affine(weight, module.bias.detach().double())


def norm_of(module: Any, vectors: Float[Tensor, "*any hidden"]) -> Norm:
    """Read a layer normalisation, and the spread of the vectors that went into it, in float64."""
    scale = module.weight.detach().double()
    bias = getattr(module, "bias", None)
    shift = torch.zeros_like(scale) if bias is None else bias.detach().double()
    eps = float(getattr(module, "eps", getattr(module, "variance_epsilon", 0.0)) or 0.0)
    spread = (vectors.double().var(-1, correction=0) + eps).sqrt()
    return Norm(scale, shift, spread)


def ratio(
    inputs: Float[Tensor, "*any inner"],
    active: Float[Tensor, "*any inner"],
) -> Float[Tensor, "*any inner"]:
    """act(x) / x of an activation function, in float64; 0 where x is 0.

    Args:
        inputs: x.
        active: act(x).
    """
    x = inputs.double()
    return torch.where(x == 0, 0, active.double() / torch.where(x == 0, 1, x))


def pooling(
    states: Float[Tensor, "batch parts hidden"],
    attention: Float[Tensor, "batch parts"],
    result: Float[Tensor, "batch parts hidden"],
    *,
    adds_input: bool,
) -> Mixing:
    """An attention over the states themselves, the same in every row, as a layer of one head."""
    vectors = states.double()
    parts, size = vectors.shape[1:]
    identity = Affine(
        torch.eye(size, dtype=vectors.dtype, device=vectors.device), vectors.new_zeros(size)
    )
    return Mixing(
        state=vectors,
        before=None,
        value=identity,
        weights=attention.double()[:, None, None].expand(-1, 1, parts, -1),
        values=vectors.unsqueeze(1),
        output=identity,
        after=None,
        adds_input=adds_input,
        result=result.double(),
    )


def normalised_parts(
    norm: Norm | None,
    parts: Float[Tensor, "*any hidden"],
    spread: Float[Tensor, "*rest"] | None,
) -> Float[Tensor, "*any hidden"]:
    """Normalise vectors that add up to a state.

    Args:
        norm: the normalisation; None: there is none.
        parts: the vectors.
        spread: the spread of the state that they add up to, required with a norm.

    Returns:
        Vectors that add up to the normalised state less the norm's shift.
    """
    if norm is None:
        return parts
    assert spread is not None
    return norm.scale * (parts - parts.mean(-1, keepdim=True)) / spread.unsqueeze(-1)
