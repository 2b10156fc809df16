"""The verdicts on models of planted codes whose attention is right, wrong or learned.

A row per model, as of the track record of single-label models (`research.words`), and made by the
same functions. Frozen before the first model was asked: the settings below, the thresholds of the
verdict (`attnprobe.evidence.deciding_words`) and those of right and wrong (`research.words.truth`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from time import perf_counter
from typing import Any

import attnprobe
from attnprobe.data.testbed.codes import Signs
from attnprobe.evidence.deciding_words import LINE, ShareOfLabel, labels_in
from attnprobe.evidence.verdicts import Verdict
from attnprobe.findings.groups import read_run
from attnprobe.findings.stored import card_of_run
from attnprobe.findings.track_record import LABEL
from attnprobe.runs.composition import composed, composing
from attnprobe.runs.run import run
from research.words.asking import AskedModel, row_of_model
from research.words.rows import write_row

RULES = {
    "all signs": Signs(),
    "one sign": Signs(synonyms=1, shared=0, negated=0),
    "negated signs": Signs(synonyms=1, shared=0, negated=0.5),
    "synonyms and shared signs": Signs(synonyms=3, shared=0.4, negated=0),
}
"""Kinds of rule, by what a code is known."""


@dataclass(frozen=True)
class Attention:
    """An attention that is made up, or learned.

    Attributes:
        standing: `right` or `wrong` by construction, or `learned`.
        column: of the texts, with its weights; empty: it is learned.
        focus: share of its weight on the words that it is on. A wrong one leaves half of its weight
            to all words alike, without which no model could learn the codes.
    """

    standing: str
    column: str = ""
    focus: float = 0.95


ATTENTIONS = {
    "own signs": Attention("right", "own_signs"),
    "another code's signs": Attention("wrong", "signs_of_another", 0.5),
    "section headings": Attention("wrong", "headings", 0.5),
    "first window": Attention("wrong", "first_window", 0.5),
    "learned": Attention("learned"),
}
SMALL = (
    "data.source.train_size=700",
    "data.source.validation_size=60",
    "data.source.test_size=60",
    "data.source.codes=4",
    "data.source.length=15",
    "data.embedding_size=32",
    "data.batch_size=96",
    "training.epochs=24",
    "training.recipe.optimizer.lr=0.01",
    "probe=[swaps,labels]",
    "probe.swaps.texts=120",
    "trainer.accelerator=cpu",
    "figures=false",
    "logger=none",
)
WIDTHS = {"caml": (), "laat": ("model.width=32",)}
INNER_SIZE = {"caml": (), "laat": ("model.attention.inner_size=32",)}
"""Of a learned attention alone."""
NO_INNER_SIZE = {"caml": (), "laat": ("~model.attention.inner_size",)}
VERDICTS = {"yes": Verdict.MEETS, "no": Verdict.FAILS, "open": Verdict.CANNOT_DECIDE}
"""What the answer about a label is called among those to claims; any other is not asked."""


@dataclass(frozen=True)
class Model:
    """A model to be trained and asked.

    Attributes:
        rule: of `RULES`.
        encoder: `caml` or `laat`.
        attention: of `ATTENTIONS`.
        draw: of the texts and the training.
    """

    rule: str
    encoder: str
    attention: str
    draw: int

    @property
    def name(self) -> str:
        """Of its file and its run."""
        words = f"{self.rule}-{self.encoder}-{self.attention}-{self.draw}"
        return words.replace(" ", "_").replace("'", "")

    def overrides(self, directory: Path) -> list[str]:
        """The command line of its run."""
        signs = RULES[self.rule]
        return [
            "task=labels",
            f"model={self.encoder}",
            *WIDTHS[self.encoder],
            *self._overrides_of_attention(),
            *SMALL,
            *(f"data.source.{name}={value}" for name, value in asdict(signs).items()),
            f"data.source.seed={self.draw}",
            f"seed={self.draw}",
            f"run_dir={directory}",
        ]

    def _overrides_of_attention(self) -> list[str]:
        attention = ATTENTIONS[self.attention]
        if not attention.column:
            return list(INNER_SIZE[self.encoder])
        return [
            "model/attention=column",
            f"model.attention.column={attention.column}",
            f"data.source.focus={attention.focus}",
            *NO_INNER_SIZE[self.encoder],
        ]


def models(encoders: Sequence[str], draws: Sequence[int]) -> Iterator[Model]:
    """Every model, rule by rule and draw by draw, so that an early end leaves whole ones."""
    for rule, draw, encoder, attention in product(RULES, draws, encoders, ATTENTIONS):
        yield Model(rule, encoder, attention, draw)


def row_of(model: Model, scratch: Path) -> dict[str, Any]:
    """Train a model, ask it without a track record, and remove its run.

    Args:
        model: the model.
        scratch: folder of its run.

    Returns:
        A row of the record (`row_of_model`). Answers about single labels stand among the others, as
        of the claim `LABEL`.
    """
    standing = ATTENTIONS[model.attention].standing
    identity = {
        "rule": f"{model.rule}, draw {model.draw}",
        "kind": model.rule,
        "spec": asdict(RULES[model.rule]),
        "encoder": model.encoder,
        "attention": model.attention,
        "standing": standing,
        "draw": model.draw,
        "mode": "run",
    }
    return row_of_model(
        identity,
        scratch / model.name,
        lambda directory: asked(model, directory),
        avoids_reason=standing == "wrong",
    )


def asked(model: Model, directory: Path) -> AskedModel:
    """A model that is trained, with what is said of it and of each of its labels."""
    with composing():
        run(composed(model.overrides(directory)), sweep=True)
    card = card_of_run(read_run(directory))
    return AskedModel(card, [directory], answers_about_labels(directory))


def answers_about_labels(directory: Path) -> list[dict[str, Any]]:
    """What is said of each label of a run, as the answers of a claim."""
    labels = labels_in(attnprobe.read_results(directory, probe="swaps"))
    return [answer_about(label) for label in labels]


def answer_about(label: ShareOfLabel) -> dict[str, Any]:
    """What is said of one label."""
    criterion, level = LINE
    share = label.part.share
    verdict = VERDICTS.get(label.part.answer, Verdict.NOT_INFORMATIVE)
    return {
        "claim": LABEL,
        "criterion": criterion,
        "level": level,
        "primary": False,
        "verdict": str(verdict),
        "interval_verdict": str(verdict),
        "answer": str(verdict.answer),
        "value": share.value,
        "low": share.low,
        "high": share.high,
        "p": None,
        "n": int(label.part.texts),
    }


def ask_models(folder: Path, encoders: Sequence[str], draws: Sequence[int]) -> None:
    """Train and ask the models that have no row in a folder yet.

    What is printed says how far it is, and nothing of an answer.
    """
    for model in models(encoders, draws):
        path = folder / f"{model.name}.json"
        if path.exists():
            continue
        start = perf_counter()
        row = row_of(model, folder / "runs")
        write_row(row, path)
        print(f"{model.name}: {perf_counter() - start:.0f} s", flush=True)
