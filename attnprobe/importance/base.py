"""What an importance is: scores per position, and the subject that they are asked of.

To add one: a class in the file of its family or in one of its own, and `conf/importance/NAME.yaml`;
no list is edited. From outside: a class and a YAML, or an entry point of the group
`attnprobe.importances` (docs/extending.md).
"""

import importlib
import inspect
import pkgutil
from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.core.batch import Batch, Outputs
from attnprobe.core.errors import UserError
from attnprobe.core.readout import Readout
from attnprobe.core.settings import Checked
from attnprobe.data.module import TextDataModule
from attnprobe.models.base import Model, Unit

Result = TypeVar("Result")
Scores = Float[Tensor, "batch seq"]
"""One number per position: tokens, or sentences of a hierarchical model."""
GROUP = "attnprobe.importances"
"""Entry points by which an installed package brings importances: `name = package.module:Class`."""


class Note(NamedTuple):
    """How a batch was measured, for the table's entry in the manifest: a number by name.

    `combine` says how those of two batches become one (`max`, `operator.add`).
    """

    name: str
    value: float
    combine: Callable[[float, float], float]


@dataclass(frozen=True)
class Importance(metaclass=Checked):
    """How important is each position for the prediction?

    Subclasses are frozen dataclasses, their settings as fields.

    Attributes:
        name: of the file, the YAML, the metrics; `a_b`.
        title: in figures, tables and pages.
        colour: in figures, `#RRGGBB`.
        signed: below 0 speaks against the decision; what compares strengths (correlation,
            plausibility) takes |score|.
        shares: the unit of the scores says nothing: heat maps show them as shares of the text's
            sum.
        complete: its scores of a text add up to what `total` says, or should.
        drawn: random numbers are in it, so that it need not agree with itself.
        of_words: it removes or differentiates single words, so that it is undefined for a model
            that attends to sentences.
        of_layers: it follows layers of self-attention, so that it is undefined for a model without
            any.
    """

    settings_place: ClassVar[str] = "importance.{name}"
    name: ClassVar[str]
    title: ClassVar[str]
    colour: ClassVar[str] = "#666666"
    signed: ClassVar[bool] = False
    shares: ClassVar[bool] = False
    complete: ClassVar[bool] = False
    drawn: ClassVar[bool] = False
    of_words: ClassVar[bool] = False
    of_layers: ClassVar[bool] = False
    total: ClassVar[Callable[..., Float[Tensor, "batch"]]]
    """What complete scores of each text of a subject add up to; for a `complete` importance."""

    def refuse(self, classifier: Model) -> None:
        """Refuse a classifier that it is not defined for, before anything is trained.

        Raises:
            UserError: it is not defined for this classifier.
        """
        if self.of_words and classifier.unit is not Unit.WORD:
            raise UserError(
                f"importance {self.name} is about single words, and this model attends to larger "
                f"units: leave it out of importances=[…], or take a model that attends to words, "
                f"such as model=lstm"
            )
        if self.of_layers and not classifier.has_layers:
            raise UserError(
                f"importance {self.name} follows attention through layers of self-attention, and "
                f"this model has none: leave it out of importances=[…], or take model=transformer "
                f"or model=pretrained"
            )

    def files(self) -> Mapping[str, Path]:
        """The files that it reads, by the setting that names them.

        Tables are measured again once one has changed.

        Raises:
            UserError: a file is missing.
        """
        return {}

    def prepare(self, data: TextDataModule, split: str) -> None:
        """Called once before training, with data that are set up.

        An importance that scores only examples that it knows checks them here.

        Raises:
            UserError: it cannot score them.
        """

    def prepare_texts(
        self, texts: Sequence[str | Sequence[str]], tokens: Sequence[Sequence[str]]
    ) -> None:
        """Called before texts from outside a run's data are scored (`TrainedRun.explain`).

        Args:
            texts: in order; they are numbered from 0.
            tokens: the words of each.

        Raises:
            UserError: it cannot score one of them.
        """

    def is_defined(self, subject: "Subject") -> bool:
        """Whether this model can be scored at all; if not, it is left out of the tables."""
        return True

    @abstractmethod
    def scores(self, subject: "Subject") -> Scores:
        """The higher, the more important.

        Any number outside content; NaN in content where it is undefined.
        """

    def notes(self, subject: "Subject") -> Iterator[Note]:
        """How the batch's scores were measured."""
        yield from ()

    @property
    def facts(self) -> dict[str, Any]:
        """What the report has to know, as the manifest writes it."""
        return {name: getattr(self, name) for name in ("name", "title", "colour", "signed")}


@dataclass
class Subject:
    """What probes and importances examine: a trained classifier and a batch that went through it.

    The classifier is in eval mode.

    Attributes:
        words: the vocabulary in the order of the ids, None where it is not known.
        classes: the names of the classes, where they are known.
        importances: those that this run has settings for, by name; built-in ones that are missing
            have their defaults.
        seed: of random importances.
        seconds: where to add up the wall time of each importance. What two need in common counts
            for the first that asks; what one asks of another counts for both.
    """

    classifier: Model
    batch: Batch
    outputs: Outputs
    readout: Readout
    words: Sequence[str] | None = None
    importances: Mapping[str, Importance] = field(default_factory=dict)
    seed: int = 0
    classes: Sequence[str] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    _results: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def importance(self, name: str) -> Importance:
        """The importance of this name.

        Raises:
            UserError: the name is unknown.
        """
        return self.importances.get(name) or built_in(name)

    def scores(self, name: str) -> Scores:
        """The scores of the importance of this name, computed when they are first asked for."""
        start = perf_counter()
        scores = self.cached(self.importance(name).scores)
        if scores.is_cuda:
            torch.cuda.synchronize(scores.device)
        self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start
        return scores

    def redrawn(self) -> "Subject":
        """The same with other random numbers, and nothing computed yet."""
        return replace(self, seed=self.seed + 1, seconds={}, _results={})

    def cached(self, compute: "Callable[[Subject], Result]") -> Result:
        """Compute what several probes or importances need of this batch, for the first to ask."""
        if compute not in self._results:
            self._results[compute] = compute(self)
        return self._results[compute]


@cache
def built_in(name: str) -> Importance:
    """The importance of this name, built-in or installed, with its default settings.

    Raises:
        UserError: the name is unknown.
    """
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            return entry.load()()
    if name not in classes():
        raise UserError(f"unknown importance {name!r}: expected one of {', '.join(names())}")
    return classes()[name]()


@cache
def classes() -> dict[str, type[Importance]]:
    """The built-in classes by name.

    Whatever the modules of this room define or import that has a name of its own.
    """
    package = importlib.import_module("attnprobe.importance")
    members: dict[str, type[Importance]] = {}
    for module in pkgutil.iter_modules(package.__path__):
        contents = vars(importlib.import_module(f"{package.__name__}.{module.name}"))
        for member in contents.values():
            is_importance = inspect.isclass(member) and issubclass(member, Importance)
            if is_importance and "name" in vars(member):
                members[member.name] = member
    return members


def names() -> list[str]:
    """All names, built-in and installed."""
    installed = {entry.name for entry in entry_points(group=GROUP)}
    return sorted(installed.union(classes()))
