"""The verdicts on models of planted codes whose attention is right, wrong or learned."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

import attnprobe
from attnprobe.evidence.deciding_words import SHARE_CLAIM, SHARE_METRICS, labels_in
from attnprobe.findings.table import findings
from attnprobe.results.directory import RunDirectory
from attnprobe.runs.composition import composed, composing
from attnprobe.runs.run import run

ATTENTIONS = {
    "own signs": ("model/attention=column", "model.attention.column=own_signs"),
    "another code's signs": ("model/attention=column", "model.attention.column=signs_of_another"),
    "section headings": ("model/attention=column", "model.attention.column=headings"),
    "learned": (),
}
"""Right by construction, wrong twice, and the model's own."""
SMALL = (
    "data.source.train_size=400",
    "data.source.validation_size=60",
    "data.source.test_size=60",
    "data.source.codes=6",
    "data.source.length=30",
    "data.embedding_size=32",
    "data.batch_size=96",
    "training.epochs=12",
    "training.recipe.optimizer.lr=0.005",
    "probe=[swaps,labels]",
    "probe.swaps.texts=180",
    "trainer.accelerator=cpu",
    "figures=false",
    "logger=none",
)


@dataclass(frozen=True)
class Model:
    """A model to be trained and asked.

    Attributes:
        encoder: `caml` or `laat`.
        attention: one of `ATTENTIONS`.
        draw: of the texts and the training.
    """

    encoder: str
    attention: str
    draw: int

    def overrides(self, folder: Path) -> list[str]:
        """The command line of its run."""
        return [
            "task=labels",
            f"model={self.encoder}",
            *SMALL,
            *ATTENTIONS[self.attention],
            f"data.source.seed={self.draw}",
            f"seed={self.draw}",
            f"run_dir={self.directory(folder)}",
            "on_finished=skip",
        ]

    def directory(self, folder: Path) -> Path:
        """Where its run is."""
        name = f"{self.encoder}-{self.attention}-{self.draw}"
        return folder / name.replace(" ", "_").replace("'", "")


def models(encoders: Sequence[str], draws: Sequence[int]) -> Iterator[Model]:
    """Every model, draw by draw, so that an early end leaves whole draws."""
    for draw, encoder, attention in product(draws, encoders, ATTENTIONS):
        yield Model(encoder, attention, draw)


def row_of(model: Model, directory: Path) -> dict[str, object]:
    """What one model is and how it was judged."""
    results = attnprobe.read_results(directory)
    performance = results[results["probe"] == "performance"].set_index("metric")["value"]
    labels = results[(results["probe"] == "labels") & results["step"].isna()]
    means = labels.groupby("metric", observed=True)["value"].mean()
    swaps = results[results["probe"] == "swaps"]
    share = SHARE_CLAIM.measure(swaps)
    assert share is not None
    table = findings(directory)
    verdict = table[table["claim"] == SHARE_CLAIM.name]["verdict"].iloc[0]
    mass = mass_on_own_signs(directory)
    parts_of_share = swaps[swaps["metric"].isin(SHARE_METRICS)]
    answers = [label.part.answer for label in labels_in(parts_of_share)]
    return {
        "encoder": model.encoder,
        "attention": model.attention,
        "draw": model.draw,
        "accuracy": float(performance["accuracy"]),
        "micro F1": float(performance["label_f1_micro"]),
        "macro F1": float(performance["label_f1_macro"]),
        "mass on own signs": mass,
        "share": share.value,
        "low": share.low,
        "high": share.high,
        "verdict": str(verdict),
        "labels yes": answers.count("yes"),
        "labels no": answers.count("no"),
        "labels open": len(answers) - answers.count("yes") - answers.count("no"),
        "TVD under another label's": float(means["other_label_tvd"]),
        "yes to no": float(means["yes_to_no"]),
        "no to yes": float(means["no_to_yes"]),
    }


def mass_on_own_signs(directory: Path) -> float:
    """Attention on the signs of the code that is asked for, mean of the rows that have one."""
    examples = attnprobe.read_examples(directory)
    questions = RunDirectory(directory).examples("test", ["question"])["question"].to_pylist()
    masses = []
    for tokens, attention, question in zip(
        examples["tokens"], examples["attention"], questions, strict=True
    ):
        code = question[0].removeprefix("code")
        is_sign = [word.startswith("sign") and code in re.findall(r"\d+", word) for word in tokens]
        if any(is_sign):
            masses.append(float(np.asarray(attention)[is_sign].sum()))
    return float(np.mean(masses))


def ask_models(folder: Path, encoders: Sequence[str], draws: Sequence[int]) -> pd.DataFrame:
    """Train and ask the models, and write each row into `codes.csv` as soon as it is there."""
    rows: list[dict[str, object]] = []
    folder.mkdir(parents=True, exist_ok=True)
    for model in models(encoders, draws):
        with composing():
            run(composed(model.overrides(folder)))
        rows.append(row_of(model, model.directory(folder)))
        pd.DataFrame(rows).to_csv(folder / "codes.csv", index=False)
        print(rows[-1], flush=True)
    return pd.DataFrame(rows)
