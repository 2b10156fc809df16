"""Tables for a paper or a page: CSV to compute with, LaTeX (booktabs) to include."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path

import pandas as pd

from attnprobe.core.sanitise import spreadsheet_cell, visible
from attnprobe.findings.groups import Run, read_runs
from attnprobe.findings.headlines import compare
from attnprobe.findings.judgement import Findings, table_of
from attnprobe.findings.table import decide
from attnprobe.probes.words import FEWEST_TEXTS, PROBE, STEPS, word_table
from attnprobe.readings.registry import present
from attnprobe.results.directory import Places
from attnprobe.results.files import write_text
from attnprobe.results.numbers import Numbers
from attnprobe.results.writer import OwnFolder

LATEX = {
    "\\": "\\textbackslash{}",
    "~": "\\textasciitilde{}",
    "^": "\\textasciicircum{}",
    "<": "$<$",
    ">": "$>$",
    "|": "$|$",
    "·": "$\\cdot$",
    "×": "$\\times$",
    "−": "$-$",
    "≤": "$\\leq$",
    "≥": "$\\geq$",
    "≠": "$\\neq$",
    "‖": "$\\Vert$",
    "α": "$\\alpha$",
    "ε": "$\\varepsilon$",
    "λ": "$\\lambda$",
    "τ": "$\\tau$",
    "Δ": "$\\Delta$",
} | {character: f"\\{character}" for character in "&%$#_{}"}
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


def write_tables(run_dirs: Places, directory: str | os.PathLike) -> list[Path]:
    """Write every table that the results allow, as `<name>.csv` and `<name>.tex`.

    The probes' own (`Reading.tables`) and those of `CAPTIONS`.

    Args:
        run_dirs: a run directory, a directory above several runs, a glob pattern, or a list of
            these.
        directory: of the files.

    Returns:
        The files.

    Raises:
        UserError: no finished run there, or a file that is in the way is not as attnprobe wrote it.
    """
    runs = read_runs(run_dirs)
    numbers = Numbers.together(run.numbers for run in runs)
    tables = all_tables(numbers, compare(numbers), decide(runs))
    folder = OwnFolder(Path(directory))
    files = [file for table in tables for file in table.write(folder)]
    folder.close()
    return files


@dataclass(frozen=True)
class Table:
    """A table with its rows.

    Attributes:
        name: of its files.
        caption: what is counted.
        rows: one per line.
    """

    name: str
    caption: str
    rows: pd.DataFrame

    def write(self, directory: Path | OwnFolder) -> list[Path]:
        """Write it as `<name>.csv` (numbers in full, UTF-8) and `<name>.tex`."""
        csv = directory / f"{self.name}.csv"
        write_text(csv_table(self.rows), csv)
        tex = directory / f"{self.name}.tex"
        write_text(latex_table(self.rows, self.caption, self.name), tex)
        return [csv, tex]


def all_tables(numbers: Numbers, compared: pd.DataFrame, findings: Findings) -> Iterator[Table]:
    """Every table that the numbers allow, one at a time; none without rows.

    Args:
        numbers: of some runs.
        compared: their headline numbers (`attnprobe.findings.headlines.compare`).
        findings: what was decided on these runs.
    """
    for reading in present(numbers):
        for tabulation in reading.tables:
            rows = tabulation.build(numbers.rows(reading.probe, tabulation.metrics))
            if len(rows):
                yield Table(tabulation.name, tabulation.caption, rows)
    headlines = compared[COMPARED]
    tested = [judgement for judgement in findings.judgements if judgement.is_tested]
    lines = [line for card in findings.cards if card.is_tested for line in card.lines]
    tables = {
        "headlines": headlines,
        "findings": table_of(tested, FINDING_COLUMNS),
        "published": headlines[headlines["published"].notna()].reset_index(drop=True),
        "verdicts": table_of(lines, VERDICT_COLUMNS),
    }
    for name, rows in tables.items():
        if len(rows):
            yield Table(name, CAPTIONS[name], rows)


def csv_table(rows: pd.DataFrame) -> str:
    """A DataFrame as CSV.

    Numbers in full, hidden characters escaped, an apostrophe before what a spreadsheet would run.
    """
    safe_rows = rows.rename(columns=spreadsheet_cell)
    for position, dtype in enumerate(rows.dtypes):
        if not pd.api.types.is_numeric_dtype(dtype):
            cells = rows.iloc[:, position].astype(object).map(spreadsheet_cell)
            safe_rows.isetitem(position, cells.to_numpy())
    return safe_rows.to_csv(index=False)


def latex_table(rows: pd.DataFrame, caption: str, label: str) -> str:
    """A DataFrame as a LaTeX table (booktabs).

    Numbers with three decimals or whole, undefined ones a dash, words escaped.
    """
    records = rows.astype(object).to_numpy().tolist()
    sides = ""
    for column in zip(*records, strict=True):
        sides += "r" if all(isinstance(cell, Real) for cell in column) else "l"
    # every cell as text already: `latex` knows characters that pandas' own escaping does not
    cells = pd.DataFrame(
        [map(_cell, record) for record in records], columns=[latex(str(name)) for name in rows]
    )
    styler = cells.style.hide(axis="index")
    return styler.to_latex(
        caption=latex(caption), label=f"tab:{label}", column_format=sides, hrules=True
    )


def _cell(value: object) -> str:
    """A value as a cell of a LaTeX table."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return latex(str(value))
    if value != value:
        return "--"
    if isinstance(value, Integral):
        return str(value)
    return f"{float(value):.3f}".replace("-", "$-$")


