"""Has the classifier learnt anything? Accuracy against the share of the largest class, as context
of all else."""

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
"""Share of the way from guessing to always right that a classifier must be ahead of guessing by,
its whole interval."""


@dataclass(frozen=True)
class Quality:
    """How a single-label classifier's decisions compare with always naming the largest class of the
    same texts.

    Attributes:
        accuracy: share of right decisions, 0 to 1, with Wilson's 95 % interval `low`, `high` over
            the `n` texts.
        majority: share of the largest class among the labels, 0 to 1. balanced, balanced_low,
        balanced_high: balanced accuracy with an interval out of Wilson's for each class (MOVER, Zou
        & Donner 2008).
        chance: balanced accuracy of any guessing that does not look at the text: 1 / classes.
        asked: what it has to be above, by its whole interval: chance and `SMALLEST` of what could
            be reached beyond it.
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
    asked: float
    better_than_guessing: bool

    @property
    def beside_majority(self) -> str:
        interval = f"[{self.low:.3f}, {self.high:.3f}]"
        return f"accuracy {self.accuracy:.3f} {interval}, always naming the largest class {self.majority:.3f}"

    @property
    def in_words(self) -> str:
        return (
            f"{self.beside_majority}. Balanced accuracy {self.balanced:.3f} [{self.balanced_low:.3f}, "
            f"{self.balanced_high:.3f}]; guessing: {self.chance:.3f}, asked for: more than {self.asked:.3f}"
        )

    @property
    def in_short(self) -> str:
        return f"right on {percent(self.accuracy)} of {self.n:,} texts (always the largest class: {percent(self.majority)})"

    @property
    def warning(self) -> str:
        """One sentence where the classifier is no better than guessing, as far as these texts can
        tell; else empty."""
        if self.only is not None:
            return f"This classifier predicts one class for every text ({self.only}): {self.beside_majority}"
        if not self.better_than_guessing:
            return f"This classifier is not shown to be better than guessing: {self.in_words}"
        if self.low <= self.majority:
            return f"This classifier is hardly better than guessing: {self.in_words}"
        return ""


def quality(labels: ArrayLike, predictions: ArrayLike, names: Sequence[str] = ()) -> Quality | None:
    """Compare decisions with the largest class.

    Args:
        labels, predictions: class numbers `[examples]`; of no text there is no quality.
        names: of the classes; their numbers stand for them where there are none.
    """
    given = np.asarray(labels, int)
    said = np.asarray(predictions, int)
    if len(given) == 0:
        return None
    accuracy, low, high = wilson(int((given == said).sum()), len(given))
    only, (classes, counts) = np.unique(said), np.unique(given, return_counts=True)
    found = [int(((given == one) & (said == one)).sum()) for one in classes]
    of_class = np.array(
        [wilson(right, int(count)) for right, count in zip(found, counts, strict=True)]
    )
    balanced = float(of_class[:, 0].mean())
    below, above = (
        float(np.sqrt(((of_class[:, 0] - of_class[:, end]) ** 2).sum())) / len(of_class)
        for end in (1, 2)
    )
    one_class = None if len(only) > 1 else names[only[0]] if len(names) else f"class {only[0]}"
    largest = float(counts.max() / len(given))
    chance = 1 / max(2, len(of_class))
    asked = chance + SMALLEST * (1 - chance)
    around = (balanced, balanced - below, balanced + above, chance)
    return Quality(
        accuracy,
        low,
        high,
        largest,
        len(given),
        one_class,
        *around,
        asked,
        balanced - below > asked,
    )


def quality_of(run_dir: Path, split: str = "test") -> Quality | None:
    """The quality of a finished run on its test texts; None where a text may have several labels,
    or has its own candidates, so that there is no one largest class to name."""
    run = RunDirectory(run_dir)
    if split not in run.splits() or "candidates" in (columns := run.example_columns(split)).names:
        return None
    if pa.types.is_list(columns.field("label").type):
        return None
    table = run.examples(split, columns=["example_id", "label", "prediction"]).to_pandas()
    table = table[~table["example_id"].isin(repeats_of(run))]
    return quality(table["label"], table["prediction"], run.manifest().get("classes", []))
