"""What the four tests have in common: how a finding is filed, and how its number is written."""

from typing import Any

import numpy as np

from attnprobe.report.claims import Claim, Finding
from attnprobe.report.evidence import Evidence
from attnprobe.report.studies import StudyReading

PAPER = "Wiegreffe & Pinter 2019"


def add(reading: StudyReading, claim: Claim, evidence: Evidence, words: str) -> Finding:
    """File a finding and its words."""
    finding = Finding(claim, evidence, reading.data, reading.model)
    reading.findings.append(finding)
    reading.readings[claim.name] = words
    return finding


def statement(name: str, criterion: str, text: str, section: str, quantity: str, speaks: str, **settings: Any) -> Claim:
    """A claim whose number was computed from several runs and not from one table; `settings`: further fields of it."""
    return Claim(name, criterion, text, f"{PAPER}, {section}", lambda rows: None, quantity, speaks=speaks, **settings)


def shown(evidence: Evidence, digits: int = 3) -> str:
    """`0.012 [0.003, 0.021]`, or the number alone where there is no interval."""
    number = f"{evidence.value:.{digits}f}"
    return number if np.isnan(evidence.low) else f"{number} [{evidence.low:.{digits}f}, {evidence.high:.{digits}f}]"


def row(name: str, evidence: Evidence, paper: float) -> dict[str, Any]:
    """A line of a table of F1 values."""
    return {
        "model": name, "texts": evidence.n, "F1": evidence.value, "F1 low": evidence.low, "F1 high": evidence.high,
        "published (unverified)": paper, "difference": evidence.value - paper,
    }  # fmt: skip
