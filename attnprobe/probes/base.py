"""What a probe is, and the callback that runs all probes in Lightning's test loop.

A probe's file also holds its `READING`: headlines, claims, tables and figures. To add a probe,
write a file here, a YAML in conf/probe and a test.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from time import perf_counter
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.core.batch import Batch, Outputs, Task
from attnprobe.core.errors import UserError
from attnprobe.core.metrics import CLASS, WEIGHT, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.readout import Readout
from attnprobe.core.settings import Checked
from attnprobe.data.batching import TextSplit
from attnprobe.importance.base import Importance, Note, Subject
from attnprobe.models.base import Model, Unit
from attnprobe.results.table import Rows

MOST_NUMBERS = 1 << 25
"""Most float64 numbers (256 MiB) that a probe's samples of one batch may take up at a time; a
single text may exceed it."""


class Measurement(NamedTuple):
    """One metric for every example of a batch.

    Attributes:
        metric: its name.
        value: `[batch]`, or `[batch, n]` where it has steps.
        step: `[n]` or `[batch, n]`, the x-coordinate of each value: a position, a fraction erased,
            a count. Where it is NaN, the value is left out of the table.
        site: which of the model's attentions was measured; empty for its own.
    """

    metric: str
    value: Tensor
    step: Tensor | None = None
    site: str = ""


class Probe(metaclass=Checked):
    """Measures something about every example. Subclasses are dataclasses of settings.

    Attributes:
        name: of the file, the YAML and the table.
        metrics: what it yields, with units and ranges. A run warns of values outside them; nothing
            is checked where this is empty.
        one_decision: it asks when the decision flips, so it cannot examine multi-label data.
        of_readout: it measures a `Readout` and never sees the model.
        of_words: it removes, differentiates or compares single words, so it cannot examine
            attention to sentences.
        filed: importance → ending of its metrics, where that is not the importance's name.
        slow: it takes so long that a run forecasts its time.
        buffers_per_sample: for a probe with a setting `samples`, see `peak_buffers`.
    """

    settings_place: ClassVar[str] = "probe.{name}"
    name: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]] = ()
    slow: ClassVar[bool] = False
    buffers_per_sample: ClassVar[int] = 0
    one_decision: ClassVar[bool] = False
    of_words: ClassVar[bool] = False
    of_readout: ClassVar[bool] = False
    filed: ClassVar[Mapping[str, str]] = {}

    @property
    def uses(self) -> Sequence[str]:
        """The names of the importances that it needs, in the order of its metrics."""
        return ()

    @property
    def peak_buffers(self) -> int:
        """About how many float64 numbers it holds at its peak per position and class of a text.

        The more it holds, the fewer texts it gets at a time.
        """
        return self.buffers_per_sample * getattr(self, "samples", 0) or 1

    @final
    def label(self, importance: str) -> str:
        """What the metrics of an importance end in."""
        return self.filed.get(importance, importance)

    def refuse(self, classifier: Model) -> None:
        """Check before training that this probe can examine the model; subclasses extend it.

        Raises:
            UserError: this probe cannot examine such a classifier.
        """
        if self.one_decision and classifier.task is Task.MULTI_LABEL:
            raise UserError(
                f"probe {self.name} asks when one decision flips, and with data.multi_label=true "
                f"there are several: leave it out of probe=[…]"
            )
        if self.of_words and classifier.unit is not Unit.WORD:
            raise UserError(
                f"probe {self.name} is about single words, and this model attends to larger units: "
                f"leave it out of probe=[…], or take a model that attends to words, such as "
                f"model=lstm"
            )

    def prepare(self, splits: Mapping[str, TextSplit]) -> None:
        """Read what it needs of other texts; called once, before training.

        Args:
            splits: those that are set up, by name.
        """

    @final
    def examine(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield everything that the table holds of one batch; `ProbeRunner` calls it.

        What `measure` yields comes first, then the measurements of `DESCRIPTION`, where the probe
        declares them and did not yield them itself.

        Args:
            subject: one batch as the classifier reads it.
            draws: this probe's random numbers.
        """
        measured = set()
        for result in self.measure(subject.readout if self.of_readout else subject, draws):
            measured.add(result[0])
            yield result

        if set(DESCRIPTION) <= set(self.metrics):
            for result in description(subject.readout):
                if result.metric not in measured:
                    yield result

    @abstractmethod
    def measure(self, subject: Any, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch; leave model, RNG and tensors as they were.

        Args:
            subject: a `Subject`; a `Readout` for a `ReadoutProbe`.
            draws: this probe's random numbers, which depend on seed, probe and example alone.
        """


class ReadoutProbe(Probe):
    """A probe that changes nothing but the attention; it never sees the model."""

    of_readout = True

    @abstractmethod
    def measure(self, readout: Readout, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch, given its readout; see `Probe.measure`."""


@dataclass
class RankingProbe(Probe):
    """A probe that tests importances: its own `importances`, or the `published` ones.

    Attributes:
        importances: names; None: `published`, those of the paper that proposed the test.
    """

    published: ClassVar[tuple[str, ...]]
    importances: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.importances is not None and len(set(self.importances)) < len(self.importances):
            raise UserError(f"importances={list(self.importances)}: expected every name once")

    @property
    def uses(self) -> Sequence[str]:
        """`importances`, or the `published` ones."""
        return self.published if self.importances is None else self.importances

    @final
    def scores(self, subject: Subject) -> dict[str, Float[Tensor, "batch seq"]]:
        """The scores that are defined for this model, by importance."""
        return {
            name: subject.scores(name)
            for name in self.uses
            if subject.importance(name).is_defined(subject)
        }

    @final
    def notes(self, subject: Subject) -> Iterator[Note]:
        """How the scores were measured."""
        for name in self.uses:
            yield from subject.importance(name).notes(subject)


def strengths(subject: Subject, names: Iterable[str]) -> dict[str, Float[Tensor, "batch seq"]]:
    """The scores of these importances by name; the absolute value of signed ones."""
    magnitudes = {}
    for name in names:
        scores = subject.scores(name)
        magnitudes[name] = scores.abs() if subject.importance(name).signed else scores
    return magnitudes


def undefined_in(
    scores: Float[Tensor, "... seq"], content: Bool[Tensor, "batch seq"]
) -> Bool[Tensor, "... batch"]:
    """The texts in which a content position's score is NaN."""
    return (scores.isnan() & content).any(-1)


def positions(content: Tensor, text: Tensor | None = None) -> Tensor:
    """The `step` of a per-position measurement: a position's number in the text, NaN elsewhere.

    Args:
        content: the positions that are measured.
        text: all positions of the text, which are numbered 0, 1, …; None: those of `content`.
    """
    number = (content if text is None else text).long().cumsum(-1) - 1
    return torch.where(content, number.double(), torch.nan)


LINEAR = "linear decoder only"
DESCRIPTION = (
    Metric("max_attention", WEIGHT, "the model's largest weight"),
    Metric("predicted_class", CLASS),
    Metric("content_length", Scale("positions", 1)),
)
"""What figures group examples by. `Probe.examine` adds them for a probe that declares them."""


def description(readout: Readout) -> Iterator[Measurement]:
    """The measurements of `DESCRIPTION`."""
    yield Measurement("max_attention", readout.attention.amax(-1))
    yield Measurement("predicted_class", readout.prediction().argmax(-1))
    yield Measurement("content_length", readout.content.sum(-1))


@final
class ProbeRunner:
    """A Lightning callback that runs probes on every test batch and collects their rows.

    Attributes:
        rows: the table's rows so far, by probe.
        notes: how the probes measured, by probe and name.
        seconds: wall time of each probe.
        importance_seconds: wall time of each importance.
        scored: the model's output is a score instead of classes.
    """

    def __init__(
        self,
        probes: list[Probe],
        seed: int,
        words: Sequence[str] | None = None,
        importances: Mapping[str, Importance] | None = None,
        classes: Sequence[str] = (),
    ) -> None:
        """Prepare empty tables for these probes.

        Args:
            probes: run in this order on every batch.
            seed: of their random numbers.
            words: the vocabulary in the order of the ids, None where it is not known.
            importances: by name; built-in ones that are missing have their defaults.
            classes: names of the classes, for importances that need them.
        """
        self.probes = probes
        self.seed = seed
        self.words = words
        self.classes = classes
        self.importances = {} if importances is None else importances
        self.draws = {probe.name: Draws(seed, probe.name) for probe in probes}
        self.rows = {probe.name: Rows() for probe in probes}
        self.notes: dict[str, dict[str, float]] = {probe.name: {} for probe in probes}
        self.seconds = dict.fromkeys(self.rows, 0.0)
        self.importance_seconds: dict[str, float] = {}
        self.scored = False

    def on_test_batch_end(
        self,
        trainer: Any,
        pl_module: Model,
        outputs: Any,
        batch: Batch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Run every probe on a batch that went through the model; Lightning calls this hook."""
        classifier = pl_module
        forward: Outputs = outputs["outputs"]
        self.scored = classifier.task is Task.SCORE

        @cache  # the probes of a batch share its subjects, and with them all scores
        def subject_of(start: int, stop: int) -> Subject:
            rows = slice(start, stop)
            return self._subject(classifier, batch.rows(rows), forward.rows(rows))

        example_id = batch.example_id.cpu().numpy()
        width = forward.attention.shape[1] + forward.logits.shape[1]
        for probe in self.probes:
            start = perf_counter()

            def examine(
                rows: slice, probe: Probe = probe
            ) -> tuple[slice, list[Measurement | Note]]:
                results = probe.examine(subject_of(rows.start, rows.stop), self.draws[probe.name])
                return rows, [_on_cpu(result) for result in results]

            parts = classifier.halving(
                f"probe {probe.name}",
                batch,
                examine,
                rows_at_once=max(1, MOST_NUMBERS // (probe.peak_buffers * width)),
            )
            for rows, results in parts:
                for result in results:
                    self._collect(probe.name, result, example_id[rows])
            self.seconds[probe.name] += perf_counter() - start

    def _subject(self, classifier: Model, batch: Batch, outputs: Outputs) -> Subject:
        return Subject(
            classifier=classifier,
            batch=batch,
            outputs=outputs,
            readout=classifier.readout(batch, outputs),
            words=self.words,
            importances=self.importances,
            seed=self.seed,
            classes=self.classes,
            seconds=self.importance_seconds,
        )

    def _collect(
        self, probe: str, result: Measurement | Note, example_id: Int[np.ndarray, " batch"]
    ) -> None:
        if isinstance(result, Measurement):
            step = None if result.step is None else result.step.numpy()
            value = result.value.numpy()
            self.rows[probe].add(result.metric, example_id, value, step, result.site)
            return

        notes = self.notes[probe]
        if result.name in notes:
            notes[result.name] = result.combine(notes[result.name], result.value)
        else:
            notes[result.name] = result.value


def _on_cpu(result: Measurement | Note) -> Measurement | Note:
    if isinstance(result, Note):
        return result
    step = None if result.step is None else result.step.detach().double().cpu()
    return result._replace(value=result.value.detach().double().cpu(), step=step)
