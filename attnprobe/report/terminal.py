"""What a terminal shows: the answer in a few lines, and on demand every headline number."""

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

from attnprobe.core.printing import WIDTH
from attnprobe.core.sanitise import visible
from attnprobe.evidence.published import REMARKS
from attnprobe.evidence.verdicts import Answer
from attnprobe.findings.judgement import Judgement, Summary
from attnprobe.findings.sheet import UNPROVEN, Sheet, gauge_title
from attnprobe.readings.registry import readings
from attnprobe.results.pivot import RUN, class_of

GAUGE = 41
QUESTION = 44
"""Columns of the question before its number."""
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
    """A table of words.

    Args:
        columns: heading → options of rich for the column.
        rows: their cells.
        lines: whether rules are drawn as on a terminal; otherwise in ASCII.
        settings: options of rich for the table.
    """
    frame = box.SIMPLE_HEAD if lines else box.ASCII
    table = Table(box=frame, title_justify="left", caption_justify="left", **settings)
    for heading, options in columns.items():
        table.add_column(safe(heading), **options)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else safe(cell) for cell in row))
    return table


PUBLISHED = ("published", "difference")
"""Columns of a data set that a paper has numbers of."""
WIDTH_OF_PUBLISHED = 30
"""Columns of the terminal that these take."""


def print_summary(
    numbers: pd.DataFrame,
    *,
    classes: Sequence[str] = (),
    directory: str | os.PathLike | None = None,
    stream: TextIO | None = None,
) -> None:
    """Print the headline numbers.

    With colours and lines on a terminal, in plain ASCII lines into a file or pipe.

    Args:
        numbers: of one run or several, as `attnprobe.findings.headlines.compare` gives them.
        classes: the names of the classes; their numbers stand for them where there are none.
        directory: where the results are; printed below the table, on one line that can be copied.
        stream: standard output if None. Characters that its encoding does not know are shown as
            `?`.
    """
    stream = sys.stdout if stream is None else stream
    is_terminal = stream.isatty()
    papers = sorted({source.split(",")[0] for source in numbers["source"] if source})
    page = io.StringIO()
    console = Console(
        file=page,
        force_terminal=is_terminal,
        width=None if is_terminal else WIDTH + (WIDTH_OF_PUBLISHED if papers else 0),
        color_system="auto" if is_terminal else None,
    )
    right: dict[str, Any] = {"justify": "right", "no_wrap": True}
    columns = {"measure": {"overflow": "fold"}, "mean": right, "95 % interval": right}
    if papers:
        columns |= dict.fromkeys(PUBLISHED, right)
    columns["n"] = right
    caption = Text("\n".join(f"published: {paper} ({REMARKS[paper]})" for paper in papers))
    table = terminal_table(columns, [], lines=is_terminal, caption=caption)
    names_runs = numbers["run_id"].nunique() > 1
    for key, rows in numbers.groupby(list(RUN), sort=True):
        identity = dict(zip(RUN, key, strict=True))
        title = [identity["data"], identity["model"], f"seed {identity['seed']}", identity["split"]]
        if names_runs:
            title.append(identity["run_id"])
        table.add_section()
        table.add_row(safe(", ".join(map(str, title)), "bold"))
        for probe, probe_rows in rows.groupby("probe", sort=False):
            table.add_section()
            table.add_row(safe(str(probe), "bold cyan"))
            _add_numbers(table, probe_rows, classes, published=bool(papers))
    console.print(table)
    if directory is not None:
        console.print(safe(f"results: {os.fspath(directory)}"), soft_wrap=True)
    encoding = stream.encoding or "utf-8"
    stream.write(page.getvalue().encode(encoding, errors="replace").decode(encoding))
    stream.flush()


def _add_numbers(
    table: Table, rows: pd.DataFrame, classes: Sequence[str], *, published: bool
) -> None:
    """Add a line per number; those of the classes only where these are few.

    Args:
        table: that is added to.
        rows: of one probe.
        classes: the names of the classes.
        published: the table has the columns `PUBLISHED`.
    """
    is_of_class = rows["group"] != "overall"
    if rows.loc[is_of_class, "group"].nunique() > MOST_CLASSES:
        rows = rows[~is_of_class]
    records: list[Any] = rows.to_dict("records")
    for row in records:
        title = f"  {row['title']}"
        if row["group"] != "overall":
            title = f"    predicted {class_of(row['group'], classes)}"
        cells = [
            "undefined" if np.isnan(row["mean"]) else f"{row['mean']:.3f}",
            "" if np.isnan(row["low"]) else f"{row['low']:.3f} to {row['high']:.3f}",
        ]
        if published:
            cells += [
                "" if np.isnan(row["published"]) else f"{row['published']:.3f}",
                "" if np.isnan(row["difference"]) else f"{row['difference']:+.3f}",
            ]
        table.add_row(safe(title), *cells, f"{row['n']:,}" if row["n"] else "")


