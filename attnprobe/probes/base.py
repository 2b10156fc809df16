"""What a probe is, and the one callback that runs probes in Lightning's test loop.

A probe is a dataclass with its settings as fields, a `name`, and one method that yields `Measurement`s. It knows neither
trainer nor logger. To add one: a file here, a YAML in conf/probe, a test.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, NamedTuple, TypeVar, final

import numpy as np
import torch
from lightning import Callback, LightningModule, Trainer
from torch import Tensor

from attnprobe.batch import Batch, Outputs, Readout, Task
from attnprobe.errors import UserError
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.probes.randomness import Draws
from attnprobe.results.table import Rows

Result = TypeVar("Result")


class Measurement(NamedTuple):
    """One metric for every example of a batch: `value [batch]`, or `value [batch, n]` with `step [n]` or `[batch, n]`.

    `step` is the x-coordinate (a position, a fraction erased, a count); where it is NaN there is no number.
    """

    metric: str
    value: Tensor
    step: Tensor | None = None


class Note(NamedTuple):
    """How a batch was measured, for the table's entry in the manifest: one number by name, and how those of two batches
    become one (`max`, `operator.add`)."""

    name: str
    value: float
    combine: Callable[[float, float], float]


@dataclass
class Subject:
    """What a probe examines: a trained classifier in eval mode and one batch that went through it.

    `words` is the vocabulary in the order of the ids, None where it is not known.
    """

    classifier: AttentionClassifier
    batch: Batch
    outputs: Outputs
    readout: Readout
    words: Sequence[str] | None = None
    _results: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def once(self, key: Hashable, compute: Callable[[], Result]) -> Result:
        """What several probes need of this batch, computed for the first one that asks. The key names the computation
        and all its settings."""
        if key not in self._results:
            self._results[key] = compute()
        return self._results[key]


class Probe(ABC):
    """Measures something about every example. Subclasses are dataclasses and derive from one of the two below.

    Attributes:
        one_decision: it asks when one decision flips, so that it cannot examine several labels.
        of_words: it removes, differentiates or compares single words, so that it cannot examine attention to sentences.
    """

    name: ClassVar[str]
    one_decision: ClassVar[bool] = False
    of_words: ClassVar[bool] = False

    def refuse(self, classifier: AttentionClassifier) -> None:
        """Called before anything is trained; a probe with further needs extends it.

        Raises:
            UserError: this probe cannot examine such a classifier.
        """
        if self.one_decision and classifier.task is not Task.SINGLE_LABEL:
            raise UserError(
                f"probe {self.name} asks when one decision flips, and with data.multi_label=true there are several: leave "
                f"it out of probe=[…]"
            )
        if self.of_words and classifier.encoder.larger_units:
            raise UserError(
                f"probe {self.name} is about single words, and this model attends to larger units: leave it out of "
                f"probe=[…], or take a model that attends to words, such as model=lstm"
            )

    @abstractmethod
    def examine(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""


class ReadoutProbe(Probe):
    """A probe that changes nothing but the attention; it never sees the model."""

    @final
    def examine(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        yield from self.measure(subject.readout, draws)

    @abstractmethod
    def measure(self, readout: Readout, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""


class ModelProbe(Probe):
    """A probe that differentiates or re-runs the model; it must leave model, RNG and tensors as it found them."""

    @final
    def examine(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        yield from self.measure(subject, draws)

    @abstractmethod
    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""


def positions(content: Tensor) -> Tensor:
    """Number of each content position from 0 as a float, NaN elsewhere: the `step` of a per-position measurement."""
    number = content.long().cumsum(-1) - 1
    return torch.where(content, number.double(), torch.nan)


def description(readout: Readout) -> Iterator[Measurement]:
    """What the figures group examples by."""
    yield Measurement("max_attention", readout.attention.amax(-1))
    yield Measurement("predicted_class", readout.prediction().argmax(-1))
    yield Measurement("content_length", readout.content.sum(-1))


@final
class ProbeRunner(Callback):
    """Runs probes on every batch of the test loop and collects their rows."""

    def __init__(
        self, probes: list[Probe], seed: int, words: Sequence[str] | None = None, folder: Path | None = None
    ) -> None:
        """
        Args:
            probes: run in this order on every batch.
            seed: of their random numbers.
            words: the vocabulary in the order of the ids, None where it is not known.
            folder: on the disk that is to hold the rows that do not fit into memory; see `Rows`.
        """
        self.probes = probes
        self.words = words
        self.draws = {probe.name: Draws(seed, probe.name) for probe in probes}
        self.rows = {probe.name: Rows(folder) for probe in probes}
        self.notes: dict[str, dict[str, float]] = {probe.name: {} for probe in probes}
        self.seconds = dict.fromkeys(self.rows, 0.0)

    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Examine one batch."""
        assert isinstance(pl_module, AttentionClassifier)
        classifier, forward = pl_module, outputs["outputs"]
        subjects: dict[tuple[int, int], Subject] = {}

        def subject(rows: slice) -> Subject:
            key = (rows.start, rows.stop)
            if key not in subjects:
                part, states = batch.rows(rows), forward.rows(rows)
                subjects[key] = Subject(classifier, part, states, classifier.readout(part, states), self.words)
            return subjects[key]

        example_id = batch.example_id.cpu().numpy()
        for probe in self.probes:
            start = perf_counter()

            def measured(rows: slice, probe: Probe = probe) -> tuple[slice, list[Numbers | Note]]:
                found = probe.examine(subject(rows), self.draws[probe.name])
                return rows, [one if isinstance(one, Note) else numbers(one) for one in found]

            for rows, results in classifier.halving(f"probe {probe.name}", batch, measured):
                for found in results:
                    if isinstance(found, Note):
                        notes = self.notes[probe.name]
                        known = found.name in notes
                        notes[found.name] = found.combine(notes[found.name], found.value) if known else found.value
                        continue
                    self.rows[probe.name].add(found.metric, example_id[rows], found.value, found.step)
            self.seconds[probe.name] += perf_counter() - start


class Numbers(NamedTuple):
    """A measurement as numpy arrays in float64."""

    metric: str
    value: np.ndarray
    step: np.ndarray | None


def numbers(measurement: Measurement) -> Numbers:
    """Take a measurement off the device."""
    step = measurement.step
    return Numbers(measurement.metric, on_host(measurement.value), None if step is None else on_host(step))


def on_host(values: Tensor) -> np.ndarray:
    """A tensor as an array of float64."""
    return values.detach().double().cpu().numpy()
