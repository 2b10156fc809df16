"""The predictions and the attention of one split, one row per example, for figures, browsers and other runs."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from lightning import Callback, LightningModule, Trainer

from attnprobe.batch import Batch, Outputs, Task, probabilities
from attnprobe.data.files import SPLITS
from attnprobe.data.module import TextDataModule
from attnprobe.data.teaching import FOLDER, text_number, write_lessons
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.hierarchical import by_sentence, words_per_sentence
from attnprobe.results.files import write_table


class PredictionCollector(Callback):
    """Listens to the test loop."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Batch,
        *_: Any,
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
        lengths = None if forward.word_attention is None else words_per_sentence(batch)
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
            if lengths is not None and forward.word_attention is not None:
                weights = forward.word_attention[row][batch.content[row]].float().cpu().numpy()
                self.rows[-1]["word_attention"] = by_sentence(weights, lengths[row])

    def write(self, data: TextDataModule, split: str, path: Path) -> None:
        """Write `example_id, label, prediction, probability, tokens, attention`, sorted by example; attention and
        tokens are aligned and cover the content positions only. Where there are questions, `question` has their words and
        `candidates` the names of the classes that may answer.

        A hierarchical model attends to sentences: its `tokens` are whole sentences, and `words` and `word_attention`
        hold the words of each and the attention among them.
        """
        rows = sorted(self.rows, key=lambda row: row["example_id"])
        columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in rows[0]}
        columns["tokens"] = [data.tokens(split, row["example_id"]) for row in rows]
        if data.splits[split].question is not None:
            columns["question"] = [data.question(split, row["example_id"]) for row in rows]
        if data.splits[split].candidates is not None:
            columns["candidates"] = [data.candidates(split, row["example_id"]) for row in rows]
        if "word_attention" in columns:
            columns["words"] = [
                by_sentence(words, [len(weights) for weights in row["word_attention"]])
                for words, row in zip(columns["tokens"], rows, strict=True)
            ]
            columns["tokens"] = [[" ".join(words) for words in sentences] for sentences in columns["words"]]
        write_table(pa.table(columns), path)


class LessonCollector(Callback):
    """Listens to a prediction pass over all splits and keeps what students need of it (attnprobe.data.teaching)."""

    def __init__(self) -> None:
        self.example_id: dict[str, list[np.ndarray]] = {split: [] for split in SPLITS}
        self.attention: dict[str, list[np.ndarray]] = {split: [] for split in SPLITS}
        self.probability: dict[str, list[np.ndarray]] = {split: [] for split in SPLITS}

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Outputs,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Take in one batch."""
        assert isinstance(pl_module, AttentionClassifier)
        split = SPLITS[dataloader_idx]
        attention, content = outputs.attention.float().cpu().numpy(), outputs.content.cpu().numpy()
        self.example_id[split].append(batch.example_id.cpu().numpy())
        self.attention[split].extend(row[kept] for row, kept in zip(attention, content, strict=True))
        self.probability[split].append(probabilities(outputs.logits, pl_module.task).float().cpu().numpy())

    def write(self, data: TextDataModule, directory: Path) -> None:
        """Write `examples/<split>.safetensors` for every split."""
        for split in SPLITS:
            example_id = np.concatenate(self.example_id[split])
            text = np.array([text_number(data.tokens(split, number)) for number in example_id.tolist()], np.int64)
            probability = np.concatenate(self.probability[split])
            path = directory / FOLDER / f"{split}.safetensors"
            write_lessons(path, example_id, text, self.attention[split], probability, data.classes)
