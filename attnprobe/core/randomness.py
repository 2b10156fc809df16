"""Random numbers that belong to an example: derived from (seed, probe, example id).

Neither the batch size nor the order of the examples, nor the device, changes a number.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partialmethod

import torch
from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True)
class Draws:
    """A source of random numbers for one probe, or one importance, of one run."""

    seed: int
    probe: str

    def generator(self, example_id: int) -> torch.Generator:
        """A CPU generator of this example alone."""
        digest = hashlib.sha256(f"{self.seed}/{self.probe}/{example_id}".encode()).digest()
        seed = int.from_bytes(digest[:8], "little", signed=False) >> 1
        return torch.Generator().manual_seed(seed)

    def _fill(
        self,
        draw: Callable[..., Tensor],
        samples: int,
        content: Bool[Tensor, "batch seq"],
        example_id: Tensor,
    ) -> Float[Tensor, "samples batch seq"]:
        mask = content.cpu()
        # drawn for the content positions only: padding must not use up random numbers
        numbers = [
            draw(samples, count, generator=self.generator(identity), dtype=torch.float64)
            for count, identity in zip(mask.sum(1).tolist(), example_id.tolist(), strict=True)
        ]
        # the content positions row by row, as the numbers come
        places = mask.flatten().nonzero().squeeze(-1)
        filled = torch.zeros(samples, *mask.shape, dtype=torch.float64)
        filled.view(samples, -1).index_copy_(1, places, torch.cat(numbers, 1))
        return filled.to(content.device)

    uniform = partialmethod(_fill, torch.rand)
    """(samples, content, example_id): U(0, 1) numbers at the content positions, 0 elsewhere;
    float64 on content's device."""
    normal = partialmethod(_fill, torch.randn)
    """The same of N(0, 1)."""
