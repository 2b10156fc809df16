"""The whole command, from prompt to prompt, beside the procedure as it was released."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from statistics import median

from attnprobe.data.module import TextDataModule
from benchmarks import released
from benchmarks.jain import Sides, numbers_of
from benchmarks.released import Released
from benchmarks.timing import Compared, interleaved

EPOCHS = 8
PREDICTED = 2
"""How often the released code predicts the test texts beside its probes: after training, and on
loading the model."""


def whole(
    sides: Sides,
    data: TextDataModule,
    probes: Mapping[str, Compared],
    settings: list[str],
    threads: int,
    repeats: int,
) -> tuple[Compared, list[float]]:
    """Time `python -m attnprobe +experiment=jain` against released training and probes.

    8 epochs each. Ours is a process of its own: start-up, reading, training, tests, tables,
    figures, summary. The published side is charged for training and the loops alone, which are
    taken from `probes` (their medians).

    Returns:
        Both, and the seconds of the published training.
    """
    training = data.splits["train"]
    development = data.splits["validation"]
    training_texts = numbers_of(training, list(range(len(training))))
    development_texts = numbers_of(development, list(range(len(development))))
    development_texts.sort(key=len)
    labels = [int(label) for label in training.labels]
    shape = (*sides.published.embedding.weight.shape, sides.published.rnn.hidden_size)

    def published() -> None:
        released.train(Released(*shape), training_texts, labels, development_texts, EPOCHS)

    def ours() -> None:
        command(["+experiment=jain", f"training.epochs={EPOCHS}", *settings], threads)

    seconds = interleaved({"published": published, "ours": ours}, repeats)
    loops = PREDICTED * median(probes["encoding"].published)
    for name, row in probes.items():
        if name not in {"exact", "encoding"}:
            loops += median(row.published)
    row = Compared(
        f"whole command, {EPOCHS} epochs",
        [time + loops for time in seconds["published"]],
        seconds["ours"],
    )
    return row, seconds["published"]


def command(settings: list[str], threads: int) -> None:
    """The command as a user types it, into a folder that is thrown away."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "attnprobe", f"run_dir={folder}/run", *settings],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        )
