"""The table in a sheet of an .xlsx file: the columns that are asked for, all cells as text."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openpyxl
import pyarrow as pa
from openpyxl.utils import get_column_letter
from openpyxl.utils.escape import unescape

from attnprobe.core.errors import UserError
from attnprobe.data.cells import asked_for, distinct
from attnprobe.data.dialect import FileFormat, Tell

MOST_CELLS = 20_000_000
"""Rows × columns of a sheet. A single cell in its far corner makes 17 billion of them."""
CALCULATED_EMPTY = "str"
"""Type that a cell has whose formula was calculated, and gave an empty text."""
ERROR = "e"
"""Type of a cell that holds an error such as #N/A."""


@dataclass
class _Cells:
    """What was read of a sheet.

    Attributes:
        names: the columns, by their places from 0.
        texts: the cells of each column that is asked for, without the header.
        absent: row and place, from 1, of cells that have no value.
        errors: cells that hold an error.
    """

    names: dict[int, str]
    texts: dict[int, list[str | None]]
    absent: set[tuple[int, int]] = field(default_factory=set)
    errors: int = 0


def read_sheet(
    path: Path, how: FileFormat, tell: Tell, columns: Collection[str] | None = None
) -> pa.Table:
    """Read one sheet; rows without any value are none.

    Args:
        path: the file.
        how: may name the sheet.
        tell: takes a sentence about the sheet that was chosen, and about cells that hold errors.
        columns: those that are read; None: all.

    Raises:
        UserError: there is no such sheet, it has a cell far from all others, or a formula without a
            value.
    """
    book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    sheet = how.sheet or book.sheetnames[0]
    if sheet not in book.sheetnames:
        raise UserError(f"data.sheet={sheet}: {path} has the sheets {', '.join(book.sheetnames)}")
    if how.sheet is None and len(book.sheetnames) > 1:
        tell(
            f"{path.name}: read its first sheet, {sheet!r} of {', '.join(book.sheetnames)} "
            f"(data.sheet=… takes another)"
        )
    cells = _read(path, sheet, book[sheet], columns)
    book.close()
    if cells.absent:
        _check_formulas(path, sheet, cells)
    if cells.errors:
        tell(f"{path.name}: cells with an error such as #N/A, read as empty: {cells.errors:,}")
    arrays = {}
    for place, texts in cells.texts.items():
        arrays[cells.names[place]] = pa.array(texts, pa.string())
    return pa.table(arrays)


def _read(path: Path, sheet: str, worksheet: Any, columns: Collection[str] | None) -> _Cells:
    """Read the cells, and refuse a sheet that would have no end as a table."""
    worksheet.reset_dimensions()  # what a file says of its size need not be true
    cells: _Cells | None = None
    height = 0
    width = 0
    for number, row in enumerate(worksheet.iter_rows(), 1):
        values = [cell.value for cell in row]
        places = [place for place, value in enumerate(values) if value is not None]
        if not places:
            continue
        height = number
        width = max(width, places[-1] + 1)
        if height * width > MOST_CELLS:
            raise UserError(
                f"{path}, sheet {sheet}: a cell in row {height:,} and one in column {width:,} make "
                f"more than {MOST_CELLS:,} cells: delete what is far from the table, or save it as "
                f"CSV UTF-8"
            )
        if cells is None:
            cells = _headed(values[:width], columns)
        else:
            _add(cells, row, number)
    return cells or _Cells({}, {})


def _headed(values: Sequence[Any], columns: Collection[str] | None) -> _Cells:
    names = distinct([_text(value) or "" for value in values])
    chosen = asked_for(names, columns)
    places = {place: name for place, name in enumerate(names) if name in chosen}
    return _Cells(places, {place: [] for place in places})


def _add(cells: _Cells, row: Sequence[Any], number: int) -> None:
    for place, texts in cells.texts.items():
        cell = row[place] if place < len(row) else None
        if cell is None or cell.value is None:
            texts.append(None)
            if cell is None or cell.data_type != CALCULATED_EMPTY:
                cells.absent.add((number, place + 1))
        elif cell.data_type == ERROR:
            texts.append(None)
            cells.errors += 1
        else:
            texts.append(_text(cell.value) or None)


def _text(value: Any) -> str | None:
    """A cell as a person sees it: 3 for 3.0, and a carriage return for Excel's `_x000D_`."""
    if isinstance(value, str):
        return unescape(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if value is None else str(value)


def _check_formulas(path: Path, sheet: str, cells: _Cells) -> None:
    """Refuse formulas that no spreadsheet has calculated: programs write them without a value."""
    book = openpyxl.load_workbook(path, read_only=True)
    worksheet = book[sheet]
    worksheet.reset_dimensions()
    for number, row in enumerate(worksheet.iter_rows(), 1):
        for place, cell in enumerate(row, 1):
            if (number, place) in cells.absent and cell.data_type == "f":
                raise UserError(
                    f"{path}, sheet {sheet}: cell {get_column_letter(place)}{number} holds the "
                    f"formula {str(cell.value)[:60]!r} and no value: open the file in Excel or "
                    f"LibreOffice, which calculates it, and save it; or save it as CSV UTF-8"
                )
    book.close()
