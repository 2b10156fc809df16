"""Whole runs small enough for a test, and the command line within this process."""

import os
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest.mock import patch

from hydra import initialize_config_dir
from omegaconf import DictConfig

from attnprobe.__main__ import main
from attnprobe.results.directory import MANIFEST, RunDirectory, is_run_name
from attnprobe.results.files import record_of, write_sealed
from attnprobe.runs import composition as configuration

SMALL = (
    "data.source.train_size=120",
    "data.source.validation_size=40",
    "data.source.test_size=30",
    "data.embedding_size=12",
    "training.epochs=2",
    "trainer.accelerator=cpu",
    "figures=false",
)
NARROW = "model.width=16"
"""Of an LSTM: an eighth of the recipe's."""
SMALL_ADVERSARY = ("probe.adversarial.steps=20", "probe.adversarial.restarts=2")
FEW_PASSES = ("probe.swaps.passes=100", "probe.swaps.most_passes=100")
"""The fewest of each text: where effects are noise, the test on words would take 1,600."""


def seal(directory: Path, **manifest: Any) -> None:
    """Write a manifest that lists every file that is in the directory, as a finished run has
    one."""
    names = sorted(
        path.relative_to(directory).as_posix() for path in directory.rglob("*") if path.is_file()
    )
    files = {
        name: record_of(directory / name)
        for name in names
        if is_run_name(name) and name != MANIFEST
    }
    write_sealed(manifest | {"files": files}, directory / MANIFEST)


def seal_again(directory: Path) -> None:
    """Take the files as they are now for those that the run wrote."""
    seal(directory, **RunDirectory(directory).manifest())


def composed(*overrides: str) -> DictConfig:
    """The configuration that these command-line arguments give."""
    with initialize_config_dir(config_dir=str(configuration.CONFIGURATION), version_base="1.3"):
        return configuration.composed(overrides)


def small_run(output: Path, *overrides: str, probes: str = "[permutation]") -> DictConfig:
    """The configuration of a run on the testbed that takes half a second; of a narrow LSTM, unless
    another model is chosen."""
    chooses = any(override.startswith(("model=", "run=")) for override in overrides)
    model = () if chooses else (NARROW,)
    return composed(*SMALL, *model, f"probe={probes}", f"output={output}", *overrides)


def command_line(folder: Path, *arguments: str) -> CompletedProcess[str]:
    """What `python -m attnprobe` says and ends with in this folder, without a process of its
    own."""
    out = StringIO()
    err = StringIO()
    status = 0
    with (
        chdir(folder),
        redirect_stdout(out),
        redirect_stderr(err),
        patch.dict(os.environ),
        patch.object(sys, "argv", ["attnprobe", *arguments]),
    ):
        try:
            main()
        except SystemExit as ended:
            status = int(ended.code or 0)
    return CompletedProcess(arguments, status, out.getvalue(), err.getvalue())
