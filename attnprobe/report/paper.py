"""paper.tex: the headline numbers of all runs, one table per paper, as a document that LaTeX compiles as it is."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from attnprobe.report.tables import latex
from attnprobe.results.files import write_text

PAPERS = {
    "Jain and Wallace (2019)": ("permutation", "adversarial", "gradient", "leave_one_out", "correlation"),
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


@dataclass(frozen=True)
class Paper:
    """The document; `compared` are all headline numbers (`attnprobe.report.published.compare`)."""

    compared: pd.DataFrame

    def write(self, directory: str | os.PathLike) -> list[Path]:
        """Write `paper.tex`; returns its path, nothing where there is no number."""
        tables = "\n".join(self.tables())
        if not tables:
            return []
        path = Path(directory) / "paper.tex"
        write_text(f"{PREAMBLE}{tables}\\end{{document}}\n", path)
        return [path]

    def tables(self) -> Iterator[str]:
        """One table per paper."""
        overall = self.compared[self.compared["group"] == "overall"]
        named = {probe for probes in PAPERS.values() for probe in probes}
        left = [probe for probe in overall["probe"].unique() if probe not in named]
        for number, (paper, probes) in enumerate([*PAPERS.items(), (OTHERS, left)]):
            rows = overall[overall["probe"].isin(list(probes))]
            if len(rows):
                yield table(paper, f"paper{number}", rows)


def table(paper: str, label: str, rows: pd.DataFrame) -> str:
    """A table that may run over several pages: a line per number, data set and model."""
    lines = []
    # not by title: every pair of importances has its "standard deviation"
    for (data, model, _, _), own in rows.groupby(["data", "model", "probe", "metric"], sort=False, observed=True):
        lines.append(line(str(own["title"].iloc[0]), str(data), str(model), own))
    caption = f"Numbers of {paper}. {DEFINITIONS}." if paper == OTHERS else f"The tests of {paper}. {DEFINITIONS}."
    head = "Number & Data, model & $n$ & Measured & Published \\\\"
    return "\n".join(
        [
            "\\begin{longtable}{@{}>{\\raggedright}p{5.6cm}>{\\raggedright}p{3.6cm}rp{3.4cm}r@{}}",
            f"\\caption{{{printable(caption)}}}\\label{{tab:{label}}}\\\\",
            f"\\toprule\n{head}\n\\midrule\n\\endfirsthead",
            f"\\toprule\n{head}\n\\midrule\n\\endhead",
            *lines,
            "\\bottomrule\n\\end{longtable}\n",
        ]
    )


def line(title: str, data: str, model: str, rows: pd.DataFrame) -> str:
    """One number: over one run its interval, over several seeds their mean and range."""
    values = rows["mean"].to_numpy(float)
    if len(rows) == 1:
        spread = f" [{number(rows['low'].iloc[0])}, {number(rows['high'].iloc[0])}]"
        spread = "" if rows["low"].isna().iloc[0] else spread
    else:
        spread = f" ({number(values.min())} to {number(values.max())})"
    published = rows["published"].dropna()
    # a number that belongs to the one above it, its further lines too
    inner = "\\hangindent=1em\\quad " if title.startswith(" ") else ""
    cells = [inner + printable(title.strip()), printable(f"{data}, {model}"), f"{int(rows['n'].sum())}"]
    cells += [f"{number(values.mean())}{spread}", number(published.iloc[0]) if len(published) else ""]
    return " & ".join(cells) + " \\\\"


def number(value: Any) -> str:
    """Three decimals, with a true minus sign."""
    return "--" if value != value else f"{float(value):.3f}".replace("-", "$-$")


def printable(text: str) -> str:
    """Text that LaTeX's own fonts have; a character that they lack by its number.

    >>> print(printable("映_a"))
    [U+6620]\\_a
    """
    known = "".join(one if ord(one) < 0x180 or latex(one) != one else f"[U+{ord(one):04X}]" for one in text)
    return latex(known)
