"""Two finished runs on the same texts: what changed in numbers (paired, with intervals), verdicts
and examples."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.spatial.distance import jensenshannon

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import visible
from attnprobe.evidence.reading import present
from attnprobe.evidence.statistics import interval
from attnprobe.findings.groups import Run, read_runs
from attnprobe.findings.studies.base import STUDY, read_study
from attnprobe.findings.table import answer, card, findings_of
from attnprobe.findings.verdicts import UNASKED
from attnprobe.plots.heatmap import label_text
from attnprobe.results.directory import WHOLE_SPLIT
from attnprobe.results.table import repeats_of

CORRECT = "correct"
"""Share of right decisions, 0 to 1, of the texts that both runs have."""
SAME = {"accuracy", "exact_match"}
"""The same share, of all texts of each run and without an interval: not shown a second time."""
MOST_WORDS = 25


@dataclass(frozen=True)
class Changes:
    """What changed from one run to another.

    Attributes:
        numbers: a row per headline number that both have: `probe metric title n first second change
            low high`; `change` with its 95 % interval (paired bootstrap over the texts; NaN for
            numbers of a whole split).
        verdicts: a row per criterion that either was tested on: `criterion first second`, the
            answers, `change`, and the numbers that they go by: `first_value second_value`.
        sentences: what each run's own page says first of its attention.
        examples: a row per text that both have: `example_id text label first second attention`, the
            predicted classes, and the JSD of the attentions in nats (NaN: over different units);
            other predictions first, then the largest.
        shared, first_only, second_only, flipped: numbers of texts; `flipped`: with another
        prediction.
    """

    numbers: pd.DataFrame
    verdicts: pd.DataFrame
    sentences: tuple[str, str]
    examples: pd.DataFrame
    shared: int
    first_only: int
    second_only: int
    flipped: int


def run_at(place: str | os.PathLike) -> Run:
    """The one finished run at a place: a run's directory, or a study's, whose examined run is
    meant.

    Raises:
        UserError: no finished run there, or several.
    """
    path = Path(place)
    runs = read_runs(read_study(path).runs[:1] if (path / STUDY).exists() else [place])
    if len(runs) > 1:
        names = ", ".join(str(run.directory) for run in runs[:3])
        raise UserError(
            f"{place} holds {len(runs)} finished runs ({names}, …): name the directory of one"
        )
    return runs[0]


def compare_runs(first: Run, second: Run) -> Changes:
    """Compare two runs text by text.

    Raises:
        UserError: they have no text in common, or other classes.
    """
    classes, others = (tuple(run.manifest.get("classes", ())) for run in (first, second))
    if classes != others:
        raise UserError(
            f"{first.directory} has the classes {', '.join(classes)}, {second.directory} {', '.join(others)}: only runs on "
            f"the same classes can be compared"
        )
    tables = [examples_of(run) for run in (first, second)]
    both = tables[0].index.intersection(tables[1].index)
    if not len(both):
        raise UserError(
            f"{first.directory} and {second.directory} have no test text in common: both must have read the same file with "
            f"the same data.split_seed"
        )
    one, other = (table.loc[both] for table in tables)
    found = [findings_of(run) for run in (first, second)]
    examples = compared_examples(one, other, classes)
    return Changes(
        numbers=numbers_of(first, second, one, other),
        verdicts=compared_verdicts(*found),
        sentences=(answer(found[0]).words, answer(found[1]).words),
        examples=examples,
        shared=len(both),
        first_only=len(tables[0]) - len(both),
        second_only=len(tables[1]) - len(both),
        flipped=int((examples["first"] != examples["second"]).sum()),
    )


def examples_of(run: Run) -> pd.DataFrame:
    """The probed texts, by number and words: the same number in another file would be another
    text."""
    wanted = ["example_id", "label", "prediction", "tokens", "attention"]
    table = run.files.examples(run.split, columns=wanted).to_pandas()
    table = table[~table["example_id"].isin(repeats_of(run.files))]
    words = [" ".join(map(str, tokens)) for tokens in table["tokens"]]
    return table.assign(words=words).set_index(["example_id", "words"], drop=False)


def numbers_of(first: Run, second: Run, one: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Every headline number that both runs have, and how it changed."""
    ids = one["example_id"].to_numpy()
    rows: list[dict[Any, Any]] = []

    def add(
        probe: str,
        metric: str,
        title: str,
        values: "list[pd.Series[float]]",
        *,
        whole: bool = False,
    ) -> None:
        """The number of both runs, and the mean of its paired differences, without an interval
        where it is of the whole split; texts where either is undefined are left out."""
        columns = zip(("first", "second"), values, strict=True)
        both = pd.DataFrame({name: own.to_numpy(float) for name, own in columns}).dropna()
        change, low, high = interval((both["second"] - both["first"]).to_numpy())
        spread = {"low": np.nan, "high": np.nan} if whole else {"low": low, "high": high}
        about = {"probe": probe, "metric": metric, "title": title, "n": 0 if whole else len(both)}
        rows.append(
            about | {name: both[name].mean() for name in both} | {"change": change} | spread
        )

    words = [
        table[["prediction", "label"]].map(lambda cell: label_text(cell, ()))
        for table in (one, other)
    ]
    right = [(table["prediction"] == table["label"]).astype(float) for table in words]
    add("performance", CORRECT, "accuracy (same texts)", right)
    for reading in present(first.numbers):
        for number in reading.headlines_of(first.numbers.outline(reading.probe)):
            if number.spread or (reading.probe == "performance" and number.metric in SAME):
                continue
            both = [
                number.values(run.numbers.rows(reading.probe, number.metrics))
                for run in (first, second)
            ]
            whole = all(WHOLE_SPLIT in series.index for series in both)
            values = both if whole else [series.reindex(ids) for series in both]
            if all(series.notna().any() for series in values):
                add(reading.probe, number.key, number.title, values, whole=whole)
    return pd.DataFrame(rows)


