"""The rules of a verdict: a model's claims put to the test → its judgements.

The order of asking: is the model better than guessing at all? Is attention needed? Then each
criterion's primary claim, corrected for how many there are (Holm), and only where the track record
says that such a verdict tells anything.
"""

from collections.abc import Sequence
from dataclasses import replace

from attnprobe.evidence.claims import Finding
from attnprobe.evidence.statistics import holm
from attnprobe.evidence.verdicts import Answer, Verdict
from attnprobe.findings.judgement import Judgement
from attnprobe.findings.lines import LINES, NECESSITY, NEEDS_MARKS, NEUTRAL, PLAUSIBILITY, Place
from attnprobe.findings.track_record import record_of_seeds, track_record

FAMILY_WISE_ERROR = 0.05
"""Chance of any false decision among all primary claims of a card."""


def judge(
    findings: Sequence[Finding], *, guessing: str = "", encoder: str = "", marked: bool = True
) -> list[Judgement]:
    """Judge the findings on one model.

    A line of the card is the judgement on its primary claim, or one without a claim, `not tested`.
    Only primary claims are corrected for each other and by what was asked before them;
    `interval_verdict` keeps what the number says.

    Args:
        findings: the claims put to the test. One that is asked at a level of its own adds a line.
        guessing: why the model is no better than guessing, which makes everything meaningless;
            empty where it is better.
        encoder: the kind of its encoder, such as `lstm`, for the track record.
        marked: whether the data say which words are the reason; without, the remedy of plausibility
            is to name a column.

    Returns:
        The lines of the card, then all other claims.

    Raises:
        ValueError: two primary claims of one criterion and level.
    """
    judged = _judge_primaries(_primary_findings(findings), encoder)
    needless = NECESSITY.place in judged and judged[NECESSITY.place].answer is Answer.NO

    # every card has the same lines, and one more for each claim of a level of its own
    places = [finding.claim.place for finding in findings if finding.claim.speaks == "for"]
    lines = []
    for place in dict.fromkeys([*LINES, *places]):
        line = judged[place] if place in judged else _untested(place, marked)
        lines.append(_in_context(line, guessing, needless))

    details = [Judgement.of(finding) for finding in findings if not finding.claim.primary]
    return lines + details


def _primary_findings(findings: Sequence[Finding]) -> dict[Place, Finding]:
    """The finding on each line's primary claim."""
    primary: dict[Place, Finding] = {}
    for finding in findings:
        claim = finding.claim
        if not claim.primary:
            continue
        first = primary.setdefault(claim.place, finding)
        if first is not finding:
            raise ValueError(
                f"{claim.name} and {first.claim.name}: two primary claims of {claim.criterion}, "
                f"{claim.level}"
            )
    return primary


def _judge_primaries(primary: dict[Place, Finding], encoder: str) -> dict[Place, Judgement]:
    """The judgement on each line's primary claim, their p-values corrected for each other."""
    p_values = [
        finding.evidence.p(finding.claim.threshold, finding.claim.smallest)
        for finding in primary.values()
    ]
    adjusted = holm(p_values)
    return {
        place: _judge_primary(finding, p, encoder)
        for (place, finding), p in zip(primary.items(), adjusted, strict=True)
    }


def _judge_primary(finding: Finding, p: float, encoder: str) -> Judgement:
    """The judgement on a primary claim, given its adjusted p-value and its track record."""
    claim = finding.claim
    evidence = finding.evidence
    verdict = finding.verdict
    reason = evidence.unasked
    if verdict.is_decided and not p <= FAMILY_WISE_ERROR:
        verdict = Verdict.CANNOT_DECIDE
        reason = "not beyond chance among all the claims of this card"
    elif verdict is Verdict.CANNOT_DECIDE:
        reason = evidence.why_open(claim.threshold + claim.smallest)
    elif verdict is Verdict.TOO_RARE:
        reason = "too few texts carry the number"

    record = track_record(claim.criterion, claim.level, encoder, claim.name, evidence.record)
    cited = record_of_seeds(claim.name)
    if not cited and verdict.is_decided:
        cited = record.words
    if verdict.is_decided and not record.tells(verdict):
        wrongly = "yes to wrong" if verdict is Verdict.MEETS else "no to right"
        verdict = Verdict.NOT_INFORMATIVE
        reason = f"for {record.shown_on} the test says {wrongly} attention as well"

    # what trained models do as a whole is measured, not inferred: it needs no record
    is_measured = claim.level == "model" and claim.criterion not in NEUTRAL
    return replace(
        Judgement.of(finding),
        verdict=verdict,
        reason=reason,
        p=p,
        track_record=cited,
        primary=True,
        ticked=verdict is Verdict.MEETS and (record.supports or is_measured),
    )


def _untested(place: Place, marked: bool) -> Judgement:
    """A line without a test; its reason is the setting that adds one."""
    criterion, level = place
    setting = LINES[place].tested_by if place in LINES else ""
    if criterion == PLAUSIBILITY.criterion and not marked:
        setting = NEEDS_MARKS
    return Judgement(criterion, level, reason=setting)


def _in_context(line: Judgement, guessing: str, needless: bool) -> Judgement:
    """The line in the light of the two questions that come before it.

    A model that may be guessing makes it meaningless; attention that is not needed makes it
    uninformative.
    """
    if not line.is_tested:
        return line
    if guessing:
        return replace(
            line,
            verdict=Verdict.NOT_MEANINGFUL,
            reason=guessing,
            track_record="",
            ticked=False,
        )
    if needless and line.criterion != NECESSITY.criterion:
        return replace(
            line,
            verdict=Verdict.NOT_INFORMATIVE,
            reason="equal weights do as well, so these data cannot tell good attention from bad",
            track_record="",
            ticked=False,
        )
    return line
