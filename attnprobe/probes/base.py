"""What a probe is, and the one listener that runs probes in Lightning's test loop.

A probe's file also holds its `READING`: headlines, claims, tables and figures. To add one: a file
here, a YAML in conf/probe, a test."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, ClassVar, NamedTuple, final

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.core.batch import Batch, Task
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
"""Numbers (float64: 256 MiB) that a probe's samples of a batch may take up at a time; a single text
may exceed it."""


class Measurement(NamedTuple):
    """One metric for every example of a batch: `value [batch]`, or `value [batch, n]` with `step
    [n]` or `[batch, n]`.

    `step` is the x-coordinate (a position, a fraction erased, a count); where it is NaN there is no
    number. `site` says which of the model's attentions it is about; empty: its own."""

    metric: str
    value: Tensor
    step: Tensor | None = None
    site: str = ""


class Probe(metaclass=Checked):
    """Measures something about every example. Subclasses are dataclasses, their settings as fields.

    Attributes:
        metrics: what it yields, with units and ranges; a run warns of numbers that do not fit.
            Empty: nothing is checked.
        one_decision: it asks when one decision flips, so that it cannot examine several labels.
        of_readout: it measures a `Readout` and never sees the model.
        of_words: it removes, differentiates or compares single words, so that it cannot examine
            attention to sentences.
        filed: importance → what its metrics end in, where that is not its name.
        slow: it takes so long that a run forecasts its time.
        buffers_per_sample: of a probe with a setting `samples`, see `peak_buffers`.
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
        """The names of the importances that it asks for, in the order of its metrics."""
        return ()

    @property
    def peak_buffers(self) -> int:
        """About how many float64 numbers it holds at its peak per position and class of a text; the
        more, the fewer texts it gets at a time."""
        return self.buffers_per_sample * getattr(self, "samples", 0) or 1

    @final
    def label(self, importance: str) -> str:
        return self.filed.get(importance, importance)

    def refuse(self, classifier: Model) -> None:
        """Called before anything is trained; a probe with further needs extends it.

        Raises:
            UserError: this probe cannot examine such a classifier.
        """
        if self.one_decision and classifier.task is Task.MULTI_LABEL:
            raise UserError(
                f"probe {self.name} asks when one decision flips, and with data.multi_label=true there are several: leave "
                f"it out of probe=[…]"
            )
        if self.of_words and classifier.unit is not Unit.WORD:
            raise UserError(
                f"probe {self.name} is about single words, and this model attends to larger units: leave it out of "
                f"probe=[…], or take a model that attends to words, such as model=lstm"
            )

    def prepare(self, splits: Mapping[str, TextSplit]) -> None:
        """Called once before training, with the splits that are set up, for a probe that compares
        with other texts."""

    @final
    def examine(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch, and the `DESCRIPTION` where it is declared; what
        `ProbeRunner` calls."""
        own = set()
        for one in self.measure(subject.readout if self.of_readout else subject, draws):
            own.add(one[0])
            yield one
        if set(DESCRIPTION) <= set(self.metrics):
            yield from (one for one in description(subject.readout) if one.metric not in own)

    @abstractmethod
    def measure(self, subject: Any, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch, a `Subject`, and leave model, RNG and tensors as
        they were."""


class ReadoutProbe(Probe):
    """A probe that changes nothing but the attention; it never sees the model."""

    of_readout = True

    @abstractmethod
    def measure(self, readout: Readout, draws: Draws) -> Iterator[Measurement | Note]: ...


@dataclass
class RankingProbe(Probe):
    """A probe that puts importances to a test: those of its own `importances`, or the `published`
    ones.

    Attributes:
        importances: names; None: `published`, those of the paper whose test it is.
    """

    published: ClassVar[tuple[str, ...]]
    importances: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.importances is not None and len(set(self.importances)) < len(self.importances):
            raise UserError(f"importances={list(self.importances)}: expected every name once")

    @property
    def uses(self) -> Sequence[str]:
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
    """The scores of these importances by name, without their sign where they have one."""
    scores = {name: subject.scores(name) for name in names}
    return {
        name: one.abs() if subject.importance(name).signed else one for name, one in scores.items()
    }


def undefined_in(
    scores: Float[Tensor, "... seq"], content: Bool[Tensor, "batch seq"]
) -> Bool[Tensor, "... batch"]:
    """The texts in which a score is NaN."""
    return (scores.isnan() & content).any(-1)


def positions(content: Tensor) -> Tensor:
    """Number of each content position from 0 as a float, NaN elsewhere: the `step` of a
    per-position measurement."""
    number = content.long().cumsum(-1) - 1
    return torch.where(content, number.double(), torch.nan)


LINEAR = "linear decoder only"
DESCRIPTION = (
    Metric("max_attention", WEIGHT, "the model's largest weight"),
    Metric("predicted_class", CLASS),
    Metric("content_length", Scale("positions", 1)),
)
"""What figures group examples by. Of a probe that declares these metrics they are yielded by
themselves."""


def description(readout: Readout) -> Iterator[Measurement]:
    """The measurements of `DESCRIPTION`."""
    yield Measurement("max_attention", readout.attention.amax(-1))
    yield Measurement("predicted_class", readout.prediction().argmax(-1))
    yield Measurement("content_length", readout.content.sum(-1))


@final
class ProbeRunner:
    """Runs probes on every batch of the test loop and collects their rows; Lightning calls its one
    hook."""

    def __init__(
        self,
        probes: list[Probe],
        seed: int,
        words: Sequence[str] | None = None,
        importances: Mapping[str, Importance] | None = None,
        classes: Sequence[str] = (),
    ) -> None:
        """
        Args:
            probes: run in this order on every batch.
            seed: of their random numbers.
            words: the vocabulary in the order of the ids, None where it is not known.
            importances: by name; built-in ones that are missing have their defaults.
            classes: their names, for importances that are asked about one.
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
        classifier = pl_module
        forward = outputs["outputs"]
        self.scored = classifier.task is Task.SCORE
        subjects: dict[tuple[int, int], Subject] = {}

        def subject(rows: slice) -> Subject:
            key = (rows.start, rows.stop)
            if key not in subjects:
                part = batch.rows(rows)
                states = forward.rows(rows)
                subjects[key] = Subject(
                    classifier,
                    part,
                    states,
                    classifier.readout(part, states),
                    self.words,
                    self.importances,
                    self.seed,
                    self.classes,
                    self.importance_seconds,
                )
            return subjects[key]

        example_id = batch.example_id.cpu().numpy()
        width = forward.attention.shape[1] + forward.logits.shape[1]
        for probe in self.probes:
            start = perf_counter()
            at_once = max(1, MOST_NUMBERS // (probe.peak_buffers * width))

            def measured(
                rows: slice, probe: Probe = probe
            ) -> tuple[slice, list[Measurement | Note]]:
                found: list[Measurement | Note] = []
                for one in probe.examine(subject(rows), self.draws[probe.name]):
                    if isinstance(one, Measurement):
                        step = None if one.step is None else one.step.detach().double().cpu()
                        one = one._replace(value=one.value.detach().double().cpu(), step=step)
                    found.append(one)
                return rows, found

            notes = self.notes[probe.name]
            for rows, results in classifier.halving(
                f"probe {probe.name}", batch, measured, rows_at_once=at_once
            ):
                for one in results:
                    if isinstance(one, Note):
                        notes[one.name] = (
                            one.combine(notes[one.name], one.value)
                            if one.name in notes
                            else one.value
                        )
                        continue
                    step = None if one.step is None else one.step.numpy()
                    self.rows[probe.name].add(
                        one.metric, example_id[rows], one.value.numpy(), step, one.site
                    )
            self.seconds[probe.name] += perf_counter() - start
