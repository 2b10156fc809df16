"""Files that are never seen half-written, and are on the disk once they are seen."""

import errno
import glob
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from io import BufferedReader
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from typing_extensions import TypedDict

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import visible

# Files that somebody else may have written: read in bounded time and memory, and as plain data.
# Whatever is wrong with one ends in one `UserError` that names it. A file that is not there raises
# `FileNotFoundError`: that often means something.

MAX_JSON = 256 << 20
"""Bytes. A manifest lists the classes, which may be all the words of a language: some megabytes."""
DEEPEST_YAML = 100
"""Levels of settings. Python's own limit depends on its version."""


class Record(TypedDict):
    """`sha256` and `bytes` of one file."""

    sha256: str
    bytes: int


class NamedRecord(Record):
    """The same, with the file's `name` without its folder."""

    name: str


def is_record(value: Any) -> bool:
    """Whether a value that was read from a file is a `Record`."""
    return (
        isinstance(value, dict)
        and set(value) == {"sha256", "bytes"}
        and isinstance(value["sha256"], str)
        and isinstance(value["bytes"], int)
    )


class PlainLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML's safe loader, to which a date is text."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [resolver for resolver in resolvers if not resolver[0].endswith(":timestamp")]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


class DamagedRun(UserError):
    """A file of a run is missing, cut off, changed, or of another program.

    Attributes:
        problem: names the file, and says what is wrong with it.
    """

    def __init__(self, problem: str, remedy: str = "") -> None:
        super().__init__(f"{problem}. {remedy}" if remedy else problem)
        self.problem = visible(problem)


def damaged(path: str | os.PathLike, reason: str) -> DamagedRun:
    """The error that names a damaged file."""
    return DamagedRun(
        f"{path} is damaged: {reason}",
        "Copy the run again from where it came, or give its command again with "
        "on_finished=replace to train and measure it again",
    )


