"""The one place that makes, replaces and removes what is in a run's directory.

A run holds files of known names (`is_run_name`), and of these a file is the run's own if the run's
lists (manifest.json, training.json, and the journal of what is being replaced) have its SHA-256.
Nothing else is ever replaced or removed, whatever it is called: a file that is in the way is set
aside. What a command adds is prepared in a folder inside the run, `STAGING`. One rename of the
manifest (of training.json, for what a training writes) makes it true, and only then the files are
moved to their places; readers look in both (`RunDirectory.file`), so that a run is whole at every
moment. No link is followed.
"""

import os
import re
import stat
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path, PurePosixPath
from typing import Any

from attnprobe.core.errors import UserError, answering_disk
from attnprobe.results.directory import (
    CURVES,
    FINDINGS,
    MANIFEST,
    MARKER,
    STAGING,
    TRAINED,
    RunDirectory,
    is_run_name,
    refuse_other_names,
)
from attnprobe.results.files import (
    SEAL,
    UNSIGNED,
    DamagedRun,
    Record,
    damaged,
    is_derived,
    is_record,
    is_signed,
    is_signed_table,
    read_sealed,
    record_of,
    sign,
    synchronise,
    write_atomically,
    write_sealed,
    write_text,
)

CHECKPOINTS = "checkpoints/"
"""A folder in `STAGING` for the best epoch so far."""
JOURNAL = "replaced.json"
"""A file in `STAGING`: the records of files of the run that are about to be replaced or removed."""
LOCK = f"{MARKER}.lock"

LISTED = ".attnprobe-files"
"""In a folder that a user named: which of its files attnprobe wrote."""


def _left_as_it_is(
    path: Path, reason: str = "is there, and is not as attnprobe wrote it"
) -> UserError:
    return UserError(f"{path} {reason}: it was left as it is. Move it away, or give another name")


def _is_plain_name(value: Any) -> bool:
    """Whether a value names something within a folder: no absolute path, and no way out of it."""
    if not isinstance(value, str) or not value or "\0" in value:
        return False
    path = PurePosixPath(value)
    return not path.is_absolute() and ".." not in path.parts


def refuse_unwritable(folder: Path) -> None:
    """Refuse a folder in which nothing can be made, before any work is done for it.

    Args:
        folder: need not exist.

    Raises:
        UserError: if it, or the first folder above it that exists, is none that may be written to.
    """
    place = folder.absolute()
    while not os.path.lexists(place):
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        raise UserError(
            f"cannot write to {folder}: expected a folder that you may write to, and {place} is "
            f"none. Give another name"
        )


def own_target(path: Path) -> Path:
    """The path of a file that a user named, if nothing is there yet or an earlier call wrote it.

    Raises:
        UserError: if there is another file, one that was changed since, a link, a folder or a
            device, which is left as it is; or its folder may not be written to.
    """
    refuse_unwritable(path.parent)
    is_own = not os.path.lexists(path)
    with suppress(DamagedRun):
        is_own = is_own or is_signed(path) or is_signed_table(path)
    if is_own:
        return path
    raise _left_as_it_is(path)


def own_sealed(path: Path) -> Path:
    """The path of a sealed file, if nothing is there yet or what is there has its seal.

    Raises:
        UserError: if there is something else, which is left as it is.
    """
    if os.path.lexists(path):
        try:
            read_sealed(path)
        except DamagedRun:
            raise _left_as_it_is(path) from None
    return path


def write_page(page: str, path: Path) -> None:
    """Write an HTML page that says who wrote it.

    Raises:
        UserError: if what is there is not as attnprobe wrote it.
    """
    content = page.encode(errors="replace") + b"<!-- " + UNSIGNED + b" -->\n"
    write_signed(path, lambda target: target.write_bytes(content))


