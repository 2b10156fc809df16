"""`python -m research.labels codes FOLDER`, `… plain FOLDER SOURCE` or `… long`: a table each.

`… ship FOLDER` makes the rows of `codes` the record that verdicts cite.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from attnprobe.core.errors import UserError
from attnprobe.findings.track_record import CHIP, answers_of, answers_to, rates
from research.arguments import draws_of
from research.labels.codes import ask_models
from research.labels.long import CHANGE_TEXTS, ENCODERS, PROBES, SIZES, Case, costs_of_cases, growth
from research.labels.plain import MODELS, compare_trainings
from research.labels.record import ship_record
from research.markdown import markdown
from research.words.rows import rows_of, table_of


def main(arguments: Sequence[str] | None = None) -> None:
    """Carry out the command, and print the table; a mistake is one line."""
    options = parser().parse_args(arguments)
    try:
        table = options.carry_out(options)
    except UserError as error:
        raise SystemExit(f"research.labels: {error}") from None
    if table is not None:
        print(markdown(table.round(3)))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    command_line = argparse.ArgumentParser(prog="python -m research.labels")
    commands = command_line.add_subparsers(required=True)

    trained = argparse.ArgumentParser(add_help=False)
    trained.add_argument("folder", type=Path, help="where runs and tables are written")
    trained.add_argument("--models", default=",".join(MODELS))
    trained.add_argument("--draws", default="0,1,2,3,4", help="seeds of texts and trainings")

    codes = commands.add_parser("codes", parents=[trained], help="verdicts on planted codes")
    codes.set_defaults(carry_out=codes_table)

    ship = commands.add_parser("ship", help="ship the rows of codes, and write the page")
    ship.set_defaults(carry_out=lambda options: ship_record(options.folder))
    ship.add_argument("folder", type=Path, help="that of codes")

    plain = commands.add_parser("plain", parents=[trained], help="beside a plain loop")
    plain.set_defaults(carry_out=plain_table)
    plain.add_argument("source", type=Path, help="folder of GoEmotions")
    plain.add_argument("--epochs", type=int, default=8)

    long = commands.add_parser("long", help="time and memory of long texts")
    long.set_defaults(carry_out=costs_table)
    long.add_argument("--encoders", default=",".join(ENCODERS))
    long.add_argument("--change-texts", action="store_true", help="probes that do so, too")
    sizes = " ".join(f"{words}x{labels}" for words, labels in SIZES)
    long.add_argument("--sizes", default=sizes, help="words x labels, such as '%(default)s'")
    return command_line


def codes_table(options: argparse.Namespace) -> pd.DataFrame:
    """How often which answer was given on models of planted codes."""
    ask_models(options.folder, models_of(options), draws_of(options.draws))
    table = table_of(rows_of([options.folder]))
    return rates(answers_to(CHIP, answers_of(table)), by=("kind", "family"))


def plain_table(options: argparse.Namespace) -> pd.DataFrame:
    """Every training of every model."""
    tables = []
    for name in models_of(options):
        table = compare_trainings(
            name, options.source, options.folder, options.epochs, draws_of(options.draws)
        )
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def costs_table(options: argparse.Namespace) -> pd.DataFrame:
    """Costs of long texts; their growth is printed before them.

    Raises:
        UserError: a size or an encoder is none.
    """
    names = [name for name in PROBES if options.change_texts or name not in CHANGE_TEXTS]
    cases = []
    for encoder in options.encoders.split(","):
        if encoder not in ENCODERS:
            raise UserError(f"--encoders {encoder}: expected some of {', '.join(ENCODERS)}")
        for size in options.sizes.split():
            words, _, labels = size.partition("x")
            if not (words.isdecimal() and labels.isdecimal() and int(words) and int(labels)):
                raise UserError(f"--sizes {size}: expected words x labels, such as 2000x50")
            cases.append(Case(encoder, int(words), int(labels), tuple(names)))
    costs = costs_of_cases(cases)
    print(markdown(growth(costs).round(2)))
    return costs


def models_of(options: argparse.Namespace) -> list[str]:
    """The models of a command line.

    Raises:
        UserError: one of them is unknown.
    """
    names: list[str] = options.models.split(",")
    for name in names:
        if name not in MODELS:
            raise UserError(f"--models {name}: expected some of {', '.join(MODELS)}")
    return names


if __name__ == "__main__":
    main()
