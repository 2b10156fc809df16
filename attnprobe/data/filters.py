"""Which rows are kept, and how many go for which reason."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool

from attnprobe.core.errors import UserError
from attnprobe.data.examples import Examples
from attnprobe.data.local_files import SPLITS
from attnprobe.data.settings import DataSettings

OVER_MOST = "over data.most"
"""Why a row is not in the sample that was asked for, as the counts name it."""


class Kept(NamedTuple):
    """What a filter decides.

    Attributes:
        mask: True = keep.
        dropped: how many rows go for each reason.
        facts: other facts for the manifest.
    """

    mask: Bool[np.ndarray, " rows"]
    dropped: Mapping[str, int] = {}
    facts: Mapping[str, Any] = {}


def with_known_labels(
    split: str, examples: Examples, numbers: Mapping[str, int], settings: DataSettings
) -> Kept:
    """Keep the rows all of whose labels are classes.

    Args:
        split: name of the split, for messages.
        examples: its rows.
        numbers: raw label → class number.
        settings: say whether another label is an error.

    Raises:
        UserError: a label is no class, where that is an error; or no label is a class.
    """
    mask = np.array([set(row) <= numbers.keys() for row in examples["labels"]], bool)
    if not mask.all():
        problem = {
            "labels": "is not in data.labels",
            "vocabulary": "is no word of the vocabulary",
            "candidates": "was neither a label nor a candidate in training",
        }[settings.classes_from]
        if settings.classes_from == "labels" and settings.labels is None:
            problem = "was not seen in training"
        labels = Counter(label for row in examples["labels"] for label in row)
        unseen = [
            f"{label} ({count} ×)" for label, count in labels.most_common() if label not in numbers
        ]
        names = ", ".join(unseen)[:300]
        if settings.unseen_labels == "error":
            raise UserError(
                f"a label of the {split} split {problem}: {names}. Leave such rows out with "
                f"data.unseen_labels=drop, or map them to a class in data.labels"
            )
        if not mask.any():
            raise UserError(
                f"every label of the {split} split {problem}: {names}. Check data.label"
            )
    return Kept(mask, {"label is unseen": int((~mask).sum())})


def answerable(
    split: str, examples: Examples, numbers: Mapping[str, int], settings: DataSettings
) -> Kept:
    """Keep the rows whose label is among their candidates.

    Args:
        split: name of the split, for messages.
        examples: its rows.
        numbers: raw answer → class number.
        settings: say whether another label is an error.

    Raises:
        UserError: an answer is no candidate, where that is an error; or no answer is one.
    """
    if "candidates" not in examples:
        return Kept(np.ones(len(examples), bool))

    mask = np.ones(len(examples), bool)
    sizes = []  # of the candidates of the rows that are kept
    unrestricted = 0
    for row, (labels, names) in enumerate(
        zip(examples["labels"], examples["candidates"], strict=True)
    ):
        if names is None:
            unrestricted += 1
            continue
        allowed = {numbers.get(name) for name in names}
        mask[row] = numbers[labels[0]] in allowed
        if mask[row]:
            sizes.append(len(allowed - {None}))

    if not mask.all():
        row = int(np.flatnonzero(~mask)[0])
        candidates = examples["candidates"].iloc[row] or ["(no candidate)"]
        message = (
            f"in {int((~mask).sum())} of {len(examples)} rows of the {split} split the answer is "
            f"not among the candidates, first in row {examples.index[row]}: "
            f"{examples['labels'].iloc[row][0]!r} is none of {', '.join(candidates)[:200]}"
        )
        if settings.unseen_labels == "error":
            raise UserError(f"{message}. Leave such rows out with data.unseen_labels=drop")
        if not mask.any():
            raise UserError(f"{message}. Check data.candidates and data.candidates_pattern")
    facts = {
        "candidates per row": {"min": min(sizes, default=0), "max": max(sizes, default=0)},
        "any class may answer": unrestricted,
    }
    return Kept(mask, {"answer is no candidate": int((~mask).sum())}, facts)


def at_most(split: str, examples: Examples, settings: DataSettings) -> Kept:
    """Keep as many rows as `data.most` allows, drawn at random, in their order.

    Where a row is a text and one of its labels, whole texts are drawn.

    Raises:
        UserError: the text that is drawn first has more rows than that.
    """
    most = (settings.most or {}).get(split)
    if most is None or len(examples) <= most:
        return Kept(np.ones(len(examples), bool))
    generator = np.random.default_rng((settings.split_seed, 2 + SPLITS.index(split)))
    if settings.asks_labels:
        mask = _whole_texts(examples["group"].tolist(), most, generator)
    else:
        mask = np.zeros(len(examples), bool)
        mask[generator.choice(len(examples), most, replace=False)] = True
    if not mask.any():
        rows = int(examples["group"].value_counts().max())
        raise UserError(
            f"data.most={{{split}: {most}}}: the labels of one text stay together, and a text has "
            f"up to {rows:,} rows: expected data.most={{{split}: {rows}}} or more"
        )
    return Kept(mask, {OVER_MOST: int((~mask).sum())})


def _whole_texts(
    text_of_row: Sequence[str], most: int, generator: np.random.Generator
) -> Bool[np.ndarray, " rows"]:
    """All rows of texts in random order, until the next text's would be more than `most`."""
    _, number_of_row, rows_of_text = np.unique(text_of_row, return_inverse=True, return_counts=True)
    order = generator.permutation(len(rows_of_text))
    drawn = order[rows_of_text[order].cumsum() <= most]
    return np.isin(number_of_row, drawn)


