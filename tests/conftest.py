"""Shape annotations are checked at run time in the tests (jaxtyping with beartype); users pay
nothing for them.

Two switches, for `make test-anywhere`: OMP_NUM_THREADS (1 unless set), and ATTNPROBE_TEST_ONEDNN=0,
which turns oneDNN off."""

import gc
import os
import random
import sys
from unittest.mock import patch

# Toys are too small for threads, which on a shared machine cost more than they bring; subprocesses
# inherit it.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
from jaxtyping import install_import_hook

# What a stranger's shell may set, and the tests' expectations must not depend on: subprocesses see
# the same.
for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "PY_COLORS"):
    os.environ.pop(name, None)
# Compiled files: without them every process compiles the package, and every session the tests.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# for good: the package imports its parts when they are first asked for. Only rooms of tensors:
# beartype warns of omegaconf's own annotations.
ROOMS = ("core.batch", "core.readout", "exact", "importance", "measures", "models", "probes")
install_import_hook([f"attnprobe.{room}" for room in ROOMS], "beartype.beartype")


@pytest.fixture(autouse=True)
def same_random_numbers():
    """A test that draws from the global generators draws the same, whichever ran before it."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.fixture(autouse=True)
def same_threads():
    """No test leaves PyTorch with another number of threads: the last digits of all that follow
    would be others."""
    before = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else None
    yield
    if before is not None:
        after = sys.modules["torch"].get_num_threads()
        sys.modules["torch"].set_num_threads(before)
        assert after == before, f"the test leaves {after} threads where there were {before}"


@pytest.fixture(scope="session", autouse=True)
def vector_library():
    """oneDNN off where ATTNPROBE_TEST_ONEDNN=0, in this process (a run's own processes keep it)."""
    if os.environ.get("ATTNPROBE_TEST_ONEDNN") != "0":
        yield
        return
    import torch

    # this flag alone: `flags(enabled=False)` sets TF32 as well, and warns where there is no such
    # GPU
    torch.backends.mkldnn.enabled = False
    yield
    torch.backends.mkldnn.enabled = True


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk():
    """A run syncs every file that it writes, lest a power cut takes it. No test cuts the power, and
    the disk takes milliseconds for each. Processes that a test starts do sync."""
    with patch.object(os, "fsync", os.fstat):  # which refuses a closed file as well
        yield


@pytest.fixture(scope="session", autouse=True)
def compositions():
    """Many tests compose the same choices of conf/, which takes most of their time."""
    from tests.remembered import composing_once

    with composing_once():
        yield


LONGER = {
    "small_run",
    "subprocess",
    "webdriver",
    "browser",
    "Trainer",
    "carry_out_study",
    "run_module",
    "composed",
    "nbclient",
    "command_line",
    "cases",
    "in_a_child",
    "paper_style",
    "draw_study",
    "problems",
    "EVERYTHING",
    "growth",
    "conformance",
    "campaign",
}
"""Names by which a test module trains, starts a process, opens a browser, draws, or times what
trains: what `make test-fast` leaves out."""


def pytest_collection_modifyitems(items):
    """Mark the tests of such modules, and those whose fixtures come from one, as `whole`."""
    for item in items:
        longer = any(
            LONGER & vars(module).keys()
            for module in modules_of(item)
            if module and module.__name__ != __name__
        )
        if longer or "driver" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.whole)


def pytest_collection_finish():
    """The garbage collector goes through the million objects of imports and tests more rarely than
    by default, which would take a fifteenth of the suite's time."""
    gc.set_threshold(20_000, 20, 20)


def modules_of(item):
    """The modules of a test and of its fixtures; None for one that is not loaded."""
    yield getattr(item, "module", None)
    fixtures = getattr(item, "_fixtureinfo", None)
    if fixtures is None:
        return
    for definitions in fixtures.name2fixturedefs.values():
        for definition in definitions:
            yield sys.modules.get(definition.func.__module__)
