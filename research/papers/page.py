"""The page of published numbers beside measured ones."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from attnprobe.findings.headlines import OVERALL
from attnprobe.findings.studies.base import StudyReading, find_studies
from research.markdown import markdown
from research.papers.causes import Changed, Distances, changed, explanation, tally
from research.papers.cells import (
    ALL_TEXTS,
    FEWER,
    NO_DATA,
    RANDOM,
    Cell,
    CellName,
    Measured,
    Setup,
    cells_of,
    headings,
)
from research.papers.guides import guide_scores

JAIN = "Jain & Wallace 2019"
PARTS = ("answer", "cells", "studies")
"""The names of the page's generated parts."""
METRICS = {
    "accuracy": "accuracy",
    "f1_macro": "macro F1",
    "roc_auc": "ROC-AUC",
    "adversarial_max_jsd_mean": "adversary's JSD",
    "tau_attention_gradient_mean": "τ(attention, gradient)",
    "tau_attention_loo_mean": "τ(attention, leave-one-out)",
    "tau_gradient_loo_mean": "τ(gradient, leave-one-out)",
}
"""Published metric of Jain & Wallace → a column's heading."""
BY_CLASS = ("adversarial_max_jsd_mean",)
"""Of these the paper reports no number over all classes."""


def is_shown(cell: Cell | CellName) -> bool:
    """Whether a number is in the tables: means over all classes where the paper reports them."""
    has_overall = cell.metric not in BY_CLASS
    return cell.metric in METRICS and has_overall == (cell.group == OVERALL)


def is_on_page(cell: CellName) -> bool:
    """Whether the page has the number: in its tables, or as Serrano & Smith's of a network."""
    return is_shown(cell) or (cell.metric == FEWER and cell.group == OVERALL)


def number_of(cell: Cell) -> str:
    """What a number is called in a table."""
    predicted = "" if cell.group == OVERALL else f", predicted {cell.group.replace('_', ' ')}"
    return METRICS[cell.metric] + predicted


def references(cells: Iterable[Cell]) -> dict[str, Setup]:
    """Data set → the setup that its numbers are compared in: without vectors, the most often run.

    A data set that was run with vectors alone has the most frequent of these.
    """
    counts: dict[str, Counter[Setup]] = {}
    for cell in cells:
        for measured in cell.measured:
            counts.setdefault(cell.data, Counter())[measured.setup] += 1
    chosen = {}
    for data, counter in counts.items():
        chosen[data] = max(
            sorted(counter), key=lambda setup: (setup.vectors == RANDOM, counter[setup])
        )
    return chosen


@dataclass(frozen=True)
class Beside:
    """A published number and the measured one that it is compared with."""

    cell: Cell
    measured: Measured

    @property
    def value(self) -> float:
        """The measured one."""
        return self.measured.number.value

    @property
    def difference(self) -> float:
        """Measured − published."""
        return self.value - self.cell.published


def beside(cells: Iterable[Cell], reference: Mapping[str, Setup]) -> list[Beside]:
    """Every published number that has a run, in the setup that it is compared in."""
    pairs = []
    for cell in cells:
        if cell.data in reference:
            measured = cell.in_setup(reference[cell.data])
            if measured is not None:
                pairs.append(Beside(cell, measured))
    return pairs


def same_order(pairs: Sequence[Beside]) -> tuple[int, int]:
    """Of two models of one data set: how often the larger published number is the larger here.

    Two models with the same number, published or measured, have no order.

    Returns:
        How often, and of how many pairs of models.
    """
    same = 0
    total = 0
    for first, second in combinations(pairs, 2):
        is_comparable = first.cell.data == second.cell.data
        if is_comparable and first.cell.group == second.cell.group:
            published = first.cell.published - second.cell.published
            measured = first.value - second.value
            total += published * measured != 0
            same += published * measured > 0
    return same, total


