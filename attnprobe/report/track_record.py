"""How often a verdict was right on models whose attention is known to be right or wrong: looked up, not computed here.

`calibration.parquet` in this folder is what `+experiment=calibration` found, a row per criterion, level, encoder, claim and
kind of attention: `criterion level encoder rightness models meets claim`, where `rightness` is `right` or `wrong`, `models`
says how many trained models the claim decided and `meets` how many of them by "meets". It may lack a kind of model, or be
absent. Only the record of the very claim that decides is cited: another one's says nothing of it.
"""

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd

from attnprobe.results.statistics import clopper_pearson

CALIBRATION = Path(__file__).parent / "calibration.parquet"
COLUMNS = ["criterion", "level", "encoder", "rightness", "models", "meets", "claim"]
NONE = "No track record exists for this kind of model."
POWER, FALSE_ALARMS = 0.9, 0.05
"""Share of right attentions of which a test should say yes, and of wrong ones of which it may."""


@dataclass(frozen=True)
class TrackRecord:
    """What the study found of one claim and kind of model.

    Attributes:
        words: one sentence with both rates and their exact 95 % intervals.
        yes_tells: False where it is shown, by the whole interval, that more than `FALSE_ALARMS` of the wrong attentions get a
            yes as well, so that a yes says nothing.
        no_tells: False where it is shown that fewer than `POWER` of the right ones get a yes, so that a no says nothing.
    """

    words: str = NONE
    yes_tells: bool = True
    no_tells: bool = True


@cache
def calibration(path: Path = CALIBRATION) -> pd.DataFrame:
    """The shipped table; without rows where there is none."""
    return pd.read_parquet(path, columns=COLUMNS) if path.exists() else pd.DataFrame(columns=COLUMNS)


def track_record(
    criterion: str, level: str, encoder: str, claim: str, *, table: pd.DataFrame | None = None
) -> TrackRecord:
    """How often this criterion's test said yes on right and on wrong attention.

    With an encoder that reads context nobody knows which states decide where attention is not on the deciding words: of a
    claim about states there is no rate on wrong attention then, and the sentence says so.

    Args:
        claim: name of the claim that decides.
        table: instead of the shipped one.
    """
    known = calibration() if table is None else table
    asked = {"criterion": criterion, "level": level, "encoder": encoder, "claim": claim}
    for column, value in asked.items():
        known = known[known[column] == value]
    shares = {}
    for rightness, own in known.groupby("rightness", observed=True):
        models, meets = int(own["models"].sum()), int(own["meets"].sum())
        if models:
            shares[str(rightness)] = (*clopper_pearson(meets, models), models)
    if "right" not in shares or ("wrong" not in shares and level == "word"):
        return TrackRecord()
    right, wrong = shares["right"], shares.get("wrong")
    of_wrong = (
        "; on wrong attention that is unknown, since a state that has read the context may decide where its word does not"
        if wrong is None
        else f", on wrong attention in {in_words(*wrong)}"
    )
    return TrackRecord(
        f"Track record on models of this kind: on right attention this test said yes in {in_words(*right)}{of_wrong}.",
        yes_tells=wrong is None or not wrong[1] > FALSE_ALARMS,
        no_tells=not right[2] < POWER,
    )


def in_words(share: float, low: float, high: float, models: int) -> str:
    """A share with its interval.

    >>> in_words(0.95, 0.83, 0.99, 40)
    '95 % [83, 99] of 40'
    """
    return f"{100 * share:.0f} % [{100 * low:.0f}, {100 * high:.0f}] of {models}"
