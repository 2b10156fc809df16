"""How the probes' time and memory grow.

With the length of the texts, their number, the classes, and layers × heads.

    python -m benchmarks.growth [--axes length texts classes sites] [--repeats 3] [--most 4096]
    [--figure growth.png]

Untrained models (time does not depend on what the weights say, but for the searches' early ends):
an LSTM with 32 units per direction and additive attention, and for `sites` a BERT of hidden size
48. Every size is a process of its own with one thread, so that its peak memory is its own; seconds
are processor time, medians of the repeats after one that is not counted. Of each probe the last
line gives the exponent e of seconds ~ size^e between the two largest sizes: 1 is linear.
"""

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from time import process_time

import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from attnprobe.core.batch import Batch
from attnprobe.core.randomness import Draws
from attnprobe.exact import farthest_attention
from attnprobe.importance.base import Subject
from attnprobe.importance.gradients import gradients
from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.measures import kendall_tau_test
from attnprobe.models.attention import AdditiveAttention
from attnprobe.models.base import Model
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.decoders import LinearDecoder
from attnprobe.models.encoders import AverageEncoder, LSTMEncoder
from attnprobe.probes.adversarial import Adversarial
from attnprobe.probes.erasure import Erasure
from attnprobe.probes.permutation import Permutation
from attnprobe.probes.single_weight import SingleWeight
from attnprobe.probes.sites import Sites
from benchmarks.peak import peak_memory
from benchmarks.timing import processor

VOCABULARY = 1000
BATCH = 64
"""As a run evaluates them."""
TEXTS = 8
"""Where their number is not what grows."""
AXES: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "length": (f"words per text ({TEXTS} texts)", (32, 128, 512, 2048, 4096)),
    "texts": ("texts of 12 words", (1000, 10_000, 100_000)),
    "classes": (f"classes ({TEXTS} texts of 30 words)", (2, 5, 10, 20, 50)),
    "sites": ("layers × heads (16 texts of 20 pieces)", (4, 16, 36, 144)),
}
"""Name → what grows, and its sizes."""
Jobs = Mapping[str, Callable[[Subject], object]]
"""Name → what is timed, one batch after the other."""


def random_texts(count: int, length: int, seed: int = 0) -> Batch:
    """Texts of random words, all of one length, between two markers."""
    words = torch.randint(
        4, VOCABULARY, (count, length), generator=torch.Generator().manual_seed(seed)
    )
    ids = torch.nn.functional.pad(torch.nn.functional.pad(words, (1, 0), value=2), (0, 1), value=3)
    labels = torch.zeros(count, dtype=torch.long)
    return Batch(ids, ids > 0, ids > 3, labels, torch.arange(count))


def untrained(encoder: Callable[..., nn.Module], classes: int) -> AttentionClassifier:
    """A classifier in eval mode, in float64; its attention is made peaked."""
    torch.manual_seed(0)
    model = AttentionClassifier(
        embeddings=torch.randn(VOCABULARY, 64),
        encoder=encoder,
        attention=AdditiveAttention,
        decoder=LinearDecoder,
        classes=classes,
    )
    with torch.no_grad():
        for parameter in (*model.attention.parameters(), *model.decoder.parameters()):
            parameter.mul_(4)
    return model.double().eval()


def text_jobs(model: Model, *, short: bool) -> Jobs:
    """The probes; `short` leaves out those that a large number of texts would only repeat."""
    jobs: dict[str, Callable[[Subject], object]] = {
        "permutation": lambda s: list(Permutation().measure(s.readout, Draws(0, "permutation"))),
        "exact or bounded adversary": farthest,
        "erasing single weights": lambda s: list(
            SingleWeight(("attention",)).measure(s, Draws(0, "single"))
        ),
        "ranked erasure": lambda s: list(Erasure(("attention",)).measure(s, Draws(0, "erasure"))),
        "gradients": lambda s: gradients(model, s.batch),
        "Kendall's τ": lambda s: kendall_tau_test(
            s.readout.attention, s.readout.attention.flip(0), s.batch.content
        ),
    }
    if not short:
        jobs["leave-one-out"] = lambda s: leave_one_out(model, s.batch, s.outputs)
        jobs["search, 50 steps"] = lambda s: Adversarial(steps=50, restarts=1).search(
            s.readout, Draws(0, "adversarial")
        )
    return jobs


def farthest(subject: Subject) -> object:
    """The farthest attention with the same prediction.

    Exact for two classes, found and bounded for more.
    """
    readout = subject.readout
    assert readout.position_logits is not None
    return farthest_attention(
        readout.attention, readout.position_logits, readout.content, epsilon=0.01
    )


def square_bert(side: int) -> tuple[Model, Batch]:
    """A BERT with as many layers as heads, and texts for it."""
    from tests.models.pretrained.families import FAMILIES, batch_of, classifier

    name, settings = FAMILIES["bert"]
    square = {"num_hidden_layers": side, "num_attention_heads": side, "hidden_size": 48}
    FAMILIES["bert-square"] = (name, settings | square)
    model: Model = classifier("bert-square")
    text = "the film was fine and long a story of people and music the film was dull a long story"
    return model, batch_of(model, [text] * 2 * TEXTS)