def latex(text: str) -> str:
    """The text for LaTeX to print as it is, on one line.

    >>> print(latex("yelp_5 · 10 %"))
    yelp\\_5 $\\cdot$ 10 \\%
    """
    return "".join(LATEX.get(character, character) for character in visible(" ".join(text.split())))


def with_intervals(table: pd.DataFrame) -> pd.DataFrame:
    """The table as text, with each number's interval in the number's own column.

    The ends stand in columns called `<name> low` and `<name> high`. Numbers have three digits; NaN
    is nothing.

    >>> table = pd.DataFrame({"F1": [0.5], "F1 low": [-0.4], "F1 high": [0.6], "n": [3000]})
    >>> with_intervals(table).to_dict("list")
    {'F1': ['0.500 [−0.400, 0.600]'], 'n': ['3,000']}
    """
    columns = {name: [_short(value) for value in table[name]] for name in table}
    for name in table:
        if f"{name} low" not in columns:
            continue
        lows = columns.pop(f"{name} low")
        highs = columns.pop(f"{name} high")
        columns[name] = [
            f"{value} [{low}, {high}]" if low else value
            for value, low, high in zip(columns[name], lows, highs, strict=True)
        ]
    return pd.DataFrame(columns)


def _short(value: object) -> str:
    """A value as a reader wants it: three decimals, thousands apart, a true minus sign."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return str(value)
    if isinstance(value, Integral):
        return f"{int(value):,}"
    number = float(value)
    if number != number:
        return ""
    digits = ".3f" if abs(number) >= 0.001 or number == 0 else ".1e"
    return f"{number:{digits}}".replace("-", "−")


CAPTIONS = {
    "headlines": "Headline numbers of every run with 95 % intervals (bootstrap over the examples "
    "for means, Wilson's for shares of the whole split), and the published ones next to them.",
    "published": "Measured beside published numbers; the interval is the measured one's.",
    "findings": "Published claims put to the test. By its interval alone (interval_verdict) a "
    "claim meets what is asked for where the whole 95 % interval lies above the threshold by more "
    "than the smallest difference of interest, and fails where none of it does; with all of it "
    "that close to the threshold there is no relevant difference, and else it cannot decide. The "
    "verdict of a primary claim is corrected for the card's other claims.",
    "verdicts": "Verdicts by criterion and level, each with its primary claim's number, 95 % "
    "interval and p-value adjusted for the other claims of the model (Holm).",
}
FINDING_COLUMNS = [
    "data",
    "model",
    "group",
    "criterion",
    "level",
    "claim",
    "statement",
    "value",
    "low",
    "high",
    "n",
    "threshold",
    "smallest",
    "verdict",
    "interval_verdict",
    "primary",
    "speaks",
    "quantity",
    "source",
]
VERDICT_COLUMNS = [
    "data",
    "model",
    "group",
    "criterion",
    "level",
    "verdict",
    "reason",
    "claim",
    "statement",
    "value",
    "low",
    "high",
    "n",
    "threshold",
    "smallest",
    "p",
    "track_record",
]


CAPTION = (
    f"Every word that is in {FEWEST_TEXTS} texts or more: its attention in shares of an even one, "
    "the effect of leaving it out, beyond that of its texts' other words, flips of the decision "
    "and direction, with Student's 95 % intervals over the texts and p-values adjusted by "
    "Benjamini and Hochberg; kind says which words matter and are hidden, or are attended to and "
    "idle."
)


def word_tables(runs: Iterable[Run]) -> Iterator[Table]:
    """The tables of these runs, each called by its run where there are several.

    None where no word is in enough texts.
    """
    known_runs = list(runs)
    for run in known_runs:
        if PROBE not in run.numbers.probes:
            continue
        effects = run.numbers.rows(PROBE, (), stepped=STEPS)
        rows = word_table(effects, run.files.examples(run.split).to_pandas())
        if len(rows):
            suffix = "" if len(known_runs) == 1 else f"-{run.directory.name}"
            yield Table(f"word_table{suffix}", CAPTION, rows)


PAPERS = {
    "Jain and Wallace (2019)": (
        "permutation",
        "adversarial",
        "gradient",
        "leave_one_out",
        "correlation",
    ),
    "Serrano and Smith (2019)": ("single_weight", "erasure"),
    "DeYoung et al. (2020), ERASER": ("plausibility", "faithfulness"),
}
"""Who asked first → the probes that ask it; the others' numbers are in a last table."""
OTHERS = "this work"
PREAMBLE = r"""% Compiles as it is: pdflatex paper.tex.
% A table of it needs the packages booktabs, longtable and array.
\documentclass[10pt]{article}
\usepackage[a4paper,margin=2cm]{geometry}
\usepackage[utf8]{inputenc}
\usepackage{booktabs}
\usepackage{longtable}
\usepackage{array}
\begin{document}
\footnotesize
"""
DEFINITIONS = (
    "TVD: total variation distance of two predictions, 0 to 1; JSD: Jensen-Shannon divergence, in "
    "nats, at most ln 2 = 0.693; \u03c4: Kendall's rank correlation, \u22121 to 1. n: test texts, "
    "seeds added up. In brackets the 95 % interval over the texts, in parentheses the range over "
    "the seeds"
)
TABLE_HEAD = "\\toprule\nNumber & Data, model & $n$ & Measured & Published \\\\\n\\midrule"


