"""Which method finds the words that decide? Every importance on models whose reason is known, by encoder and data set, over
models, and what it costs."""

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
from attnprobe.findings.studies.base import Done, Member, Study, StudyReading
from attnprobe.importance.base import class_of
from attnprobe.plots.grid import around, grid, title
from attnprobe.results.directory import RunDirectory, table_file
from attnprobe.results.files import damaged
from attnprobe.results.table import IMPORTANCES, read_results
from research.calibration.records import FOLLOWS, SOLVED, answer_of
from research.calibration.study import DATA, SINGLE_WORD, WITHOUT_CONTEXT, check_names
from research.calibration.study import ENCODERS as SMALL_ENCODERS

ENCODERS = SMALL_ENCODERS | {
    "transformer": ("model=transformer", "model.width=32", "training.recipe.optimizer.lr=0.002", "training.epochs=15")
}
"""Those of the calibration, and a transformer, which takes smaller steps and more of them."""


@dataclass(frozen=True)
class Methods(Study):
    """Trains every encoder on every data set with every seed, and asks every importance for the words that decide (Bastings
    et al. 2022). Which words do is known, and whether the model goes by them is measured (`known_answer`): only models that
    do are counted. Seeds come one after the other, each with all cells, so that a study that is cut short, and continued
    later with the same command, is even at any time.

    Attributes:
        encoders: names of `ENCODERS`.
        data: names of `research.calibration.study.DATA`.
        seeds: of the trainings; the texts are the same.
        importances: the methods.
        settings: what all of them share, as on the command line: sizes, epochs, samples.
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
            raise UserError("importances=[…] is empty: expected the methods to compare, such as [attention,gradient]")

    def defined(self, encoder: str) -> Sequence[str]:
        """The methods without those that follow layers of self-attention, where the encoder has none."""
        has_layers = encoder == "transformer"
        return [name for name in self.importances if has_layers or not getattr(class_of(name), "of_layers", False)]

    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """One stage: none needs another. The command line's own seed and model play no part."""
        yield [
            Member(encoder, one, (
                *DATA[data], *self.settings, *ENCODERS[encoder], f"data.name={data}", f"model.name={encoder}",
                "probe=[known_answer,plausibility]", f"importances=[{','.join(self.defined(encoder))}]",
            ))
            for one, data, encoder in product(self.seeds, self.data, self.encoders)
            if encoder not in WITHOUT_CONTEXT or data in SINGLE_WORD
        ]  # fmt: skip


AT_A_LOSS = 0.65
"""Where no text has its reason changed: accuracy (of two even classes) without the words that decide, up to which a model
goes by them."""
MEASURES = {"auprc": ("auprc_rationale_", "auprc_chance"), "precision": ("f1_rationale_", "rationale_share")}
"""Column → the metric of an importance, and what chance has of it."""


def read(directory: Path, content: dict[str, Any]) -> StudyReading:
    """Means over models, with intervals; models that do not go by the known reason are counted and left out."""
    every = pd.concat([of_model(directory / one["directory"]) for one in content["members"]], ignore_index=True)
    solved = every[every["solved"]]
    models = every.drop_duplicates("run_id")
    table, together = summary(solved), overall(solved)
    out = models.groupby(["data", "encoder"], observed=True)["solved"].agg(["size", "sum"]).reset_index()
    out.columns = pd.Index(["data", "encoder", "models", "go by the known reason"])
    caption = "Average precision of the words that decide, mean over the models that go by them; methods by their mean."
    return StudyReading(
        title="Which method finds the words that decide?",
        about=(
            f"{len(models)} small models trained on data whose reason is known; {int(models['solved'].sum())} of them go by "
            f"it (accuracy of at least {SOLVED:g}, and {FOLLOWS:g} with the reason changed, or at most {AT_A_LOSS:g} without "
            "it) and are counted, on the texts that they decide rightly, and wrongly once the words that decide are taken "
            "out: of two classes a model may know one by its words and the other by their absence, and then no word of the "
            "other's texts decides. AUPRC: average precision of the words that decide in each method's ranking; precision "
            "at k: their share of as many top words as there are. 1 is perfect; the line of random is chance. Means over "
            "models, with Student's 95 % interval over them; milliseconds are a text's, on the machine of the study."
        ),
        data=", ".join(dict.fromkeys(models["data"])),
        model=", ".join(dict.fromkeys(models["encoder"])),
        directory=directory,
        findings=[],
        runs=[directory / content["members"][0]["directory"]],
        tables={
            "All data sets together: mean over the data sets of which an encoder has models that count": together,
            "AUPRC and precision at k of every method, by data set and encoder": table,
            "Models": out,
        },
        figures=[("methods_auprc", caption, heat(table))],
        answer=answer(together),
        notes=[
            f"{int((~models['solved']).sum())} of {len(models)} models do not go by the known reason and are left out."
        ],
    )


