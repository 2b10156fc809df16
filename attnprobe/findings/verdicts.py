"""The rules of a verdict: a model's claims put to the test → rows of the table of findings, its
chip and its sentence.

The order of asking: is the model better than guessing at all? Is attention needed? Then each
criterion's primary claim, corrected for how many there are (Holm), and only where the track record
says that such a verdict tells anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.evidence import deciding_words
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

# How often a verdict was right on models whose attention is known to be right or wrong.
# `calibration.parquet` is what `+experiment=calibration` found, a row per criterion, level,
# encoder, claim and `rightness`: how many trained models the claim decided (`models`), and how many
# of them by "meets". Only the record of the very claim that decides is cited.


CALIBRATION = Path(__file__).parent / "calibration.parquet"
AUDITS = Path(__file__).parent / "audits.csv"
"""How often audits of some seeds said yes of a claim about trained models, by the true effect
(`research.models`)."""
POWER_OF_SEEDS = 0.8
"""Share of the audits that have to say yes for an effect to count as one that so many seeds
show."""
COLUMNS = ["criterion", "level", "encoder", "rightness", "models", "meets", "claim"]
NONE = "No track record exists for this kind of model and measurement."
POWER = 0.9
FALSE_ALARMS = 0.05
"""Share of right attentions of which a test should say yes, and of wrong ones of which it may."""
ONE_CHECKPOINT = {"bert": "MiniLM fine-tuned on planted words"}
"""Families of pretrained models of which one checkpoint was measured: its record is cited, and
nothing goes by it."""
KINDS = 2
"""So many kinds of model at least have to agree before something is inferred of another one."""


@dataclass(frozen=True)
class TrackRecord:
    """What the study found of one claim and kind of model: both rates in words; whether a yes and a
    no tell anything, which they do not where that is shown by the whole interval (`FALSE_ALARMS`,
    `POWER`); of which models; and whether both rates are known, so that a yes may have a tick."""

    words: str = NONE
    yes_tells: bool = True
    no_tells: bool = True
    shown_on: str = "this kind of model"
    supports: bool = False


@cache
def calibration() -> pd.DataFrame:
    """The shipped table; without rows where there is none."""
    return (
        pd.read_parquet(CALIBRATION, columns=COLUMNS)
        if CALIBRATION.exists()
        else pd.DataFrame(columns=COLUMNS)
    )


def track_record(
    criterion: str, level: str, encoder: str, claim: str, *, table: pd.DataFrame | None = None
) -> TrackRecord:
    """How often this criterion's test said yes on right and on wrong attention; of a claim about
    states the second may be unknown, since nobody knows which states decide.

    A kind of model that was not measured has no rates. But where a yes, or a no, was shown to say
    nothing on every kind that was, two at least, it is not taken to say something on the next one.

    Args:
        claim: name of the claim that decides, and how it was measured where that was not as usual:
            `NAME, 200 passes`.
        table: instead of the shipped one.
    """
    known = calibration() if table is None else table
    known = known[
        (known["criterion"] == criterion) & (known["level"] == level) & (known["claim"] == claim)
    ]
    of_kind = {}
    for kind, rows in known.groupby("encoder", observed=True):
        low = {}
        high = {}
        words = {}
        for rightness, (models, meets) in (
            rows.groupby("rightness", observed=True)[["models", "meets"]].sum().iterrows()
        ):
            if models:
                share, low[rightness], high[rightness] = clopper_pearson(int(meets), int(models))
                ends = f"[{100 * low[rightness]:.0f}, {100 * high[rightness]:.0f}]"
                words[rightness] = f"{100 * share:.0f} % {ends} of {models}"
        if "right" not in words or ("wrong" not in words and level == "word"):
            continue
        of_wrong = ". On wrong attention it is unknown: a state may decide where its word does not"
        if "wrong" in words:
            of_wrong = f", on wrong attention in {words['wrong']}"
        whose = ONE_CHECKPOINT.get(str(kind), "models of this kind")
        of_kind[str(kind)] = TrackRecord(
            f"Track record on {whose}: on right attention this test said yes in {words['right']}{of_wrong}.",
            yes_tells=not low.get("wrong", 0) > FALSE_ALARMS,
            no_tells=not high["right"] < POWER,
            supports="wrong" in words,
        )
    if encoder in of_kind:
        return (
            TrackRecord(of_kind[encoder].words) if encoder in ONE_CHECKPOINT else of_kind[encoder]
        )
    others = {kind: own for kind, own in of_kind.items() if kind not in ONE_CHECKPOINT}
    if len(others) < KINDS:
        return TrackRecord()
    return TrackRecord(
        yes_tells=any(own.yes_tells for own in others.values()),
        no_tells=any(own.no_tells for own in others.values()),
        shown_on=f"every kind of model that was measured ({', '.join(sorted(others))})",
    )


def record_of_seeds(claim: str, *, table: pd.DataFrame | None = None) -> str:
    """From which gain on audits of so many seeds mostly show a claim about trained models (a yes in
    `POWER_OF_SEEDS` of them, of this effect and all larger ones, in every cell); empty where that
    was not measured."""
    known = pd.read_csv(AUDITS) if table is None else table
    known = known[known["claim"] == claim]
    if known.empty:
        return ""
    parts = []
    effect = "nearness" if claim == "seeds_attend_alike" else "gain"
    for seeds, own in known.groupby("seeds"):
        shown = own["effect"][~(own["effect"] <= own["effect"][own["yes"] < POWER_OF_SEEDS].max())]
        largest = own.sort_values("effect").iloc[-1]
        rare = f"even a {effect} of {largest['effect']:.2f} is shown in only {100 * largest['yes']:.0f} %"
        few = f"a {effect} below {shown.min():.2f} cannot be shown"
        parts.append(f"With {seeds} seeds {rare if shown.empty else few}")
    false = known["yes"][known["effect"] == 0].max()
    return (
        f"Track record, audits drawn from {known['models'].max()} small models. {'. '.join(parts)}. "
        f"Without one at most {100 * false:.0f} % said yes."
    )


LEVEL = 0.05
"""Family-wise error rate over all primary claims of a card."""
SEVERAL = "+experiment=audit"
CARD = (
    # criterion and level of every line of a card, what a yes says, and the setting that adds its
    # test
    ("necessity", "model", "better than equal weights", SEVERAL),
    ("stability", "model", "same words with another seed", SEVERAL),
    ("agreement", "word", "agrees with leave-one-out", "probe=[agreement]"),
    ("exclusivity", "state", "no other attention would do", "probe=[adversarial]"),
    ("erasure", "state", "top state decides", "probe=[skill]"),
    (*deciding_words.LINE, deciding_words.ON_CARD, deciding_words.TESTED_BY),
    ("leak", "model", "weights carry the label", "+experiment=wiegreffe"),
    ("plausibility", "word", "on the words that people mark", "probe=[plausibility]"),
)
LINES = {(criterion, level): words for criterion, level, words, _ in CARD}
"""Criterion and level of every line → what a yes says."""
TESTED_BY = {(criterion, level): setting for criterion, level, _, setting in CARD}
"""The setting that adds the test of each line: the reason of a row that was not tested."""
NEEDS_MARKS = "data.rationale=COLUMN"
NEUTRAL = ("leak",)
"""Criteria that speak neither for the attention nor against it: right and wrong weights may carry
the label, or not."""
MECHANISMS = {
    "PositionAttention": "by the position alone",
    "RandomAttention": "drawn at random",
    "FirstAttention": "put on the first word",
    "CommonWordAttention": "put on the commonest word",
    "LexiconAttention": "counted from the labels",
    "RationaleAttention": "put on the marked words",
    "ColumnAttention": "taken from the data",
    "UniformAttention": "the same on every word",
    "ImposedAttention": "imposed by a teacher",
}
"""What attention that knows nothing of the words is, or was made to be, by its class."""
READ, CARE, NO, UNSHOWN, POOR = CHIPS = ("Read it", "With care", "No", "Not shown", "Do not read")
"""The answer to "may I read this attention?" in two words; `answer_of` has the rule."""
YES, REFUTED, OPEN, UNASKED = ANSWERS = ("yes", "no", "open", "untested")
"""The answer to one question, from claim to badge."""
WIDEST = 0.5
"""An interval wider than this, of a number from 0 to 1, says too little for the number to be
shown."""


def judge(
    findings: Sequence[tuple[str, Finding]],
    *,
    guessing: str = "",
    encoder: str = "",
    marked: bool = True,
) -> pd.DataFrame:
    """The rows of one model: its card's lines, one for each criterion and level, then all other
    claims. A line is the row of its primary claim, or one without a claim, `not tested`. Only
    primary claims are corrected for each other and by what was asked before them;
    `interval_verdict` is what the number says.

    Args:
        findings: its claims put to the test, each with the part of the page that shows it. A
            criterion asked at a level of its own adds a line.
        guessing: why the model is no better than guessing, which makes everything meaningless;
            empty where it is better.
        encoder: the kind of its encoder, such as `lstm`, for the track record.
        marked: whether the data say which words are the reason; without, the remedy of plausibility
            is to name a column.

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
        first = (
            primary.setdefault((claim.criterion, claim.level), (section, finding))
            if claim.primary
            else None
        )
        if first is not None and first[1] is not finding:
            other = first[1].claim
            raise ValueError(
                f"{claim.name} and {other.name}: two primary claims of {claim.criterion}, {claim.level}"
            )
    adjusted = holm(
        [one.evidence.p(one.claim.threshold, one.claim.smallest) for _, one in primary.values()]
    )
    decided = {}
    for (line, (section, finding)), p in zip(primary.items(), adjusted, strict=True):
        claim = finding.claim
        evidence = finding.evidence
        verdict = finding.verdict
        reason = evidence.unasked
        if verdict in DECIDED and not p <= LEVEL:
            verdict = CANNOT_DECIDE
            reason = "not beyond chance among all the claims of this card"
        elif verdict == CANNOT_DECIDE:
            reason = (
                "there is no interval"
                if np.isnan(evidence.low)
                else "the interval reaches across what is asked for"
            )
        elif verdict == TOO_RARE:
            reason = "too few texts carry the number"
        measured = ", ".join(filter(None, (claim.name, evidence.record)))
        record = track_record(claim.criterion, claim.level, encoder, measured)
        cited = record_of_seeds(claim.name) or (record.words if verdict in DECIDED else "")
        if verdict in DECIDED and not (record.yes_tells if verdict == MEETS else record.no_tells):
            others = (
                "yes to wrong attention as well"
                if verdict == MEETS
                else "no to right attention as well"
            )
            verdict = NOT_INFORMATIVE
            reason = f"for {record.shown_on} the test says {others}"
        # what trained models do as a whole is measured, not inferred: it needs no record
        ticked = verdict == MEETS and (
            record.supports or (claim.level == "model" and claim.criterion not in NEUTRAL)
        )
        told = {
            "verdict": verdict,
            "reason": reason,
            "p": p,
            "track_record": cited,
            "primary": True,
            "ticked": ticked,
        }
        decided[line] = row_of(section, finding) | told
    needless = in_a_word(decided.get(("necessity", "model"), UNTESTED)["verdict"]) == REFUTED
    rows = []
    for line in lines:
        remedy = TESTED_BY.get(line, "") if marked or line[0] != "plausibility" else NEEDS_MARKS
        row = decided.get(
            line, UNTESTED | {"criterion": line[0], "level": line[1], "reason": remedy}
        )
        if row["verdict"] != NOT_TESTED and guessing:
            row |= {"verdict": NOT_MEANINGFUL, "reason": guessing, "track_record": ""}
        elif row["verdict"] != NOT_TESTED and line[0] != "necessity" and needless:
            reason = "equal weights do as well, so these data cannot tell good attention from bad"
            row |= {"verdict": NOT_INFORMATIVE, "reason": reason, "track_record": ""}
        answer = in_a_word(row["verdict"])
        rows.append(row | {"answer": answer, "ticked": row["ticked"] and answer == YES})
    chosen = {id(finding) for _, finding in primary.values()}
    rows += [row_of(section, finding) for section, finding in findings if id(finding) not in chosen]
    return pd.DataFrame(rows, columns=[*UNTESTED])


