"""Shape annotations are checked at run time in the tests (jaxtyping with beartype); users pay nothing for them."""

import os

# Toys are too small for threads, which on a shared machine cost more than they bring; subprocesses inherit it.
os.environ["OMP_NUM_THREADS"] = "1"

from jaxtyping import install_import_hook

with install_import_hook("attnprobe", "beartype.beartype"):
    import attnprobe  # noqa: F401
