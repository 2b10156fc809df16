"""What earlier runs measured: a table in the repository, so that a page outlives its runs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import pandas as pd

from attnprobe.core.errors import UserError
from attnprobe.evidence.statistics import Interval
from attnprobe.results.files import write_text
from research.papers.cells import CellName, Measured, Setup

CELL = list(CellName._fields)
SETUP = list(asdict(Setup()))
NUMBER = list(Interval._fields)
COLUMNS = [*CELL, *SETUP, "seeds", *NUMBER]
DIGITS = 4


def read_record(path: Path) -> dict[CellName, list[Measured]]:
    """The numbers of a record.

    Args:
        path: of a CSV file with `COLUMNS`; a file that does not exist is an empty record.

    Returns:
        Cell → its number in each setup.

    Raises:
        UserError: the file lacks a column, or has something else than a number in one.
    """
    if not path.exists():
        return {}
    table = pd.read_csv(path, comment="#")
    missing = [name for name in COLUMNS if name not in table]
    if missing:
        raise UserError(
            f"{path}: no column {missing[0]}: expected {', '.join(COLUMNS)}, as --record writes"
        )
    for name in ("epochs", "seeds", *NUMBER):
        if not pd.api.types.is_numeric_dtype(table[name]):
            raise UserError(f"{path}: column {name} has other values than numbers: correct them")
    numbers: dict[CellName, list[Measured]] = {}
    for row in table.to_dict("records"):
        cell = CellName(*(str(row[name]) for name in CELL))
        setup = Setup(**{str(name): row[name] for name in SETUP})
        interval = Interval(*(float(row[name]) for name in NUMBER))
        numbers.setdefault(cell, []).append(Measured(setup, int(row["seeds"]), interval))
    return numbers


def with_record(
    measured: Mapping[CellName, Sequence[Measured]], record: Mapping[CellName, Sequence[Measured]]
) -> dict[CellName, list[Measured]]:
    """What was measured now, and of a record all that was not measured again.

    Args:
        measured: cell → its number in each setup.
        record: of earlier runs; a number of the same cell and setup is replaced.

    Raises:
        UserError: a number of several seeds would be replaced by one of fewer.
    """
    numbers = {}
    for cell in sorted({*measured, *record}):
        of_setup = {number.setup: number for number in record.get(cell, ())}
        for number in measured.get(cell, ()):
            recorded = of_setup.get(number.setup)
            if recorded is not None and number.seeds < recorded.seeds:
                raise UserError(
                    f"{', '.join(cell)}: {number.seeds} of the {recorded.seeds} seeds that the "
                    f"record has: name the runs of at least {recorded.seeds} seeds, or none of it"
                )
            of_setup[number.setup] = number
        numbers[cell] = [of_setup[setup] for setup in sorted(of_setup)]
    return numbers


def write_record(numbers: Mapping[CellName, Sequence[Measured]], path: Path) -> None:
    """Write numbers as a record, a line each; an end that is not known is empty."""
    write_rows(pd.DataFrame(_rows(numbers), columns=COLUMNS), path)


def write_rows(table: pd.DataFrame, path: Path) -> None:
    """Write a table as a record's CSV file, with `DIGITS` decimals; what is not known is empty."""
    write_text(table.to_csv(index=False, float_format=f"%.{DIGITS}f"), path)


def _rows(numbers: Mapping[CellName, Sequence[Measured]]) -> Iterator[dict[str, object]]:
    for cell, of_setups in numbers.items():
        for measured in of_setups:
            yield {
                **cell._asdict(),
                **asdict(measured.setup),
                "seeds": measured.seeds,
                **measured.number._asdict(),
            }
