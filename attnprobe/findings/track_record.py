"""How often a verdict was right on models whose attention is known to be right or wrong.

`calibration.parquet` is what `+experiment=calibration` found, a row per criterion, level, encoder,
claim and `rightness`: how many trained models the claim decided (`models`), and how many of them by
"meets". Only the record of the very claim that decides is cited.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pandas as pd

from attnprobe.evidence.statistics import clopper_pearson
from attnprobe.evidence.verdicts import Verdict
from attnprobe.findings.members import CLAIM as SEEDS_ATTEND_ALIKE

CALIBRATION = Path(__file__).parent / "calibration.parquet"
COLUMNS = ["criterion", "level", "encoder", "rightness", "models", "meets", "claim"]
NONE = "No track record exists for this kind of model and measurement."
POWER = 0.9
"""Share of right attentions of which a test should say yes."""
FALSE_ALARMS = 0.05
"""Share of wrong attentions of which a test may say yes."""
ONE_CHECKPOINT = {"bert": "MiniLM fine-tuned on planted words"}
"""Families of pretrained models of which one checkpoint was measured: its record is cited, and
no verdict depends on it."""
FEWEST_KINDS = 2
"""Kinds of model that have to agree, at least, before something is inferred of another one."""

AUDITS = Path(__file__).parent / "audits.csv"
"""How often audits of some seeds said yes of a claim about trained models, by the true effect
(`research.models`)."""
POWER_OF_SEEDS = 0.8
"""Share of the audits that have to say yes for so many seeds to be said to show an effect."""


@dataclass(frozen=True)
class TrackRecord:
    """How a claim's test fared on one kind of model.

    Attributes:
        words: both rates, for the page.
        yes_tells: whether a yes tells anything. It does not where the whole interval of the rate
            on wrong attention is above `FALSE_ALARMS`.
        no_tells: whether a no tells anything. It does not where the whole interval of the rate on
            right attention is below `POWER`.
        shown_on: on which models that was shown.
        supports: whether both rates are known, so that a yes may have a tick.
    """

    words: str = NONE
    yes_tells: bool = True
    no_tells: bool = True
    shown_on: str = "this kind of model"
    supports: bool = False

    def tells(self, verdict: Verdict) -> bool:
        """Whether a verdict, a yes or a no, tells anything."""
        return self.yes_tells if verdict is Verdict.MEETS else self.no_tells


@dataclass(frozen=True)
class YesRate:
    """How many of some models a test said yes of, with its exact 95 % interval, 0 to 1."""

    share: float
    low: float
    high: float
    models: int

    @property
    def words(self) -> str:
        """Such as `95 % [83, 99] of 40`."""
        interval = f"[{100 * self.low:.0f}, {100 * self.high:.0f}]"
        return f"{100 * self.share:.0f} % {interval} of {self.models}"


@cache
def calibration() -> pd.DataFrame:
    """The shipped table; without rows where there is none."""
    if not CALIBRATION.exists():
        return pd.DataFrame(columns=COLUMNS)
    return pd.read_parquet(CALIBRATION, columns=COLUMNS)


def track_record(
    criterion: str, level: str, encoder: str, claim: str, *, table: pd.DataFrame | None = None
) -> TrackRecord:
    """How often this criterion's test said yes on right and on wrong attention.

    A kind of model that was not measured has no rates. But where a yes, or a no, was shown to say
    nothing on every kind that was, two at least, it is not taken to say something on the next one.

    Args:
        criterion: of the claim.
        level: of the claim. At the level of states the rate on wrong attention may be unknown,
            since nobody knows which states decide.
        encoder: kind of model, such as `lstm`.
        claim: name of the claim that decides, and how it was measured where that was not as usual:
            `NAME, 200 passes`.
        table: counts instead of the shipped ones.
    """
    counts = calibration() if table is None else table
    is_asked = (
        (counts["criterion"] == criterion) & (counts["level"] == level) & (counts["claim"] == claim)
    )
    records = {}
    for kind, rows in counts[is_asked].groupby("encoder", observed=True):
        record = _record_of_kind(str(kind), rows, level)
        if record is not None:
            records[str(kind)] = record

    if encoder in records and encoder in ONE_CHECKPOINT:
        return TrackRecord(records[encoder].words)
    if encoder in records:
        return records[encoder]
    return _inferred_record(records)


def _record_of_kind(kind: str, counts: pd.DataFrame, level: str) -> TrackRecord | None:
    """The record of one kind of model; None where a rate is missing that the level needs."""
    rates: dict[str, YesRate] = {}
    sums = counts.groupby("rightness", observed=True)[["models", "meets"]].sum()
    for rightness, models, meets in sums.itertuples():
        if models:
            rates[str(rightness)] = YesRate(*clopper_pearson(int(meets), int(models)), int(models))
    right = rates.get("right")
    wrong = rates.get("wrong")
    if right is None or (wrong is None and level == "word"):
        return None

    if wrong is None:
        on_wrong = ". On wrong attention it is unknown: a state may decide where its word does not"
    else:
        on_wrong = f", on wrong attention in {wrong.words}"
    models_of_kind = ONE_CHECKPOINT.get(kind, "models of this kind")
    return TrackRecord(
        f"Track record on {models_of_kind}: on right attention this test said yes in "
        f"{right.words}{on_wrong}.",
        yes_tells=wrong is None or not wrong.low > FALSE_ALARMS,
        no_tells=not right.high < POWER,
        supports=wrong is not None,
    )


def _inferred_record(records: Mapping[str, TrackRecord]) -> TrackRecord:
    """What the measured kinds of model say of one that was not measured."""
    measured = {kind: record for kind, record in records.items() if kind not in ONE_CHECKPOINT}
    if len(measured) < FEWEST_KINDS:
        return TrackRecord()
    return TrackRecord(
        yes_tells=any(record.yes_tells for record in measured.values()),
        no_tells=any(record.no_tells for record in measured.values()),
        shown_on=f"every kind of model that was measured ({', '.join(sorted(measured))})",
    )


def record_of_seeds(claim: str, *, table: pd.DataFrame | None = None) -> str:
    """From which effect on audits of so many seeds mostly show a claim about trained models.

    An effect counts as shown where at least `POWER_OF_SEEDS` of the audits of this effect, and of
    all larger ones, said yes.

    Args:
        claim: its name.
        table: rates instead of the shipped ones.

    Returns:
        Sentences for the page; empty where nothing was measured of the claim.
    """
    rates = pd.read_csv(AUDITS) if table is None else table
    rates = rates[rates["claim"] == claim]
    if rates.empty:
        return ""

    effect = "nearness" if claim == SEEDS_ATTEND_ALIKE.name else "gain"
    sentences = [
        f"With {seeds} seeds {_power_of_seeds(rows, effect)}"
        for seeds, rows in rates.groupby("seeds")
    ]
    false_alarms = rates["yes"][rates["effect"] == 0].max()
    return (
        f"Track record, audits drawn from {rates['models'].max()} small models. "
        f"{'. '.join(sentences)}. Without one at most {100 * false_alarms:.0f} % said yes."
    )


def _power_of_seeds(rates: pd.DataFrame, effect: str) -> str:
    """Which effects the audits of one number of seeds show, in words.

    Args:
        rates: a row per true effect, with the share of the audits that said yes.
        effect: what the effect is called.
    """
    largest_missed = rates["effect"][rates["yes"] < POWER_OF_SEEDS].max()  # NaN: none was missed
    detectable = rates["effect"][~(rates["effect"] <= largest_missed)]
    if not detectable.empty:
        return f"a {effect} below {detectable.min():.2f} cannot be shown"
    largest = rates.sort_values("effect").iloc[-1]
    return (
        f"even a {effect} of {largest['effect']:.2f} is shown in only {100 * largest['yes']:.0f} %"
    )
