"""The runs of a report: read once, the numbers apart from the weights per position, grouped by what may be pooled."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.errors import UserError
from attnprobe.results.checksums import DamagedRun
from attnprobe.results.directory import RunDirectory, sound_runs, warn_of
from attnprobe.results.fingerprint import flattened
from attnprobe.results.table import IMPORTANCES, told

DOT = " · "
POSITIONS = (
    ("adversarial", "found_attention"),
    ("adversarial", "optimum_attention"),
    ("gradient", "gradient"),
    ("gradient", "gradient_through_attention"),
    ("gradient", "hidden_gradient"),
    ("gradient", "hidden_gradient_through_attention"),
    ("gradient", "attention_gradient"),
    ("leave_one_out", "leave_one_out"),
    ("single_weight", "effect_js"),
    ("single_weight", "effect_flip"),
    ("erasure", "smallest_set"),
)
"""(probe, metric) with a number per position. Only the browser reads them, run by run: of 25,000 texts of 200 words they
would fill the memory many times over."""
EXAMINED = "test"
"""The split of a run without probes."""
MOST_DIFFERENCES = 3
OF_THE_SEED = ("seed", "teacher")
"""Settings that differ between the seeds of one model: each seed has its own teacher."""


@dataclass(frozen=True)
class Run:
    """A finished run; `numbers` is its long table without `POSITIONS`, in the order of the manifest's probes."""

    directory: Path
    manifest: Mapping[str, Any]
    numbers: pd.DataFrame

    @property
    def run_id(self) -> str:
        """Its name, unique among the runs of a report."""
        return str(self.numbers["run_id"].iloc[0])

    @property
    def data(self) -> str:
        """The data set's name."""
        return str(self.numbers["data"].iloc[0])

    @property
    def model(self) -> str:
        """The model's name."""
        return str(self.numbers["model"].iloc[0])

    @property
    def seed(self) -> int:
        """The seed of training and probes."""
        return int(self.numbers["seed"].iloc[0])

    @property
    def split(self) -> str:
        """The split whose examples were probed: training curves are of another one."""
        of_examples = self.numbers.loc[self.numbers["example_id"] >= 0, "split"]
        return str(of_examples.iloc[0]) if len(of_examples) else EXAMINED

    @property
    def probes(self) -> list[str]:
        """The probes that it has numbers of."""
        return [str(probe) for probe in self.numbers["probe"].unique()]


@dataclass(frozen=True)
class Group:
    """Runs that differ in nothing but the seed. `note` says what sets them apart from others of the same data set and
    model; empty where there are none."""

    data: str
    model: str
    note: str
    runs: tuple[Run, ...]

    @property
    def title(self) -> str:
        """Data set, model and note."""
        return DOT.join(part for part in (self.data, self.model, self.note) if part)

    @property
    def seeds(self) -> list[int]:
        """Small first."""
        return sorted(run.seed for run in self.runs)

    @property
    def numbers(self) -> pd.DataFrame:
        """The runs' long tables together."""
        return together(self.runs)


def read_runs(places: Any) -> list[Run]:
    """Every sound finished run at or below the places, by data set, model and seed; a warning names the others.

    Raises:
        UserError: no sound finished run there; two directories hold the same run; a run's tables hold no number.
    """
    runs, skipped = read_sound_runs(places)
    warn_of(skipped)
    return runs


def read_sound_runs(places: Any) -> tuple[list[Run], list[DamagedRun]]:
    """As `read_runs`: the sound runs, and what is wrong with those that were left out."""
    found, skipped = sound_runs(places, lambda run: run.verify(run.shown_files()))
    runs = [read_run(directory) for directory in found]
    seen: dict[str, Run] = {}
    for run in runs:
        other = seen.setdefault(run.run_id, run)
        if other is not run:
            raise UserError(
                f"run {run.run_id} is there twice, in {other.directory} and {run.directory}: the same training. Name one "
                f"of the two, for example `python -m attnprobe.report {run.directory}`"
            )
    return sorted(runs, key=lambda run: (run.data, run.model, run.seed, run.run_id)), skipped


def read_run(directory: Path) -> Run:
    """One finished run."""
    run = RunDirectory(directory)
    manifest, parts = run.manifest(), []
    for probe in manifest["tables"]:
        table = run.table(probe).to_pandas()
        dropped = [metric for owner, metric in POSITIONS if owner == probe]
        parts.append(table[~table["metric"].isin(dropped)] if dropped else table)
    if not any(len(part) for part in parts):
        raise UserError(f"the tables of {directory} hold no number: leave it out of the report, or probe it again")
    return Run(directory, manifest, _one(parts))


def together(runs: Sequence[Run]) -> pd.DataFrame:
    """The runs' long tables as one."""
    numbers = _one([run.numbers for run in runs]).copy(deep=False)
    numbers.attrs[IMPORTANCES] = told(run.manifest for run in runs)
    return numbers


def _one(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Long tables below each other; text columns stay categories."""
    tables = [table for table in tables if len(table)]
    if len(tables) == 1:
        return tables[0]
    columns = {}
    for name in tables[0].columns:
        parts = [table[name] for table in tables]
        columns[name] = (
            pd.api.types.union_categoricals(
                [part.cat.remove_unused_categories() for part in parts], sort_categories=True
            )
            if isinstance(parts[0].dtype, pd.CategoricalDtype)
            else np.concatenate([part.to_numpy() for part in parts])
        )
    return pd.DataFrame(columns)


def grouped(runs: Sequence[Run]) -> list[Group]:
    """The runs in groups: one per data set, model and settings, in which only the seed differs."""
    groups = []
    for data, model in dict.fromkeys((run.data, run.model) for run in runs):
        alike = [run for run in runs if (run.data, run.model) == (data, model)]
        noted = notes(alike)
        groups += [
            Group(data, model, note, tuple(run for run, own in zip(alike, noted, strict=True) if own == note))
            for note in dict.fromkeys(noted)
        ]
    return groups


def notes(runs: Sequence[Run]) -> list[str]:
    """What sets each of these runs of one data set and model apart, the seed left aside.

    The settings in which they differ, `training.epochs=8`; else the experiment; the end of the run's id where neither
    tells two runs of one seed apart. All empty where they differ in nothing but the seed.
    """
    settings = [flattened(run.manifest.get("training", {})) for run in runs]
    # a setting that one version wrote and another did not know is no difference that anybody chose
    known = [name for name in settings[0] if name not in OF_THE_SEED and all(name in one for one in settings)]
    told_apart = [name for name in known if len({repr(one[name]) for one in settings}) > 1][:MOST_DIFFERENCES]
    found = [", ".join(f"{name}={one[name]}" for name in told_apart) for one in settings]
    experiments = [str(run.numbers["experiment"].iloc[0]) for run in runs]
    for noted in (found, experiments):
        if len({(run.seed, run.split, note) for run, note in zip(runs, noted, strict=True)}) == len(runs):
            return noted
    return [re.sub(r"^.*-seed\d+-", "", run.run_id) for run in runs]