UNTESTED: dict[str, Any] = {
    "criterion": "",
    "level": "",
    "claim": "",
    "statement": "",
    "value": np.nan,
    "low": np.nan,
    "high": np.nan,
    "n": 0,
    "threshold": np.nan,
    "smallest": np.nan,
    "verdict": NOT_TESTED,
    "reason": "",
    "p": np.nan,
    "track_record": "",
    "interval_verdict": NOT_TESTED,
    "primary": True,
    "speaks": "for",
    "quantity": "",
    "source": "",
    "section": "",
    "answer": UNASKED,
    "ticked": False,
}
"""The row of a line that nothing was tested for; its keys are the columns of the table that are
about a claim."""


def row_of(section: str, finding: Finding) -> dict[str, Any]:
    """A claim by itself."""
    claim = finding.claim
    evidence = finding.evidence
    shared = {name: one for name, one in (vars(claim) | vars(evidence)).items() if name in UNTESTED}
    return (
        UNTESTED
        | shared
        | {
            "claim": claim.name,
            "verdict": finding.verdict,
            "reason": evidence.unasked,
            "primary": False,
            "section": section,
            "interval_verdict": finding.verdict,
            "answer": in_a_word(finding.verdict),
        }
    )


def guessing(runs: Sequence[Run]) -> str:
    """Why these runs of one model are no better than guessing; empty where each of them is better,
    or it is not known."""
    for run in runs:
        if run.quality is not None and not run.quality.better_than_guessing:
            seed = f"seed {run.seed}: " if len(runs) > 1 else ""
            one_class = (
                "" if run.quality.only is None else f"it says {run.quality.only} of every text, "
            )
            return f"{seed}{one_class}{run.quality.in_short}"
    return ""


