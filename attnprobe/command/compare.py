"""attnprobe compare A B: two checkpoints or seeds on the same texts."""

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from attnprobe.command.conditions import SHORT, condition, judge
from attnprobe.command.main import Parser, answering

if TYPE_CHECKING:
    import pandas as pd

    from attnprobe.report.changes import Changes

EPILOG = """examples:
  attnprobe compare runs/reviews/lstm_additive-seed0-* runs/reviews/lstm_additive-seed1-*
  attnprobe compare old/audit-1c5d2e new/audit-1c5d2e --fail-if "change.correct < -0.02" --fail-if "agreement == fails"

A and B are directories of finished runs, or of studies (their examined run is taken). A condition's plain names are B's
numbers and verdicts; first.NAME is A's number, change.NAME is B's minus A's over the texts that both have."""
SHOWN = 10
"""Examples on the terminal; all are in the files."""
WIDTH = 110
"""Characters of a line where there is no terminal."""
WORDS = {"criterion", "test", "number", "text"}
"""Columns of words, which begin at the left."""


def parser() -> argparse.ArgumentParser:
    """The arguments of the command."""
    made = Parser("compare", usage="attnprobe compare A B [options]", epilog=EPILOG)
    made.add_argument("first", metavar="A", help="what there was")
    made.add_argument("second", metavar="B", help="what there is now")
    made.add_argument(
        "-o", "--output", type=Path, metavar="FOLDER", help="write numbers.csv, verdicts.csv and examples.csv"
    )
    made.add_argument("--all", action="store_true", help="show every number, not only the main one of each test")
    made.add_argument("--no-text", action="store_true", help="show and write no texts")
    made.add_argument(
        "--fail-if", action="append", default=[], type=condition, metavar="CONDITION",
        help="end with status 3 if this holds, such as 'change.correct < -0.02'; may be repeated",
    )  # fmt: skip
    return made


def main(arguments: Sequence[str]) -> None:
    """Show what changed, and judge it."""
    asked = parser().parse_args(arguments)
    with answering():
        from attnprobe.report.changes import compare_runs, run_at
        from attnprobe.report.judged import of_run

        first, second = run_at(asked.first), run_at(asked.second)
        changes = compare_runs(first, second)
        if asked.no_text:
            changes = replace(changes, examples=changes.examples.drop(columns="text"))
        name("A", first.directory, first.split)
        name("B", second.directory, second.split)
        show(changes, every=asked.all)
        if asked.output is not None:
            write(changes, asked.output)
        if asked.fail_if:
            numbers, verdicts = of_run(second)
            judge(asked.fail_if, numbers | named(changes), verdicts)


def named(changes: "Changes") -> dict[str, float]:
    """The numbers of the first run and the changes, by the names that a condition may use."""
    numbers: dict[str, float] = {}
    short = {full: alias for alias, full in SHORT.items()}
    for one in changes.numbers.to_dict("records"):
        full = f"{one['probe']}.{one['metric']}"
        for name in {full, one["metric"], short.get(full, full)}:
            numbers |= {f"first.{name}": one["first"], f"change.{name}": one["change"]}
        if one["metric"] == "correct":
            numbers["correct"] = one["second"]
            numbers |= {f"{side}.accuracy": one[place] for side, place in (("first", "first"), ("change", "change"))}
    return numbers


def show(changes: "Changes", *, every: bool) -> None:
    """What both pages say first, and three tables on the terminal."""
    alone = (changes.first_only, changes.second_only)
    only = " (A has {:,} others, B {:,})".format(*alone) if any(alone) else ""
    print(f"texts in both: {changes.shared:,}{only}; another prediction for {changes.flipped:,}")
    for letter, sentence in zip("AB", changes.sentences, strict=True):
        if sentence:
            print(f"{letter}: {sentence}")
    verdicts = [
        [
            one["criterion"],
            f"{one['first']} {number(one['first_value'])}",
            f"{one['second']} {number(one['second_value'])}",
            "changed" if one["first"] != one["second"] else "",
        ]
        for one in changes.verdicts.to_dict("records")
    ]
    if verdicts:
        table("verdicts, each with the number that it goes by", ["criterion", "A", "B", ""], verdicts)
    shown = changes.numbers if every else main_numbers(changes.numbers)
    table(
        "numbers (A, B, and B minus A over the same texts)",
        ["test", "number", "A", "B", "B - A", "95 % interval", ""],
        [
            [one["probe"], one["title"], number(one["first"]), number(one["second"]), number(one["change"], sign=True),
             span(one), mark(one)]
            for one in shown.to_dict("records")
        ],
    )  # fmt: skip
    if len(shown) < len(changes.numbers):
        print(f"{len(changes.numbers) - len(shown)} more numbers: --all shows them, -o FOLDER writes them")
    table(
        "other predictions first, then the attentions that moved farthest (JSD in nats, at most 0.693)",
        ["example", "text", "label", "A predicts", "B predicts", "moved (JSD)"],
        [
            [str(one["example_id"]), one.get("text", ""), one["label"], one["first"], one["second"], number(one["attention"])]
            for one in changes.examples.head(SHOWN).to_dict("records")
        ],
    )  # fmt: skip


def table(title: str, heads: Sequence[str], rows: list[list[str]]) -> None:
    """Print a table; one with texts is as wide as the terminal."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from attnprobe.shown import visible

    terminal = Console().is_terminal
    lines = box.SIMPLE_HEAD if terminal else box.ASCII
    made = Table(title=Text(title), title_justify="left", box=lines, expand="text" in heads)
    for head in heads:
        justify: Literal["left", "right"] = "left" if head in WORDS else "right"
        made.add_column(head, justify=justify, overflow="fold", ratio=3 if head == "text" else None)
    for cells in rows:
        made.add_row(*(Text(visible(cell)) for cell in cells))
    Console(width=None if terminal else WIDTH).print(made)


def main_numbers(numbers: "pd.DataFrame") -> "pd.DataFrame":
    """The first number of each test, which it is about, and those that have a short name in conditions."""
    named = (numbers["probe"] + "." + numbers["metric"]).isin(SHORT.values())
    return numbers[~numbers["probe"].duplicated() | named]


def name(letter: str, run: Path, split: str) -> None:
    """Which run a letter stands for, and whether its classifier has learnt anything."""
    from attnprobe.report.quality import quality_of

    measured = quality_of(run, split)
    print(f"{letter}: {run}{'; ' + measured.warning if measured is not None and measured.warning else ''}")


def number(value: float, *, sign: bool = False) -> str:
    """Three digits after the point; nothing for an undefined number."""
    return "" if value != value else f"{value:+.3f}" if sign else f"{value:.3f}"


def span(one: dict) -> str:
    """The interval of a change, where it has one."""
    return "" if one["low"] != one["low"] else f"[{one['low']:+.3f}, {one['high']:+.3f}]"


def mark(one: dict) -> str:
    """Whether a change is told apart from none."""
    if one["low"] != one["low"]:
        return ""
    return "changed" if one["low"] > 0 or one["high"] < 0 else ""


def write(changes: "Changes", folder: Path) -> None:
    """The same tables as CSV, numbers in full."""
    from attnprobe.report.tables import csv_table
    from attnprobe.results.files import write_atomically

    folder.mkdir(parents=True, exist_ok=True)
    for name in ("numbers", "verdicts", "examples"):
        text = csv_table(getattr(changes, name))
        write_atomically(folder / f"{name}.csv", lambda path, text=text: Path(path).write_text(text, encoding="utf-8"))
    print(f"tables: {folder}")