def write_signed(path: Path, write: Callable[[Path], Any]) -> None:
    """Write a file of which an unchanged one is replaced, and no other.

    Args:
        path: of the file.
        write: is called with the temporary path; what it writes ends with `UNSIGNED`.

    Raises:
        UserError: if what is there is not as attnprobe wrote it, or the disk refuses it.
    """

    def write_and_sign(temporary: Path) -> None:
        write(temporary)
        sign(temporary)

    with answering_disk(path):
        write_atomically(own_target(path), write_and_sign)


class OwnFolder:
    """A folder that a user named, or that stands beside a page, with a list of attnprobe's files.

    Attributes:
        path: of the folder.
        known: files that attnprobe wrote.
        written: those of this call.
        last: those of the last call whose list was closed.
        records: what they held then.
    """

    def __init__(self, path: Path) -> None:
        """Read the list of the last call.

        Args:
            path: of the folder, which need not exist.

        Raises:
            UserError: if it is no folder, or a file was changed since its list was closed.
        """
        self.path = path
        self.written = list[str]()
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise _left_as_it_is(path, "is no folder")
        listing = self._read_listing()
        self.known = set(listing["files"])
        self.last = list(listing["last"])
        self.records = dict(listing.get("records", {}))
        for name, record in self.records.items():
            with suppress(DamagedRun):  # it is gone, or what is there is refused when it is written
                if record_of(path / name) != record:
                    raise _left_as_it_is(path / name, "was changed since attnprobe wrote it")

    def _read_listing(self) -> dict[str, Any]:
        """What the last call listed; empty lists where no call has written here.

        Raises:
            DamagedRun: if the list is not as it was written, or holds anything but names of files
                in this folder and records.
        """
        path = self.path / LISTED
        if not os.path.lexists(path):
            return {"files": [], "last": []}
        listing = read_sealed(path)
        for key in ("files", "last"):
            names = listing.get(key)
            if not (isinstance(names, list) and all(_is_plain_name(name) for name in names)):
                raise damaged(path, f"{key} is {str(names)[:80]}, expected names of files")
        records = listing.get("records", {})
        if not (
            isinstance(records, dict)
            and all(_is_plain_name(name) and is_record(record) for name, record in records.items())
        ):
            raise damaged(path, f"records is {str(records)[:80]}, expected a record by name")
        return listing

    def __truediv__(self, name: str) -> Path:
        """The path of a file that is going to be written.

        Raises:
            UserError: if a file is there that attnprobe did not write, or a link, a folder or a
                device.
        """
        path = self.path / name
        is_known = name in self.known
        if os.path.lexists(path) and not (is_known and stat.S_ISREG(path.lstat().st_mode)):
            raise _left_as_it_is(path)
        if not is_known or not self.written:  # from now on the files are not those of the records
            self.known.add(name)
            self.close(final=False)
        self.written.append(name)
        return path

    def close(self, *, final: bool = True) -> None:
        """List the files, and those that this call wrote with their records.

        Args:
            final: whether it has written all of them; if not, no records are known.
        """
        records: dict[str, Record] = {}
        if final:
            self.last = self.written
            records = dict(self.records)
            for name in self.written:
                if os.path.lexists(self.path / name):
                    records[name] = record_of(self.path / name)
        about = "Files here that attnprobe wrote and may replace, and those of its last call."
        content = {
            "about": about,
            "files": sorted(self.known),
            "last": self.last,
            "records": records,
        }
        write_sealed(content, self.path / LISTED)


def _is_prepared_name(name: str) -> bool:
    """Whether a file in `STAGING`, half-written or whole, is one that a run prepares."""
    whole = re.sub(r"(^|/)\.([^/]+)\.\d+\.partial$", r"\1\2", name)
    is_checkpoint = re.fullmatch(rf"{CHECKPOINTS}[^/]+\.ckpt", whole) is not None
    return whole == JOURNAL or is_run_name(whole) or is_checkpoint


