"""What a pass over a split leaves: predictions, attentions, the playground's texts, and tables."""

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch
from lightning import LightningModule, Trainer
from torch import Tensor

from attnprobe import __version__
from attnprobe.core.batch import Batch, Outputs, Task, probabilities
from attnprobe.core.metrics import declared, warn_of_undeclared
from attnprobe.core.readout import Readout
from attnprobe.data.batching import TextSplit
from attnprobe.data.pieces import SPECIAL
from attnprobe.exact import farthest_attention, smallest_flipping_set
from attnprobe.findings.attention_mass import AttentionMass
from attnprobe.models.examined import Examined
from attnprobe.models.hierarchical import cut_into_sentences, words_per_sentence
from attnprobe.models.performance import PERFORMANCE, TRAINING, Performance
from attnprobe.models.trained import TrainedModel
from attnprobe.plots.example_selection import select_examples
from attnprobe.probes.base import ProbeRunner
from attnprobe.results.directory import PLAYGROUND, WHOLE_SPLIT, examples_file, table_file
from attnprobe.results.files import records_of, write_table
from attnprobe.results.playground import write_playground
from attnprobe.results.table import Rows
from attnprobe.results.writer import OwnRunDirectory
from attnprobe.runs.test_loop import BatchReader, gathered

MASSES = tuple(field.name for field in fields(AttentionMass))
"""Shares of the site's attention, as columns of the examples' table."""
ROW_GROUP = 1024
"""Rows of the examples' file that are assembled at a time."""
PLAYED_TEXTS = 12
"""How many texts a page lets its reader change."""
MAX_PLAYED_WORDS = 60
"""A longer text is played only where too few are shorter: each word is a slider."""


