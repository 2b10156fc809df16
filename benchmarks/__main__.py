"""How much faster Jain & Wallace's probes, and the whole command, are than their code as it was
released.

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
nothing published to be compared with. All that docs/results/measurements.md quotes, in some eight
minutes:

    python -m attnprobe data=sst run_dir=RUN
    python -m benchmarks RUN --repeats 3 --toy 2 --whole 2 data=sst
"""

import argparse
import sys
import tempfile
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
from attnprobe.runs.run import run
from benchmarks.command import command, whole
from benchmarks.jain import PARTS, Sides
from benchmarks.timing import Compared, interleaved, processor, together


def main() -> None:
    """Time both sides and print the ratios."""
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
    given = parser.parse_args()
    if given.whole and set(given.rows) != set(PARTS):
        parser.error("--whole needs all rows")
    torch.set_num_threads(given.threads)
    with tempfile.TemporaryDirectory() as folder:
        directory = given.run or train_on_testbed(Path(folder))
        loaded = load_run(directory)
        data = instantiate(loaded.config["data"], seed=loaded.config["seed"])
        data.setup("fit")
    sides = Sides.of(loaded.classifier, data, given.examples)
    found = timed(sides, given.rows, given.repeats)
    rows = [*found.values(), *([summed(found)] if len(found) > 1 else [])]
    table = Table(
        title=f"{directory.name}: {len(sides.texts):,} test texts, {given.threads} thread(s), {processor()}; medians of "
        f"{given.repeats}"
    )
    for column in ("", "as released, s", "attnprobe, s", "times faster", "range"):
        table.add_column(column, justify="right" if column else "left", no_wrap=True)
    try:
        for each in rows:
            table.add_row(*each.cells())
        if given.whole:
            times, *settings = given.whole
            both, training = whole(sides, data, found, settings, given.threads, int(times))
            rows.append(both)
            table.add_row(*both.cells())
            table.add_row("of it training", f"{median(training):.3g}", "", "", "")
        if given.toy:
            toy = interleaved({"toy": lambda: command(["data=testbed"], given.threads)}, given.toy)[
                "toy"
            ]
            table.add_row(
                "built-in corpus, prompt to prompt",
                "",
                f"{median(toy):.3g}",
                "",
                f"{min(toy):.3g} to {max(toy):.3g}",
            )
    finally:  # what was measured is said, also where the whole command fails or is interrupted
        Console(width=None if sys.stdout.isatty() else 120).print(table)
        if given.figure:
            drawn(rows).savefig(given.figure, dpi=150)


def drawn(rows: list[Compared]) -> Figure:
    """How many times faster each row is, median and range."""
    figure = Figure(figsize=(7, 0.4 * len(rows) + 1), layout="constrained")
    axes = figure.subplots()
    for place, each in enumerate(rows):
        ratios = each.ratios
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
    axes.set_yticks(range(len(rows)), [each.name for each in rows])
    axes.set_ylim(len(rows) - 0.5, -0.8)
    axes.axvline(1, color="#bbbbbb", lw=1)
    figure.supxlabel(
        "times faster than the released procedure: median and range of the repeats", fontsize=10
    )
    return figure


def timed(sides: Sides, names: list[str], repeats: int) -> dict[str, Compared]:
    """The rows. The search's loop is the exact adversary's reference too, and is run once where
    both are asked for."""
    found: dict[str, Compared] = {}
    for name in sorted(names, key=list(PARTS).index):
        part = PARTS[name]
        jobs = {
            "published": lambda part=part: part.published(sides),
            "ours": lambda part=part: part.ours(sides),
        }
        searched = found["search"].published if name == "exact" and "search" in found else None
        if searched is not None:
            del jobs["published"]
        seconds = {"published": searched or []} | interleaved(jobs, repeats)
        found[name] = Compared(part.title, seconds["published"], seconds["ours"], part.share)
    return found


def summed(found: dict[str, Compared]) -> Compared:
    """All rows together; the published side has no exact adversary, and encodes the texts within
    each of its procedures."""
    free = {"encoding", "exact"} if "search" in found else {"encoding"}
    counted = [
        Compared(each.name, [0.0] * len(each.ours) if name in free else each.published, each.ours)
        for name, each in found.items()
    ]
    return together("all probes and our encoding", counted)


def train_on_testbed(folder: Path) -> Path:
    """A finished run on the built-in corpus."""
    with initialize_config_dir(config_dir=str(CONFIGURATION), version_base="1.3"):
        return run(
            compose(
                "config", overrides=[f"output={folder}", "probe=[permutation]", "figures=false"]
            )
        )


if __name__ == "__main__":
    main()
