"""What the prediction loses with each window of words (Zeiler & Fergus 2014)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from captum.attr import Occlusion as CaptumOcclusion
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import UserError
from attnprobe.importance.attribution import Attribution
from attnprobe.importance.base import Subject


@dataclass(frozen=True)
class Occlusion(Attribution):
    """target(text) − target(text without the window), signed, mean over the windows that hold the word (captum).

    Attributes:
        window: words in a row that are replaced together; a shorter text is replaced as a whole.
    """

    name: ClassVar[str] = "occlusion"
    title: ClassVar[str] = "occlusion"
    colour: ClassVar[str] = "#6699CC"
    window: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window < 1:
            raise UserError(f"importance.{self.name}.window={self.window}: expected 1 or more words")

    def scores(self, subject: Subject) -> Float[Tensor, "batch seq"]:
        """Signed, 0 outside content."""
        content = subject.batch.content
        found = torch.zeros(content.shape, dtype=torch.float64, device=content.device)
        every = subject.cached(self.explained)
        for row, words in enumerate(content.sum(-1).tolist()):
            whole = torch.ones(1, words, device=content.device, dtype=torch.float64)
            found[row, content[row]] = (
                CaptumOcclusion(every.alone(row).keeping)
                .attribute(whole, (min(self.window, words),), baselines=0.0, perturbations_per_eval=words)[0]
                .to(found)
            )
        return found
