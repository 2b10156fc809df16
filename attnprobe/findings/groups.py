"""The runs of a report, grouped by what may be pooled; their numbers are read on demand."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from attnprobe.core.errors import UserError
from attnprobe.findings.attention_mass import AttentionMass
from attnprobe.findings.quality import Quality, quality_of
from attnprobe.results.directory import Places, RunDirectory, sound_runs, warn_of
from attnprobe.results.files import DamagedRun
from attnprobe.results.fingerprint import flattened
from attnprobe.results.manifest import Manifest
from attnprobe.results.numbers import Numbers
from attnprobe.results.pivot import RUN

DOT = " · "
EXAMINED = "test"
MOST_DIFFERENCES = 3
"""Settings that a group's note names at most."""
OF_THE_SEED = ("seed", "teacher")
"""Settings that differ between the seeds of one model: each seed has its own teacher."""


@dataclass(frozen=True)
class Run:
    """A finished run, as the first of its numbers is filed.

    Attributes:
        directory: where it is.
        manifest: what it says of itself.
        numbers: of its tables, read on demand.
        run_id: tells it apart from all others.
        experiment: name of the experiment.
        data: name of the data set.
        model: name of the model.
        seed: of the training.
        split: of the probed examples.
    """

    directory: Path
    manifest: Manifest
    numbers: Numbers
    run_id: str
    experiment: str
    data: str
    model: str
    seed: int
    split: str

    @property
    def files(self) -> RunDirectory:
        """Its files."""
        return RunDirectory(self.directory)

    @cached_property
    def quality(self) -> Quality | None:
        """How its decisions compare with guessing; None where that cannot be said."""
        return quality_of(self.directory, self.split)

    @property
    def warning(self) -> str:
        """A sentence where it is no better than guessing; else empty."""
        return "" if self.quality is None else self.quality.warning

    @property
    def attention_on(self) -> str:
        """Where the attention is, if a reader must know it before a heat map; mostly empty."""
        return AttentionMass.recorded_in(self.manifest).in_words


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but the seed.

    Attributes:
        data: name of the data set.
        model: name of the model.
        note: what sets them apart from others of the same data set and model; empty where there are
            none.
        runs: a run per seed.
    """

    data: str
    model: str
    note: str
    runs: tuple[Run, ...]

    @property
    def title(self) -> str:
        """Data, model and note: unique in a report."""
        return DOT.join(part for part in (self.data, self.model, self.note) if part)

    @property
    def seeds(self) -> list[int]:
        """The runs' seeds, in order."""
        return sorted(run.seed for run in self.runs)

    @property
    def numbers(self) -> Numbers:
        """The numbers of all runs together."""
        return Numbers.together(run.numbers for run in self.runs)

    @property
    def guessing(self) -> str:
        """Why these runs are no better than guessing.

        Empty where each of them is better, or where that is not known.
        """
        for run in self.runs:
            quality = run.quality
            if quality is None or quality.better_than_guessing:
                continue
            reason = quality.in_short()
            if quality.only is not None:
                reason = f"it says {quality.only} of every text, {reason}"
            return f"seed {run.seed}: {reason}" if len(self.runs) > 1 else reason
        return ""


def read_runs(places: Places) -> list[Run]:
    """Every sound finished run at or below some places; a warning names the others.

    Args:
        places: directories, or glob patterns.

    Returns:
        The runs by data set, model and seed.

    Raises:
        UserError: no sound finished run there; two directories hold the same run; a run's tables
            hold no number.
    """
    runs, skipped = read_sound_runs(places)
    warn_of(skipped)
    return runs


def read_sound_runs(places: Places) -> tuple[list[Run], list[DamagedRun]]:
    """As `read_runs`: the sound runs, and what is wrong with those that were left out."""
    runs: list[Run] = []

    def read(run: RunDirectory) -> None:
        run.verify(run.shown_files())
        runs.append(read_run(run.path))

    _, skipped = sound_runs(places, read)
    first_of_id: dict[str, Run] = {}
    for run in runs:
        first = first_of_id.setdefault(run.run_id, run)
        if first is not run:
            raise UserError(
                f"run {run.run_id} is there twice, in {first.directory} and {run.directory}: the "
                f"same training. Name one of the two, for example "
                f"`attnprobe report {run.directory}`"
            )
    return sorted(runs, key=lambda run: (run.data, run.model, run.seed, run.run_id)), skipped


def read_run(directory: Path) -> Run:
    """One finished run.

    Raises:
        UserError: its tables hold no number.
        DamagedRun: a table lacks a column that its readers ask for, or it holds something else.
    """
    run = RunDirectory(directory)
    run.check_columns(run.shown_files())
    numbers = Numbers.of([run])
    if not numbers.runs:
        raise UserError(
            f"the tables of {directory} hold no number: leave it out of the report, or probe it "
            "again"
        )
    identity = {name: str(numbers.runs[0][name]) for name in RUN}
    return Run(
        directory=directory,
        manifest=run.manifest(),
        numbers=numbers,
        run_id=identity["run_id"],
        experiment=identity["experiment"],
        data=identity["data"],
        model=identity["model"],
        seed=int(identity["seed"]),
        split=numbers.split or EXAMINED,
    )


def grouped(runs: Sequence[Run]) -> list[Group]:
    """The runs in groups: one per data set, model and settings, in which only the seed differs."""
    groups = []
    for data, model in dict.fromkeys((run.data, run.model) for run in runs):
        alike = [run for run in runs if (run.data, run.model) == (data, model)]
        notes = _notes(alike)
        for note in dict.fromkeys(notes):
            members = [run for run, run_note in zip(alike, notes, strict=True) if run_note == note]
            groups.append(Group(data, model, note, tuple(members)))
    return groups


def _notes(runs: Sequence[Run]) -> list[str]:
    """What sets the runs of one data set and model apart, a note per run.

    It is the settings in which they differ, such as `training.epochs=8`. Where these do not tell
    two runs of one seed apart, it is the experiment; and where that does not either, the end of
    the run's id.
    """
    settings = _differing_settings(runs)
    experiments = [run.experiment for run in runs]
    for notes in (settings, experiments):
        identities = {(run.seed, run.split, note) for run, note in zip(runs, notes, strict=True)}
        if len(identities) == len(runs):
            return notes
    return [re.sub(r"^.*-seed\d+-", "", run.run_id) for run in runs]


def _differing_settings(runs: Sequence[Run]) -> list[str]:
    settings = [flattened(run.manifest.get("training", {})) for run in runs]
    differing = []
    for name in settings[0]:
        # a setting that one version wrote and another did not know is no difference that anybody
        # chose
        is_known = all(name in values for values in settings)
        if name in OF_THE_SEED or not is_known:
            continue
        if len({repr(values[name]) for values in settings}) > 1:
            differing.append(name)
    parts: list[list[str]] = [[] for _ in runs]
    for name in differing[:MOST_DIFFERENCES]:
        texts = _without_folders([values[name] for values in settings])
        for parts_of_run, text in zip(parts, texts, strict=True):
            parts_of_run.append(f"{name}={text}")
    return [", ".join(parts_of_run) for parts_of_run in parts]


def _without_folders(values: Sequence[Any]) -> list[str]:
    """A setting's values; of whole paths the last part alone, where that tells them apart."""
    texts = [str(value) for value in values]
    names = [Path(text).name if Path(text).is_absolute() else text for text in texts]
    return names if len(set(names)) == len(set(texts)) else texts
