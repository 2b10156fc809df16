"""Files that are never seen half-written, and are on the disk once they are seen."""

import errno
import glob
import hashlib
import json
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from attnprobe.core.errors import UserError

# Files that somebody else may have written: read in bounded time and memory, and as plain data.
#
# Whatever is wrong with such a file ends in one `UserError` that names it. A file that is not there raises
# `FileNotFoundError`, since its absence often means something (no manifest: not finished).


MEBIBYTE = 2**20
MAX_JSON = 16 * MEBIBYTE
MAX_YAML = MEBIBYTE
MAX_DEPTH = 64
"""Levels of lists and objects within each other; a run's settings have eight."""
MAX_NODES = 50_000
"""Keys and values of a YAML file; a run's settings have some three hundred."""


class NotRegular(OSError):
    """A link, a folder or a device is where a run writes a file; `strerror` says which."""


def open_regular(path: str | os.PathLike) -> BufferedReader:
    """Open a regular file for reading: no link, which in a run directory from elsewhere leads to any file of this machine,
    and no pipe or device, so that reading it ends.

    Raises:
        FileNotFoundError, NotADirectoryError: there is nothing.
        NotRegular: it is something else.
        OSError: it cannot be read.
    """
    _check_regular(os.lstat(path).st_mode)
    # between the two looks it may have become a pipe, which must not be waited for, or a link
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = os.fdopen(os.open(path, flags), "rb")
    try:
        _check_regular(os.fstat(file.fileno()).st_mode)
    except NotRegular:
        file.close()
        raise
    return file


def _check_regular(mode: int) -> None:
    if not stat.S_ISREG(mode):
        kinds = {stat.S_ISLNK: "a symbolic link", stat.S_ISDIR: "a directory", stat.S_ISFIFO: "a named pipe"}
        raise NotRegular(0, next((name for test, name in kinds.items() if test(mode)), "a device or socket"))


