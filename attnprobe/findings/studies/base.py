"""What a study is: several runs that refer to each other (its plan), and what they say together
(its reading).

A study is one file with both: a `Study` that names its members, ordinary runs, in stages, and
`read(directory, content)` → `StudyReading`. An installed package names the `read` of a study of its
own in the entry points' group `attnprobe.studies`."""

import importlib
import os
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd
from matplotlib.figure import Figure
from omegaconf import DictConfig, OmegaConf

from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked
from attnprobe.evidence.claims import Claim, Finding
from attnprobe.evidence.evidence import Evidence
from attnprobe.plots.style import paper_style
from attnprobe.results.directory import RunDirectory, directories_with
from attnprobe.results.files import DamagedRun, damaged, read_sealed, records_of
from attnprobe.results.fingerprint import fingerprint

STUDY = "study.json"
"""Written last and atomically: without it a study is not finished."""

READERS = {
    "audit": "attnprobe.findings.studies.audit",
    "wiegreffe": "attnprobe.findings.studies.wiegreffe",
    "calibration": "research.calibration.study",
    "methods": "research.methods",
    "questions": "research.questions",
    "sanity": "research.sanity",
}
"""Study → the module that reads it; those of research/ are in a checkout alone."""

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
        return f"{self.role}{'' if self.parameter is None else f' {self.parameter:g}'}, seed {self.seed}"


@dataclass(frozen=True)
class Done:
    """A member and its finished run's directory."""

    member: Member
    directory: Path


@dataclass(frozen=True)
class Costs:
    """What the data, the model and a page cost on this machine, in seconds.

    `rows` per split; `training` per example and epoch, validation included; `probing` per test
    example, all probes together, of which `shares` are the probes'; `each`: what a run takes to
    begin; `figure`: one of a page."""

    rows: dict[str, int]
    training: float
    probing: float
    device: str
    each: float = 0.0
    figure: float = 0.0
    shares: Mapping[str, float] = field(default_factory=dict)

    def seconds(self, epochs: int, trainings: int) -> float:
        """An estimate for a number of trainings, of which one is probed; one run where nothing is
        trained."""
        training = trainings * epochs * self.rows.get("train", 0) * self.training
        return max(1, trainings) * self.each + training + self.rows["test"] * self.probing


@dataclass(frozen=True)
class Plan:
    """What a study decides before it begins: split → at most so many rows for all members
    (`data.most`; empty: as the command line says), a sentence that says so, and the seconds that
    all is expected to take (None: not estimated)."""

    rows: Mapping[str, int] = field(default_factory=dict)
    words: str = ""
    seconds: float | None = None

    def beside(self, seconds: float) -> str:
        """The estimate beside what it took, as a line; empty where nothing was estimated.

        >>> Plan(seconds=180).beside(192)
        'took 3.2 minutes; 3.0 were expected'
        """
        return (
            ""
            if self.seconds is None
            else f"took {seconds / 60:.1f} minutes; {self.seconds / 60:.1f} were expected"
        )


class Study(metaclass=Checked):
    """An experiment of several runs. Subclasses are dataclasses with their settings as fields."""

    settings_place: ClassVar[str] = "study"
    name: ClassVar[str]

    def plan(self, compose: Compose, measure: Callable[[DictConfig], Costs]) -> Plan:
        """Decide once what all members share; a resumed study keeps its plan. `compose`: changes to
        the command line → the configuration that it then gives; `measure` times a run's parts on a
        few batches."""
        return Plan()

    @abstractmethod
    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """Yield lists of members; `done` grows while they are carried out, and later stages may
        read it. The members of one stage do not need each other: they may run at the same time.

        Args:
            seed: the seed of the command line.
            model: name of the model that the command line describes.
        """


def without_learned_attention(model_class: str | None) -> str:
    """How a member differs that attends to everything alike: the examined layer of a whole model
    (`model_class`), or the attention of one of three stages (None)."""
    return "model/attention=uniform" if model_class is None else "model.given=uniform"


