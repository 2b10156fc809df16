"""Files that are never seen half-written, and are on the disk once they are seen."""

import errno
import glob
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from attnprobe.results.checksums import sealed


def write_atomically(path: Path, write: Any, *, make_folder: bool = True) -> None:
    """Call `write(temporary_path)` and move the result into place, so that no half-written file is ever seen.

    The content is on the disk before the name is, and the name before this returns: a power cut leaves the old file or
    the new one. Without `make_folder` the file's folder has to be there.
    """
    if make_folder:
        path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(temporary)
        synchronise(temporary)
        os.replace(temporary, path)
        synchronise(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(path: Path) -> None:
    """Remove what writes of this file left whose process was killed. Processes are those of this machine: of two machines
    that write one file at the same time, one may be told that its file is gone."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        if is_partial_of(path.name, left) and not is_running(int(left.name.split(".")[-2])):
            left.unlink(missing_ok=True)


def is_running(process: int) -> bool:
    """Whether a process of this number may be running.

    >>> is_running(os.getpid()), is_running(2**22 + 1)
    (True, False)
    """
    if os.name == "nt":  # on Windows, os.kill would end it
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # somebody else's
        return True
    return True


def synchronise(path: Path) -> None:
    """Wait until a file's content, or a folder's list of names, is on the disk, where the file system can say so."""
    if os.name == "nt":  # Windows cannot open a folder, nor synchronise a file that was opened for reading
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a full disk may be noticed only here
            raise
    finally:
        os.close(descriptor)


def is_partial_of(name: str, path: Path) -> bool:
    """Whether `path` is what a killed `write_atomically` left of a file of this name.

    >>> is_partial_of("a.json", Path("x/.a.json.17.partial")), is_partial_of("a.json", Path("x/.b.json.17.partial"))
    (True, False)
    """
    return re.fullmatch(rf"\.{re.escape(name)}\.\d+\.partial", path.name) is not None


def write_table(table: pa.Table, path: Path) -> None:
    """Write a parquet file whose pages carry checksums; the same table gives the same bytes."""
    write_groups(table.schema, [table], path)


def write_groups(schema: pa.Schema, groups: Iterable[pa.Table], path: Path) -> None:
    """Write a parquet file a row group at a time, as they come; the same groups give the same bytes."""

    def write(temporary: Path) -> None:
        with pq.ParquetWriter(
            temporary, schema, compression="zstd", compression_level=6, write_page_checksum=True
        ) as writer:
            for group in groups:
                writer.write_table(group)

    write_atomically(path, write)


def write_text(text: str, path: Path, *, make_folder: bool = True) -> None:
    """Write UTF-8."""
    content = text.encode("utf-8", "surrogatepass")
    write_atomically(path, lambda p: Path(p).write_bytes(content), make_folder=make_folder)


def write_json(content: Any, path: Path) -> None:
    """Write indented JSON."""
    text = json.dumps(content, indent=2, ensure_ascii=False, sort_keys=False) + "\n"
    write_atomically(path, lambda p: Path(p).write_text(text, encoding="utf-8"))


def write_sealed(content: dict[str, Any], path: Path, *, make_folder: bool = True) -> None:
    """Write JSON that carries its own checksum (`attnprobe.results.checksums.read_sealed`)."""
    write_text(sealed(content), path, make_folder=make_folder)
