"""The whole command, from prompt to prompt, against the published procedure.

    python -m benchmarks.command RUN [--repeats 1] [--threads 2] [OVERRIDE …]

Ours is `python -m attnprobe +experiment=jain OVERRIDE …` in a process of its own: start-up, reading, 8 epochs, every probe
of Jain & Wallace, tables and figures. The published side trains as released (8 epochs of batches of 32, a packed LSTM,
Adam with amsgrad, validation after each) and runs the loops of `python -m benchmarks`; it is not charged for start-up,
reading, or writing anything. RUN is a finished run of the same settings, whose model and texts it takes:

    python -m attnprobe data=sst run_dir=RUN
    python -m benchmarks.command RUN data=sst
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from hydra.utils import instantiate
from rich.console import Console
from rich.table import Table

from attnprobe import load_run
from attnprobe.batch import Batch
from attnprobe.data.batching import TextSplit
from benchmarks import reference
from benchmarks.jain import BATCH, PARTS, Sides
from benchmarks.timing import Compared, interleaved, processor

EPOCHS = 8
PROBES = [name for name in PARTS if name != "exact"]  # its reference is the search's


def main() -> None:
    """Time both and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="directory of a finished run of the same settings")
    parser.add_argument("overrides", nargs="*", help="settings of our side, such as data=sst")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    loaded = load_run(given.run)
    data = instantiate(loaded.config["data"], seed=loaded.config["seed"])
    data.setup("fit")
    training, validation = (by_length(data.splits[split]) for split in ("train", "validation"))
    sides = Sides.of(loaded.classifier, data, len(data.splits["test"]))

    def published() -> None:
        reference.train(sides.published, training, validation, EPOCHS)
        for name in PROBES:
            PARTS[name].published(sides)

    seconds = interleaved(
        {"published": published, "ours": lambda: command(given.overrides, given.threads)}, given.repeats
    )
    table = Table(title=f"{given.run.name}: {sides.texts:,} test texts, {given.threads} thread(s), {processor()}")
    for column in ("whole command", "published procedure, s", "attnprobe, s", "times faster", "range"):
        table.add_column(column, justify="left" if column == "whole command" else "right", no_wrap=True)
    table.add_row(*Compared(f"{EPOCHS} epochs and all probes", seconds["published"], seconds["ours"]).cells())
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def by_length(texts: TextSplit) -> list[Batch]:
    """Batches of 32 texts of similar length."""
    rows = sorted(range(len(texts)), key=lambda row: texts.words.lengths[row])
    return [texts[rows[start : start + BATCH]] for start in range(0, len(rows), BATCH)]


def command(overrides: list[str], threads: int) -> None:
    """The command as a user types it, into a folder that is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        settings = ["+experiment=jain", f"training.epochs={EPOCHS}", f"run_dir={folder}/run", *overrides]
        subprocess.run(
            [sys.executable, "-m", "attnprobe", *settings],
            check=True,
            stdout=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        )


if __name__ == "__main__":
    main()
