"""How much memory a run and its report take.

By the number of test examples and the length of the texts.

    python -m benchmarks.memory [--examples 1000 10000 100000] [--length 12] [--long 4096] [--growth
    1.1] [--gigabytes 4]

Each line is three processes of their own: one that reads and encodes the data and does no more; one
that trains an averaging model (model=average) on 64 texts and probes it (permutation, single
weight, erasure, gradient, and adversary without search); and one that writes the report of that
run. The peak is the largest resident set that the operating system saw, and in brackets what it is
of the peak at the fewest examples. `--long` adds a run on 24 training and 8 test documents of that
many words with an LSTM of 32 units, leave-one-out included (0: none). The exit status is 1 where a
peak of a run or a report is over `--growth` times that of the fewest examples, or the long
documents take more than `--gigabytes`; 0 checks nothing.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.peak import peak_memory

WORDS = [f"word{number}" for number in range(2000)]
PROBES = "probe=[permutation,single_weight,erasure,gradient,adversarial]"
MODEL = ("model=average", "probe.adversarial.restarts=0", "probe.permutation.samples=10", PROBES)
LONG_MODEL = (
    "data.max_tokens=null",
    "model=lstm",
    "model.encoder.hidden_size=32",
    "probe.adversarial.restarts=1",
    "probe.adversarial.steps=10",
    "probe.permutation.samples=10",
    "probe=[permutation,single_weight,erasure,gradient,adversarial,leave_one_out,correlation]",
)
SMALL = ("data.embedding_size=32", "training.epochs=1", "trainer.accelerator=cpu")


TASKS = ("data", "run", "report")
"""What is measured, each in a process of its own."""
LONG = 1000
"""Words from which on texts are long: there are few of them then."""


def main() -> None:
    """Measure, or be one of the processes that are measured."""
    options = parsed()
    if options.child:
        child(*options.child)
        return
    lines = [(count, options.length, MODEL) for count in sorted(options.examples)]
    if options.long:
        lines.append((8, options.long, LONG_MODEL))
    table = Table(
        "test examples", "words per text", *(f"{task}, peak MB" for task in TASKS), "page, MB"
    )
    fewest: list[float] = []  # the peaks of the first line
    growth = 0.0
    largest_long = 0.0
    for count, length, overrides in lines:
        peaks, page = peaks_of(count, length, overrides)
        cells = [f"{peak:,.0f}" for peak in peaks]
        if length < LONG:
            fewest = fewest or peaks
            ratios = [peak / first for peak, first in zip(peaks, fewest, strict=True)]
            cells = [
                f"{peak:,.0f} ({ratio:.2f} ×)" for peak, ratio in zip(peaks, ratios, strict=True)
            ]
            growth = max(growth, *ratios[1:])  # of the run and the report
        else:
            largest_long = max(largest_long, peaks[TASKS.index("run")])
        table.add_row(f"{count:,}", f"{length:,}", *cells, f"{page:.1f}")
    Console(width=120).print(table)
    grows = options.growth and growth > options.growth
    too_large = options.gigabytes and largest_long > 1000 * options.gigabytes
    sys.exit(bool(grows or too_large))


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--examples", type=int, nargs="*", default=[1000, 10_000, 100_000])
    parser.add_argument("--length", type=int, default=12, help="words per text")
    parser.add_argument(
        "--long",
        type=int,
        default=4096,
        help="words per document of the last line; 0: no such line",
    )
    parser.add_argument(
        "--growth",
        type=float,
        default=0,
        help="what a peak may be, as a multiple of the first line's",
    )
    parser.add_argument(
        "--gigabytes", type=float, default=0, help="what the long documents may take"
    )
    parser.add_argument("--child", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    return parser.parse_args()


def peaks_of(count: int, length: int, overrides: Sequence[str]) -> tuple[list[float], float]:
    """Peak memory in MB of each of `TASKS`, and the page's size in MB."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_texts(place / "texts", count, length)
        data = ("data=files", f"data.path={place / 'texts'}", "data.text=text", "data.label=label")
        settings = (*data, *SMALL, *overrides, f"run_dir={place / 'run'}")
        peaks = [
            measured("data", *settings),
            measured("run", *settings),
            measured("report", str(place / "run"), str(place / "page.html")),
        ]
        return peaks, (place / "page.html").stat().st_size / 1e6


def child(task: str, *arguments: str) -> None:
    """Do it in this process and say on the last line what it took."""
    if task == "run":
        from attnprobe.runs.run import run
        from tests.small_runs import composed

        run(composed(*arguments))
    elif task == "data":
        from attnprobe.runs.settings import Settings
        from tests.small_runs import composed

        Settings.of(composed(*arguments)).parts.data.setup("fit")
    else:
        from attnprobe.report.__main__ import main as report

        report([arguments[0], "-o", arguments[1]])
    print(json.dumps({"peak": peak_memory()}))


def measured(*arguments: str) -> float:
    """Peak memory in MB of a process of its own."""
    command = [sys.executable, "-m", "benchmarks.memory", "--child", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    peak: float = json.loads(done.stdout.splitlines()[-1])["peak"]
    return peak


def write_texts(folder: Path, count: int, length: int) -> None:
    """Three splits of texts of random words, of half to the whole length.

    The first word decides the label.
    """
    folder.mkdir()
    generator = random.Random(0)
    training = 24 if length >= LONG else 64
    for split, rows in (("train", training), ("validation", 8), ("test", count)):
        with (folder / f"{split}.jsonl").open("w") as file:
            for number in range(rows):
                size = length if length >= LONG else generator.randint(length // 2, length)
                words = generator.choices(WORDS, k=size)
                label = "good" if number % 2 else "bad"
                text = " ".join([label, *words[1:]])
                file.write(json.dumps({"text": text, "label": label}) + "\n")


if __name__ == "__main__":
    main()
