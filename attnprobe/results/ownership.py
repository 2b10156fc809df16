"""What a run may write and remove: files are listed before they are written, and nothing else is ever touched.

The list is in the run's first file, `.attnprobe`. It is what makes a folder a run's own.
"""

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from attnprobe.errors import UserError
from attnprobe.results.checksums import DamagedRun, Record, read_sealed, record_of, signed
from attnprobe.results.directory import CONFIG, MANIFEST, MARKER, TRAINED, RunDirectory, splits_among, table_file
from attnprobe.results.files import is_partial_of, write_sealed, write_text

ABOUT = "This folder is a run of attnprobe. It may remove the files listed here, and no other."


class OwnRunDirectory(RunDirectory):
    """A run's directory, held by the process that writes it."""

    def __init__(self, path: str | os.PathLike) -> None:
        super().__init__(path)
        self.written: set[str] = set()
        self.declared: set[str] = set()

    def file(self, name: str) -> Path:
        """The path of one file; what this process wrote need not be in the manifest yet."""
        return self / name if name in self.written else super().file(name)

    def splits(self) -> list[str]:
        """The splits that have examples, those included that this process wrote."""
        return [*splits_among(self.written), *(super().splits() if self.is_finished else [])]

    def names(self) -> list[str]:
        """The files, and folders (with a slash), that this run may remove: listed whether written yet or not.

        Raises:
            DamagedRun: the list is not as it was written.
        """
        if not os.path.lexists(self / MARKER):
            return []
        try:
            listed = read_sealed(self / MARKER).get("files")
        except DamagedRun as error:
            reason = str(error).split(": ")[1][:80]
            raise DamagedRun(
                f"{self / MARKER}, which lists what the run may remove, is damaged ({reason}): look at what is in "
                f"{self.path} and remove the folder yourself, or choose another with output=… or run_dir=…"
            ) from None
        names = [name for name in listed if isinstance(name, str)] if isinstance(listed, list) else []
        return [name for name in names if is_inside(name)]

    def refuse_foreign(self) -> None:
        """Refuse a folder that is somebody else's.

        Raises:
            UserError: there is something in it and it is not a run's own; or it is not a folder.
        """
        if self.path.exists() and not self.path.is_dir():
            raise UserError(
                f"cannot write to {self.path}: it is a file. Choose another place with output=… or run_dir=…"
            )
        if not self.path.exists() or os.path.lexists(self / MARKER):
            return
        # a run that was killed at its first step has left the beginning of its list
        others = [path.name for path in self.path.iterdir() if not is_partial_of(MARKER, path)]
        if others:
            raise UserError(
                f"{self.path} is not empty and is not a run of attnprobe: there is {sorted(others)[0]}, and no {MARKER} that "
                f"says whose it is. Nothing was changed. Choose a new directory for run_dir, or another output=…"
            )

    def mark(self) -> None:
        """Make the folder and write its list, unless that is there; remove what killed writes of listed files left."""
        self.path.mkdir(parents=True, exist_ok=True)
        for path in self.path.iterdir():
            if is_partial_of(MARKER, path):
                path.unlink()
        if not os.path.lexists(self / MARKER):
            self._list([MANIFEST, TRAINED, CONFIG])
        self._remove_partials(self.names())

    def _remove_partials(self, names: Iterable[str]) -> None:
        """Remove what killed writes of these files left."""
        for name in names:
            if name.endswith("/") or self._is_beyond_link(name):
                continue
            for path in (self / name).parent.glob(".*.partial"):
                if is_partial_of((self / name).name, path):
                    path.unlink()

    def _is_beyond_link(self, name: str) -> bool:
        """Somebody has put another place here since."""
        return any((self.path / folder).is_symlink() for folder in PurePosixPath(name).parents if folder.name)

    def _list(self, names: Iterable[str]) -> None:
        write_sealed({"about": ABOUT, "files": list(names)}, self / MARKER, make_folder=False)

    def place(self, name: str) -> Path:
        """The path of a file that is about to be written; it is listed first."""
        self.declare(name)
        self.written.add(name)
        return self / name

    def folder(self, name: str) -> Path:
        """The path of a folder that is about to be made and may be removed with all that is in it."""
        assert name.endswith("/"), name
        if not os.path.lexists(self / name):
            self.declare(name)
        return self / name

    def declare(self, *names: str) -> None:
        """List files before they are written.

        Raises:
            UserError: the list is gone, and the run with it.
        """
        self._expect([MARKER])
        self.declared.update(names)
        known = self.names()
        if new := [name for name in names if name not in known]:
            self._list([*known, *new])

    def _expect(self, names: Iterable[str]) -> None:
        """Whether what was written is still there.

        Raises:
            UserError: somebody has removed it meanwhile.
        """
        if missing := [name for name in names if not os.path.lexists(self / name)]:
            raise UserError(
                f"lost {self / missing[0]}: somebody has removed it while the run was going on. Nothing half-written "
                f"counts: give the same command again"
            )

    def write_config(self, text: str) -> None:
        """Write the settings, with a line that tells whether they are as they were written: until the run is finished no
        manifest does."""
        write_text(signed(text), self.place(CONFIG))

    def finish_training(self, content: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
        """Write what is known since the training finished, with the checksums of the files that it wrote.

        Raises:
            UserError: one of them, or the list of files, is gone.
        """
        names = list(names)
        self._expect([MARKER, *names])
        content = content | {"files": {name: record_of(self / name) for name in names}}
        write_sealed(content, self / TRAINED, make_folder=False)
        return content

    def withdraw(self, probes: Iterable[str], names: Iterable[str]) -> dict[str, Any]:
        """Take these probes' tables, and these files, out of the manifest before they are written again.

        At no moment does the manifest list what another measurement has written.

        Returns:
            the manifest that remains: `tables` and `files`, both empty where the run was not finished.
        """
        manifest = self.read_manifest()
        if manifest is None:
            return {"tables": {}, "files": {}}
        gone = {*names, *(table_file(probe) for probe in probes)}
        manifest["tables"] = {probe: entry for probe, entry in manifest["tables"].items() if probe not in set(probes)}
        manifest["files"] = {name: record for name, record in manifest["files"].items() if name not in gone}
        write_sealed(manifest, self / MANIFEST, make_folder=False)
        return manifest

    def finish(self, content: dict[str, Any], files: dict[str, Record]) -> None:
        """Write the manifest.

        Args:
            content: all of it but the files.
            files: records of files that were there before. Those that this process wrote come on top.

        Raises:
            UserError: one of all these, or the list of files, is gone.
        """
        self._expect([MARKER, TRAINED, *files, *sorted(self.written)])
        written = {name: record_of(self / name) for name in sorted(self.written - {TRAINED})}
        inside = [name for name in self.names() if name.endswith("/") and name in KEPT_FOLDERS]
        kept = [path for name in inside for path in (self / name).rglob("*") if path.is_file()]
        written |= {path.relative_to(self.path).as_posix(): record_of(path) for path in sorted(kept)}
        # a folder that is gone by now is not made again: a manifest alone would say that the run is finished
        listed = dict(sorted((files | written).items()))
        write_sealed(content | {"files": listed}, self / MANIFEST, make_folder=False)

    def clear(self) -> None:
        """Remove what the run listed, and what killed writes of it left, but for the list. The manifest goes first, then what
        a training can be resumed from, so that a kill in between leaves no run that looks finished."""
        names = self.names() if os.path.lexists(self / MARKER) else sorted(self.declared)
        for name in [MANIFEST, TRAINED, *(name for name in names if name not in (MANIFEST, TRAINED))]:
            path = self / name
            if self._is_beyond_link(name):
                continue
            if name.endswith("/"):
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path)
            elif path.is_symlink() or path.is_file():
                path.unlink()
        self._remove_partials(names)  # while the list still says whose they are
        for folder in sorted({(self / name).parent for name in names} - {self.path}, reverse=True):
            with suppress(OSError):  # something else is in it
                folder.rmdir()
        if os.path.lexists(self / MARKER):
            self._list([MANIFEST, TRAINED, CONFIG])
        self.written.clear()
        self.declared.clear()

    def discard(self) -> None:
        """Remove what the run listed, and the folder itself where nothing else is in it. Where somebody has removed the list,
        what this process listed is removed."""
        if not os.path.lexists(self / MARKER) and not self.declared:
            return
        self.clear()
        with suppress(FileNotFoundError):  # somebody has removed the folder
            if [path.name for path in self.path.iterdir()] == [MARKER]:
                (self / MARKER).unlink()
        with suppress(OSError):  # something else is in it
            self.path.rmdir()


KEPT_FOLDERS = ("training/",)
"""Folders whose files are in the manifest: what another library writes into them is complete when the run is."""


def is_inside(name: str) -> bool:
    """Whether a listed name is one below the run's folder.

    >>> is_inside("tables/a.parquet"), is_inside("../a"), is_inside("/a"), is_inside("")
    (True, False, False, False)
    """
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts and "\0" not in name
