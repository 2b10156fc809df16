"""Which tests would have told right attention from wrong? Every test is asked of many small models whose answer is known."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from attnprobe.core.errors import UserError
from attnprobe.evidence.statistics import in_columns
from attnprobe.findings.studies.base import Done, Member, Study, StudyReading
from attnprobe.plots.grid import around, grid, title
from research.calibration.rates import held_out, power_curve, rates, separations
from research.calibration.records import FOLLOWS, RIGHT, RIGHTNESS, SOLVED, WRONG, collected

CONTROLS: dict[str, tuple[str, ...]] = {
    "learned": (),
    "word": ("model/attention=word",),
    "rationale": ("model/attention=rationale",),
    "rationale_70": ("model/attention=rationale_70",),
    "rationale_50": ("model/attention=rationale_50",),
    "position": ("model/attention=position",),
    "first": ("model/attention=first",),
    "random": ("model/attention=random",),
    "common_word": ("model/attention=common_word",),
    "uniform": ("model/attention=uniform",),
    "deceived": ("training=deceive",),
    "untrained": ("training=untrained", "training.recipe.optimizer.lr=0.0", "training.epochs=1"),
    "coin_flips": ("training=coin_flips",),
    "guesser": ("model/decoder=constant",),
}
"""How a control differs from the command line's model: its attention, its training, or its decoder."""
PLANTED = ("data=testbed", "data.rationale=null", "data.source.rule=word")
DATA: dict[str, tuple[str, ...]] = {
    **{kind: (*PLANTED, f"data.plant={kind}") for kind in ("token", "ordered_pair", "token_in_context")},
    **{rule: ("data=testbed", f"data.source.rule={rule}") for rule in ("word", "counting")},
    **{
        rule: ("data=testbed", f"data.source.rule={rule}", "data.source.train_size=4000", "training.epochs=10")
        for rule in ("negation", "concession", "order")
    },
    "geco": ("data=geco", "training.epochs=10"),
}
"""Data whose reasons are known: shortcuts planted into the testbed's reviews, the testbed by rule, natural sentences.
What takes more to learn has its own number of texts and epochs."""
GENERATED = "data.source."
"""Settings that begin so are of generated texts: a file has as many rows as it has."""
ENCODERS: dict[str, tuple[str, ...]] = {
    "average": ("model=average", "model.width=48"),
    "cnn": ("model=cnn", "model.encoder.filters=16"),
    "lstm": ("model=lstm", "model.width=32"),
    "transformer": ("model=transformer", "model.width=32", "training.epochs=12", "training.recipe.optimizer.lr=0.003"),
    "relay": ("model=relay",),
}
"""Small on purpose: a rate needs many models."""
WITHOUT_CONTEXT = ("average",)
"""Encoders that see one word at a time: of `DATA` they are given what a single word decides."""
SINGLE_WORD = ("token", "word", "geco")


def check_names(study: Any, **settings: Mapping[str, Any]) -> None:
    """Whether a study names one or more of what each setting knows, and seeds."""
    for setting, known in settings.items():
        names = getattr(study, setting)
        if not names or not set(names) <= set(known):
            raise UserError(f"study.{setting}={list(names)}: expected one or more of {', '.join(known)}")
    if not study.seeds:
        raise UserError("study.seeds is empty: expected the seeds of the trainings, such as [0,1,2]")


@dataclass(frozen=True)
class Calibration(Study):
    """Trains every control with every encoder on every data set with every seed, small and alike, and examines each with the
    probes. What the tests then say of right, wrong and meaningless attention is read from their tables
    (`research.calibration.records`). Seeds come one after the other, each with all cells, so that a study that is cut
    short, and continued later with the same command, is even at any time.

    Attributes:
        controls: names of `CONTROLS`.
        encoders: names of `ENCODERS`.
        data: names of `DATA`.
        seeds: of the trainings, and of everything random in them; the texts are the same.
        probes: what every model is examined with.
        settings: what all of them share, as on the command line: sizes, epochs, samples; those of `DATA`, `ENCODERS` and
            `CONTROLS` come after them and win.
    """

    name: ClassVar[str] = "calibration"
    controls: Sequence[str] = tuple(CONTROLS)
    encoders: Sequence[str] = tuple(ENCODERS)
    data: Sequence[str] = ("token", "ordered_pair")
    seeds: Sequence[int] = ()
    probes: Sequence[str] = ("known_answer",)
    settings: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_names(self, controls=CONTROLS, encoders=ENCODERS, data=DATA)
        if "known_answer" not in self.probes:
            raise UserError("study.probes lacks known_answer, which says whose attention is right: add it")

    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """One stage: none needs another. The command line's own seed and model play no part."""
        yield [
            Member(control, one, (
                *self.settings_of(data), *DATA[data], *ENCODERS[encoder], *CONTROLS[control], f"data.name={data}",
                f"model.name={encoder}_{control}", f"probe=[{','.join(self.probes)}]",
            ))
            for one, data, encoder, control in product(self.seeds, self.data, self.encoders, self.controls)
            if encoder not in WITHOUT_CONTEXT or data in SINGLE_WORD
        ]  # fmt: skip

    def settings_of(self, data: str) -> list[str]:
        """The shared settings that these data have."""
        generated = "data=geco" not in DATA[data]
        return [one for one in self.settings if generated or not one.startswith(GENERATED)]


VERSIONS = {"published": "as published", "current": "this version"}
KINDS = ("right", "wrong", "meaningless")


