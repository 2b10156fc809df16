"""Which tests would have told? Every test is asked of many small models whose answer is known."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from attnprobe.errors import UserError
from attnprobe.studies.base import Done, Member, Study

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
}
"""Small on purpose: a rate needs many models."""
WITHOUT_CONTEXT = ("average",)
"""Encoders that see one word at a time: of `DATA` they are given what a single word decides."""
SINGLE_WORD = ("token", "word", "geco")


@dataclass(frozen=True)
class Calibration(Study):
    """Trains every control with every encoder on every data set with every seed, small and alike, and examines each with the
    probes. What the tests then say of right, wrong and meaningless attention is read from their tables
    (`attnprobe.report.calibration`). Seeds come one after the other, each with all cells, so that a study that is cut
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
        for setting, names, known in (
            ("controls", self.controls, CONTROLS), ("encoders", self.encoders, ENCODERS), ("data", self.data, DATA)
        ):  # fmt: skip
            if not names or not set(names) <= set(known):
                raise UserError(f"study.{setting}={list(names)}: expected one or more of {', '.join(known)}")
        if not self.seeds:
            raise UserError("study.seeds is empty: expected the seeds of the trainings, such as [0,1,2]")
        if "known_answer" not in self.probes:
            raise UserError("study.probes lacks known_answer, which says whose attention is right: add it")

    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """One stage per seed. The command line's own seed and model play no part."""
        examined = f"probe=[{','.join(self.probes)}]"
        for one in self.seeds:
            yield [
                Member(
                    control,
                    one,
                    (
                        *self.settings_of(data), *DATA[data], *ENCODERS[encoder], *CONTROLS[control], f"data.name={data}",
                        f"model.name={encoder}_{control}", examined,
                    ),
                )
                for data, encoder, control in product(self.data, self.encoders, self.controls)
                if encoder not in WITHOUT_CONTEXT or data in SINGLE_WORD
            ]  # fmt: skip

    def settings_of(self, data: str) -> list[str]:
        """The shared settings that these data have."""
        generated = "data=geco" not in DATA[data]
        return [one for one in self.settings if generated or not one.startswith(GENERATED)]
