"""attnprobe compare A B: two checkpoints or seeds on the same texts."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from attnprobe.cli.conditions import add_conditions, judge, names_in
from attnprobe.cli.main import Parser, answering

if TYPE_CHECKING:
    from attnprobe.findings.changes import Changes


EPILOG = """examples:
  attnprobe compare runs/reviews/lstm_additive-seed0-* runs/reviews/lstm_additive-seed1-*
  attnprobe compare old/audit-1c5d2e new/audit-1c5d2e --fail-if "change.correct < -0.02" --fail-if "agreement == no"

A and B are directories of finished runs, or of studies (their examined run is taken). A condition's plain names are B's
numbers and verdicts; first.NAME is A's, change.NAME is B's number minus A's, over the texts that both have where it is a
probe's."""
SHOWN = 10
MAIN = ("tau_attention_leave_one_out", "optimum_jsd")
"""Examples on the terminal; numbers that are shown beside the first one of each test. All are in
the files."""
WIDTH = 110
WORDS = {"criterion", "test", "number", "text"}
"""Characters of a line where there is no terminal; columns of words, which begin at the left."""


def compare_parser() -> Parser:
    """The arguments of the command."""
    made = Parser("compare", usage="attnprobe compare A B [options]", epilog=EPILOG)
    made.add_argument("first", metavar="A", help="what there was")
    made.add_argument("second", metavar="B", help="what there is now")
    made.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FOLDER",
        help="write numbers.csv, verdicts.csv and examples.csv",
    )
    made.add_argument(
        "--all", action="store_true", help="show every number, not only the main one of each test"
    )
    made.add_argument("--no-text", action="store_true", help="show and write no texts")
    add_conditions(made, "'change.correct < -0.02'")
    return made


def compare(arguments: Sequence[str]) -> None:
    """Show what changed, and judge it."""
    asked = compare_parser().parse_args(arguments)
    with answering():
        from attnprobe.findings.changes import CORRECT, SAME, compare_runs, run_at
        from attnprobe.findings.stored import card_of_run
        from attnprobe.report.tables import csv_table
        from attnprobe.results.files import write_text
        from attnprobe.results.writer import OwnFolder

        first = run_at(asked.first)
        second = run_at(asked.second)
        changes = compare_runs(first, second)
        if asked.no_text:
            changes = replace(changes, examples=changes.examples.drop(columns="text"))
        for letter, run in (("A", first), ("B", second)):
            print("; ".join(filter(None, [f"{letter}: {run.directory}", run.warning])))
        show(changes, every=asked.all)
        if asked.output is not None:
            folder = OwnFolder(asked.output)
            for name in ("numbers", "verdicts", "examples"):  # in full
                write_text(csv_table(getattr(changes, name)), folder / f"{name}.csv")
            print(f"tables: {asked.output}")
        if asked.fail_if:
            (before, verdicts_before), (now, verdicts) = (
                names_in(run, card_of_run(run)) for run in (first, second)
            )
            numbers = now | {f"first.{name}": value for name, value in before.items()}
            numbers |= {
                f"change.{name}": now[name] - before[name] for name in verdicts if name in before
            }
            for one in changes.numbers.to_dict("records"):  # paired, over the texts that both have
                metrics = [one["metric"], *(SAME if one["metric"] == CORRECT else ())]
                for name in (f"{one['probe']}.{metric}" for metric in metrics):
                    if name in now or name == f"performance.{CORRECT}":
                        numbers |= {f"first.{name}": one["first"], f"change.{name}": one["change"]}
                        numbers.setdefault(name, one["second"])
            verdicts |= {f"first.{name}": verdict for name, verdict in verdicts_before.items()}
            judge(asked.fail_if, numbers, verdicts)


def show(changes: "Changes", *, every: bool) -> None:
    """What both pages say first, and three tables on the terminal."""

    def number(value: float, form: str = ".3f") -> str:
        return "" if value != value else format(value, form)

    alone = (changes.first_only, changes.second_only)
    only = " (A has {:,} others, B {:,})".format(*alone) if any(alone) else ""
    print(f"texts in both: {changes.shared:,}{only}; another prediction for {changes.flipped:,}")
    for letter, sentence in zip("AB", changes.sentences, strict=True):
        if sentence:
            print(f"{letter}: {sentence}")
    verdicts = [
        [
            one["criterion"],
            *(f"{one[side]} {number(one[f'{side}_value'])}" for side in ("first", "second")),
            one["change"],
        ]
        for one in changes.verdicts.to_dict("records")
    ]
    if verdicts:
        table(
            "answers, each with the number that it goes by", ["criterion", "A", "B", ""], verdicts
        )
    main = ~changes.numbers["probe"].duplicated() | changes.numbers["metric"].isin(MAIN)
    shown = changes.numbers if every else changes.numbers[main]
    table(
        "numbers (A, B, and B minus A over the same texts)",
        ["test", "number", "A", "B", "B - A", "95 % interval", ""],
        [
            [
                one["probe"],
                one["title"],
                number(one["first"]),
                number(one["second"]),
                number(one["change"], "+.3f"),
                "" if one["low"] != one["low"] else f"[{one['low']:+.3f}, {one['high']:+.3f}]",
                "changed" if one["low"] > 0 or one["high"] < 0 else "",
            ]
            for one in shown.to_dict("records")
        ],
    )
    if len(shown) < len(changes.numbers):
        print(
            f"{len(changes.numbers) - len(shown)} more numbers: --all shows them, -o FOLDER writes them"
        )
    table(
        "other predictions first, then the attentions that moved farthest (JSD in nats, at most 0.693)",
        ["example", "text", "label", "A predicts", "B predicts", "moved (JSD)"],
        [
            [
                str(one["example_id"]),
                one.get("text", ""),
                one["label"],
                one["first"],
                one["second"],
                number(one["attention"]),
            ]
            for one in changes.examples.head(SHOWN).to_dict("records")
        ],
    )


def table(title: str, heads: Sequence[str], rows: list[list[str]]) -> None:
    """Print a table; one with texts is as wide as the terminal."""
    from rich.console import Console

    from attnprobe.report.terminal import safe, terminal_table

    lines = Console().is_terminal
    columns = {
        head: {
            "justify": "left" if head in WORDS else "right",
            "overflow": "fold",
            "ratio": 3 if head == "text" else None,
        }
        for head in heads
    }
    made = terminal_table(columns, rows, lines=lines, title=safe(title), expand="text" in heads)
    Console(width=None if lines else WIDTH).print(made)
