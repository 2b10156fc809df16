"""Rare words are important: a floor that knows nothing of the model."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from attnprobe.data.counts import document_counts
from attnprobe.data.module import TextDataModule
from attnprobe.importance.training_words import TrainingWords


@dataclass(frozen=True)
class Idf(TrainingWords):
    """Inverse document frequency in the training texts, ln((1 + N) / (1 + n)) + 1, 1 or more; n of N texts have the word."""

    name: ClassVar[str] = "idf"
    title: ClassVar[str] = "rarity (idf)"
    colour: ClassVar[str] = "#AAAA00"
    shares: ClassVar[bool] = True

    def table(self, data: TextDataModule) -> Float[np.ndarray, "vocabulary columns"]:
        """One column."""
        train = data.splits["train"]
        counts = document_counts(train, len(data.vocabulary))
        return (np.log((1 + len(train)) / (1 + counts)) + 1)[:, None]