class PredictionCollector(BatchReader):
    """Keeps every example's prediction and attention of the test loop, or of a prediction pass.

    Attributes:
        loader: which loader of a prediction pass is listened to, from 0.
        task: how the predictions are to be read.
        rows: every example's columns, by number.
        shares: the split's mean of each of `MASSES` that the model has; known once the examples are
            written.
    """

    def __init__(self, loader: int = 0) -> None:
        """Begin without examples.

        Args:
            loader: see the class.
        """
        self.loader = loader
        self.task = Task.SINGLE_LABEL
        self.rows: dict[int, dict[str, Any]] = {}
        self.shares: dict[str, float] = {}
        self._spell: Any = None

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Keep the rows of a batch of this collector's loader."""
        if dataloader_idx == self.loader:
            assert isinstance(pl_module, TrainedModel)
            self._keep(pl_module, batch, outputs)

    def on_batch_examined(self, examined: Examined) -> None:
        """Keep the rows of a batch of the test loop."""
        self._keep(examined.classifier, examined.batch, examined.outputs)

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Bring together what several devices predicted."""
        for rows in gathered(trainer, self.rows):
            self.rows |= rows

    def _keep(self, classifier: TrainedModel, batch: Batch, forward: Outputs) -> None:
        """Keep the rows of a batch."""
        probability = probabilities(forward.logits, classifier.task)
        self.task = classifier.task
        if self.task is Task.MULTI_LABEL:
            label = batch.labels
            prediction = probability > 0.5
        else:
            label = batch.labels.long()
            prediction = probability.argmax(-1)

        columns: dict[str, list[Any]] = {
            "label": _numbers(label),
            "prediction": _numbers(prediction),
            "probability": _numbers(probability),
            "attention": _numbers(forward.attention, forward.text),
        }
        if batch.text_number is not None and batch.question is not None:
            # for `performance` alone: no columns of the file
            columns["asked_label"] = _numbers(batch.question[:, 1])
            columns["text_number"] = _numbers(batch.text_number)
        if forward.off_text is not None:
            unseen = forward.text & ~forward.content
            columns["unseen"] = _numbers(unseen, forward.text)
            columns["unseen_share"] = _numbers(unseen.sum(-1) / forward.text.sum(-1))
            columns["special_mass"] = _numbers(forward.off_text)
        if forward.piece_attention is not None:
            assert classifier.reader is not None
            self._spell = classifier.reader.tokenizer.convert_ids_to_tokens
            columns |= _piece_columns(batch, forward.piece_attention)
        if forward.word_attention is not None:
            weights = _numbers(forward.word_attention, batch.content)
            lengths = words_per_sentence(batch)
            columns["word_attention"] = [
                cut_into_sentences(text_weights, text_lengths)
                for text_weights, text_lengths in zip(weights, lengths, strict=True)
            ]
            columns["words"] = list(lengths)

        for number, *values in zip(batch.example_id.tolist(), *columns.values(), strict=True):
            self.rows[number] = dict(zip(columns, values, strict=True))

    def performance(self) -> dict[str, np.ndarray]:
        """How well the model predicts, by metric; `examples`: their number."""
        rows = [self.rows[number] for number in sorted(self.rows)]
        probability = torch.from_numpy(np.stack([row["probability"] for row in rows]))
        labels = torch.from_numpy(np.stack([row["label"] for row in rows]))
        # the first device has gathered all predictions, and computes alone
        performance = Performance(self.task, probability.shape[1], of_all_devices=False)
        asked = None
        texts = None
        if "text_number" in rows[0]:
            asked = torch.tensor([int(row["asked_label"]) for row in rows])
            texts = torch.tensor([int(row["text_number"]) for row in rows])
        performance.add(probability, labels, asked, texts)
        values = {name: value.double().numpy() for name, value in performance.compute().items()}
        return {**values, "examples": np.array(len(rows))}

    def write(self, part: TextSplit, path: Path) -> None:
        """Write the columns of docs/reference.md, sorted by example, and forget the rows.

        Lists cover the content positions only. A hierarchical model's `tokens` are whole sentences,
        and `words` and `word_attention` hold the words of each.

        Args:
            part: the split that was passed over.
            path: of the parquet file.
        """
        names = self._columns(part)
        for name in MASSES:
            if name in names:
                total = sum(float(row[name]) for row in self.rows.values())
                self.shares[name] = round(total / len(part), 4)

        kinds = _kinds(multi_label=self.task is Task.MULTI_LABEL)
        schema = pa.schema([(name, kind) for name, kind in kinds.items() if name in names])
        write_table(self._row_groups(part, schema), path, schema)

    def _columns(self, part: TextSplit) -> set[str]:
        """Names of the columns that this split and its model have."""
        first_row = next(iter(self.rows.values()), {})
        names = {"example_id", "tokens", *first_row}
        if "question" in part.columns or "asked" in part.columns:
            names.add("question")
        if "candidates" in part.columns:
            names.add("candidates")
        if part.slices is not None:
            names.add("slice")
        return names

    def _row_groups(self, part: TextSplit, schema: pa.Schema) -> Iterator[pa.Table]:
        """The table in row groups; a row is forgotten when it is in one."""
        numbers = part.example_id.tolist()
        for start in range(0, len(numbers), ROW_GROUP):
            rows = [self._pop_row(number, part) for number in numbers[start : start + ROW_GROUP]]
            arrays = [
                pa.array([row[column.name] for row in rows], from_pandas=False).cast(column.type)
                for column in schema
            ]
            yield pa.Table.from_arrays(arrays, schema=schema)

    def _pop_row(self, number: int, part: TextSplit) -> dict[str, Any]:
        """Every column of an example, its text included."""
        row = self.rows.pop(number)
        row["example_id"] = number
        row["tokens"] = part.tokens(number)
        row["question"] = part.question(number)
        row["candidates"] = part.candidates(number)
        row["slice"] = None if part.slices is None else part.slices[part.row_of(number)]
        if self._spell is not None:
            row["pieces"] = self._spell(row["pieces"].astype(int).tolist())
        if "words" in row:
            row["words"] = cut_into_sentences(row["tokens"], row["words"])
            row["tokens"] = [" ".join(sentence) for sentence in row["words"]]
        return row


def _piece_columns(batch: Batch, attention: Tensor) -> dict[str, list[Any]]:
    """Columns of a model that reads pieces of words.

    They are every text's pieces, the word that each belongs to, from 0 (−1: none of the text), its
    attention, and sums of it.
    """
    assert batch.pieces is not None
    assert batch.piece_word is not None
    # positions in the batch: 0 is the start marker, which is no word; −1 is no word, −2 padding
    is_piece = batch.piece_word != -2
    is_of_word = batch.piece_word > 0
    word = torch.where(is_of_word, batch.piece_word - 1, SPECIAL)
    columns = {
        "pieces": _numbers(batch.pieces, is_piece),
        "piece_word": _numbers(word, is_piece),
        "piece_attention": _numbers(attention, is_piece),
        "start_mass": _numbers(attention[:, 0]),
        "first_word_mass": _numbers((attention * (batch.piece_word == 1)).sum(-1)),
    }
    if batch.segment is not None and batch.question is None:  # both texts of a pair
        is_second_word = batch.segment == 1
        is_second = is_second_word.gather(1, batch.piece_word.clamp(min=0)) & is_of_word
        columns["second_mass"] = _numbers((attention * is_second).sum(-1))
        columns["first_words"] = _numbers((batch.segment == 0).sum(-1))
    return columns


def _kinds(*, multi_label: bool) -> dict[str, pa.DataType]:
    """Type of every column that an examples' file may have, in their order."""
    words = pa.list_(pa.string())
    weights = pa.list_(pa.float32())
    return {
        "example_id": pa.int64(),
        "label": pa.list_(pa.float64()) if multi_label else pa.int64(),
        "prediction": pa.list_(pa.int64()) if multi_label else pa.int64(),
        "probability": pa.list_(pa.float64()),
        "attention": weights,
        "unseen": pa.list_(pa.bool_()),
        **dict.fromkeys(MASSES, pa.float64()),
        "first_words": pa.int64(),
        "word_attention": pa.list_(weights),
        "tokens": words,
        "pieces": words,
        "piece_word": pa.list_(pa.int32()),
        "piece_attention": weights,
        "question": words,
        "candidates": words,
        "slice": pa.string(),
        "words": pa.list_(words),
    }


