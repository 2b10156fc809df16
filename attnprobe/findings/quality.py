"""Has the classifier learnt anything? Its accuracy beside the share of the largest class."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from attnprobe.core.sanitise import percent, percent_ends
from attnprobe.evidence.statistics import wilson_of_clusters
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import first_of_text, repeats_of, texts_of

SMALLEST = 0.05
"""Share of the way from guessing to always right that a classifier must be ahead of guessing by,
its whole interval."""


@dataclass(frozen=True)
class Quality:
    """How a single-label classifier's decisions compare with always naming the largest class.

    Attributes:
        accuracy: share of right decisions, 0 to 1.
        low: lower end of the accuracy's 95 % interval (Wilson).
        high: upper end of that interval.
        majority: share of the largest class among the labels, 0 to 1.
        n: number of texts.
        only: the one class that is predicted for every text; None where several are.
        balanced: balanced accuracy, the mean of the classes' recalls, 0 to 1.
        balanced_low: lower end of its interval, out of Wilson's for each class (MOVER, Zou & Donner
            2008).
        balanced_high: upper end of that interval.
        chance: balanced accuracy of a guess that does not look at the text: 1 / the classes that
            the texts have; of one class always naming it is right.
        asked: what the balanced accuracy has to be above, its whole interval: chance, and
            `SMALLEST` of what could be reached beyond it.
        better_than_guessing: whether it is.
    """

    accuracy: float
    low: float
    high: float
    majority: float
    n: int
    only: str | None
    balanced: float
    balanced_low: float
    balanced_high: float
    chance: float
    asked: float
    better_than_guessing: bool

    @property
    def beside_majority(self) -> str:
        """The accuracy beside that of always naming the largest class."""
        return (
            f"accuracy {self.accuracy:.3f} [{self.low:.3f}, {self.high:.3f}], always naming the "
            f"largest class {self.majority:.3f}"
        )

    @property
    def in_words(self) -> str:
        """Everything, for the page."""
        return (
            f"{self.beside_majority}. Balanced accuracy {self.balanced:.3f} "
            f"[{self.balanced_low:.3f}, {self.balanced_high:.3f}]; guessing: {self.chance:.3f}, "
            f"asked for: more than {self.asked:.3f}"
        )

    def in_short(self, units: str = "test texts") -> str:
        """The accuracy with its interval, beside that of always naming the largest class.

        Args:
            units: what is counted.
        """
        return (
            f"{percent(self.accuracy)} {percent_ends(self.low, self.high)} right on "
            f"{self.n:,} {units}; always naming the largest class: {percent(self.majority)}"
        )

    @property
    def warning(self) -> str:
        """One sentence where these texts do not show it to beat guessing; else empty."""
        if self.only is not None:
            return (
                f"This classifier predicts one class for every text ({self.only}): "
                f"{self.beside_majority}"
            )
        if not self.better_than_guessing:
            return f"This classifier is not shown to be better than guessing: {self.in_words}"
        if self.low <= self.majority:
            return f"This classifier is hardly better than guessing: {self.in_words}"
        return ""


def quality(
    labels: ArrayLike,
    predictions: ArrayLike,
    names: Sequence[str] = (),
    texts: ArrayLike | None = None,
) -> Quality | None:
    """Compare decisions with the largest class.

    Args:
        labels: class numbers `[examples]`.
        predictions: class numbers `[examples]`.
        names: of the classes; their numbers stand for them where there are none.
        texts: number of each example's text, whose answers count together in the intervals
            `[examples]`; None: each is of a text of its own.

    Returns:
        None where there is no text.
    """
    label = np.asarray(labels, int)
    prediction = np.asarray(predictions, int)
    if len(label) == 0:
        return None
    text = np.arange(len(label)) if texts is None else np.asarray(texts, int)
    is_right = label == prediction
    accuracy = wilson_of_clusters(is_right, text)

    classes, counts = np.unique(label, return_counts=True)
    recalls = []
    for number in classes:
        is_of_class = label == number
        recalls.append(wilson_of_clusters(is_right[is_of_class], text[is_of_class]))
    balanced = float(np.mean([recall.value for recall in recalls]))
    below = _margin(np.array([recall.value - recall.low for recall in recalls]))
    above = _margin(np.array([recall.value - recall.high for recall in recalls]))

    chance = 1 / len(recalls)
    asked = chance + SMALLEST * (1 - chance)
    return Quality(
        accuracy=accuracy.value,
        low=accuracy.low,
        high=accuracy.high,
        majority=float(counts.max() / len(label)),
        n=len(label),
        only=_only_class(prediction, names),
        balanced=balanced,
        balanced_low=balanced - below,
        balanced_high=balanced + above,
        chance=chance,
        asked=asked,
        better_than_guessing=balanced - below > asked,
    )


def _only_class(prediction: np.ndarray, names: Sequence[str]) -> str | None:
    """The one class that is predicted for every text."""
    numbers = np.unique(prediction)
    if len(numbers) > 1:
        return None
    number = int(numbers[0])
    return names[number] if number < len(names) else f"class {number}"


def _margin(distances: np.ndarray) -> float:
    """How far the interval of a mean reaches (MOVER: squared distances add up).

    Args:
        distances: from its summands to the ends of their intervals.
    """
    return float(np.sqrt((distances**2).sum())) / len(distances)


def quality_of(run_dir: Path, split: str = "test") -> Quality | None:
    """The quality of a finished run on its test texts.

    Returns:
        None where a text may have several labels, or has its own candidates: there is no one
        largest class to name.
    """
    run = RunDirectory(run_dir)
    if split not in run.splits():
        return None
    columns = run.example_columns(split)
    if "candidates" in columns.names or pa.types.is_list(columns.field("label").type):
        return None
    table = run.examples(split, columns=["example_id", "label", "prediction"]).to_pandas()
    texts = texts_of(run)
    table = table[~table["example_id"].isin(repeats_of(texts))]
    first_examples = first_of_text(texts)
    text = [first_examples.get(example, example) for example in table["example_id"]]
    return quality(table["label"], table["prediction"], run.manifest().get("classes", []), text)
