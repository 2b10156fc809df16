"""What the page says of the runs themselves: how they were made, of which data, and what to know of their classifiers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from attnprobe.report.page.formats import number
from attnprobe.report.page.runs import Group, Run
from attnprobe.report.quality import quality_of
from attnprobe.report.terminal import data_notes
from attnprobe.results.statements import SECTION


@dataclass(frozen=True)
class RunRow:
    """A line of the table of runs: one group. `span` is accuracy's interval, or its range over the seeds."""

    data: str
    model: str
    note: str
    seeds: str
    examples: int
    accuracy: float
    span: str
    probes: list[str]
    finished: str


def lead(groups: Sequence[Group]) -> str:
    """What the page is about, in two sentences.

    Args:
        groups: those whose attention was tested; what they were only compared with, such as uniform attention, is not a model
            of which anything is asked.
    """
    data = list(dict.fromkeys(group.data for group in groups))
    models = list(dict.fromkeys(group.model for group in groups))
    where = (
        f"{groups[0].title}"
        if len(groups) == 1
        else f"{len(models)} model{_s(models)} on {len(data)} data set{_s(data)}"
    )
    return (
        f"Published tests of that question, run on {where}. Each asks one thing; the answer is a number, its 95 % interval, "
        f"and a verdict that says no more than the interval does."
    )


def _s(things: Sequence[object]) -> str:
    return "" if len(things) == 1 else "s"


def run_row(group: Group, compared: pd.DataFrame) -> RunRow:
    """One line of the table of runs."""
    ids = [run.run_id for run in group.runs]
    accuracy = compared["metric"].isin(["accuracy", "exact_match"]) & (compared["group"] == "overall")
    own = compared[compared["run_id"].isin(ids) & accuracy]
    values = own["mean"].to_numpy(float)
    span = ""
    if len(own) > 1:
        span = f"({number(values.min())} to {number(values.max())})"
    elif len(own) == 1 and not np.isnan(own["low"].iloc[0]):
        span = f"[{number(own['low'].iloc[0])}, {number(own['high'].iloc[0])}]"
    finished = sorted(str(run.manifest.get("finished", ""))[:10] for run in group.runs)
    probes = dict.fromkeys(probe for run in group.runs for probe in run.probes)
    return RunRow(
        data=group.data,
        model=group.model,
        note=group.note,
        seeds=", ".join(map(str, group.seeds)),
        examples=int(own["n"].max()) if len(own) else 0,
        accuracy=float(values.mean()) if len(values) else float("nan"),
        span=span,
        probes=[probe for probe in probes if probe not in ("performance", "training")],
        finished=finished[-1],
    )


def warnings_of(group: Group) -> list[str]:
    """What a reader must know of a group's classifiers before any verdict; each seed's once."""
    warnings = []
    for run in group.runs:
        measured = quality_of(run.directory, run.split)
        if measured is not None and measured.warning:
            seed = f" (seed {run.seed})" if len(group.runs) > 1 else ""
            warnings.append(measured.warning + seed)
    return warnings


def versions(runs: Sequence[Run]) -> list[str]:
    """Every library with the version that the runs were made with, several where they differ."""
    by_library: dict[str, list[str]] = {}
    for run in runs:
        for library, used in run.manifest.get("versions", {}).items():
            if used not in by_library.setdefault(str(library), []):
                by_library[str(library)].append(str(used))
    return [f"{library} {' or '.join(used)}" for library, used in by_library.items()]


def notes_of_data(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """For each data set what was left out of it or cut; the runs of one data set that differ are told apart."""
    by_data: dict[str, dict[tuple[str, ...], list[str]]] = {}
    for run in runs:
        notes = tuple(data_notes(run.manifest.get("counts", {})))
        by_data.setdefault(run.data, {}).setdefault(notes, []).append(run.model)
    return [
        (data if len(kinds) == 1 else f"{data} ({', '.join(dict.fromkeys(models))})", list(notes))
        for data, kinds in by_data.items()
        for notes, models in kinds.items()
    ]


def data_checks(runs: Sequence[Run]) -> list[tuple[str, list[str], list[dict[str, Any]]]]:
    """For each data set what was guessed while reading and looked at before training, by the first run that says so."""
    sections: dict[str, tuple[str, list[str], list[dict[str, Any]]]] = {}
    for run in runs:
        section = run.manifest.get(SECTION, {})
        if section.get("checks"):
            sections.setdefault(run.data, (run.data, list(section.get("notes", [])), list(section["checks"])))
    return list(sections.values())