def of_length(split: str, examples: Examples, settings: DataSettings) -> Kept:
    """Keep the rows within the length limits, which are strict.

    Raises:
        UserError: no row is.
    """
    length = examples["length"].to_numpy()
    least: int | None = settings.min_length
    most: int | None = settings.max_length
    if settings.drop_extremes and len(examples):
        least = length.min() if least is None else least
        most = length.max() if most is None else most
    long_enough = np.ones(len(length), bool) if least is None else length > least
    short_enough = np.ones(len(length), bool) if most is None else length < most
    mask = long_enough & short_enough
    if not mask.any():
        limits = []
        if least is not None:
            limits.append(f"more than data.min_length={least}")
        if most is not None:
            limits.append(f"fewer than data.max_length={most}")
        raise UserError(
            f"no row of the {split} split has {' and '.join(limits)} tokens; the texts have "
            f"{length.min()} to {length.max()}"
        )
    dropped = {"too short": int((~long_enough).sum()), "too long": int((~short_enough).sum())}
    return Kept(mask, dropped)


def of_sentences(split: str, examples: Examples, settings: DataSettings) -> Kept:
    """Keep the rows within the limits on sentences, in the splits that these hold for.

    Raises:
        UserError: no row is.
    """
    every = np.ones(len(examples), bool)
    if "sentences" not in examples:
        return Kept(every)

    sentences = examples["sentences"].to_numpy()
    longest = examples["longest_sentence"].to_numpy()
    few_enough = every
    short_enough = every
    if split in settings.sentence_limits_on:
        if settings.max_sentences:
            few_enough = sentences <= settings.max_sentences
        if settings.max_sentence_tokens:
            short_enough = longest <= settings.max_sentence_tokens
    mask = few_enough & short_enough
    if not mask.any():
        raise UserError(
            f"no row of the {split} split has at most data.max_sentences={settings.max_sentences} "
            f"sentences of at most data.max_sentence_tokens={settings.max_sentence_tokens} tokens; "
            f"the texts have at least {sentences.min()}, and the longest has at least "
            f"{longest.min()} tokens"
        )
    kept = sentences[mask]
    dropped = {
        "too many sentences": int((~few_enough).sum()),
        "sentence too long": int((few_enough & ~short_enough).sum()),
    }
    facts = {"sentences per text": {"min": int(kept.min()), "max": int(kept.max())}}
    return Kept(mask, dropped, facts)