def open_regular(path: str | os.PathLike, *, required: bool = False) -> BufferedReader:
    """Open a regular file for reading.

    No link, which in a run directory from elsewhere leads to any file of this machine, and no pipe
    or device, so that reading it ends.

    Args:
        path: of the file.
        required: whether a missing file is damage.

    Raises:
        DamagedRun: if it is something else, or cannot be read.
        FileNotFoundError: if it is missing and not required.
        NotADirectoryError: likewise, if a folder on its path is none.
    """
    flags = os.O_RDONLY
    for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"):  # not every system has each of them
        flags |= getattr(os, name, 0)
    try:
        descriptor = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        if required:
            raise damaged(path, "it is missing") from None
        raise
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise damaged(path, "it is a symbolic link, expected a regular file") from None
        if error.errno == errno.EACCES:
            raise DamagedRun(
                f"{path} is not for you to read ({error.strerror}): ask its owner for the right to"
            ) from None
        raise damaged(path, f"it cannot be read ({error.strerror})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise damaged(path, "it is a folder, a pipe or a device, expected a regular file")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: str | os.PathLike, *, required: bool = False) -> bytes:
    """The content of a regular file of at most `MAX_JSON` bytes; raises as `open_regular` does."""
    with open_regular(path, required=required) as file:
        content = file.read(MAX_JSON + 1)
    if len(content) > MAX_JSON:
        raise damaged(path, f"it has more than {MAX_JSON:,} bytes")
    return content


def read_json(path: str | os.PathLike, content: bytes | None = None) -> dict[str, Any]:
    """A JSON object, whose file may have been read already; raises as `open_regular` does."""
    raw = read_bytes(path) if content is None else content
    try:
        value = json.loads(raw.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        raise damaged(path, "it is no JSON, or not all of it") from None
    if not isinstance(value, dict):
        raise damaged(path, "it holds no JSON object")
    return value


def read_yaml(path: str | os.PathLike) -> dict[str, Any]:
    """A YAML mapping of plain data without aliases, a few lines of which grow without end.

    Raises:
        DamagedRun: if it is something else; and as `open_regular`.
    """
    content = read_bytes(path)
    try:
        _check_yaml(content)
        value = yaml.load(content, Loader=PlainLoader)
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise ValueError("expected settings by name")
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise damaged(path, " ".join(str(error).split())[:200]) from None
    return value


def _check_yaml(content: bytes) -> None:
    events = list(yaml.parse(content, Loader=PlainLoader))
    if any(isinstance(event, yaml.AliasEvent) for event in events):
        raise ValueError("aliases are refused, a run writes plain data")
    levels = accumulate(_step_in_depth(event) for event in events)
    if max(levels, default=0) > DEEPEST_YAML:
        raise ValueError(f"expected at most {DEEPEST_YAML} levels of settings")


def _step_in_depth(event: yaml.Event) -> int:
    is_start = isinstance(event, yaml.CollectionStartEvent)
    return int(is_start) - int(isinstance(event, yaml.CollectionEndEvent))


# What a file holds, in 64 hexadecimal digits; and JSON files that carry their own.

SEAL = "checksum"
"""The key under which a sealed JSON file holds the SHA-256 of the rest of it."""
SETTLED = 2_000_000_000
"""Nanoseconds. A file that changed more recently than this may change again within the same tick of
its time stamp."""

_known: dict[tuple[int, ...], str] = {}


def record_of(path: Path) -> Record:
    """A file's SHA-256 and size, computed once per process as long as the file stays as it is.

    Raises:
        DamagedRun: if it is missing, or no regular file.
    """
    with open_regular(path, required=True) as file:
        state = os.fstat(file.fileno())
        key = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        digest = _known.get(key) or hashlib.file_digest(file, "sha256").hexdigest()
    if time.time_ns() - max(state.st_mtime_ns, state.st_ctime_ns) > SETTLED:
        _known[key] = digest
    return {"sha256": digest, "bytes": state.st_size}


def records_of(files: Mapping[str, Path]) -> dict[str, Record]:
    """The records of input files, by the setting that names each; links are followed."""
    return {setting: record_of(path.resolve()) for setting, path in files.items()}


def read_sealed(path: Path) -> dict[str, Any]:
    """What `write_sealed` wrote, with its seal.

    Raises:
        DamagedRun: if a single bit of it differs, spaces included.
    """
    raw = read_bytes(path, required=True)
    content = read_json(path, raw)
    if SEAL not in content:
        raise DamagedRun(
            f"{path} has no checksum: it is of another program, damaged, or of an earlier "
            f"attnprobe, whose runs cannot be checked",
            "Leave it out, or make the run again in another folder (output=…)",
        )
    end = f',\n  "{SEAL}": "{content[SEAL]}"\n}}\n'.encode("utf-8", "surrogatepass")
    rest = raw.removesuffix(end) + b"\n}"
    if not raw.endswith(end) or hashlib.sha256(rest).hexdigest() != content[SEAL]:
        raise damaged(path, "its content does not have the checksum that it names")
    return content


def write_atomically(path: Path, write: Any) -> None:
    """Write a file beside its place and move it there, so that nobody sees it half-written.

    The content is on the disk before the name is, and the name before this returns: a power cut
    leaves the old or the new.

    Args:
        path: of the file; its folder is made.
        write: is called with the temporary path.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    temporary.unlink(missing_ok=True)  # a link in its place would lead what is written elsewhere
    try:
        write(temporary)
        synchronise(temporary)
        os.replace(temporary, path)
        synchronise(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_leftovers(path: Path) -> None:
    """Remove what writes of this file left whose process was killed.

    Processes are those of this machine: of two machines that write one file at the same time, one
    may be told that its file is gone.
    """
    for partial in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        writer = re.fullmatch(rf"\.{re.escape(path.name)}\.(\d+)\.partial", partial.name)
        if writer is None:
            continue
        try:
            os.kill(int(writer[1]), 0)
        except (ProcessLookupError, OverflowError):
            partial.unlink(missing_ok=True)
        except PermissionError:  # another user's process, and at work
            pass


def synchronise(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk.

    Nothing happens where the file system cannot say so.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a full disk may be noticed only here
            raise
    finally:
        os.close(descriptor)


DERIVED = b"attnprobe.version"
"""A key of the metadata of a table that is made of others, and may be made again."""


def is_derived(path: Path) -> bool:
    """Whether this is a table that was made of others, and no link to one."""
    try:
        return not path.is_symlink() and DERIVED in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowException):
        return False


def write_table(
    table: pa.Table | Iterable[pa.Table], path: Path, schema: pa.Schema | None = None
) -> None:
    """Write a parquet file; the same row groups give the same bytes.

    Args:
        table: all of it, or row groups as they come.
        path: of the file.
        schema: of the row groups; not needed for a whole table.
    """
    row_groups: Iterable[pa.Table] = table
    if isinstance(table, pa.Table):
        row_groups = [table]
        schema = table.schema

    def write(temporary: Path) -> None:
        options: Any = {"compression": "zstd", "compression_level": 6, "write_page_checksum": True}
        with pq.ParquetWriter(temporary, schema, **options) as writer:
            for row_group in row_groups:
                writer.write_table(row_group)

    write_atomically(path, write)


def write_text(text: str, path: Path) -> None:
    """Write UTF-8."""
    content = text.encode("utf-8", "surrogatepass")
    write_atomically(path, lambda p: Path(p).write_bytes(content))


SIGNATURE = b"written by attnprobe, sha256 "
"""What stands before the digest at the end of a file that says itself who wrote it."""
SIGNED = re.compile(SIGNATURE + rb"([0-9a-f]{64})( -->\n)?")
SIGNATURE_BYTES = len(SIGNATURE) + 64 + len(b" -->\n")
UNSIGNED = SIGNATURE + b"0" * 64
"""What `sign` expects: a signature without its digest."""


def sign(path: Path) -> None:
    """Fill in the digest of the signature at a file's end: that of all that stands before it."""
    with path.open("r+b") as file:
        place = os.fstat(file.fileno()).st_size - SIGNATURE_BYTES
        file.seek(max(place, 0))
        place = file.tell() + file.read().rindex(UNSIGNED)
        digest = _digest_of_beginning(file, place)
        file.seek(place + len(SIGNATURE))
        file.write(digest.encode())


def is_signed(path: Path) -> bool:
    """Whether attnprobe wrote a file, and not a byte of it was changed since.

    Raises:
        DamagedRun: if it is no regular file, or cannot be read.
    """
    with open_regular(path) as file:
        place = max(os.fstat(file.fileno()).st_size - SIGNATURE_BYTES, 0)
        file.seek(place)
        end = file.read()
        start = end.rfind(SIGNATURE)
        signature = SIGNED.fullmatch(end[start:]) if start >= 0 else None
        if signature is None:
            return False
        return _digest_of_beginning(file, place + start) == signature[1].decode()


TABLE_DIGEST = b"attnprobe.content"
"""A key of the metadata of a parquet file that says itself who wrote it: a digest of its rows."""


def signed_table(table: pa.Table) -> pa.Table:
    """The table with a digest of its rows, whose cells are numbers and texts."""
    return table.replace_schema_metadata({TABLE_DIGEST: _digest_of_rows(table)})


def is_signed_table(path: Path) -> bool:
    """Whether a parquet file has the digest of its rows, and is no link to one."""
    try:
        with open_regular(path) as file:
            table = pq.read_table(file)
        return (table.schema.metadata or {}).get(TABLE_DIGEST) == _digest_of_rows(table)
    except (DamagedRun, OSError, TypeError, pa.ArrowException):
        return False


def _digest_of_rows(table: pa.Table) -> bytes:
    rows = table.replace_schema_metadata(None).to_pandas()
    digest = hashlib.sha256(json.dumps(table.column_names).encode())
    digest.update(pd.util.hash_pandas_object(rows, index=False).to_numpy().tobytes())
    return digest.hexdigest().encode()


def _digest_of_beginning(file: BinaryIO, size: int) -> str:
    """The SHA-256 of a file's first bytes."""
    file.seek(0)
    digest = hashlib.sha256()
    while size > 0:
        part = file.read(min(size, 1 << 20))
        digest.update(part)
        size -= len(part)
    return digest.hexdigest()


def open_log(path: Path) -> BinaryIO:
    """Open a file to append to it; its folder is made.

    Raises:
        UserError: if a link, a folder or a pipe is in the place of the file or its folder, or the
            file has another name elsewhere: what is appended would go to a user's file.
    """
    with suppress(FileExistsError):  # refused below
        path.parent.mkdir(parents=True, exist_ok=True)
    is_file = not os.path.lexists(path) or stat.S_ISREG(path.lstat().st_mode)
    if is_file and path.parent.is_dir() and not path.parent.is_symlink():
        # not blocking: somebody may have put a pipe there since
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        for name in ("O_NOFOLLOW", "O_NONBLOCK"):
            flags |= getattr(os, name, 0)
        descriptor = os.open(path, flags, 0o666)
        if os.fstat(descriptor).st_nlink == 1:
            return os.fdopen(descriptor, "ab")
        os.close(descriptor)
    raise UserError(
        f"cannot write to {path}: expected a log of attnprobe's own, and no link in its place or "
        f"in that of its folder. Nothing was written there: move it away"
    )


def write_json(content: Any, path: Path) -> None:
    """Write indented JSON."""
    write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", path)


def write_sealed(content: dict[str, Any], path: Path) -> None:
    """Write indented JSON whose last entry is the SHA-256 of the text without it.

    `read_sealed` checks it.
    """
    rest = {key: value for key, value in content.items() if key != SEAL}
    text = json.dumps(rest, indent=2, ensure_ascii=False)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    write_json(rest | {SEAL: digest}, path)
