"""Tables for a paper or a page: CSV to compute with, LaTeX (booktabs) to include."""

import os
from collections.abc import Iterable
from numbers import Integral, Real
from pathlib import Path

import pandas as pd

from attnprobe.report.claims import Finding, put_to_test
from attnprobe.report.comparisons import compare_models
from attnprobe.report.published import compare
from attnprobe.report.reading import Tabulation, present
from attnprobe.results.directory import find_runs
from attnprobe.results.files import write_atomically
from attnprobe.results.table import read_results
from attnprobe.shown import spreadsheet_cell, visible

LATEX = {
    "\\": "\\textbackslash{}", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "<": "$<$", ">": "$>$", "|": "$|$",
    "·": "$\\cdot$", "×": "$\\times$", "−": "$-$", "≤": "$\\leq$", "≥": "$\\geq$", "≠": "$\\neq$", "‖": "$\\Vert$",
    "α": "$\\alpha$", "ε": "$\\varepsilon$", "λ": "$\\lambda$", "τ": "$\\tau$", "Δ": "$\\Delta$",
} | {character: f"\\{character}" for character in "&%$#_{}"}  # fmt: skip
"""Characters that LaTeX takes for commands, or lacks outside of formulas → how they are written."""
COMPARED = [
    "data",
    "model",
    "seed",
    "probe",
    "title",
    "group",
    "n",
    "mean",
    "low",
    "high",
    "published",
    "difference",
    "source",
]
UNDEFINED = "--"


def write_tables(run_dirs: str | os.PathLike | Iterable[str | os.PathLike], directory: str | os.PathLike) -> list[Path]:
    """Write every table that the results allow, as `<name>.csv` and `<name>.tex`.

    These are the probes' own tables (`Reading.tables`), `headlines` (every headline number of every run, with its
    interval), `published` (those that a paper reports as well, side by side) and `findings` (every claim put to the
    test).

    Args:
        run_dirs: a run directory, a directory above several runs, a glob pattern, or a list of these.
        directory: where the tables go; made if it is not there.

    Returns:
        The files written, in the order of the probes.

    Raises:
        UserError: no finished run there.
    """
    return [
        file
        for table, rows in tabulate(read_results(find_runs(run_dirs)))
        for file in write_table_files(table.name, table.caption, rows, directory)
    ]


def tabulate(results: pd.DataFrame) -> list[tuple[Tabulation, pd.DataFrame]]:
    """Every table that the results allow, with its rows; none without rows."""
    tables = [*(table for reading in present(results) for table in reading.tables), HEADLINES, FINDINGS]
    built = {table: table.build(results) for table in tables}
    # from the numbers at hand: intervals take their time
    built[PUBLISHED] = PUBLISHED.build(built[HEADLINES])
    return [(table, rows) for table, rows in built.items() if len(rows)]


def write_table_files(name: str, caption: str, rows: pd.DataFrame, directory: str | os.PathLike) -> list[Path]:
    """Write one table as `<name>.csv` (numbers in full, UTF-8) and `<name>.tex`."""
    stem = Path(directory) / name
    files = [stem.with_name(f"{name}.csv"), stem.with_name(f"{name}.tex")]
    write_atomically(files[0], lambda path: Path(path).write_text(csv_table(rows), encoding="utf-8"))
    write_atomically(files[1], lambda path: Path(path).write_text(latex_table(rows, caption, name), encoding="utf-8"))
    return files


def csv_table(rows: pd.DataFrame) -> str:
    """A DataFrame as CSV, without its index: numbers in full, hidden characters escaped, and an apostrophe before text that
    a spreadsheet would take for a formula."""
    safe = rows.rename(columns=spreadsheet_cell)
    for position, kind in enumerate(rows.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            safe.isetitem(position, rows.iloc[:, position].astype(object).map(spreadsheet_cell).to_numpy())
    return safe.to_csv(index=False)


def latex_table(rows: pd.DataFrame, caption: str, label: str) -> str:
    """A DataFrame as a LaTeX table (package booktabs), without its index.

    Numbers are rounded to three decimals, whole ones stay whole, undefined ones are a dash; all words are escaped, and
    stand to the left where numbers stand to the right.
    """
    records = rows.astype(object).to_numpy().tolist()
    sides = ["r" if all(isinstance(cell, Real) for cell in column) else "l" for column in zip(*records, strict=True)]
    return "\n".join(
        [
            "\\begin{table}",
            f"\\caption{{{latex(caption)}}}",
            f"\\label{{tab:{label}}}",
            f"\\begin{{tabular}}{{{''.join(sides)}}}",
            "\\toprule",
            _line(rows.columns),
            "\\midrule",
            *map(_line, records),
            "\\bottomrule",
            "\\end{tabular}",
            "\\end{table}",
            "",
        ]
    )


def _line(cells: Iterable[object]) -> str:
    return " & ".join(map(_cell, cells)) + " \\\\"


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, Real):
        return latex(str(value))
    if value != value:
        return UNDEFINED
    return str(value) if isinstance(value, Integral) else f"{float(value):.3f}".replace("-", "$-$")


def latex(text: str) -> str:
    """The text for LaTeX to print as it is, on one line.

    >>> print(latex("yelp_5 · 10 %"))
    yelp\\_5 $\\cdot$ 10 \\%
    """
    return "".join(LATEX.get(character, character) for character in visible(" ".join(text.split())))


def published_rows(headlines: pd.DataFrame) -> pd.DataFrame:
    """The rows of `HEADLINES` that a paper reports as well."""
    return headlines[headlines["published"].notna()].reset_index(drop=True)


def finding_rows(results: pd.DataFrame) -> pd.DataFrame:
    """Every claim put to the test, and the comparisons of models."""
    findings = [
        finding
        for reading in present(results)
        for finding in put_to_test(reading.claims, results[results["probe"] == reading.probe])
    ]
    return pd.DataFrame([_finding(finding) for finding in [*findings, *compare_models(results)]])


def _finding(finding: Finding) -> dict[str, object]:
    claim, evidence = finding.claim, finding.evidence
    number = {"value": evidence.value, "low": evidence.low, "high": evidence.high, "n": evidence.n}
    return {
        "data": finding.data, "model": finding.model, "criterion": claim.criterion, "claim": claim.statement, **number,
        "threshold": claim.threshold, "verdict": finding.verdict, "speaks": claim.speaks, "quantity": claim.quantity,
        "source": claim.source,
    }  # fmt: skip


HEADLINES = Tabulation(
    "headlines",
    "Headline numbers of every run with 95 % intervals (bootstrap over the examples for means, Wilson's for shares of the "
    "whole split), and the published ones beside them.",
    lambda results: compare(results)[COMPARED],
)
PUBLISHED = Tabulation(
    "published", "Measured beside published numbers; the interval is the measured one's.", published_rows
)
FINDINGS = Tabulation(
    "findings",
    "Published claims put to the test. A claim holds where the whole 95 % interval lies above the threshold, fails where "
    "all of it is at or below, and is undecided otherwise.",
    finding_rows,
)
