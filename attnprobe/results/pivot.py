"""From the long table to what a panel shows.

One wide row per example, panels per data set and model, bins.
"""

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
(`attnprobe.results.table.repeats_of`)."""
ASKED = "asked"
"""Key of a table's `attrs` with the examples of each run that ask something else of an earlier text
→ its first (`attnprobe.results.table.first_of_text`)."""
ASKED_LABELS = "asked_labels"
"""Key of a table's `attrs` with the label that each example of a run asks for, where rows are texts
and labels (`attnprobe.results.table.asked_labels`)."""
MAX_ATTENTION_EDGES = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
MAX_ATTENTION_BINS = ("[0, .25)", "[.25, .5)", "[.5, .75)", "[.75, 1]")
"""The bins of Jain & Wallace's figures 6 to 9; the last one is closed."""


@dataclass(frozen=True)
class Facet:
    """One panel's examples: a wide table with one row per example and a column per metric."""

    title: str
    rows: pd.DataFrame


def distinct(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of each text once: repeats are no further observations."""
    run_ids = set(rows["run_id"].unique())
    for run, examples in rows.attrs.get(REPEATS, {}).items():
        if run in run_ids:
            rows = rows[~((rows["run_id"] == run) & rows["example_id"].isin(examples))]
    return rows


def text_of(rows: pd.DataFrame) -> Int[np.ndarray, " rows"]:
    """The example that stands for each row's text.

    Several questions about one text (the steps of one transduction) are no more independent than
    several seeds.
    """
    texts = rows["example_id"].to_numpy().copy()
    for run, first_texts in rows.attrs.get(ASKED, {}).items():
        is_of_run = (rows["run_id"] == run).to_numpy()
        examples = texts[is_of_run].tolist()
        texts[is_of_run] = [first_texts.get(str(example), example) for example in examples]
    return texts


def text_by_example(rows: pd.DataFrame) -> "pd.Series[int]":
    """Each example of these rows → the example that stands for its text (`text_of`)."""
    texts = pd.Series(text_of(rows), rows["example_id"])
    return texts[~texts.index.duplicated()]


def label_of(rows: pd.DataFrame) -> "np.ndarray | None":
    """The name of the label that each row asks for; None where rows ask for no labels."""
    labels = rows.attrs.get(ASKED_LABELS, {})
    if not labels:
        return None
    keys = zip(rows["run_id"].astype(str), rows["example_id"], strict=True)
    return np.array([labels.get(run, {}).get(str(example), "") for run, example in keys], object)


def per_example(results: pd.DataFrame, probe: str, metrics: Sequence[str]) -> pd.DataFrame:
    """One row per run and distinct text of a long table, one column per metric.

    Numbers with a step and numbers of the whole split are left out. Of repeated texts the first
    one's row stands for all.

    Args:
        results: the long table.
        probe: whose metrics.
        metrics: names of the columns; NaN where a metric is absent.

    Raises:
        UserError: two directories hold the same run, so that an example has two values of one
            metric.
    """
    is_of_probe = (results["probe"] == probe) & results["metric"].isin(list(metrics))
    is_of_example = (results["example_id"] >= 0) & results["step"].isna()
    rows = distinct(results[is_of_probe & is_of_example])
    runs = []
    for key, run_rows in sorted(by_run(rows), key=lambda pair: pair[0]):
        wide = _wide(run_rows, str(key[0])).reindex(columns=list(metrics))
        wide = wide.reset_index(names="example_id")
        runs.append(wide.assign(**dict(zip(RUN, key, strict=True))))
    names = [*RUN, "example_id", *metrics]
    table = pd.concat(runs, ignore_index=True)[names] if runs else pd.DataFrame(columns=names)
    table.attrs = dict(results.attrs)
    return table


def _wide(run_rows: pd.DataFrame, run_id: str) -> pd.DataFrame:
    """One run's rows with a column per metric, by example."""
    columns = {}
    for metric, rows in run_rows.groupby("metric", observed=True):
        values = pd.Series(rows["value"].to_numpy(), rows["example_id"].to_numpy())
        if values.index.has_duplicates:
            raise UserError(
                f"run {run_id} is there twice: the same training, probed in two directories. "
                f"Name one of the two, or give each its own experiment"
            )
        columns[str(metric)] = values
    return pd.DataFrame(columns).sort_index()


def by_run(rows: pd.DataFrame) -> Iterator[tuple[Key, pd.DataFrame]]:
    """The rows of each run, with what identifies it (`RUN`)."""
    for values, run_rows in rows.groupby(list(RUN), observed=True, sort=False):
        key = (
            int(value) if isinstance(value, int | np.integer) else str(value) for value in values
        )
        yield tuple(key), run_rows


def metrics_there(results: pd.DataFrame, probe: str) -> set[str]:
    """The metrics of a probe that there are numbers of."""
    return {str(name) for name in results.loc[results["probe"] == probe, "metric"].unique()}


def classes_with(results: pd.DataFrame, probe: str, *kinds: str) -> list[int]:
    """The classes that a probe has one of these metrics of, each named `<kind>_class_<number>`."""
    classes = set()
    for name in metrics_there(results, probe):
        kind, mark, number = name.partition("_class_")
        if mark and kind in kinds:
            classes.add(int(number))
    return sorted(classes)


def metrics_of_classes(kinds: Sequence[str], classes: Sequence[int]) -> list[str]:
    """The names of these metrics of these classes, class by class."""
    return [f"{kind}_class_{number}" for number in classes for kind in kinds]


def facets(rows: pd.DataFrame) -> list[Facet]:
    """Split wide rows into panels: one per data set and model, seeds pooled.

    Runs that differ in more than the seed (another experiment, split, or setting) are never pooled:
    those words join the panel's title, and where even they do not tell two runs of one seed apart,
    the run's id does.
    """
    runs = rows[list(RUN)].drop_duplicates()
    keys = ["data", "model"]
    keys += [name for name in ("experiment", "split") if runs[name].nunique() > 1]
    if (runs.groupby([*keys, "seed"], observed=True)["run_id"].nunique() > 1).any():
        keys.append("run_id")
    panels = []
    for values, panel_runs in runs.groupby(keys, sort=True, observed=True):
        is_in_panel = np.ones(len(rows), bool)
        for name, value in zip(keys, values, strict=True):
            is_in_panel &= (rows[name] == value).to_numpy()
        panel = rows[is_in_panel].reset_index(drop=True)
        panel.attrs = dict(rows.attrs)
        title = [str(value) for value in values]
        seeds = panel_runs["seed"].nunique()
        if seeds > 1:
            title.append(f"{seeds} seeds")
        panels.append(Facet(" · ".join(title), panel))
    return panels


def max_attention_bin(max_attention: np.ndarray) -> np.ndarray:
    """Bin number 0 to 3 of every example's largest attention weight; 1 is in the last bin.

    >>> max_attention_bin(np.array([0.0, 0.25, 0.7499, 1.0]))
    array([0, 1, 2, 3])
    """
    bins = np.digitize(max_attention, MAX_ATTENTION_EDGES) - 1
    return np.clip(bins, 0, len(MAX_ATTENTION_BINS) - 1)


def split_by_class(rows: pd.DataFrame, most: int) -> list[tuple[str, pd.DataFrame]]:
    """Name and rows of each predicted class; one group where classes are too many or unknown.

    Classes are called by name where the table says so (`named`), with their number where names look
    alike as they are drawn.

    Args:
        rows: wide, with `predicted_class`.
        most: classes.
    """
    predicted = rows["predicted_class"]
    classes = sorted(predicted.dropna().unique())
    if not classes or len(classes) > most or predicted.isna().any():
        return [(f"all {len(classes)} classes" if len(classes) > most else "all examples", rows)]
    names = rows.attrs.get(CLASSES, [])
    if len({name.strip() for name in names} - {""}) < len(names):
        names = [f"{number}: {name}" for number, name in enumerate(names)]
    groups = []
    for number in classes:
        name = str(names[int(number)]) if names else f"class {int(number)}"
        groups.append((name, rows[predicted == number]))
    return groups


def class_of(group: str, names: Sequence[str]) -> str:
    """A predicted class of a table of headline numbers by its name, where the run says it.

    >>> class_of("class_1", ["bad", "good"]), class_of("class_1", [])
    ('good', 'class 1')
    """
    return str(names[int(group.removeprefix("class_"))]) if names else group.replace("_", " ")


def named(results: Any, classes: Sequence[Sequence[str]]) -> Any:
    """The same numbers, their classes called by name if all runs have the same.

    A figure has one legend.

    Args:
        results: a long table, or `attnprobe.results.numbers.Numbers`.
        classes: names of each run's; empty where they are not known or must not be shown.
    """
    is_shared = len({tuple(names) for names in classes}) == 1
    renamed = copy(results)
    renamed.attrs = results.attrs | {CLASSES: list(classes[0]) if is_shared else []}
    return renamed
