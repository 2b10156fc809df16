"""How much faster Jain & Wallace's probes are than the published code's way of doing them.

    python -m benchmarks [RUN] [--examples 1725] [--repeats 5] [--threads 2] [--rows permutation …]

RUN is the directory of a finished run of an LSTM on single-label texts; without one a model is trained on the built-in
corpus first. Both sides use the same trained model, the same test texts and the same process, in turn. The published
side keeps the loop structure of the released code (benchmarks/reference.py): float32, batches of 32 of similar length,
the packed LSTM, the decoder run again for every permutation, autograd through hidden states in every step of the
adversary, scipy's τ text by text. Ours is the code of the probes as a run calls it: batches of 64, the model in float64.
Where ours does more in one go (four kinds of gradients for one, the exact adversary beside the search) its ratio is per
kind in that row, and the sum is charged for all of it.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from rich.console import Console
from rich.table import Table

from attnprobe import load_run
from attnprobe.__main__ import CONFIGURATION
from attnprobe.running.run import run
from benchmarks.jain import PARTS, Sides
from benchmarks.timing import Compared, interleaved, processor, together


def main() -> None:
    """Time both sides and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path, help="directory of a finished run")
    parser.add_argument("--examples", type=int, default=100_000, help="that many test texts at most, evenly over them")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", nargs="+", choices=list(PARTS), default=list(PARTS))
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        directory = given.run or train_on_testbed(Path(folder))
        loaded = load_run(directory)
        data = instantiate(loaded.config["data"], seed=loaded.config["seed"])
        data.setup("test")
    sides = Sides.of(loaded.classifier, data, given.examples)
    found = [timed(sides, name, given.repeats) for name in given.rows]
    title = (
        f"{directory.name}: {sides.texts:,} test texts, {given.threads} thread(s), {processor()}; medians of "
        f"{given.repeats}"
    )
    table = Table(title=title)
    for column in ("probe", "published loop, s", "attnprobe, s", "times faster", "range"):
        table.add_column(column, justify="left" if column == "probe" else "right", no_wrap=True)
    # the search's loop is the reference of the exact adversary too, and is counted once
    counted = [each for each, name in zip(found, given.rows, strict=True) if name != "exact"]
    exact = [each for each, name in zip(found, given.rows, strict=True) if name == "exact"]
    for each in found:
        table.add_row(*each.cells())
    if len(counted) > 1:
        free = [Compared(each.name, [0.0] * len(each.ours), each.ours) for each in exact]
        table.add_row(*together("all of them", counted + free).cells())
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def timed(sides: Sides, name: str, repeats: int) -> Compared:
    """One row."""
    part = PARTS[name]
    seconds = interleaved({"published": lambda: part.published(sides), "ours": lambda: part.ours(sides)}, repeats)
    return Compared(part.title, seconds["published"], seconds["ours"], part.share)


def train_on_testbed(folder: Path) -> Path:
    """A finished run on the built-in corpus."""
    with initialize_config_dir(config_dir=str(CONFIGURATION), version_base="1.3"):
        return run(compose("config", overrides=[f"output={folder}", "probe=[permutation]", "figures=false"]))


if __name__ == "__main__":
    main()
