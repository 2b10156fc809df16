"""How much faster Jain & Wallace's probes and the whole command are than their released code.

    python -m benchmarks [RUN] [--examples 1725] [--repeats 5] [--threads 2] [--rows permutation …]
                         [--whole 2 [SETTING …]] [--toy 3] [--figure ratios.png]

RUN is the directory of a finished run of an LSTM with additive attention on texts of two classes;
without one a model is trained on the built-in corpus first. Both sides use the same weights, the
same test texts and the same process, in turn. The published side is benchmarks/released.py:
float32, batches of 32, a packed LSTM, each procedure with its own encoding of the texts. Ours is
the code of the probes as a run calls it: batches of 64, the model in float64, one encoding for all
of them, which is a row of its own. Where ours does more in one go (four kinds of gradients for
three, the exact adversary beside the search) its ratio is per kind in that row, and the sum is
charged for all of it.

`--whole N` times N times, in turn, 8 epochs of training as released and the whole command with
these settings, from prompt to prompt; `--toy N` the command on the built-in corpus, which has
nothing published to be compared with. Each row is printed when it is finished, and all of them in a
table at the end. All that docs/results/measurements.md quotes, in some eight
minutes:

    python -m attnprobe data=sst run_dir=RUN
    python -m benchmarks RUN --repeats 3 --toy 2 --whole 2 data=sst
"""

import argparse
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from attnprobe import load_run
from attnprobe.__main__ import CONFIGURATION
from attnprobe.data.module import TextDataModule
from attnprobe.runs.run import run
from benchmarks.command import command, whole
from benchmarks.jain import PARTS, Sides
from benchmarks.timing import Compared, interleaved, processor, together


