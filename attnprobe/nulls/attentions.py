"""Attentions that carry no meaning, as peaked as the model's own."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.nulls.permutation import permute_attention

LEAST = 1e-12
"""A weight below this counts as this much where its logarithm is taken."""


class Drawn(NamedTuple):
    """Attentions, and each one's top position: a random one of several that are level."""

    attention: Float[Tensor, "samples batch seq"]
    top: Int[Tensor, "samples batch"]


def permuted(
    attention: Float[Tensor, "batch seq"],
    content: Bool[Tensor, "batch seq"],
    noise: Float[Tensor, "samples batch seq"],
    ties: Float[Tensor, "samples batch seq"],
) -> Drawn:
    """The text's own weights on other positions, all orders equally likely.

    Args:
        noise, ties: independent uniform numbers at the content positions.
    """
    weights = permute_attention(attention, content, noise)
    return Drawn(weights, top_of(weights, content, ties))


def random_like(
    attention: Float[Tensor, "batch seq"],
    content: Bool[Tensor, "batch seq"],
    noise: Float[Tensor, "samples batch seq"],
) -> Drawn:
    """The softmax of normal scores that spread as much as the logarithms of the text's own weights.

    Args:
        noise: independent standard normal numbers at the content positions.
    """
    weights = (spread_of(attention, content) * noise).masked_fill(~content, -torch.inf).softmax(-1)
    return Drawn(weights, top_of(weights, content, noise))


def spread_of(attention: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]) -> Float[Tensor, "batch 1"]:
    """Standard deviation over the content of the weights' logarithms."""
    count = content.sum(-1, keepdim=True).clamp(min=1)
    logarithm = torch.where(content, attention.clamp(min=LEAST).log(), 0)
    centred = torch.where(content, logarithm - logarithm.sum(-1, keepdim=True) / count, 0)
    return (centred.square().sum(-1, keepdim=True) / count).sqrt()


def even(content: Bool[Tensor, "batch seq"]) -> Float[Tensor, "batch seq"]:
    """The same weight for every content position."""
    return content.double() / content.sum(-1, keepdim=True).clamp(min=1)


def top_of(
    attention: Float[Tensor, "samples batch seq"],
    content: Bool[Tensor, "batch seq"],
    ties: Float[Tensor, "samples batch seq"],
) -> Int[Tensor, "samples batch"]:
    """The content position with the largest weight; of several, the one with the largest number of `ties`."""
    level = is_top(attention, content)
    return ties.masked_fill(~level, -torch.inf).argmax(-1)


def is_top(
    attention: Float[Tensor, "*samples batch seq"], content: Bool[Tensor, "batch seq"]
) -> Bool[Tensor, "*samples batch seq"]:
    """Content positions whose weight is level with the largest, to nine digits: weights are stored in float32."""
    inside = attention.masked_fill(~content, -1)
    return content & (inside >= inside.amax(-1, keepdim=True) * (1 - 1e-9))


def over_ties(values: Float[Tensor, "batch seq"], level: Bool[Tensor, "batch seq"]) -> Float[Tensor, "batch"]:
    """The mean of the values at the positions that are level."""
    return torch.where(level, values, 0).sum(-1) / level.sum(-1)
