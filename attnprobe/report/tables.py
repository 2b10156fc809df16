"""Tables for a paper or a page: CSV to compute with, LaTeX (booktabs) to include."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from numbers import Integral, Real
from pathlib import Path

import pandas as pd

from attnprobe.core.sanitise import spreadsheet_cell, visible
from attnprobe.evidence.reading import present
from attnprobe.findings.groups import Run, read_runs
from attnprobe.findings.headlines import compare
from attnprobe.findings.judgement import Findings, table_of
from attnprobe.findings.table import decide
from attnprobe.probes.words import FEWEST_TEXTS, PROBE, STEPS, word_table
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


def write_tables(
    run_dirs: str | os.PathLike | Iterable[str | os.PathLike], directory: str | os.PathLike
) -> list[Path]:
    """Write every table that the results allow, the probes' own (`Reading.tables`) and those of
    `CAPTIONS`, as `<name>.csv` and `<name>.tex`; returns the files.

    Args:
        run_dirs: a run directory, a directory above several runs, a glob pattern, or a list of
            these.

    Raises:
        UserError: no finished run there.
    """
    runs = read_runs(run_dirs)
    numbers = Numbers.together(run.numbers for run in runs)
    tables = all_tables(numbers, compare(numbers), decide(runs))
    return [file for table in tables for file in table.write(Path(directory))]


@dataclass(frozen=True)
class Table:
    """A table that is there: `name` is its files', `caption` says what is counted; `rows` has one
    row per line."""

    name: str
    caption: str
    rows: pd.DataFrame

    def write(self, directory: Path | OwnFolder) -> list[Path]:
        """Write it as `<name>.csv` (numbers in full, UTF-8) and `<name>.tex`."""
        csv, tex = (directory / f"{self.name}.{kind}" for kind in ("csv", "tex"))
        write_text(csv_table(self.rows), csv)
        write_text(latex_table(self.rows, self.caption, self.name), tex)
        return [csv, tex]


def all_tables(numbers: Numbers, compared: pd.DataFrame, found: Findings) -> Iterator[Table]:
    """Every table that the numbers allow; none without rows. The probes' own are made one at a
    time. `compared`: `attnprobe.findings.headlines.compare` of the numbers; `found`: the findings
    on their runs."""
    for reading in present(numbers):
        for one in reading.tables:
            rows = one.build(numbers.rows(reading.probe, one.metrics))
            if len(rows):
                yield Table(one.name, one.caption, rows)
    headlines = compared[COMPARED]
    tested = [judgement for judgement in found.judgements if judgement.is_tested]
    lines = [line for card in found.cards if card.is_tested for line in card.lines]
    for name, rows in (
        ("headlines", headlines),
        ("findings", table_of(tested, FINDING_COLUMNS)),
        ("published", headlines[headlines["published"].notna()].reset_index(drop=True)),
        ("verdicts", table_of(lines, VERDICT_COLUMNS)),
    ):
        if len(rows):
            yield Table(name, CAPTIONS[name], rows)


def csv_table(rows: pd.DataFrame) -> str:
    """A DataFrame as CSV: numbers in full, hidden characters escaped, an apostrophe before what a
    spreadsheet would run."""
    safe = rows.rename(columns=spreadsheet_cell)
    for position, kind in enumerate(rows.dtypes):
        if not pd.api.types.is_numeric_dtype(kind):
            safe.isetitem(
                position, rows.iloc[:, position].astype(object).map(spreadsheet_cell).to_numpy()
            )
    return safe.to_csv(index=False)


def latex_table(rows: pd.DataFrame, caption: str, label: str) -> str:
    """A DataFrame as a LaTeX table (booktabs): numbers with three decimals or whole, undefined ones
    a dash, words escaped."""
    records = rows.astype(object).to_numpy().tolist()
    sides = [
        "r" if all(isinstance(cell, Real) for cell in column) else "l"
        for column in zip(*records, strict=True)
    ]
    # every cell as text already: `latex` knows characters that pandas' own escaping does not
    cells = pd.DataFrame(
        [map(_cell, record) for record in records], columns=[latex(str(name)) for name in rows]
    )
    styler = cells.style.hide(axis="index")
    return styler.to_latex(
        caption=latex(caption), label=f"tab:{label}", column_format="".join(sides), hrules=True
    )


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, Real):
        return latex(str(value))
    if value != value:
        return "--"
    return str(value) if isinstance(value, Integral) else f"{float(value):.3f}".replace("-", "$-$")


def latex(text: str) -> str:
    """The text for LaTeX to print as it is, on one line.

    >>> print(latex("yelp_5 · 10 %"))
    yelp\\_5 $\\cdot$ 10 \\%
    """
    return "".join(LATEX.get(character, character) for character in visible(" ".join(text.split())))


def with_intervals(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its cells as text, and each number's ends, in columns called `<name> low` and
    `<name> high`, put into the number's own column. Numbers have three digits; NaN is nothing.

    >>> with_intervals(pd.DataFrame({"F1": [0.5], "F1 low": [-0.4], "F1 high": [0.6], "n": [3000]})).to_dict("list")
    {'F1': ['0.500 [−0.400, 0.600]'], 'n': ['3,000']}
    """

    def text(value: object) -> str:
        if isinstance(value, bool) or not isinstance(value, Real):
            return str(value)
        if isinstance(value, Integral):
            return f"{int(value):,}"
        exact = float(value)
        said = f"{exact:.3f}" if abs(exact) >= 0.001 or exact == 0 else f"{exact:.1e}"
        return "" if exact != exact else said.replace("-", "−")

    shown = {name: [text(value) for value in table[name]] for name in table}
    for name in table:
        if f"{name} low" in shown:
            spans = zip(
                shown[name], shown.pop(f"{name} low"), shown.pop(f"{name} high"), strict=True
            )
            shown[name] = [
                f"{middle} [{low}, {high}]" if low else middle for middle, low, high in spans
            ]
    return pd.DataFrame(shown)


