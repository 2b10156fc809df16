"""From the long table to what a panel shows: one wide row per example, panels per data set and model, bins."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from attnprobe.errors import UserError
from attnprobe.results.schema import IDENTITY
from attnprobe.results.statistics import interval

RUN = tuple(name for name in IDENTITY if name != "probe")
Key = tuple[int | str, ...]
"""What identifies a run: its values of `RUN`."""
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


class ByMetric(Protocol):
    """Numbers of one metric at a time, and what else is known of them (`attnprobe.report.numbers.Numbers`)."""

    attrs: dict[Any, Any]

    def metrics(self, probe: str) -> list[str]:
        """The metrics of a probe."""
        ...

    def rows(self, probe: str, metrics: Sequence[str]) -> pd.DataFrame:
        """The rows of some of them without a step, as a long table."""
        ...


def per_example(results: pd.DataFrame | ByMetric, probe: str, metrics: Sequence[str]) -> pd.DataFrame:
    """One row per run and example, one column per metric (NaN where a metric is absent); numbers with a step and
    numbers of the whole split are left out.

    Args:
        results: a long table, or numbers that are read metric by metric, never all at once.
        probe: its name.
        metrics: the columns.

    Raises:
        UserError: two directories hold the same run, so that an example has two values of one metric.
    """
    ids: dict[Key, Int[np.ndarray, " examples"]] = {}
    found: dict[str, dict[Key, OfExamples]] = {metric: {} for metric in metrics}
    for metric, parts in found.items():
        table = results if isinstance(results, pd.DataFrame) else results.rows(probe, [metric])
        for key, rows in by_run(table, _of_examples(table, probe, metric)):
            part = OfExamples.of(table, rows, key)
            ids[key] = known = _united(ids.get(key), part.ids)
            # one array for all metrics of the same examples
            parts[key] = OfExamples(known, part.values) if len(known) == len(part.ids) else part
        del table
    if not ids:
        empty = pd.DataFrame(columns=[*RUN, "example_id", *metrics])
        empty.attrs = dict(results.attrs)
        return empty
    runs = sorted(ids)
    lengths = [len(ids[key]) for key in runs]
    columns = {}
    for metric in list(found):
        parts = found.pop(metric)
        columns[metric] = _together([_placed(parts.get(key), ids[key]) for key in runs])
    identity = {name: _repeated([key[place] for key in runs], lengths) for place, name in enumerate(RUN)}
    wide = pd.DataFrame(identity | {"example_id": _together([ids[key] for key in runs])} | columns, copy=False)
    wide.attrs = dict(results.attrs)
    return wide


class OfExamples(NamedTuple):
    """A metric's values of some examples of one run, in ascending order of their ids."""

    ids: Int[np.ndarray, " examples"]
    values: Float[np.ndarray, " examples"]

    @classmethod
    def of(cls, table: pd.DataFrame, rows: Int[np.ndarray, " examples"], key: Key) -> "OfExamples":
        """Those in these rows.

        Raises:
            UserError: an example has two.
        """
        ids, values = table["example_id"].to_numpy()[rows], table["value"].to_numpy()[rows]
        if (np.diff(ids) <= 0).any():
            order = ids.argsort(kind="stable")
            ids, values = ids[order], values[order]
            if (np.diff(ids) == 0).any():
                raise UserError(
                    f"run {key[0]} is there twice: the same training, probed in two directories. "
                    f"Name one of the two, or give each its own experiment"
                )
        return cls(ids, values)


def _of_examples(table: pd.DataFrame, probe: str, metric: str) -> Int[np.ndarray, " rows"]:
    """The rows with a metric's numbers of examples, without a step."""
    wanted = (table["metric"] == metric).to_numpy() & (table["probe"] == probe).to_numpy()
    wanted &= (table["example_id"].to_numpy() >= 0) & table["step"].isna().to_numpy()
    return np.flatnonzero(wanted)


def _placed(part: OfExamples | None, ids: Int[np.ndarray, " examples"]) -> Float[np.ndarray, " examples"]:
    """Values of these examples, NaN where there is none."""
    if part is not None and len(part.ids) == len(ids):
        return part.values
    values = np.full(len(ids), np.nan)
    if part is not None:
        values[np.searchsorted(ids, part.ids)] = part.values
    return values


