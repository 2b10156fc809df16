"""From raw cells to values: columns by their path, labels, filters."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import datasets
import numpy as np
from jaxtyping import Bool

from attnprobe.core.errors import UserError
from attnprobe.core.settings import listed, nearest


def canonical(value: Any) -> str | None:
    """A raw cell as text, so that 1, 1.0, "1" and "1.0" are one label; None for an empty cell.

    >>> [canonical(value) for value in (1, 1.0, " 1 ", "1.0", "1.5", "v1.0", "pos")]
    ['1', '1', '1', '1', '1.5', 'v1.0', 'pos']
    >>> [canonical(value) for value in ("", None, float("nan"))]
    [None, None, None]
    """
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return re.sub(r"^(-?\d+)\.0$", r"\1", str(value).strip()) or None


def column(rows: datasets.Dataset, name: str, setting: str) -> list[Any]:
    """One column as a list; class numbers of the hub come as the classes' names.

    Args:
        rows: the table.
        name: a column, or the path of a value in one: `doc.body` is the entry `body` of the objects
            in the column `doc`, and `notes.0.label` that of the first object of a list. The value
            is None where there is none.
        setting: the setting that names the column, for messages.

    Raises:
        UserError: there is no such column, or a cell holds a null character or an infinite number.
    """
    root, *path = name.split(".")
    if name in rows.column_names:
        feature = rows.features[name]
        values = rows[name][:]
        if isinstance(feature, datasets.ClassLabel):
            return [_class_name(feature, value) for value in values]
    elif root in rows.column_names and path and _has_path(rows.features[root], path):
        values = [_value_at(value, path) for value in rows[root][:]]
    else:
        raise _no_column(rows.features, name, setting)

    for value in values:
        parts = value if isinstance(value, list) else [value]
        if any(_is_unreadable(part) for part in parts):
            raise UserError(
                f"{setting}={name}: one cell is {str(value)[:60]!r}; expected text without null "
                f"characters, or finite numbers: correct it in the file, or choose another column"
            )
    return values


def with_column(table: datasets.Dataset, name: str, values: list[Any]) -> datasets.Dataset:
    """The table with one more column.

    `add_column` copies the rows of a selection, under a progress bar that the clock does not own.
    """
    shows_progress = not datasets.are_progress_bars_disabled()
    datasets.disable_progress_bars()
    try:
        return table.add_column(name, values)
    finally:
        if shows_progress:
            datasets.enable_progress_bars()


def _no_column(features: Mapping[str, Any], name: str, setting: str) -> UserError:
    names = _paths(features)
    remedy = f"choose one with {setting}=NAME"
    if any(len(column_name.split()) > 4 for column_name in names):
        remedy = "the first line looks like a row and not like names: add a header line to the file"
    return UserError(
        f"{setting}={name}: there is no such column{nearest(name, names) or '.'} "
        f"The columns are {listed(names)}; {remedy}"
    )


def _class_name(feature: datasets.ClassLabel, number: int | None) -> str | None:
    """The name of a class; None for a hidden label, which the hub marks with -1."""
    return None if number is None or number < 0 else feature.names[number]


def _is_unreadable(value: Any) -> bool:
    if isinstance(value, str):
        return "\0" in value
    return isinstance(value, float) and bool(np.isinf(value))


def _value_at(value: Any, path: Sequence[str]) -> Any:
    """What stands in nested objects and lists at the end of a path; None where nothing does."""
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list | tuple) and part.isdecimal():
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    return value


def _has_path(feature: Any, path: Sequence[str]) -> bool:
    for part in path:
        if isinstance(feature, Mapping) and part in feature:
            feature = feature[part]
        elif isinstance(feature, datasets.List) and part.isdecimal():
            feature = feature.feature
        else:
            return False
    return True


def _paths(features: Mapping[str, Any]) -> list[str]:
    """The names of the columns, those of nested objects by their path."""
    names = []
    for name, feature in features.items():
        nested = _paths(feature) if isinstance(feature, Mapping) else []
        names += [f"{name}.{path}" for path in nested] or [name]
    return names


def passes(rows: datasets.Dataset, filters: Mapping[str, Any]) -> Bool[np.ndarray, " rows"]:
    """Which rows have an allowed value in every filtered column.

    Args:
        rows: the table.
        filters: column → allowed value, or list of allowed values.
    """
    passed = np.ones(len(rows), bool)
    for name, allowed in filters.items():
        values = allowed if isinstance(allowed, list | tuple) else [allowed]
        allowed_texts = {canonical(value) for value in values}
        cells = column(rows, name, "data.filters column")
        passed &= np.array([canonical(cell) in allowed_texts for cell in cells], bool)
    return passed


def label_lists(values: Sequence[Any], delimiter: str | None) -> list[list[str] | None]:
    """The raw labels of every row as a list of texts, None where the cell is empty.

    Args:
        values: the cells. A list may be empty: a row without labels.
        delimiter: between several labels of one cell that is text; None: each cell is one label.
    """
    result: list[list[str] | None] = []
    for value in values:
        if delimiter is not None and isinstance(value, list | tuple):
            result.append(_texts(value))
        elif delimiter is not None and isinstance(value, str):
            result.append(_texts(value.split(delimiter)) or None)
        else:
            result.append(_texts([value]) or None)
    return result


def _texts(values: Sequence[Any]) -> list[str]:
    """The values as texts, without those that are empty."""
    texts = [canonical(value) for value in values]
    return [text for text in texts if text is not None]


def divided(values: Sequence[Any], above: float) -> list[str | None]:
    """Numbers as two classes: those up to a number, and those above it.

    Args:
        values: the cells; None and NaN are rows without a label, and stay None.
        above: the largest number of the lower class.

    Raises:
        UserError: a cell is no number.
    """
    sides: list[str | None] = []
    for value in values:
        text = canonical(value)
        try:
            number = float("nan" if text is None else text)
        except ValueError:
            raise UserError(
                f"data.above={above:g}: the label {text!r:.60} is no number: expected numbers"
            ) from None
        if np.isnan(number):
            sides.append(None)
        else:
            sides.append(f"above {above:g}" if number > above else f"{above:g} or less")
    return sides
