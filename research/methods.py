"""Which method finds the words that decide?

Every importance on models whose reason is known, and what it costs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from attnprobe.core.errors import UserError
from attnprobe.evidence.statistics import in_columns, student
from attnprobe.findings.members import numbers_by_text
from attnprobe.findings.studies.base import Done, Member, Study, StudyFigure, StudyReading
from attnprobe.importance.base import classes
from attnprobe.plots.grid import around, cells, grid, title
from attnprobe.readings.importances import importances_in
from attnprobe.report.studies.drawing import draw
from attnprobe.results.table import IMPORTANCES, read_results
from research import planted
from research.planted import DATA, FOLLOWS, SOLVED, check_names, facts_of_run, is_learnable

ENCODERS = planted.ENCODERS | {
    "transformer": (
        "model=transformer",
        "model.width=32",
        "training.recipe.optimizer.lr=0.002",
        "training.epochs=15",
    )
}
"""Those of `research.planted`, and a transformer, which takes smaller steps and more of them."""
AT_A_LOSS = 0.65
"""Where no text has its reason changed: accuracy (of two even classes) without the words that
decide, up to which a model goes by them."""
MEASURES = {"auprc": "auprc_rationale_", "precision": "f1_rationale_"}
"""Column → the metric, which an importance's name follows."""


@dataclass(frozen=True)
class Methods(Study):
    """Trains every encoder on every data set, and asks every importance for the deciding words.

    As Bastings et al. 2022 do. Only models that go by these words are counted (`known_answer`).
    Replicates come one after the other, so that a study that is cut short is even at any time.

    Attributes:
        encoders: of `ENCODERS`.
        data: of `DATA`.
        settings: overrides that all members share.
        importances: the methods.
    """

    name: ClassVar[str] = "methods"
    encoders: Sequence[str] = tuple(ENCODERS)
    data: Sequence[str] = ("token", "ordered_pair")
    seeds: Sequence[int] = ()
    settings: Sequence[str] = ()
    importances: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_names(self, encoders=ENCODERS, data=DATA)
        if not self.importances:
            raise UserError(
                "importances=[…] is empty: expected the methods to compare, such as "
                "[attention,gradient]"
            )

    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """One stage: none needs another. The command line's own seed and model play no part."""
        yield [
            self.member(encoder, data, each)
            for each, data, encoder in product(self.seeds, self.data, self.encoders)
            if is_learnable(data, encoder)
        ]

    def member(self, encoder: str, data: str, seed: int) -> Member:
        """One training.

        Methods that follow layers of self-attention are left out where the encoder has none.
        """
        importances = [
            name
            for name in self.importances
            if encoder == "transformer" or not getattr(classes().get(name), "of_layers", False)
        ]
        overrides = (
            *DATA[data],
            *self.settings,
            *ENCODERS[encoder],
            f"data.name={data}",
            f"model.name={encoder}",
            "probe=[known_answer,plausibility]",
            f"importances=[{','.join(importances)}]",
        )
        return Member(encoder, seed, overrides)


def read(directory: Path, content: dict[str, Any]) -> StudyReading:
    """Means over models, with intervals.

    Models that do not go by the known reason are counted and left out.

    Args:
        directory: of the study.
        content: of its study.json.
    """
    runs = [directory / member["directory"] for member in content["members"]]
    scores = pd.concat([scores_of_model(run) for run in runs], ignore_index=True)
    models = scores.drop_duplicates("run_id")
    solved = scores[scores["solved"]]
    data_scores = scores_by_data(solved)
    summary = overall(solved)

    count = int(models["solved"].sum())
    is_solved = models.groupby(["data", "encoder"], observed=True)["solved"]
    counts = is_solved.agg(["size", "sum"]).reset_index()
    counts.columns = pd.Index(["data", "encoder", "models", "go by the known reason"])
    figure = MethodScores(
        "methods_auprc",
        "Average precision of the words that decide, mean over the models that go by them; methods "
        "by their mean.",
        data_scores,
    )
    return StudyReading(
        title="Which method finds the words that decide?",
        about=f"{len(models)} small models trained on data whose reason is known; {count} of them "
        f"go by it (accuracy of at least {SOLVED:g}, and {FOLLOWS:g} with the reason changed, or "
        f"at most {AT_A_LOSS:g} without it) and are counted, on the texts that they decide "
        "rightly, and wrongly once the words that decide are taken out: of two classes a model may "
        "know one by its words and the other by their absence, and then no word of the other's "
        "texts decides. AUPRC: average precision of the words that decide in each method's "
        "ranking; precision at k: their share of as many top words as there are. 1 is perfect; the "
        "line of random is chance. Means over models, with Student's 95 % interval over them; "
        "milliseconds are a text's, on the machine of the study.",
        data=", ".join(dict.fromkeys(models["data"])),
        model=", ".join(dict.fromkeys(models["encoder"])),
        directory=directory,
        runs=runs[:1],
        tables={
            "All data sets together: mean over the data sets of which an encoder has models that "
            "count": summary,
            "AUPRC and precision at k of every method, by data set and encoder": data_scores,
            "Models": counts,
        },
        figures=[figure],
        answer=answer(summary),
        notes=[
            f"{len(models) - count} of {len(models)} models do not go by the known reason and are "
            "left out."
        ],
    )