def main() -> None:
    """Time both sides and print the ratios."""
    arguments = parsed()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        if arguments.run is None:
            report("no run was named: one is trained on the built-in corpus first")
        directory = arguments.run or train_on_testbed(Path(folder))
        loaded = load_run(directory)
        data = instantiate(loaded.config["data"], seed=loaded.config["seed"])
        data.setup("fit")
    sides = Sides.of(loaded.classifier, data, arguments.examples)
    report(f"{len(sides.texts):,} test texts, {arguments.repeats} repeat(s) of each row:")
    report("  " + "; ".join(PARTS[name].title for name in ordered(arguments.rows)))

    rows: list[Compared] = []
    table = Table(
        title=f"{directory.name}: {len(sides.texts):,} test texts, {arguments.threads} thread(s), "
        f"{processor()}; medians of {arguments.repeats}"
    )
    for column in ("", "as released, s", "attnprobe, s", "times faster", "range"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    try:
        measure(arguments, sides, data, rows, table)
    finally:  # what was measured is printed, also where a row fails or is interrupted
        Console(width=None if sys.stdout.isatty() else 120).print(table)
        if arguments.figure and rows:
            drawn(rows).savefig(arguments.figure, dpi=150)


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", nargs="?", type=Path, help="directory of a finished run")
    parser.add_argument(
        "--examples",
        type=int,
        default=100_000,
        help="that many test texts at most, evenly over them",
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rows", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument(
        "--whole", nargs="+", metavar=("N", "SETTING"), help="how often, and our side's settings"
    )
    parser.add_argument("--toy", type=int, default=0, help="how often")
    parser.add_argument("--figure", type=Path, help="the ratios, drawn")
    arguments = parser.parse_args()
    if arguments.whole and set(arguments.rows) != set(PARTS):
        parser.error("--whole needs all rows")
    return arguments


def report(line: str) -> None:
    """Tell how far it is; on the other stream than the table, and at once."""
    print(line, file=sys.stderr, flush=True)


def measure(
    arguments: argparse.Namespace,
    sides: Sides,
    data: TextDataModule,
    rows: list[Compared],
    table: Table,
) -> None:
    """Time everything that is asked for; rows are there as soon as they are measured."""

    def finish(row: Compared) -> None:
        rows.append(row)
        table.add_row(*row.cells())
        report(progress(row))

    parts: dict[str, Compared] = {}
    for name, row in timed(sides, arguments.rows, arguments.repeats):
        parts[name] = row
        finish(row)
    if len(parts) > 1:
        finish(summed(parts))
    if arguments.whole:
        times, *settings = arguments.whole
        row, training = whole(sides, data, parts, settings, arguments.threads, int(times))
        finish(row)
        table.add_row("of it training", f"{median(training):.3g}", "", "", "")
    if arguments.toy:
        toy = interleaved(
            {"toy": lambda: command(["data=testbed"], arguments.threads)}, arguments.toy
        )["toy"]
        seconds = f"{median(toy):.3g}"
        spread = f"{min(toy):.3g} to {max(toy):.3g}"
        table.add_row("built-in corpus, prompt to prompt", "", seconds, "", spread)
        report(f"built-in corpus, prompt to prompt: {seconds} s ({spread})")


def progress(row: Compared) -> str:
    """A finished row on one line."""
    name, published, ours, ratio, spread = row.cells()
    return f"{name}: {published} s as released, {ours} s here, {ratio} times faster ({spread})"


def drawn(rows: list[Compared]) -> Figure:
    """How many times faster each row is, median and range."""
    figure = Figure(figsize=(7, 0.4 * len(rows) + 1), layout="constrained")
    axes = figure.subplots()
    for place, row in enumerate(rows):
        ratios = row.ratios
        middle = median(ratios)
        axes.plot(
            [ratios[0], ratios[-1]], [place, place], color="#0072B2", lw=4, solid_capstyle="butt"
        )
        axes.plot(middle, place, "|", color="#222222", ms=9)
        axes.annotate(
            f"{middle:.3g} ×",
            (middle, place),
            (0, 6),
            textcoords="offset points",
            ha="center",
            fontsize=8,
        )
    axes.set_xscale("log")
    axes.margins(x=0.1)  # room for the numbers at either end
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.8)
    axes.axvline(1, color="#bbbbbb", lw=1)
    figure.supxlabel(
        "times faster than the released procedure: median and range of the repeats", fontsize=10
    )
    return figure


def ordered(names: Collection[str]) -> list[str]:
    """The rows in the order of `PARTS`."""
    return [name for name in PARTS if name in names]


def timed(sides: Sides, names: Collection[str], repeats: int) -> Iterator[tuple[str, Compared]]:
    """Time the rows one by one.

    The search's loop is the exact adversary's reference too, and is run once where both are asked
    for.
    """
    search: list[float] | None = None
    for name in ordered(names):
        part = PARTS[name]
        jobs = {"ours": partial(part.ours, sides)}
        if name != "exact" or search is None:
            jobs = {"published": partial(part.published, sides)} | jobs
        seconds = interleaved(jobs, repeats)
        published = seconds.get("published", search)
        assert published is not None
        if name == "search":
            search = published
        yield name, Compared(part.title, published, seconds["ours"], part.share)


def summed(rows: Mapping[str, Compared]) -> Compared:
    """All rows together.

    The published side has no exact adversary, and encodes the texts within each of its procedures.
    """
    free = {"encoding", "exact"} if "search" in rows else {"encoding"}
    counted = []
    for name, row in rows.items():
        published = [0.0] * len(row.ours) if name in free else row.published
        counted.append(Compared(row.name, published, row.ours))
    return together("all probes and our encoding", counted)


def train_on_testbed(folder: Path) -> Path:
    """A finished run on the built-in corpus."""
    with initialize_config_dir(config_dir=str(CONFIGURATION), version_base="1.3"):
        overrides = [f"output={folder}", "probe=[permutation]", "figures=false"]
        return run(compose("config", overrides=overrides))


if __name__ == "__main__":
    main()
