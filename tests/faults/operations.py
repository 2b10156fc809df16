"""Every operation by which a process changes files, counted; at one of them a fault happens.

Python tells an audit hook of the operations it does itself before it does them. pyarrow,
safetensors and torch write from C++ and Rust; their Python entrances are wrapped, and so is fsync,
of which Python tells nobody."""

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHANGES = {
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.truncate",
    "os.link",
    "os.symlink",
    "os.chmod",
    "os.utime",
    "fcntl.flock",
    "fcntl.lockf",
}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
KINDS = ("kill", "full", "error", "interrupt", "interrupt_twice", "terminate", "remove")
SIGNALS = {
    "kill": signal.SIGKILL,
    "interrupt": signal.SIGINT,
    "interrupt_twice": signal.SIGINT,
    "terminate": signal.SIGTERM,
}


@dataclass(frozen=True)
class Fault:
    """What happens, and before which operation.

    Attributes:
        kind: one of `KINDS`. kill: SIGKILL. full: the disk is full from here on. error: one
            arbitrary exception. interrupt: SIGINT, also twice, the second at the next operation.
            terminate: SIGTERM. remove: somebody deletes the output.
        at: number of the operation, from 0.
    """

    kind: str
    at: int

    def happen(self, number: int, name: str, output: Path) -> None:
        """Make it happen, if this is its operation."""
        needs_space = name in ("open", "write", "os.mkdir", "os.fsync")
        if self.kind == "full" and number >= self.at and needs_space:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if number == self.at or (self.kind == "interrupt_twice" and number == self.at + 1):
            if self.kind in SIGNALS:
                os.kill(os.getpid(), SIGNALS[self.kind])
            elif self.kind == "remove":
                shutil.rmtree(output, ignore_errors=True)
            elif self.kind == "error":
                raise Planted("planted")


class Planted(Exception):
    """An exception that nothing in the program knows of."""


def watch(folder: Path, fault: Fault | None, tell: Callable[[str], None]) -> None:
    """Begin to count in this process, for good: call it in a child. A fork of it counts for itself.
    `tell` hears of every operation in the folder before it is done, and the fault happens at one of
    them."""
    import pyarrow.parquet
    import safetensors.numpy
    import safetensors.torch
    import torch.serialization

    root = f"{folder.resolve()}{os.sep}"
    count = 0
    inside = False

    def operation(name: str, path: Any) -> None:
        nonlocal count, inside
        file = os.fsdecode(path) if isinstance(path, (str, bytes, os.PathLike)) else ""
        if inside or (os.path.isabs(file) and not file.startswith(root)):
            return
        number = count
        count += 1
        inside = True
        try:
            tell(f"{name} {file.removeprefix(root)}")
            if fault is not None:
                fault.happen(number, name, Path(root, "runs"))
        finally:
            inside = False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        written = event == "open" and arguments[2] & WRITES and not isinstance(arguments[0], int)
        if written or event in CHANGES:
            operation(event, arguments[0])

    def wrap(owner: Any, attribute: str, name: str) -> None:
        inner = getattr(owner, attribute)

        def outer(*arguments: Any, **named: Any) -> Any:
            operation(name, "")
            return inner(*arguments, **named)

        setattr(owner, attribute, outer)

    wrap(os, "fsync", "os.fsync")
    for method in ("__init__", "write_table", "close"):
        wrap(pyarrow.parquet.ParquetWriter, method, "write")
    for module in (safetensors.torch, safetensors.numpy):
        wrap(module, "serialize_file", "write")
    wrap(torch.serialization, "_save", "write")
    sys.addaudithook(hook)