def compared_verdicts(first: pd.DataFrame, second: pd.DataFrame) -> pd.DataFrame:
    """What each run's findings say of every criterion that either was tested on, with the number
    that it goes by."""
    sides = [
        card(table)[["answer", "value"]].set_axis([name, f"{name}_value"], axis=1)
        for name, table in (("first", first), ("second", second))
    ]
    both = sides[0].join(sides[1], how="outer", sort=False)
    both = both.fillna({"first": UNASKED, "second": UNASKED})
    there = both[["first", "second"]] != UNASKED
    changed = np.where(both["first"] == both["second"], "", "changed")
    both["change"] = np.select(
        [~there["second"], ~there["first"]], ["only in A", "only in B"], changed
    )
    both = both[there.any(axis=1)].rename_axis("criterion").reset_index()
    return both[["criterion", "first", "second", "change", "first_value", "second_value"]]


def compared_examples(
    one: pd.DataFrame, other: pd.DataFrame, classes: tuple[str, ...]
) -> pd.DataFrame:
    """Every text with both predictions and the distance of the attentions."""
    rows = pd.DataFrame(
        {
            "example_id": one["example_id"].to_numpy(),
            "text": [visible(" ".join(words.split(" ")[:MOST_WORDS])) for words in one["words"]],
            "label": [label_text(label, classes) for label in one["label"]],
            "first": [label_text(label, classes) for label in one["prediction"]],
            "second": [label_text(label, classes) for label in other["prediction"]],
            "attention": [  # scipy gives the root, and NaN for a rounding below 0
                float(np.nan_to_num(jensenshannon(a, b)) ** 2) if len(a) == len(b) else np.nan
                for a, b in zip(one["attention"], other["attention"], strict=True)
            ],
        }
    )
    order = np.lexsort((-rows["attention"].fillna(0), rows["first"] == rows["second"]))
    return rows.iloc[order].reset_index(drop=True)
