"""Words that go with the class in the training texts: what a bag of words would know."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from attnprobe.data.counts import log_odds_ratios
from attnprobe.data.module import TextDataModule
from attnprobe.importance.training_words import TrainingWords


@dataclass(frozen=True)
class LogOdds(TrainingWords):
    """Log-odds ratio of the word for the predicted class against all other classes, in the training texts, signed.

    ln of the odds that a text of the class has the word, over the odds that a text of another class has it, each count
    with ½ added (Haldane 1956). A lexicon as Jain & Wallace's (2019, section 4) last model attends by.
    """

    name: ClassVar[str] = "log_odds"
    title: ClassVar[str] = "log-odds of the word"
    colour: ClassVar[str] = "#44BB99"
    signed: ClassVar[bool] = True

    def table(self, data: TextDataModule) -> Float[np.ndarray, "vocabulary columns"]:
        """One column per class (or label)."""
        return log_odds_ratios(data.splits["train"], len(data.vocabulary), len(data.classes))
