"""Memory that is no longer needed goes back to the system: a report of many texts takes little more than one of few."""

import ctypes
import os
import sys
from contextlib import suppress

LARGE = 1 << 17
"""Bytes from which an array has pages of its own: what glibc begins with."""
MMAP_THRESHOLD = -3
"""glibc's number for this choice (malloc.h)."""
ARROWS = "ARROW_DEFAULT_MEMORY_POOL"
"""The environment variable that names Arrow's allocator; it is read when Arrow is imported, and never again."""


def give_back_memory() -> None:
    """From here on what is deleted leaves the process. For one that does nothing else, and before Arrow is imported:
    these are choices for the whole of it.

    glibc begins with giving arrays of `LARGE` bytes and more back, but with every one that is freed it raises the size
    that counts as large, up to 32 MB, and keeps what is smaller for later: of 100,000 texts some 20 MB that nothing is
    in. Setting the size fixes it. Arrow has an allocator of its own that keeps another 20 MB, and takes the system's
    unless the user says which one. Other systems' libraries are left as they are.
    """
    if not sys.platform.startswith("linux"):
        return
    with suppress(AttributeError):  # another library than glibc
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, LARGE)
    if ARROWS not in os.environ:
        os.environ[ARROWS] = "system"
        import pyarrow as pa

        pa.default_memory_pool()
        del os.environ[ARROWS]