@dataclass(frozen=True)
class Kind:
    """One kind of number over all cells that have a run.

    Attributes:
        count: how many cells.
        median: of measured − published.
        least: the smallest of these.
        most: the largest.
        intervals: how many cells have an interval that is not of two seeds.
        inside: in how many of them the published number is.
        of_two_seeds: how many have an interval of two seeds, which holds nearly any number.
        same_order: of how many pairs of models the published order is ours.
        pairs: how many there are.
    """

    count: int
    median: float
    least: float
    most: float
    intervals: int
    inside: int
    of_two_seeds: int
    same_order: int
    pairs: int

    @classmethod
    def of(cls, pairs: Sequence[Beside]) -> "Kind":
        """Count some numbers of one kind."""
        differences = np.array([pair.difference for pair in pairs])
        with_interval = [pair for pair in pairs if pair.measured.has_interval]
        counted = [pair for pair in with_interval if pair.measured.tells_spread]
        same, comparable = same_order(pairs)
        return cls(
            count=len(pairs),
            median=float(np.median(differences)),
            least=float(differences.min()),
            most=float(differences.max()),
            intervals=len(counted),
            inside=sum(pair.measured.holds(pair.cell.published) for pair in counted),
            of_two_seeds=len(with_interval) - len(counted),
            same_order=same,
            pairs=comparable,
        )


def kinds_table(pairs: Sequence[Beside]) -> pd.DataFrame:
    """A row per kind of number: how far measured and published are apart."""
    rows = []
    for metric, name in METRICS.items():
        of_kind = [pair for pair in pairs if pair.cell.metric == metric and is_shown(pair.cell)]
        if not of_kind:
            continue
        kind = Kind.of(of_kind)
        inside = f"{kind.inside} of {kind.intervals}" if kind.intervals else "no interval"
        if kind.of_two_seeds:
            inside += f"; {kind.of_two_seeds} of two seeds"
        rows.append(
            {
                "number": name,
                "cells": kind.count,
                "measured − published, median": signed(kind.median),
                "from": signed(kind.least),
                "to": signed(kind.most),
                "published in our interval": inside,
                "two models in the published order": f"{kind.same_order} of {kind.pairs}",
            }
        )
    return pd.DataFrame(rows)


def changes_table(pairs: Sequence[Changed]) -> pd.DataFrame:
    """A row per thing that was changed and kind of number: do the numbers move to the published?"""
    rows = []
    for change in dict.fromkeys(pair.change for pair in pairs):
        for metric, name in METRICS.items():
            of_kind = [
                pair for pair in pairs if pair.change == change and pair.cell.metric == metric
            ]
            if not of_kind:
                continue
            distances = Distances.of(of_kind)
            rows.append(
                {
                    "changed": change,
                    "number": name,
                    "cells run both ways": distances.count,
                    "distance from the published number before": f"{distances.before:.3f}",
                    "after": f"{distances.after:.3f}",
                    "nearer than before": f"{distances.nearer} of {distances.count}",
                }
            )
    return pd.DataFrame(rows)


def signed(number: float) -> str:
    """A difference with its sign."""
    return f"{number:+.3f}".replace("-", "−")


@dataclass(frozen=True)
class Comparison:
    """A line of the answer: some kinds of numbers, and what is said where ours are other ones."""

    metrics: Sequence[str]
    lower: str
    higher: str
    equal: str

    def headline(self, differences: Sequence[float]) -> str:
        """Which of the sentences it is, by the medians of measured − published."""
        if all(difference < -NEAR for difference in differences):
            return self.lower
        if all(difference > NEAR for difference in differences):
            return self.higher
        return self.equal


NEAR = 0.01
"""Difference from the published number, in the median, that is not called one."""
COMPARISONS = (
    Comparison(
        ["accuracy", "roc_auc"],
        lower="The models are worse classifiers than the published ones",
        higher="The models are better classifiers than the published ones",
        equal="The models are about as good classifiers as the published ones",
    ),
    Comparison(
        ["tau_attention_gradient_mean", "tau_attention_loo_mean"],
        lower="Attention agrees less with gradient and leave-one-out than was published",
        higher="Attention agrees more with gradient and leave-one-out than was published",
        equal="Attention agrees with gradient and leave-one-out about as much as was published",
    ),
    Comparison(
        BY_CLASS,
        lower="Attentions with the same prediction exist, nearer than the published ones",
        higher="Attentions with the same prediction exist, farther away than the published ones",
        equal="Attentions with the same prediction exist, about as far away as published",
    ),
)


