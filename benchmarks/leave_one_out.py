"""Leave-one-out against the published loop, which re-encodes every shortened text:
`python -m benchmarks.leave_one_out RUN`.

RUN is the directory of a finished run (an LSTM trained on SST says most): how soon a state is forgotten is a matter of
the trained weights. Its test texts are taken as they are, and joined to documents of the lengths of reviews. All sides
run in the same process on one thread and on the same numbers, in processor time; the published loop gets batches of 32,
sorted by length, once with its packed bidirectional LSTM ("published") and once with this project's faster encoder
("unpacked").
"""

import sys
from itertools import pairwise
from time import process_time

import numpy as np
import torch

from attnprobe.batch import Batch
from attnprobe.data.vocabulary import END, START
from attnprobe.importance.leave_one_out import CHUNK, TOLERANCE, leave_one_out
from attnprobe.loading import TrainedRun, load_run
from attnprobe.results import read_examples
from benchmarks import reference

BATCH = 32


def documents(tokens: list[list[str]], lengths: np.ndarray) -> list[list[str]]:
    """The texts one after the other, cut into documents of these lengths; from the start again where they run out."""
    stream = [token for text in tokens for token in text]
    places = np.concatenate([[0], lengths.cumsum()])
    return [[stream[at % len(stream)] for at in range(a, b)] for a, b in pairwise(places)]


def batches(run: TrainedRun, texts: list[list[str]], size: int) -> list[Batch]:
    """Sorted by length, shortest first."""
    texts = sorted(texts, key=len)
    made = []
    for start in range(0, len(texts), size):
        rows = [[START, *run.vocabulary.encode(text), END] for text in texts[start : start + size]]
        ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(row) for row in rows], batch_first=True)
        content = (ids != 0) & (ids != START) & (ids != END)
        number = torch.arange(start, start + len(rows))
        made.append(Batch(ids, ids != 0, content, torch.zeros_like(number), number))
    return made


def compare(run: TrainedRun, texts: list[list[str]], dtype: torch.dtype, tolerance: float, chunk: int) -> str:
    """One line: seconds of the three, the published loop's ratio to ours, and the largest difference."""
    classifier = run.classifier.to(dtype)
    published = reference.packed(classifier)
    seconds, apart = [0.0, 0.0, 0.0], 0.0
    for batch in batches(run, texts, BATCH):
        found = []
        for number, model in enumerate((published, classifier)):
            start = process_time()
            found.append(reference.leave_one_out(model, batch))
            seconds[number] += process_time() - start
        with torch.no_grad():
            outputs = classifier(batch)  # which a probe is given
        start = process_time()
        ours = leave_one_out(classifier, batch, outputs, tolerance=tolerance, chunk=chunk).distance
        seconds[2] += process_time() - start
        apart = max(apart, *(float((ours - other)[batch.content].abs().nan_to_num().max()) for other in found))
    ratios = "".join(f"{other / seconds[2]:8.1f} x" for other in seconds[:2])
    return "".join(f"{value:9.2f} s" for value in seconds) + ratios + f"{apart:9.1e}"


def main(directory: str, tolerance: float = TOLERANCE, chunk: int = CHUNK, reviews: int = 6) -> None:
    """Print the comparison."""
    torch.set_num_threads(1)
    run = load_run(directory)
    generator = np.random.default_rng(0)
    tokens = [list(text) for text in read_examples(directory)["tokens"]]
    sample = [tokens[i] for i in generator.permutation(len(tokens))[:256]]
    lengths = np.clip(generator.gamma(4.0, 45.0, reviews).round().astype(int), 30, 400)
    print(f"{'texts':34} {'type':8} {'published':>10} {'unpacked':>10} {'ours':>10} {'ratios':>18} {'differ':>10}")
    for name, texts in (("test sentences", sample), ("joined to reviews", documents(tokens, lengths))):
        size = [len(text) for text in texts]
        label = f"{len(texts)} {name}, {np.mean(size):.0f} ({max(size)})"
        for dtype in (torch.float32, torch.float64):
            kind = str(dtype).removeprefix("torch.")
            print(f"{label:34} {kind:8} {compare(run, texts, dtype, tolerance, chunk)}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *(kind(x) for kind, x in zip((float, int, int), sys.argv[2:], strict=False)))
