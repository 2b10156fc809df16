"""What a terminal shows: the answer in a few lines, and on demand every headline number beside the
published ones."""

import io
import os
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

import numpy as np
import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnprobe.core.sanitise import visible
from attnprobe.evidence.published import REMARKS
from attnprobe.evidence.reading import readings
from attnprobe.evidence.verdicts import Answer, Chip
from attnprobe.findings.judgement import Card, Judgement
from attnprobe.findings.quality import Quality
from attnprobe.results.pivot import RUN, class_of

WIDTH = 80
GAUGE = 41
MOST_CLASSES = 4
"""Rows per class are shown for at most this many predicted classes; all are in the tables."""


def safe(text: str, style: str = "") -> Text:
    """Text without markup, its hidden characters shown as escapes."""
    return Text(visible(text), style=style)


def terminal_table(
    columns: Mapping[str, Mapping[str, Any]],
    rows: Iterable[Sequence[str | Text]],
    *,
    lines: bool,
    **settings: Any,
) -> Table:
    """A table of words, its lines as a terminal draws them or else in ASCII. `columns`: heading →
    what rich is told of the column; `settings`: of the table."""
    frame = box.SIMPLE_HEAD if lines else box.ASCII
    table = Table(box=frame, title_justify="left", caption_justify="left", **settings)
    for heading, options in columns.items():
        table.add_column(safe(heading), **options)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else safe(cell) for cell in row))
    return table


def print_summary(
    numbers: pd.DataFrame,
    *,
    classes: Sequence[str] = (),
    directory: str | os.PathLike | None = None,
    stream: TextIO | None = None,
) -> None:
    """Print the headline numbers: with colours and lines on a terminal, in plain ASCII lines into a
    file or pipe.

    Args:
        numbers: of one run or several, as `attnprobe.findings.headlines.compare` gives them.
        classes: the names of the classes; their numbers stand for them where there are none.
        directory: where the results are; printed below the table, on one line that can be copied.
        stream: standard output if None. Characters that its encoding does not know are shown as
            `?`.
    """
    stream = sys.stdout if stream is None else stream
    terminal = stream.isatty()
    page = io.StringIO()
    width, system = (None, "auto") if terminal else (110, None)
    console = Console(file=page, force_terminal=terminal, width=width, color_system=system)  # type: ignore[arg-type]
    papers = sorted({source.split(",")[0] for source in numbers["source"] if source})
    right: dict[str, Any] = {"justify": "right", "no_wrap": True}
    columns = {
        "measure": {"overflow": "fold"},
        "mean": right,
        "95 % interval": right,
        "published": right,
        "difference": right,
        "n": right,
    }
    caption = Text("\n".join(f"published: {paper} ({REMARKS[paper]})" for paper in papers))
    table = terminal_table(columns, [], lines=terminal, caption=caption)
    several = numbers["run_id"].nunique() > 1
    for key, run in numbers.groupby(list(RUN), sort=True):
        named = dict(zip(RUN, key, strict=True))
        words = [named["data"], named["model"], f"seed {named['seed']}", named["split"]]
        table.add_section()
        table.add_row(
            safe(", ".join(map(str, [*words, named["run_id"]] if several else words)), "bold")
        )
        for probe, part in run.groupby("probe", sort=False):
            table.add_section()
            table.add_row(safe(str(probe), "bold cyan"))
            many = part.loc[part["group"] != "overall", "group"].nunique() > MOST_CLASSES
            rows: list[Any] = part.to_dict("records")
            for row in rows:
                overall = row["group"] == "overall"
                if overall or not many:
                    table.add_row(
                        safe(
                            f"  {row['title']}"
                            if overall
                            else f"    predicted {class_of(row['group'], classes)}"
                        ),
                        "undefined" if np.isnan(row["mean"]) else f"{row['mean']:.3f}",
                        "" if np.isnan(row["low"]) else f"{row['low']:.3f} to {row['high']:.3f}",
                        "" if np.isnan(row["published"]) else f"{row['published']:.3f}",
                        "" if np.isnan(row["difference"]) else f"{row['difference']:+.3f}",
                        f"{row['n']:,}" if row["n"] else "",
                    )
    console.print(table)
    if directory is not None:
        console.print(safe(f"results: {os.fspath(directory)}"), soft_wrap=True)
    encoding = stream.encoding or "utf-8"
    stream.write(page.getvalue().encode(encoding, errors="replace").decode(encoding))
    stream.flush()


