"""From loaded columns to examples: labels, filters, splits and class weights. Pure functions on
arrays."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import datasets
import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.core.settings import listed, nearest
from attnprobe.data.examples import Examples, Ragged
from attnprobe.data.local_files import SPLITS
from attnprobe.data.settings import DataSettings
from attnprobe.data.vocabulary import SPECIAL, Vocabulary, build_vocabulary, document_frequency


def canonical(value: Any) -> str | None:
    """A raw cell as text, so that 1, 1.0, "1" and "1.0" are the same label; None for null and blank
    cells.

    >>> [canonical(value) for value in (1, 1.0, " 1 ", "1.0", "1.5", "v1.0", "pos", "", None, float("nan"))]
    ['1', '1', '1', '1', '1.5', 'v1.0', 'pos', None, None, None]
    """
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return re.sub(r"^(-?\d+)\.0$", r"\1", str(value).strip()) or None


def column(rows: datasets.Dataset, name: str, setting: str) -> list[Any]:
    """One column as a list; class numbers of the hub come as the classes' names. `doc.body` is the
    entry `body` of the objects in the column `doc`, and `notes.0.label` that of the first object of
    a list; None where there is none."""
    root, *path = name.split(".")
    if name in rows.column_names:
        values = rows[name][:]
        feature = rows.features[name]
        if isinstance(feature, datasets.ClassLabel):
            # the hub marks hidden labels with -1
            return [
                None if value is None or value < 0 else feature.names[value] for value in values
            ]
    elif root in rows.column_names and path and _is_there(rows.features[root], path):
        values = [_inside(value, path) for value in rows[root][:]]
    else:
        known = _names_of(rows.features)
        remedy = f"choose one with {setting}=NAME"
        if any(len(one.split()) > 4 for one in known):  # a text where names are expected
            remedy = (
                "the first line looks like a row and not like names: add a header line to the file"
            )
        raise UserError(
            f"{setting}={name}: there is no such column{nearest(name, known) or '.'} "
            f"The columns are {listed(known)}; {remedy}"
        )
    for value in values:
        parts = value if isinstance(value, list) else [value]
        if any(
            "\0" in one if isinstance(one, str) else isinstance(one, float) and np.isinf(one)
            for one in parts
        ):
            raise UserError(
                f"{setting}={name}: one cell is {str(value)[:60]!r}; expected text without null characters, or finite "
                f"numbers: correct it in the file, or choose another column"
            )
    return values


def _inside(value: Any, path: Sequence[str]) -> Any:
    for part in path:
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list | tuple) and part.isdecimal():
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    return value


def _is_there(feature: Any, path: Sequence[str]) -> bool:
    for part in path:
        if isinstance(feature, Mapping) and part in feature:
            feature = feature[part]
        elif isinstance(feature, datasets.List) and part.isdecimal():
            feature = feature.feature
        else:
            return False
    return True


def _names_of(features: Mapping[str, Any]) -> list[str]:
    """The columns, those of nested objects by their path."""
    names = []
    for name, feature in features.items():
        nested = _names_of(feature) if isinstance(feature, Mapping) else []
        names += [f"{name}.{one}" for one in nested] or [name]
    return names


def passes(rows: datasets.Dataset, filters: Mapping[str, Any]) -> Bool[np.ndarray, " rows"]:
    """Which rows have an allowed value in every filtered column; `filters` maps column → value or
    list of values."""
    keep = np.ones(len(rows), bool)
    for name, allowed in filters.items():
        values = {
            canonical(value)
            for value in (allowed if isinstance(allowed, list | tuple) else [allowed])
        }
        keep &= np.array(
            [canonical(value) in values for value in column(rows, name, "data.filters column")],
            bool,
        )
    return keep


def label_lists(values: Sequence[Any], delimiter: str | None) -> list[list[str] | None]:
    """The raw labels of every row as a list of texts, None where the cell is null. A cell is one
    label, or with a delimiter several: as a text, or as a list, which may be empty."""
    result: list[list[str] | None] = []
    for value in values:
        parts = [value]
        if delimiter is not None and isinstance(value, str | list | tuple):
            parts = value.split(delimiter) if isinstance(value, str) else list(value)
        texts = [text for part in parts if (text := canonical(part)) is not None]
        result.append(
            texts if texts or (delimiter is not None and isinstance(value, list | tuple)) else None
        )
    return result


def divided(values: Sequence[Any], above: float) -> list[str | None]:
    """Numbers as two classes, those up to a number and those above it; None where the cell is empty
    or NaN."""
    sides: list[str | None] = []
    for value in values:
        text = canonical(value)
        try:
            number = float("nan" if text is None else text)
        except ValueError:
            raise UserError(
                f"data.above={above:g}: the label {text!r:.60} is no number: expected numbers"
            ) from None
        side = f"above {above:g}" if number > above else f"{above:g} or less"
        sides.append(None if np.isnan(number) else side)
    return sides


def class_map(
    labels: Sequence[Any] | Mapping[Any, Any] | None, training: Sequence[list[str] | None]
) -> tuple[dict[str, int], list[str]]:
    """Which class each raw label is: raw label → class number, and the classes' names.

    Args:
        labels: classes in order; or raw value → class name (several values may share a class;
            classes in order of first mention); or None: the values of the training rows, sorted, as
            numbers where all are numbers.
        training: the training rows' raw labels.
    """
    if labels is None:
        given = {label for row in training if row is not None for label in row}
        try:
            numbers = bool(np.isfinite([float(label) for label in given]).all())
        except ValueError:
            numbers = False
        names = sorted(given, key=lambda label: (float(label), label)) if numbers else sorted(given)
        return {name: number for number, name in enumerate(names)}, names
    if not isinstance(labels, Mapping):
        labels = {value: value for value in labels}
    named = {str(canonical(raw)): str(canonical(name)) for raw, name in labels.items()}
    names = list(dict.fromkeys(named.values()))
    return {raw: names.index(name) for raw, name in named.items()}, names


def class_weights(
    setting: str | Sequence[float], counts: Int[np.ndarray, " classes"], total: int, task: Task
) -> Tensor | None:
    """The weight of every class in the loss, `[classes]`.

    Args:
        setting: `none`; `balanced_positive`: 1 for class 0 and negatives / positives for class 1
            (the paper's), for multi-label tasks negatives / positives of every label;
            `inverse_frequency`: examples / (classes · count), 1 on average over the examples; or a
            list.
        counts, total: training examples of each class, and of all, after all filters.
        task: single- or multi-label.
    """
    classes = len(counts)
    if not isinstance(setting, str):
        weights = torch.tensor([float(weight) for weight in setting])
        if len(weights) != classes or not (weights > 0).all():
            raise UserError(
                f"data.class_weight={list(setting)}: expected {classes} numbers above 0, one per class"
            )
        return weights
    if setting == "none":
        return None
    if (counts == 0).any():
        raise UserError(
            f"data.class_weight={setting} needs examples of every class; set data.class_weight=none"
        )
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


CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""What neither XML nor a spreadsheet can hold. In texts it is shown as an escape: published data
have it."""


def vocabulary_of(
    examples: Mapping[str, Examples], spelling: Sequence[str], settings: DataSettings
) -> Vocabulary:
    """The words that are frequent enough in the training texts (where nothing is trained, in all);
    a question counts as a text of its own."""
    training = examples["train"] if settings.trains else pd.concat(list(examples.values()))
    texts = [*training["words"], *training.get("question", [])]
    words = Ragged.of(texts, np.int32)
    frequency = document_frequency(words.flat, words.offsets, len(spelling))
    return build_vocabulary(spelling, frequency, settings.min_df, settings.max_vocabulary)


def class_numbers(
    examples: dict[str, Examples], spelling: Sequence[str], settings: DataSettings
) -> tuple[dict[str, int], list[str]]:
    """Raw answer → class number for every answer that may occur, and the classes' names."""
    trains = settings.trains
    training = examples["train"] if trains else pd.concat(list(examples.values()))
    labels = settings.labels
    column = settings.label
    if settings.classes_from == "labels":
        numbers, classes = class_map(labels, training["labels"].tolist())
        seen = Counter(label for row in training["labels"] for label in row)
        trained = {numbers[label] for label in seen if label in numbers}
        least = 1 if settings.multi_label or not trains else 2
        if len(trained) < least:
            there = (
                ", ".join(f"{label}: {number}" for label, number in seen.most_common(8))
                or "no label at all"
            )
            expected = "" if labels is None else f" among data.labels ({', '.join(classes)})"
            raise UserError(
                f"the {'training ' * trains}rows have fewer than {least} classes{expected} in the column data.label={column} "
                f"({there}): choose another column, or other data.filters or data.labels"
            )
        if trains and (
            empty := [name for number, name in enumerate(classes) if number not in trained]
        ):
            raise UserError(
                f"data.labels: no training row has the class {', '.join(empty)}; the column {column} has "
                f"{', '.join(seen)}. Leave the class out of data.labels"
            )
        if odd := [name for name in classes if CONTROL.search(name)]:
            raise UserError(
                f"data.label={column}: the class {odd[0][:60]!r} holds a control character, which no figure can show: give "
                f"it another name with data.labels='{{value in the data: name, …}}'"
            )
        return numbers, classes
    if settings.classes_from == "candidates":
        candidates = [names for names in training.get("candidates", []) if names is not None]
        return class_map(None, [*candidates, *training["labels"]])
    classes = vocabulary_of(examples, spelling, settings).words[len(SPECIAL) :]
    place = {word: number for number, word in enumerate(classes)}
    given = [
        names
        for part in examples.values()
        for names in (*part["labels"], *part.get("candidates", []))
        if names
    ]
    numbers = {}
    for raw in {name for names in given for name in names}:
        tokens = settings.rules.words(
            raw
        )  # an answer is read as the text is: "Kitchen" is the word "kitchen"
        if len(tokens) == 1 and tokens[0] in place:
            numbers[raw] = place[tokens[0]]
    return numbers, classes


OVER_MOST = "over data.most"
"""Why a row is not in the sample that was asked for, as the counts name it."""


class Kept(NamedTuple):
    """What a filter decides: True = keep; how many rows go for each reason; other facts for the
    manifest."""

    mask: Bool[np.ndarray, " rows"]
    dropped: Mapping[str, int] = {}
    facts: Mapping[str, Any] = {}


def with_known_labels(
    split: str, examples: Examples, numbers: Mapping[str, int], settings: DataSettings
) -> Kept:
    """The rows all of whose labels are classes."""
    known = np.array([all(label in numbers for label in one) for one in examples["labels"]], bool)
    if not known.all():
        where = {
            "labels": "was not seen in training"
            if settings.labels is None
            else "is not in data.labels",
            "vocabulary": "is no word of the vocabulary",
            "candidates": "was neither a label nor a candidate in training",
        }[settings.classes_from]
        unseen = Counter(label for row in examples["labels"] for label in row)
        names = ", ".join(
            f"{label} ({count} ×)" for label, count in unseen.most_common() if label not in numbers
        )
        if settings.unseen_labels == "error":
            raise UserError(
                f"a label of the {split} split {where}: {names[:300]}. Leave such rows out with "
                f"data.unseen_labels=drop, or map them to a class in data.labels"
            )
        if not known.any():
            raise UserError(
                f"every label of the {split} split {where}: {names[:300]}. Check data.label"
            )
    return Kept(known, {"label is unseen": int((~known).sum())})


def answerable(
    split: str, examples: Examples, numbers: Mapping[str, int], settings: DataSettings
) -> Kept:
    """The rows whose label is among their candidates."""
    if "candidates" not in examples:
        return Kept(np.ones(len(examples), bool))
    allowed = [
        None if names is None else {numbers.get(name) for name in names}
        for names in examples["candidates"]
    ]
    answers = [numbers[label[0]] for label in examples["labels"]]
    among = np.array(
        [one is None or answer in one for answer, one in zip(answers, allowed, strict=True)], bool
    )
    if not among.all():
        row = int(np.flatnonzero(~among)[0])
        message = (
            f"in {int((~among).sum())} of {len(examples)} rows of the {split} split the answer is not among the "
            f"candidates, first in row {examples.index[row]}: {examples['labels'].iloc[row][0]!r} is none of "
            f"{', '.join(examples['candidates'].iloc[row] or ['(no candidate)'])[:200]}"
        )
        if settings.unseen_labels == "error":
            raise UserError(f"{message}. Leave such rows out with data.unseen_labels=drop")
        if not among.any():
            raise UserError(f"{message}. Check data.candidates and data.candidates_pattern")
    sizes = [
        len(one - {None})
        for one, kept in zip(allowed, among, strict=True)
        if one is not None and kept
    ]
    facts = {
        "candidates per row": {"min": min(sizes, default=0), "max": max(sizes, default=0)},
        "any class may answer": allowed.count(None),
    }
    return Kept(among, {"answer is no candidate": int((~among).sum())}, facts)


def at_most(split: str, examples: Examples, settings: DataSettings) -> Kept:
    """As many of the rows as `most` allows, drawn at random, in their order."""
    most = (settings.most or {}).get(split)
    if most is None or len(examples) <= most:
        return Kept(np.ones(len(examples), bool))
    generator = np.random.default_rng((settings.split_seed, 2 + SPLITS.index(split)))
    kept = np.zeros(len(examples), bool)
    kept[generator.choice(len(examples), most, replace=False)] = True
    return Kept(kept, {OVER_MOST: int((~kept).sum())})


def of_length(split: str, examples: Examples, settings: DataSettings) -> Kept:
    """The rows within the length limits, which are strict."""
    length = examples["length"].to_numpy()
    extremes = settings.drop_extremes and len(examples) > 0
    least = length.min() if extremes and settings.min_length is None else settings.min_length
    most = length.max() if extremes and settings.max_length is None else settings.max_length
    long_enough = np.ones(len(length), bool) if least is None else length > least
    short_enough = np.ones(len(length), bool) if most is None else length < most
    keep = long_enough & short_enough
    if not keep.any():
        raise UserError(
            f"no row of the {split} split has more than data.min_length={settings.min_length} and fewer than "
            f"data.max_length={settings.max_length} tokens; the texts have {length.min()} to {length.max()}"
        )
    return Kept(
        keep, {"too short": int((~long_enough).sum()), "too long": int((~short_enough).sum())}
    )


def of_sentences(split: str, examples: Examples, settings: DataSettings) -> Kept:
    """The rows within the limits on sentences, in the splits that they hold for."""
    every = np.ones(len(examples), bool)
    if "sentences" not in examples:
        return Kept(every)
    counts, sizes = (examples[name].to_numpy() for name in ("sentences", "longest_sentence"))
    applies = split in settings.sentence_limits_on
    most = settings.max_sentences
    longest = settings.max_sentence_tokens
    few = counts <= most if applies and most else every
    short = sizes <= longest if applies and longest else every
    keep = few & short
    if not keep.any():
        raise UserError(
            f"no row of the {split} split has at most data.max_sentences={most} sentences of at most "
            f"data.max_sentence_tokens={longest} tokens; the texts have at least {counts.min()}, and the "
            f"longest has at least {sizes.min()} tokens"
        )
    kept = counts[keep]
    return Kept(
        keep,
        {"too many sentences": int((~few).sum()), "sentence too long": int((few & ~short).sum())},
        {"sentences per text": {"min": int(kept.min()), "max": int(kept.max())}},
    )
