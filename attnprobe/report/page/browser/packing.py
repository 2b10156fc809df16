"""Numbers for the page, small: arrays side by side in one block, compressed, as text that is safe inside a page."""

import base64
import io
import json
import os
import tempfile
import weakref
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np
from jaxtyping import Float, Shaped, UInt

TYPES = {
    "u1": "Uint8Array",
    "u2": "Uint16Array",
    "u4": "Uint32Array",
    "i4": "Int32Array",
    "f4": "Float32Array",
    "f8": "Float64Array",
}
"""numpy's name → the browser's typed array."""
ALIGNMENT = 8
LEVEL = 6


PIECE = 1 << 16
"""Characters of a block that are in memory at a time."""


@dataclass(frozen=True)
class Part:
    """One array of a block, made when it is written: `values()` → array of this type and length."""

    name: str
    type: str
    length: int
    values: Callable[[], Shaped[np.ndarray, " values"]]

    @classmethod
    def of(cls, name: str, array: Shaped[np.ndarray, " values"]) -> "Part":
        """An array that is there."""
        return cls(name, array.dtype.str[1:], len(array), lambda: array)


def pack(arrays: Mapping[str, Shaped[np.ndarray, " values"]], facts: Mapping[str, Any] | None = None) -> str:
    """Arrays and JSON facts as a block (`written`), as one text."""
    target = io.StringIO()
    written(target, [Part.of(name, array) for name, array in arrays.items()], facts)
    return target.getvalue()


def written(target: TextIO, parts: Sequence[Part], facts: Mapping[str, Any] | None = None) -> None:
    """Write arrays and JSON facts as base64 of a gzip file: nothing in it can end a script element, or be read as markup.

    The file: the header's length (4 bytes, little endian), the header (JSON: `facts`, and of each array its name, type,
    length and offset after the header), and the arrays, little endian, each at a multiple of 8 bytes after the header. No
    more than one array is in memory at a time.

    Raises:
        ValueError: an array of a type that browsers do not have.
    """
    described, offset = [], 0
    for part in parts:
        if part.type not in TYPES:
            given = np.dtype(part.type)
            raise ValueError(f"{part.name}: expected an array of {', '.join(TYPES)}, got {given}")
        offset += -offset % ALIGNMENT
        described.append({"name": part.name, "type": TYPES[part.type], "length": part.length, "offset": offset})
        offset += part.length * np.dtype(part.type).itemsize
    header = json.dumps({"facts": facts or {}, "arrays": described}, ensure_ascii=True, separators=(",", ":")).encode()
    block = _Block(target)
    block.add(len(header).to_bytes(4, "little") + header)
    length = 0
    for part in parts:
        block.add(b"\0" * (-length % ALIGNMENT))
        length += -length % ALIGNMENT
        array = part.values()
        block.add(np.ascontiguousarray(array, np.dtype(part.type).newbyteorder("<")).data.cast("B"))
        length += part.length * np.dtype(part.type).itemsize
    block.end()


class _Block:
    """Bytes on their way through gzip and base64 into a text."""

    def __init__(self, target: TextIO) -> None:
        self.target = target
        self.gzip = zlib.compressobj(LEVEL, wbits=31)  # without the time at which it was made
        self.rest = b""

    def add(self, content: bytes | memoryview) -> None:
        """Take in some bytes."""
        for start in range(0, len(content), PIECE):
            self._encode(self.gzip.compress(content[start : start + PIECE]))

    def _encode(self, content: bytes, *, last: bool = False) -> None:
        content = self.rest + content
        whole = len(content) if last else len(content) // 3 * 3
        self.target.write(base64.b64encode(content[:whole]).decode("ascii"))
        self.rest = content[whole:]

    def end(self) -> None:
        """All is there."""
        self._encode(self.gzip.flush(), last=True)


class Blocks(Mapping[str, str]):
    """Blocks by name, on the disk until the page is written."""

    def __init__(self) -> None:
        self.file = tempfile.TemporaryFile("w+", encoding="ascii")  # noqa: SIM115 (open as long as this object)
        self.places: dict[str, tuple[int, int]] = {}
        weakref.finalize(self, self.file.close)

    def add(self, name: str, parts: Sequence[Part], facts: Mapping[str, Any] | None = None) -> None:
        """Add a block (`written`)."""
        start = self.file.seek(0, os.SEEK_END)
        written(self.file, parts, facts)
        self.places[name] = (start, self.file.tell() - start)

    def pieces(self, name: str) -> Iterator[str]:
        """A block's text, a piece at a time."""
        start, length = self.places[name]
        for at in range(start, start + length, PIECE):
            self.file.seek(at)
            yield self.file.read(min(PIECE, start + length - at))

    @property
    def size(self) -> int:
        """Characters of all blocks."""
        return sum(length for _, length in self.places.values())

    def __getitem__(self, name: str) -> str:
        return "".join(self.pieces(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)


def quantised(values: Float[np.ndarray, " values"], bits: int) -> UInt[np.ndarray, " values"]:
    """Numbers from 0 to 1 in `bits` bits (8 or 16), NaN as the largest of them.

    The square root is rounded, so that small weights, of which a text has many, keep more digits than large ones: a
    value v comes back within √v / (2^bits − 2).

    >>> quantised(np.array([0.0, 0.25, 1.0, np.nan]), 8)
    array([  0, 127, 254, 255], dtype=uint8)
    """
    levels = 2**bits - 2
    kind = {8: np.uint8, 16: np.uint16}[bits]
    scaled = np.clip(values, 0, 1)
    unknown = np.isnan(scaled)
    scaled[unknown] = 0
    # in place: a block of many texts takes megabytes
    np.rint(np.multiply(np.sqrt(scaled, out=scaled), levels, out=scaled), out=scaled)
    scaled[unknown] = levels + 1
    return scaled.astype(kind)


def restored(numbers: UInt[np.ndarray, " values"]) -> Float[np.ndarray, " values"]:
    """What the page makes of `quantised` numbers."""
    levels = 2 ** (8 * numbers.dtype.itemsize) - 2
    return np.where(numbers > levels, np.nan, (numbers / levels) ** 2)
