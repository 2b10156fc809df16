"""What a test says of the same model under meaningless attention, and under the best one.

Without the first a number cannot be read; with both it becomes a skill from 0 (meaningless) to 1
(as good as possible).
"""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.core.batch import probabilities
from attnprobe.core.readout import Readout
from attnprobe.exact.checks import LEAST_MASS, Content, PerText, Weights

Samples = Float[Tensor, "samples batch seq"]
Items = Int[Tensor, "samples batch"]
LEAST = 1e-12
"""A weight below this counts as this much where its logarithm is taken."""
CHUNK = 4_000_000
"""Attention weights at a time."""


def permute_attention(attention: Weights, content: Content, noise: Samples) -> Samples:
    """The attention weights of each example in other orders over its content positions.

    Args:
        attention: weights; those outside content stay where they are.
        content: positions that take part.
        noise: distinct numbers at the content positions; their order is the permutation.
            Independent uniform noise gives every permutation the same probability.
    """
    # the content positions first, in the noise's order, and in reading order, for the weights to
    # move to
    shuffled = content_order(noise, content)
    reading = content_order(torch.zeros_like(noise[:1]), content).expand_as(shuffled)
    weights = attention.expand_as(noise)
    return weights.scatter(-1, reading, weights.gather(-1, shuffled))


def content_order(noise: Samples, content: Content) -> Int[Tensor, "samples batch seq"]:
    """Positions by ascending noise, those outside content last; equal noise in reading order.

    Sorts whole numbers that hold the noise in their high and the position in their low bits: numpy
    sorts these ten times faster than PyTorch finds a sorting order on a CPU, and this is nearly all
    the work of a permutation.

    Args:
        noise: numbers in [0, 1).
        content: positions that come first.
    """
    bits = max(1, (noise.shape[-1] - 1).bit_length())
    position = torch.arange(noise.shape[-1], device=noise.device)
    keys = (noise * 2**44).long().masked_fill_(~content, 2**44)
    keys.bitwise_left_shift_(bits).bitwise_or_(position)
    if keys.is_cuda:
        keys = keys.sort(-1).values
    else:
        keys.numpy().sort(axis=-1)
    return keys.bitwise_and_((1 << bits) - 1)


class NullAttentions(NamedTuple):
    """Attentions without meaning, as peaked as the model's own.

    Attributes:
        attention: the weights.
        top: the position of each one's largest weight; of level ones a random one.
    """

    attention: Samples
    top: Items


def permuted(attention: Weights, content: Content, noise: Samples, ties: Samples) -> NullAttentions:
    """The text's own weights on other positions, all orders equally likely.

    Args:
        attention: the model's own.
        content: positions that take part.
        noise: independent uniform numbers, which choose the order.
        ties: likewise, which choose the top position among level ones.
    """
    weights = permute_attention(attention, content, noise)
    return NullAttentions(weights, top_of(weights, content, ties))


def random_like(attention: Weights, content: Content, noise: Samples) -> NullAttentions:
    """The softmax of normal scores that spread as much as the logarithms of the text's own weights.

    Args:
        attention: the model's own, whose standard deviation is taken.
        content: positions that take part.
        noise: independent standard normal numbers.
    """
    count = content.sum(-1, keepdim=True).clamp(min=1)
    logarithm = torch.where(content, attention.clamp(min=LEAST).log(), 0)
    mean = logarithm.sum(-1, keepdim=True) / count
    centred = torch.where(content, logarithm - mean, 0)
    spread = (centred.square().sum(-1, keepdim=True) / count).sqrt()
    weights = (spread * noise).masked_fill(~content, -torch.inf).softmax(-1)
    return NullAttentions(weights, top_of(weights, content, noise))


def even(content: Content) -> Weights:
    """The same weight for every content position."""
    return content.double() / content.sum(-1, keepdim=True).clamp(min=1)


def top_of(attention: Samples, content: Content, ties: Samples) -> Items:
    """The content position with the largest weight; of level ones, the one with the largest tie."""
    level = is_top(attention, content)
    return ties.masked_fill(~level, -torch.inf).argmax(-1)


def is_top(
    attention: Float[Tensor, "*samples batch seq"], content: Content
) -> Bool[Tensor, "*samples batch seq"]:
    """Content positions whose weight is level with the largest, to nine digits.

    Weights are stored in float32.
    """
    inside = attention.masked_fill(~content, -1)
    return content & (inside >= inside.amax(-1, keepdim=True) * (1 - 1e-9))


def over_ties(values: Weights, level: Content) -> PerText:
    """The mean of the values at the positions that are level."""
    return torch.where(level, values, 0).sum(-1) / level.sum(-1)


class Erased(NamedTuple):
    """What erasing one item does; NaN where less than 1e-12 of the attention remains.

    Attributes:
        drop: probability that the decision loses, −1 to 1.
        flip: 1 where the decision changes, else 0.
    """

    drop: Float[Tensor, "*samples batch"]
    flip: Float[Tensor, "*samples batch"]


def erased(readout: Readout, attention: Samples, item: Items) -> Erased:
    """Erase one item of each attention and renormalise the rest.

    The decision is that under this attention before anything is erased.
    """
    remaining = attention.scatter(-1, item.unsqueeze(-1), 0)
    mass = remaining.sum(-1, keepdim=True)
    renormalised = remaining / torch.where(mass > 0, mass, 1)
    before = readout.logits(attention)
    after = readout.logits(torch.where(mass > 0, renormalised, attention))

    decision = before.argmax(-1, keepdim=True)
    change = probabilities(before, readout.task) - probabilities(after, readout.task)
    drop = change.gather(-1, decision).squeeze(-1)
    lead = after.amax(-1) - after.gather(-1, decision).squeeze(-1)
    flip = lead > LEAST_MASS * after.abs().nan_to_num(posinf=0).amax(-1).clamp(min=1)

    is_defined = mass.squeeze(-1) >= LEAST_MASS
    return Erased(
        drop=torch.where(is_defined, drop, torch.nan),
        flip=torch.where(is_defined, flip.double(), torch.nan),
    )


def each_erased(
    readout: Readout, attention: Weights, top: Int[Tensor, "batch"] | None = None
) -> Erased:
    """Each position erased alone: `[batch, seq]`; NaN outside content.

    Args:
        readout: of a batch of texts.
        attention: the weights of which one is erased.
        top: the position of the largest weight, which is first put on each position in turn, in
            exchange for that position's own. The best of them is then the most that erasing the top
            item can do in this model with these weights, wherever the largest one lies.
    """
    positions = torch.arange(attention.shape[1], device=attention.device)
    drops = []
    flips = []
    for some_positions in positions.split(max(1, CHUNK // attention.numel())):
        weights = attention.expand(len(some_positions), -1, -1)
        item = some_positions.unsqueeze(-1).expand(-1, len(attention))
        if top is not None:
            weights = _exchanged(weights, item, top.expand(len(some_positions), -1))
        effect = erased(readout, weights, item)
        drops.append(effect.drop)
        flips.append(effect.flip)
    return Erased(
        drop=torch.where(readout.content, torch.cat(drops).T, torch.nan),
        flip=torch.where(readout.content, torch.cat(flips).T, torch.nan),
    )


def _exchanged(weights: Samples, first: Items, second: Items) -> Samples:
    """The same weights, those of two positions exchanged."""
    first_index = first.unsqueeze(-1)
    second_index = second.unsqueeze(-1)
    first_weight = weights.gather(-1, first_index)
    second_weight = weights.gather(-1, second_index)
    return weights.scatter(-1, second_index, first_weight).scatter(-1, first_index, second_weight)
