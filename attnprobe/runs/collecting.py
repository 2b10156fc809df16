"""The predictions and the attention of one split, one row per example, for figures, browsers and other runs."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from attnprobe.core.batch import Batch, Outputs, Task, probabilities
from attnprobe.data.batching import TextSplit
from attnprobe.data.pieces import SPECIAL
from attnprobe.models.hierarchical import by_sentence, words_per_sentence
from attnprobe.models.trained import TrainedModel
from attnprobe.probes.base import positions
from attnprobe.results.files import write_groups
from attnprobe.results.table import Column

MASSES = ("special_mass", "start_mass", "first_word_mass", "second_mass")
"""Shares of the site's rows: on no word of the text (special tokens, a prompt, a text that is not attended to), on the first
piece that the model reads, on the text's first word, and on the words of a pair's second text."""
EXAMPLES = 1024
"""Rows of the examples' file that are put together at a time."""


class PredictionCollector(Callback):
    """Listens to the test loop, or to one loader of a prediction pass."""

    def __init__(self, loader: int = 0) -> None:
        """`loader`: which of the loaders of a prediction pass, from 0."""
        self.columns: defaultdict[str, Column] = defaultdict(Column)
        self.loader = loader
        self.multi_label = False
        self.spell: Callable[[list[int]], list[str]] | None = None
        self.shares: dict[str, float] = {}

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Batch, *_: Any
    ) -> None:
        """Take in one batch of the test loop."""
        self.take(pl_module, outputs["outputs"], batch)

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Outputs,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Take in one batch of the prediction pass."""
        if dataloader_idx == self.loader:
            self.take(pl_module, outputs, batch)

    def take(self, pl_module: LightningModule, forward: Outputs, batch: Batch) -> None:
        """Take in what the model says about one batch."""
        assert isinstance(pl_module, TrainedModel)
        self.multi_label = pl_module.task is Task.MULTI_LABEL
        probability = probabilities(forward.logits, pl_module.task)
        classes = np.arange(probability.shape[-1])
        prediction = (probability > 0.5).long() if self.multi_label else probability.argmax(-1)
        self.add("label", batch, batch.labels, classes if self.multi_label else None)
        self.add("prediction", batch, prediction, classes if self.multi_label else None)
        self.add("probability", batch, probability, classes)
        self.add("attention", batch, forward.attention, positions(forward.content).cpu().numpy())
        if forward.off_text is not None:
            self.add_mass("special_mass", batch, forward.off_text)
        if forward.piece_attention is not None:
            self.add_pieces(pl_module, batch, forward.piece_attention)
        if forward.word_attention is not None:
            self.add("word_attention", batch, forward.word_attention, positions(batch.content).cpu().numpy())
            for example, lengths in zip(batch.example_id.tolist(), words_per_sentence(batch), strict=True):
                words = np.array(lengths, np.float64)
                self.columns["words"].add(np.array([example]), np.array([len(words)]), words, np.arange(len(words)))

    def add(self, name: str, batch: Batch, values: Tensor, step: np.ndarray | None) -> None:
        """Take in one column: a number per example, or several with their places."""
        numbers = values.detach().double().cpu().numpy().reshape(len(values), -1)
        at = np.broadcast_to(np.zeros(1) if step is None else step, numbers.shape)
        keep = ~np.isnan(at)
        self.columns[name].add(batch.example_id.cpu().numpy(), keep.sum(1), numbers[keep], at[keep])

    def add_mass(self, name: str, batch: Batch, values: Tensor) -> None:
        """Take in a share of each text's rows."""
        self.add(name, batch, values, None)
        self.shares[name] = self.shares.get(name, 0.0) + float(values.detach().double().sum())

    def add_pieces(self, model: TrainedModel, batch: Batch, attention: Tensor) -> None:
        """Take in the pieces of every text, the word that each belongs to, counted from 0 (−1: none of the text), and what
        is given to it."""
        assert model.reader is not None
        assert batch.pieces is not None
        assert batch.piece_word is not None
        self.spell = model.reader.tokenizer.convert_ids_to_tokens
        step = positions(batch.piece_word != -2).cpu().numpy()
        word = torch.where(batch.piece_word > 0, batch.piece_word - 1, SPECIAL)  # the start marker is not a word
        self.add_mass("start_mass", batch, attention[:, 0])
        self.add_mass("first_word_mass", batch, (attention * (batch.piece_word == 1)).sum(-1))
        if batch.segment is not None and batch.question is None:  # both texts of a pair
            second = (batch.segment == 1).gather(1, batch.piece_word.clamp(min=0)) & (batch.piece_word > 0)
            self.add_mass("second_mass", batch, (attention * second).sum(-1))
            first = (batch.segment == 0).sum(-1)
            self.add("first_words", batch, first, None)
        for name, values in (("pieces", batch.pieces), ("piece_word", word), ("piece_attention", attention)):
            self.add(name, batch, values, step)

    def write(self, part: TextSplit, path: Path) -> None:
        """Write `example_id, label, prediction, probability, tokens, attention`, sorted by example; attention and
        tokens are aligned and cover the content positions only. Where there are questions, `question` has their words and
        `candidates` the names of the classes that may answer.

        A hierarchical model attends to sentences: its `tokens` are whole sentences, and `words` and `word_attention`
        hold the words of each and the attention among them. A model that reads pieces of words has `pieces`, as its
        tokenizer writes them, `piece_word` and `piece_attention`.
        """
        schema = self.schema(part)
        self.shares = {name: round(total / max(1, len(part)), 4) for name, total in self.shares.items()}
        write_groups(schema, self.tables(part, schema), path)
        self.columns.clear()

    def schema(self, part: TextSplit) -> pa.Schema:
        """The columns, in order."""
        words, weights = pa.list_(pa.string()), pa.list_(pa.float32())
        hierarchical = "word_attention" in self.columns
        types = {
            "example_id": pa.int64(),
            "label": pa.list_(pa.float64()) if self.multi_label else pa.int64(),
            "prediction": pa.list_(pa.int64()) if self.multi_label else pa.int64(),
            "probability": pa.list_(pa.float64()),
            "attention": weights,
        }
        types |= {name: pa.float64() for name in MASSES if name in self.columns}
        types |= {"first_words": pa.int64()} if "first_words" in self.columns else {}
        types |= {"word_attention": pa.list_(weights)} if hierarchical else {}
        types["tokens"] = words
        if self.spell is not None:
            types |= {"pieces": words, "piece_word": pa.list_(pa.int32()), "piece_attention": weights}
        types |= {"question": words} if {"question", "asked"} & {*part.columns} else {}
        types |= {"candidates": words} if "candidates" in part.columns else {}
        types |= {"words": pa.list_(words)} if hierarchical else {}
        return pa.schema(list(types.items()))

    def tables(self, part: TextSplit, schema: pa.Schema) -> Iterator[pa.Table]:
        """The table, `EXAMPLES` rows at a time."""
        every = part.example_id
        taken = {name: of_examples(column, every.tolist()) for name, column in self.columns.items()}
        for start in range(0, len(every), EXAMPLES):
            ids = every[start : start + EXAMPLES].tolist()
            lists = {name: column[start : start + EXAMPLES] for name, column in taken.items()}
            columns: dict[str, list[Any]] = {"example_id": ids, **lists}
            if not self.multi_label:
                columns |= {name: [int(value) for (value,) in lists[name]] for name in ("label", "prediction")}
            for name in (name for name in (*MASSES, "first_words") if name in lists):
                columns[name] = [float(value) for (value,) in lists[name]]
            if self.spell is not None:
                columns["pieces"] = [self.spell(row.astype(int).tolist()) for row in lists["pieces"]]
            columns["tokens"] = [part.tokens(number) for number in ids]
            columns["question"] = [part.question(number) for number in ids]
            columns["candidates"] = [part.candidates(number) for number in ids]
            if "words" in lists:
                lengths = [[int(count) for count in counts] for counts in lists["words"]]
                for name, flat in (("words", columns["tokens"]), ("word_attention", lists["word_attention"])):
                    columns[name] = [by_sentence(row, count) for row, count in zip(flat, lengths, strict=True)]
                columns["tokens"] = [[" ".join(words) for words in sentences] for sentences in columns["words"]]
            arrays = [pa.array(columns[field.name], from_pandas=False).cast(field.type) for field in schema]
            yield pa.Table.from_arrays(arrays, schema=schema)


def of_examples(column: Column, ids: Sequence[int]) -> list[np.ndarray]:
    """The values of each of these examples; of one without any an empty array."""
    owner, _, values = column.ordered()
    ends = zip(np.searchsorted(owner, ids, "left"), np.searchsorted(owner, ids, "right"), strict=True)
    return [values[first:last] for first, last in ends]
