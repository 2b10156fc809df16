"""What a run says, in one table at its end: headline numbers with intervals, and the published ones next to them."""

import io
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

import numpy as np
import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from attnprobe.core.sanitise import percent, visible
from attnprobe.evidence.evidence import (
    CANNOT_DECIDE,
    FAILS,
    MEETS,
    NO_DIFFERENCE,
    NOT_INFORMATIVE,
    NOT_MEANINGFUL,
    NOT_TESTED,
    TOO_RARE,
)
from attnprobe.evidence.published import REMARKS, compare
from attnprobe.evidence.reading import present, readings
from attnprobe.findings.quality import Quality
from attnprobe.probes.adversarial import FAR, LN2
from attnprobe.results.numbers import Numbers, numbers_of
from attnprobe.results.pivot import RUN, class_of

MARKS = {
    MEETS: "✓", FAILS: "✗", NO_DIFFERENCE: "≈", CANNOT_DECIDE: "?", TOO_RARE: "?", NOT_INFORMATIVE: "○", NOT_MEANINGFUL: "○",
    NOT_TESTED: "–",
}  # fmt: skip
"""A sign for each verdict, so that none is told by its colour alone."""
MOST_CLASSES = 4
"""Rows per class are shown for at most this many predicted classes; all are in the tables."""


def headline(results: pd.DataFrame | Numbers) -> dict[str, float]:
    """The headline numbers of one run by name, for a logger: `{"adversarial/found_jsd": 0.51, …}`; NaN examples are
    left out of the means. The order is that of the summary.

    Args:
        results: the run's numbers; a long table will do.

    Raises:
        ValueError: the table holds more than one run.
    """
    stored = numbers_of(results)
    runs = sorted({str(run["run_id"]) for run in stored.runs})
    if len(runs) > 1:
        raise ValueError(f"headline takes the results of one run, got {len(runs)}: {', '.join(runs)}")
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
    columns: Mapping[str, Mapping[str, Any]], rows: Iterable[Sequence[str | Text]], *, lines: bool, **settings: Any
) -> Table:
    """A table of words.

    Args:
        columns: heading → what rich is told of the column.
        rows: the cells; a row of none begins a new section.
        lines: as a terminal draws them; else in ASCII.
        settings: of the table.
    """
    frame = box.SIMPLE_HEAD if lines else box.ASCII
    table = Table(box=frame, title_justify="left", caption_justify="left", **settings)
    for heading, options in columns.items():
        table.add_column(safe(heading), **options)
    for row in rows:
        if row:
            table.add_row(*(cell if isinstance(cell, Text) else safe(cell) for cell in row))
        else:
            table.add_section()
    return table


def print_summary(
    results: pd.DataFrame | Numbers,
    *,
    classes: Sequence[str] = (),
    directory: str | os.PathLike | None = None,
    stream: TextIO | None = None,
) -> None:
    """Print the headline numbers: with colours and lines on a terminal, in plain ASCII lines into a file or pipe.

    Args:
        results: the numbers of one run, or of several, which follow each other; a long table will do.
        classes: the names of the classes; their numbers stand for them where there are none.
        directory: where the results are; printed below the table, on one line that can be copied.
        stream: standard output if None. Characters that its encoding does not know are shown as `?`.
    """
    stream = sys.stdout if stream is None else stream
    terminal, page, numbers = stream.isatty(), io.StringIO(), compare(results)
    width, system = (None, "auto") if terminal else (110, None)
    console = Console(file=page, force_terminal=terminal, width=width, color_system=system)  # type: ignore[arg-type]
    papers = sorted({source.split(",")[0] for source in numbers["source"] if source})
    right: dict[str, Any] = {"justify": "right", "no_wrap": True}
    columns = {"measure": {"overflow": "fold"}, "mean": right, "95 % interval": right, "published": right,
               "difference": right, "n": right}  # fmt: skip
    caption = Text("\n".join(f"published: {paper} ({REMARKS[paper]})" for paper in papers))
    console.print(terminal_table(columns, _summary_rows(numbers, classes), lines=terminal, caption=caption))
    if directory is not None:
        console.print(safe(f"results: {os.fspath(directory)}"), soft_wrap=True)
    encoding = stream.encoding or "utf-8"
    stream.write(page.getvalue().encode(encoding, errors="replace").decode(encoding))
    stream.flush()


