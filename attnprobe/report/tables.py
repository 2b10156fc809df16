"""Tables for a paper or a page: CSV to compute with, LaTeX (booktabs) to include."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path

import pandas as pd

from attnprobe.report.claims import Finding, findings
from attnprobe.report.comparisons import compare_models
from attnprobe.report.numbers import Numbers, read_numbers
from attnprobe.report.published import compare
from attnprobe.report.reading import present
from attnprobe.results.files import write_atomically
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
    numbers = read_numbers(run_dirs)
    return [
        file
        for table in all_tables(numbers, compare(numbers), all_findings(numbers))
        for file in table.write(directory)
    ]


@dataclass(frozen=True)
class Table:
    """A table that is there: `name` is its files', `caption` says what is counted; `rows` has one row per line."""

    name: str
    caption: str
    rows: pd.DataFrame

    def write(self, directory: str | os.PathLike) -> list[Path]:
        """Write it as CSV and LaTeX, as `write_table_files`."""
        return write_table_files(self.name, self.caption, self.rows, directory)


def all_tables(numbers: Numbers, compared: pd.DataFrame, findings: Sequence[tuple[str, Finding]]) -> Iterator[Table]:
    """Every table that the numbers allow; none without rows. The probes' own are made one at a time.

    Args:
        numbers: of the runs.
        compared: `attnprobe.report.published.compare` of them.
        findings: where, and what was found.
    """
    for reading in present(numbers):
        for one in reading.tables:
            rows = one.built(numbers, reading.probe)
            if len(rows):
                yield Table(one.name, one.caption, rows)
    headlines = compared[COMPARED]
    finding_rows = pd.DataFrame([finding_row(where, finding) for where, finding in findings])
    for (name, caption), rows in (
        (HEADLINES, headlines),
        (FINDINGS, finding_rows),
        (PUBLISHED, published_rows(headlines)),
    ):
        if len(rows):
            yield Table(name, caption, rows)


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
    are aligned to the left, numbers to the right.
    """
    records = rows.astype(object).to_numpy().tolist()
    sides = ["r" if all(isinstance(cell, Real) for cell in column) else "l" for column in zip(*records, strict=True)]
    # every cell as text already: `latex` knows characters that pandas' own escaping does not
    cells = pd.DataFrame([map(_cell, record) for record in records], columns=[latex(str(name)) for name in rows])
    styler = cells.style.hide(axis="index")
    return styler.to_latex(caption=latex(caption), label=f"tab:{label}", column_format="".join(sides), hrules=True)


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


def all_findings(numbers: Numbers) -> list[tuple[str, Finding]]:
    """Every claim put to the test, and the comparisons of models: where, and what was found."""
    tested = [one for reading in present(numbers) for one in findings(reading.claims, numbers, reading.probe)]
    return [(f"{one.data} · {one.model}", one) for one in [*tested, *compare_models(numbers)]]


def finding_row(where: str, finding: Finding) -> dict[str, object]:
    """A line of `FINDINGS`."""
    claim, evidence = finding.claim, finding.evidence
    number = {"value": evidence.value, "low": evidence.low, "high": evidence.high, "n": evidence.n}
    return {
        "data": finding.data, "model": finding.model, "where": where, "criterion": claim.criterion,
        "claim": claim.statement, **number, "threshold": claim.threshold, "smallest": claim.smallest, "level": claim.level,
        "verdict": finding.verdict, "speaks": claim.speaks, "quantity": claim.quantity, "source": claim.source,
    }  # fmt: skip


HEADLINES = (
    "headlines",
    "Headline numbers of every run with 95 % intervals (bootstrap over the examples for means, Wilson's for shares of the "
    "whole split), and the published ones next to them.",
)
PUBLISHED = ("published", "Measured beside published numbers; the interval is the measured one's.")
FINDINGS = (
    "findings",
    "Published claims put to the test. A claim holds where the whole 95 % interval lies above the threshold by more than the "
    "smallest difference of interest, and fails where none of it does; with all of it that close to the threshold there is "
    "no relevant difference, and else it is undecided.",
)
