"""Finished runs at or below directories and glob patterns, the damaged ones left out and named."""

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from glob import glob
from pathlib import Path
from typing import Any

from attnprobe.errors import UserError
from attnprobe.results.checksums import DamagedRun
from attnprobe.results.directory import MANIFEST, RunDirectory


class DamagedRunWarning(UserWarning):
    """Some of several runs were left out, because they are damaged."""


def find_runs(
    places: str | os.PathLike | Iterable[str | os.PathLike],
    check: Callable[[RunDirectory], Any] = RunDirectory.verify,
) -> list[Path]:
    """Directories of all sound finished runs at or below the given directories or glob patterns, sorted.

    What is damaged, or another program's manifest.json, is left out and named in a `DamagedRunWarning`.

    Args:
        places: a directory, a glob pattern, or several.
        check: raises `DamagedRun` for a run to leave out; without it every file is compared with the manifest.

    Raises:
        UserError: nothing there, nothing finished, or nothing sound.
    """
    sound, skipped = sound_runs(places, check)
    warn_of(skipped)
    return sound


def sound_runs(
    places: str | os.PathLike | Iterable[str | os.PathLike],
    check: Callable[[RunDirectory], Any] = RunDirectory.verify,
) -> tuple[list[Path], list[DamagedRun]]:
    """As `find_runs`: the sound runs, and what is wrong with the others.

    Raises:
        UserError: nothing there, nothing finished, or nothing sound.
    """
    names = named_places(places)
    directories = directories_with(MANIFEST, names)
    if not directories:
        missing = [place for place in names if not glob(place) and not Path(place).exists()]
        reason = f"{', '.join(missing)} does not exist" if missing else "no manifest.json there"
        raise UserError(
            f"no finished run at {', '.join(names)}: {reason}. A run is finished once its manifest is written; "
            f"start one with `python -m attnprobe +experiment=jain_adversarial`, or name another directory."
        )
    sound, skipped = [], []
    for directory in directories:
        try:
            check(RunDirectory(directory))
            sound.append(directory)
        except DamagedRun as error:
            skipped.append(error)
    if not sound:
        raise skipped[0]
    return sound, skipped


def warn_of(skipped: Sequence[DamagedRun]) -> None:
    """Name the runs that were left out."""
    if skipped:
        count = "a run was" if len(skipped) == 1 else f"{len(skipped)} runs were"
        lines = "".join(f"\n- {error}" for error in skipped)
        warnings.warn(f"{count} left out:{lines}", DamagedRunWarning, stacklevel=3)


def named_places(places: str | os.PathLike | Iterable[str | os.PathLike]) -> list[str]:
    """One place or several as a list of texts."""
    several = [places] if isinstance(places, (str, os.PathLike)) else places
    return [os.fspath(place) for place in several]


def directories_with(file: str, places: Iterable[str]) -> list[Path]:
    """Every directory at or below these directories or glob patterns that holds a file of this name, sorted."""
    directories: set[Path] = set()
    for place in places:
        # a directory may be named like a pattern
        for start in [place] if Path(place).exists() else glob(place, recursive=True):
            directories.update(path.parent for path in Path(start).rglob(file))
    return sorted(directories)
