"""The one place that makes, replaces and removes what is in a run's directory.

A run holds files of known names (`is_run_name`), and nothing else is ever touched: no other name, whatever the run's own
list says; no name that the list does not hold; nothing that is reached by a link; no device, and no folder where a file
should be. What a command adds is prepared in a folder inside the run, `STAGING`. One rename of the manifest (of
training.json, for what a training writes) makes it true, and only then the files are moved to their places; readers look in
both (`RunDirectory.file`), so that a run is whole at every moment.
"""

import os
import re
import shutil
import stat
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from attnprobe.core.errors import UserError
from attnprobe.results.directory import (
    CONFIG,
    CURVES,
    MANIFEST,
    MARKER,
    STAGING,
    TRACKING,
    TRAINED,
    RunDirectory,
    is_run_name,
    splits_among,
)
from attnprobe.results.files import (
    DamagedRun,
    is_partial_of,
    read_sealed,
    record_of,
    signed,
    synchronise,
    write_sealed,
    write_text,
)
from attnprobe.results.manifest import Record

ABOUT = "This folder is a run of attnprobe. It may remove the files listed here, and no other."
CHECKPOINTS = "checkpoints/"
"""A folder in `STAGING` for the best epoch so far."""
FIRST = (MANIFEST, TRAINED, CONFIG, "findings.parquet")
"""Files that are written in their places at once; the last one is made of the tables, by readers too where it is missing."""
FOLDERS = (STAGING, CURVES, TRACKING)
"""Folders that may be listed; of the last two another library writes the content."""
TRACKED = re.compile(r"(offline-)?run-[^/]+|latest-run|debug(-internal)?\.log|settings")
"""What W&B makes in its folder."""
LOCK = f"{MARKER}.lock"


