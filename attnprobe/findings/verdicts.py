"""The rules of a verdict: a model's claims put to the test → rows of the table of findings, and its first sentence.

The order of asking: is the model better than guessing at all? Is attention needed? Then each criterion's primary claim,
corrected for how many there are (Holm), and only where the track record says that such a verdict tells anything.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.core.sanitise import percent
from attnprobe.evidence.claims import Finding
from attnprobe.evidence.evidence import (
    CANNOT_DECIDE,
    DECIDED,
    FAILS,
    MEETS,
    NO_DIFFERENCE,
    NOT_INFORMATIVE,
    NOT_MEANINGFUL,
    NOT_TESTED,
    TOO_RARE,
)
from attnprobe.evidence.statistics import clopper_pearson, holm
from attnprobe.findings.groups import Run

# How often a verdict was right on models whose attention is known to be right or wrong: looked up, not computed here.
#
# `calibration.parquet` in this folder is what `+experiment=calibration` found, a row per criterion, level, encoder, claim and
# kind of attention: `criterion level encoder rightness models meets claim`, where `rightness` is `right` or `wrong`, `models`
# says how many trained models the claim decided and `meets` how many of them by "meets". It may lack a kind of model, or be
# absent. Only the record of the very claim that decides is cited: another one's says nothing of it.


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
        else f", on wrong attention in {_rate(*wrong)}"
    )
    return TrackRecord(
        f"Track record on models of this kind: on right attention this test said yes in {_rate(*right)}{of_wrong}.",
        yes_tells=wrong is None or not wrong[1] > FALSE_ALARMS,
        no_tells=not right[2] < POWER,
    )


def _rate(share: float, low: float, high: float, models: int) -> str:
    """A share with its interval.

    >>> _rate(0.95, 0.83, 0.99, 40)
    '95 % [83, 99] of 40'
    """
    return f"{100 * share:.0f} % [{100 * low:.0f}, {100 * high:.0f}] of {models}"


LEVEL = 0.05
"""Family-wise error rate over all primary claims of a card."""
LINES = (
    ("necessity", "model"),
    ("stability", "model"),
    ("agreement", "word"),
    ("exclusivity", "state"),
    ("erasure", "state"),
    ("erasure", "word"),
    ("transfer", "model"),
    ("plausibility", "word"),
)
"""Criterion and level of every line of a card."""
SEVERAL = "+experiment=audit"
TESTED_BY = {
    ("necessity", "model"): SEVERAL,
    ("stability", "model"): SEVERAL,
    ("agreement", "word"): "probe=[agreement]",
    ("exclusivity", "state"): "probe=[adversarial]",
    ("erasure", "state"): "probe=[skill]",
    ("erasure", "word"): "probe=[swaps]",
    ("transfer", "model"): "+experiment=wiegreffe",
    ("plausibility", "word"): "probe=[plausibility]",
}
"""The setting that adds the test of each line."""


MECHANISMS = {
    "PositionAttention": "goes by the position alone, whatever the word",
    "RandomAttention": "was drawn at random and never learned",
    "FirstAttention": "was put on the first word of every text",
    "CommonWordAttention": "was put on each text's commonest word",
    "LexiconAttention": "was counted from the labels of the training texts, whatever the model does with a word",
    "RationaleAttention": "was put on the words that are marked as the reason",
    "UniformAttention": "is the same on every word",
    "ImposedAttention": "is a teacher's and was imposed on this model",
}
"""What attention that knows nothing of the words is, or was made to be, by its class: known, whatever a test finds."""
MOSTLY = 0.5
"""Reach, and share of the texts, from which attention on the words that decide is said to be mostly on them."""


def judge(findings: Sequence[tuple[str, Finding]], *, guessing: str = "", encoder: str = "") -> pd.DataFrame:
    """The rows of one model: its card's lines, a row for each criterion and level, then all other claims.

    A line is the row of its primary claim (`primary`); where none was tested it is a row without a claim, `not tested`. Only
    primary claims are corrected for each other, and by what was asked before them; `interval_verdict` is what the number of
    the claim says by itself.

    Args:
        findings: its claims put to the test, each with the part of the page that shows it. A criterion asked at a level of
            its own adds a line.
        guessing: why the model is no better than guessing, which makes everything meaningless; empty where it is better.
        encoder: the kind of its encoder, such as `lstm`, for the track record.

    Raises:
        ValueError: two primary claims of one criterion and level.
    """
    primary: dict[tuple[str, str], tuple[str, Finding]] = {}
    lines = dict.fromkeys(LINES)
    for section, finding in findings:
        claim = finding.claim
        if claim.speaks == "neither":
            continue
        lines.setdefault((claim.criterion, claim.level))
        first = primary.setdefault((claim.criterion, claim.level), (section, finding)) if claim.primary else None
        if first is not None and first[1] is not finding:
            other = first[1].claim
            raise ValueError(f"{claim.name} and {other.name}: two primary claims of {claim.criterion}, {claim.level}")
    adjusted = dict(zip(primary, holm([finding.p for _, finding in primary.values()]), strict=True))
    decided = {
        line: row_of(*primary[line]) | _decided(primary[line][1], adjusted[line], encoder)
        for line in lines
        if line in primary
    }
    needed = MET.get(decided["necessity", "model"]["verdict"]) if ("necessity", "model") in decided else None
    rows = []
    for line in lines:
        row = decided.get(line, UNTESTED | {"criterion": line[0], "level": line[1]})
        if row["verdict"] != NOT_TESTED and guessing:
            row |= {"verdict": NOT_MEANINGFUL, "reason": guessing, "track_record": ""}
        elif row["verdict"] != NOT_TESTED and line[0] != "necessity" and needed is False:
            row |= {
                "verdict": NOT_INFORMATIVE,
                "reason": "equal weights do as well, so these data cannot tell good attention from bad",
                "track_record": "",
            }
        rows.append(row)
    chosen = {id(finding) for _, finding in primary.values()}
    rows += [row_of(section, finding) for section, finding in findings if id(finding) not in chosen]
    return pd.DataFrame(rows, columns=[*UNTESTED])


UNTESTED: dict[str, Any] = {
    "criterion": "", "level": "", "claim": "", "statement": "", "value": np.nan, "low": np.nan, "high": np.nan, "n": 0,
    "threshold": np.nan, "smallest": np.nan, "verdict": NOT_TESTED, "reason": "", "p": np.nan, "track_record": "",
    "interval_verdict": NOT_TESTED, "primary": True, "speaks": "for", "quantity": "", "source": "", "section": "",
}  # fmt: skip
"""The row of a line that nothing was tested for; its keys are the columns of the table that are about a claim."""
MET = {MEETS: True, FAILS: False, NO_DIFFERENCE: False}
"""Whether attention meets a criterion, by the verdict; no other verdict decides it."""


def row_of(section: str, finding: Finding) -> dict[str, Any]:
    """A claim by itself."""
    claim, evidence = finding.claim, finding.evidence
    return {
        "criterion": claim.criterion, "level": claim.level, "claim": claim.name, "statement": claim.statement,
        "value": evidence.value, "low": evidence.low, "high": evidence.high, "n": evidence.n,
        "threshold": claim.threshold, "smallest": claim.smallest, "verdict": finding.verdict, "reason": evidence.unasked,
        "p": np.nan, "track_record": "", "interval_verdict": finding.verdict, "primary": False, "speaks": claim.speaks,
        "quantity": claim.quantity, "source": claim.source, "section": section,
    }  # fmt: skip


def _decided(finding: Finding, p: float, encoder: str) -> dict[str, Any]:
    """What becomes of a primary claim, corrected for the others of its card."""
    claim, evidence = finding.claim, finding.evidence
    verdict, reason = finding.verdict, evidence.unasked
    if verdict in DECIDED and not p <= LEVEL:
        verdict, reason = CANNOT_DECIDE, "not beyond chance among all the claims of this card"
    elif verdict == CANNOT_DECIDE:
        reason = "there is no interval" if np.isnan(evidence.low) else "the interval reaches across what is asked for"
    elif verdict == TOO_RARE:
        reason = "too few texts carry the number"
    record = track_record(claim.criterion, claim.level, encoder, claim.name)
    cited = record.words if verdict in DECIDED else ""
    if verdict in DECIDED and not (record.yes_tells if verdict == MEETS else record.no_tells):
        others = "yes to wrong attention as well" if verdict == MEETS else "no to right attention as well"
        verdict, reason = NOT_INFORMATIVE, f"for {record.shown_on} the test says {others}"
    return {"verdict": verdict, "reason": reason, "p": p, "track_record": cited, "primary": True}


def guessing(runs: Sequence[Run]) -> str:
    """Why these runs of one model are no better than guessing; empty where each of them is better, or it is not known."""
    for run in runs:
        measured = run.quality
        if measured is not None and not measured.better_than_guessing:
            seed = f"seed {run.seed}: " if len(runs) > 1 else ""
            one_class = "" if measured.only is None else f"it says {measured.only} of every text, "
            return f"{seed}{one_class}{measured.in_short}"
    return ""


def encoder_of(manifest: Mapping[str, object]) -> str:
    """The kind of a run's encoder by its class, such as `lstm` for `LSTMEncoder`; empty where it is not known."""
    return stage_class(manifest, "encoder").removesuffix("Encoder").lower()


