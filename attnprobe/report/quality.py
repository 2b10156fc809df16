"""Has the classifier learnt anything? Accuracy beside the share of the largest class, by which every other number is read."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from attnprobe.results.directory import RunDirectory


@dataclass(frozen=True)
class Quality:
    """How a single-label classifier's decisions compare with always naming the largest class of the same texts.

    Attributes:
        accuracy: share of right decisions, 0 to 1, with Wilson's 95 % interval `low`, `high` over the `n` texts.
        majority: share of the largest class among the labels, 0 to 1.
        only: the one class that is predicted for every text; None where several are.
    """

    accuracy: float
    low: float
    high: float
    majority: float
    n: int
    only: str | None

    @property
    def warning(self) -> str:
        """One sentence where the classifier is no better than guessing, as far as these texts can tell; else empty."""
        beside = (
            f"accuracy {self.accuracy:.3f} [{self.low:.3f}, {self.high:.3f}], always naming the largest class "
            f"{self.majority:.3f}"
        )
        if self.only is not None:
            return f"This classifier predicts one class for every text ({self.only}): {beside}"
        if self.low <= self.majority:
            return f"This classifier is not shown to be better than guessing: {beside}"
        return ""


def quality(labels: Sequence[int], predictions: Sequence[int], names: Sequence[str] = ()) -> Quality | None:
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
    found = stats.binomtest(right, len(given)).proportion_ci(method="wilson")
    only = np.unique(said)
    return Quality(
        accuracy=right / len(given),
        low=float(found.low),
        high=float(found.high),
        majority=float(np.unique(given, return_counts=True)[1].max() / len(given)),
        n=len(given),
        only=None if len(only) > 1 else names[only[0]] if len(names) else f"class {only[0]}",
    )


def quality_of(run_dir: Path, split: str = "test") -> Quality | None:
    """The quality of a finished run on its test texts; None where a text may have several labels, or has its own candidates,
    so that there is no one largest class to name."""
    run = RunDirectory(run_dir)
    if split not in run.splits() or "candidates" in run.example_columns(split).names:
        return None
    columns = run.examples(split, columns=["label", "prediction"])
    labels, predictions = (columns[name].to_pylist() for name in ("label", "prediction"))
    if labels and isinstance(labels[0], list):
        return None
    return quality(labels, predictions, run.manifest().get("classes", []))