class OwnRunDirectory(RunDirectory):
    """A run's directory, held by the process that writes it."""

    def __init__(self, path: str | os.PathLike) -> None:
        super().__init__(path)
        self.written: set[str] = set()
        self.declared: set[str] = set()

    # Whose the folder is

    def refuse_foreign(self) -> None:
        """Refuse a folder that is somebody else's.

        Raises:
            UserError: there is something in it and it is not a run's own; or it is not a folder.
        """
        try:
            there = os.listdir(self.path)  # asked once: another process may remove an empty folder at any moment
        except FileNotFoundError:
            return
        except NotADirectoryError as error:
            if os.path.lexists(self.path):
                raise UserError(
                    f"cannot write to {self.path}: it is a file. Choose another place with output=… or run_dir=…"
                ) from error
            return
        if MARKER in there:
            return
        # a run that was killed at its first step has left the beginning of its list, or its lock
        others = [name for name in there if name != LOCK and not is_partial_of(MARKER, self / name)]
        if others:
            raise UserError(
                f"{self.path} is not empty and is not a run of attnprobe: there is {sorted(others)[0]}, and no {MARKER} that "
                f"says whose it is. Nothing was changed. Choose a new directory for run_dir, or another output=…"
            )

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
        return [name for name in names if name in FOLDERS or is_run_name(name)]

    def mark(self) -> None:
        """Make the folder and its list, unless they are there, and finish or remove what a killed command left."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(self / MARKER):
            self._list(FIRST)
        self.settle()

    def declare(self, *names: str) -> None:
        """List files before they are written.

        Raises:
            UserError: the list is gone, and the run with it; or there is such a file, and it is not the run's.
        """
        self._expect([MARKER])
        self.declared.update(names)
        known = self.names()
        new = [name for name in names if name not in known]
        for name in new:
            if os.path.lexists(self._checked(name)):
                raise UserError(
                    f"{self / name} is there and was not written by this run: it is left as it is, and nothing was changed. "
                    f"Move it away and give the same command again"
                )
        if new:
            self._list([*known, *new])

    def _list(self, names: Iterable[str]) -> None:
        write_sealed({"about": ABOUT, "files": list(names)}, self._checked(MARKER), make_folder=False)

    def _checked(self, name: str) -> Path:
        """The path of something of the run, to be written or removed.

        Raises:
            UserError: it, or a folder on the way to it, is something else than the run makes: a link, a device, a folder in
                place of a file.
        """
        staged = name.removeprefix(STAGING)
        assert name in (*FOLDERS, MARKER) or is_run_name(staged) or staged == CHECKPOINTS, name
        parts = PurePosixPath(name).parts
        for number in range(1, len(parts) + 1):
            path = self.path.joinpath(*parts[:number])
            is_folder = number < len(parts) or name.endswith("/")
            with suppress(FileNotFoundError, NotADirectoryError):
                mode = path.lstat().st_mode
                if not (stat.S_ISDIR(mode) if is_folder else stat.S_ISREG(mode)):
                    found = "a symbolic link" if stat.S_ISLNK(mode) else "something else"
                    wanted = "folder" if is_folder else "file"
                    raise UserError(
                        f"cannot write to {self / name}: {path} is {found}, expected a {wanted} of the run's own. "
                        f"Nothing was written there: move it away and give the same command again"
                    )
        return self / name

    def _expect(self, names: Iterable[str]) -> None:
        """Whether what was written is still there.

        Raises:
            UserError: somebody has removed it meanwhile.
        """
        for name in names:
            if not self.has(name):
                raise UserError(
                    f"lost {self / name}: somebody has removed it while the run was going on. Nothing half-written "
                    f"counts: give the same command again"
                )

    # What is being prepared

    def has(self, name: str) -> bool:
        """Whether there is something of this name, in its place or prepared."""
        return os.path.lexists(self / name) or os.path.lexists(self / f"{STAGING}{name}")

    def file(self, name: str) -> Path:
        """The path of one file; what this process wrote need not be in the manifest yet."""
        return self / f"{STAGING}{name}" if name in self.written else super().file(name)

    def splits(self) -> list[str]:
        """The splits that have examples, those included that this process wrote."""
        return [*splits_among(self.written), *(super().splits() if self.is_finished else [])]

    def place(self, name: str) -> Path:
        """Where to write a file: in the folder of what is being prepared, which is made."""
        self.folder(STAGING)
        path = self._checked(f"{STAGING}{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.written.add(name)
        return path

    def folder(self, name: str) -> Path:
        """The path of a folder: `STAGING`, one in it for what is no part of the run, or one of another library's. The first
        two are made."""
        if name not in (CURVES, TRACKING):
            if not os.path.lexists(self / STAGING):
                self.declare(STAGING)
            elif STAGING not in self.names():
                raise UserError(
                    f"{self / STAGING} was not made by this run: move it away and give the same command again"
                )
            path = self._checked(name if name == STAGING else f"{STAGING}{name}")
            path.mkdir(parents=True, exist_ok=True)
            return path
        if not os.path.lexists(self / name):
            self.declare(name)
        return self._checked(name)

    def write_config(self, text: str) -> None:
        """Write the settings, with a line that tells whether they are as they were written: until the run is finished no
        manifest does, and the file is in its place at once; the settings of a finished run are prepared as any other file."""
        if self.is_finished:
            write_text(signed(text), self.place(CONFIG))
        else:
            self._expect([MARKER])
            write_text(signed(text), self._checked(CONFIG), make_folder=False)

    # What makes it true

    def finish_training(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Write what is known since the training finished, with the checksums of the files that it prepared."""
        return self._commit(TRAINED, dict(content), {})

    def finish(self, content: Mapping[str, Any], files: Mapping[str, Record]) -> None:
        """Write the manifest.

        Args:
            content: all of it but the files.
            files: records of files that were there before. Those that this process prepared come on top.

        Raises:
            UserError: one of all these, or the list of files, is gone.
        """
        here = [CONFIG] if CONFIG not in self.written else []
        if CURVES in self.names():
            curves = sorted(path.name for path in (self / CURVES).glob("*") if path.is_file())
            here += [f"{CURVES}{name}" for name in curves if is_run_name(f"{CURVES}{name}")]
        self._expect([TRAINED, *files])
        self._clean(self.written)
        self._commit(MANIFEST, dict(content), {**files, **{name: record_of(self._checked(name)) for name in here}})

    def _commit(self, name: str, content: dict[str, Any], files: Mapping[str, Record]) -> dict[str, Any]:
        """Make what was prepared true by writing the file that lists it, then move it to its place.

        A folder that is gone by now is not made again: a manifest alone would say that the run is finished.
        """
        self._expect([MARKER, *sorted(self.written)])
        self.declare(name, *sorted(self.written))
        for one in self.written:
            self._checked(one)
        prepared = {one: record_of(self / f"{STAGING}{one}") for one in sorted(self.written)}
        content = content | {"files": dict(sorted({**files, **prepared}.items()))}
        write_sealed(content, self._checked(name), make_folder=False)
        self.written.clear()
        self.settle()
        return content

    def settle(self) -> None:
        """Move prepared files to their places that the manifest, or training.json, lists: those that a commit has made true.
        Remove what else was prepared, and what killed writes left.

        Raises:
            DamagedRun: one of the two is not as it was written.
        """
        for own in (MARKER, MANIFEST, TRAINED, CONFIG) if os.path.lexists(self / MARKER) else ():
            for path in self.path.glob(f".{own}.*.partial"):
                if is_partial_of(own, path):
                    path.unlink()
        if not os.path.lexists(self / STAGING) or STAGING not in self.names():
            return
        for records in (self.read_training() if self.is_trained else None, self.read_manifest()):
            for name, record in (records or {"files": {}})["files"].items():
                staged = self._checked(f"{STAGING}{name}") if is_run_name(name) else self / STAGING
                if staged.is_file() and record_of(staged) == record:
                    target = self._checked(name)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    os.replace(staged, target)
                    synchronise(target.parent)
        self._clean()

    # What is removed

    def _clean(self, kept: Collection[str] = ()) -> None:
        """Remove what is in `STAGING` but for the files that are to be kept."""
        if STAGING not in self.names() or (self / STAGING).is_symlink() or not (self / STAGING).is_dir():
            return
        for folder, _, files in os.walk(self / STAGING, topdown=False):
            for file in files:
                name = (Path(folder) / file).relative_to(self / STAGING).as_posix()
                whole = re.sub(r"(^|/)\.([^/]+)\.\d+\.partial$", r"\1\2", name)
                if name not in kept and (is_run_name(whole) or re.fullmatch(rf"{CHECKPOINTS}[^/]+\.ckpt", whole)):
                    (Path(folder) / file).unlink()
            with suppress(OSError):  # something else is in it
                Path(folder).rmdir()

    def clear(self) -> None:
        """Remove what the run listed, but for the list. The manifest goes first, then what a training can be resumed from, so
        that a kill in between leaves no run that looks finished."""
        names = self.names() if os.path.lexists(self / MARKER) else sorted(self.declared)
        for name in [MANIFEST, TRAINED, *(name for name in names if name not in (*FOLDERS, MANIFEST, TRAINED))]:
            with suppress(UserError):  # somebody has put a link or a folder there since
                self._checked(name).unlink(missing_ok=True)
        self._clean()
        if CURVES in names:
            self._remove_files([f"{CURVES}{path.name}" for path in (self / CURVES).glob("*")])
        if TRACKING in names and not (self / TRACKING).is_symlink():
            for path in (self / TRACKING).glob("*"):
                if TRACKED.fullmatch(path.name):
                    path.unlink() if path.is_symlink() or path.is_file() else shutil.rmtree(path)
        for folder in sorted(
            {(self / name).parent if name not in FOLDERS else self / name for name in names}, reverse=True
        ):
            with suppress(OSError):  # something else is in it
                if folder != self.path and not folder.is_symlink():
                    folder.rmdir()
        if os.path.lexists(self / MARKER):
            self._list(FIRST)
        self.written.clear()
        self.declared.clear()

    def _remove_files(self, names: Iterable[str]) -> None:
        for name in names:
            if is_run_name(name):
                with suppress(UserError):
                    self._checked(name).unlink(missing_ok=True)

    def discard(self) -> None:
        """Remove what the run listed, and the folder itself where nothing else is in it. Where somebody has removed the list,
        what this process listed is removed."""
        if not os.path.lexists(self / MARKER) and not self.declared:
            return
        self.clear()
        with suppress(FileNotFoundError):  # somebody has removed the folder
            if {path.name for path in self.path.iterdir()} <= {MARKER, LOCK}:
                (self / MARKER).unlink(missing_ok=True)
        with suppress(OSError):  # something else is in it, if only the lock
            self.path.rmdir()
