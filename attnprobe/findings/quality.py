"""Has the classifier learnt anything? Accuracy against the share of the largest class, as context of all else."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from attnprobe.core.sanitise import percent
from attnprobe.evidence.statistics import wilson
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import repeats_of

SMALLEST = 0.05
"""Of the way from guessing to always right, what a classifier must be ahead of guessing by. Of those that flip a coin one in
forty is ahead by its whole interval alone; by this much as well (0.525 for two classes) are one in a hundred on 40 texts,
one in two hundred on 150, and fewer than one in a thousand on 571. Right in 60 % of the texts, 95 of 100 pass on 571."""


@dataclass(frozen=True)
class Quality:
    """How a single-label classifier's decisions compare with always naming the largest class of the same texts.

    Attributes:
        accuracy: share of right decisions, 0 to 1, with Wilson's 95 % interval `low`, `high` over the `n` texts.
        majority: share of the largest class among the labels, 0 to 1.
        balanced, balanced_low, balanced_high: balanced accuracy, the mean over the classes of the share of their texts
            that is right, with an interval out of Wilson's for each class (MOVER, Zou & Donner 2008).
        chance: balanced accuracy of any guessing that does not look at the text: 1 / classes.
        only: the one class that is predicted for every text; None where several are.
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

    @property
    def better_than_guessing(self) -> bool:
        """Whether the decisions are shown to depend on the text: balanced accuracy above chance, by its whole interval and
        by more than `SMALLEST` of what could be reached, for a hair above chance may be the luck of the draw. Accuracy alone
        cannot say so: with one rare class a model that learnt something may be right no more often than one that always
        names the other class, and with even classes the two agree."""
        return self.balanced_low > self.asked

    @property
    def asked(self) -> float:
        """The balanced accuracy from which a classifier counts as better than guessing."""
        return self.chance + SMALLEST * (1 - self.chance)

    @property
    def in_words(self) -> str:
        """Both numbers compared with what guessing reaches."""
        return (
            f"accuracy {self.accuracy:.3f} [{self.low:.3f}, {self.high:.3f}], always naming the largest class "
            f"{self.majority:.3f}; balanced accuracy {self.balanced:.3f} [{self.balanced_low:.3f}, "
            f"{self.balanced_high:.3f}], guessing {self.chance:.3f}, asked for: more than {self.asked:.3f}"
        )

    @property
    def in_short(self) -> str:
        """How often it is right, and how often that takes no reading, without intervals."""
        return f"right on {percent(self.accuracy)} of {self.n:,} texts (always the largest class: {percent(self.majority)})"

    @property
    def warning(self) -> str:
        """One sentence where the classifier is no better than guessing, as far as these texts can tell; else empty."""
        beside = (
            f"accuracy {self.accuracy:.3f} [{self.low:.3f}, {self.high:.3f}], always naming the largest class "
            f"{self.majority:.3f}"
        )
        if self.only is not None:
            return f"This classifier predicts one class for every text ({self.only}): {beside}"
        if not self.better_than_guessing:
            return f"This classifier is not shown to be better than guessing: {self.in_words}"
        if self.low <= self.majority:
            return f"This classifier is hardly better than guessing: {self.in_words}"
        return ""


def quality(labels: ArrayLike, predictions: ArrayLike, names: Sequence[str] = ()) -> Quality | None:
    """Compare decisions with the largest class.

    Args:
        labels, predictions: class numbers `[examples]`.
        names: of the classes; their numbers stand for them where there are none.

    Returns:
        None for fewer than one text.
    """
    given, said = np.asarray(labels, int), np.asarray(predictions, int)
    if len(given) == 0:
        return None
    right = int((given == said).sum())
    accuracy, low, high = wilson(right, len(given))
    only = np.unique(said)
    of_class = np.array(
        [wilson(int((said[given == one] == one).sum()), int((given == one).sum())) for one in np.unique(given)]
    )
    balanced = float(of_class[:, 0].mean())
    below, above = (float(np.sqrt(((of_class[:, 0] - of_class[:, end]) ** 2).sum())) / len(of_class) for end in (1, 2))
    return Quality(
        accuracy=accuracy,
        low=low,
        high=high,
        majority=float(np.unique(given, return_counts=True)[1].max() / len(given)),
        n=len(given),
        only=None if len(only) > 1 else names[only[0]] if len(names) else f"class {only[0]}",
        balanced=balanced,
        balanced_low=balanced - below,
        balanced_high=balanced + above,
        chance=1 / max(2, len(of_class)),
    )


def quality_of(run_dir: Path, split: str = "test") -> Quality | None:
    """The quality of a finished run on its test texts; None where a text may have several labels, or has its own candidates,
    so that there is no one largest class to name."""
    run = RunDirectory(run_dir)
    if split not in run.splits() or "candidates" in run.example_columns(split).names:
        return None
    if pa.types.is_list(run.example_columns(split).field("label").type):
        return None
    pieces = run.example_pieces(split, names := ["example_id", "label", "prediction"])
    columns = [np.stack([piece[name].to_numpy() for name in names]) for piece in pieces]
    number, labels, predictions = np.concatenate([np.zeros((3, 0), np.int64), *columns], 1)
    once = ~np.isin(number, list(repeats_of(run)))
    return quality(labels[once], predictions[once], run.manifest().get("classes", []))