CAPTIONS = {
    "headlines": "Headline numbers of every run with 95 % intervals (bootstrap over the examples for means, Wilson's for "
    "shares of the whole split), and the published ones next to them.",
    "published": "Measured beside published numbers; the interval is the measured one's.",
    "findings": "Published claims put to the test. By its interval alone (interval_verdict) a claim meets what is asked for "
    "where the whole 95 % interval lies above the threshold by more than the smallest difference of interest, and fails "
    "where none of it does; with all of it that close to the threshold there is no relevant difference, and else it cannot "
    "decide. The verdict of a primary claim is corrected for the card's other claims.",
    "verdicts": "Verdicts by criterion and level, each with its primary claim's number, 95 % interval and p-value adjusted "
    "for the other claims of the model (Holm).",
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
    f"Every word that is in {FEWEST_TEXTS} texts or more: its attention in shares of an even one, the effect of leaving it out, "
    "beyond that of its texts' other words, flips of the decision and direction, with Student's 95 % intervals over the "
    "texts and p-values adjusted by Benjamini and Hochberg; kind says which words matter and are hidden, or are attended "
    "to and idle."
)


def word_tables(runs: Iterable[Run]) -> Iterator[Table]:
    """The tables of these runs, of several each called by its run; none where no word is in texts
    enough."""
    several = list(runs)
    for run in several:
        if PROBE in run.numbers.probes:
            rows = word_table(
                run.numbers.rows(PROBE, (), stepped=STEPS),
                run.files.examples(run.split).to_pandas(),
            )
            if len(rows):
                yield Table(
                    "word_table" if len(several) == 1 else f"word_table-{run.directory.name}",
                    CAPTION,
                    rows,
                )


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
PREAMBLE = r"""% Compiles as it is: pdflatex paper.tex. A table of it needs the packages booktabs, longtable and array.
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
    "TVD: total variation distance of two predictions, 0 to 1; JSD: Jensen-Shannon divergence, in nats, at most ln 2 = "
    "0.693; \u03c4: Kendall's rank correlation, \u22121 to 1. n: test texts, seeds added up. In brackets the 95 % interval "
    "over the texts, in parentheses the range over the seeds"
)


def write_paper(compared: pd.DataFrame, directory: Path | OwnFolder) -> list[Path]:
    """Write `paper.tex`, a document that LaTeX compiles as it is; returns its path, nothing where
    there is no number.

    It has a table per paper, with a line per number, data set and model. Over one run a number has
    its interval, over several seeds their mean and range. `compared`: all headline numbers
    (`attnprobe.findings.headlines.compare`)."""

    def printable(text: str) -> str:
        # a character that LaTeX's own fonts lack by its number
        return latex(
            "".join(
                one if ord(one) < 0x180 or latex(one) != one else f"[U+{ord(one):04X}]"
                for one in text
            )
        )

    overall = compared[compared["group"] == "overall"]
    named = {probe for probes in PAPERS.values() for probe in probes}
    left = tuple(probe for probe in overall["probe"].unique() if probe not in named)
    head = "\\toprule\nNumber & Data, model & $n$ & Measured & Published \\\\\n\\midrule"
    tables = []
    for number, (paper, probes) in enumerate([*PAPERS.items(), (OTHERS, left)]):
        rows = overall[overall["probe"].isin(probes)]
        if rows.empty:
            continue
        caption = f"{'Numbers' if paper == OTHERS else 'The tests'} of {paper}. {DEFINITIONS}."
        tables += [
            "\\begin{longtable}{@{}>{\\raggedright}p{5.6cm}>{\\raggedright}p{3.6cm}rp{3.4cm}r@{}}",
            f"\\caption{{{printable(caption)}}}\\label{{tab:paper{number}}}\\\\",
            f"{head}\n\\endfirsthead\n{head}\n\\endhead",
        ]
        # not by title: every pair of importances has its "standard deviation"
        for (data, model, _, _), own in rows.groupby(
            ["data", "model", "probe", "metric"], sort=False, observed=True
        ):
            title = str(own["title"].iloc[0])
            values = own["mean"].to_numpy(float)
            spread = f" ({_cell(values.min())} to {_cell(values.max())})"
            if len(own) == 1:
                low, high = own[["low", "high"]].iloc[0]
                spread = "" if pd.isna(low) else f" [{_cell(low)}, {_cell(high)}]"
            published = own["published"].dropna()
            # a number that belongs to the one above it, its further lines too
            inner = "\\hangindent=1em\\quad " if title.startswith(" ") else ""
            cells = [
                inner + printable(title.strip()),
                printable(f"{data}, {model}"),
                str(int(own["n"].sum())),
            ]
            cells += [
                f"{_cell(values.mean())}{spread}",
                _cell(published.iloc[0]) if len(published) else "",
            ]
            tables.append(" & ".join(cells) + " \\\\")
        tables.append("\\bottomrule\n\\end{longtable}\n")
    if not tables:
        return []
    path = directory / "paper.tex"
    write_text(f"{PREAMBLE}{chr(10).join(tables)}\\end{{document}}\n", path)
    return [path]