def write_paper(compared: pd.DataFrame, directory: Path | OwnFolder) -> list[Path]:
    """Write `paper.tex`, a document that LaTeX compiles as it is.

    It has a table per paper, with a line per number, data set and model. Over one run a number has
    its interval, over several seeds their mean and range.

    Args:
        compared: all headline numbers (`attnprobe.findings.headlines.compare`).
        directory: of the file.

    Returns:
        Its path; nothing where there is no number.
    """
    overall = compared[compared["group"] == "overall"]
    published = {probe for probes in PAPERS.values() for probe in probes}
    unpublished = tuple(probe for probe in overall["probe"].unique() if probe not in published)
    tables = []
    for number, (paper, probes) in enumerate([*PAPERS.items(), (OTHERS, unpublished)]):
        rows = overall[overall["probe"].isin(probes)]
        if not rows.empty:
            tables += _paper_table(paper, number, rows)
    if not tables:
        return []
    path = directory / "paper.tex"
    body = "\n".join(tables)
    write_text(f"{PREAMBLE}{body}\\end{{document}}\n", path)
    return [path]


def _paper_table(paper: str, number: int, rows: pd.DataFrame) -> list[str]:
    """The lines of one paper's table."""
    kind = "Numbers" if paper == OTHERS else "The tests"
    caption = _printable(f"{kind} of {paper}. {DEFINITIONS}.")
    lines = [
        "\\begin{longtable}{@{}>{\\raggedright}p{5.6cm}>{\\raggedright}p{3.6cm}rp{3.4cm}r@{}}",
        f"\\caption{{{caption}}}\\label{{tab:paper{number}}}\\\\",
        f"{TABLE_HEAD}\n\\endfirsthead\n{TABLE_HEAD}\n\\endhead",
    ]
    # not by title: every pair of importances has its "standard deviation"
    keys = ["data", "model", "probe", "metric"]
    for (data, model, _, _), run_rows in rows.groupby(keys, sort=False, observed=True):
        lines.append(_paper_line(f"{data}, {model}", run_rows))
    lines.append("\\bottomrule\n\\end{longtable}\n")
    return lines


def _paper_line(where: str, rows: pd.DataFrame) -> str:
    """A number over the seeds, with its interval or range, beside the published one."""
    title = str(rows["title"].iloc[0])
    values = rows["mean"].to_numpy(float)
    spread = f" ({_cell(values.min())} to {_cell(values.max())})"
    if len(rows) == 1:
        low, high = rows[["low", "high"]].iloc[0]
        spread = "" if pd.isna(low) else f" [{_cell(low)}, {_cell(high)}]"
    published = rows["published"].dropna()
    # a number that belongs to the one above it, its further lines too
    indent = "\\hangindent=1em\\quad " if title.startswith(" ") else ""
    cells = [
        indent + _printable(title.strip()),
        _printable(where),
        str(int(rows["n"].sum())),
        f"{_cell(values.mean())}{spread}",
        _cell(published.iloc[0]) if len(published) else "",
    ]
    return " & ".join(cells) + " \\\\"


def _printable(text: str) -> str:
    """The text for LaTeX; a character that its own fonts lack stands as its number."""
    characters = []
    for character in text:
        has_glyph = ord(character) < 0x180 or latex(character) != character
        characters.append(character if has_glyph else f"[U+{ord(character):04X}]")
    return latex("".join(characters))
