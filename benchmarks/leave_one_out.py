"""Leave-one-out against the published loop, which re-encodes every shortened text.

    python -m benchmarks.leave_one_out RUN [--examples 192] [--repeats 3]

RUN is the directory of a finished run of an LSTM; its own test texts are taken, sorted by length and cut into batches
of 32 as the published code does, and of these batches some, in pairs, evenly over the lengths. (Batches of a sample of
single texts would hold texts of different lengths, and the published loop drops as many columns of all of them as the
longest has: it would look slower than it is.) All sides run in the same process on one thread, in processor time, on the
same model and texts: the published loop with its packed bidirectional LSTM, with autograd on as in the released code
("released") and off ("packed"), once more with this project's faster encoder and autograd off ("unpacked"), and
attnprobe's own, which is given two of those batches at a time, as many texts as a run evaluates together.

Rows: model and loop in float32, as published; both in float64, in which a run measures (attnprobe then recomputes states
in float32); and float64 throughout, by a smaller tolerance.
"""

import argparse
from collections.abc import Callable
from statistics import median
from time import process_time

import numpy as np
import torch
from torch import Tensor

from attnprobe.batch import Batch
from attnprobe.data.vocabulary import END, START
from attnprobe.importance.leave_one_out import TOLERANCE, leave_one_out
from attnprobe.loading import TrainedRun, load_run
from attnprobe.results.table import read_examples
from benchmarks import reference

BATCH = 32
TOGETHER = 64
"""As many texts as a run evaluates in one batch."""
ROWS = (("float32", torch.float32, TOLERANCE), ("float64", torch.float64, TOLERANCE), ("all 64", torch.float64, 1e-7))


def samples(texts: list[list[str]], count: int) -> list[list[list[str]]]:
    """So many groups of `TOGETHER` texts (the last one may be smaller), evenly over the lengths."""
    texts = sorted(texts, key=len)
    whole = -(-len(texts) // TOGETHER)
    starts = ((np.arange(min(count, whole)) + 0.5) * whole / min(count, whole)).astype(int) * TOGETHER
    return [texts[start : start + TOGETHER] for start in starts]


def batches(run: TrainedRun, groups: list[list[list[str]]], size: int) -> list[Batch]:
    """The groups' texts in batches of this size."""
    made = []
    for texts in (group[start : start + size] for group in groups for start in range(0, len(group), size)):
        rows = [torch.tensor([START, *run.vocabulary.encode(text), END]) for text in texts]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        content = (ids != 0) & (ids != START) & (ids != END)
        example = torch.arange(len(rows))
        made.append(Batch(ids, ids != 0, content, torch.zeros_like(example), example))
    return made


def per_token(distances: list[Tensor], parts: list[Batch]) -> Tensor:
    """All texts' distances one behind the other, zero for a text's only token."""
    return torch.cat([d[batch.content].nan_to_num() for d, batch in zip(distances, parts, strict=True)])


def compare(run: TrainedRun, groups: list[list[list[str]]], dtype: torch.dtype, tolerance: float, repeats: int) -> str:
    """One line: median seconds of the four, the ratios of the first three to ours, and the largest difference."""
    classifier = run.classifier.to(dtype)
    published = reference.packed(classifier)
    parts, larger = (batches(run, groups, size) for size in (BATCH, TOGETHER))
    with torch.no_grad():
        outputs = [classifier(batch) for batch in larger]  # which a probe is given
    jobs: list[Callable[[], list[Tensor]]] = [
        lambda: [reference.leave_one_out(published, batch, autograd=True) for batch in parts],
        lambda: [reference.leave_one_out(published, batch) for batch in parts],
        lambda: [reference.leave_one_out(classifier, batch) for batch in parts],
        lambda: [
            leave_one_out(classifier, batch, given, tolerance=tolerance).distance
            for batch, given in zip(larger, outputs, strict=True)
        ],
    ]
    times: list[list[float]] = [[] for _ in jobs]
    found: list[list[Tensor]] = [[] for _ in jobs]
    # in turn, so that whatever else the machine does meets all of them
    for _ in range(repeats):
        for number, job in enumerate(jobs):
            start = process_time()
            found[number] = job()
            times[number].append(process_time() - start)
    seconds = [median(each) for each in times]
    ours = per_token(found[-1], larger)
    apart = max(float((per_token(other, parts) - ours).abs().max()) for other in found[:-1])
    ratios = "".join(f"{other / seconds[-1]:8.1f} x" for other in seconds[:-1])
    return "".join(f"{value:9.2f} s" for value in seconds) + ratios + f"{apart:9.1e}"


def main() -> None:
    """Print the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", help="directory of a finished run")
    parser.add_argument("--examples", type=int, default=192)
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    run = load_run(arguments.run)
    tokens = [list(text) for text in read_examples(arguments.run)["tokens"]]
    groups = samples(tokens, max(1, -(-arguments.examples // TOGETHER)))
    lengths = [len(text) for group in groups for text in group]
    print(f"{len(lengths)} test texts of {np.mean(lengths):.0f} tokens (longest {max(lengths)})")
    print(f"{'':8}{'released':>11}{'packed':>11}{'unpacked':>11}{'attnprobe':>11}{'times faster':>30}{'differ':>9}")
    for name, dtype, tolerance in ROWS:
        print(f"{name:8} {compare(run, groups, dtype, tolerance, arguments.repeats)}", flush=True)


if __name__ == "__main__":
    main()
