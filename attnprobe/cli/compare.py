"""attnprobe compare A B: two checkpoints or seeds on the same texts."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnprobe.cli.conditions import add_conditions, judge, names_in
from attnprobe.cli.main import Parser, answering
from attnprobe.core.printing import WIDTH, tell

if TYPE_CHECKING:
    from attnprobe.findings.changes import Changes
    from attnprobe.findings.groups import Run


EPILOG = """examples:
  attnprobe compare runs/reviews/lstm_additive-seed0-* \\
    runs/reviews/lstm_additive-seed1-*
  attnprobe compare old/audit-1c5d2e new/audit-1c5d2e \\
    --fail-if "change.correct < -0.02" --fail-if "agreement == no"

A and B are directories of finished runs, or of studies (their examined run is
taken). A condition's plain names are B's numbers and verdicts; first.NAME is
A's, change.NAME is B's number minus A's, over the texts that both have where it
is a probe's."""
SHOWN = 10
"""Examples on the terminal; all are in the files."""
MAIN = ("tau_attention_leave_one_out", "optimum_jsd")
"""Numbers that are shown beside the first one of each test; all are in the files."""
WORDS = {"criterion", "number", "text"}
"""Columns of words, which begin at the left."""
INTERVAL = "95 % interval"
"""A column that stays on one line."""
WIDEST_NAME = 10
"""Characters of a class on one line beside a text, which has the rest of the line."""


def compare_parser() -> Parser:
    """The arguments of the command."""
    parser = Parser("compare", usage="attnprobe compare A B [options]", epilog=EPILOG)
    parser.add_argument("first", metavar="A", help="what there was")
    parser.add_argument("second", metavar="B", help="what there is now")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FOLDER",
        help="write numbers.csv, verdicts.csv and examples.csv",
    )
    parser.add_argument(
        "--all", action="store_true", help="show every number, not only the main one of each test"
    )
    parser.add_argument("--no-text", action="store_true", help="show and write no texts")
    add_conditions(parser, "'change.correct < -0.02'")
    return parser


def compare(arguments: Sequence[str]) -> None:
    """Show what changed, write it, and judge it.

    Args:
        arguments: what follows the command's name.
    """
    options = compare_parser().parse_args(arguments)
    with answering():
        from attnprobe.results.directory import refuse_missing
        from attnprobe.results.writer import refuse_unwritable

        refuse_missing([options.first])
        refuse_missing([options.second])
        if options.output is not None:
            refuse_unwritable(options.output)
        # takes seconds, which a mistake need not wait for
        from attnprobe.findings.changes import compare_runs, run_at

        first = run_at(options.first)
        second = run_at(options.second)
        changes = compare_runs(first, second)
        if options.no_text:
            changes = replace(changes, examples=changes.examples.drop(columns="text"))
        for letter, run in (("A", first), ("B", second)):
            print(f"{letter}: {run.directory}")
            if run.warning:
                tell(f"{letter}: {run.warning}")
        show(changes, every=options.all)
        if options.output is not None:
            write_tables(changes, options.output)
        if options.fail_if:
            judge(options.fail_if, *comparable_names(first, second, changes))


def write_tables(changes: "Changes", output: Path) -> None:
    """Write all numbers, verdicts and examples into a folder."""
    from attnprobe.core.errors import answering_disk
    from attnprobe.report.tables import csv_table
    from attnprobe.results.files import write_text
    from attnprobe.results.writer import OwnFolder

    with answering_disk(output):
        folder = OwnFolder(output)
        write_text(csv_table(changes.numbers), folder / "numbers.csv")
        write_text(csv_table(changes.verdicts), folder / "verdicts.csv")
        write_text(csv_table(changes.examples), folder / "examples.csv")
        folder.close()
    print(f"tables: {output}")


def comparable_names(
    first: "Run", second: "Run", changes: "Changes"
) -> tuple[dict[str, float], dict[str, str]]:
    """The numbers and the verdicts of two runs by the names that conditions use.

    The second run's have plain names, the first's begin with `first.`, and the second's number
    minus the first's with `change.`.
    """
    from attnprobe.findings.changes import CORRECT, SAME
    from attnprobe.findings.stored import card_of_run

    numbers_before, verdicts_before = names_in(first, card_of_run(first))
    numbers, verdicts = names_in(second, card_of_run(second))
    plain_names = set(numbers)
    changed = {
        f"change.{name}": numbers[name] - numbers_before[name]
        for name in verdicts
        if name in numbers_before
    }
    numbers |= {f"first.{name}": value for name, value in numbers_before.items()} | changed
    for row in changes.numbers.to_dict("records"):  # paired, over the texts that both have
        metrics = [row["metric"]]
        if row["metric"] == CORRECT:
            metrics += SAME
        for metric in metrics:
            name = f"{row['probe']}.{metric}"
            if name in plain_names or name == f"performance.{CORRECT}":
                numbers[f"first.{name}"] = row["first"]
                numbers[f"change.{name}"] = row["change"]
                numbers.setdefault(name, row["second"])
    verdicts |= {f"first.{name}": verdict for name, verdict in verdicts_before.items()}
    return numbers, verdicts


