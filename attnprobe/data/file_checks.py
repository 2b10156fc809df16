"""What is wrong with a user's files and columns, found without a model's libraries.

Importing torch takes longer than reading most files: a misspelt column need not wait for it.
"""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from attnprobe.core.errors import UserError
from attnprobe.core.settings import construct
from attnprobe.data.reader import Reader
from attnprobe.data.settings import DataSettings
from attnprobe.data.sources import FileSource

FILE_SOURCE = f"{FileSource.__module__}.{FileSource.__qualname__}"
NOT_SETTINGS = ("name", "source", "path", "seed", *signature(FileSource).parameters)
"""Entries of conf/data/files.yaml that are no `DataSettings`."""


def check_files(source: FileSource, settings: DataSettings) -> None:
    """Read local files before anything is trained.

    Raises:
        UserError: a file is missing, cannot be read, or lacks a column.
    """
    source.columns = settings.names
    loaded = source.load()
    settings.check_splits(loaded)
    for table in loaded.values():
        Reader(settings, settings.rules).check_columns(table)


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
        own = [name for name in data if name not in NOT_SETTINGS and not name.startswith("_")]
        settings = construct(DataSettings, {name: data[name] for name in own})
    except (UserError, TypeError):
        return False
    check_files(files, settings)
    return True
