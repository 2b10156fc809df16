"""What a file holds, in 64 hexadecimal digits; and JSON files that carry their own."""

import hashlib
import json
import os
import time
from collections.abc import Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

from attnprobe.errors import UserError
from attnprobe.results.untrusted import NotRegular, open_regular

LARGEST_JSON = 256 << 20
"""Bytes. A manifest lists the classes, which may be all the words of a language: some megabytes."""
SEAL = "checksum"
"""The key under which a sealed JSON file holds the SHA-256 of the rest of it."""
SIGNATURE = "# sha256: "
"""What comes before the SHA-256 of a text in its last line."""
SETTLED = 2_000_000_000
"""Nanoseconds. A file that changed more recently than this may change again within the same tick of its time stamp."""

_SOUND: set[bytes] = set()
"""SHA-256 of the contents that `read_sealed` found to be as they were written."""

Record = dict[str, Any]
"""`sha256` and `bytes` of one file, as a manifest lists it."""


class DamagedRun(UserError):
    """A file of a run is missing, cut off, changed, or none of ours; the message names it and says what to do."""


def damaged(path: Path, reason: str) -> DamagedRun:
    """The error that names a damaged file."""
    return DamagedRun(
        f"{path} is damaged: {reason}. Copy the run again from where it came, or give its command again with "
        f"on_finished=replace to train and measure it again"
    )


def opened(path: Path) -> BufferedReader:
    """Open one of a run's files for reading.

    Raises:
        DamagedRun: it is not there, is not an ordinary file, or cannot be read.
    """
    try:
        return open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        raise damaged(path, "it is missing") from None
    except NotRegular as error:
        raise damaged(path, f"it is {error.strerror}, expected an ordinary file") from None
    except OSError as error:
        raise damaged(path, f"it cannot be read ({error.strerror})") from None


_known: dict[tuple[int, ...], str] = {}


def record_of(path: Path) -> Record:
    """A file's SHA-256 and size. Computed once per process as long as the file stays as it is.

    Raises:
        DamagedRun: there is no such file, or it cannot be read.
    """
    with opened(path) as file:
        state = os.fstat(file.fileno())
        key = (state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns)
        if key in _known:
            return {"sha256": _known[key], "bytes": state.st_size}
        try:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise damaged(path, f"it cannot be read ({error.strerror})") from None
        if time.time_ns() - max(state.st_mtime_ns, state.st_ctime_ns) > SETTLED:
            _known[key] = digest
        return {"sha256": digest, "bytes": state.st_size}


def records_of(files: Mapping[str, Path]) -> dict[str, Record]:
    """The records of input files, by the setting that names each; links are followed."""
    return {setting: record_of(path.resolve()) for setting, path in files.items()}


def check(path: Path, record: Record) -> None:
    """Compare a file with its record.

    Raises:
        DamagedRun: it is missing, of another size, or holds something else.
    """
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
    if size != record["bytes"]:
        raise damaged(path, f"it has {size:,} bytes, the manifest says {record['bytes']:,}")
    if record_of(path)["sha256"] != record["sha256"]:
        raise damaged(path, "its SHA-256 is not the one in the manifest")


def sealed(content: dict[str, Any]) -> str:
    """Indented JSON whose last entry is the SHA-256 of what comes before it.

    >>> json.loads(sealed({"a": 1}))["checksum"][:8]
    '81646698'
    """
    text = json.dumps({key: value for key, value in content.items() if key != SEAL}, indent=2, ensure_ascii=False)
    body = json.loads(text)
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return json.dumps(body | {SEAL: digest}, indent=2, ensure_ascii=False) + "\n"


def signed(text: str) -> str:
    """A text whose last line, a comment, is the SHA-256 of what comes before it.

    >>> signed("a: 1\\n")[:23]
    'a: 1\\n# sha256: 37b128c5'
    """
    return f"{text}{SIGNATURE}{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}\n"


def is_signed(content: bytes) -> bool:
    """Whether this is what `signed` made, to the last bit."""
    text, _, _ = content.decode("utf-8", "replace").rpartition(SIGNATURE)
    return signed(text).encode("utf-8", "replace") == content


def read_sealed(path: Path) -> dict[str, Any]:
    """What `sealed` wrote, with its seal. One flipped bit anywhere in the file, spaces included, is found.

    Raises:
        DamagedRun: there is no such file, or it is not as it was written.
    """
    with opened(path) as file:
        raw = file.read(LARGEST_JSON + 1)
    if len(raw) > LARGEST_JSON:
        raise damaged(path, f"it has more than {LARGEST_JSON:,} bytes")
    try:
        content = json.loads(raw.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        raise damaged(path, "it is no JSON, or not all of it") from None
    if not isinstance(content, dict) or SEAL not in content:
        raise DamagedRun(
            f"{path} has no checksum: it is of another program, damaged, or of an earlier attnprobe, whose runs "
            f"cannot be checked. Leave it out, or make the run again in another folder (output=…)"
        )
    # the same bytes are asked about dozens of times while a page is made, and writing JSON takes far longer than hashing it
    digest = hashlib.sha256(raw).digest()
    if digest not in _SOUND:
        if sealed(content).encode("utf-8", "surrogatepass") != raw:
            raise damaged(path, "its content does not have the checksum that it names")
        _SOUND.add(digest)
    return content