def answer_of(cells: Sequence[Cell]) -> str:
    """The page's first lines, from the numbers."""
    reference = references(cells)
    pairs = [pair for pair in beside(cells, reference) if is_shown(pair.cell)]
    shown = [cell for cell in cells if is_shown(cell)]
    possible = [cell for cell in shown if cell.is_possible]
    models = {(cell.data, cell.model) for cell in possible if cell.measured}
    all_models = {(cell.data, cell.model) for cell in possible}
    of_parts = {
        (pair.cell.data, pair.cell.model)
        for pair in pairs
        if pair.measured.setup.texts != ALL_TEXTS
    }
    on_a_part = f" ({len(of_parts)} on a part of the corpus)" if of_parts else ""
    lines = [
        f"**Run so far**: {len(models)}{on_a_part} of the {len(all_models)} models whose data are "
        f"at hand, {_seeds(shown)}; {len(pairs):,} of {len(possible):,} numbers of Jain & "
        f"Wallace. Another {len(shown) - len(possible):,} are of data that cannot be had."
    ]
    if pairs:
        lines += [_compared(comparison, pairs) for comparison in COMPARISONS]
        lines.append(f"**Causes**: {_causes(cells, reference)}")
    return "\n".join(f"- {line}" for line in lines if line)


def _seeds(cells: Sequence[Cell]) -> str:
    """How many models were run with how many seeds, such as `30 with 3 seeds and 18 with 1`.

    A model counts with the setup that has the most.
    """
    seeds_of_model: dict[tuple[str, str], int] = {}
    for cell in cells:
        for measured in cell.measured:
            model = (cell.data, cell.model)
            seeds_of_model[model] = max(measured.seeds, seeds_of_model.get(model, 0))
    models_by_seeds = Counter(seeds_of_model.values())
    if not models_by_seeds:
        return "no run"
    counts = sorted(models_by_seeds, reverse=True)
    first, *others = [f"{models_by_seeds[seeds]} with {seeds}" for seeds in counts]
    first += " seed" if counts[0] == 1 else " seeds"
    return first if not others else f"{first} and {' and '.join(others)}"


def _compared(comparison: Comparison, pairs: Sequence[Beside]) -> str:
    """A line of the answer; empty where none of its numbers was measured."""
    kinds = {}
    for metric in comparison.metrics:
        of_kind = [pair for pair in pairs if pair.cell.metric == metric]
        if of_kind:
            kinds[METRICS[metric]] = Kind.of(of_kind)
    if not kinds:
        return ""

    medians = " and ".join(f"{name} {signed(kind.median)}" for name, kind in kinds.items())
    headline = comparison.headline([kind.median for kind in kinds.values()])
    sentences = [f"**{headline}**: {medians} from the published in the median"]
    intervals = sum(kind.intervals for kind in kinds.values())
    if intervals:
        inside = sum(kind.inside for kind in kinds.values())
        sentences.append(f"the published value lies in {inside} of {intervals} intervals")
    models = sum(kind.pairs for kind in kinds.values())
    if models:
        agreements = sum(kind.same_order for kind in kinds.values())
        sentences.append(f"{agreements} of {models} pairs of models are in the published order")
    return "; ".join(sentences) + "."


def _causes(cells: Sequence[Cell], reference: Mapping[str, Setup]) -> str:
    shown = [cell for cell in cells if is_shown(cell)]
    counts = tally(shown, reference)
    if not counts.beyond:
        return "no published number is outside of its interval."
    words = f"of {counts.beyond} numbers that are not the published ones {counts}."
    pairs = changed(shown, reference)
    for change in dict.fromkeys(pair.change for pair in pairs):
        distances = Distances.of([pair for pair in pairs if pair.change == change])
        words += (
            f" Changing {change} takes the median distance of {distances.count} numbers from "
            f"{distances.before:.3f} to {distances.after:.3f}."
        )
    return words


def jain_part(data: str, cells: Sequence[Cell], reference: Setup | None) -> str:
    """One data set of Jain & Wallace: a table of what was run, and a line of what was not.

    Args:
        data: its name.
        cells: the numbers that are shown.
        reference: see `references`; None where nothing was run.
    """
    if data in NO_DATA:
        return f"**{data}**: {len(cells)} published numbers, no data: {NO_DATA[data]}."
    if reference is None:
        return f"**{data}**: {len(cells)} published numbers, not run."

    setups = {measured.setup for cell in cells for measured in cell.measured}
    in_order = [reference, *sorted(filter(reference.cause_in, setups))]
    names = headings(in_order)
    rows = []
    absent: Counter[str] = Counter()
    for cell in cells:
        if not any(cell.in_setup(setup) for setup in in_order):
            absent[cell.model] += 1
            continue
        row = {
            "model": cell.model,
            "number": number_of(cell),
            "published": f"{cell.published:.3f}",
        }
        row |= {names[setup]: _measured_text(cell, setup) for setup in in_order}
        row["cause of the difference"] = explanation(cell, reference)
        rows.append(row)
    parts = [f"### {data}", markdown(pd.DataFrame(rows))]
    if absent:
        models = ", ".join(f"{model} ({count})" for model, count in absent.items())
        parts.append(f"Not run, with the count of published numbers: {models}.")
    return "\n\n".join(parts)