class OwnRunDirectory(RunDirectory):
    """A run's directory, held by the process that writes it.

    Attributes:
        began: whether this process has made `STAGING`.
        is_replaced: whether what is there stays only until this process has finished a training.
    """

    def __init__(self, path: str | os.PathLike) -> None:
        super().__init__(path)
        self.began = False
        self.is_replaced = False

    @property
    def is_trained(self) -> bool:
        """The training is finished that this process goes on from."""
        return super().is_trained and not self.is_replaced

    def refuse_foreign(self) -> None:
        """Refuse a place that is not this run's.

        Raises:
            UserError: if it is no folder, or none that this user may look into, or something is in
                it and it is no run.
        """
        names: list[str] = []
        try:
            # listed once: another process may remove an empty folder at any moment
            with suppress(FileNotFoundError):
                names = os.listdir(self.path)
        except OSError as error:
            reason = error.strerror
            if isinstance(error, NotADirectoryError):
                reason = "it is a file, or within one"
            raise UserError(
                f"cannot write to {self.path}: {reason}. "
                f"Choose another place with output=… or run_dir=…"
            ) from error
        if MARKER in names:
            return
        # a run that was killed at its first step has left the beginning of its mark, or its lock
        partial_mark = rf"\.{re.escape(MARKER)}\.\d+\.partial"
        foreign = [name for name in names if name != LOCK and not re.fullmatch(partial_mark, name)]
        if foreign:
            raise UserError(
                f"{self.path} is not empty and is not a run of attnprobe: there is {min(foreign)}, "
                f"and no {MARKER} that says whose it is. Nothing was changed. "
                f"Choose a new directory for run_dir, or another output=…"
            )

    def mark(self) -> None:
        """Make the folder and its mark, and finish or remove what a killed command left."""
        self.path.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(self / MARKER):
            about = (
                "This folder is a run of attnprobe, which replaces and removes the files that "
                "manifest.json lists, and no others.\n"
            )
            write_text(about, self.checked(MARKER))
        self.settle()

    def checked(self, name: str) -> Path:
        """The path of something of the run, to be written or removed.

        Args:
            name: relative to the run, of a folder with `/` at its end.

        Raises:
            UserError: if it leads out of the run, or it, or a folder on the way to it, is something
                else than the run makes: a link, a device, a folder in place of a file.
        """
        parts = PurePosixPath(name).parts
        if not _is_plain_name(name):
            raise UserError(
                f"{name[:200]!r} is no name in {self.path}: expected one within the run"
            )
        for number in range(1, len(parts) + 1):
            path = self.path.joinpath(*parts[:number])
            if not os.path.lexists(path):
                continue
            expects_folder = number < len(parts) or name.endswith("/")
            is_expected = path.is_dir() if expects_folder else path.is_file()
            if path.is_symlink() or not is_expected:
                kind = "a symbolic link" if path.is_symlink() else "something else"
                expected = "folder" if expects_folder else "file"
                raise UserError(
                    f"cannot write to {self / name}: {path} is {kind}, expected a {expected} of "
                    f"the run's own. Nothing was written there: move it away and give the same "
                    f"command again"
                )
        return self / name

    def _expect(self, *names: str) -> None:
        """Raises `UserError` where somebody has removed what was written."""
        for name in names:
            if not self.has(name):
                raise UserError(
                    f"lost {self / name}: somebody has removed it while the run was going on. "
                    f"Nothing half-written counts: give the same command again"
                )

    def has(self, name: str) -> bool:
        """Whether there is something of this name, in its place or prepared."""
        return os.path.lexists(self / name) or os.path.lexists(self / f"{STAGING}{name}")

    # What is being prepared

    def place(self, name: str) -> Path:
        """Where to write a file: in the folder of what is being prepared, which is made."""
        self.folder("")
        path = self.checked(f"{STAGING}{name}")
        path.parent.mkdir(parents=True, exist_ok=True)
        self.written.add(name)
        return path

    def folder(self, name: str) -> Path:
        """Make `STAGING`, or a folder in it that another library writes to; its path."""
        self._expect(MARKER)
        self.began = True
        path = self.checked(f"{STAGING}{name}")
        path.mkdir(parents=True, exist_ok=True)
        return path

    # What makes it true

    def finish_training(self, content: Mapping[str, Any]) -> dict[str, Any]:
        """Write what is known since the training finished, with checksums of what it prepared.

        A finished run that it replaces is removed first.
        """
        if self.is_replaced:
            records = self._records()
            write_sealed(dict(records), self.place(JOURNAL))
            self.written.discard(JOURNAL)
            self._remove_all(records)
            self.is_replaced = False
        curves = [f"{CURVES}{path.name}" for path in (self / STAGING / CURVES).glob("*")]
        self.written.update(name for name in curves if is_run_name(name))
        return self._commit(TRAINED, dict(content), {})

    def finish(self, content: Mapping[str, Any], files: Mapping[str, Record]) -> None:
        """Write the manifest.

        Args:
            content: all of it but the files.
            files: records of those that were there before.

        Raises:
            UserError: if one of these, of those prepared, or the mark is gone.
        """
        self._expect(TRAINED, *files)
        self._commit(MANIFEST, dict(content), files)

    def _commit(
        self, name: str, content: dict[str, Any], files: Mapping[str, Record]
    ) -> dict[str, Any]:
        """Make what was prepared true: move the file that lists it into place, then the others."""
        self._expect(MARKER, *self.written)
        records = self._records()
        prepared = {file: record_of(self / f"{STAGING}{file}") for file in self.written}
        content["files"] = dict(sorted({**files, **prepared}.items()))
        replaced = {file: records[file] for file in sorted(prepared) if file in records}
        write_sealed(replaced, self.place(JOURNAL))
        write_sealed(content, self.place(name))
        self._install(name, records)
        self.written.clear()
        self.settle()
        return content

    def _records(self) -> dict[str, list[Record]]:
        """What the run's files hold, by its lists.

        A list that is not as it was written, or that names anything but files of a run, says
        nothing: a folder from elsewhere must not choose what is removed here.
        """
        records: dict[str, list[Record]] = {}
        with suppress(DamagedRun):
            records = self._read_journal()
        for listing in (TRAINED, MANIFEST):
            with suppress(UserError):
                for name, record in self.read_listing(listing)["files"].items():
                    records.setdefault(name, []).append(record)
        return records

    def _read_journal(self) -> dict[str, list[Record]]:
        """The records of the files that are about to be replaced or removed, by name.

        Raises:
            DamagedRun: if the journal is missing, is not as it was written, names a file that no
                run has, or lists something else than records.
        """
        path = self / STAGING / JOURNAL
        journal = read_sealed(path)
        del journal[SEAL]
        refuse_other_names(journal, path)
        for name, records in journal.items():
            if not (isinstance(records, list) and all(is_record(record) for record in records)):
                raise damaged(path, f"{name!r} has {str(records)[:80]}, expected a list of records")
        return journal

    def _is_own(self, name: str, records: Mapping[str, list[Record]]) -> bool:
        """Whether what is in the place of a file was written by the run."""
        try:
            if name in (MANIFEST, TRAINED):
                return "files" in read_sealed(self / name)
            if name == FINDINGS:
                return is_derived(self / name)
            return record_of(self / name) in records.get(name, [])
        except (UserError, OSError):
            return False

    def _install(self, name: str, records: Mapping[str, list[Record]]) -> None:
        """Move a prepared file to its place; what the run did not write there is set aside."""
        # a folder that is gone by now is not made again: a manifest alone would say that it is
        # finished
        self._expect(MARKER)
        path = self.checked(name)
        if os.path.lexists(path) and not self._is_own(name, records):
            self._set_aside(path)
        path.parent.mkdir(exist_ok=True)
        os.replace(self.checked(f"{STAGING}{name}"), path)
        synchronise(path.parent)

    def _set_aside(self, path: Path) -> None:
        names = (path.with_name(f"{path.name}.kept{number or ''}") for number in count())
        free_name = next(name for name in names if not os.path.lexists(name))
        path.rename(free_name)
        print(
            f"attnprobe: {path} is not as the run wrote it: it is kept as {free_name.name}",
            file=sys.stderr,
            flush=True,
        )

    def settle(self) -> None:
        """Finish what a commit has made true, and remove what else was prepared.

        Prepared files that the manifest, or training.json, lists are moved to their places.

        Raises:
            DamagedRun: if one of the two is not as it was written.
        """
        is_marked = os.path.lexists(self / MARKER)
        if not (is_marked and os.path.lexists(self / STAGING) and self.is_trained):
            return
        records = self._records()
        for listing in (self.read_listing(TRAINED), self.read_manifest() or {"files": {}}):
            for name, record in listing["files"].items():
                staged = self.checked(f"{STAGING}{name}")
                if staged.is_file() and record_of(staged) == record:
                    self._install(name, records)
        self._clean()

    # What is removed

    def _clean(self) -> None:
        """Remove what was prepared."""
        if (self / STAGING).is_symlink():
            return
        for folder, folders, files in os.walk(self / STAGING, topdown=False):
            links = [name for name in folders if Path(folder, name).is_symlink()]
            for file in (*files, *links):
                path = Path(folder) / file
                if _is_prepared_name(path.relative_to(self / STAGING).as_posix()):
                    path.unlink()
            with suppress(OSError):  # something else is in it
                Path(folder).rmdir()

    def replace(self) -> None:
        """Begin anew; a finished run stays as it is until `finish_training`.

        What is less than a finished run, or is damaged, is removed at once.
        """
        try:
            self.settle()
            self.is_replaced = self.is_trained and self.read_manifest() is not None
        except UserError:
            self.is_replaced = False
        if not self.is_replaced:
            self.clear()

    def clear(self) -> None:
        """Remove the run's files, but for its mark.

        The journal remembers them, so that a removal that is cut short goes on.
        """
        is_marked = os.path.lexists(self / MARKER)
        if is_marked:
            records = self._records()
            with suppress(UserError):  # what is in the way is named when it is written to
                self._remember(records)
            self._remove_all(records)
        if self.began or is_marked:
            self._clean()
        self.written.clear()

    def _remember(self, records: Mapping[str, list[Record]]) -> None:
        """Write the journal; on a full disk, in the room of what was prepared."""
        if not records:
            return
        try:
            write_sealed(dict(records), self.folder("") / JOURNAL)
        except OSError:
            self._clean()
            write_sealed(dict(records), self.folder("") / JOURNAL)

    def _remove_all(self, records: Mapping[str, list[Record]]) -> None:
        """Remove what is in its place.

        The manifest goes first, so that no run looks finished that is not.
        """
        for name in (MANIFEST, TRAINED, FINDINGS, *records):
            with suppress(UserError):  # somebody has put a link or a folder there since
                self._remove(name, records)
        for folder in {(self / name).parent for name in records} - {self.path}:
            with suppress(OSError):  # something else is in it
                folder.rmdir()

    def _remove(self, name: str, records: Mapping[str, list[Record]]) -> None:
        """Remove one of the run's own files; a list that is not its own is set aside."""
        path = self.checked(name)
        if self._is_own(name, records):
            path.unlink()
        elif name in (MANIFEST, TRAINED) and os.path.lexists(path):
            self._set_aside(path)

    def discard(self) -> None:
        """As `clear`, and remove the folder itself where nothing else is in it.

        Of a finished run that was going to be replaced nothing is removed.
        """
        if not (self.began or os.path.lexists(self / MARKER)):
            return
        if self.is_replaced:
            self._clean()
            self.written.clear()
            return
        self.clear()
        # somebody has removed the folder, or something else is in it, if only the lock
        with suppress(OSError):
            if {path.name for path in self.path.iterdir()} <= {MARKER, LOCK}:
                (self / MARKER).unlink(missing_ok=True)
            self.path.rmdir()
