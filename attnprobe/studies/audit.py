"""Audit your own: from a file of labelled texts to the verdict, by the core tests of all three papers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import ClassVar

from attnprobe.errors import UserError
from attnprobe.overrides import quoted
from attnprobe.shown import duration
from attnprobe.studies.base import Compose, Done, Member, Plan, Study, without_learned_attention
from attnprobe.studies.timing import Costs, measured_costs, page_seconds

FEWEST = {"train": 2000, "test": 400}
"""However short the time, no fewer examples than these are taken: fewer would leave every interval too wide to decide."""

RELIABLE = ("gradient", "leave_one_out")
"""What attention is compared with: asked of the further seeds too, to see whether it agrees with itself."""
AGAIN = 0.1
"""What these two cost, of all probes: `agreement` takes both again under ten attentions."""


@dataclass(frozen=True)
class Audit(Study):
    """Trains the command line's model, examines it with the core probes, and repeats the training with other seeds and
    with uniform attention (is attention needed, is it stable?).

    The time that all this takes is estimated first. Where it is more than `minutes`, rows are left out at random, of the
    test split before the training split, and counted; the plan is kept, so that an interrupted audit goes on with it.

    Attributes:
        seeds: further seeds, in addition to the command line's.
        probes: probes of the first run.
        minutes: about what the audit may take on this machine.
        epochs: of a training; 0: the model is trained already, and examined as it is.
        model_class: of a whole model (`without_learned_attention`); None: one of three stages.
    """

    name: ClassVar[str] = "audit"
    seeds: Sequence[int] = (1, 2)
    probes: Sequence[str] = ()
    minutes: float = 30.0
    epochs: int = 1
    model_class: str | None = None

    def __post_init__(self) -> None:
        if not self.minutes > 0:
            raise UserError(f"study.minutes={self.minutes}: expected more than 0")
        if not self.probes:
            raise UserError("study.probes is empty: name the probes of the audit, such as [permutation,adversarial]")

    @property
    def examined(self) -> str:
        """The probes of the first run as an override."""
        return f"probe=[{','.join(self.probes)}]"

    @property
    def repeated(self) -> str:
        """The probes of the further seeds as an override: how far attention moved, and, where agreement is asked, what it is
        compared with."""
        return f"probe=[{','.join(['teacher', *self.again])}]"

    @property
    def again(self) -> list[str]:
        """The probes of the first run that the further seeds repeat."""
        return [one for one in RELIABLE if {one, "agreement"} <= set(self.probes)]

    def plan(self, compose: Compose) -> Plan:
        """As many rows as the time allows, and what that means in words. This planning and the page are part of the time."""
        began, config = perf_counter(), compose([self.examined])
        costs, epochs = measured_costs(config), int(config.training.epochs)
        if epochs and self.again:
            costs = replace(costs, probing=costs.probing * (1 + AGAIN * len(self.seeds)))
        trainings = 2 * (1 + len(self.seeds)) if epochs else 0
        beside = page_seconds(self.probes) + perf_counter() - began
        kept = rows_within(costs, epochs, trainings, self.minutes * 60 - beside)
        most = dict(config.data.most or {}) | kept
        sizes = costs.rows | kept
        estimate = beside + replace(costs, rows=sizes).seconds(epochs, trainings)
        work = f"{trainings} trainings of {epochs} epochs on {sizes['train']:,} texts" if epochs else "nothing to train"
        probing = f"{len(self.probes)} probes on {sizes['test']:,}"
        words = f"{work}, {probing}: about {duration(estimate)} on this machine ({costs.device})"
        if kept:
            full = duration(beside + costs.seconds(epochs, trainings))
            left = " and ".join(f"{count:,} of {costs.rows[split]:,} {split} rows" for split, count in kept.items())
            words += f". All rows would take about {full}: taking {left}, at random; study.minutes=… allows more"
        return Plan(most if kept else {}, words, estimate)

    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """The examined run; the same with other seeds, and with uniform attention."""
        further = [other for other in self.seeds if other != seed]
        yield [Member("base", seed, (self.examined,))]
        if not self.epochs:
            return
        base = f"teacher={quoted(str(done[0].directory))}"
        yield [
            *(Member("base", other, (self.repeated, base)) for other in further),
            *(
                Member("uniform", other, (without_learned_attention(self.model_class), "probe=[]"))
                for other in [seed, *further]
            ),
        ]


def rows_within(costs: Costs, epochs: int, trainings: int, seconds: float) -> dict[str, int]:
    """How many rows of which split to take so that the estimate is within `seconds`; splits that keep all are left out.

    >>> costs = Costs({"train": 10_000, "validation": 1000, "test": 5000}, training=0.001, probing=0.1, device="cpu")
    >>> rows_within(costs, epochs=8, trainings=6, seconds=3600)
    {}
    >>> rows_within(costs, epochs=8, trainings=6, seconds=600)
    {'test': 1200}
    >>> rows_within(costs, epochs=8, trainings=6, seconds=120)
    {'test': 400, 'train': 2000}
    """
    if costs.seconds(epochs, trainings) <= seconds:
        return {}
    seconds -= costs.beside(trainings)
    kept = {}
    training = trainings * epochs * costs.rows["train"] * costs.training
    test = max(FEWEST["test"], int((seconds - training) / costs.probing)) if costs.probing else costs.rows["test"]
    if test < costs.rows["test"]:
        kept["test"] = test
    left = seconds - min(test, costs.rows["test"]) * costs.probing
    row = trainings * epochs * costs.training
    train = max(FEWEST["train"], int(left / row)) if row else costs.rows["train"]
    if train < costs.rows["train"]:
        kept["train"] = train
    return kept