def _summary_rows(numbers: pd.DataFrame, names: Sequence[str]) -> Iterator[list[str | Text]]:
    several = numbers["run_id"].nunique() > 1
    for key, run in numbers.groupby(list(RUN), sort=True):
        named = dict(zip(RUN, key, strict=True))
        words = [named["data"], named["model"], f"seed {named['seed']}", named["split"]]
        yield []
        yield [safe(", ".join(map(str, [*words, named["run_id"]] if several else words)), "bold")]
        for probe, part in run.groupby("probe", sort=False):
            yield []
            yield [safe(str(probe), "bold cyan")]
            many = part.loc[part["group"] != "overall", "group"].nunique() > MOST_CLASSES
            rows: list[Any] = part.to_dict("records")
            for row in rows:
                overall = row["group"] == "overall"
                if overall or not many:
                    yield [
                        f"  {row['title']}" if overall else f"    predicted {class_of(row['group'], names)}",
                        "undefined" if np.isnan(row["mean"]) else f"{row['mean']:.3f}",
                        "" if np.isnan(row["low"]) else f"{row['low']:.3f} to {row['high']:.3f}",
                        "" if np.isnan(row["published"]) else f"{row['published']:.3f}",
                        "" if np.isnan(row["difference"]) else f"{row['difference']:+.3f}",
                        f"{row['n']:,}" if row["n"] else "",
                    ]


def data_notes(counts: Mapping[str, Any]) -> list[str]:
    """One line for everything that a run left out of its data or cut, by the manifest's counts; none if there is none.

    >>> data_notes({"test": {"loaded": 9, "dropped": {"text is null": 2, "too long": 0}, "truncated": 1}})
    ['test: 2 of 9 rows left out (text is null), 1 text truncated']
    >>> data_notes({"test": {"drawn from train": 400, "dropped": {"over data.most": 200}}})
    ['test: 200 of 400 rows left out (over data.most)']
    """
    notes = []
    for split, count in counts.items():
        whole = count.get("loaded", count.get("drawn from train"))
        parts = [
            f"{number:,} of {whole:,} rows left out ({reason})"
            for reason, number in count.get("dropped", {}).items()
            if number and whole is not None
        ]
        if count.get("truncated"):
            parts.append(f"{count['truncated']} text{'s' if count['truncated'] > 1 else ''} truncated")
        if "vocabulary" in count:
            parts.append(f"{count['found']:,} of {count['vocabulary']:,} words found")
        if parts:
            notes.append(visible(f"{split}: {', '.join(parts)}"))
    return notes


def measured_again(tables: Mapping[str, Any]) -> list[str]:
    """What a probe measured again because its first numbers failed its own check, by the manifest's `tables`; each
    sentence once, none if nothing was."""
    said = []
    for probe, reading in readings().items():
        notes = tables.get(probe, {}).get("notes", {})
        if reading.noted is not None and notes.get("texts_remeasured"):
            said.append(reading.noted([notes]))
    return list(dict.fromkeys(said))


# What a run found, in sentences for somebody who has read none of the papers.


MOVED = 0.05
"""Total variation distance from which on a prediction is said to have moved."""


SENTENCES: tuple[tuple[str, str, Callable[[np.ndarray], str]], ...] = (
    ("correlation", "tau_attention_leave_one_out", lambda tau: (
        f"The order of the weights agrees with what leaving each word out does by τ = {tau.mean():.2f} (1: the same "
        f"order, 0: unrelated)."
    )),
    ("erasure", "never_flips", lambda never: (
        f"For {percent(never.mean())} of the texts no erasure of attention, however large, changes the decision."
    )),
    ("permutation", "median_tvd", lambda tvd: (
        f"Giving the weights to other words at random moves the prediction by more than {MOVED}, on a scale from 0 to 1, "
        f"for {percent((tvd > MOVED).mean())} of the texts."
    )),
    ("adversarial", "optimum_jsd", lambda jsd: (
        f"For {percent((jsd > FAR).mean())} of the texts a very different attention gives the same prediction (median "
        f"distance {np.median(jsd):.2f} of at most {LN2:.2f}), so the weights cannot be presented as the only possible "
        f"reason there."
    )),
)  # fmt: skip
"""Probe, metric, and a sentence on its defined values over the examples, one or more; the most important last."""


def plain_words(numbers: pd.DataFrame | Numbers, quality: Quality | None) -> list[str]:
    """A few sentences, the most important last; none about tests that were not run.

    Args:
        numbers: of one run; its long table will do.
        quality: of its classifier, where a largest class can be named.
    """
    said = []
    if quality is not None:
        said.append(
            f"The classifier is right on {percent(quality.accuracy)} of {quality.n:,} test texts; always naming the largest "
            f"class is right on {percent(quality.majority)}. It is {quality.badge[0]}."
        )
    for probe, metric, say in SENTENCES:
        rows = numbers_of(numbers).rows(probe, (metric,))
        known = rows.loc[rows["example_id"] >= 0, "value"].dropna().to_numpy(float)
        if len(known):
            said.append(say(known))
    return said
