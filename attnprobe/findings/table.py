"""Decide once: every claim about every model of some runs, which all else only shows."""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from attnprobe.evidence.claims import Finding, put_to_test, with_ceilings
from attnprobe.findings.chip import chip_of
from attnprobe.findings.comparisons import compare_models
from attnprobe.findings.groups import DOT, Group, Run, grouped, read_runs
from attnprobe.findings.judgement import ACROSS, Card, Findings, Judgement
from attnprobe.findings.mechanisms import encoder_of, mechanism_of
from attnprobe.findings.rules import judge
from attnprobe.findings.studies.base import StudyReading
from attnprobe.readings.registry import present
from attnprobe.results.directory import Places
from attnprobe.results.numbers import Numbers

CLASS_NUMBER = re.compile(r"\bclass_(\d+)\b")
"""How evidence, which knows no names, writes a class."""


def findings(
    runs: Places | Iterable[Run],
    studies: Sequence[StudyReading] = (),
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> pd.DataFrame:
    """Put every claim about these runs to the test.

    Args:
        runs: where they are, or runs that are read already (`attnprobe.findings.groups.read_runs`).
        studies: what studies found of some of them, such as necessity and stability; these are rows
            like others.
        tell: called with a line about every step.

    Returns:
        A row per group of runs (data set × model × settings, seeds pooled) and claim, and a row for
        each criterion and level that nothing was tested for. Its columns are
        `attnprobe.findings.judgement.COLUMNS`.

    Raises:
        UserError: no finished run there.
    """
    return decide(_read(runs), studies, tell=tell).table()


def _read(runs: Places | Iterable[Run]) -> list[Run]:
    """The runs that are read already, and those at the places among them."""
    if isinstance(runs, str | os.PathLike):
        return read_runs(runs)
    entries = list(runs)
    already_read = [entry for entry in entries if isinstance(entry, Run)]
    places = [entry for entry in entries if not isinstance(entry, Run)]
    if already_read and not places:
        return already_read
    return [*already_read, *read_runs(places)]


def decide(
    runs: Sequence[Run],
    studies: Sequence[StudyReading] = (),
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> Findings:
    """As `findings`: a card per group of runs, and what compares two models."""
    groups = grouped(runs)
    cards = []
    for group in groups:
        tell(f"claims on {group.title}")
        tested = [*_findings_on(group), *_found_by_studies(group, groups, studies)]
        cards.append(_card_of(group, tested))
    return Findings(tuple(cards), tuple(_comparisons_of(groups)))


def _card_of(group: Group, tested: Sequence[Finding]) -> Card:
    """The card of one group, given its claims that were put to the test."""
    manifest = group.runs[0].manifest
    classes = manifest.get("classes", [])
    data_settings = manifest.get("training", {}).get("data", {})
    judgements = judge(
        [_with_class_name(finding, classes) for finding in tested],
        guessing=group.guessing,
        encoder=encoder_of(manifest),
        marked=bool(data_settings.get("rationale")),
    )
    chip, sentence = chip_of(judgements, guessing=group.guessing, mechanism=mechanism_of(manifest))
    named = [
        replace(judgement, data=group.data, model=group.model, group=group.title)
        for judgement in judgements
    ]
    return Card(chip, sentence, tuple(named))


def _with_class_name(finding: Finding, classes: Sequence[str]) -> Finding:
    """The finding with the name of the class that its number is of, in place of `class_1`."""
    evidence = finding.evidence

    def named(words: str) -> str:
        return CLASS_NUMBER.sub(lambda match: _class_name(classes, int(match[1])), words)

    return replace(
        finding,
        evidence=replace(evidence, part=named(evidence.part), no_yes=named(evidence.no_yes)),
    )


def _class_name(classes: Sequence[str], number: int) -> str:
    """`class` and the name; the number where the class has no name."""
    return f"class {classes[number] if number < len(classes) else number}"


def _findings_on(group: Group) -> Iterator[Finding]:
    """The claims of every probe that the group's runs have, put to the test."""
    numbers = group.numbers
    for reading in present(numbers):
        tested: list[Finding] = []
        for claim in reading.claims:
            tested += put_to_test((claim,), numbers.rows(reading.probe, claim.metrics))
        for finding in with_ceilings(tested, [run.numbers for run in group.runs]):
            yield replace(finding, section=f"test-{reading.probe}")


def _found_by_studies(
    group: Group, groups: Sequence[Group], studies: Sequence[StudyReading]
) -> Iterator[Finding]:
    """What the studies of this group's runs found; their sections are numbered as the studies."""
    for number, study in enumerate(studies, start=1):
        if group_of(study, groups) is not group:
            continue
        for finding in study.findings:
            yield replace(finding, section=f"study-{number}")


def group_of(study: StudyReading, groups: Sequence[Group]) -> Group | None:
    """The group with the first of a study's own runs, which the others refer to.

    Returns:
        None where that run is in no group.
    """
    if not study.runs:
        return None
    base = Path(study.runs[0]).resolve()
    for group in groups:
        if any(run.directory.resolve() == base for run in group.runs):
            return group
    return None


def _comparisons_of(groups: Sequence[Group]) -> Iterator[Judgement]:
    """Judgements on two models; models are compared that have the same note."""
    for note in dict.fromkeys(group.note for group in groups):
        numbers = Numbers.together(group.numbers for group in groups if group.note == note)
        for finding in compare_models(numbers):
            model = f"{finding.model}{DOT}{note}" if note else finding.model
            group = f"{finding.data}{DOT}{model}"
            comparison = Judgement.of(replace(finding, section=ACROSS))
            yield replace(comparison, model=model, group=group)
