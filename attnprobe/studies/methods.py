"""Which method finds the words that decide? Every importance on models whose reason is known."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import ClassVar

from attnprobe.errors import UserError
from attnprobe.importance.registry import class_of
from attnprobe.studies.base import Done, Member, Study
from attnprobe.studies.calibration import DATA, SINGLE_WORD, WITHOUT_CONTEXT
from attnprobe.studies.calibration import ENCODERS as SMALL_ENCODERS

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
        data: names of `attnprobe.studies.calibration.DATA`.
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
        for setting, names, known in (("encoders", self.encoders, ENCODERS), ("data", self.data, DATA)):
            if not names or not set(names) <= set(known):
                raise UserError(f"study.{setting}={list(names)}: expected one or more of {', '.join(known)}")
        if not self.seeds:
            raise UserError("study.seeds is empty: expected the seeds of the trainings, such as [0,1,2]")
        if not self.importances:
            raise UserError("importances=[…] is empty: expected the methods to compare, such as [attention,gradient]")

    def defined(self, encoder: str) -> Sequence[str]:
        """The methods without those that follow layers of self-attention, where the encoder has none."""
        if encoder == "transformer":
            return self.importances
        return [name for name in self.importances if not getattr(class_of(name), "of_layers", False)]

    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """One stage per seed. The command line's own seed and model play no part."""
        for one in self.seeds:
            yield [
                Member(
                    encoder,
                    one,
                    (*DATA[data], *self.settings, *ENCODERS[encoder], f"data.name={data}", f"model.name={encoder}",
                     "probe=[known_answer,plausibility]", f"importances=[{','.join(self.defined(encoder))}]"),
                )
                for data, encoder in product(self.data, self.encoders)
                if encoder not in WITHOUT_CONTEXT or data in SINGLE_WORD
            ]  # fmt: skip