def _together(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _united(
    known: Int[np.ndarray, " examples"] | None, added: Int[np.ndarray, " rows"]
) -> Int[np.ndarray, " examples"]:
    """The examples of a run that are known, and those of one more metric, ascending."""
    return added if known is None else known if np.array_equal(known, added) else np.union1d(known, added)


def _repeated(values: Sequence[int | str], lengths: Sequence[int]) -> "np.ndarray | pd.Categorical[str]":
    """Each value as often as its length says: numbers as they are, text as categories; one value takes no room at all."""
    names = sorted(set(values))
    codes = np.array([names.index(one) for one in values], np.min_scalar_type(-len(names)))
    every = np.broadcast_to(codes[0], lengths[0]) if len(lengths) == 1 else np.repeat(codes, lengths)
    if any(isinstance(name, str) for name in names):
        return pd.Categorical.from_codes(every, pd.Index(names))
    numbers = np.array(names, np.int64)
    return np.broadcast_to(numbers[0], len(every)) if len(names) == 1 else numbers[every]


def by_run(results: pd.DataFrame, rows: Int[np.ndarray, " rows"]) -> Iterator[tuple[Key, Int[np.ndarray, " some"]]]:
    """The rows of each run that they are of, with what identifies it (`RUN`)."""
    number: Int[np.ndarray, " rows"] | None = None
    for name in RUN:
        if isinstance(results[name].dtype, pd.CategoricalDtype) and len(results[name].cat.categories) == 1:
            continue  # as in the numbers of one run, where it would cost the most
        if results[name].to_numpy().strides == (0,):
            continue  # one number stands for all
        codes, names = pd.factorize(results[name].iloc[rows], use_na_sentinel=False)
        if len(names) > 1:
            number = codes if number is None else number * len(names) + codes
    for own in (rows,) if number is None else (rows[number == one] for one in pd.unique(number)):
        if len(own):
            yield tuple(_plain(results[name].iloc[own[0]]) for name in RUN), own


def _plain(name: object) -> int | str:
    return int(name) if isinstance(name, int | np.integer) else str(name)


def metrics_there(results: pd.DataFrame | ByMetric, probe: str) -> set[str]:
    """The metrics of a probe that there are numbers of."""
    if not isinstance(results, pd.DataFrame):
        return set(results.metrics(probe))
    own, metric = (results["probe"] == probe).to_numpy(), results["metric"]
    if not isinstance(metric.dtype, pd.CategoricalDtype):
        return {str(name) for name in metric[own].unique()}
    # name by name: pandas takes 16 bytes a row to tell which there are, and the names take one
    codes = metric.cat.codes.to_numpy()
    return {str(name) for place, name in enumerate(metric.cat.categories) if (own & (codes == place)).any()}


def where(rows: pd.DataFrame, kept: Bool[np.ndarray, " rows"]) -> pd.DataFrame:
    """The rows that are kept; the table itself, and no copy, where these are all."""
    return rows if kept.all() else rows[kept]


def distinct(rows: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """The different values of these columns, one row for each."""
    columns = rows[list(names)]
    # the numbers of one run are alike throughout, which is told without a copy
    if len(rows) and all((columns[name] == columns[name].iloc[0]).all() for name in names):
        return columns.iloc[:1]
    return columns.drop_duplicates()


def runs_in(rows: pd.DataFrame) -> pd.DataFrame:
    """What identifies each run of a table (`RUN`), one row per run."""
    return distinct(rows, RUN)


def by_model(table: pd.DataFrame) -> Iterator[tuple[tuple[str, str], pd.DataFrame]]:
    """The rows of each data set and model of a long table, in alphabetical order."""
    pairs = sorted((str(data), str(model)) for data, model in distinct(table, ("data", "model")).to_numpy())
    for data, model in pairs:
        yield (data, model), table if len(pairs) == 1 else table[(table["data"] == data) & (table["model"] == model)]


def facets(rows: pd.DataFrame) -> list[Facet]:
    """Split wide rows into panels: one per data set and model, seeds pooled.

    Runs that differ in more than the seed (another experiment, split, or setting) are never pooled: those words join
    the panel's title, and where even they do not tell two runs of one seed apart, the run's id does.
    """
    runs = runs_in(rows)
    keys = ["data", "model"]
    keys += [name for name in ("experiment", "split") if runs[name].nunique() > 1]
    if (runs.groupby([*keys, "seed"], observed=True)["run_id"].nunique() > 1).any():
        keys.append("run_id")
    panels = []
    for key, own in runs.groupby(keys, sort=True, observed=True):
        part = rows
        if len(own) < len(runs):
            part = rows[
                np.logical_and.reduce([(rows[name] == one).to_numpy() for name, one in zip(keys, key, strict=True)])
            ]
        seeds = own["seed"].nunique()
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
