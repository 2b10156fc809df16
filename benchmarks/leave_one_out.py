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
from collections.abc import Callable, Sequence
from copy import deepcopy
from statistics import median
from time import process_time

import numpy as np
import torch
from torch import Tensor

from attnprobe.core.batch import Batch
from attnprobe.data.vocabulary import END, START
from attnprobe.importance.leave_one_out import TOLERANCE, leave_one_out
from attnprobe.results.table import read_examples
from attnprobe.runs.load import TrainedRun, load_run
from benchmarks import reference
from benchmarks.timing import processor

BATCH = 32
TOGETHER = 64
"""As many texts as a run evaluates in one batch."""
ROWS = {
    "run": (torch.float32, torch.float64, TOLERANCE),
    "float32": (torch.float32, torch.float32, TOLERANCE),
    "float64": (torch.float64, torch.float64, TOLERANCE),
    "exact": (torch.float64, torch.float64, 0.0),
}
"""Precision of the published loop's model, of attnprobe's model, and attnprobe's tolerance."""
SIDES = ("released", "unpacked")


def samples(texts: list[list[str]], count: int) -> list[list[list[str]]]:
    """That many groups of `TOGETHER` texts (the last one may be smaller), evenly over the
    lengths."""
    texts = sorted(texts, key=len)
    whole = -(-len(texts) // TOGETHER)
    starts = ((np.arange(min(count, whole)) + 0.5) * whole / min(count, whole)).astype(
        int
    ) * TOGETHER
    return [texts[start : start + TOGETHER] for start in starts]


def batches(run: TrainedRun, groups: list[list[list[str]]], size: int) -> list[Batch]:
    """The groups' texts in batches of this size."""
    made = []
    for texts in (
        group[start : start + size] for group in groups for start in range(0, len(group), size)
    ):
        rows = [torch.tensor([START, *run.vocabulary.encode(text), END]) for text in texts]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        content = (ids != 0) & (ids != START) & (ids != END)
        example = torch.arange(len(rows))
        made.append(Batch(ids, ids != 0, content, torch.zeros_like(example), example))
    return made


def per_token(distances: list[Tensor], parts: list[Batch]) -> Tensor:
    """All texts' distances one after the other, zero for a text's only token."""
    return torch.cat(
        [d[batch.content].nan_to_num() for d, batch in zip(distances, parts, strict=True)]
    )


def compare(
    run: TrainedRun, groups: list[list[list[str]]], row: str, sides: Sequence[str], repeats: int
) -> str:
    """One line: median seconds of the sides and of attnprobe; how many times faster attnprobe is
    than each side, as the median and the range over the repeats; the largest difference of two
    distances; and what attnprobe's check found."""
    loops, own, tolerance = ROWS[row]
    theirs = deepcopy(run.classifier).to(loops)
    ours = deepcopy(run.classifier).to(own)
    packed = reference.packed(theirs)
    parts, larger = (batches(run, groups, size) for size in (BATCH, TOGETHER))
    with torch.no_grad():
        outputs = [ours(batch) for batch in larger]  # which a probe is given
    published: dict[str, Callable[[Batch], Tensor]] = {
        "released": lambda batch: reference.leave_one_out(packed, batch),
        "unpacked": lambda batch: reference.leave_one_out(theirs, batch),
    }
    times: dict[str, list[float]] = {side: [] for side in (*sides, "attnprobe")}
    found: dict[str, list[Tensor]] = {}
    errors = []
    # in turn, so that whatever else the machine does meets all of them
    for _ in range(repeats):
        for side in sides:
            start = process_time()
            found[side] = [published[side](batch) for batch in parts]
            times[side].append(process_time() - start)
        start = process_time()
        removals = [
            leave_one_out(ours, batch, given, tolerance=tolerance)
            for batch, given in zip(larger, outputs, strict=True)
        ]
        times["attnprobe"].append(process_time() - start)
        errors = [each.check.error for each in removals]
    distances = per_token([each.distance for each in removals], larger)
    apart = max(float((per_token(found[side], parts) - distances).abs().max()) for side in sides)
    seconds = "".join(f"{median(each):9.2f} s" for each in times.values())
    ratios = [
        sorted(a / b for a, b in zip(times[side], times["attnprobe"], strict=True))
        for side in sides
    ]
    faster = "".join(f"{median(each):9.1f} x ({each[0]:.1f} to {each[-1]:.1f})" for each in ratios)
    return f"{seconds}{faster}{apart:10.1e}{max(errors):10.1e}"


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
        f"{len(lengths)} test texts of {np.mean(lengths):.0f} tokens (longest {max(lengths)}); one thread; {processor()}"
    )
    columns = [
        *arguments.against,
        "attnprobe",
        *(f"{side}/attnprobe (range)" for side in arguments.against),
    ]
    print("  ".join([" " * 6, *columns, "differ", "check"]), flush=True)
    for row in arguments.rows:
        print(
            f"{row:8} {compare(run, groups, row, arguments.against, arguments.repeats)}", flush=True
        )


if __name__ == "__main__":
    main()
