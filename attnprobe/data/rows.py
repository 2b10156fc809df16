"""From loaded columns to examples: labels, filters, splits and class weights. Pure functions on arrays."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import datasets
import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnprobe.batch import Task
from attnprobe.errors import UserError


def canonical(value: Any) -> str | None:
    """A raw cell as text, so that 1, 1.0 and "1" are the same label; None for null and blank cells.

    >>> [canonical(value) for value in (1, 1.0, " 1 ", "pos", "", None, float("nan"))]
    ['1', '1', '1', 'pos', None, None, None]
    """
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value).strip() or None


def column(rows: datasets.Dataset, name: str, setting: str) -> list[Any]:
    """One column as a list; class numbers of the hub come as the classes' names. `doc.body` is the entry `body` of the
    objects in the column `doc`, and `notes.0.label` that of the first object of a list; None where there is none.

    Raises:
        UserError: there is no such column.
    """
    if name not in rows.column_names:
        root, *path = name.split(".")
        if root in rows.column_names and path and is_there(rows.features[root], path):
            return [inside(value, path) for value in rows[root][:]]
        raise UserError(
            f"{setting}={name}: there is no such column. The columns are {', '.join(columns_of(rows.features))}; "
            f"choose one with {setting}=NAME"
        )
    values = rows[name][:]
    feature = rows.features[name]
    if isinstance(feature, datasets.ClassLabel):
        # the hub marks hidden labels with -1
        return [None if value is None or value < 0 else feature.names[value] for value in values]
    return values


def inside(value: Any, path: Sequence[str]) -> Any:
    """What lies at a path of keys and places within a cell; None where nothing does.

    >>> inside({"notes": [{"label": "good"}]}, ["notes", "0", "label"])
    'good'
    """
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list | tuple) and part.isdecimal():
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    return value


def is_there(feature: Any, path: Sequence[str]) -> bool:
    """Whether cells of this type can hold something at a path."""
    for part in path:
        if isinstance(feature, Mapping):
            if part not in feature:
                return False
            feature = feature[part]
        elif isinstance(feature, datasets.List) and part.isdecimal():
            feature = feature.feature
        else:
            return False
    return True


def columns_of(features: Mapping[str, Any]) -> list[str]:
    """The columns, those of nested objects by their path."""
    names = []
    for name, feature in features.items():
        nested = columns_of(feature) if isinstance(feature, Mapping) else []
        names += [f"{name}.{one}" for one in nested] or [name]
    return names


def passes(rows: datasets.Dataset, filters: Mapping[str, Any]) -> Bool[np.ndarray, " rows"]:
    """Which rows have an allowed value in every filtered column; `filters` maps column → value or list of values."""
    keep = np.ones(len(rows), bool)
    for name, allowed in filters.items():
        values = {canonical(value) for value in (allowed if isinstance(allowed, list | tuple) else [allowed])}
        keep &= np.array([canonical(value) in values for value in column(rows, name, "data.filters column")], bool)
    return keep


def label_lists(values: Sequence[Any], *, multi_label: bool, delimiter: str) -> list[list[str] | None]:
    """The raw labels of every row as a list of texts; None where the cell is null.

    A single-label row has a list of one. A multi-label cell is a list or text with a delimiter; `[]` is an example
    with no label at all, which is legal.
    """
    if not multi_label:
        return [None if (one := canonical(value)) is None else [one] for value in values]
    result: list[list[str] | None] = []
    for value in values:
        parts = value.split(delimiter) if isinstance(value, str) and value.strip() else value
        if parts is not None and not isinstance(parts, list | tuple):
            parts = None if canonical(parts) is None else [parts]
        result.append(None if parts is None else [text for part in parts if (text := canonical(part)) is not None])
    return result


def class_map(
    labels: Sequence[Any] | Mapping[Any, Any] | None, training: Sequence[list[str] | None]
) -> tuple[dict[str, int], list[str]]:
    """Which class each raw label is.

    Args:
        labels: classes in order; or raw value → class name (several values may share a class; classes in order of
            first mention); or None: the values of the training rows, sorted, as numbers where all are numbers.
        training: the training rows' raw labels.

    Returns:
        (raw label → class number, class names).
    """
    if labels is None:
        given = {label for row in training if row is not None for label in row}
        names = sorted(given, key=_numeric_key) if all(_is_number(label) for label in given) else sorted(given)
        return {name: number for number, name in enumerate(names)}, names
    if not isinstance(labels, Mapping):
        labels = {value: value for value in labels}
    named = {str(canonical(raw)): str(canonical(name)) for raw, name in labels.items()}
    names = list(dict.fromkeys(named.values()))
    return {raw: names.index(name) for raw, name in named.items()}, names


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


def _numeric_key(text: str) -> tuple[float, str]:
    return float(text), text


def count_labels(rows: Sequence[list[str] | None]) -> Counter[str]:
    """How often each raw label occurs."""
    return Counter(label for row in rows if row is not None for label in row)


def targets(rows: Sequence[list[str]], numbers: Mapping[str, int], classes: int, task: Task) -> np.ndarray:
    """Class numbers int64 `[rows]`, or 0/1 float32 `[rows, classes]` for multi-label tasks. Every label is known."""
    if task is Task.SINGLE_LABEL:
        return np.array([numbers[row[0]] for row in rows], np.int64)
    result = np.zeros((len(rows), classes), np.float32)
    for number, row in enumerate(rows):
        result[number, [numbers[label] for label in row]] = 1
    return result


def class_counts(labels: np.ndarray, classes: int) -> Int[np.ndarray, " classes"]:
    """Examples of each class (multi-label: with each label)."""
    if labels.ndim == 2:
        return labels.sum(0).astype(np.int64)
    return np.bincount(labels, minlength=classes)


def divide(labels: Int[np.ndarray, " rows"], share: float, generator: np.random.Generator) -> Bool[np.ndarray, " rows"]:
    """Draw `share` of the rows, the same share of every class (rounded per class); True = drawn."""
    drawn = np.zeros(len(labels), bool)
    for value in np.unique(labels):
        rows = np.flatnonzero(labels == value)
        drawn[generator.permutation(rows)[: round(share * len(rows))]] = True
    return drawn


def divide_groups(
    groups: Int[np.ndarray, " rows"], share: float, generator: np.random.Generator
) -> Bool[np.ndarray, " rows"]:
    """Draw `share` of the groups, each with all of its rows; True = drawn."""
    every = np.unique(groups)
    return np.isin(groups, generator.permutation(every)[: round(share * len(every))])


def class_weights(
    setting: str | Sequence[float], counts: Int[np.ndarray, " classes"], total: int, task: Task
) -> Tensor | None:
    """The weight of every class in the loss, `[classes]`.

    Args:
        setting: `none`; `balanced_positive`: 1 for class 0 and negatives / positives for class 1 (the paper's), for
            multi-label tasks negatives / positives of every label; `inverse_frequency`: examples / (classes · count),
            1 on average over the examples; or a list.
        counts: training examples of each class, after all filters.
        total: training examples.

    Raises:
        UserError: the setting is unknown or does not fit the classes.
    """
    classes = len(counts)
    if not isinstance(setting, str):
        weights = torch.tensor([float(weight) for weight in setting])
        if len(weights) != classes or not (weights > 0).all():
            raise UserError(f"data.class_weight={list(setting)}: expected {classes} numbers above 0, one per class")
        return weights
    if setting == "none":
        return None
    if setting not in ("balanced_positive", "inverse_frequency"):
        raise UserError(
            f"data.class_weight={setting}: expected none, balanced_positive, inverse_frequency or a list of "
            f"{classes} numbers"
        )
    if (counts == 0).any():
        raise UserError(f"data.class_weight={setting} needs examples of every class; set data.class_weight=none")
    count = torch.from_numpy(counts).float()
    if setting == "inverse_frequency":
        return total / (classes * count)
    if task is Task.MULTI_LABEL:
        return (total - count) / count
    if classes != 2:
        raise UserError(
            f"data.class_weight=balanced_positive is for two classes, here are {classes}; "
            f"use data.class_weight=inverse_frequency or none"
        )
    return torch.stack([torch.ones(()), count[0] / count[1]])