def case(axis: str, size: int) -> tuple[Model, Jobs, Callable[[], Iterator[Batch]]]:
    """The model, what is timed, and the batches."""
    if axis == "sites":
        bert, batch = square_bert(math.isqrt(size))
        probe = Sites(importances=("gradient",))
        return (
            bert,
            {"sites": lambda s: list(probe.measure(s, Draws(0, "sites")))},
            lambda: iter([batch]),
        )
    count, length, classes = {
        "length": (TEXTS, size, 2),
        "texts": (size, 12, 2),
        "classes": (TEXTS, 30, size),
    }[axis]
    model = untrained(
        AverageEncoder if axis == "texts" else partial(LSTMEncoder, hidden_size=32), classes
    )

    def batches() -> Iterator[Batch]:
        return (
            random_texts(min(BATCH, count - start), length, start)
            for start in range(0, count, BATCH)
        )

    return model, text_jobs(model, short=axis == "texts"), batches


def child(axis: str, size: int, repeats: int) -> None:
    """Time everything at one size in this process, and print it on one line.

    As a run does: without autograd, batch by batch.
    """
    model, jobs, batches = case(axis, size)
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    with torch.no_grad():
        for _ in range(repeats + 1):
            for times in seconds.values():
                times.append(0.0)
            for batch in batches():
                outputs = model(batch)
                subject = Subject(model, batch, outputs, model.readout(batch, outputs))
                for name, job in jobs.items():
                    start = process_time()
                    job(subject)
                    seconds[name][-1] += process_time() - start
    medians = {name: median(times[1:]) for name, times in seconds.items()}
    print(json.dumps({"seconds": medians, "peak": peak_memory()}))


def measured(axis: str, size: int, repeats: int) -> tuple[dict[str, float], float]:
    """Seconds of each probe and the peak in MB, from a process of its own."""
    command = [sys.executable, "-m", "benchmarks.growth", "--child", axis, str(size)]
    command += ["--repeats", str(repeats)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    result = json.loads(done.stdout.splitlines()[-1])
    return result["seconds"], result["peak"]


def exponent(sizes: tuple[int, ...] | list[int], seconds: list[float]) -> float:
    """e of seconds ~ size^e between the two largest sizes."""
    growth = math.log(seconds[-1] / seconds[-2])
    return growth / math.log(sizes[-1] / sizes[-2])


def table_of(title: str, results: Mapping[int, tuple[dict[str, float], float]]) -> Table:
    """One axis: milliseconds by size, the exponent, and the peak memory as the last line."""
    sizes = list(results)
    table = Table(
        "probe", *(f"{size:,}" for size in sizes), "exponent", title=f"{title}; milliseconds"
    )
    for name in results[sizes[0]][0]:
        seconds = [results[size][0][name] for size in sizes]
        cells = [f"{1000 * time:,.3g}" if time < 1 else f"{1000 * time:,.0f}" for time in seconds]
        table.add_row(name, *cells, f"{exponent(sizes, seconds):.2f}" if len(sizes) > 1 else "")
    table.add_row("peak memory, MB", *(f"{results[size][1]:,.0f}" for size in sizes), "")
    return table


def draw(
    everything: Mapping[str, Mapping[int, tuple[dict[str, float], float]]], path: Path
) -> None:
    """All axes side by side, both scales logarithmic, one legend for all."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    figure = Figure(figsize=(4.2 * len(everything), 4.6), layout="constrained")
    panels = figure.subplots(1, len(everything), squeeze=False)[0]
    names: list[str] = []
    for results in everything.values():
        seconds, _ = next(iter(results.values()))
        names += [name for name in seconds if name not in names]
    lines = {}
    for panel, (axis, results) in zip(panels, everything.items(), strict=True):
        sizes = list(results)
        for number, name in enumerate(names):
            if name in results[sizes[0]][0]:
                seconds = [results[size][0][name] for size in sizes]
                (lines[name],) = panel.loglog(
                    sizes, seconds, color=f"C{number}", marker="o", markersize=3
                )
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
        panel.xaxis.set_minor_locator(NullLocator())
        panel.set(xlabel=AXES[axis][0], ylabel="processor time, s")
    figure.legend(list(lines.values()), list(lines), loc="outside lower center", ncols=5)
    figure.savefig(path, dpi=150)


def main() -> None:
    """Print the tables and draw the figure, or be one of the processes that are measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--axes", nargs="+", choices=list(AXES), default=list(AXES))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--most", type=int, default=0, help="no size above this; 0: all")
    parser.add_argument("--figure", type=Path)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        torch.set_num_threads(1)
        child(options.child[0], int(options.child[1]), options.repeats)
        return
    console = Console(width=120)
    console.print(f"{processor()}, one thread, medians of {options.repeats}")
    everything = {}
    for axis in options.axes:
        title, sizes = AXES[axis]
        if options.most:
            sizes = tuple(size for size in sizes if size <= options.most) or sizes[:1]
        everything[axis] = {size: measured(axis, size, options.repeats) for size in sizes}
        console.print(table_of(title, everything[axis]))
    if options.figure:
        draw(everything, options.figure)
        console.print(f"drawn: {options.figure}")


if __name__ == "__main__":
    main()
