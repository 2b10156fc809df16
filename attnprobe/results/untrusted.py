"""Files that somebody else may have written: read in bounded time and memory, and as plain data.

Whatever is wrong with such a file ends in one `UserError` that names it. A file that is not there raises
`FileNotFoundError`, since its absence often means something (no manifest: not finished).
"""

import json
import os
import stat
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import yaml

from attnprobe.errors import UserError

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
    check_regular(os.lstat(path).st_mode)
    # between the two looks it may have become a pipe, which must not be waited for, or a link
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = os.fdopen(os.open(path, flags), "rb")
    try:
        check_regular(os.fstat(file.fileno()).st_mode)
    except NotRegular:
        file.close()
        raise
    return file


def check_regular(mode: int) -> None:
    """Raise `NotRegular` unless a file of this mode is a regular one."""
    if stat.S_ISREG(mode):
        return
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

    text = read_text(path, limit=limit)
    try:
        content = json.loads(text, parse_constant=constant, object_pairs_hook=without_doubles)
    except RecursionError:
        raise UserError(f"{path} is damaged or not of a run: more than {MAX_DEPTH} levels deep") from None
    except ValueError as error:
        raise UserError(f"{path} is damaged or not of a run: {str(error)[:200]}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged or not of a run: expected a JSON object, found {kind_of(content)}")
    check_depth(content, Path(path))
    return content


def without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object's pairs as a dictionary; two readers of a key that occurs twice may see different values."""
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        double = next(key for number, key in enumerate(keys) if key in keys[:number])
        raise ValueError(f"the key {double[:80]!r} occurs twice")
    return content


def read_yaml(path: str | os.PathLike, *, limit: int = MAX_YAML) -> dict[str, Any]:
    """A YAML mapping of plain data. No anchors, aliases, tags and merges: a few lines of them grow without end.

    Raises:
        FileNotFoundError, NotADirectoryError: there is nothing.
        UserError: no regular file, too large, no UTF-8, broken YAML, a key twice, too deep, or no mapping with text keys.
    """
    text = read_text(path, limit=limit)
    try:
        check_events(yaml.parse(text, Loader=PlainLoader), Path(path))
        content = yaml.load(text, Loader=PlainLoader)
    except UserError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path} is damaged or not of a run: {reason}") from None
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged or not of a run: expected settings by name, found {kind_of(content)}")
    if strange := [key for key in content if not isinstance(key, str)]:
        raise UserError(f"{path} is damaged or not of a run: {strange[0]!r} is not a name of a setting")
    return content


class PlainLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
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


def check_events(events: Iterator[yaml.Event], path: Path) -> None:
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


def check_depth(content: Any, path: Path) -> None:
    """Raise a `UserError` where lists and objects are nested deeper than `MAX_DEPTH`."""
    level = [content]
    for _ in range(MAX_DEPTH):
        level = [item for one in level for item in children(one)]
        if not level:
            return
    raise UserError(f"{path} is damaged or not of a run: more than {MAX_DEPTH} levels deep")


def children(content: Any) -> list[Any]:
    """The lists and objects directly within a list or an object."""
    items = content.values() if isinstance(content, dict) else content
    return [item for item in items if isinstance(item, (dict, list))]


def kind_of(content: Any) -> str:
    """What a parsed value is, in words.

    >>> kind_of([1]), kind_of(None), kind_of(2.5)
    ('a list', 'nothing', 'a number')
    """
    if content is None:
        return "nothing"
    names = {bool: "true or false", str: "text", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return names.get(type(content), "something else")


def inside(directory: Path, name: object, source: Path) -> Path:
    """The path of a file that a run directory's own list names, which has to lie within that directory.

    Args:
        directory: the run directory.
        name: the name as listed, with forward slashes.
        source: the file that lists it, for the message.

    Raises:
        UserError: an absolute name, one that leads out of the directory (by `..` or by a link), or no name.
    """
    parts = PurePosixPath(name).parts if isinstance(name, str) else ()
    strange = not parts or ".." in parts or parts[0] == "/" or any(set("\\\0:") & set(part) for part in parts)
    path = directory.joinpath(*parts)
    if strange or any(parent.is_symlink() for parent in [path, *path.parents][: len(parts)]):
        raise UserError(
            f"{source} names the file {str(name)[:200]!r}: expected one within {directory}, reached by no link"
        )
    return path