def answer(summary: pd.DataFrame) -> str:
    """Which method finds the words that decide best, beside attention and chance."""
    if summary.empty:
        return "No model here goes by the known reason, so no method can be judged."
    means = summary.groupby("method", sort=False)["auprc"].mean()
    best = str(means.idxmax())
    beside = ", ".join(
        f"{method} {means[method]:.2f}" for method in ("attention", "random") if method in means
    )
    comparison = f" ({beside})" if beside else ""
    return (
        f"“{best}” finds the words that decide best: average precision {means[best]:.2f}"
        f"{comparison}; 1 is perfect."
    )


def scores_of_model(run: Path) -> pd.DataFrame:
    """A row per importance of one model.

    Scores are means over `texts_that_need_words`.
    """
    facts = facts_of_run(run)
    texts = texts_that_need_words(run)

    numbers = numbers_by_text(run, "plausibility")
    means = numbers.reindex(texts).mean()
    results = read_results(run, probe="plausibility")
    importances = results.attrs[IMPORTANCES].get("plausibility", {})
    rows = []
    for name, importance in importances_in(results, "plausibility", "f1_rationale_").items():
        seconds = importances.get(name, {}).get("seconds", np.nan)
        row = {"method": importance.title, "ms": 1000 * seconds / len(numbers)}
        for column, metric in MEASURES.items():
            row[column] = means[f"{metric}{name}"]
        rows.append(row)
    return pd.DataFrame(rows).assign(
        data=facts["data"],
        run_id=facts["run_id"],
        seed=facts["seed"],
        encoder=facts["model"],
        solved=goes_by_reason(facts) and len(texts) > 0,
        texts=len(texts),
    )


def texts_that_need_words(run: Path) -> "pd.Index[Any]":
    """The texts that a model decides rightly, and wrongly without the words that decide."""
    decisions = numbers_by_text(run, "known_answer")
    needs_words = (decisions["correct"] == 1) & (decisions["correct_without"] == 0)
    return decisions.index[needs_words]


def goes_by_reason(facts: dict[str, Any]) -> bool:
    """Whether a model solves its task, and does so by the words that decide."""
    if not facts["accuracy"] >= SOLVED:
        return False
    if np.isnan(facts["accuracy_contradicted"]):
        return facts["accuracy_without"] <= AT_A_LOSS
    return facts["accuracy_contradicted"] >= FOLLOWS


def scores_by_data(scores: pd.DataFrame) -> pd.DataFrame:
    """A row per data set, encoder and method: means over models."""
    rows = []
    groups = scores.groupby(["data", "encoder", "method"], sort=False)
    for (data, encoder, method), models in groups:
        row = {"data": data, "encoder": encoder, "method": method}
        row |= {"models": len(models), "texts": int(models["texts"].sum())}
        rows.append(row | means_over_data([models]))
    if not rows:
        return pd.DataFrame(columns=["data", "encoder", "method", "auprc"])
    return pd.DataFrame(rows)


def overall(scores: pd.DataFrame) -> pd.DataFrame:
    """A row per encoder and method, best first.

    Each data set counts once, however many of its models are counted.
    """
    tables = []
    for encoder, models_of_encoder in scores.groupby("encoder", sort=False):
        rows = []
        for method, models in models_of_encoder.groupby("method", sort=False):
            data_sets = [table for _, table in models.groupby("data", sort=False)]
            row = {"encoder": encoder, "method": method}
            row |= {"data sets": len(data_sets), "models": len(models)}
            rows.append(row | means_over_data(data_sets))
        tables.append(pd.DataFrame(rows).sort_values("auprc", ascending=False, kind="stable"))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def means_over_data(data_sets: Sequence[pd.DataFrame]) -> dict[str, float]:
    """Means over the data sets of the means over their models, with intervals over the models.

    Args:
        data_sets: a table per data set, a row per model.
    """
    row: dict[str, float] = {}
    for column in MEASURES:
        values = [models[column].to_numpy() for models in data_sets]
        row |= in_columns(column, student(*values, low=0, high=1))
    row["ms per text"] = float(np.mean([models["ms"].mean() for models in data_sets]))
    return row


@dataclass(frozen=True)
class MethodScores(StudyFigure):
    """`auprc` by `data`, `encoder` and `method`."""

    scores: pd.DataFrame


@draw.register
def draw_method_scores(figure: MethodScores) -> Figure:
    """Average precision, a panel per data set: methods by encoder."""
    scores = figure.scores
    data_sets = list(dict.fromkeys(scores["data"]))
    encoders = list(dict.fromkeys(scores["encoder"]))
    means = scores.groupby("method")["auprc"].mean()
    methods = means.sort_values(ascending=False).index.tolist()
    height = 0.6 + 0.16 * max(1, len(methods))
    drawn, panels = grid(max(1, len(data_sets)), panel_height=height, columns=2)
    for panel, data in zip(panels, data_sets, strict=False):
        matrix = scores[scores["data"] == data].pivot_table(
            index="method", columns="encoder", values="auprc", sort=False
        )
        matrix = matrix.reindex(index=methods, columns=encoders)  # the panels share both axes
        image = {"cmap": "Blues", "vmin": 0, "vmax": 1}
        cells(panel, matrix.to_numpy(), "{:.2f}".format, size=6, dark=0.6, **image)
        panel.set_xticks(range(len(encoders)), encoders)
        panel.set_yticks(range(len(methods)), methods)
        title(panel, str(data))
    around(drawn)
    return drawn