def answer(together: pd.DataFrame) -> str:
    """Which method finds the words that decide best, beside attention and chance."""
    if not len(together):
        return "No model here goes by the known reason, so no method can be judged."
    means = together.groupby("method", sort=False)["auprc"].mean()
    beside = [f"{name} {means[name]:.2f}" for name in ("attention", "random") if name in means]
    words = f" ({', '.join(beside)})" if beside else ""
    return f"“{means.idxmax()}” finds the words that decide best: average precision {means.max():.2f}{words}; 1 is perfect."


def of_model(directory: Path) -> pd.DataFrame:
    """A row per importance of one model."""
    known = answer_of(directory)
    results = read_results(directory, probe="plausibility")
    names = importances_in(results, "plausibility", "f1_rationale_")
    needed = [chance for _, chance in MEASURES.values()]
    needed += [f"{metric}{name}" for name in names for metric, _ in MEASURES.values()]
    numbers = measured(directory, "plausibility", needed)
    if numbers.empty:
        raise damaged(RunDirectory(directory) / table_file("plausibility"), "it has no number of any text")
    decided = measured(directory, "known_answer", ["correct", "correct_without"])
    needs = decided.index[needs_its_words(decided)]
    means = numbers.reindex(needs).mean()
    told = results.attrs[IMPORTANCES].get("plausibility", {})
    follows = known["accuracy_contradicted"]
    by_reason = known["accuracy_without"] <= AT_A_LOSS if np.isnan(follows) else follows >= FOLLOWS
    rows = pd.DataFrame(
        {
            "method": facts.title,
            "ms": 1000 * told.get(name, {}).get("seconds", np.nan) / len(numbers),
            **{column: means[f"{metric}{name}"] for column, (metric, _) in MEASURES.items()},
        }
        for name, facts in names.items()
    )
    solved = bool(known["accuracy"] >= SOLVED and by_reason and len(needs))
    own = {name: known[name] for name in ("data", "run_id", "seed")} | {"encoder": known["model"]}
    return rows.assign(**own, solved=solved, texts=len(needs), chance=means["auprc_chance"])


def needs_its_words(known: pd.DataFrame) -> pd.Series:
    """Which texts are decided rightly, and wrongly without the words that decide: there these words are known to count."""
    return (known["correct"] == 1) & (known["correct_without"] == 0)


def summary(models: pd.DataFrame) -> pd.DataFrame:
    """A row per data set, encoder and method."""
    rows = []
    for key, own in models.groupby(["data", "encoder", "method"], sort=False):
        line = dict(zip(("data", "encoder", "method"), key, strict=True))
        rows.append(line | {"models": len(own), "texts": int(own["texts"].sum())} | numbers([own]))
    return pd.DataFrame(rows)


def overall(models: pd.DataFrame) -> pd.DataFrame:
    """A row per encoder and method, best first. Each data set counts once, however many of its models go by their reason: a
    mean over all models would be the higher, the more of the easy data's there are."""
    rows = []
    for place, (encoder, of_encoder) in enumerate(models.groupby("encoder", sort=False)):
        for method, own in of_encoder.groupby("method", sort=False):
            by_data = [cell for _, cell in own.groupby("data", sort=False)]
            line = {"place": place, "encoder": encoder, "method": method, "data sets": len(by_data), "models": len(own)}
            rows.append(line | numbers(by_data))
    table = pd.DataFrame(rows)
    if table.empty:
        return table
    return table.sort_values(["place", "auprc"], ascending=[True, False]).drop(columns="place").reset_index(drop=True)


def numbers(by_data: Sequence[pd.DataFrame]) -> dict[str, float]:
    """Means over the data sets of the means over their models, with intervals over the models."""
    found: dict[str, float] = {}
    for column in MEASURES:
        found |= in_columns(column, student(*(cell[column].to_numpy() for cell in by_data), low=0, high=1))
    return found | {"ms per text": float(np.mean([cell["ms"].mean() for cell in by_data]))}


def heat(table: pd.DataFrame) -> Figure:
    """Average precision, a panel per data set: methods by encoder."""
    if table.empty:
        table = pd.DataFrame(columns=["data", "encoder", "method", "auprc"])
    names, encoders = (list(dict.fromkeys(table[column])) for column in ("data", "encoder"))
    order = table.groupby("method")["auprc"].mean().sort_values(ascending=False).index.tolist()
    figure, axes = grid(max(1, len(names)), panel_height=0.6 + 0.16 * max(1, len(order)), columns=2)
    for panel, data in zip(axes, names, strict=False):
        wide = table[table["data"] == data].pivot_table(index="method", columns="encoder", values="auprc", sort=False)
        wide = wide.reindex(index=order, columns=encoders)  # the panels share both axes
        panel.imshow(np.ma.masked_invalid(wide.to_numpy()), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for (y, x), value in np.ndenumerate(wide.to_numpy()):
            if not np.isnan(value):
                shade = "white" if value > 0.6 else "black"
                panel.annotate(f"{value:.2f}", (x, y), ha="center", va="center", fontsize=6, color=shade)
        panel.set_xticks(range(len(wide.columns)), list(wide.columns))
        panel.set_yticks(range(len(order)), list(order))
        panel.tick_params(length=0)
        title(panel, str(data))
    around(figure)
    return figure
