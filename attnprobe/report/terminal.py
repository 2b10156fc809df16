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
from attnprobe.evidence.published import REMARKS, compare
from attnprobe.evidence.reading import present, readings
from attnprobe.findings.quality import Quality
from attnprobe.findings.table import answer
from attnprobe.findings.verdicts import OPEN, POOR, UNASKED, YES
from attnprobe.results.numbers import Numbers, numbers_of
from attnprobe.results.pivot import RUN, class_of

MARKS = {"yes": "✓", "no": "✗", "open": "?", "untested": "–"}
"""A sign for each answer, so that none is told by its colour alone; a yes without a track record
goes without."""
WIDTH = 80
GAUGE = 41
MOST_CLASSES = 4
"""Rows per class are shown for at most this many predicted classes; all are in the tables."""


def headline(results: pd.DataFrame | Numbers) -> dict[str, float]:
    """The headline numbers of one run (a long table will do) by name, in the summary's order. NaN
    examples are left out.

    Raises:
        ValueError: the table holds more than one run.
    """
    stored = numbers_of(results)
    runs = sorted({str(run["run_id"]) for run in stored.runs})
    if len(runs) > 1:
        raise ValueError(
            f"headline takes the results of one run, got {len(runs)}: {', '.join(runs)}"
        )
    numbers = {
        f"{reading.probe}/{number.key}": number.reduced(stored.rows(reading.probe, number.metrics))
        for reading in present(stored)
        for number in reading.headlines_of(stored.outline(reading.probe))
    }
    return {name: value for name, value in numbers.items() if value is not None}


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
    results: pd.DataFrame | Numbers,
    *,
    classes: Sequence[str] = (),
    directory: str | os.PathLike | None = None,
    stream: TextIO | None = None,
) -> None:
    """Print the headline numbers: with colours and lines on a terminal, in plain ASCII lines into a
    file or pipe.

    Args:
        results: the numbers of one run or several; a long table will do.
        classes: the names of the classes; their numbers stand for them where there are none.
        directory: where the results are; printed below the table, on one line that can be copied.
        stream: standard output if None. Characters that its encoding does not know are shown as
            `?`.
    """
    stream = sys.stdout if stream is None else stream
    terminal = stream.isatty()
    page = io.StringIO()
    numbers = compare(results)
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
    own: pd.DataFrame,
    quality: Quality | None = None,
    attention_on: str = "",
    more: str = "attnprobe audit, or +experiment=audit, asks most of them",
) -> list[str]:
    """Chip, sentence and gauge, a line for every question that was answered, one for the open and
    one for the untested ones, and what to show instead. `own`: the findings on a group; `more`: how
    many untested questions get their answer."""

    def item(head: str, words: str) -> list[str]:
        return textwrap.wrap(
            visible(words), WIDTH, initial_indent=f"  {head:10}", subsequent_indent=" " * 12
        )

    found = answer(own)
    said = [
        visible(f"{own['group'].iloc[0]}: {found.chip}"),
        *(f"  {one}" for one in textwrap.wrap(found.sentence, WIDTH - 2)),
    ]
    model = [] if quality is None else item("model", quality.in_short)
    model += item("attention", attention_on) if attention_on else []
    if found.chip == POOR:
        return [
            *said,
            *model,
            *item("to do", "more texts, training.epochs=…, or another model (model=…)"),
        ]
    if (word := found.gauge) is not None:
        # between chance and the best that is possible; `=` is the interval
        ends = (word.value, word.low, word.high)
        place, first, last = (round(min(max(one, 0.0), 1.0) * (GAUGE - 1)) for one in ends)
        drawn = "".join(
            "#" if at == place else "=" if first <= at <= last else "-" for at in range(GAUGE)
        )
        asked = word.threshold + word.smallest
        said.append(f"  chance 0 |{drawn}| 1 best  {word.value:.2f}, asked {asked:.2f}")
    for name, row in found.answered:
        span = "" if np.isnan(row.low) else f" [{row.low:.2f}, {row.high:.2f}]"
        unproven = "" if row.ticked or row.answer != YES else " no track record"
        said += item(row.answer, f"{name:32} {row.value:.2f}{span}{unproven}")
    said += item(OPEN, " · ".join(found.open)) if found.open else []
    left = [f"{name} ({setting})" for name, setting in found.untested]
    many = f"{len(left)} {'more ' if found.answered or found.open else ''}questions; {more}"
    said += item(UNASKED, many if len(left) > FEW else " · ".join(left)) if left else []
    return [*said, *(line for one in found.instead for line in item("instead", one)), *model]
