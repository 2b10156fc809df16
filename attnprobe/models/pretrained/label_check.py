"""Predictions that are wrong more often than guesses: labels that are mixed up."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import factorial

import numpy as np
from jaxtyping import Int
from scipy.optimize import linear_sum_assignment
from scipy.stats import binom

LEVEL = 1e-4
"""Probability by chance below which it is no chance that predictions are so often wrong."""
FAR = 0.5
"""Share of what guesses get right up to which predictions are far below chance."""


@dataclass(frozen=True)
class MixedUp:
    """Predictions that another mapping of labels would make right.

    Attributes:
        texts: how many texts were predicted.
        right: how many predictions are right.
        guessed: how many would be, if predictions had nothing to do with the texts.
        class_of_label: the class that each label's texts are mostly predicted to be, one to one.
        right_then: how many predictions are right if that is the mapping.
    """

    texts: int
    right: int
    guessed: float
    class_of_label: dict[str, str]
    right_then: int

    def sentence(self) -> str:
        """What was seen, and what it means."""
        return (
            f"it is right on {self.right} of {self.texts} texts, where guesses would be right on "
            f"{self.guessed:.0f}; it is right on {self.right_then} if the classes are "
            f"{self.mapping()}: the labels of the data and of the checkpoint are mixed up"
        )

    def mapping(self) -> str:
        """The mapping, as `data.labels` takes it: value in the data, class of the checkpoint."""
        pairs = [f"{label}: {name}" for label, name in self.class_of_label.items()]
        return "{" + ", ".join(pairs) + "}"


def mixed_up(
    labels: Int[np.ndarray, " texts"], predictions: Int[np.ndarray, " texts"], names: Sequence[str]
) -> MixedUp | None:
    """Whether predictions are right far less often than by chance, and by another mapping far more.

    Args:
        labels: class numbers.
        predictions: class numbers.
        names: of the classes.

    Returns:
        None where they are not.
    """
    classes = len(names)
    counts = np.zeros((classes, classes), int)  # by label and prediction
    np.add.at(counts, (labels, predictions), 1)
    texts = len(labels)
    guesses = np.outer(counts.sum(1), counts.sum(0)) / texts
    right = int(np.trace(counts))
    guessed = float(np.trace(guesses))
    best = linear_sum_assignment(-counts)  # labels, and the prediction that stands for each
    right_then = int(counts[best].sum())
    guessed_then = float(guesses[best].sum())

    is_below = binom.cdf(right, texts, guessed / texts) < LEVEL
    level_of_best = LEVEL / factorial(min(classes, 10))  # it is the best of so many mappings
    is_above = binom.sf(right_then - 1, texts, guessed_then / texts) < level_of_best
    if not (is_below and is_above and right <= FAR * guessed):
        return None
    pairs = zip(*best, strict=True)
    class_of_label = {
        names[label]: names[predicted] for label, predicted in pairs if counts[label].any()
    }
    return MixedUp(texts, right, guessed, class_of_label, right_then)
