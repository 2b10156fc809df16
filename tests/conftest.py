"""Shape annotations are checked at run time in the tests (jaxtyping with beartype); users pay nothing for them."""

import os

# Toys are too small for threads, which on a shared machine cost more than they bring; subprocesses inherit it.
os.environ["OMP_NUM_THREADS"] = "1"

from jaxtyping import install_import_hook

# for good: the package imports its parts when they are first asked for. Only rooms of tensors: beartype warns of
# omegaconf's own annotations.
ROOMS = ("batch", "erasure", "exact", "importance", "measures", "models", "probes")
install_import_hook([f"attnprobe.{room}" for room in ROOMS], "beartype.beartype")