def _numbers(values: Tensor, keep: Tensor | None = None) -> list[np.ndarray]:
    """Each example's numbers, at the positions to keep; None: all."""
    numbers = values.detach().cpu().double().numpy()  # Apple's GPUs have no float64
    if keep is None:
        return list(numbers)
    return [row[mask] for row, mask in zip(numbers, keep.cpu().numpy(), strict=True)]


def played(readout: Readout, epsilon: float) -> Iterator[dict[str, Any]]:
    """Solve what a page's reader may play with.

    Args:
        readout: of a batch of texts.
        epsilon: how far the prediction may be from the model's under the farthest attention, TVD,
            0 to 1.

    Yields:
        A row of the playground's file (`attnprobe.results.playground`) per example. There are none
        where the prediction is not a sum over the positions, or several labels are predicted.
    """
    if readout.position_logits is None or readout.task is not Task.SINGLE_LABEL:
        return
    attention = readout.attention.double()
    position_logits = readout.position_logits.double()
    farthest = farthest_attention(attention, position_logits, readout.content, epsilon=epsilon)
    flipping = smallest_flipping_set(attention, position_logits, readout.content)
    for row, number in enumerate(readout.example_id.tolist()):
        content = readout.content[row]
        yield {
            "example_id": number,
            "attention": attention[row, content].tolist(),
            "position_logits": position_logits[row, content].flatten().tolist(),
            "epsilon": epsilon,
            "farthest": farthest.attention[row, content].tolist(),
            "jsd": float(farthest.jsd[row]),
            "upper_bound": float(farthest.upper_bound[row]),
            "is_exact": bool(farthest.is_exact[row]),
            "flipping": flipping.members[row, content].tolist(),
            "flips_to": int(flipping.flips_to[row]),
        }


