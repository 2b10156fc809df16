"""Findings and cards for tests, made by hand."""

from dataclasses import replace

from attnprobe.evidence.claims import Claim, Finding
from attnprobe.evidence.deciding_words import GUARDS
from attnprobe.evidence.evidence import Evidence
from attnprobe.findings.chip import chip_of
from attnprobe.findings.judgement import Card
from attnprobe.findings.rules import judge

ABOVE = (0.5, 0.3, 0.7)
BELOW = (-0.5, -0.7, -0.3)
ACROSS = (0.1, -0.2, 0.4)
WITHIN = (0.0, -0.05, 0.05)
"""Number and interval beside what is asked for, a difference above 0.1."""


def finding(
    numbers=ABOVE,
    criterion="erasure",
    level="word",
    *,
    name="c",
    primary=True,
    speaks="for",
    n=100,
    rare=False,
    unasked="",
):
    claim = Claim(
        name=name,
        criterion=criterion,
        statement="A claim",
        source="A paper",
        measure=lambda table: None,
        quantity="share, 0 to 1",
        speaks=speaks,
        level=level,
        smallest=0.1,
        primary=primary,
    )
    evidence = Evidence(*numbers, n=n, rare=rare, unasked=unasked)
    return Finding(claim, evidence, "sst", "lstm", section="test-x")


def guards(**numbers):
    """A finding on each claim that guards a yes, far above what it asks for; else as given by the
    claim's name.
    """
    findings = []
    for guard in GUARDS:
        value = numbers.pop(guard.claim.name, 0.9)
        findings.append(Finding(guard.claim, Evidence(value, value, value, 100), "sst", "lstm"))
    assert not numbers, f"no guards: {numbers}"
    return findings


def card(findings, *, group="sst · lstm", guessing="", mechanism="", encoder=""):
    """The card of a model with these findings."""
    judgements = judge(findings, guessing=guessing, encoder=encoder)
    chip, sentence = chip_of(judgements, guessing=guessing, mechanism=mechanism)
    named = [replace(judgement, group=group) for judgement in judgements]
    return Card(chip, sentence, tuple(named))
