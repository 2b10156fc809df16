"""How a study cites a number and words the verdict on it, and how large a difference has to be."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from attnprobe.evidence.evidence import Evidence
from attnprobe.evidence.verdicts import Verdict

PAPER = "Wiegreffe & Pinter 2019"
MARGIN = 0.01
"""F1, or balanced accuracy: the smallest relevant difference, however little the seeds vary."""


def margin_of(scores: Sequence[float]) -> float:
    """The smallest relevant difference of a score, in its own unit.

    Another seed makes a difference of about one standard deviation of the seeds' scores; one that
    is no larger is not relevant, nor is one up to `MARGIN`.
    """
    if len(scores) < 2:
        return MARGIN
    return max(MARGIN, round(float(np.std(scores, ddof=1)), 3))


def margin_in_words(margin: float) -> str:
    """What `margin_of` gave, after "by more than" or "by no more than".

    Only a margin above `MARGIN` is what another seed makes.

    >>> margin_in_words(0.049), margin_in_words(MARGIN)
    ('another seed makes (0.049)', '0.01')
    """
    return f"another seed makes ({margin:g})" if margin > MARGIN else f"{MARGIN:g}"


def of_several_runs(table: pd.DataFrame) -> Evidence | None:
    """The measure of a claim whose number is of several runs: no single table has it."""
    return None


@dataclass(frozen=True)
class Wording:
    """A sentence for each verdict on a number.

    A sentence may have gaps, which `str.format` fills.

    Attributes:
        undecided: for every verdict without a field of its own.
        no_difference: empty: `fails` says that, too.
    """

    meets: str
    fails: str
    undecided: str
    no_difference: str = ""

    def of(self, evidence: Evidence, smallest: float) -> str:
        """The sentence for a number that is above 0 where the claim holds.

        Args:
            evidence: the number.
            smallest: the smallest relevant difference.
        """
        verdict = evidence.exceeds(0, smallest)
        if verdict == Verdict.MEETS:
            return self.meets
        if verdict == Verdict.FAILS:
            return self.fails
        if verdict == Verdict.NO_DIFFERENCE:
            return self.no_difference or self.fails
        return self.undecided


def cite(evidence: Evidence) -> str:
    """A number with its interval, if it has one, such as `−0.012 [−0.021, −0.003]`."""
    words = f"{evidence.value:.3f}"
    if not np.isnan(evidence.low):
        words += f" [{evidence.low:.3f}, {evidence.high:.3f}]"
    return words.replace("-", "−")
