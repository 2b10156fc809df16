"""Which method finds the words that decide? Every importance on models whose reason is known, and
what it costs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from attnprobe.core.errors import UserError
from attnprobe.evidence.reading import importances_in
from attnprobe.evidence.statistics import in_columns, student
from attnprobe.findings.members import measured
from attnprobe.findings.studies.base import Done, Member, Study, StudyFigure, StudyReading
from attnprobe.importance.base import classes
from attnprobe.plots.grid import around, cells, grid, title
from attnprobe.report.studies.drawing import draw
from attnprobe.results.table import IMPORTANCES, read_results
from research.calibration import study
from research.calibration.records import FOLLOWS, SOLVED, answer_of
from research.calibration.study import DATA, SINGLE_WORD, WITHOUT_CONTEXT, check_names

ENCODERS = study.ENCODERS | {
    "transformer": (
        "model=transformer",
        "model.width=32",
        "training.recipe.optimizer.lr=0.002",
        "training.epochs=15",
    )
}
"""Those of the calibration, and a transformer, which takes smaller steps and more of them."""
AT_A_LOSS = 0.65
"""Where no text has its reason changed: accuracy (of two even classes) without the words that
decide, up to which a model goes by them."""
MEASURES = {
    "auprc": ("auprc_rationale_", "auprc_chance"),
    "precision": ("f1_rationale_", "rationale_share"),
}
"""Column → the metric of an importance, and what chance has of it."""


@dataclass(frozen=True)
class Methods(Study):
    """Trains every encoder on every data set with every seed, and asks every importance for the
    words that decide (Bastings et al. 2022). Only models that go by these words are counted
    (`known_answer`). Replicates come one after the other, so that a study that is cut short is even
    at any time. `settings` are shared by all."""

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
                "importances=[…] is empty: expected the methods to compare, such as [attention,gradient]"
            )

    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """One stage; methods that follow layers of self-attention are left out where the encoder
        has none."""
        plain = [
            name
            for name in self.importances
            if not getattr(classes().get(name), "of_layers", False)
        ]
        yield [
            Member(
                encoder,
                one,
                (
                    *DATA[data],
                    *self.settings,
                    *ENCODERS[encoder],
                    f"data.name={data}",
                    f"model.name={encoder}",
                    "probe=[known_answer,plausibility]",
                    f"importances=[{','.join(self.importances if encoder == 'transformer' else plain)}]",
                ),
            )
            for one, data, encoder in product(self.seeds, self.data, self.encoders)
            if encoder not in WITHOUT_CONTEXT or data in SINGLE_WORD
        ]


def read(directory: Path, content: dict[str, Any]) -> StudyReading:
    """Means over models, with intervals; models that do not go by the known reason are counted and
    left out."""
    every = pd.concat(
        [of_model(directory / one["directory"]) for one in content["members"]], ignore_index=True
    )
    solved = every[every["solved"]]
    models = every.drop_duplicates("run_id")
    rows = [
        dict(zip(("data", "encoder", "method"), key, strict=True))
        | {"models": len(own), "texts": int(own["texts"].sum())}
        | numbers([own])
        for key, own in solved.groupby(["data", "encoder", "method"], sort=False)
    ]
    table = pd.DataFrame(rows, columns=None if rows else ["data", "encoder", "method", "auprc"])
    together = overall(solved)
    count = int(models["solved"].sum())
    out = (
        models.groupby(["data", "encoder"], observed=True)["solved"]
        .agg(["size", "sum"])
        .reset_index()
    )
    out.columns = pd.Index(["data", "encoder", "models", "go by the known reason"])
    caption = "Average precision of the words that decide, mean over the models that go by them; methods by their mean."
    return StudyReading(
        "Which method finds the words that decide?",
        f"{len(models)} small models trained on data whose reason is known; {count} of them go by it (accuracy of at least "
        f"{SOLVED:g}, and {FOLLOWS:g} with the reason changed, or at most {AT_A_LOSS:g} without it) and are counted, on the "
        "texts that they decide rightly, and wrongly once the words that decide are taken out: of two classes a model may "
        "know one by its words and the other by their absence, and then no word of the other's texts decides. AUPRC: average "
        "precision of the words that decide in each method's ranking; precision at k: their share of as many top words as "
        "there are. 1 is perfect; the line of random is chance. Means over models, with Student's 95 % interval over them; "
        "milliseconds are a text's, on the machine of the study.",
        ", ".join(dict.fromkeys(models["data"])),
        ", ".join(dict.fromkeys(models["encoder"])),
        directory,
        runs=[directory / content["members"][0]["directory"]],
        tables={
            "All data sets together: mean over the data sets of which an encoder has models that count": together,
            "AUPRC and precision at k of every method, by data set and encoder": table,
            "Models": out,
        },
        figures=[MethodScores("methods_auprc", caption, table)],
        answer=answer(together),
        notes=[
            f"{len(models) - count} of {len(models)} models do not go by the known reason and are left out."
        ],
    )


def answer(together: pd.DataFrame) -> str:
    """Which method finds the words that decide best, beside attention and chance."""
    if together.empty:
        return "No model here goes by the known reason, so no method can be judged."
    means = together.groupby("method", sort=False)["auprc"].mean()
    beside = ", ".join(
        f"{name} {means[name]:.2f}" for name in ("attention", "random") if name in means
    )
    best = (
        f"“{means.idxmax()}” finds the words that decide best: average precision {means.max():.2f}"
    )
    return f"{best} ({beside}); 1 is perfect." if beside else f"{best}; 1 is perfect."


def of_model(directory: Path) -> pd.DataFrame:
    """A row per importance of one model, of the texts that are decided rightly, and wrongly without
    the deciding words."""
    known = answer_of(directory)
    results = read_results(directory, probe="plausibility")
    numbers = measured(directory, "plausibility")
    decided = measured(directory, "known_answer")
    needs = decided.index[(decided["correct"] == 1) & (decided["correct_without"] == 0)]
    means = numbers.reindex(needs).mean()
    told = results.attrs[IMPORTANCES].get("plausibility", {})
    follows = known["accuracy_contradicted"]
    by_reason = known["accuracy_without"] <= AT_A_LOSS if np.isnan(follows) else follows >= FOLLOWS
    rows = pd.DataFrame(
        {
            "method": facts.title,
            "ms": 1000 * told.get(name, {}).get("seconds", np.nan) / len(numbers),
        }
        | {column: means[f"{metric}{name}"] for column, (metric, _) in MEASURES.items()}
        for name, facts in importances_in(results, "plausibility", "f1_rationale_").items()
    )
    solved = bool(known["accuracy"] >= SOLVED and by_reason and len(needs))
    own = {name: known[name] for name in ("data", "run_id", "seed")} | {"encoder": known["model"]}
    return rows.assign(**own, solved=solved, texts=len(needs), chance=means["auprc_chance"])


def overall(models: pd.DataFrame) -> pd.DataFrame:
    """A row per encoder and method, best first. Each data set counts once, however many of its
    models are counted."""
    tables = []
    for encoder, of_encoder in models.groupby("encoder", sort=False):
        rows = []
        for method, own in of_encoder.groupby("method", sort=False):
            by_data = [cell for _, cell in own.groupby("data", sort=False)]
            line = {
                "encoder": encoder,
                "method": method,
                "data sets": len(by_data),
                "models": len(own),
            }
            rows.append(line | numbers(by_data))
        tables.append(pd.DataFrame(rows).sort_values("auprc", ascending=False, kind="stable"))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def numbers(by_data: Sequence[pd.DataFrame]) -> dict[str, float]:
    """Means over the data sets of the means over their models, with intervals over the models."""
    found: dict[str, float] = {}
    for column in MEASURES:
        found |= in_columns(
            column, student(*(cell[column].to_numpy() for cell in by_data), low=0, high=1)
        )
    return found | {"ms per text": float(np.mean([cell["ms"].mean() for cell in by_data]))}


@dataclass(frozen=True)
class MethodScores(StudyFigure):
    """`auprc` by `data`, `encoder` and `method`."""

    scores: pd.DataFrame


@draw.register
def draw_method_scores(figure: MethodScores) -> Figure:
    """Average precision, a panel per data set: methods by encoder."""
    return heat(figure.scores)


def heat(table: pd.DataFrame) -> Figure:
    """Average precision, a panel per data set: methods by encoder."""
    names, encoders = (list(dict.fromkeys(table[column])) for column in ("data", "encoder"))
    order = table.groupby("method")["auprc"].mean().sort_values(ascending=False).index.tolist()
    figure, axes = grid(max(1, len(names)), panel_height=0.6 + 0.16 * max(1, len(order)), columns=2)
    for panel, data in zip(axes, names, strict=False):
        wide = table[table["data"] == data].pivot_table(
            index="method", columns="encoder", values="auprc", sort=False
        )
        wide = wide.reindex(index=order, columns=encoders)  # the panels share both axes
        cells(
            panel, wide.to_numpy(), "{:.2f}".format, size=6, dark=0.6, cmap="Blues", vmin=0, vmax=1
        )
        panel.set_xticks(range(len(encoders)), encoders)
        panel.set_yticks(range(len(order)), order)
        title(panel, str(data))
    around(figure)
    return figure
