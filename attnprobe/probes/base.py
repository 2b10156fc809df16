"""What a probe is, and what all probes of one pass over the texts share.

A probe's file also holds its `READING`: headlines, claims, tables and figures. To add a probe,
write a file here, a YAML in conf/probe and a test.
"""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar, NamedTuple, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.core.batch import Batch, Outputs, Task
from attnprobe.core.clock import CLOCK
from attnprobe.core.errors import UserError
from attnprobe.core.hooks import Hooked, with_hooks
from attnprobe.core.metrics import CLASS, WEIGHT, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.readout import Readout
from attnprobe.data.batching import TextSplit
from attnprobe.data.module import TextDataModule
from attnprobe.importance.base import Importance, Note, Subject, built_in
from attnprobe.models.base import Model, Unit
from attnprobe.results.table import Rows

SPLIT = "test"
"""The split that probes examine."""
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


class Probe(metaclass=Hooked):
    """Measures something about every example. Subclasses are dataclasses of settings.

    It is a callback of Lightning (`attnprobe.runs.probe_hooks`):
    `Trainer(callbacks=[Permutation()]).test(model, datamodule=data)`.

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
        runner: what it shares with the other probes of a pass, with its numbers; None before the
            first pass.
    """

    settings_place: ClassVar[str] = "probe.{name}"
    hooks: ClassVar[str] = "attnprobe.runs.probe_hooks.ProbeHooks"
    name: ClassVar[str]
    metrics: ClassVar[tuple[Metric, ...]] = ()
    slow: ClassVar[bool] = False
    buffers_per_sample: ClassVar[int] = 0
    one_decision: ClassVar[bool] = False
    of_words: ClassVar[bool] = False
    of_readout: ClassVar[bool] = False
    filed: ClassVar[Mapping[str, str]] = {}
    runner: "ProbeRunner | None" = None

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
                f"there are several: leave it out of probe=[…], or train a model with an "
                f"attention for each label, which is asked one at a time (task=labels)"
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
            for name in CLOCK.track(self.uses, "score", "importances")
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


@dataclass(frozen=True)
class Measured:
    """What one probe measured on one device.

    Attributes:
        rows: of its table.
        notes: how it measured, by name.
        seconds: wall time.
    """

    rows: Rows
    notes: dict[str, Note]
    seconds: float


