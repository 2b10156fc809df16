"""Which classes there are, which class each raw label is, and what a class weighs in the loss."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.data.examples import Examples, Ragged
from attnprobe.data.rows import canonical
from attnprobe.data.settings import DataSettings
from attnprobe.data.vocabulary import SPECIAL, Vocabulary, build_vocabulary, document_frequency

CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
"""Characters that neither XML nor a spreadsheet can hold. In texts, where published data have them,
they are shown as escapes."""


def class_map(
    labels: Sequence[Any] | Mapping[Any, Any] | None, training: Sequence[list[str] | None]
) -> tuple[dict[str, int], list[str]]:
    """Which class each raw label is.

    Args:
        labels: classes in order; or raw value → class name (several values may share a class;
            classes in order of first mention); or None: the values of the training rows, sorted, as
            numbers where all are numbers.
        training: the training rows' raw labels.

    Returns:
        raw label → class number, and the classes' names.
    """
    if labels is None:
        values = {label for row in training if row is not None for label in row}
        if _are_finite_numbers(values):
            names = sorted(values, key=lambda label: (float(label), label))
        else:
            names = sorted(values)
        return {name: number for number, name in enumerate(names)}, names

    if not isinstance(labels, Mapping):
        labels = {value: value for value in labels}
    name_of = {str(canonical(raw)): str(canonical(name)) for raw, name in labels.items()}
    names = list(dict.fromkeys(name_of.values()))
    return {raw: names.index(name) for raw, name in name_of.items()}, names


def _are_finite_numbers(texts: set[str]) -> bool:
    try:
        return bool(np.isfinite([float(text) for text in texts]).all())
    except ValueError:
        return False


def class_weights(
    setting: str | Sequence[float], counts: Int[np.ndarray, " classes"], total: int, task: Task
) -> Tensor | None:
    """The weight of every class in the loss.

    Args:
        setting: `none`; `balanced_positive`: 1 for class 0 and negatives / positives for class 1
            (the paper's), for multi-label tasks negatives / positives of every label;
            `inverse_frequency`: examples / (classes · count), 1 on average over the examples; or a
            list.
        counts: training examples of each class, after all filters.
        total: training examples, after all filters.
        task: single- or multi-label.

    Returns:
        `[classes]`, or None where all classes weigh the same.

    Raises:
        UserError: the list does not fit the classes, or a class without examples has no weight.
    """
    classes = len(counts)
    if not isinstance(setting, str):
        weights = torch.tensor([float(weight) for weight in setting])
        if len(weights) != classes or not (weights > 0).all():
            raise UserError(
                f"data.class_weight={list(setting)}: expected {classes} numbers above 0, one per "
                f"class"
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


def vocabulary_of(
    examples: Mapping[str, Examples], spelling: Sequence[str], settings: DataSettings
) -> Vocabulary:
    """The words that are frequent enough in the training texts (where nothing is trained, in all).

    A question counts as a text of its own.
    """
    training = _training_rows(examples, settings)
    texts = Ragged.of([*training["words"], *training.get("question", [])], np.int32)
    frequency = document_frequency(texts.flat, texts.offsets, len(spelling))
    return build_vocabulary(spelling, frequency, settings.min_df, settings.max_vocabulary)


def class_numbers(
    examples: Mapping[str, Examples], spelling: Sequence[str], settings: DataSettings
) -> tuple[dict[str, int], list[str]]:
    """Which class each raw answer is.

    Args:
        examples: the rows by split.
        spelling: every word of the data set.
        settings: `classes_from` says what the classes are.

    Returns:
        raw answer → class number for every answer that may occur, and the classes' names.

    Raises:
        UserError: there are too few classes, or a class has no training row or no printable name.
    """
    if settings.classes_from == "labels":
        return _classes_of_labels(examples, settings)
    if settings.classes_from == "candidates":
        training = _training_rows(examples, settings)
        candidates = [names for names in training.get("candidates", []) if names is not None]
        return class_map(None, [*candidates, *training["labels"]])
    return _classes_of_words(examples, spelling, settings)


def _training_rows(examples: Mapping[str, Examples], settings: DataSettings) -> Examples:
    """The training rows; all rows where nothing is trained."""
    return examples["train"] if settings.trains else pd.concat(list(examples.values()))


def _classes_of_labels(
    examples: Mapping[str, Examples], settings: DataSettings
) -> tuple[dict[str, int], list[str]]:
    """The classes are the training rows' labels, or those that the settings name."""
    rows_of_labels = _training_rows(examples, settings)["labels"]
    numbers, classes = class_map(settings.labels, rows_of_labels.tolist())
    seen = Counter(label for row in rows_of_labels for label in row)
    trained = {numbers[label] for label in seen if label in numbers}

    least = 1 if settings.multi_label or not settings.trains else 2
    if len(trained) < least:
        expected = "" if settings.labels is None else f" among data.labels ({', '.join(classes)})"
        raise _too_few_classes(seen, least, expected, settings)
    empty = [name for number, name in enumerate(classes) if number not in trained]
    if settings.trains and empty:
        raise UserError(
            f"data.labels: no training row has the class {', '.join(empty)}; the column "
            f"{settings.label} has {', '.join(seen)}. Leave the class out of data.labels"
        )
    for name in classes:
        if CONTROL.search(name):
            raise UserError(
                f"data.label={settings.label}: the class {name[:60]!r} holds a control character, "
                f"which no figure can show: give it another name with "
                f"data.labels='{{value in the data: name, …}}'"
            )
    return numbers, classes


def _too_few_classes(
    seen: Counter[str], least: int, expected: str, settings: DataSettings
) -> UserError:
    """The answer to labels of too few classes.

    Args:
        seen: how often each label comes.
        least: number of classes that are needed.
        expected: the classes that the settings name, in words; empty where they name none.
        settings: of the data.
    """
    kind = "training rows" if settings.trains else "rows"
    count = "no class" if least == 1 else f"fewer than {least} classes"
    common = [f"{label}: {number}" for label, number in seen.most_common(8)]
    return UserError(
        f"the {kind} have {count}{expected} in the column "
        f"data.label={settings.label} ({', '.join(common) or 'no label at all'}): choose "
        f"another column, or other data.filters or data.labels"
    )


def _classes_of_words(
    examples: Mapping[str, Examples], spelling: Sequence[str], settings: DataSettings
) -> tuple[dict[str, int], list[str]]:
    """The classes are the words of the vocabulary."""
    classes = vocabulary_of(examples, spelling, settings).words[len(SPECIAL) :]
    number_of = {word: number for number, word in enumerate(classes)}
    answers = set[str]()
    for part in examples.values():
        for names in (*part["labels"], *part.get("candidates", [])):
            answers |= set(names or ())
    numbers = {}
    for answer in answers:
        # an answer is read as the text is: "Kitchen" is the word "kitchen"
        tokens = settings.rules.words(answer)
        if len(tokens) == 1 and tokens[0] in number_of:
            numbers[answer] = number_of[tokens[0]]
    return numbers, classes
