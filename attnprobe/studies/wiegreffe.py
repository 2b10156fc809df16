"""Wiegreffe & Pinter 2019, *Attention is not not Explanation*: its four tests as one study."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from attnprobe.errors import UserError
from attnprobe.overrides import quoted
from attnprobe.report.four_tests.exclusivity import choose
from attnprobe.studies.base import Done, Member, Study, without_learned_attention

TESTS = ("uniform", "seeds", "guide", "adversary")


@dataclass(frozen=True)
class Wiegreffe(Study):
    """Is attention needed (uniform), stable (seeds), of use to another model (guide), and can a model trained to that end
    escape it (adversary)? Sections 3.2, 3.3, 3.4 and 4 of the paper.

    The base is the command line's model. Every F1 is compared over the same seeds.

    Attributes:
        tests: any of uniform, seeds, guide, adversary.
        seeds: further seeds, in addition to the command line's.
        weights: λ of the trained adversaries, one model each.
        guide: the model without context that is guided; a choice of `model`.
        above: the adversary that guides is the closest in its predictions (TVD) of those whose JSD is larger than this, on
            the validation split.
        model_class: of a whole model (`without_learned_attention`); None: one of three stages.
    """

    name: ClassVar[str] = "wiegreffe"
    tests: Sequence[str] = TESTS
    seeds: Sequence[int] = ()
    weights: Sequence[float] = ()
    guide: str = "average"
    above: float = 0.4
    model_class: str | None = None

    def __post_init__(self) -> None:
        if unknown := [test for test in self.tests if test not in TESTS]:
            raise UserError(f"study.tests names {', '.join(unknown)}: expected some of {', '.join(TESTS)}")
        if self.model_class is not None and set(self.tests) & {"guide", "adversary"}:
            raise UserError(
                "study.tests: guide and adversary train models of three stages against each other, and model=pretrained is a "
                "whole one: take study.tests=[uniform,seeds], or +experiment=audit"
            )
        if {"seeds"} & set(self.tests) and not self.seeds:
            raise UserError(
                "study.seeds is empty: the test over seeds needs at least one further seed, the paper has 8"
            )
        if {"guide", "adversary"} & set(self.tests) and not self.weights:
            raise UserError("study.weights is empty: expected λ of the adversaries, such as [0.0001,0.001,0.01]")

    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """The base; all that refers to it; the guided model that refers to the best adversary."""
        tests, further = set(self.tests), [other for other in self.seeds if other != seed]
        every = [seed, *further]
        yield [Member("base", seed, ("probe=[adversarial]",))]
        base = f"teacher={quoted(str(done[0].directory))}"

        members = []
        if tests & {"uniform", "seeds"}:
            members += [Member("base", other, ("probe=[teacher]", base)) for other in further]
        if "uniform" in tests:
            members += [
                Member("uniform", other, (without_learned_attention(self.model_class), "probe=[]")) for other in every
            ]
        if "guide" in tests:
            members += [self.guided("uniform", other, "model/attention=uniform") for other in every]
            members += [self.guided("trained", other) for other in every]
            members += [self.guided("base", other, "model/attention=imposed", base) for other in every]
        if tests & {"guide", "adversary"}:
            members += [self.adversary(weight, seed, model, base) for weight in self.weights]
        yield members

        if "guide" in tests:
            chosen = choose([one.directory for one in done if one.member.role == "adversary"], self.above)
            teacher = f"teacher={quoted(str(chosen))}"
            yield [self.guided("adversary", other, "model/attention=imposed", teacher) for other in every]

    def guided(self, by: str, seed: int, *overrides: str) -> Member:
        """The model without context, with this attention."""
        name = f"model.name={self.guide}_guided_{by}"
        return Member(f"guide_{by}", seed, (f"model={self.guide}", *overrides, name, "probe=[]"))

    def adversary(self, weight: float, seed: int, model: str, base: str) -> Member:
        """The base's model, trained to predict as the base and to attend to something else."""
        changes = (
            "training=adversary",
            f"training.recipe.objective.weight={weight}",
            f"model.name={model}_adversary_{weight:g}",
        )
        return Member("adversary", seed, (*changes, base, "probe=[teacher]"), parameter=weight)