def mechanism_of(manifest: Mapping[str, object]) -> str:
    """What a run's attention is known to be, whatever a test finds (`MECHANISMS`); empty where it was learned."""
    return MECHANISMS.get(stage_class(manifest, "attention"), "")


def stage_class(manifest: Mapping[str, object], stage: str) -> str:
    """The class of one stage of a run's model; empty where it is not known."""
    part: object = manifest.get("training", {})
    for key in ("model", stage, "_target_"):
        part = part.get(key, {}) if isinstance(part, Mapping) else {}
    return part.rpartition(".")[2] if isinstance(part, str) else ""


def first_sentence(card: pd.DataFrame, *, guessing: str = "", mechanism: str = "") -> str:
    """What a reader of a heat map has to know first, for one who has read none of the papers.

    Args:
        card: the rows of one model, as `judge` gives them.
        guessing: as of `judge`.
        mechanism: what the attention is known to be (`mechanism_of`), or empty.
    """
    rows: list[Any] = [*card[card["primary"]].itertuples(index=False)]
    lines = {(row.criterion, row.level): row for row in rows}
    why = guessing or next((line.reason for line in lines.values() if line.verdict == NOT_MEANINGFUL), "")
    if why:
        return f"Do not read this attention: the classifier is not shown to be better than guessing ({why})."
    if MET.get(lines["necessity", "model"].verdict) is False:
        return "Attention is not needed on these data: equal weights classify as well, and no test of it can tell much."
    word, state, exclusive = lines["erasure", "word"], lines["erasure", "state"], lines["exclusivity", "state"]
    others = card[~card["primary"].astype(bool)]
    detail: dict[str, float] = dict(zip(others["claim"], others["value"], strict=True))
    asked: dict[str, float] = dict(zip(others["claim"], others["threshold"], strict=True))
    met = MET.get(word.verdict)
    this = f"This attention, which {mechanism}," if mechanism else "This attention"
    scale = (
        f"{round(word.value, 2) + 0.0:.2f} (0: by chance, 1: the same weights at their best)"  # none is called −0.00
    )
    if met:
        reach, texts = detail.get("weight_reaches", np.nan), detail.get("most_texts_are_pointed_at", np.nan)
        much = f", reach {reach:.2f}" if not np.isnan(reach) else ""
        where = f", in {percent(texts)} of the texts" if not np.isnan(texts) else ""
        idle = detail.get("weights_move_the_prediction", np.nan)
        thin = reach < MOSTLY or texts < MOSTLY
        on = "leans towards the words that decide" if thin else "is mostly on the words that decide"
        same = f" Equal weights would give the same prediction (to {idle:.3f}): they decide nothing."
        return f"{this} {on}: {scale}{much}{where}.{same if idle < asked.get('weights_move_the_prediction', 0) else ''}"
    if met is False and MET.get(state.verdict):
        return f"{this} points at states that decide, but not at words that do: {scale}. A heat map of it misleads."
    if met is False:
        return f"{this} does not point at the words that decide: {scale}."
    this, known = this[0].lower() + this[1:], ""
    if MET.get(exclusive.verdict) is False:
        known = (
            f"Do not present this attention as the only reason: for {percent(1 - exclusive.value)} of the texts a very "
            f"different one gives the same prediction. "
        )
    if word.verdict == NOT_TESTED:
        add = TESTED_BY["erasure", "word"]
        return f"{known}Whether {this} points at the words that decide was not tested: add the test with {add}."
    shown = f": {scale}, 95 % interval {word.low:.2f} to {word.high:.2f}; {word.reason}"
    why = shown if word.verdict == CANNOT_DECIDE and not np.isnan(word.low) else f": {word.reason}"
    return f"{known}Whether {this} points at the words that decide cannot be said{why}."
