"""The runs of a report, grouped by what may be pooled; their numbers are read when they are asked
for."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from attnprobe.core.errors import UserError
from attnprobe.findings.quality import Quality, quality_of
from attnprobe.results.directory import RunDirectory, sound_runs, warn_of
from attnprobe.results.files import DamagedRun
from attnprobe.results.fingerprint import flattened
from attnprobe.results.numbers import Numbers
from attnprobe.results.pivot import RUN

DOT = " · "
EXAMINED = "test"
MOST_DIFFERENCES = 3
MOSTLY = 0.5
"""Share of the attention from which a reader is told where it is."""
OF_THE_SEED = ("seed", "teacher")
"""Settings that differ between the seeds of one model: each seed has its own teacher."""


@dataclass(frozen=True)
class Run:
    """A finished run, as the first of its numbers is filed. `numbers` are read when they are asked
    for; `split` is that of the probed examples."""

    directory: Path
    manifest: Mapping[str, Any]
    numbers: Numbers
    run_id: str
    experiment: str
    data: str
    model: str
    seed: int
    split: str

    @property
    def files(self) -> RunDirectory:
        return RunDirectory(self.directory)

    @cached_property
    def quality(self) -> Quality | None:
        return quality_of(self.directory, self.split)

    @property
    def warning(self) -> str:
        return "" if self.quality is None else self.quality.warning

    @property
    def attention_on(self) -> str:
        """Where the rows behind the attention have their weight, if a reader must know it before a
        heat map: of a pair, or if most is on no word of the text, or most of the rest on its first
        word; mostly empty."""
        told = self.manifest.get("attention_on")
        shares = (
            {name: one for name, one in told.items() if isinstance(one, float)}
            if isinstance(told, dict)
            else {}
        )
        special = shares.get("special_mass", 0.0)
        on_words = 1 - shares.get("special_mass", 0.0)
        said = []
        if special >= MOSTLY:
            said.append(
                f"on average {special:.0%} of the attention is on no word of the text ({shares.get('start_mass', 0.0):.0%} "
                f"on the first piece that the model reads): the weights that are shown share out the rest"
            )
        if on_words > 0 and (first := shares.get("first_word_mass", 0.0) / on_words) >= MOSTLY:
            said.append(
                f"{first:.0%} of what is on words is on the first one, which may take it whatever it is"
            )
        if on_words > 0 and "second_mass" in shares:
            said.append(
                f"{shares['second_mass'] / on_words:.0%} of what is on words is on the second text of the pair"
            )
        return "; ".join(said)


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but the seed. `note` says what sets them apart from others of the
    same data set and model; empty where there are none."""

    data: str
    model: str
    note: str
    runs: tuple[Run, ...]

    @property
    def title(self) -> str:
        return DOT.join(part for part in (self.data, self.model, self.note) if part)

    @property
    def seeds(self) -> list[int]:
        return sorted(run.seed for run in self.runs)

    @property
    def numbers(self) -> Numbers:
        """The numbers of all runs together."""
        return Numbers.together(run.numbers for run in self.runs)

    @property
    def guessing(self) -> str:
        """Why these runs are no better than guessing.

        Returns:
            Empty where each of them is better, or where it is not known.
        """
        for run in self.runs:
            quality = run.quality
            if quality is not None and not quality.better_than_guessing:
                seed = f"seed {run.seed}: " if len(self.runs) > 1 else ""
                habit = "" if quality.only is None else f"it says {quality.only} of every text, "
                return f"{seed}{habit}{quality.in_short}"
        return ""


def read_runs(places: Any) -> list[Run]:
    """Every sound finished run at or below the places, by data set, model and seed; a warning names
    the others.

    Raises:
        UserError: no sound finished run there; two directories hold the same run; a run's tables
            hold no number.
    """
    runs, skipped = read_sound_runs(places)
    warn_of(skipped)
    return runs


def read_sound_runs(places: Any) -> tuple[list[Run], list[DamagedRun]]:
    """As `read_runs`: the sound runs, and what is wrong with those that were left out."""
    runs: list[Run] = []

    def read(run: RunDirectory) -> None:
        run.verify(run.shown_files())
        runs.append(read_run(run.path))

    _, skipped = sound_runs(places, read)
    seen: dict[str, Run] = {}
    for run in runs:
        other = seen.setdefault(run.run_id, run)
        if other is not run:
            raise UserError(
                f"run {run.run_id} is there twice, in {other.directory} and {run.directory}: the same training. Name one "
                f"of the two, for example `attnprobe report {run.directory}`"
            )
    return sorted(runs, key=lambda run: (run.data, run.model, run.seed, run.run_id)), skipped


def read_run(directory: Path) -> Run:
    """One finished run; a `UserError` where its tables hold no number."""
    run = RunDirectory(directory)
    numbers = Numbers.of([run])
    if not numbers.runs:
        raise UserError(
            f"the tables of {directory} hold no number: leave it out of the report, or probe it again"
        )
    identity = {name: str(numbers.runs[0][name]) for name in RUN}
    named = identity | {"seed": int(identity["seed"]), "split": numbers.split or EXAMINED}
    return Run(directory, run.manifest(), numbers, **named)  # type: ignore[arg-type]


def grouped(runs: Sequence[Run]) -> list[Group]:
    """The runs in groups: one per data set, model and settings, in which only the seed differs.

    A note sets those of one data set and model apart: the settings in which they differ,
    `training.epochs=8`; else the experiment; the end of the run's id where neither tells two runs
    of one seed apart."""
    groups = []
    for data, model in dict.fromkeys((run.data, run.model) for run in runs):
        alike = [run for run in runs if (run.data, run.model) == (data, model)]
        settings = [flattened(run.manifest.get("training", {})) for run in alike]
        # a setting that one version wrote and another did not know is no difference that anybody
        # chose
        known = [
            name
            for name in settings[0]
            if name not in OF_THE_SEED and all(name in one for one in settings)
        ]
        told_apart = [name for name in known if len({repr(one[name]) for one in settings}) > 1][
            :MOST_DIFFERENCES
        ]
        notes = [", ".join(f"{name}={one[name]}" for name in told_apart) for one in settings]
        for other in (
            [run.experiment for run in alike],
            [re.sub(r"^.*-seed\d+-", "", run.run_id) for run in alike],
        ):
            if len(
                {(run.seed, run.split, note) for run, note in zip(alike, notes, strict=True)}
            ) < len(alike):
                notes = other
        groups += [
            Group(
                data,
                model,
                note,
                tuple(run for run, own in zip(alike, notes, strict=True) if own == note),
            )
            for note in dict.fromkeys(notes)
        ]
    return groups