def read(directory: Path, content: dict[str, Any]) -> StudyReading:
    """Tables of rates, of how well each number separates, and of thresholds judged on data left out; the curves."""
    models, answered = collected(directory / one["directory"] for one in content["members"])
    # one model whose own tests are shown next to the rates
    example = next((one for one in content["members"] if one["role"] == "learned"), content["members"][0])
    shown = models[models["run_id"] == example["run_id"]].iloc[0]
    cells, separated = census(models), separations(answered)
    tables = {
        "Models by what is known of their attention: trained, and per rightness": cells,
        "Share of yes, of all models asked, with exact 95 % intervals": yes_table(rates(answered)),
        "AUC of each test's number between right and wrong attention, 95 % bootstrap interval over models": renamed(
            separated
        ),
        "Thresholds chosen on the other data sets (false alarms of 5 %), judged on the one left out": renamed(
            held_out(answered)
        ),
    }
    unsolved = int((models["rightness_label"] == "not solved").sum())
    caption = "Share of yes against the rightness of the attention: a test that tells climbs from left to right."
    return StudyReading(
        title="Calibration: which tests tell right attention from wrong?",
        about=(
            f"{len(models)} small models whose answer is known, each asked every test. An attention is right where it puts "
            f"at least {RIGHT:g} of what can be reached beyond chance on the words that decide, wrong up to {WRONG:g}; it "
            f"counts where the model's accuracy is at least {SOLVED:g}, and {FOLLOWS:g} with the reason changed: {unsolved} "
            "did not get there. Models that cannot have learnt anything (random weights, labels by a coin, a guesser) are "
            "meaningless. Yes always speaks for the attention."
        ),
        data=str(shown["data"]),
        model=f"{shown['encoder']}_{shown['control']}",
        directory=directory,
        findings=[],
        runs=[directory / example["directory"]],
        tables={name: table for name, table in tables.items() if len(table)},
        figures=[("calibration_curves", caption, curves(power_curve(answered)))],
        answer=answer(separated),
        notes=[f"{unsolved} of {len(models)} models did not solve their task and are left out of all rates."],
    )


def answer(separated: pd.DataFrame) -> str:
    """How many tests of this version tell right attention from wrong in every kind of model, and which does so best."""
    own = separated[separated["version"] == "current"] if len(separated) else separated
    if not len(own):
        return "No test can be judged: it takes models with right attention and models with wrong attention."
    by_claim = own.groupby("claim")[["AUC", "AUC low"]].min()
    best = by_claim.sort_values(["AUC low", "AUC"]).index[-1]
    tell = int((by_claim["AUC low"] > 0.5).sum())
    return (
        f"{tell} of {len(by_claim)} tests tell right attention from wrong in every kind of model that was tried; “"
        f"{best.replace('_', ' ')}” does so best (AUC {by_claim.loc[best, 'AUC']:.2f} or more; a coin has 0.50)."
    )


def census(models: pd.DataFrame) -> pd.DataFrame:
    """How many models there are per data set, encoder and rightness, with their mean accuracies."""
    counts = models.groupby(["data", "encoder", "rightness_label"], observed=True).size().unstack(fill_value=0)
    kinds = [kind for kind in RIGHTNESS if kind in counts]
    solved = models[models["rightness_label"].isin(["right", "between", "wrong"])]
    names = {
        "accuracy": "accuracy",
        "accuracy_contradicted": "reason changed",
        "accuracy_without": "without the reason",
    }
    means = solved.groupby(["data", "encoder"], observed=True)[list(names)].mean().rename(columns=names)
    return counts[kinds].join(means).reset_index()


def yes_table(shares: pd.DataFrame) -> pd.DataFrame:
    """A row per claim and encoder, and the rate with its interval for each kind of attention."""
    rows, keys = [], ["version", "criterion", "level", "claim", "encoder"]
    for key, part in shares.groupby(keys, observed=True, sort=False):
        row: dict[str, Any] = dict(zip(keys, key, strict=True))
        for kind in KINDS:
            own = part[part["rightness"] == kind]
            found = own[["rate", "rate low", "rate high"]].to_numpy()[0] if len(own) else (np.nan,) * 3
            row |= in_columns(kind, tuple(found)) | {f"{kind}: models": int(own["asked"].sum())}
        rows.append(row)
    return renamed(pd.DataFrame(rows))


def renamed(table: pd.DataFrame) -> pd.DataFrame:
    """The table with its versions and claims in words."""
    if not len(table):
        return table
    return table.assign(version=table["version"].map(VERSIONS), claim=table["claim"].str.replace("_", " "))


def curves(table: pd.DataFrame) -> Figure:
    """Share of yes against rightness, a panel per claim of this version and a line per encoder."""
    own = table[table["version"] == "current"] if (table["version"] == "current").any() else table
    claims = list(dict.fromkeys(own["claim"]))
    figure, axes = grid(max(len(claims), 1), panel_height=1.4)
    handles: dict[str, Line2D] = {}
    for panel, claim in zip(axes, claims, strict=False):
        for number, (encoder, rows) in enumerate(own[own["claim"] == claim].groupby("encoder", observed=True)):
            ordered = rows.sort_values("rightness")
            span = [ordered["rate"] - ordered["low"], ordered["high"] - ordered["rate"]]
            look: dict[str, Any] = {"marker": "o", "ms": 3, "lw": 1, "color": f"C{number}"}
            panel.errorbar(ordered["rightness"], ordered["rate"], yerr=span, **look)
            handles[str(encoder)] = Line2D([], [], label=str(encoder), **look)
        panel.set_ylim(-0.02, 1.02)
        panel.set_xlim(-0.2, 1.05)
        title(panel, claim.replace("_", " "))
    x = "rightness (0 chance, 1 all that can be reached)"
    around(figure, x=x, y="share of yes", handles=list(handles.values()))
    return figure
