"""From the long table to what a panel shows: one wide row per example, panels per data set and
model, bins."""

from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int

from attnprobe.core.errors import UserError
from attnprobe.results.directory import IDENTITY

RUN = tuple(name for name in IDENTITY if name != "probe")
Key = tuple[int | str, ...]
"""What identifies a run: its values of `RUN`."""
CLASSES = "classes"
"""Key of a table's `attrs` with the names of its runs' classes."""
REPEATS = "repeats"
"""Key of a table's `attrs` with the examples of each run whose text an earlier one has
(`attnprobe.results.table`)."""
ASKED = "asked"
"""Key of a table's `attrs` with the examples of each run that ask something else of an earlier text
→ its first."""
MAX_ATTENTION_EDGES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
MAX_ATTENTION_BINS = ("[0, .25)", "[.25, .5)", "[.5, .75)", "[.75, 1]")
"""The bins of Jain & Wallace's figures 6 to 9; the last one is closed."""


@dataclass(frozen=True)
class Facet:
    """One panel's examples: a wide table with one row per example and a column per metric."""

    title: str
    rows: pd.DataFrame


def distinct(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each text once: those of its repeats are left out, as they are no further
    observations."""
    for run, examples in rows.attrs.get(REPEATS, {}).items():
        rows = rows[~((rows["run_id"] == run) & rows["example_id"].isin(examples))]
    return rows


def text_of(rows: pd.DataFrame) -> Int[np.ndarray, " rows"]:
    """The example that stands for each row's text: several questions about one text (the steps of
    one transduction) are no more independent than several seeds."""
    texts = rows["example_id"].to_numpy().copy()
    for run, first in rows.attrs.get(ASKED, {}).items():
        own = (rows["run_id"] == run).to_numpy()
        texts[own] = [first.get(one, one) for one in texts[own].tolist()]
    return texts


def per_example(results: pd.DataFrame, probe: str, metrics: Sequence[str]) -> pd.DataFrame:
    """One row per run and distinct text of a long table, one column per metric of a probe (NaN
    where it is absent); numbers with a step and numbers of the whole split are left out. Of
    repeated texts the first one's row stands for all.

    Raises:
        UserError: two directories hold the same run, so that an example has two values of one
            metric.
    """
    wanted = (
        (results["probe"] == probe)
        & results["metric"].isin(list(metrics))
        & (results["example_id"] >= 0)
    )
    rows = distinct(results[wanted & results["step"].isna()])
    parts = []
    for key, own in sorted(by_run(rows), key=lambda pair: pair[0]):
        columns = {}
        for metric, part in own.groupby("metric", observed=True):
            columns[str(metric)] = pd.Series(
                part["value"].to_numpy(), part["example_id"].to_numpy()
            )
            if columns[str(metric)].index.has_duplicates:
                raise UserError(
                    f"run {key[0]} is there twice: the same training, probed in two directories. "
                    f"Name one of the two, or give each its own experiment"
                )
        wide = (
            pd.DataFrame(columns)
            .sort_index()
            .reindex(columns=list(metrics))
            .reset_index(names="example_id")
        )
        parts.append(wide.assign(**dict(zip(RUN, key, strict=True))))
    names = [*RUN, "example_id", *metrics]
    together = pd.concat(parts, ignore_index=True)[names] if parts else pd.DataFrame(columns=names)
    together.attrs = dict(results.attrs)
    return together


def by_run(rows: pd.DataFrame) -> Iterator[tuple[Key, pd.DataFrame]]:
    """The rows of each run, with what identifies it (`RUN`)."""
    for key, own in rows.groupby(list(RUN), observed=True, sort=False):
        yield tuple(int(one) if isinstance(one, int | np.integer) else str(one) for one in key), own


def metrics_there(results: pd.DataFrame, probe: str) -> set[str]:
    """The metrics of a probe that there are numbers of."""
    return {str(name) for name in results.loc[results["probe"] == probe, "metric"].unique()}


def facets(rows: pd.DataFrame) -> list[Facet]:
    """Split wide rows into panels: one per data set and model, seeds pooled.

    Runs that differ in more than the seed (another experiment, split, or setting) are never pooled:
    those words join the panel's title, and where even they do not tell two runs of one seed apart,
    the run's id does."""
    runs = rows[list(RUN)].drop_duplicates()
    keys = ["data", "model"]
    keys += [name for name in ("experiment", "split") if runs[name].nunique() > 1]
    if (runs.groupby([*keys, "seed"], observed=True)["run_id"].nunique() > 1).any():
        keys.append("run_id")
    panels = []
    for key, own in runs.groupby(keys, sort=True, observed=True):
        alike = [(rows[name] == one).to_numpy() for name, one in zip(keys, key, strict=True)]
        seeds = own["seed"].nunique()
        words = [str(word) for word in key] + ([f"{seeds} seeds"] if seeds > 1 else [])
        panel = rows[np.logical_and.reduce(alike)].reset_index(drop=True)
        panel.attrs = dict(rows.attrs)
        panels.append(Facet(" · ".join(words), panel))
    return panels


def max_attention_bin(max_attention: np.ndarray) -> np.ndarray:
    """Bin number 0 to 3 of every example's largest attention weight `[examples]`; the weight 1 is
    in the last bin.

    >>> max_attention_bin(np.array([0.0, 0.25, 0.7499, 1.0]))
    array([0, 1, 2, 3])
    """
    return np.clip(
        np.digitize(max_attention, MAX_ATTENTION_EDGES) - 1, 0, len(MAX_ATTENTION_BINS) - 1
    )


def split_by_class(rows: pd.DataFrame, most: int) -> list[tuple[str, pd.DataFrame]]:
    """(name, rows) per predicted class; everything as one group where the classes are more than
    `most` or unknown. Classes are called by name where the table says so (`named`), with their
    number where names look alike as they are drawn."""
    predicted = rows["predicted_class"]
    classes = sorted(predicted.dropna().unique())
    if not classes or len(classes) > most or predicted.isna().any():
        return [(f"all {len(classes)} classes" if len(classes) > most else "all examples", rows)]
    names = rows.attrs.get(CLASSES, [])
    if len({name.strip() for name in names} - {""}) < len(names):
        names = [f"{number}: {name}" for number, name in enumerate(names)]
    called = {
        number: str(names[int(number)]) if names else f"class {int(number)}" for number in classes
    }
    return [(name, rows[predicted == number]) for number, name in called.items()]


def class_of(group: str, names: Sequence[str]) -> str:
    """A predicted class of a table of headline numbers by its name, where the run says it.

    >>> class_of("class_1", ["bad", "good"]), class_of("class_1", [])
    ('good', 'class 1')
    """
    return str(names[int(group.removeprefix("class_"))]) if names else group.replace("_", " ")


def named(results: Any, classes: Sequence[Sequence[str]]) -> Any:
    """The same numbers (a long table, or `attnprobe.results.numbers.Numbers`), their classes called
    by name if all runs have the same: a figure has one legend. `classes`: the names of each run's;
    empty where they are not known or must not be shown."""
    alike = len({tuple(names) for names in classes}) == 1
    result = copy(results)
    result.attrs = results.attrs | {CLASSES: list(classes[0]) if alike else []}
    return result
