"""The texts of the page's playground: chosen before the test, taken in while it goes on, solved exactly."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from lightning import Callback, LightningModule, Trainer

from attnprobe.core.batch import Batch, Outputs, Task
from attnprobe.core.readout import Readout
from attnprobe.data.batching import TextSplit
from attnprobe.exact import farthest_attention, smallest_flipping_set
from attnprobe.models.base import Model
from attnprobe.plots.example_selection import select_examples
from attnprobe.results.playground import write_playground

TEXTS = 12
"""How many texts a page lets its reader change."""
LONGEST = 60
"""Words from which on a text is taken only where there are too few shorter ones: each word is a slider."""


def chosen(split: TextSplit) -> list[int]:
    """Ids of the texts to play with: evenly spaced among those that are short enough."""
    lengths = split.words.lengths
    longest = max(LONGEST, int(np.sort(lengths)[: min(TEXTS, len(lengths))].max(initial=0)))
    return list(select_examples(split.example_id, TEXTS, prefer=lengths <= longest))


def played(readout: Readout, epsilon: float) -> Iterator[dict[str, Any]]:
    """A row of the playground's file (`attnprobe.results.playground`) per example; none where another attention's
    prediction is not a sum over the positions, or several labels are predicted.

    Args:
        readout: of these texts.
        epsilon: how far the prediction may be from the model's under the farthest attention, TVD, 0 to 1.
    """
    if readout.position_logits is None or readout.task is not Task.SINGLE_LABEL:
        return
    arguments = (readout.attention.double(), readout.position_logits.double(), readout.content)
    farthest = farthest_attention(*arguments, epsilon=epsilon)
    flipping = smallest_flipping_set(*arguments)
    for row, number in enumerate(readout.example_id.tolist()):
        content = readout.content[row]
        yield {
            "example_id": number,
            "attention": arguments[0][row, content].tolist(),
            "position_logits": arguments[1][row, content].flatten().tolist(),
            "epsilon": epsilon,
            "farthest": farthest.attention[row, content].tolist(),
            "jsd": float(farthest.jsd[row]),
            "upper_bound": float(farthest.upper_bound[row]),
            "is_exact": bool(farthest.is_exact[row]),
            "flipping": flipping.members[row, content].tolist(),
            "flips_to": int(flipping.flips_to[row]),
        }


class PlaygroundCollector(Callback):
    """Listens to the test loop, and solves the chosen texts as they come.

    Args:
        ids: of these texts.
        epsilon: see `played`.
    """

    def __init__(self, ids: list[int], epsilon: float) -> None:
        self.ids, self.epsilon = set(ids), epsilon
        self.rows: dict[int, Mapping[str, Any]] = {}

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Batch, *_: Any
    ) -> None:
        """Take in the chosen texts of one batch."""
        assert isinstance(pl_module, Model)
        forward: Outputs = outputs["outputs"]
        for place, number in enumerate(batch.example_id.tolist()):
            if number in self.ids:
                one = slice(place, place + 1)
                readout = pl_module.readout(batch.rows(one), forward.rows(one))
                self.rows |= {row["example_id"]: row for row in played(readout, self.epsilon)}

    def write(self, path: Path) -> None:
        """Write what there is."""
        write_playground(self.rows.values(), path)