def data_notes(counts: Mapping[str, Any]) -> list[str]:
    """One line per split for what a run left out of its data or cut, by the manifest's counts.

    >>> dropped = {"text is null": 2, "too long": 0}
    >>> data_notes({"test": {"loaded": 9, "dropped": dropped, "truncated": 1}})
    ['test: 9 rows. Left out: 2 (text is null). 1 text cut']
    """
    notes = []
    for split, count in counts.items():
        parts = _left_out(count)
        for name, place in CUTS.items():
            cut = count.get(name)
            if cut:
                parts.append(f"{cut:,} text{'s' if cut > 1 else ''} cut{place}")
        if "vocabulary" in count:
            parts.append(f"{count['found']:,} of {count['vocabulary']:,} words found")
        if parts:
            notes.append(visible(f"{split}: {'. '.join(parts)}"))
    return notes


CUTS = {"truncated": "", "cut at the model's longest text": " at the model's longest"}
"""Counts of texts that were cut → where, in words."""


def _left_out(count: Mapping[str, Any]) -> list[str]:
    """How many rows a split had, and which of them were left out, if any were."""
    total = count.get("loaded", count.get("drawn from train"))
    dropped = count.get("dropped", {}).items()
    reasons = [f"{number:,} ({reason})" for reason, number in dropped if number]
    if not reasons or total is None:
        return []
    return [f"{total:,} rows", f"Left out: {', '.join(reasons)}"]


def notes_of_tests(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the manifests of some runs say about their tests.

    Args:
        tables: the manifests' `tables`.

    Returns:
        What a probe measured again because its first numbers failed its own check, each sentence
        once; and the seconds of each test, the slowest first, in one line.
    """
    sentences = []
    for probe, reading in readings().items():
        notes = [run_tables[probe].get("notes", {}) for run_tables in tables if probe in run_tables]
        if reading.noted is not None and any(note.get("texts_remeasured") for note in notes):
            sentences.append(reading.noted(notes))
    seconds: Counter[str] = Counter()
    for run_tables in tables:
        for probe, table in run_tables.items():
            seconds[probe] += table.get("seconds", 0.0)
    times = [f"{probe} {time:.1f}" for probe, time in seconds.most_common() if time > 0]
    if times:
        sentences.append(f"seconds of the tests: {', '.join(times)}")
    return list(dict.fromkeys(sentences))


FEW = 2
"""Untested questions up to which each is named with what would test it."""


def answer_lines(sheet: Sheet) -> list[str]:
    """The sheet of one model, line by line.

    What was tested, the question with its answer, the number behind it on a scale, a line for every
    question that was answered, one for the open and one for the untested ones, and the limits.
    """
    summary = sheet.summary
    lines = textwrap.wrap(visible(sheet.title), WIDTH)
    for entry in (*sheet.tested, *sheet.asked):
        lines += _item(entry.heading, entry.text)
    if summary.gauge is not None:
        lines += gauge_lines(summary.gauge)
    for line in summary.answered:
        lines += _item(line.answer, _answer_words(line))
    if summary.open:
        lines += _item(Answer.OPEN, " · ".join(line.yes for line in summary.open))
    lines += _untested_lines(summary, sheet.further)
    for entry in sheet.behind:
        lines += _item(entry.heading, entry.text)
    return lines


def _item(head: str, words: str) -> list[str]:
    """A word on the left, and what belongs to it, wrapped, on the right."""
    return textwrap.wrap(
        visible(words), WIDTH, initial_indent=f"  {head:10}", subsequent_indent=" " * 12
    )


def _answer_words(line: Judgement) -> str:
    """What was answered, with its number and interval."""
    interval = "" if np.isnan(line.low) else f" [{line.low:.2f}, {line.high:.2f}]"
    is_proven = line.ticked or line.answer is not Answer.YES
    remark = "" if is_proven else f" {UNPROVEN}"
    return f"{line.yes:{QUESTION}} {line.value:.2f}{interval}{remark}"


def _untested_lines(summary: Summary, more: str) -> list[str]:
    """The untested questions: a few by name with what would test them, many by their number."""
    questions = [f"{line.yes} ({line.reason})" for line in summary.untested]
    if not questions:
        return []
    if len(questions) <= FEW:
        return _item(Answer.UNTESTED, " · ".join(questions))
    further = "more " if summary.answered or summary.open else ""
    return _item(Answer.UNTESTED, f"{len(questions)} {further}questions; {more}")


def gauge_lines(line: Judgement) -> list[str]:
    """A number between chance, 0, and the best that is possible, 1; `=` is its interval."""
    first = _gauge_place(line.low)
    last = _gauge_place(line.high)
    scale = ["-"] * GAUGE
    scale[first : last + 1] = "=" * (last + 1 - first)
    scale[_gauge_place(line.value)] = "#"
    return [
        f"  {gauge_title(line)}:",
        f"  0 = chance |{''.join(scale)}| 1 = best  {line.value:.2f}",
    ]


def _gauge_place(number: float) -> int:
    """Where a number from 0 to 1 stands on the gauge."""
    return round(min(max(number, 0.0), 1.0) * (GAUGE - 1))
