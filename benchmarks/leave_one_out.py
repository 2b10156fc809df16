"""Leave-one-out against the published loop, which re-encodes every shortened text.

    python -m benchmarks.leave_one_out RUN [--examples 192] [--repeats 3]

RUN is the directory of a finished run of an LSTM; its own test texts are taken, sorted by length and cut into batches
of 32 as the published code does, and of these batches some, evenly over the lengths. (Batches of a sample of single
texts would hold texts of different lengths, and the published loop drops as many columns of all of them as the longest
has: it would look slower than it is.) All sides run in the same process on one thread, in processor time, on the same
model and batches: the published loop with its packed bidirectional LSTM, with autograd on as in the released code
("released") and off ("packed"), and once more with this project's faster encoder and autograd off ("unpacked").
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
from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.loading import TrainedRun, load_run
from attnprobe.results import read_examples
from benchmarks import reference

BATCH = 32


def batches(run: TrainedRun, texts: list[list[str]], count: int) -> list[Batch]:
    """So many of the split's batches (the last one may be smaller), evenly over the lengths."""
    texts = sorted(texts, key=len)
    whole = -(-len(texts) // BATCH)
    count = min(count, whole)
    made = []
    for number in (np.arange(count) + 0.5) * whole / count:
        start = int(number) * BATCH
        rows = [[START, *run.vocabulary.encode(text), END] for text in texts[start : start + BATCH]]
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
        content = (ids != 0) & (ids != START) & (ids != END)
        example = torch.arange(start, start + len(rows))
        made.append(Batch(ids, ids != 0, content, torch.zeros_like(example), example))
    return made


def compare(run: TrainedRun, parts: list[Batch], dtype: torch.dtype, repeats: int) -> str:
    """One line: median seconds of the four, the ratios of the first three to ours, and the largest difference."""
    classifier = run.classifier.to(dtype)
    published = reference.packed(classifier)
    with torch.no_grad():
        outputs = [classifier(batch) for batch in parts]  # which a probe is given
    jobs: list[Callable[[], list[Tensor]]] = [
        lambda: [reference.leave_one_out(published, batch, autograd=True) for batch in parts],
        lambda: [reference.leave_one_out(published, batch) for batch in parts],
        lambda: [reference.leave_one_out(classifier, batch) for batch in parts],
        lambda: [leave_one_out(classifier, b, o).distance for b, o in zip(parts, outputs, strict=True)],
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
    apart = max(
        float((ours - other)[batch.content].abs().nan_to_num().max())
        for others in found[:-1]
        for other, ours, batch in zip(others, found[-1], parts, strict=True)
    )
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
    parts = batches(run, tokens, max(1, -(-arguments.examples // BATCH)))
    lengths = torch.cat([batch.content.sum(1) for batch in parts]).tolist()
    print(f"{len(lengths)} test texts of {np.mean(lengths):.0f} tokens (longest {max(lengths)})")
    print(f"{'':8}{'released':>11}{'packed':>11}{'unpacked':>11}{'attnprobe':>11}{'times faster':>30}{'differ':>9}")
    for dtype in (torch.float32, torch.float64):
        print(f"{str(dtype).removeprefix('torch.'):8} {compare(run, parts, dtype, arguments.repeats)}", flush=True)


if __name__ == "__main__":
    main()