def read_bytes(path: str | os.PathLike, *, limit: int) -> bytes:
    """The content of a regular file of at most `limit` bytes.

    Raises:
        FileNotFoundError, NotADirectoryError: there is nothing.
        UserError: not a regular file, too large, or not readable.
    """
    try:
        with open_regular(path) as file:
            content = file.read(limit + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except NotRegular as error:
        raise UserError(
            f"{path} is {error.strerror}: expected a regular file, as a run writes it. Copy the file itself there"
        ) from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    if len(content) > limit:
        raise UserError(f"{path} is larger than {limit:,} bytes, which no such file of a run is: it is refused unread")
    return content


def read_text(path: str | os.PathLike, *, limit: int) -> str:
    """The content of a regular file as UTF-8 text without a byte order mark; raises as `read_bytes` does."""
    content = read_bytes(path, limit=limit)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is damaged or not of a run: no UTF-8 text (byte {error.start})") from None
    if text.startswith("\ufeff"):
        raise UserError(
            f"{path} is damaged or not of a run: it starts with a byte order mark, which a run never writes"
        )
    return text


def read_json(path: str | os.PathLike, *, limit: int = MAX_JSON, nan: bool = False) -> dict[str, Any]:
    """A JSON object.

    Args:
        path: the file.
        limit: bytes it may have.
        nan: whether NaN and infinities may occur in it, as in a training curve; they are no JSON.

    Raises:
        FileNotFoundError, NotADirectoryError: there is nothing.
        UserError: no regular file, too large, no UTF-8, broken JSON, a key twice, too deep, or no object.
    """

    def constant(name: str) -> float:
        if nan:
            return float(name)
        raise ValueError(f"{name} is not a number in JSON")

    def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        # two readers of a key that occurs twice may see different values
        if double := [key for key, count in Counter(key for key, _ in pairs).items() if count > 1]:
            raise ValueError(f"the key {double[0][:80]!r} occurs twice")
        return dict(pairs)

    text = read_text(path, limit=limit)
    try:
        content = json.loads(text, parse_constant=constant, object_pairs_hook=without_doubles)
    except RecursionError:
        raise UserError(f"{path} is damaged or not of a run: more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:
        raise UserError(f"{path} is damaged or not of a run: {str(error)[:200]}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged or not of a run: expected a JSON object, found {_kind_of(content)}")
    _check_depth(content, Path(path))
    return content


def read_yaml(path: str | os.PathLike, *, limit: int = MAX_YAML) -> dict[str, Any]:
    """A YAML mapping of plain data. No anchors, aliases, tags and merges: a few lines of them grow without end.

    Raises:
        FileNotFoundError, NotADirectoryError: there is nothing.
        UserError: no regular file, too large, no UTF-8, broken YAML, a key twice, too deep, or no mapping with text keys.
    """
    text = read_text(path, limit=limit)
    try:
        _check_events(yaml.parse(text, Loader=_PlainLoader), Path(path))
        content = yaml.load(text, Loader=_PlainLoader)
    except UserError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path} is damaged or not of a run: {reason}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged or not of a run: expected settings by name, found {_kind_of(content)}")
    if strange := [key for key in content if not isinstance(key, str)]:
        raise UserError(f"{path} is damaged or not of a run: {strange[0]!r} is not a name of a setting")
    return content


class _PlainLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML's safe loader: a key may occur once, `<<` is a key like others, and a date stays text, as it was written."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [
            (tag, pattern)
            for tag, pattern in resolvers
            if tag.rpartition(":")[2] not in ("timestamp", "merge", "value")
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys are plain values, each once."""
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key_node, yaml.ScalarNode) or key in seen:
                problem = "a key is a list or mapping" if key is None else f"the key {str(key)[:80]!r} occurs twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def _check_events(events: Iterator[yaml.Event], path: Path) -> None:
    """Read a YAML file's parts one by one, before anything is built of them.

    Raises:
        UserError: an alias, an anchor or a tag; too deep, or too much.
    """
    depth = nodes = 0
    for event in events:
        nodes += isinstance(event, yaml.NodeEvent)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        line = event.start_mark.line + 1 if event.start_mark else 1
        tag = getattr(event, "tag", None)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise UserError(f"{path}, line {line}: anchors and aliases (& and *) are refused; a run writes none")
        if tag not in (None, "!"):
            raise UserError(f"{path}, line {line}: the tag {tag[:80]!r} is refused; a run writes plain data only")
        if depth > MAX_DEPTH or nodes > MAX_NODES:
            more = f"more than {MAX_DEPTH} levels deep" if depth > MAX_DEPTH else f"more than {MAX_NODES:,} values"
            raise UserError(f"{path} is damaged or not of a run: {more}")


def _check_depth(content: Any, path: Path) -> None:
    level = [content]
    for _ in range(MAX_DEPTH):
        items = (item for one in level for item in (one.values() if isinstance(one, dict) else one))
        level = [item for item in items if isinstance(item, (dict, list))]
        if not level:
            return
    raise UserError(f"{path} is damaged or not of a run: more than {MAX_DEPTH} levels deep")


def _kind_of(content: Any) -> str:
    names = {bool: "true or false", str: "text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return "nothing" if content is None else names.get(type(content), "something else")


def inside(directory: Path, name: str, source: Path) -> Path:
    """The path of a file that a run directory's own list names, which has to lie within that directory.

    Args:
        directory: the run directory.
        name: the name as listed, with forward slashes.
        source: the file that lists it, for the message.

    Raises:
        DamagedRun: an absolute name, one that leads out of the directory (by `..` or by a link), or no name.
    """
    parts = PurePosixPath(name).parts
    strange = not parts or ".." in parts or parts[0] == "/" or any(set("\\\0:") & set(part) for part in parts)
    path = directory.joinpath(*parts)
    if strange or any(parent.is_symlink() for parent in [path, *path.parents][: len(parts)]):
        raise DamagedRun(f"{source} names the file {name[:200]!r}: expected one within {directory}, reached by no link")
    return path


# What a file holds, in 64 hexadecimal digits; and JSON files that carry their own.


LARGEST_JSON = 256 << 20
"""Bytes. A manifest lists the classes, which may be all the words of a language: some megabytes."""
SEAL = "checksum"
"""The key under which a sealed JSON file holds the SHA-256 of the rest of it."""
SIGNATURE = "# sha256: "
"""What comes before the SHA-256 of a text in its last line."""
SETTLED = 2_000_000_000
"""Nanoseconds. A file that changed more recently than this may change again within the same tick of its time stamp."""


class DamagedRun(UserError):
    """A file of a run is missing, cut off, changed, or none of ours; the message names it and says what to do."""


def damaged(path: Path, reason: str) -> DamagedRun:
    """The error that names a damaged file."""
    return DamagedRun(
        f"{path} is damaged: {reason}. Copy the run again from where it came, or give its command again with "
        f"on_finished=replace to train and measure it again"
    )


def _opened(path: Path) -> BufferedReader:
    try:
        return open_regular(path)
    except (FileNotFoundError, NotADirectoryError):
        raise damaged(path, "it is missing") from None
    except NotRegular as error:
        raise damaged(path, f"it is {error.strerror}, expected an ordinary file") from None
    except OSError as error:
        raise damaged(path, f"it cannot be read ({error.strerror})") from None


_known: dict[tuple[int, ...], str] = {}


def record_of(path: Path) -> Any:
    """A file's SHA-256 and size. Computed once per process as long as the file stays as it is.

    Raises:
        DamagedRun: there is no such file, or it cannot be read.
    """
    with _opened(path) as file:
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


def records_of(files: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """The records of input files, by the setting that names each; links are followed."""
    return {setting: record_of(path.resolve()) for setting, path in files.items()}


def check(path: Path, record: Mapping[str, Any]) -> None:
    """Compare a file with its record.

    Raises:
        DamagedRun: it is missing, of another size, or holds something else.
    """
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
    if size != record["bytes"]:
        raise damaged(path, f"it has {size:,} bytes, the manifest says {record['bytes']:,}")
    if record_of(path)["sha256"] != record["sha256"]:
        raise damaged(path, "its SHA-256 is not the one in the manifest")


def sealed(content: dict[str, Any]) -> str:
    """Indented JSON whose last entry is the SHA-256 of the text without it.

    >>> json.loads(sealed({"a": 1}))["checksum"][:8]
    '81646698'
    """
    text = json.dumps({key: value for key, value in content.items() if key != SEAL}, indent=2, ensure_ascii=False)
    return _with_seal(text.removesuffix("\n}"))


def _with_seal(body: str) -> str:
    digest = hashlib.sha256(f"{body}\n}}".encode("utf-8", "surrogatepass")).hexdigest()
    return f'{body},\n  "{SEAL}": "{digest}"\n}}\n'


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
    with _opened(path) as file:
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
    text = raw.decode("utf-8", "surrogatepass")
    if _with_seal(text.rpartition(f',\n  "{SEAL}": "')[0]) != text:
        raise damaged(path, "its content does not have the checksum that it names")
    return content


def write_atomically(path: Path, write: Any, *, make_folder: bool = True) -> None:
    """Call `write(temporary_path)` and move the result into place, so that no half-written file is ever seen.

    The content is on the disk before the name is, and the name before this returns: a power cut leaves the old file or
    the new one. Without `make_folder` the file's folder has to be there.
    """
    if make_folder:
        path.parent.mkdir(parents=True, exist_ok=True)
    # what writes of this file left whose process was killed. Processes are those of this machine: of two machines that write
    # one file at the same time, one may be told that its file is gone
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):
        if is_partial_of(path.name, left) and not _is_running(int(left.name.split(".")[-2])):
            left.unlink(missing_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(temporary)
        synchronise(temporary)
        os.replace(temporary, path)
        synchronise(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
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
    """Write JSON that carries its own checksum (`attnprobe.results.files.read_sealed`)."""
    write_text(sealed(content), path, make_folder=make_folder)
