"""The answer by parts of the texts: by predicted class, and by a column of the user's."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from attnprobe.evidence import deciding_words
from attnprobe.evidence.deciding_words import (
    SHARE_METRICS,
    Questions,
    ShareOfClass,
    shares_of_classes,
)
from attnprobe.evidence.evidence import values_of
from attnprobe.evidence.statistics import Interval, wilson_of_clusters
from attnprobe.findings.groups import Group
from attnprobe.findings.labels import labels_asked_for
from attnprobe.findings.sheet import tested_run
from attnprobe.results.pivot import text_by_example

FEWEST = int(deciding_words.FEWEST_TEXTS)
"""Texts below which a part has no row."""
MOST = 20
"""Rows of a table: those of the largest parts."""
NAMED = 8
"""Parts without a row that are named."""
EMPTY = "(empty)"
"""Stands for an empty cell."""
COLUMN = "slice"
"""Of the examples' table."""
BY_CLASS = "predicted class"
PART = "part"
"""Beside the numbers of each row: the part of the texts that it belongs to."""


@dataclass(frozen=True)
class Slice:
    """Some of the texts.

    Attributes:
        name: what they have in common.
        texts: how many there are.
        right: share of right decisions, 0 to 1, with its 95 % interval, in which several questions
            about one text count together.
        share: of the weight beyond chance that is on words that move the prediction, −1 to 1, with
            an interval that holds together with those of the other rows; NaN where it is not asked.
        answer: yes, no or open; or why it is not asked.
    """

    name: str
    texts: int
    right: Interval
    share: Interval
    answer: str


@dataclass(frozen=True)
class Slices:
    """The answer by the parts of one division.

    Attributes:
        by: what divides the texts.
        rows: a row per part, the largest first; none where all parts are small.
        notes: what the table leaves out, a sentence each.
        counted: what a part has so many of: texts, or answers where texts are asked for labels.
    """

    by: str
    rows: Sequence[Slice]
    notes: Sequence[str]
    counted: str


def slices_of(group: Group) -> list[Slices]:
    """The answer of one model by predicted class, and by the column that its data name.

    Returns:
        Nothing where the test of words was not run, or where a text may have several labels.
    """
    run = tested_run(group)
    if run.quality is None:
        return []
    numbers = group.numbers
    if "swaps" not in numbers.probes:
        return []
    measured = values_of(numbers.rows("swaps", [*SHARE_METRICS, "predicted_class"]), *SHARE_METRICS)
    if measured is None:
        return []

    columns = run.files.example_columns(run.split).names
    names = ["example_id", "label", "prediction", *([COLUMN] if COLUMN in columns else [])]
    examples = run.files.examples(run.split, columns=names).to_pandas().set_index("example_id")
    classes = run.manifest.get("classes", [])
    predicted = examples["prediction"].map(
        lambda number: classes[number] if number < len(classes) else str(number)
    )
    divisions: dict[str, pd.Series[str]] = {BY_CLASS: predicted}
    if COLUMN in columns:
        column = str(run.manifest.get("training", {}).get("data", {}).get(COLUMN))
        divisions[column] = examples[COLUMN].replace("", EMPTY)
    is_right = examples["label"] == examples["prediction"]
    counted = "answers about labels" if labels_asked_for(run) else "test texts"
    return [_divided(by, part, is_right, measured, counted) for by, part in divisions.items()]


def _divided(
    by: str,
    part: "pd.Series[str]",
    is_right: "pd.Series[bool]",
    measured: pd.DataFrame,
    counted: str,
) -> Slices:
    """The answer by one division.

    Args:
        by: what divides the texts.
        part: each text's part, by example.
        is_right: whether its decision is right, by example.
        measured: the numbers of each run and text.
        counted: see `Slices`.
    """
    # a repeated text was measured once, and counts once
    examples = part.index.intersection(pd.Index(measured["example_id"].unique()))
    part = part[examples]
    sizes = part.value_counts()
    large = [str(name) for name in sizes.index[sizes >= FEWEST]]
    shown = large[:MOST]
    shares = _shares(part, shown, measured)
    text = text_by_example(measured)
    rows = []
    for name in shown:
        examples_of_part = part.index[part == name]
        right = wilson_of_clusters(
            is_right[examples_of_part].to_numpy(bool), text[examples_of_part].to_numpy()
        )
        rows.append(_row(name, len(examples_of_part), right, shares.get(name)))
    return Slices(by, rows, list(_left_out(sizes, shown, counted)), counted)


def _shares(
    part: "pd.Series[str]", shown: Sequence[str], measured: pd.DataFrame
) -> Mapping[str, ShareOfClass]:
    """The share of each part that is shown, the intervals of all of them together."""
    code_of_part = {name: code for code, name in enumerate(shown)}
    table = measured.assign(**{PART: measured["example_id"].map(part.map(code_of_part))})
    table = table[table[PART].notna()]
    if table.empty:
        return {}
    table.attrs = dict(measured.attrs)
    questions = Questions.of(table, [*SHARE_METRICS, PART])
    excess, room, strength, codes = questions.columns
    # a row that a run lacks is of no part, and counts for none
    codes = np.nan_to_num(codes, nan=-1).astype(int)
    shares = shares_of_classes(
        excess, room, strength, codes, clusters=questions.clusters, together=True
    )
    return {shown[share.predicted_class]: share for share in shares}


def _row(name: str, texts: int, right: Interval, share: ShareOfClass | None) -> Slice:
    unknown = Interval(np.nan, np.nan, np.nan)
    if share is None or not share.is_asked:
        answer = "too few texts" if share is None else share.answer
        return Slice(name, texts, right, unknown, answer)
    evidence = share.share
    interval = Interval(evidence.value, evidence.low, evidence.high)
    return Slice(name, texts, right, interval, share.answer)


def _left_out(sizes: "pd.Series[int]", shown: Sequence[str], counted: str) -> Iterator[str]:
    """What the table does not show."""
    small = [str(name) for name in sizes.index[sizes < FEWEST]]
    if small:
        more = f" and {len(small) - NAMED:,} more" if len(small) > NAMED else ""
        yield f"Not asked, with fewer than {FEWEST} {counted}: {', '.join(small[:NAMED])}{more}"
    further = int((sizes >= FEWEST).sum()) - len(shown)
    if further:
        yield f"Of {further + len(shown):,} parts the {len(shown)} largest are shown"
    if len(sizes) == 1:
        yield f"All {counted} are in one part: this divides nothing"
