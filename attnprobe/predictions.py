"""The predictions and the attention of one split, one row per example, for figures, browsers and other runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from lightning import Callback, LightningModule, Trainer

from attnprobe.batch import Batch, Outputs, Task, probabilities
from attnprobe.data.module import TextDataModule
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.results import write_table


class PredictionCollector(Callback):
    """Listens to the test loop."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Batch, *_: Any  # noqa: ARG002
    ) -> None:
        """Take in one batch."""
        assert isinstance(pl_module, AttentionClassifier)
        forward: Outputs = outputs["outputs"]
        probability = probabilities(forward.logits, pl_module.task)
        if pl_module.task is Task.MULTI_LABEL:
            prediction: list[Any] = (probability > 0.5).long().cpu().tolist()
        else:
            prediction = probability.argmax(-1).cpu().tolist()
        attention, content = forward.attention.cpu().numpy(), forward.content.cpu().numpy()
        columns = zip(
            batch.example_id.tolist(), batch.labels.tolist(), prediction, probability.cpu().tolist(), strict=True
        )
        for row, (example_id, label, decision, distribution) in enumerate(columns):
            self.rows.append(
                {
                    "example_id": example_id,
                    "label": label,
                    "prediction": decision,
                    "probability": distribution,
                    "attention": attention[row][content[row]].astype(np.float32),
                }
            )

    def write(self, data: TextDataModule, split: str, path: Path) -> None:
        """Write `example_id, label, prediction, probability, tokens, attention`, sorted by example; attention and
        tokens are aligned and cover the content positions only."""
        rows = sorted(self.rows, key=lambda row: row["example_id"])
        columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in rows[0]}
        columns["tokens"] = [data.tokens(split, row["example_id"]) for row in rows]
        write_table(pa.table(columns), path)
