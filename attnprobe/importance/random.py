"""Random numbers: a floor."""

from dataclasses import dataclass
from typing import ClassVar

from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.base import Importance, Subject
from attnprobe.randomness import Draws


@dataclass(frozen=True)
class Random(Importance):
    """Uniform numbers that belong to (seed, example): what an order without meaning gets."""

    name: ClassVar[str] = "random"
    title: ClassVar[str] = "random"
    colour: ClassVar[str] = "#222222"
    shares: ClassVar[bool] = True
    drawn: ClassVar[bool] = True

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """U(0, 1)."""
        return Draws(subject.seed, self.name).uniform(1, subject.readout.content, subject.readout.example_id)[0]
