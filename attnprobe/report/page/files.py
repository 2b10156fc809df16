"""The tables beside the page, as CSV to compute with and LaTeX to include."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from attnprobe.report.claims import Finding
from attnprobe.report.reading import Reading
from attnprobe.report.tables import COMPARED, FINDINGS, HEADLINES, PUBLISHED, write_table_files


def write_numbers(
    numbers: pd.DataFrame,
    compared: pd.DataFrame,
    readings: Sequence[Reading],
    findings: Sequence[tuple[str, Finding]],
    directory: Path,
) -> list[Path]:
    """Write the probes' own tables, `headlines`, `published` and `findings`: those of `attnprobe.report.tables`, from
    numbers that the page has already.

    Args:
        numbers: the long table of all runs.
        compared: `attnprobe.report.published.compare` of it.
        readings: of the probes that are there.
        findings: where, and what was found.
        directory: where they go.

    Returns:
        The files, tables without rows left out.
    """
    headlines = compared[COMPARED]
    general = {
        HEADLINES: headlines,
        FINDINGS: pd.DataFrame([finding_row(where, finding) for where, finding in findings]),
        PUBLISHED: PUBLISHED.build(headlines),
    }
    tables = [(table, table.build(numbers)) for reading in readings for table in reading.tables]
    return [
        path
        for table, rows in [*tables, *general.items()]
        if len(rows)
        for path in write_table_files(table.name, table.caption, rows, directory)
    ]


def finding_row(where: str, finding: Finding) -> dict[str, object]:
    """A line of `findings`."""
    claim, evidence = finding.claim, finding.evidence
    return {
        "data": finding.data,
        "model": finding.model,
        "where": where,
        "criterion": claim.criterion,
        "claim": claim.statement,
        "value": evidence.value,
        "low": evidence.low,
        "high": evidence.high,
        "n": evidence.n,
        "threshold": claim.threshold,
        "verdict": finding.verdict,
        "speaks": claim.speaks,
        "quantity": claim.quantity,
        "source": claim.source,
    }
