"""Which words still say it when the others are gone? (sufficient input subsets, Carter et al. 2019)"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.importance.attribution import Explained, TextByText


@dataclass(frozen=True)
class SufficientSubset(TextByText):
    """Backward selection: at every step the word goes without which the target stays highest; the last one left is the most
    important. Scores are the step at which a word went over the number of words, above 0 to 1.

    The first words from the top that keep the target above a threshold are a sufficient input subset (algorithm 1 to 3).
    Takes n (n + 1) / 2 predictions of a text of n words.
    """

    name: ClassVar[str] = "sufficient_subset"
    title: ClassVar[str] = "backward selection (SIS)"
    colour: ClassVar[str] = "#225522"
    signed: ClassVar[bool] = False

    def of_text(self, explained: Explained, words: int) -> Float[Tensor, "words"]:
        """Above 0 to 1."""
        return backward_selection(explained, words)


def backward_selection(explained: Explained, words: int) -> Float[Tensor, "words"]:
    """The step, from 1, at which each word of one text goes, over their number; of equal words the first goes first."""
    kept = torch.ones(words, dtype=torch.float64, device=explained.inputs.device)
    went = torch.zeros_like(kept)
    for step in range(1, words + 1):
        left = kept.nonzero()[:, 0]
        without = kept.repeat(len(left), 1)
        without[torch.arange(len(left)), left] = 0
        gone = left[explained.keeping(without).argmax()]
        kept[gone], went[gone] = 0, step / words
    return went
