"""Leave-one-out against the published loop, which re-encodes every shortened text.

    python -m benchmarks.leave_one_out RUN [--examples 192] [--repeats 3] [--rows run …] [--against
    released …]

RUN is the directory of a finished run of an LSTM; its own test texts are taken, sorted by length
and cut into batches of 32 as the published code does, and of these batches some, in pairs, evenly
over the lengths. (Batches of a sample of single texts would hold texts of different lengths, and
the published loop drops as many columns of all of them as the longest has: it would look slower
than it is.) All sides run in the same process on one thread, in processor time (which another
program on the machine can still stretch, by its share of caches and clock), in turn, on the same
model and texts: the published loop with its packed bidirectional LSTM ("released"), once more with
this project's faster encoder ("unpacked"), and attnprobe's own, which is given two of those batches
at a time, as many texts as a run evaluates together.

Rows (`--rows`):

    run      what a user gets: the published loop in float32 as released, attnprobe as a run
             measures: the model in float64, changed states in float32, a sample checked
    float32  model and loop in float32
    float64  model and loop in float64, changed states in float32
    exact    float64 throughout, nothing approximated (tolerance 0)
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from statistics import median
from time import process_time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attnprobe.core.batch import Batch
from attnprobe.data.vocabulary import END, START
from attnprobe.importance.leave_one_out import TOLERANCE, Removals, leave_one_out
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.results.table import read_examples
from attnprobe.runs.load import TrainedRun, load_run
from benchmarks import reference
from benchmarks.timing import Compared, processor

BATCH = 32
TOGETHER = 64
"""As many texts as a run evaluates in one batch."""


@dataclass(frozen=True)
class Precision:
    """Precision of the published loop's model, of attnprobe's model, and attnprobe's tolerance."""

    loop: torch.dtype
    attnprobe: torch.dtype
    tolerance: float


ROWS = {
    "run": Precision(torch.float32, torch.float64, TOLERANCE),
    "float32": Precision(torch.float32, torch.float32, TOLERANCE),
    "float64": Precision(torch.float64, torch.float64, TOLERANCE),
    "exact": Precision(torch.float64, torch.float64, 0.0),
}
SIDES = ("released", "unpacked")


def samples(texts: list[list[str]], count: int) -> list[list[list[str]]]:
    """That many groups of `TOGETHER` texts, evenly over the lengths.

    The last one may be smaller.
    """
    texts = sorted(texts, key=len)
    groups = -(-len(texts) // TOGETHER)
    count = min(count, groups)
    chosen = ((np.arange(count) + 0.5) * groups / count).astype(int)
    return [texts[start : start + TOGETHER] for start in chosen * TOGETHER]


def batches(run: TrainedRun, groups: list[list[list[str]]], size: int) -> list[Batch]:
    """The groups' texts in batches of this size."""
    parts = []
    for group in groups:
        for start in range(0, len(group), size):
            texts = group[start : start + size]
            rows = [torch.tensor([START, *run.vocabulary.encode(text), END]) for text in texts]
            ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
            content = (ids != 0) & (ids != START) & (ids != END)
            example = torch.arange(len(rows))
            parts.append(Batch(ids, ids != 0, content, torch.zeros_like(example), example))
    return parts


def per_token(distances: list[Tensor], parts: list[Batch]) -> Tensor:
    """All texts' distances one after the other, zero for a text's only token."""
    values = [
        distance[batch.content].nan_to_num()
        for distance, batch in zip(distances, parts, strict=True)
    ]
    return torch.cat(values)


def compare(
    run: TrainedRun, groups: list[list[list[str]]], row: str, sides: Sequence[str], repeats: int
) -> str:
    """Time a row.

    Returns:
        One line: median seconds of the sides and of attnprobe; how many times faster attnprobe is
        than each side, as the median and the range over the repeats; the largest difference of two
        distances; and what attnprobe's check found.
    """
    precision = ROWS[row]
    loop_model = deepcopy(run.classifier).to(precision.loop)
    model = deepcopy(run.classifier).to(precision.attnprobe)
    parts = batches(run, groups, BATCH)
    larger = batches(run, groups, TOGETHER)
    with torch.no_grad():
        outputs = [model(batch) for batch in larger]  # which a probe is given

    def looped(classifier: AttentionClassifier) -> list[Tensor]:
        return [reference.leave_one_out(classifier, batch) for batch in parts]

    def attnprobe() -> list[Removals]:
        return [
            leave_one_out(model, batch, output, tolerance=precision.tolerance)
            for batch, output in zip(larger, outputs, strict=True)
        ]

    loops = {
        "released": partial(looped, reference.packed(loop_model)),
        "unpacked": partial(looped, loop_model),
    }
    jobs = {side: loops[side] for side in sides} | {"attnprobe": attnprobe}
    times, results = in_turn(jobs, repeats)
    removals = results.pop("attnprobe")
    distances = per_token([removal.distance for removal in removals], larger)
    differences = [(per_token(loop, parts) - distances).abs().max() for loop in results.values()]
    error = max(removal.error for removal in removals)
    return f"{cells(times)}{max(map(float, differences)):10.1e}{error:10.1e}"


def cells(times: Mapping[str, list[float]]) -> str:
    """Median seconds, and how many times faster attnprobe is than each other side."""
    texts = [f"{median(seconds):9.2f} s" for seconds in times.values()]
    for side, seconds in times.items():
        if side != "attnprobe":
            ratios = Compared(side, seconds, times["attnprobe"]).ratios
            texts.append(f"{median(ratios):9.1f} x ({ratios[0]:.1f} to {ratios[-1]:.1f})")
    return "".join(texts)


def in_turn(
    jobs: Mapping[str, Callable[[], Any]], repeats: int
) -> tuple[dict[str, list[float]], dict[str, Any]]:
    """Processor seconds of each job and its last result.

    In turn, so that whatever else the machine does meets all of them.
    """
    times: dict[str, list[float]] = {name: [] for name in jobs}
    results = {}
    for _ in range(repeats):
        for name, job in jobs.items():
            start = process_time()
            results[name] = job()
            times[name].append(process_time() - start)
    return times, results


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", help="directory of a finished run")
    parser.add_argument("--examples", type=int, default=192)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--against", nargs="+", choices=SIDES, default=list(SIDES))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    run = load_run(arguments.run)
    tokens = [list(text) for text in read_examples(arguments.run)["tokens"]]
    groups = samples(tokens, max(1, -(-arguments.examples // TOGETHER)))
    lengths = [len(text) for group in groups for text in group]
    print(
        f"{len(lengths)} test texts of {np.mean(lengths):.0f} tokens (longest {max(lengths)}); "
        f"one thread; {processor()}"
    )
    columns = [
        *arguments.against,
        "attnprobe",
        *(f"{side}/attnprobe (range)" for side in arguments.against),
    ]
    print("  ".join([" " * 6, *columns, "differ", "check"]), flush=True)
    for row in arguments.rows:
        line = compare(run, groups, row, arguments.against, arguments.repeats)
        print(f"{row:8} {line}", flush=True)


if __name__ == "__main__":
    main()
