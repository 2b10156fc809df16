"""What is wrong with a user's files and columns, found without a model's libraries.

Importing torch takes longer than reading most files: a misspelt column need not wait for it.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from attnprobe.core.errors import UserError
from attnprobe.core.settings import check_arguments
from attnprobe.data.columns import Columns
from attnprobe.data.reader import Reader
from attnprobe.data.settings import DataSettings
from attnprobe.data.sources import FileSource
from attnprobe.data.text import TextRules

DATA_MODULE = "attnprobe.data.module.TextDataModule"
"""By name: the module imports torch."""
FILE_SOURCE = f"{FileSource.__module__}.{FileSource.__qualname__}"


def check_files(source: FileSource, columns: Columns) -> None:
    """Read local files before anything is trained.

    Raises:
        UserError: a file is missing, cannot be read, or lacks a column.
    """
    source.columns = columns.names
    # which words texts have is asked later; spaCy, which says it, takes seconds to import
    reader = Reader(columns, TextRules(tokenizer="whitespace"))
    for table in source.load().values():
        reader.check_columns(table)


def check_data_settings(data: Mapping[str, Any]) -> None:
    """Refuse a wrong value in a configuration's part about the data.

    Args:
        data: as composed and resolved. Settings that are unknown, or another class's, are left to
            whoever constructs them.

    Raises:
        UserError: a value has a wrong type or range.
    """
    if data.get("_target_") == DATA_MODULE:
        known = [field.name for field in fields(DataSettings)]
        values = {name: data[name] for name in known if name in data}
        # not constructed: that imports spaCy
        check_arguments(DataSettings.settings_place, values, DataSettings)


def check_configured_files(data: Mapping[str, Any]) -> bool:
    """`check_files` of a configuration's part about the data, where that is of local files.

    Args:
        data: as composed and resolved. Settings that are wrong are left to whoever constructs them.

    Returns:
        whether the files were read.

    Raises:
        UserError: see `check_files`.
    """
    source = data.get("source")
    if not isinstance(source, Mapping) or source.get("_target_") != FILE_SOURCE:
        return False
    try:
        files = FileSource(**{name: value for name, value in source.items() if name != "_target_"})
        names = [column.name for column in fields(Columns)]
        columns = Columns(**{name: data[name] for name in names if name in data})
    except (UserError, TypeError):
        return False
    check_files(files, columns)
    return True