def _measured_text(cell: Cell, setup: Setup) -> str:
    """What was measured, if anything; bold where the published number is outside of it."""
    measured = cell.in_setup(setup)
    if measured is None:
        return ""
    return f"**{measured}**" if cell.beyond(setup) else str(measured)


def serrano_part(cells: Sequence[Cell], numbers: Mapping[CellName, Sequence[Measured]]) -> str:
    """How often the gradient's order flips a decision with fewer items than attention's.

    Args:
        cells: all published numbers.
        numbers: all measured ones.
    """
    published = [cell for cell in cells if cell.metric == FEWER]
    ours = {
        name: of_setups
        for name, of_setups in numbers.items()
        if name.metric == FEWER and name.group == OVERALL
    }
    data_sets = sorted({name.data for name in ours})
    published_models = [cell.model for cell in published]
    our_models = sorted({name.model for name in ours})
    table = []
    for model in dict.fromkeys(published_models + our_models):
        row = {"model": model}
        for cell in published:
            if cell.model == model:
                row[f"{cell.data}, published"] = f"{cell.published:.3f}"
        for data in data_sets:
            of_setups = ours.get(CellName(data, model, FEWER, OVERALL), ())
            row[f"{data}, here"] = "; ".join(map(str, of_setups))
        table.append(row)
    shown = pd.DataFrame(table).fillna("–").replace("", "not run")
    words = (
        "Share of all test texts whose decision flips with fewer items by the gradient's order "
        "than by attention's. The paper's data sets are not at hand, so that no cell of ours is "
        "one of theirs: sizes compare, and nothing else. Its 2 × 2 tables of flips are not among "
        "the released results; ours, and its conclusions under nulls, are on "
        "[its own page](serrano_smith.md#under-the-nulls)."
    )
    return f"{words}\n\n{markdown(shown)}"


def wiegreffe_part(studies: Sequence[StudyReading]) -> str:
    """The studies' own tables, and the guided models by other scores."""
    parts = []
    for study in studies:
        for caption, table in study.tables.items():
            parts.append(f"### {study.data}: {caption}\n\n{markdown(rounded(table))}")
        guided = guide_scores(study.directory)
        if not guided.empty:
            parts.append(
                f"### {study.data}: guided models by other scores\n\n{markdown(rounded(guided))}"
            )
    return "\n\n".join(parts)


def studies_of(places: Sequence[str]) -> list[StudyReading]:
    """The finished studies of Wiegreffe & Pinter's tests."""
    return [study for study in find_studies(list(places))[0] if "Wiegreffe" in study.about]


def parts_of_page(
    numbers: Mapping[CellName, list[Measured]], studies: Sequence[StudyReading]
) -> dict[str, str]:
    """The generated parts of the page, by the names of their markers.

    Args:
        numbers: all that was measured.
        studies: of Wiegreffe & Pinter's tests; without any, the page keeps its part about them.
    """
    cells = cells_of(numbers)
    reference = references(cells)
    parts = []
    kinds = kinds_table(beside(cells, reference))
    if not kinds.empty:
        parts.append(f"## By kind of number\n\n{markdown(kinds)}")

    changes = changes_table(changed([cell for cell in cells if is_shown(cell)], reference))
    if not changes.empty:
        parts.append(f"## With one thing changed\n\n{markdown(changes)}")

    parts.append(f"## {JAIN}")
    by_data: dict[str, list[Cell]] = {}
    for cell in cells:
        if is_shown(cell):
            by_data.setdefault(cell.data, []).append(cell)
    run = [data for data in by_data if data in reference]
    not_run = [data for data in by_data if data not in reference]
    for data in run + not_run:
        parts.append(jain_part(data, by_data[data], reference.get(data)))

    parts += ["## Serrano & Smith 2019", serrano_part(cells, numbers)]
    written = {"answer": f"In short:\n\n{answer_of(cells)}", "cells": "\n\n".join(parts)}
    if studies:
        written["studies"] = wiegreffe_part(studies)
    return written


def rounded(table: pd.DataFrame) -> pd.DataFrame:
    """Numbers with three digits after the point, an empty cell where there is none."""

    def cell(value: object) -> object:
        if not isinstance(value, float):
            return value
        return "" if np.isnan(value) else f"{value:.3f}"

    return table.map(cell)