def encoder_of(manifest: Mapping[str, object]) -> str:
    """The kind of a run's encoder by its class, such as `lstm` for `LSTMEncoder`, of a pretrained
    model its family where all heads of the last layer are asked, as for its record; empty where it
    is not known."""
    facts = manifest.get("model_facts")
    if isinstance(facts, Mapping) and facts.get("site") == "layer -1, heads all, pooled":
        return str(facts.get("family", ""))
    return (
        model_setting(manifest, "encoder", "_target_")
        .rpartition(".")[2]
        .removesuffix("Encoder")
        .lower()
    )


def mechanism_of(manifest: Mapping[str, object]) -> str:
    """What a run's attention is known to be, whatever a test finds (`MECHANISMS`); empty where it
    was learned."""
    given = (
        model_setting(manifest, "given").title().replace("_", "")
    )  # of a whole model, by the control's name
    kind = (
        f"{given}Attention"
        if given
        else model_setting(manifest, "attention", "_target_").rpartition(".")[2]
    )
    return MECHANISMS.get(kind, "")


def model_setting(manifest: Mapping[str, object], *keys: str) -> str:
    """One of the settings of a run's model; empty where it is none, or no text."""
    part: object = manifest.get("training", {})
    for key in ("model", *keys):
        part = part.get(key, {}) if isinstance(part, Mapping) else {}
    return part if isinstance(part, str) else ""


