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
KINDS = 2
"""So many kinds of model at least have to agree before something is inferred of another one."""


@dataclass(frozen=True)
class TrackRecord:
    """What the study found of one claim and kind of model.

    Attributes:
        words: one sentence with both rates and their exact 95 % intervals.
        yes_tells: False where it is shown, by the whole interval, that more than `FALSE_ALARMS` of the wrong attentions get a
            yes as well, so that a yes says nothing.
        no_tells: False where it is shown that fewer than `POWER` of the right ones get a yes, so that a no says nothing.
        shown_on: the models that these two were shown on, as they are called in a sentence.
    """

    words: str = NONE
    yes_tells: bool = True
    no_tells: bool = True
    shown_on: str = "this kind of model"


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

    A kind of model that was not measured has no rates. But where a yes, or a no, was shown to say nothing on every kind that
    was, two at least, it is not taken to say something on the next one.

    Args:
        claim: name of the claim that decides.
        table: instead of the shipped one.
    """
    known = calibration() if table is None else table
    for column, value in {"criterion": criterion, "level": level, "claim": claim}.items():
        known = known[known[column] == value]
    measured = _record(known[known["encoder"] == encoder], level)
    if measured is not None:
        return measured
    groups = known.groupby("encoder", observed=True)
    of_kind = {str(kind): own for kind, rows in groups if (own := _record(rows, level)) is not None}
    if len(of_kind) < KINDS:
        return TrackRecord()
    every = f"every kind of model that was measured ({', '.join(sorted(of_kind))})"
    return TrackRecord(
        yes_tells=any(own.yes_tells for own in of_kind.values()),
        no_tells=any(own.no_tells for own in of_kind.values()),
        shown_on=every,
    )


def _record(known: pd.DataFrame, level: str) -> TrackRecord | None:
    """That of one claim on one kind of model; None where too little is known of it."""
    shares = {}
    for rightness, own in known.groupby("rightness", observed=True):
        models, meets = int(own["models"].sum()), int(own["meets"].sum())
        if models:
            shares[str(rightness)] = (*clopper_pearson(meets, models), models)
    if "right" not in shares or ("wrong" not in shares and level == "word"):
        return None
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