class PlaygroundCollector(BatchReader):
    """Listens to the test loop, and solves a few of its texts.

    Attributes:
        ids: numbers of the texts, evenly spaced among those that are short enough.
        epsilon: see `played`.
        rows: of the playground's file, by example.
    """

    def __init__(self, split: TextSplit, epsilon: float) -> None:
        """Choose the texts.

        Args:
            split: the test split.
            epsilon: see `played`.
        """
        lengths = split.words.lengths
        shortest = np.sort(lengths)[: min(PLAYED_TEXTS, len(lengths))]
        max_words = max(MAX_PLAYED_WORDS, int(shortest.max(initial=0)))
        is_short = lengths <= max_words
        self.ids = set(select_examples(split.example_id, PLAYED_TEXTS, prefer=is_short))
        self.epsilon = epsilon
        self.rows = dict[int, Mapping[str, Any]]()

    def on_batch_examined(self, examined: Examined) -> None:
        """Solve the chosen texts of a batch."""
        classifier = examined.classifier
        for position, number in enumerate(examined.batch.example_id.tolist()):
            if number in self.ids:
                text = slice(position, position + 1)
                with classifier.precisely():
                    readout = classifier.readout(
                        examined.batch.rows(text), examined.outputs.rows(text)
                    )
                for row in played(readout, self.epsilon):
                    self.rows[row["example_id"]] = row

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Bring together what several devices solved, in the order of one."""
        rows: dict[int, Mapping[str, Any]] = {}
        for part in gathered(trainer, self.rows):
            rows |= part
        self.rows = {number: rows[number] for number in sorted(rows)}


def whole_rows(metrics: Mapping[str, np.ndarray]) -> Rows:
    """Numbers about the whole split, as rows of a table.

    Args:
        metrics: a number or a list of numbers by metric. A list has a row for each, with a step
            from 0 (epoch, class).
    """
    rows = Rows()
    for name, values in metrics.items():
        step = np.arange(len(values)) if values.ndim else None
        rows.add(name, np.array([WHOLE_SPLIT]), values[None], step)
    return rows


class Listeners(NamedTuple):
    """What a pass over the test split fills.

    Attributes:
        runner: with the probes' rows.
        predictions: every example.
        playground: a few solved texts.
    """

    runner: ProbeRunner
    predictions: PredictionCollector
    playground: PlaygroundCollector


def write_results(
    directory: OwnRunDirectory,
    split: TextSplit,
    listeners: Listeners,
    rows: Mapping[str, Rows],
    identity: Callable[[str], dict[str, Any]],
    settings: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Write the examples, the playground and one table per probe.

    Args:
        directory: of the run.
        split: the test split.
        listeners: after a pass over it.
        rows: numbers about the whole split, by the name of their table.
        identity: from a probe's name to the identifying columns of its table.
        settings: those of the probes (`probe`) and the importances (`importance`), by name; either
            may be missing.

    Returns:
        the manifest's entry of each table, by name.
    """
    runner, predictions, playground = listeners
    predictions.write(split, directory.place(examples_file("test")))
    write_playground(playground.rows.values(), directory.place(PLAYGROUND))

    importances = _importance_facts(runner, settings.get("importance", {}))
    metrics = {"training": TRAINING, "performance": PERFORMANCE}
    for probe in runner.probes:
        metrics[probe.name] = probe.metrics
    if runner.scored:
        metrics = {
            name: tuple(metric.of_scores for metric in declarations)
            for name, declarations in metrics.items()
        }

    tables = {}
    for name, collected in {**rows, **runner.rows}.items():
        written = collected.write(directory.place(table_file(name)), identity(name))
        warn_of_undeclared(name, written.extremes, metrics[name])
        declarations = {key: declared(key, metrics[name]) for key in written.extremes}
        tables[name] = {
            "rows": written.rows,
            "undefined": written.undefined,
            "metrics": {
                key: metric.facts for key, metric in declarations.items() if metric is not None
            },
            "settings": settings.get("probe", {}).get(name),
            "seconds": round(runner.seconds.get(name, 0.0), 3),
            "notes": {note.name: note.value for note in runner.notes.get(name, {}).values()},
            "importances": importances.get(name, {}),
        }
    return tables


def _importance_facts(
    runner: ProbeRunner, settings: Mapping[str, Any]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Facts about every importance that a probe uses, by the probe's name and its own label.

    Args:
        runner: with the probes, after its pass.
        settings: of the importances, by name.
    """
    facts = {}
    for name, importance in runner.importances.items():
        facts[name] = {
            **importance.facts,
            "name": name,
            "settings": settings.get(name),
            "files": records_of(importance.files()),
            "seconds": round(runner.importance_seconds.get(name, 0.0), 3),
        }
    return {
        probe.name: {probe.label(name): facts[name] for name in probe.uses}
        for probe in runner.probes
    }


def made_with(*libraries: str) -> dict[str, Any]:
    """The manifest's entries about the moment and the versions.

    Args:
        libraries: whose versions are listed, besides attnprobe, torch, numpy and Python.
    """
    versions = {name: version(name) for name in ("torch", "numpy", *libraries)}
    # a copy that is not installed has no entry among the installed packages
    versions |= {"attnprobe": __version__, "python": platform.python_version()}
    finished = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"versions": versions, "finished": finished}
