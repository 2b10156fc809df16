"""What a pass over a split leaves: every example's prediction and attention, the playground's
texts, and the tables."""

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from attnprobe.core.batch import Batch, Outputs, Task, probabilities
from attnprobe.core.metrics import declared, warn_of_undeclared
from attnprobe.core.readout import Readout
from attnprobe.data.batching import TextSplit
from attnprobe.data.pieces import SPECIAL
from attnprobe.exact import farthest_attention, smallest_flipping_set
from attnprobe.models.base import Model
from attnprobe.models.hierarchical import cut_into_sentences, words_per_sentence
from attnprobe.models.performance import PERFORMANCE, TRAINING
from attnprobe.models.trained import TrainedModel
from attnprobe.plots.example_selection import select_examples
from attnprobe.probes.base import ProbeRunner
from attnprobe.results.directory import PLAYGROUND, WHOLE_SPLIT, examples_file, table_file
from attnprobe.results.files import records_of, write_table
from attnprobe.results.playground import write_playground
from attnprobe.results.table import Rows
from attnprobe.results.writer import OwnRunDirectory

MASSES = ("special_mass", "start_mass", "first_word_mass", "second_mass")
"""Shares of the site's rows: on no word of the text (special tokens, a prompt, a text that is not
attended to), on the first piece that the model reads, on the text's first word, and on the words of
a pair's second text."""
EXAMPLES = 1024
TEXTS = 12
LONGEST = 60
"""Rows of the examples' file that are put together at a time; how many texts a page lets its reader
change, and words from which on one is taken only where too few are shorter: each word is a
slider."""


class PredictionCollector(Callback):
    """Listens to the test loop, or to one loader of a prediction pass (`loader`, from 0). `shares`:
    the whole split's mean of each of `MASSES` that there is; known when the examples are
    written."""

    def __init__(self, loader: int = 0) -> None:
        self.loader = loader
        self.multi_label = False
        self.rows: dict[int, dict[str, Any]] = {}
        self.spell: Any = None
        self.shares: dict[str, float] = {}

    def on_predict_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if dataloader_idx == self.loader:
            self.on_test_batch_end(trainer, pl_module, {"outputs": outputs}, batch)

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Batch, *_: Any
    ) -> None:
        assert isinstance(pl_module, TrainedModel)
        forward: Outputs = outputs["outputs"]
        self.multi_label = pl_module.task is Task.MULTI_LABEL
        probability = probabilities(forward.logits, pl_module.task)
        columns: dict[str, list[Any]] = {
            "label": _numbers(batch.labels if self.multi_label else batch.labels.long()),
            "prediction": _numbers(
                probability > 0.5 if self.multi_label else probability.argmax(-1)
            ),
            "probability": _numbers(probability),
            "attention": _numbers(forward.attention, forward.content),
        }
        if forward.off_text is not None:
            columns["special_mass"] = _numbers(forward.off_text)
        if forward.piece_attention is not None:
            # the pieces of every text, the word that each belongs to, from 0 (−1: none of the
            # text), and what is given to it
            assert pl_module.reader is not None
            assert batch.pieces is not None
            assert batch.piece_word is not None
            self.spell = pl_module.reader.tokenizer.convert_ids_to_tokens
            attention = forward.piece_attention
            there = batch.piece_word != -2
            word = torch.where(
                batch.piece_word > 0, batch.piece_word - 1, SPECIAL
            )  # the start marker is not a word
            columns |= {
                "pieces": _numbers(batch.pieces, there),
                "piece_word": _numbers(word, there),
                "piece_attention": _numbers(attention, there),
                "start_mass": _numbers(attention[:, 0]),
                "first_word_mass": _numbers((attention * (batch.piece_word == 1)).sum(-1)),
            }
            if batch.segment is not None and batch.question is None:  # both texts of a pair
                second = (batch.segment == 1).gather(1, batch.piece_word.clamp(min=0)) & (
                    batch.piece_word > 0
                )
                columns["second_mass"] = _numbers((attention * second).sum(-1))
                columns["first_words"] = _numbers((batch.segment == 0).sum(-1))
        if forward.word_attention is not None:
            weights = _numbers(forward.word_attention, batch.content)
            lengths = words_per_sentence(batch)
            columns["word_attention"] = [
                cut_into_sentences(*one) for one in zip(weights, lengths, strict=True)
            ]
            columns["words"] = list(lengths)
        for number, *values in zip(batch.example_id.tolist(), *columns.values(), strict=True):
            self.rows[number] = dict(zip(columns, values, strict=True))

    def write(self, part: TextSplit, path: Path) -> None:
        """Write the columns of docs/reference.md, sorted by example; lists cover the content
        positions only. A hierarchical model's `tokens` are whole sentences, and `words` and
        `word_attention` hold the words of each."""
        words = pa.list_(pa.string())
        weights = pa.list_(pa.float32())
        several = self.multi_label
        kinds = {
            "example_id": pa.int64(),
            "label": pa.list_(pa.float64()) if several else pa.int64(),
            "prediction": pa.list_(pa.int64()) if several else pa.int64(),
            "probability": pa.list_(pa.float64()),
            "attention": weights,
            **dict.fromkeys(MASSES, pa.float64()),
            "first_words": pa.int64(),
            "word_attention": pa.list_(weights),
            "tokens": words,
            "pieces": words,
            "piece_word": pa.list_(pa.int32()),
            "piece_attention": weights,
            "question": words,
            "candidates": words,
            "words": pa.list_(words),
        }
        there = {"example_id", "tokens", *next(iter(self.rows.values()), ())}
        there |= {"question"} if {"question", "asked"} & {*part.columns} else set()
        there |= {"candidates"} & {*part.columns}
        masses = {
            name: sum(float(row[name]) for row in self.rows.values())
            for name in MASSES
            if name in there
        }
        self.shares = {name: round(total / len(part), 4) for name, total in masses.items()}
        schema = pa.schema([(name, kind) for name, kind in kinds.items() if name in there])

        def tables() -> Iterator[pa.Table]:
            ids = part.example_id.tolist()
            for start in range(0, len(ids), EXAMPLES):
                rows = []
                for number in ids[start : start + EXAMPLES]:
                    row = self.rows.pop(number) | {
                        "example_id": number,
                        "tokens": part.tokens(number),
                    }
                    row |= {
                        "question": part.question(number),
                        "candidates": part.candidates(number),
                    }
                    if self.spell is not None:
                        row["pieces"] = self.spell(row["pieces"].astype(int).tolist())
                    if "words" in row:
                        row["words"] = cut_into_sentences(row["tokens"], row["words"])
                        row["tokens"] = [" ".join(sentence) for sentence in row["words"]]
                    rows.append(row)
                arrays = [
                    pa.array([row[one.name] for row in rows], from_pandas=False).cast(one.type)
                    for one in schema
                ]
                yield pa.Table.from_arrays(arrays, schema=schema)

        write_table(tables(), path, schema)


