"""Which examples are kept, and why the others are not. Each filter gives a mask over the rows and what it counted."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Bool

from attnprobe.data import rows
from attnprobe.data.examples import Examples
from attnprobe.data.files import SPLITS
from attnprobe.data.settings import Labels, Limits
from attnprobe.errors import UserError

OVER_MOST = "over data.most"
"""Why a row is not in the sample that was asked for, in the words of the counts."""


@dataclass(frozen=True)
class Kept:
    """What a filter decides: True = keep; how many rows go for each reason; other facts for the manifest."""

    mask: Bool[np.ndarray, " rows"]
    dropped: dict[str, int] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


def with_known_labels(split: str, examples: Examples, numbers: Mapping[str, int], labels: Labels) -> Kept:
    """The rows all of whose labels are classes.

    Raises:
        UserError: there is another label and `unseen_labels` is error, or no row is left.
    """
    known = np.array([all(label in numbers for label in one) for one in examples.labels], bool)
    if not known.all():
        unseen = rows.count_labels(examples.labels)
        names = ", ".join(f"{label} ({count} ×)" for label, count in unseen.most_common() if label not in numbers)
        where = {"labels": "was not seen in training", "vocabulary": "is no word of the vocabulary"}.get(
            labels.classes_from, "was neither a label nor a candidate in training"
        )
        where = "is not in data.labels" if labels.labels is not None else where
        if labels.unseen_labels == "error":
            raise UserError(
                f"a label of the {split} split {where}: {names[:300]}. Leave such rows out with "
                f"data.unseen_labels=drop, or map them to a class in data.labels"
            )
        if not known.any():
            raise UserError(f"every label of the {split} split {where}: {names[:300]}. Check data.label")
    return Kept(known, {"label is unseen": int((~known).sum())})


def answerable(split: str, examples: Examples, numbers: Mapping[str, int], labels: Labels) -> Kept:
    """The rows whose label is among their candidates.

    Raises:
        UserError: there is another row and `unseen_labels` is error, or no row is left.
    """
    if examples.candidates is None:
        return Kept(np.ones(len(examples), bool))
    allowed = [None if names is None else {numbers.get(name) for name in names} for names in examples.candidates]
    answers = [numbers[label[0]] for label in examples.labels]
    among = np.array([one is None or answer in one for answer, one in zip(answers, allowed, strict=True)], bool)
    if not among.all():
        row = int(np.flatnonzero(~among)[0])
        message = (
            f"in {int((~among).sum())} of {len(examples)} rows of the {split} split the answer is not among the "
            f"candidates, first in row {examples.example_id[row]}: {examples.labels[row][0]!r} is none of "
            f"{', '.join(examples.candidates[row] or ['(no candidate)'])[:200]}"
        )
        if labels.unseen_labels == "error":
            raise UserError(f"{message}. Leave such rows out with data.unseen_labels=drop")
        if not among.any():
            raise UserError(f"{message}. Check data.candidates and data.candidates_pattern")
    sizes = [len(one - {None}) for one, kept in zip(allowed, among, strict=True) if one is not None and kept]
    return Kept(
        among,
        {"answer is no candidate": int((~among).sum())},
        {
            "candidates per row": {"min": min(sizes, default=0), "max": max(sizes, default=0)},
            "any class may answer": sum(one is None for one in allowed),
        },
    )


def at_most(split: str, examples: Examples, limits: Limits, seed: int) -> Kept:
    """As many of the rows as `most` allows, drawn at random, in their order."""
    most = (limits.most or {}).get(split)
    if most is None or len(examples) <= most:
        return Kept(np.ones(len(examples), bool))
    generator = np.random.default_rng((seed, 2 + SPLITS.index(split)))
    kept = np.zeros(len(examples), bool)
    kept[generator.choice(len(examples), most, replace=False)] = True
    return Kept(kept, {OVER_MOST: int((~kept).sum())})


def of_length(split: str, examples: Examples, limits: Limits) -> Kept:
    """The rows within the length limits, which are strict.

    Raises:
        UserError: no row is left.
    """
    length, extremes = examples.length, limits.drop_extremes and len(examples) > 0
    least = length.min() if extremes and limits.min_length is None else limits.min_length
    most = length.max() if extremes and limits.max_length is None else limits.max_length
    long_enough = np.ones(len(length), bool) if least is None else length > least
    short_enough = np.ones(len(length), bool) if most is None else length < most
    keep = long_enough & short_enough
    if not keep.any():
        raise UserError(
            f"no row of the {split} split has more than data.min_length={limits.min_length} and fewer than "
            f"data.max_length={limits.max_length} tokens; the texts have {length.min()} to {length.max()}"
        )
    return Kept(keep, {"too short": int((~long_enough).sum()), "too long": int((~short_enough).sum())})


def of_sentences(split: str, examples: Examples, limits: Limits) -> Kept:
    """The rows within the limits on sentences, in the splits that they hold for.

    Raises:
        UserError: no row is left.
    """
    every = np.ones(len(examples), bool)
    if examples.sentences is None or examples.longest_sentence is None:
        return Kept(every)
    here, most, longest = split in limits.sentence_limits_on, limits.max_sentences, limits.max_sentence_tokens
    few = examples.sentences <= most if here and most else every
    short = examples.longest_sentence <= longest if here and longest else every
    keep = few & short
    if not keep.any():
        raise UserError(
            f"no row of the {split} split has at most data.max_sentences={most} sentences of at most "
            f"data.max_sentence_tokens={longest} tokens; the texts have at least {examples.sentences.min()}, and the "
            f"longest has at least {examples.longest_sentence.min()} tokens"
        )
    kept = examples.sentences[keep]
    return Kept(
        keep,
        {"too many sentences": int((~few).sum()), "sentence too long": int((few & ~short).sum())},
        {"sentences per text": {"min": int(kept.min()), "max": int(kept.max())}},
    )
