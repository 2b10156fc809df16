"""What a study is: several runs that refer to each other, and what they say together.

A study is one module of this package with both: its plan, a `Study` that names its members,
ordinary runs, in stages; and its reading, `read(directory, content)` → `StudyReading`. It is found
by being here. An installed package names the `read` of a study of its own in the entry points'
group `attnprobe.studies`.
"""

import importlib
import math
import os
import pkgutil
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
from omegaconf import DictConfig, OmegaConf

from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked
from attnprobe.evidence.claims import Claim, Finding
from attnprobe.evidence.evidence import Evidence
from attnprobe.results.directory import Places, RunDirectory, directories_with
from attnprobe.results.files import DamagedRun, damaged, read_sealed, records_of
from attnprobe.results.fingerprint import fingerprint

STUDY = "study.json"
"""Written last and atomically: without it a study is not finished."""

RESEARCH = {
    "methods": "research.methods",
    "questions": "research.questions",
    "sanity": "research.sanity",
}
"""Study → the module of the repository's research/ that reads it; a wheel has none of them."""
PACKAGE = "attnprobe.findings.studies"
ANSWERING = ("swaps",)
"""Probes without which a study has no answer, and with which it has one."""

# The plan


Compose = Callable[[Sequence[str]], DictConfig]
"""Command-line arguments → the configuration that they give."""


@dataclass(frozen=True)
class Member:
    """One run of a study.

    Attributes:
        role: what it is in the study; its tables are filed under the experiment `<study>_<role>`.
        overrides: how it differs from the user's command line.
        parameter: the number that tells the members of one role apart, such as λ.
    """

    role: str
    seed: int
    overrides: tuple[str, ...] = ()
    parameter: float | None = None

    def __str__(self) -> str:
        parameter = "" if self.parameter is None else f" {self.parameter:g}"
        return f"{self.role}{parameter}, seed {self.seed}"


@dataclass(frozen=True)
class Done:
    """A member and its finished run's directory."""

    member: Member
    directory: Path


@dataclass(frozen=True)
class Costs:
    """What the data, the model and a page cost on this machine, in seconds.

    Attributes:
        rows: examples per split.
        training: per training example and epoch, validation included.
        probing: per test example, all probes together; infinite where the time was up before all
            of them were timed.
        device: where this was measured.
        each: for a run to begin: reading its data, building its model.
        figure: for one figure of a page.
        page: for what a page takes besides its figures.
        shares: probe → its share of `probing`, 0 to 1.
        answering: per test example, the probes of `ANSWERING` alone; infinite where the time was up
            before they were timed, or there are none.
    """

    rows: dict[str, int]
    training: float
    probing: float
    device: str
    each: float = 0.0
    figure: float = 0.0
    page: float = 0.0
    shares: Mapping[str, float] = field(default_factory=dict)
    answering: float = math.inf

    def seconds(self, epochs: int, trainings: int) -> float:
        """Estimate the time for a number of trainings, one of which is probed.

        Args:
            epochs: of each training.
            trainings: 0 where nothing is trained and one run is probed as it is.
        """
        beginning = max(1, trainings) * self.each
        training = trainings * epochs * self.rows.get("train", 0) * self.training
        return beginning + training + self.rows["test"] * self.probing


