"""Every operation by which a process changes files, counted; at one of them a fault is made to happen.

Python tells an audit hook of the operations it does itself before it does them. pyarrow, safetensors and torch write from
C++ and Rust; their Python entrances are wrapped, and so is fsync, of which Python tells nobody.
"""

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHANGES = frozenset(
    {
        "os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink", "os.chmod", "os.utime",
        "fcntl.flock", "fcntl.lockf",
    }
)  # fmt: skip
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
KINDS = ("kill", "full", "error", "interrupt", "interrupt_twice", "terminate", "remove")


@dataclass(frozen=True)
class Fault:
    """What happens, and before which operation.

    Attributes:
        kind: one of `KINDS`. kill: SIGKILL. full: the disk is full from here on. error: one arbitrary exception.
            interrupt: SIGINT, also twice, the second at the next operation. terminate: SIGTERM. remove: somebody deletes
            the output.
        at: number of the operation, from 0.
    """

    kind: str
    at: int


class Planted(Exception):
    """An exception that nothing in the program knows of."""


@dataclass
class Watch:
    """What this process counts; a fork of it counts for itself (an audit hook stays for good)."""

    folder: Path
    fault: Fault | None
    tell: Callable[[str], None]
    count: int = 0
    inside: bool = False

    def operation(self, name: str, path: Any) -> None:
        if self.inside:
            return
        shown = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
        here = f"{self.folder}{os.sep}"
        if os.path.isabs(shown) and not shown.startswith(here):
            return
        self.inside = True
        try:
            number = self.count
            self.count += 1
            self.tell(f"{name} {shown.removeprefix(here)}")
            if self.fault is not None:
                happen(self.fault, number, name, self.folder / "runs")
        finally:
            self.inside = False


watched: list[Watch] = []


def watch(folder: Path, fault: Fault | None, tell: Callable[[str], None]) -> None:
    """Begin to count in this process, for good. Call it in a child.

    Args:
        folder: operations on files outside of it are not counted.
        fault: what happens at one of them.
        tell: called with every operation, before it is done.
    """
    first = not watched
    watched[:] = [Watch(folder.resolve(), fault, tell)]
    if first:
        wrap_what_python_does_not_see()
        sys.addaudithook(hook)


def hook(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open":
        path, _, flags = arguments
        if flags & WRITES and not isinstance(path, int):
            watched[0].operation("open", path)
    elif event in CHANGES:
        watched[0].operation(event, arguments[0])


def happen(fault: Fault, number: int, name: str, output: Path) -> None:
    if fault.kind == "full" and number >= fault.at and name in ("open", "write", "os.mkdir", "os.fsync"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if fault.kind == "interrupt_twice" and number in (fault.at, fault.at + 1):
        os.kill(os.getpid(), signal.SIGINT)
    if number != fault.at:
        return
    if fault.kind == "remove":
        shutil.rmtree(output, ignore_errors=True)
    if fault.kind == "error":
        raise Planted("planted")
    if number_of := {"kill": signal.SIGKILL, "interrupt": signal.SIGINT, "terminate": signal.SIGTERM}.get(fault.kind):
        os.kill(os.getpid(), number_of)


def wrap_what_python_does_not_see() -> None:
    import pyarrow.parquet
    import safetensors.numpy
    import safetensors.torch
    import torch.serialization

    def wrapped(owner: Any, attribute: str, name: str) -> None:
        inner = getattr(owner, attribute)

        def outer(*arguments: Any, **named: Any) -> Any:
            watched[0].operation(name, "")
            return inner(*arguments, **named)

        setattr(owner, attribute, outer)

    wrapped(os, "fsync", "os.fsync")
    for method in ("__init__", "write_table", "close"):
        wrapped(pyarrow.parquet.ParquetWriter, method, "write")
    wrapped(safetensors.torch, "serialize_file", "write")
    wrapped(safetensors.numpy, "serialize_file", "write")
    wrapped(torch.serialization, "_save", "write")