def number(value: float, form: str = ".3f") -> str:
    """A number in a table; empty where it is undefined."""
    return "" if math.isnan(value) else format(value, form)


def show(changes: "Changes", *, every: bool) -> None:
    """Print what both pages say first, and three tables.

    Args:
        changes: of two runs.
        every: show all numbers, not only the main one of each test.
    """
    unshared = ""
    if changes.first_only or changes.second_only:
        unshared = f" (A has {changes.first_only:,} others, B {changes.second_only:,})"
    tell(f"texts in both: {changes.shared:,}{unshared}; another prediction for {changes.flipped:,}")
    for letter, sentence in zip("AB", changes.sentences, strict=True):
        if sentence:
            tell(f"{letter}: {sentence}")
    show_verdicts(changes)
    show_numbers(changes, every=every)
    show_examples(changes)


def show_verdicts(changes: "Changes") -> None:
    """Print both runs' answers to each criterion."""
    rows = [
        [
            row["criterion"],
            f"{row['first']} {number(row['first_value'])}",
            f"{row['second']} {number(row['second_value'])}",
            row["change"],
        ]
        for row in changes.verdicts.to_dict("records")
    ]
    if rows:
        table("answers, each with the number that it goes by", ["criterion", "A", "B", ""], rows)


def show_numbers(changes: "Changes", *, every: bool) -> None:
    """Print both runs' numbers and the change between them."""
    numbers = changes.numbers
    if not every:
        is_first_of_test = ~numbers["probe"].duplicated()
        numbers = numbers[is_first_of_test | numbers["metric"].isin(MAIN)]
    rows = []
    probe = ""
    for row in numbers.to_dict("records"):
        if row["probe"] != probe:
            probe = row["probe"]
            rows.append([probe, *[""] * 5])
        interval = ""
        if not math.isnan(row["low"]):
            interval = f"[{row['low']:+.3f}, {row['high']:+.3f}]"
        rows.append(
            [
                f"  {row['title']}",
                number(row["first"]),
                number(row["second"]),
                number(row["change"], "+.3f"),
                interval,
                "changed" if row["low"] > 0 or row["high"] < 0 else "",
            ]
        )
    table(
        "numbers (A, B, and B minus A over the same texts)",
        ["number", "A", "B", "B - A", INTERVAL, ""],
        rows,
    )
    hidden = len(changes.numbers) - len(numbers)
    if hidden:
        print(f"{hidden} more numbers: --all shows them, -o FOLDER writes them")


def show_examples(changes: "Changes") -> None:
    """Print the texts that changed most."""
    rows = [
        [
            str(row["example_id"]),
            row.get("text", ""),
            row["label"],
            row["first"],
            row["second"],
            number(row["attention"]),
        ]
        for row in changes.examples.head(SHOWN).to_dict("records")
    ]
    table(
        "what A and B predict: other predictions first, then the attentions that moved "
        "farthest (JSD in nats, at most 0.693)",
        ["example", "text", "label", "A", "B", "JSD"],
        rows,
    )


def table(title: str, heads: Sequence[str], rows: list[list[str]]) -> None:
    """Print a table; one with texts is as wide as the terminal, or `WIDTH` without one.

    Args:
        title: above it.
        heads: of its columns.
        rows: cells as they are printed.
    """
    from rich.console import Console

    from attnprobe.report.terminal import safe, terminal_table

    is_terminal = Console().is_terminal
    columns = {
        head: {
            "justify": "left" if head in WORDS else "right",
            "no_wrap": head == INTERVAL,
            "overflow": "fold",
            "ratio": 3 if head == "text" else None,
            "max_width": WIDEST_NAME if "text" in heads and head != "text" else None,
        }
        for head in heads
    }
    printed = terminal_table(
        columns, rows, lines=is_terminal, title=safe(title), expand="text" in heads
    )
    Console(width=None if is_terminal else WIDTH).print(printed)