@final
class ProbeRunner:
    """What the probes of one pass over the texts share, and the numbers that they measure.

    Attributes:
        rows: the table's rows so far, by probe.
        notes: how the probes measured, by probe and name.
        seconds: wall time of each probe.
        importance_seconds: wall time of each importance.
        scored: the model's output is a score instead of classes.
        words: the vocabulary in the order of the ids, None where it is not known.
        classes: names of the classes, for importances that need them.
        prepared: probes and importances have read what they need (`prepare`).
        started: a batch was measured.
    """

    def __init__(
        self,
        probes: Sequence[Probe],
        seed: int,
        importances: Mapping[str, Importance] | None = None,
    ) -> None:
        """Begin empty tables for these probes.

        Args:
            probes: run in this order on every batch.
            seed: of their random numbers.
            importances: by name; those that the probes use besides are built in, with their
                defaults.

        Raises:
            UserError: two probes have one name, and would have one table.
        """
        names = [probe.name for probe in probes]
        for name in names:
            if names.count(name) > 1:
                raise UserError(
                    f"probe {name} is there {names.count(name)} times, and its name is that of its "
                    f"table: expected every probe once, others in a pass of their own"
                )
        self.probes = list(probes)
        self.seed = seed
        self.words: Sequence[str] | None = None
        self.classes: Sequence[str] = ()
        self.importances = {
            name: (importances or {}).get(name) or built_in(name)
            for probe in probes
            for name in probe.uses
        }
        self.draws = {name: Draws(seed, name) for name in names}
        self.rows = {name: Rows() for name in names}
        self.notes: dict[str, dict[str, Note]] = {name: {} for name in names}
        self.seconds = dict.fromkeys(names, 0.0)
        self.importance_seconds: dict[str, float] = {}
        self.scored = False
        self.prepared = False
        self.started = False
        self._batch: Batch | None = None
        self._subjects: dict[tuple[int, int], Subject] = {}

    def callbacks(self) -> list[Any]:
        """The probes as callbacks of Lightning, whose next test loop fills this runner's tables."""
        for probe in self.probes:
            with_hooks(probe).runner = self
        return list(self.probes)

    def fresh(self) -> "ProbeRunner":
        """The same with empty tables."""
        runner = ProbeRunner(self.probes, self.seed, self.importances)
        runner.words = self.words
        runner.classes = self.classes
        return runner

    def prepare(
        self,
        classifier: Model,
        splits: Mapping[str, TextSplit],
        data: TextDataModule | None = None,
    ) -> None:
        """Let probes and importances read what they need of the texts, before the first batch.

        Args:
            classifier: that will be examined.
            splits: by name; those of `test` are examined.
            data: of these splits; None: importances that need more than the batch cannot be used.

        Raises:
            UserError: one of them does not suit the model or the data.
        """
        for probe in self.probes:
            probe.refuse(classifier)
            probe.prepare(splits)
        self.classes = splits[SPLIT].classes
        if data is not None:
            self.words = data.vocabulary.words
            for importance in self.importances.values():
                importance.refuse(classifier)
                importance.prepare(data, SPLIT)
        self.prepared = True

    def run(self, classifier: Model, batch: Batch, outputs: Outputs) -> None:
        """Run every probe on a batch that went through the model."""
        for probe in self.probes:
            self.measure(probe, classifier, batch, outputs)

    def measure(self, probe: Probe, classifier: Model, batch: Batch, outputs: Outputs) -> None:
        """Run one probe on a batch that went through the model.

        Scores are computed once for all probes that follow each other on the same batch.

        Args:
            probe: of `probes`.
            classifier: in eval mode, and in the precision that it is examined in.
            batch: the texts.
            outputs: of the classifier.
        """
        self.started = True
        self.scored = classifier.task is Task.SCORE
        if batch is not self._batch:
            self._batch = batch
            self._subjects.clear()

        def examine(rows: slice) -> tuple[slice, list[Measurement | Note]]:
            subject = self._subject(classifier, batch, outputs, rows)
            results = probe.examine(subject, self.draws[probe.name])
            return rows, [_on_cpu(result) for result in results]

        start = perf_counter()
        width = outputs.attention.shape[1] + outputs.logits.shape[1]
        parts = classifier.halving(
            f"probe {probe.name}",
            batch,
            examine,
            rows_at_once=max(1, MOST_NUMBERS // (probe.peak_buffers * width)),
        )
        example_id = batch.example_id.cpu().numpy()
        for rows, results in parts:
            for result in results:
                self._collect(probe.name, result, example_id[rows])
        self.seconds[probe.name] += perf_counter() - start

        if probe is self.probes[-1]:  # the batch's scores may be large
            self._batch = None
            self._subjects.clear()

    def _subject(self, classifier: Model, batch: Batch, outputs: Outputs, rows: slice) -> Subject:
        """Some rows of the batch, as all probes share them."""
        place = (rows.start, rows.stop)
        if place not in self._subjects:
            part = batch.rows(rows)
            part_outputs = outputs.rows(rows)
            self._subjects[place] = Subject(
                classifier=classifier,
                batch=part,
                outputs=part_outputs,
                readout=classifier.readout(part, part_outputs),
                words=self.words,
                importances=self.importances,
                seed=self.seed,
                classes=self.classes,
                seconds=self.importance_seconds,
            )
        return self._subjects[place]

    def _collect(
        self, probe: str, result: Measurement | Note, example_id: Int[np.ndarray, " batch"]
    ) -> None:
        if isinstance(result, Measurement):
            step = None if result.step is None else result.step.numpy()
            value = result.value.numpy()
            self.rows[probe].add(result.metric, example_id, value, step, result.site)
            return

        self._note(probe, result)

    def _note(self, probe: str, note: Note) -> None:
        """Keep a note, together with an earlier one of its name."""
        notes = self.notes[probe]
        if note.name in notes:
            note = note._replace(value=note.combine(notes[note.name].value, note.value))
        notes[note.name] = note

    def measured(self, probe: str) -> Measured:
        """What one probe measured so far."""
        return Measured(self.rows[probe], self.notes[probe], self.seconds[probe])

    def join(self, probe: str, parts: Sequence[Measured]) -> None:
        """Take what one probe measured on several devices for what it measured."""
        self.rows[probe] = Rows()
        self.notes[probe] = {}
        for part in parts:
            self.rows[probe].join(part.rows)
            for note in part.notes.values():
                self._note(probe, note)
        self.seconds[probe] = max(part.seconds for part in parts)


def _on_cpu(result: Measurement | Note) -> Measurement | Note:
    if isinstance(result, Note):
        return result
    step = None if result.step is None else result.step.detach().double().cpu()
    return result._replace(value=result.value.detach().double().cpu(), step=step)