@dataclass(frozen=True)
class StudyReading:
    """What a finished study says: title and text of its part of the report; data and model of the
    base; its findings.

    Attributes:
        runs: directories of the runs whose own tests belong beside it, on a page about this study
            alone.
        readings: each finding in words, by the claim's name.
        tables: caption → table, ready to be shown; numbers as numbers.
        figures: (name, caption, figure).
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
    figures: list[tuple[str, str, Figure]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    answer: str = ""

    def add(self, claim: Claim, evidence: Evidence, words: str) -> None:
        self.findings.append(Finding(claim, evidence, self.data, self.model))
        self.readings[claim.name] = words


def find_studies(
    places: str | os.PathLike | Iterable[str | os.PathLike],
) -> tuple[list[StudyReading], list[UserError]]:
    """Every sound finished study at or below these directories or glob patterns, and what is wrong
    with the others."""
    studies = []
    skipped = []
    for directory in directories_with(STUDY, places):
        try:
            studies.append(read_study(directory))
        except UserError as error:
            skipped.append(error)
    return studies, skipped


def with_members(places: Sequence[str]) -> list[str]:
    """These places, and of a finished study's directory the runs that it lists; a damaged one of
    several adds nothing.

    Raises:
        DamagedRun: the only place is a damaged study.
    """
    found = [*places]
    for place in places:
        try:
            found += map(str, read_study(place).runs if (Path(place) / STUDY).exists() else ())
        except DamagedRun:
            if len(places) == 1:
                raise
    return found


def asked_of(config: DictConfig) -> str:
    """Stands for all settings of a command line but how much is shown; references in them are not
    followed."""
    content: dict[str, Any] = OmegaConf.to_container(config)  # type: ignore[assignment]
    return fingerprint({key: value for key, value in content.items() if key != "verbose"})


def asked_before(config: DictConfig) -> Path | None:
    """The finished study of these very settings, of files that are what they were: nothing is left
    to check or to do."""
    places = Path(f"{config.output}/{OmegaConf.select(config, 'data.name')}").glob(f"*/{STUDY}")
    for path in places if config.on_finished in (None, "skip") else ():
        with suppress(UserError, OSError):  # one that cannot be read is looked at member by member
            inputs = (content := read_sealed(path)).get("inputs", {})
            if (
                content.get("asked") == asked_of(config)
                and records_of({one: Path(one) for one in inputs}) == inputs
            ):
                return path.parent
    return None


def read_study(directory: str | os.PathLike) -> StudyReading:
    """One finished study.

    Raises:
        UserError: it is not finished, or nothing here knows how to read it.
        DamagedRun: its study.json or one of its runs is not as it was written.
    """
    directory = Path(directory)
    path = directory / STUDY
    if not path.exists():
        raise UserError(
            f"{directory} holds no finished study (no {STUDY}): start it again, it goes on where it was"
        )
    content = read_sealed(path)
    for member in content["members"]:
        run = RunDirectory(directory / member["directory"])
        if run.manifest().get("run_id") != member["run_id"]:
            raise damaged(run.path, f"{path} expects the run {member['run_id']} there")
        run.verify(run.shown_files())
    study = content["study"]
    installed = {entry.name: entry for entry in entry_points(group="attnprobe.studies")}
    if study not in READERS and study not in installed:
        raise UserError(
            f"{path} is of the study {study!r}: expected one of {', '.join(sorted([*READERS, *installed]))}"
        )
    try:
        read = (
            importlib.import_module(READERS[study]).read
            if study in READERS
            else installed[study].load()
        )
    except ModuleNotFoundError as error:
        if error.name != "research":
            raise
        raise UserError(
            f"{path} is of the study {study!r}, whose reading is in research/ of attnprobe's repository and not in an "
            f"installed package: read it in a checkout"
        ) from None
    with paper_style():  # the figures are made here
        return read(directory, content)