def _numbers(values: Tensor, keep: Tensor | None = None) -> list[np.ndarray]:
    """Each example's numbers, at the positions to keep."""
    numbers = values.detach().double().cpu().numpy()
    if keep is None:
        return list(numbers)
    return [row[kept] for row, kept in zip(numbers, keep.cpu().numpy(), strict=True)]


def played(readout: Readout, epsilon: float) -> Iterator[dict[str, Any]]:
    """A row of the playground's file (`attnprobe.results.playground`) per example; none where
    another attention's prediction is not a sum over the positions, or several labels are predicted.
    `epsilon`: how far the prediction may be from the model's under the farthest attention, TVD, 0
    to 1."""
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
    """Listens to the test loop, and solves a few texts as they come: evenly spaced among those that
    are short enough."""

    def __init__(self, split: TextSplit, epsilon: float) -> None:
        lengths = split.words.lengths
        longest = max(LONGEST, int(np.sort(lengths)[: min(TEXTS, len(lengths))].max(initial=0)))
        self.ids = {*select_examples(split.example_id, TEXTS, prefer=lengths <= longest)}
        self.epsilon = epsilon
        self.rows = dict[int, Mapping[str, Any]]()

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Batch, *_: Any
    ) -> None:
        assert isinstance(pl_module, Model)
        forward: Outputs = outputs["outputs"]
        for place, number in enumerate(batch.example_id.tolist()):
            if number in self.ids:
                one = slice(place, place + 1)
                readout = pl_module.readout(batch.rows(one), forward.rows(one))
                self.rows |= {row["example_id"]: row for row in played(readout, self.epsilon)}


def whole_rows(metrics: Mapping[str, np.ndarray]) -> Rows:
    """Numbers about the whole split as rows; a metric with several has a row for each, by step from
    0 (epoch, class)."""
    rows = Rows()
    for name, values in metrics.items():
        step = np.arange(len(values)) if values.ndim else None
        rows.add(name, np.array([WHOLE_SPLIT]), values[None], step)
    return rows


def write_results(
    directory: OwnRunDirectory,
    split: TextSplit,
    listeners: tuple[ProbeRunner, PredictionCollector, PlaygroundCollector],
    rows: Mapping[str, Rows],
    identity: Callable[[str], dict[str, Any]],
    settings: Mapping[str, Mapping[str, Any]],
) -> dict[str, dict[str, Any]]:
    """Write the examples, the playground and one table per probe; what the manifest says of each
    table. `rows`: numbers about the whole split, by the name of their table; `identity`: probe →
    the identifying columns of its table; `settings`: those of the probes (`probe`) and the
    importances (`importance`), by name; either may be left out."""
    runner, predictions, playground = listeners
    predictions.write(split, directory.place(examples_file("test")))
    write_playground(playground.rows.values(), directory.place(PLAYGROUND))
    of_importance = settings.get("importance", {})
    of_probe = settings.get("probe", {})
    told_of = {
        name: one.facts
        | {"name": name, "settings": of_importance.get(name), "files": records_of(one.files())}
        | {"seconds": round(runner.importance_seconds.get(name, 0.0), 3)}
        for name, one in runner.importances.items()
    }
    filed = {
        probe.name: {probe.label(one): told_of[one] for one in probe.uses}
        for probe in runner.probes
    }
    metrics = {"training": TRAINING, "performance": PERFORMANCE} | {
        one.name: one.metrics for one in runner.probes
    }
    if runner.scored:
        metrics = {name: tuple(one.of_scores for one in own) for name, own in metrics.items()}
    tables = {}
    for name, collected in {**rows, **runner.rows}.items():
        written = collected.write(directory.place(table_file(name)), identity(name))
        warn_of_undeclared(name, written.extremes, metrics[name])
        declarations = {key: declared(key, metrics[name]) for key in written.extremes}
        tables[name] = {
            "rows": written.rows,
            "undefined": written.undefined,
            "metrics": {key: one.facts for key, one in declarations.items() if one is not None},
            "settings": of_probe.get(name),
            "seconds": round(runner.seconds.get(name, 0.0), 3),
            "notes": runner.notes.get(name, {}),
            "importances": filed.get(name, {}),
        }
    return tables


def made_with(*libraries: str) -> dict[str, Any]:
    """What a manifest says of the moment and of the versions of these libraries."""
    versions = {name: version(name) for name in ("attnprobe", "torch", "numpy", *libraries)}
    finished = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"versions": versions | {"python": platform.python_version()}, "finished": finished}
