"""A text's own weights in another order."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def permute_attention(
    attention: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"], noise: Float[Tensor, "samples batch seq"]
) -> Float[Tensor, "samples batch seq"]:
    """The attention weights of each example in other orders over its content positions.

    Args:
        attention: weights; those outside content stay where they are.
        content: positions that take part.
        noise: distinct numbers at the content positions; their order is the permutation. Independent uniform noise
            gives every permutation the same probability.
    """
    # The content positions come first, in the noise's order …
    shuffled = content_order(noise, content)
    # … and the same positions in reading order, for the weights to move to.
    reading = content_order(torch.zeros_like(noise[:1]), content).expand_as(shuffled)
    weights = attention.expand_as(noise)
    return weights.scatter(-1, reading, weights.gather(-1, shuffled))


def content_order(
    noise: Float[Tensor, "samples batch seq"], content: Bool[Tensor, "batch seq"]
) -> Int[Tensor, "samples batch seq"]:
    """Positions by ascending noise in [0, 1), those outside content last; equal noise in reading order.

    Sorts whole numbers that hold the noise in their high and the position in their low bits: numpy sorts these ten times
    faster than PyTorch finds a sorting order on a CPU, and this is nearly all the work of a permutation.
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