def data_notes(counts: Mapping[str, Any]) -> list[str]:
    """One line for everything that a run left out of its data or cut, by the manifest's counts;
    none if there is none.

    >>> data_notes({"test": {"loaded": 9, "dropped": {"text is null": 2, "too long": 0}, "truncated": 1}})
    ['test: 9 rows. Left out: 2 (text is null). 1 text cut']
    """
    notes = []
    for split, count in counts.items():
        whole = count.get("loaded", count.get("drawn from train"))
        left = [
            f"{number:,} ({reason})"
            for reason, number in count.get("dropped", {}).items()
            if number
        ]
        parts = (
            [f"{whole:,} rows", f"Left out: {', '.join(left)}"]
            if left and whole is not None
            else []
        )
        for name, where in (
            ("truncated", ""),
            ("cut at the model's longest text", " at the model's longest"),
        ):
            if cut := count.get(name):
                parts.append(f"{cut:,} text{'s' if cut > 1 else ''} cut{where}")
        if "vocabulary" in count:
            parts.append(f"{count['found']:,} of {count['vocabulary']:,} words found")
        if parts:
            notes.append(visible(f"{split}: {'. '.join(parts)}"))
    return notes


def notes_of_tests(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """By the `tables` of some runs' manifests: what a probe measured again because its first
    numbers failed its own check, each sentence once; and the seconds of each test, the slowest
    first, in a line or none."""
    again = []
    for probe, reading in readings().items():
        notes = [one[probe].get("notes", {}) for one in tables if probe in one]
        if reading.noted is not None and any(one.get("texts_remeasured") for one in notes):
            again.append(reading.noted(notes))
    seconds: Counter[str] = Counter()
    for some in tables:
        seconds.update({probe: one.get("seconds", 0.0) for probe, one in some.items()})
    taken = ", ".join(f"{probe} {time:.1f}" for probe, time in seconds.most_common() if time > 0)
    return [*dict.fromkeys(again), *([f"seconds of the tests: {taken}"] if taken else [])]


FEW = 2
"""Untested questions up to which each is named with what would test it."""


def answer_lines(
    card: Card,
    quality: Quality | None = None,
    attention_on: str = "",
    more: str = "attnprobe audit, or +experiment=audit, asks most of them",
) -> list[str]:
    """Chip, sentence and gauge, a line for every question that was answered, one for the open and
    one for the untested ones, and what to show instead.

    Args:
        card: what is decided about a model.
        quality: how good the model is; None where that is not known.
        attention_on: where the attention is, if a reader must know it.
        more: how many untested questions get their answer.
    """

    def item(head: str, words: str) -> list[str]:
        return textwrap.wrap(
            visible(words), WIDTH, initial_indent=f"  {head:10}", subsequent_indent=" " * 12
        )

    summary = card.summary
    lines = [visible(f"{card.group}: {summary.chip}")]
    lines += [f"  {part}" for part in textwrap.wrap(summary.sentence, WIDTH - 2)]
    about_model = [] if quality is None else item("model", quality.in_short)
    if attention_on:
        about_model += item("attention", attention_on)
    if summary.chip is Chip.POOR:
        remedy = "more texts, training.epochs=…, or another model (model=…)"
        return [*lines, *about_model, *item("to do", remedy)]

    if summary.gauge is not None:
        lines.append(gauge_line(summary.gauge))
    for line in summary.answered:
        span = "" if np.isnan(line.low) else f" [{line.low:.2f}, {line.high:.2f}]"
        unproven = "" if line.ticked or line.answer is not Answer.YES else " no track record"
        lines += item(line.answer, f"{line.yes:32} {line.value:.2f}{span}{unproven}")
    if summary.open:
        lines += item(Answer.OPEN, " · ".join(line.yes for line in summary.open))
    untested = [f"{line.yes} ({line.reason})" for line in summary.untested]
    if len(untested) > FEW:
        further = "more " if summary.answered or summary.open else ""
        lines += item(Answer.UNTESTED, f"{len(untested)} {further}questions; {more}")
    elif untested:
        lines += item(Answer.UNTESTED, " · ".join(untested))
    for method in summary.instead:
        lines += item("instead", method)
    return lines + about_model


def gauge_line(line: Judgement) -> str:
    """A number between chance, 0, and the best that is possible, 1; `=` is its interval."""
    place, first, last = (
        round(min(max(number, 0.0), 1.0) * (GAUGE - 1))
        for number in (line.value, line.low, line.high)
    )
    scale = ["-"] * GAUGE
    scale[first : last + 1] = "=" * (last + 1 - first)
    scale[place] = "#"
    return f"  chance 0 |{''.join(scale)}| 1 best  {line.value:.2f}, asked {line.asked:.2f}"