@dataclass(frozen=True)
class Plan:
    """What a study decides before it begins.

    Attributes:
        rows: split → how many rows at most all members use (`data.most`); empty: as the command
            line says.
        words: a sentence that says so.
        seconds: that the whole study is expected to take; None: not estimated.
        members: seconds that each member is expected to take, in the order of the stages.
        page: seconds that the page is expected to take.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    words: str = ""
    seconds: float | None = None
    members: Sequence[float] = ()
    page: float = 0.0

    def beside(self, seconds: float) -> str:
        """The estimate beside what the study took, as a line; empty if nothing was estimated.

        >>> Plan(seconds=180).beside(192)
        'took 3.2 minutes; 3.0 were expected'
        """
        if self.seconds is None:
            return ""
        return f"took {seconds / 60:.1f} minutes; {self.seconds / 60:.1f} were expected"


class Study(metaclass=Checked):
    """An experiment of several runs. Subclasses are dataclasses with their settings as fields."""

    settings_place: ClassVar[str] = "study"
    name: ClassVar[str]

    @property
    def limit(self) -> float | None:
        """Seconds that it may take by the wall clock, its page included; None: as long as it takes.

        When they are over, what is finished is the answer.
        """
        return None

    def plan(self, compose: Compose, measure: Callable[[DictConfig], Costs]) -> Plan:
        """Decide once what all members share; a resumed study keeps its plan.

        Args:
            compose: changes to the command line → the configuration that it then gives; a
                `UserError` where it gives none.
            measure: times the parts of such a run on a few batches.
        """
        return Plan()

    def trainings(self, seed: int) -> int | None:
        """As many trainings of the command line as all members take; None: nobody has counted.

        Args:
            seed: of the command line.
        """
        return None

    @abstractmethod
    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """Yield lists of members.

        The members of one stage do not need each other: they may run at the same time.

        Args:
            seed: the seed of the command line.
            model: name of the model that the command line describes.
            done: the finished members; it grows between stages, and later stages may read it.
        """


def without_learned_attention(model_class: str | None) -> str:
    """The override for a member that attends to everything alike.

    Args:
        model_class: of a whole model, whose examined layer then attends alike; None: the model has
            three stages, one of which is the attention.
    """
    return "model/attention=uniform" if model_class is None else "model.given=uniform"


# The reading


@dataclass(frozen=True)
class StudyFigure:
    """The numbers of a figure, which a reading computes and the report draws.

    A subclass has the numbers as its fields; `attnprobe.report.studies` has a function that draws
    that subclass.

    Attributes:
        name: stem of the names of its files.
        caption: plain text, with the numbers' unit.
    """

    name: str
    caption: str


@dataclass(frozen=True)
class StudyReading:
    """What a finished study says.

    Attributes:
        title: of its part of the report.
        about: a few sentences on what was done.
        data: the data set.
        model: the base's model.
        directory: of the study.
        findings: its claims, put to the test.
        runs: directories of the runs whose own tests belong beside it, on a page about this study
            alone.
        readings: each finding in words, by the claim's name.
        tables: caption → table, ready to be shown; numbers as numbers.
        figures: what the report is to draw.
        notes: what else a reader has to know.
        answer: one sentence, where the study is not about the attention of one model: its page
            begins with it.
    """

    title: str
    about: str
    data: str
    model: str
    directory: Path
    findings: list[Finding] = field(default_factory=list)
    runs: list[Path] = field(default_factory=list)
    readings: dict[str, str] = field(default_factory=dict)
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    figures: list[StudyFigure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    answer: str = ""

    def add(self, claim: Claim, evidence: Evidence, words: str) -> None:
        """Add a claim with its number, and what the number says in words."""
        self.findings.append(Finding(claim, evidence, self.data, self.model))
        self.readings[claim.name] = words


def read_study(directory: str | os.PathLike) -> StudyReading:
    """Read one finished study.

    Raises:
        UserError: it is not finished, or nothing here knows how to read it.
        DamagedRun: its study.json or one of its runs is not as it was written.
    """
    directory = Path(directory)
    path = directory / STUDY
    if not path.exists():
        raise UserError(
            f"{directory} holds no finished study (no {STUDY}): start it again, it goes on where "
            "it was"
        )
    content = read_sealed(path)

    for member in content["members"]:
        run = RunDirectory(directory / member["directory"])
        if run.manifest().get("run_id") != member["run_id"]:
            raise damaged(run.path, f"{path} expects the run {member['run_id']} there")
        run.verify(run.shown_files())

    read = _reader_of(content["study"], path)
    return read(directory, content)


def _reader_of(study: str, path: Path) -> Callable[[Path, dict[str, Any]], StudyReading]:
    shipped = {
        module.name: f"{PACKAGE}.{module.name}"
        for module in pkgutil.iter_modules([str(Path(__file__).parent)])
        if not module.ispkg and module.name != "base"
    }
    modules = shipped | RESEARCH
    installed = {entry.name: entry for entry in entry_points(group="attnprobe.studies")}
    if study not in modules and study not in installed:
        names = ", ".join(sorted([*modules, *installed]))
        raise UserError(f"{path} is of the study {study!r}: expected one of {names}")
    if study not in modules:
        return installed[study].load()

    try:
        return importlib.import_module(modules[study]).read
    except ModuleNotFoundError as error:
        if error.name != "research":
            raise
        raise UserError(
            f"{path} is of the study {study!r}, whose reading is in research/ of attnprobe's "
            "repository and not in an installed package: read it in a checkout"
        ) from None


def find_studies(
    places: Places,
) -> tuple[list[StudyReading], list[UserError]]:
    """Read every finished study at or below these directories or glob patterns.

    Returns:
        The sound ones, and what is wrong with the others.
    """
    studies = []
    errors = []
    for directory in directories_with(STUDY, places):
        try:
            studies.append(read_study(directory))
        except UserError as error:
            errors.append(error)
    return studies, errors


def with_members(places: Sequence[str]) -> list[str]:
    """These places, and the runs that the finished studies among them list.

    A damaged study among several places adds nothing.

    Raises:
        DamagedRun: the only place is a damaged study.
    """
    directories = list(places)
    for place in places:
        if not (Path(place) / STUDY).exists():
            continue
        try:
            directories += [str(run) for run in read_study(place).runs]
        except DamagedRun:
            if len(places) == 1:
                raise
    return directories


# The same command again


def settings_fingerprint(config: DictConfig) -> str:
    """Stands for all settings of a command line except how much is shown.

    References in them are not followed.
    """
    settings: dict[str, Any] = OmegaConf.to_container(config)  # type: ignore[assignment]
    return fingerprint({name: value for name, value in settings.items() if name != "verbose"})


def already_answered(config: DictConfig) -> Path | None:
    """The finished study of these very settings, whose input files have not changed since.

    Nothing is left to check or to do then. None: there is no such study, or it is to be measured
    again.
    """
    if config.on_finished not in (None, "skip"):
        return None
    folder = Path(f"{config.output}/{OmegaConf.select(config, 'data.name')}")
    for path in folder.glob(f"*/{STUDY}"):
        with suppress(UserError, OSError):  # an unreadable study is checked member by member
            content = read_sealed(path)
            inputs = content.get("inputs", {})
            if content.get("asked") != settings_fingerprint(config):
                continue
            if records_of({name: Path(name) for name in inputs}) == inputs:
                return path.parent
    return None
