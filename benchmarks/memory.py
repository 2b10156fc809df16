"""How much memory a run and its report take, by the number of test examples and the length of the texts.

    python -m benchmarks.memory [--examples 1000 10000 100000] [--length 12] [--long 4096]

Each line is two processes of their own: one that trains an averaging model (model=average) on a few texts and probes it
(permutation, single weight, erasure, gradient, and adversary without search), and one that writes the report of that run.
`peak` is the largest resident set that the operating system saw (VmHWM). `--long` adds a run on documents of that many
words with a small LSTM, leave-one-out included (0: none).
"""

import argparse
import json
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

WORDS = [f"word{number}" for number in range(2000)]
PROBES = "probe=[permutation,single_weight,erasure,gradient,adversarial]"
MODEL = ("model=average", "probe.adversarial.restarts=0", "probe.permutation.samples=10", PROBES)
LONG_MODEL = (
    "model=lstm", "model.encoder.hidden_size=32", "probe.adversarial.restarts=1", "probe.adversarial.steps=10",
    "probe.permutation.samples=10",
    "probe=[permutation,single_weight,erasure,gradient,adversarial,leave_one_out,correlation]",
)  # fmt: skip
SMALL = ("data.embedding_size=32", "training.epochs=1", "trainer.accelerator=cpu")


def main() -> None:
    """Measure, or be one of the processes that are measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--examples", type=int, nargs="*", default=[1000, 10_000, 100_000])
    parser.add_argument("--length", type=int, default=12, help="words per text")
    parser.add_argument("--long", type=int, default=4096, help="words per document of the last line; 0: no such line")
    parser.add_argument("--child", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(*arguments.child)
        return
    table = Table("test examples", "words per text", "run, peak MB", "report, peak MB", "page, MB")
    lines = [(count, arguments.length, MODEL) for count in arguments.examples]
    if arguments.long:
        lines.append((8, arguments.long, LONG_MODEL))
    for count, length, overrides in lines:
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder)
            write_texts(place / "texts", count, length)
            data = ("data=files", f"data.path={place / 'texts'}", "data.text=text", "data.label=label")
            probing = measured("run", *data, *SMALL, *overrides, f"run_dir={place / 'run'}")
            report = measured("report", str(place / "run"), str(place / "page.html"))
            page = (place / "page.html").stat().st_size / 1e6
        table.add_row(f"{count:,}", f"{length:,}", f"{probing:,.0f}", f"{report:,.0f}", f"{page:.1f}")
    Console(width=110).print(table)


def child(task: str, *arguments: str) -> None:
    """Do it in this process and say on the last line what it took."""
    if task == "run":
        from attnprobe.running.run import run
        from tests.runs import composed

        run(composed(*arguments))
    else:
        from attnprobe.report.page.build import write_report

        write_report([arguments[0]], Path(arguments[1]))
    # Linux counts in kilobytes, macOS in bytes
    unit = 1e6 if sys.platform == "darwin" else 1e3
    print(json.dumps({"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit}))


def measured(*arguments: str) -> float:
    """Peak memory in MB of a process of its own."""
    command = [sys.executable, "-m", "benchmarks.memory", "--child", *arguments]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    peak: float = json.loads(done.stdout.splitlines()[-1])["peak"]
    return peak


def write_texts(folder: Path, count: int, length: int) -> None:
    """Three splits of texts of random words, of half to the whole length; the first word decides the label."""
    folder.mkdir()
    generator = random.Random(0)
    for split, rows in (("train", 64), ("validation", 32), ("test", count)):
        if length > 1000:
            rows = min(rows, 8)
        with (folder / f"{split}.jsonl").open("w") as file:
            for number in range(rows):
                words = generator.choices(WORDS, k=length if length > 1000 else generator.randint(length // 2, length))
                label = "good" if number % 2 else "bad"
                file.write(json.dumps({"text": " ".join([label, *words[1:]]), "label": label}) + "\n")


if __name__ == "__main__":
    main()
