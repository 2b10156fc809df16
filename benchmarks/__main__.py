"""How much faster the probes are than the published code's way of doing them.

    python -m benchmarks [RUN_DIRECTORY] [--examples 256] [--repeats 3]

Both sides use the same trained model, the same test examples and the same process. The reference keeps the loop
structure of Jain & Wallace's released code (benchmarks/reference.py): batches of 32, the decoder run afresh for every
permutation, autograd through hidden states in every step of the adversary, float32 as theirs. Ours is the code of the
probes as a run calls it: batches of the run's own size, float64, the position logits built within the measured time.
Without a directory a model is trained on the built-in corpus first.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from rich.console import Console
from rich.table import Table

from attnprobe import load_run
from attnprobe.__main__ import CONFIGURATION
from attnprobe.batch import Batch, Outputs
from attnprobe.exact import farthest_attention
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.probes.adversarial import Adversarial
from attnprobe.probes.permutation import Permutation
from attnprobe.randomness import Draws
from attnprobe.running.run import run
from benchmarks import reference

EPSILON = 0.01
Part = tuple[Batch, Outputs]


def main() -> None:
    """Time both sides and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="?", type=Path, help="directory of a finished run")
    parser.add_argument("--examples", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    with tempfile.TemporaryDirectory() as folder:
        directory = arguments.run or train_on_testbed(Path(folder))
        loaded = load_run(directory)
        data = instantiate(loaded.config["data"], seed=loaded.config["seed"])
        data.setup("test")
    classifier = loaded.classifier
    chosen = spread(len(data.splits["test"]), arguments.examples)
    size = data.eval_batch_size
    theirs = forward(classifier, [data.splits["test"][chosen[i : i + 32]] for i in range(0, len(chosen), 32)])
    classifier.double()
    ours = forward(classifier, [data.splits["test"][chosen[i : i + size]] for i in range(0, len(chosen), size)])
    classifier.float()

    jobs: list[tuple[str, Callable[[], None], Callable[[], None]]] = [
        (
            "permutation, 100 per example",
            lambda: each(theirs, lambda b, o: reference.permutation(classifier, o.hidden, b.content)),
            lambda: each_readout(classifier, ours, permutation),
        ),
        (
            "gradient adversary, 5 restarts, 500 steps",
            lambda: each(theirs, lambda b, o: reference.adversary(classifier, o.hidden, o.attention, b.content)),
            lambda: each_readout(classifier, ours, search),
        ),
        (
            "exact adversary against that search",
            lambda: None,  # the reference is the search above
            lambda: each_readout(classifier, ours, exact),
        ),
    ]
    table = Table(title=f"{directory.name}: {len(chosen)} test examples, {arguments.threads} thread(s), medians")
    for column in ("probe", "published loop, s", "attnprobe, s", "times faster"):
        table.add_column(column, justify="left" if column == "probe" else "right", no_wrap=True)
    slow = 0.0
    for name, published, own in jobs:
        if name != "exact adversary against that search":
            slow = median(published, arguments.repeats)
        fast = median(own, arguments.repeats)
        table.add_row(
            name, f"{slow:.3f}", f"{fast:.4f}", f"{slow / fast:.0f}" if slow > 20 * fast else f"{slow / fast:.1f}"
        )
    Console(width=None if sys.stdout.isatty() else 110).print(table)


def train_on_testbed(folder: Path) -> Path:
    """A finished run on the built-in corpus."""
    with initialize_config_dir(config_dir=str(CONFIGURATION), version_base="1.3"):
        return run(compose("config", overrides=[f"output={folder}", "probe=[permutation]", "figures=false"]))


def spread(total: int, count: int) -> list[int]:
    """So many rows, evenly over the split."""
    return [int(row) for row in torch.linspace(0, total - 1, min(count, total)).long().unique()]


def forward(classifier: AttentionClassifier, batches: list[Batch]) -> list[Part]:
    """The encoder's part, outside the measured time on both sides."""
    with torch.no_grad():
        return [(batch, classifier(batch)) for batch in batches]


def each(parts: list[Part], job: Callable[[Batch, Outputs], object]) -> None:
    """Do one job on every batch."""
    for batch, outputs in parts:
        job(batch, outputs)


def each_readout(classifier: AttentionClassifier, parts: list[Part], job: Callable) -> None:
    """Do one job on every batch's readout, built anew."""
    for batch, outputs in parts:
        job(classifier.readout(batch, outputs))


def permutation(readout: object) -> None:
    """The probe itself."""
    list(Permutation().measure(readout, Draws(0, "permutation")))  # type: ignore[arg-type]


def search(readout: object) -> None:
    """The gradient search of the adversarial probe."""
    Adversarial(epsilon=EPSILON).search(readout, Draws(0, "adversarial"))  # type: ignore[arg-type]


def exact(readout: object) -> None:
    """The exact solver of the adversarial probe."""
    farthest_attention(readout.attention, readout.position_logits, readout.content, epsilon=EPSILON)  # type: ignore[attr-defined]


def median(job: Callable[[], None], repeats: int) -> float:
    """Median wall-clock seconds."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        job()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


if __name__ == "__main__":
    main()