def answer_of(card: pd.DataFrame, *, guessing: str = "", mechanism: str = "") -> tuple[str, str]:
    """Chip and sentence: may this attention be read, for one who has read none of the papers?

    A classifier that may be guessing: *Do not read*. Else it goes by erasure at the level of words.
    No: *No*. Not decided: *Not shown*. Yes: *With care*, and *Read it* where the track record of
    that verdict is known, at least half of the weight is on such words, in at least half of the
    texts, every class has such words, equal weights predict something else, another seed attends to
    the same words, and no other question is answered with no.

    Args:
        card: the rows of one model, as `judge` gives them.
        guessing: as of `judge`.
        mechanism: what the attention is known to be (`mechanism_of`), or empty.

    Returns:
        one of `CHIPS`, and at most 20 words.
    """
    rows: list[Any] = [*card[card["primary"]].itertuples(index=False)]
    lines = {(row.criterion, row.level): row for row in rows}
    if guessing or any(row.verdict == NOT_MEANINGFUL for row in rows):
        return POOR, "This model is not shown to beat guessing, so its attention explains nothing."
    if lines["necessity", "model"].answer == REFUTED:
        return (
            UNSHOWN,
            "Equal weights classify as well here, so nothing shows that these weights mean anything.",
        )
    word = lines[deciding_words.LINE]
    this = f"this attention ({mechanism})" if mechanism else "this attention"
    whether = deciding_words.WHETHER.format(attention=this)
    if word.answer == UNASKED:
        return UNSHOWN, f"{whether[0].upper()}{whether[1:]} was not tested."
    if word.answer == OPEN:
        few = word.verdict != NOT_INFORMATIVE and not is_readable(word.value, word.low, word.high)
        return (
            UNSHOWN,
            f"{f'Too few texts ({word.n:,}) to say' if few else 'These texts cannot say'} {whether}.",
        )
    this = f"{this[0].upper()}{this[1:]}"
    if word.answer == REFUTED:
        if lines["erasure", "state"].answer == YES:
            return NO, f"{deciding_words.NO_BUT_STATES.format(attention=this)}."
        return NO, f"{deciding_words.NO.format(attention=this)}."
    others = card[~card["primary"].astype(bool)]
    details = dict(zip(others["claim"], others["value"], strict=True))
    leans = deciding_words.only_leans(details)
    sentence = deciding_words.YES_LEANS if leans else deciding_words.YES_MOSTLY
    sentence = sentence.format(attention=this)
    seed = lines["stability", "model"].answer
    against = [
        LINES.get(one, one[0])
        for one, row in lines.items()
        if row.answer == REFUTED and one[0] not in NEUTRAL
    ]
    doubts = deciding_words.doubts(details)
    if seed == REFUTED:
        doubts.append("but another seed attends elsewhere")
    if against:
        doubts.append(f"but “{against[0]}”: no")
    if not word.ticked:
        doubts.append("but this test is unproven on such models")
    if seed == UNASKED:
        doubts.append("another seed is untested")
    if seed == OPEN:
        doubts.append("another seed is open")
    doubt = doubts[0] if doubts else ""
    if not doubt and not leans:
        return READ, f"{sentence}, also with another seed."
    beside = f"; {doubt}".replace("; but", ", but") if doubt and not mechanism else ""
    return CARE, f"{sentence}{beside}."


def in_a_word(verdict: str) -> str:
    """A verdict as yes, no, open or untested."""
    return {MEETS: YES, FAILS: REFUTED, NO_DIFFERENCE: REFUTED, NOT_TESTED: UNASKED}.get(
        verdict, OPEN
    )


def is_readable(value: float, low: float, high: float) -> bool:
    """Whether a number from 0 to 1 (below 0: worse than meaningless) is known well enough to be
    shown."""
    return bool(high - low <= WIDEST and -1 <= value <= 1)
