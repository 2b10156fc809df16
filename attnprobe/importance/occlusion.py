"""What the prediction loses with each window of words (Zeiler & Fergus 2014)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from captum.attr import Occlusion as CaptumOcclusion
from jaxtyping import Float
from torch import Tensor

from attnprobe.errors import UserError
from attnprobe.importance.attribution import Explained, TextByText


@dataclass(frozen=True)
class Occlusion(TextByText):
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

    def of_text(self, explained: Explained, words: int) -> Float[Tensor, "words"]:
        """The scores of the words of one text."""
        whole = torch.ones(1, words, device=explained.inputs.device, dtype=torch.float64)
        window = (min(self.window, words),)
        attribute = CaptumOcclusion(explained.keeping).attribute
        return attribute(whole, window, baselines=0.0, perturbations_per_eval=words)[0]
