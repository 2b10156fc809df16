"""`python -m research.words FOLDER`: is the verdict on words right where the answer is known?

Trains small models on rules whose deciding words are known, with attention that is right or wrong,
and asks each as a run or an audit of a user is asked. A file per model in FOLDER: what is cut short
goes on with the same command, and `--part 1/2` and `--part 2/2` share a folder.

    python -m research.words rows/run --commit HASH --count 40
    python -m research.words rows/audit --commit HASH --count 40 --mode audit --sample 150
    python -m research.words rows/run rows/audit --docs

The last command writes the shipped table, and from it what README and docs/ say."""

import argparse
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import torch

from attnprobe.core.errors import UserError
from attnprobe.findings.track_record import CALIBRATION
from attnprobe.runs.composition import composing
from research.arguments import draws_of
from research.grammar import RuleSpec, development_rules, drawn_rules
from research.markdown import markdown
from research.words.asking import row_of_cell
from research.words.cells import ENCODERS, Cell, Grid, sample_of
from research.words.docs import write_pages
from research.words.rows import path_of, rows_of, ship, table_of, write_row
from research.words.tables import tables_of


def main(arguments: Sequence[str] | None = None) -> None:
    """Train and ask, or tell."""
    options = parser().parse_args(arguments)
    try:
        if options.docs or options.table:
            tell(options)
        else:
            ask(options)
    except UserError as error:
        raise SystemExit(f"attnprobe: {error}") from None


def parser() -> argparse.ArgumentParser:
    """The command line."""
    command_line = argparse.ArgumentParser(
        prog="python -m research.words",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command_line.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    rules = command_line.add_argument_group("rules (without any: those of development)")
    rules.add_argument("--rules", help="names, separated by commas")
    rules.add_argument("--commit", help="hash that rules are drawn from, and a sample")
    rules.add_argument("--count", type=int, default=40, help="drawn rules")
    rules.add_argument("--half", default="first", help="first, or second: for later looks")

    cells = command_line.add_argument_group("models")
    cells.add_argument(
        "--encoders", default=",".join(ENCODERS), help="names, or folders of checkpoints"
    )
    cells.add_argument("--attentions", default="", help="names; all that an encoder may have")
    cells.add_argument("--draws", default="100,101,102,103,104")
    cells.add_argument("--mode", default="run", help="run, or audit")
    cells.add_argument("--sample", type=int, help="only so many models, drawn by --commit")
    cells.add_argument("--part", default="1/1", help="such as 1/2: every second of the models")
    cells.add_argument("--keep", type=Path, help="folder in which the runs stay")

    output = command_line.add_argument_group("output, from rows that exist")
    output.add_argument("--table", action="store_true", help="print the tables")
    output.add_argument("--docs", action="store_true", help="ship the rows; write README and docs/")
    return command_line


def ask(options: argparse.Namespace) -> None:
    """Train the models that are not there yet, and ask them."""
    (folder,) = options.folders
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    cells = cells_of(options)
    missing = [cell for cell in cells if not path_of(cell, folder).exists()]
    print(f"{len(cells)} models, {len(missing)} of them left", flush=True)
    with composing(), tempfile.TemporaryDirectory() as scratch:
        for cell in missing:
            output = options.keep or Path(scratch)
            row = row_of_cell(cell, output, keeps_runs=options.keep is not None)
            write_row(row | {"commit": options.commit or ""}, path_of(cell, folder))
            answer = f"{row['chip']}. {row['sentence']}"
            print(f"{cell.name}: {row['truth']}; {answer}", flush=True)


def cells_of(options: argparse.Namespace) -> list[Cell]:
    """The models of a command line, in the order in which they are asked."""
    grid = Grid(
        rules_of(options),
        options.encoders.split(","),
        [name for name in options.attentions.split(",") if name],
        draws_of(options.draws),
        options.mode,
    )
    cells = list(grid.cells())
    if options.sample is not None:
        cells = sample_of(cells, options.sample, options.commit or "")
    number, _, parts = options.part.partition("/")
    return cells[int(number) - 1 :: int(parts)]


def rules_of(options: argparse.Namespace) -> list[RuleSpec]:
    """The rules of a command line."""
    if options.rules:
        return [RuleSpec.named(name) for name in options.rules.split(",")]
    if options.commit:
        return drawn_rules(options.commit, options.count, options.half)
    return development_rules()


def tell(options: argparse.Namespace) -> None:
    """Print the tables, or ship the rows and write the pages."""
    table = table_of(rows_of(options.folders))
    if options.docs:
        ship(table, CALIBRATION)
        write_pages(table)
        print(f"{CALIBRATION}: {table.num_rows} models, {CALIBRATION.stat().st_size:,} bytes")
        return
    for name, rows in tables_of(table).items():
        print(f"{name}\n\n{markdown(pd.DataFrame(rows))}\n")


if __name__ == "__main__":
    main()
