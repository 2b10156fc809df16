"""From the long table to what a panel shows: one wide row per example, panels per data set and model, bins."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Int

from attnprobe.errors import UserError
from attnprobe.results.schema import IDENTITY
from attnprobe.results.statistics import interval

RUN = tuple(name for name in IDENTITY if name != "probe")
CLASSES = "classes"
"""Key of a table's `attrs` with the names of its runs' classes."""
MAX_ATTENTION_EDGES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
MAX_ATTENTION_BINS = ("[0, .25)", "[.25, .5)", "[.5, .75)", "[.75, 1]")
"""The bins of Jain & Wallace's figures 6 to 9; the last one is closed."""


@dataclass(frozen=True)
class Facet:
    """One panel's examples: a wide table with one row per example and a column per metric."""

    title: str
    rows: pd.DataFrame


def per_example(results: pd.DataFrame, probe: str, metrics: Sequence[str]) -> pd.DataFrame:
    """One row per run and example, one column per metric (NaN where a metric is absent); numbers with a step and
    numbers of the whole split are left out.

    Raises:
        UserError: two directories hold the same run, so that an example has two values of one metric.
    """
    of_probe = ((results["probe"] == probe) & results["step"].isna() & (results["example_id"] >= 0)).to_numpy()
    example_id, value = results["example_id"].to_numpy(), results["value"].to_numpy()
    of_runs: dict[tuple[int | str, ...], dict[str, pd.Series[float]]] = {}
    # metric by metric and run by run: at no time is there a second copy of the whole table
    for metric in dict.fromkeys(metrics):
        for key, rows in by_run(results, np.flatnonzero(of_probe & (results["metric"] == metric).to_numpy())):
            column = pd.Series(value[rows], example_id[rows])
            if column.index.has_duplicates:
                raise UserError(
                    f"run {key[0]} is there twice: the same training, probed in two directories. "
                    f"Name one of the two, or give each its own experiment"
                )
            of_runs.setdefault(key, {})[metric] = column
    parts = []
    for key in sorted(of_runs):
        wide = (
            pd.DataFrame(of_runs.pop(key))
            .sort_index()
            .reindex(columns=list(metrics))
            .rename_axis(index="example_id")
            .reset_index()
        )
        for place, name in enumerate(RUN):
            wide.insert(place, name, key[place])
        parts.append(wide)
    wide = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*RUN, "example_id", *metrics])
    wide.attrs = dict(results.attrs)
    return wide


def by_run(
    results: pd.DataFrame, rows: Int[np.ndarray, " rows"]
) -> Iterator[tuple[tuple[int | str, ...], Int[np.ndarray, " some"]]]:
    """The rows of each run that they are of, with what identifies it (`RUN`)."""
    number = np.zeros(len(rows), np.int64)
    for name in RUN:
        codes, names = pd.factorize(results[name].iloc[rows], use_na_sentinel=False)
        number = number * len(names) + codes
    for one in pd.unique(number):
        own = rows[number == one]
        yield tuple(_plain(results[name].iloc[own[0]]) for name in RUN), own


def _plain(name: object) -> int | str:
    return int(name) if isinstance(name, int | np.integer) else str(name)


def facets(rows: pd.DataFrame) -> list[Facet]:
    """Split wide rows into panels: one per data set and model, seeds pooled.

    Runs that differ in more than the seed (another experiment, split, or setting) are never pooled: those words join
    the panel's title, and where even they do not tell two runs of one seed apart, the run's id does.
    """
    keys = ["data", "model"]
    keys += [name for name in ("experiment", "split") if rows[name].nunique() > 1]
    if (rows.groupby([*keys, "seed"])["run_id"].nunique() > 1).any():
        keys.append("run_id")
    panels = []
    for key, part in rows.groupby(keys, sort=True):
        seeds = part["seed"].nunique()
        words = [str(word) for word in key] + ([f"{seeds} seeds"] if seeds > 1 else [])
        panel = part.reset_index(drop=True)
        panel.attrs = dict(rows.attrs)
        panels.append(Facet(" · ".join(words), panel))
    return panels


def max_attention_bin(max_attention: np.ndarray) -> np.ndarray:
    """Bin number 0 to 3 of every example's largest attention weight `[examples]`; the weight 1 is in the last bin.

    >>> max_attention_bin(np.array([0.0, 0.25, 0.7499, 1.0]))
    array([0, 1, 2, 3])
    """
    return np.clip(np.digitize(max_attention, MAX_ATTENTION_EDGES) - 1, 0, len(MAX_ATTENTION_BINS) - 1)


def split_by_class(rows: pd.DataFrame, most: int) -> list[tuple[str, pd.DataFrame]]:
    """(name, rows) per predicted class; everything as one group where the classes are more than `most` or unknown.

    A class is called by its name where the table says what its runs' classes are (`named`), else `class 1`. Names that look
    alike as they are drawn (too long, or in a script that no font has) keep their number: `1: □□`.
    """
    predicted = rows["predicted_class"]
    classes = sorted(predicted.dropna().unique())
    if not classes or len(classes) > most or predicted.isna().any():
        return [(f"all {len(classes)} classes" if len(classes) > most else "all examples", rows)]
    names = rows.attrs.get(CLASSES, [])
    alike = len({name.strip() for name in names}) < len(names) or not all(name.strip() for name in names)

    def called(number: int) -> str:
        if not names:
            return f"class {number}"
        return f"{number}: {names[number]}" if alike else str(names[number])

    return [(called(int(number)), rows[predicted == number]) for number in classes]


def class_of(group: str, names: Sequence[str]) -> str:
    """A predicted class of a table of headline numbers by its name, where the run says it.

    >>> class_of("class_1", ["bad", "good"]), class_of("class_1", [])
    ('good', 'class 1')
    """
    return str(names[int(group.removeprefix("class_"))]) if names else group.replace("_", " ")


def named(results: pd.DataFrame, classes: Sequence[Sequence[str]]) -> pd.DataFrame:
    """The same table, its panels' classes called by name, if all its runs have the same classes: a figure has one legend.

    Args:
        results: the long table of some runs.
        classes: the names of the classes of each run; empty where they are not known or must not be shown.
    """
    result = results.copy(deep=False)
    result.attrs = with_classes(results.attrs, classes)
    return result


def with_classes(attrs: Mapping[Any, Any], classes: Sequence[Sequence[str]]) -> dict[Any, Any]:
    """The `attrs` of a table (see `named`)."""
    alike = len({tuple(names) for names in classes}) == 1 and classes[0]
    kept = {key: value for key, value in attrs.items() if key != CLASSES}
    return kept | ({CLASSES: list(classes[0])} if alike else {})


def mean_in_columns(name: str, values: np.ndarray) -> dict[str, float]:
    """The examples' mean and its 95 % bootstrap interval, as three columns of a table: `name`, `name, low`, `name, high`."""
    return dict(zip((name, f"{name}, low", f"{name}, high"), interval(values), strict=True))
