"""What the claims say of one model's attention: one state per criterion and level, as data.

The order of asking: is the model better than guessing at all? Is attention needed? Then each criterion's primary claim,
corrected for how many there are (Holm). The page, the terminal, the tables and the loggers all show these.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from attnprobe.report.claims import CRITERIA, Finding
from attnprobe.report.claims import findings as tested
from attnprobe.report.evidence import FAILS as NOT_HELD
from attnprobe.report.evidence import HOLDS, NEGLIGIBLE, RARE, UNASKED
from attnprobe.report.page.runs import Run, read_run
from attnprobe.report.quality import quality_of
from attnprobe.report.reading import present
from attnprobe.report.track_record import track_record
from attnprobe.results.statistics import holm
from attnprobe.shown import percent

MEETS, FAILS, NO_DIFFERENCE, CANNOT_DECIDE, TOO_RARE, NOT_INFORMATIVE, NOT_MEANINGFUL, NOT_TESTED = STATES = (
    "meets",
    "fails",
    "no relevant difference",
    "cannot decide",
    "too rare to say",
    "not informative",
    "not meaningful",
    "not tested",
)
LEVEL = 0.05
"""Of a false decision on a card, all its primary claims together."""
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


@dataclass(frozen=True)
class Verdict:
    """One line of a card.

    Attributes:
        criterion, level: what is asked (`CRITERIA`), and of what (`attnprobe.report.claims.LEVELS`).
        state: one of `STATES`; yes, `meets`, always speaks for the attention.
        reason: why it is not decided, or empty.
        claim, statement: the primary claim's name and sentence; empty where none was tested.
        value, low, high: its number with the 95 % interval of this claim alone; NaN where there is none.
        n: examples, or seeds.
        threshold, smallest: what is asked for: more than their sum.
        p: of the decision, adjusted for the card's other primary claims (Holm); NaN where nothing is decided by one.
        track_record: how often this verdict was right on models whose attention is known to be right or wrong, in words.
    """

    criterion: str
    level: str
    state: str
    reason: str = ""
    claim: str = ""
    statement: str = ""
    value: float = float("nan")
    low: float = float("nan")
    high: float = float("nan")
    n: int = 0
    threshold: float = float("nan")
    smallest: float = float("nan")
    p: float = float("nan")
    track_record: str = ""

    @property
    def question(self) -> str:
        """What the criterion asks."""
        return CRITERIA[self.criterion]

    @property
    def met(self) -> bool | None:
        """Whether attention meets the criterion; None where that is not decided."""
        return {MEETS: True, FAILS: False, NO_DIFFERENCE: False}.get(self.state)


MECHANISMS = {
    "PositionAttention": "goes by the position alone, whatever the word",
    "RandomAttention": "was drawn at random and never learned",
    "FirstAttention": "was put on the first word of every text",
    "CommonWordAttention": "was put on each text's commonest word",
    "LexiconAttention": "was counted from the labels of the training texts, whatever the model does with a word",
    "RationaleAttention": "was put on the words that are marked as the reason",
    "UniformAttention": "is the same on every word",
}
"""What attention that knows nothing of the words is, or was made to be, by its class: known, whatever a test finds."""
MOSTLY = 0.5
"""Skill from which an attention that is shown to point at the words that decide is said to be mostly on them."""


def verdicts(findings: Sequence[Finding], *, guessing: str = "", encoder: str = "") -> list[Verdict]:
    """The lines of one model's card.

    Args:
        findings: its claims put to the test; only the primary ones decide. A criterion asked at a level of its own adds a
            line.
        guessing: why the model is no better than guessing, which makes everything meaningless; empty where it is better.
        encoder: the kind of its encoder, such as `lstm`, for the track record.

    Raises:
        ValueError: two primary claims of one criterion and level.
    """
    primary: dict[tuple[str, str], Finding] = {}
    keys = dict.fromkeys(LINES)
    for finding in findings:
        if finding.claim.speaks == "neither":
            continue
        key = finding.claim.criterion, finding.claim.level
        keys.setdefault(key)
        if finding.claim.primary and primary.setdefault(key, finding) is not finding:
            raise ValueError(f"{finding.claim.name} and {primary[key].claim.name}: two primary claims of {key}")
    adjusted = dict(zip(primary, holm([one.p for one in primary.values()]), strict=True))
    judged = {key: _judged(finding, adjusted[key], encoder) for key, finding in primary.items()}
    needed = judged.get(("necessity", "model"))
    result = []
    for criterion, level in keys:
        one = judged.get((criterion, level), Verdict(criterion, level, NOT_TESTED))
        if one.state != NOT_TESTED and guessing:
            one = _changed(one, NOT_MEANINGFUL, guessing)
        elif one.state != NOT_TESTED and criterion != "necessity" and needed is not None and needed.met is False:
            one = _changed(
                one, NOT_INFORMATIVE, "equal weights do as well, so these data cannot tell good attention from bad"
            )
        result.append(one)
    return result


def _judged(finding: Finding, p: float, encoder: str) -> Verdict:
    """The verdict of a primary claim by itself."""
    claim, evidence = finding.claim, finding.evidence
    states = {HOLDS: MEETS, NOT_HELD: FAILS, NEGLIGIBLE: NO_DIFFERENCE, RARE: TOO_RARE, UNASKED: NOT_INFORMATIVE}
    state, reason = states.get(finding.verdict, CANNOT_DECIDE), evidence.unasked
    if state in (MEETS, FAILS, NO_DIFFERENCE) and not p <= LEVEL:
        state, reason = CANNOT_DECIDE, "not beyond chance among all the claims of this card"
    elif state == CANNOT_DECIDE:
        reason = "there is no interval" if np.isnan(evidence.low) else "the interval reaches across what is asked for"
    elif state == TOO_RARE:
        reason = "too few texts carry the number"
    record = track_record(claim.criterion, claim.level, encoder, claim.name)
    decided = state in (MEETS, FAILS, NO_DIFFERENCE)
    if decided and not (record.yes_tells if state == MEETS else record.no_tells):
        others = "yes to wrong attention as well" if state == MEETS else "no to right attention as well"
        state, reason = NOT_INFORMATIVE, f"for {record.shown_on} the test says {others}"
    return Verdict(
        claim.criterion, claim.level, state, reason, claim.name, claim.statement, evidence.value, evidence.low,
        evidence.high, evidence.n, claim.threshold, claim.smallest, p, record.words if decided else "",
    )  # fmt: skip


def _changed(verdict: Verdict, state: str, reason: str) -> Verdict:
    return Verdict(**asdict(verdict) | {"state": state, "reason": reason, "track_record": ""})


def verdicts_of(directory: str | Path) -> list[Verdict]:
    """The verdicts of one finished run by its own tables; what needs several runs is `not tested`."""
    run = read_run(Path(directory))
    findings = [one for reading in present(run.numbers) for one in tested(reading.claims, run.numbers, reading.probe)]
    return verdicts(findings, guessing=guessing([run]), encoder=encoder_of(run.manifest))


def found_out(lines: Sequence[Verdict]) -> str:
    """The first sentence, where it answers whether the attention points at the words that decide; else nothing."""
    tested = any((one.criterion, one.level) == ("erasure", "word") and one.state != NOT_TESTED for one in lines)
    return first_sentence(lines) if tested else ""


def verdict_rows(lines: Sequence[Verdict]) -> pd.DataFrame:
    """Verdicts as a table, a row each, in the fields of `Verdict`."""
    return pd.DataFrame([asdict(line) for line in lines])


def guessing(runs: Sequence[Run]) -> str:
    """Why these runs of one model are no better than guessing; empty where each of them is better, or it is not known."""
    for run in runs:
        measured = quality_of(run.directory, run.split)
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


def first_sentence(lines: Sequence[Verdict], *, guessing: str = "", mechanism: str = "") -> str:
    """What a reader of a heat map has to know first, for one who has read none of the papers.

    Args:
        lines: the card.
        guessing: as of `verdicts`.
        mechanism: what the attention is known to be (`mechanism_of`), or empty.
    """
    by_line = {(line.criterion, line.level): line for line in lines}
    why = guessing or next((line.reason for line in lines if line.state == NOT_MEANINGFUL), "")
    if why:
        return f"Do not read this attention: the classifier is not shown to be better than guessing ({why})."
    needed = by_line["necessity", "model"]
    if needed.met is False:
        return "Attention is not needed on these data: equal weights classify as well, and no test of it can tell much."
    word, state = by_line["erasure", "word"], by_line["erasure", "state"]
    this = f"This attention, which {mechanism}," if mechanism else "This attention"
    scale = (
        f"{round(word.value, 2) + 0.0:.2f} on a scale from 0 (the same weights in random order) to 1 (all weight on the word "
        f"whose removal changes the prediction most)"  # + 0.0: none is called −0.00
    )
    if word.met and word.value < MOSTLY:
        return f"{this} leans towards the words that decide, but is on others as well: {scale}."
    if word.met:
        return f"{this} is mostly on the words that decide: {scale}."
    if word.met is False and state.met:
        return f"{this} points at states that decide, but not at words that do: {scale}. A heat map of it misleads."
    if word.met is False:
        return f"{this} does not point at the words that decide: {scale}."
    this, known = this[0].lower() + this[1:], other_attentions(by_line["exclusivity", "state"])
    if word.state == NOT_TESTED:
        return f"{known}Whether {this} points at the words that decide was not tested: add the test with probe=[skill]."
    shown = f": {scale}, 95 % interval {word.low:.2f} to {word.high:.2f}; {word.reason}"
    why = shown if word.state == CANNOT_DECIDE and not np.isnan(word.low) else f": {word.reason}"
    return f"{known}Whether {this} points at the words that decide cannot be said{why}."


def other_attentions(exclusivity: Verdict) -> str:
    """What is known of an attention by this verdict alone, as a sentence; empty where it is met or not decided."""
    if exclusivity.met is not False:
        return ""
    return (
        f"Do not present this attention as the only reason: for {percent(1 - exclusivity.value)} of the texts a very "
        f"different one gives the same prediction. "
    )
