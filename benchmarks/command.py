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
    """`python -m attnprobe +experiment=jain` with 8 epochs against 8 released epochs and all
    released probes.

    Ours is a process of its own: start-up, reading, training, tests, tables, figures, summary. The
    published side is charged for training and the loops alone, which are taken from `probes` (their
    medians).

    Returns:
        both, and the seconds of the published training.
    """
    splits = (data.splits["train"], data.splits["validation"])
    training, development = (numbers_of(split, list(range(len(split)))) for split in splits)
    labels = [int(label) for label in splits[0].labels]
    development.sort(key=len)
    shape = (*sides.published.embedding.weight.shape, sides.published.rnn.hidden_size)
    seconds = interleaved(
        {
            "published": lambda: released.train(
                Released(*shape), training, labels, development, EPOCHS
            ),
            "ours": lambda: command(
                ["+experiment=jain", f"training.epochs={EPOCHS}", *settings], threads
            ),
        },
        repeats,
    )
    rest = sum(
        median(each.published) for name, each in probes.items() if name not in {"exact", "encoding"}
    )
    rest += PREDICTED * median(probes["encoding"].published)
    published = [each + rest for each in seconds["published"]]
    return Compared(f"whole command, {EPOCHS} epochs", published, seconds["ours"]), seconds[
        "published"
    ]


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
