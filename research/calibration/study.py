"""Which tests would have told right attention from wrong?

Every test is asked of many small models whose answer is known.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from attnprobe.core.errors import UserError
from attnprobe.findings.studies.base import Done, Member, Study, StudyReading
from research.calibration.rates import separations, tables_of
from research.calibration.records import FOLLOWS, RIGHT, SOLVED, WRONG, collected

GIVEN = (
    "word",
    "rationale",
    "rationale_70",
    "rationale_50",
    "position",
    "first",
    "random",
    "common_word",
    "uniform",
)
CONTROLS: dict[str, tuple[str, ...]] = {
    "learned": (),
    **{name: (f"model/attention={name}",) for name in GIVEN},
    "deceived": ("training=deceive",),
    "untrained": ("training=untrained", "training.recipe.optimizer.lr=0.0", "training.epochs=1"),
    "coin_flips": ("training=coin_flips",),
    "guesser": ("model/decoder=constant",),
}
"""How a control differs from the command line's model: its attention, its training, or its
decoder."""
PLANTED = ("data=testbed", "data.rationale=null", "data.source.rule=word")
DATA: dict[str, tuple[str, ...]] = {
    **{
        kind: (*PLANTED, f"data.plant={kind}")
        for kind in ("token", "ordered_pair", "token_in_context")
    },
    **{rule: ("data=testbed", f"data.source.rule={rule}") for rule in ("word", "counting")},
    **{
        rule: (
            "data=testbed",
            f"data.source.rule={rule}",
            "data.source.train_size=4000",
            "training.epochs=10",
        )
        for rule in ("negation", "concession", "order")
    },
    "geco": ("data=geco", "training.epochs=10"),
}
"""Data whose reasons are known: shortcuts planted into the testbed's reviews, the testbed by rule,
natural sentences. What takes more to learn has its own number of texts and epochs."""
ENCODERS: dict[str, tuple[str, ...]] = {
    "average": ("model=average", "model.width=48"),
    "cnn": ("model=cnn", "model.encoder.filters=16"),
    "lstm": ("model=lstm", "model.width=32"),
    "transformer": (
        "model=transformer",
        "model.width=32",
        "training.epochs=12",
        "training.recipe.optimizer.lr=0.003",
    ),
    "relay": ("model=relay",),
}
WITHOUT_CONTEXT = ("average",)
"""Encoders that see one word at a time."""
SINGLE_WORD = ("token", "word", "geco")
"""Those of `DATA` that they can learn."""


def is_learnable(data: str, encoder: str) -> bool:
    """Whether an encoder sees what decides these texts."""
    return encoder not in WITHOUT_CONTEXT or data in SINGLE_WORD


def check_names(study: Any, **settings: Mapping[str, Any]) -> None:
    """Check that a study names seeds, and in each of its settings one or more of what is known.

    Args:
        study: that has these settings.
        settings: setting → name → what it stands for.

    Raises:
        UserError: it does not.
    """
    for setting, choices in settings.items():
        names = getattr(study, setting)
        if not names or not set(names) <= set(choices):
            raise UserError(
                f"study.{setting}={list(names)}: expected one or more of {', '.join(choices)}"
            )
    if not study.seeds:
        raise UserError(
            "study.seeds is empty: expected the seeds of the trainings, such as [0,1,2]"
        )


@dataclass(frozen=True)
class Calibration(Study):
    """Trains every control with every encoder on every data set with every seed.

    All are small and alike, and each is examined with the probes.
    Replicates come one after the other, so that a study that is cut short is even at any time.

    Attributes:
        controls: of `CONTROLS`.
        encoders: of `ENCODERS`.
        data: of `DATA`.
        settings: overrides that all members share; those of `DATA`, `ENCODERS` and `CONTROLS` come
            after them and win.
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
            raise UserError(
                "study.probes lacks known_answer, which says whose attention is right: add it"
            )

    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """One stage: none needs another. The command line's own seed and model play no part."""
        cells = product(self.seeds, self.data, self.encoders, self.controls)
        yield [
            self.member(control, encoder, data, each)
            for each, data, encoder, control in cells
            if is_learnable(data, encoder)
        ]

    def member(self, control: str, encoder: str, data: str, seed: int) -> Member:
        """One training."""
        settings = list(self.settings)
        if data == "geco":  # a file has the rows it has
            settings = [each for each in settings if not each.startswith("data.source.")]
        overrides = (
            *settings,
            *DATA[data],
            *ENCODERS[encoder],
            *CONTROLS[control],
            f"data.name={data}",
            f"model.name={encoder}_{control}",
            f"probe=[{','.join(self.probes)}]",
        )
        return Member(control, seed, overrides)


def read(directory: Path, content: dict[str, Any]) -> StudyReading:
    """The tables of `tables_of`, beside one model's own tests.

    Args:
        directory: of the study.
        content: of its study.json.
    """
    members = content["members"]
    models, answered = collected(directory / member["directory"] for member in members)
    learned = [member for member in members if member["role"] == "learned"]
    example = learned[0] if learned else members[0]
    facts = models[models["run_id"] == example["run_id"]].iloc[0]
    unsolved = int((models["rightness_label"] == "not solved").sum())
    return StudyReading(
        title="Calibration: which tests tell right attention from wrong?",
        about=f"{len(models)} small models whose answer is known, each asked every test. An "
        f"attention is right where it puts at least {RIGHT:g} of what can be reached beyond chance "
        f"on the words that decide, wrong up to {WRONG:g}; it counts where the model's accuracy is "
        f"at least {SOLVED:g}, and {FOLLOWS:g} with the reason changed: {unsolved} did not get "
        "there. Models that cannot have learnt anything (random weights, labels by a coin, a "
        "guesser) are meaningless. Yes always speaks for the attention.",
        data=str(facts["data"]),
        model=f"{facts['encoder']}_{facts['control']}",
        directory=directory,
        runs=[directory / example["directory"]],
        tables={
            caption: table for caption, table in tables_of(models, answered).items() if len(table)
        },
        answer=answer(separations(answered)),
        notes=[
            f"{unsolved} of {len(models)} models did not solve their task and are left out of all "
            "rates."
        ],
    )


def answer(separated: pd.DataFrame) -> str:
    """How many tests tell right attention from wrong in every kind of model, and which does best.

    Args:
        separated: the areas under the curve, by encoder (`separations`).
    """
    current = separated[separated["version"] == "current"]
    if current.empty:
        return (
            "No test can be judged: it takes models with right attention and models with wrong "
            "attention."
        )
    worst = current.groupby("claim")[["AUC", "AUC low"]].min()
    best = worst.sort_values(["AUC low", "AUC"]).index[-1]
    count = int((worst["AUC low"] > 0.5).sum())
    return (
        f"{count} of {len(worst)} tests tell right attention from wrong in every kind of model "
        f"that was tried; “{best.replace('_', ' ')}” does so best (AUC "
        f"{worst.loc[best, 'AUC']:.2f} or more; a coin has 0.50)."
    )
