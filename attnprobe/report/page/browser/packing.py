"""Numbers for the page, small: arrays side by side in one block, compressed, as text that is safe inside a page."""

import base64
import gzip
import json
from collections.abc import Mapping
from typing import Any

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


def pack(arrays: Mapping[str, Shaped[np.ndarray, " values"]], facts: Mapping[str, Any] | None = None) -> str:
    """Arrays and JSON facts as base64 of a gzip file: nothing in it can end a script element, or be read as markup.

    The file: the header's length (4 bytes, little endian), the header (JSON: `facts`, and of each array its name, type,
    length and offset after the header), and the arrays, little endian, each at a multiple of 8 bytes after the header.

    Raises:
        ValueError: an array of a type that browsers do not have.
    """
    described, body = [], bytearray()
    for name, array in arrays.items():
        kind = array.dtype.str[1:]
        if kind not in TYPES:
            raise ValueError(f"{name}: expected an array of {', '.join(TYPES)}, got {array.dtype}")
        body += b"\0" * (-len(body) % ALIGNMENT)
        described.append({"name": name, "type": TYPES[kind], "length": len(array), "offset": len(body)})
        body += np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
    header = json.dumps({"facts": facts or {}, "arrays": described}, ensure_ascii=True, separators=(",", ":")).encode()
    content = len(header).to_bytes(4, "little") + header + bytes(body)
    return base64.b64encode(gzip.compress(content, LEVEL, mtime=0)).decode("ascii")


def quantised(values: Float[np.ndarray, " values"], bits: int) -> UInt[np.ndarray, " values"]:
    """Numbers from 0 to 1 in `bits` bits (8 or 16), NaN as the largest of them.

    The square root is rounded, so that small weights, of which a text has many, keep more digits than large ones: a
    value v comes back within √v / (2^bits − 2).

    >>> quantised(np.array([0.0, 0.25, 1.0, np.nan]), 8)
    array([  0, 127, 254, 255], dtype=uint8)
    """
    levels = 2**bits - 2
    kind = {8: np.uint8, 16: np.uint16}[bits]
    known = np.nan_to_num(np.clip(values, 0, 1), nan=0.0)
    return np.where(np.isnan(values), levels + 1, np.rint(np.sqrt(known) * levels)).astype(kind)


def restored(numbers: UInt[np.ndarray, " values"]) -> Float[np.ndarray, " values"]:
    """What the page makes of `quantised` numbers."""
    levels = 2 ** (8 * numbers.dtype.itemsize) - 2
    return np.where(numbers > levels, np.nan, (numbers / levels) ** 2)
