"""Does it matter which words get the weights? (Jain & Wallace 2019, section 4.2.1, algorithm 2)"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.probes.base import Measurement, ReadoutProbe, description
from attnprobe.randomness import Draws
from attnprobe.readout import Readout


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
    keys = ((noise * 2**44).long().masked_fill(~content, 2**44) << bits) | position
    ordered = keys.sort(-1).values if keys.is_cuda else torch.from_numpy(np.sort(keys.numpy(), axis=-1))
    return ordered & ((1 << bits) - 1)


@dataclass
class Permutation(ReadoutProbe):
    """Median over random permutations of the total variation distance (0 to 1) between the predictions.

    Yields per example `median_tvd` (low: the assignment of weights to words hardly matters), `max_attention`,
    `predicted_class` and `content_length`.
    """

    name: ClassVar[str] = "permutation"
    samples: int = 100

    @property
    def copies(self) -> int:
        """Of every sample: the noise, what it is sorted by, both orders, and the weights before and after."""
        return 6 * self.samples

    def measure(self, readout: Readout, draws: Draws) -> Iterator[Measurement]:
        """Yield the measurements of one batch."""
        noise = draws.uniform(self.samples, readout.content, readout.example_id)
        permuted = permute_attention(readout.attention, readout.content, noise)
        prediction = readout.prediction()
        distance = readout.distance(readout.predict(permuted), prediction)
        yield Measurement("median_tvd", distance.quantile(0.5, dim=0))
        yield from description(readout)
