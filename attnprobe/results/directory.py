"""Run directories on disk: long parquet tables, the manifest, and how both are read back.

A run directory:

    config.yaml           everything that decides the numbers, resolved
    vocabulary.json       word → id
    model.safetensors     the weights of the chosen epoch
    examples/test.parquet one row per example: text, label, prediction, and its tokens and attention as lists
    tables/<probe>.parquet  long tables, one row = one number about one example (`COLUMNS`)
    figures/              drawn from the tables alone
    manifest.json         written last and atomically; lists the finished tables. No manifest, not done.
"""

import json
import os
from collections.abc import Iterable
from glob import glob
from pathlib import Path
from typing import Any

from attnprobe.errors import UserError

MANIFEST = "manifest.json"


def read_manifest(directory: Path) -> dict[str, Any] | None:
    """The manifest of a finished run, or None where there is none."""
    try:
        return json.loads((Path(directory) / MANIFEST).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None


def find_runs(places: str | os.PathLike | Iterable[str | os.PathLike]) -> list[Path]:
    """Directories of all finished runs at or below the given directories or glob patterns, sorted.

    Raises:
        UserError: nothing there, or nothing finished.
    """
    names = named_places(places)
    found = directories_with(MANIFEST, names)
    if not found:
        missing = [place for place in names if not glob(place) and not Path(place).exists()]
        reason = f"{', '.join(missing)} does not exist" if missing else "no manifest.json there"
        raise UserError(
            f"no finished run at {', '.join(names)}: {reason}. A run is finished once its manifest is written; "
            f"start one with `python -m attnprobe +experiment=jain_adversarial`, or name another directory."
        )
    return found


def named_places(places: str | os.PathLike | Iterable[str | os.PathLike]) -> list[str]:
    """One place or several as a list of texts."""
    several = [places] if isinstance(places, (str, os.PathLike)) else places
    return [os.fspath(place) for place in several]


def directories_with(file: str, places: Iterable[str]) -> list[Path]:
    """Every directory at or below these directories or glob patterns that holds a file of this name, sorted."""
    found: set[Path] = set()
    for place in places:
        # a directory may be named like a pattern
        for start in [place] if Path(place).exists() else glob(place, recursive=True):
            found.update(path.parent for path in Path(start).rglob(file))
    return sorted(found)
