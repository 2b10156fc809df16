"""What a transformer's layers do to their vectors on one batch, as maps that are linear once
attention weights, the standard deviations that normalisations divide by and the ratios of
activation functions count as constants."""

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
    """A layer normalisation on these vectors: z = scale · (y − mean y) / spread + shift."""

    scale: Float[Tensor, "hidden"]
    shift: Float[Tensor, "hidden"]
    spread: Float[Tensor, "batch parts"]


class Mixing(NamedTuple):
    """An attention and what is added to it: result = after(state + output(heads side by side of Σ_j
    weights_ij · values_j)), the state being added where `adds_input`. values = value(before(state)), where
    `value` is known; a norm may be absent."""

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
    """A feed-forward network on a state y: after(y + second(act(first(before(y))))). `ratio` is
    act(x) / x of every x."""

    before: Norm | None
    first: Affine
    ratio: Float[Tensor, "batch parts inner"]
    second: Affine
    after: Norm | None


class Block(NamedTuple):
    """A layer; `inner` is None where there is no feed-forward network, or one of another kind
    (`Linearised.unknown`)."""

    mixing: Mixing
    inner: Inner | None


Stage = Affine | Norm | Tensor
"""Of a head, on the deciding state: an affine map, a normalisation, or the ratios act(x) / x of an
activation function."""


class Linearised(NamedTuple):
    """A network on one batch, first layer first, all over the same parts (`row`, `mask`: see
    `Layers`); `head` leads from the deciding state to the logits. `unknown` says why `head`, an
    `inner` or a `value` may be missing; empty: none is."""

    blocks: Sequence[Block]
    row: Int[Tensor, "batch"] | None
    mask: Bool[Tensor, "batch parts"]
    head: Sequence[Stage]
    unknown: str


def affine_of(module: Any) -> Affine:
    """A linear module in float64; the weight of a `Conv1D` is `[in, out]`."""
    weight = module.weight.detach().double()
    bias = module.bias
    weight = weight.T if type(module).__name__ == "Conv1D" else weight
    return Affine(weight, weight.new_zeros(len(weight)) if bias is None else bias.detach().double())


def norm_of(module: Any, given: Float[Tensor, "*any hidden"]) -> Norm:
    """A layer normalisation on what it was given, in float64."""
    scale = module.weight.detach().double()
    bias = getattr(module, "bias", None)
    eps = float(getattr(module, "eps", getattr(module, "variance_epsilon", 0.0)) or 0.0)
    spread = (given.double().var(-1, correction=0) + eps).sqrt()
    return Norm(scale, torch.zeros_like(scale) if bias is None else bias.detach().double(), spread)


def ratio(
    given: Float[Tensor, "*any inner"], active: Float[Tensor, "*any inner"]
) -> Float[Tensor, "*any inner"]:
    """act(x) / x of an activation function, in float64; 0 where x is."""
    numbers = given.double()
    return torch.where(numbers == 0, 0, active.double() / torch.where(numbers == 0, 1, numbers))


def normalised_parts(
    norm: Norm | None, parts: Float[Tensor, "*any hidden"], spread: Float[Tensor, "*rest"] | None
) -> Float[Tensor, "*any hidden"]:
    """What the normalisation makes of vectors that add up to a state of this spread, without the
    shift."""
    if norm is None:
        return parts
    assert spread is not None
    return norm.scale * (parts - parts.mean(-1, keepdim=True)) / spread.unsqueeze(-1)
