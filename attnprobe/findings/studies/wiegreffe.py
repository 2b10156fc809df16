"""Wiegreffe & Pinter 2019, *Attention is not not Explanation*: its four tests as one study.

Is attention needed, stable, of use to another model, and can a trained adversary escape it?
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import pandas as pd
from annotated_types import Ge, Lt
from omegaconf import DictConfig

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import quoted, visible
from attnprobe.core.settings import NotNegative, Number, Seed
from attnprobe.evidence.published import NUMBERS
from attnprobe.findings.studies.base import (
    Compose,
    Costs,
    Done,
    Member,
    Plan,
    Study,
    StudyReading,
    without_learned_attention,
)
from attnprobe.findings.studies.criteria.exclusivity import add_exclusivity, chosen_adversary
from attnprobe.findings.studies.criteria.leak import add_leak
from attnprobe.findings.studies.criteria.members import Members
from attnprobe.findings.studies.criteria.necessity import add_necessity
from attnprobe.findings.studies.criteria.stability import add_stability

TESTS = ("uniform", "seeds", "guide", "adversary")


@dataclass(frozen=True)
class Wiegreffe(Study):
    """Trains the command line's model again, in the ways of the paper's four tests.

    Is attention needed (uniform), stable (seeds), carrying the label (guide), and can a model
    trained to that end escape it (adversary)? Sections 3.2, 3.3, 3.4 and 4 of the paper.

    The base is the command line's model. Every F1 is compared over the same seeds.

    Attributes:
        tests: any of uniform, seeds, guide, adversary.
        seeds: further seeds, in addition to the command line's.
        weights: λ of the trained adversaries, one model each.
        guide: the model without context that is guided; a choice of `model`.
        above: the adversary that guides is the closest (TVD) of those whose JSD is larger, on the
            validation split.
        model_class: of a whole model (`without_learned_attention`); None: one of three stages.
    """

    name: ClassVar[str] = "wiegreffe"
    tests: Sequence[Literal[TESTS]] = TESTS
    seeds: Sequence[Seed] = ()
    weights: Sequence[NotNegative] = ()
    guide: str = "average"
    above: Annotated[Number, Ge(0), Lt(0.69)] = 0.4  # ln 2 is the largest JSD
    model_class: str | None = None

    def __post_init__(self) -> None:
        if not self.tests:
            raise UserError(f"study.tests is empty: expected one or more of {', '.join(TESTS)}")
        needs_adversaries = not {"guide", "adversary"}.isdisjoint(self.tests)
        if self.model_class is not None and needs_adversaries:
            raise UserError(
                "study.tests: guide and adversary train models of three stages against each other, "
                "and model=pretrained is a whole one: take study.tests=[uniform,seeds], or "
                "+experiment=audit"
            )
        if "seeds" in self.tests and not self.seeds:
            raise UserError(
                "study.seeds is empty: the test over seeds needs at least one further seed, the "
                "paper has 8"
            )
        if needs_adversaries and not self.weights:
            raise UserError(
                "study.weights is empty: expected λ of the adversaries, such as [0.0001,0.001,0.01]"
            )
        if needs_adversaries and not any(self.weights):
            raise UserError(
                f"study.weights={list(self.weights)}: expected a λ above 0 as well, such as "
                "[0.0,0.001,0.01]: λ = 0 is plain distillation, with which adversaries are compared"
            )

    def plan(self, compose: Compose, measure: Callable[[DictConfig], Costs]) -> Plan:
        """Refuse a guide that is no model of three stages, before anything is trained."""
        if "guide" in self.tests:
            try:
                compose([f"model={self.guide}", "model/attention=imposed"])
            except UserError:
                raise UserError(
                    f"study.guide={visible(self.guide)}: expected the name of a model whose "
                    "attention can be imposed, such as average, cnn or lstm"
                ) from None
        return Plan()

    def trainings(self, seed: int) -> int:
        """The base, its further seeds, and each test's members at every seed.

        An adversary trains for ten times as many epochs (conf/training/adversary.yaml), unless it
        stops early.
        """
        seeds = len({seed, *self.seeds})
        repeated = seeds if {"uniform", "seeds"} & {*self.tests} else 1
        uniform = seeds if "uniform" in self.tests else 0
        guided = 4 * seeds if "guide" in self.tests else 0
        adversaries = 10 * len(self.weights) if {"guide", "adversary"} & {*self.tests} else 0
        return repeated + uniform + guided + adversaries

    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """The base; all that refers to it; the guided model that refers to the best adversary."""
        further_seeds = [further for further in self.seeds if further != seed]
        all_seeds = [seed, *further_seeds]
        yield [Member("base", seed, ("probe=[adversarial]",))]
        base = f"teacher={quoted(str(done[0].directory))}"

        members = []
        if "uniform" in self.tests or "seeds" in self.tests:
            for further in further_seeds:
                members.append(Member("base", further, ("probe=[teacher]", base)))
        if "uniform" in self.tests:
            uniform = without_learned_attention(self.model_class)
            members += [Member("uniform", each, (uniform, "probe=[]")) for each in all_seeds]
        if "guide" in self.tests:
            members += self.guided("uniform", all_seeds, "model/attention=uniform")
            members += self.guided("trained", all_seeds)
            members += self.guided("base", all_seeds, "model/attention=imposed", base)
        if "guide" in self.tests or "adversary" in self.tests:
            members += [self.adversary(weight, seed, model, base) for weight in self.weights]
        yield members

        if "guide" in self.tests:
            # λ = 0 is plain distillation, and no adversary
            adversaries = [run.directory for run in done if (run.member.parameter or 0) > 0]
            chosen = chosen_adversary(adversaries, self.above)
            teacher = f"teacher={quoted(str(chosen))}"
            yield self.guided("adversary", all_seeds, "model/attention=imposed", teacher)

    def guided(self, guidance: str, seeds: Sequence[int], *overrides: str) -> list[Member]:
        """The model without context, a member per seed, with the attention of these overrides."""
        name = f"model.name={self.guide}_guided_{guidance}"
        settings = (f"model={self.guide}", *overrides, name, "probe=[]")
        return [Member(f"guide_{guidance}", seed, settings) for seed in seeds]

    def adversary(self, weight: float, seed: int, model: str, base: str) -> Member:
        """The base's model, trained to predict as the base and to attend to something else.

        Args:
            weight: λ, of the distance of the attentions in the objective.
            seed: of its training.
            model: name of the base's model.
            base: the override that makes the base its teacher.
        """
        settings = (
            "training=adversary",
            f"training.recipe.objective.weight={weight}",
            f"model.name={model}_adversary_{weight:g}",
            base,
            "probe=[teacher]",
        )
        return Member("adversary", seed, settings, parameter=weight)


def read(directory: Path, content: dict[str, Any]) -> StudyReading:
    """The four tests, as far as the study made them.

    Args:
        directory: of the study.
        content: of its study.json.
    """
    members = Members(directory, content)
    reading = members.empty_reading(
        title="{data}, {model}: is attention needed, stable, does it carry the label, and can it "
        "be escaped?",
        about="Wiegreffe & Pinter's four tests. F1 is of class 1 on the test split (macro F1 with "
        "more than two classes). Guidance is judged by balanced accuracy, as F1 of one class "
        "rewards a model that always says this class. Intervals of F1 are over texts and seeds "
        "together, paired where two models are compared. Those of distances are over texts. JSD is "
        "in nats, 0 to 0.693; TVD is 0 to 1. Published values are quoted from memory and not "
        "verified; they are of models with pretrained word vectors.",
        notes=[
            "The released code chooses the best epoch on the test split. Here the validation split "
            "alone chooses, also for the guiding adversary.",
            "The published TVD of table 4 is in the released code's unit, which is half of this "
            "one for two classes.",
        ],
    )
    table = pd.read_csv(NUMBERS / "wiegreffe_pinter.csv", comment="#")
    rows = table[table["data"] == reading.data]
    published = dict(zip(rows["metric"], rows["value"], strict=True))

    tests = content["settings"].get("tests", ())
    if "uniform" in tests:
        add_necessity(reading, members, published)
    if "seeds" in tests:
        add_stability(reading, members)
    if "guide" in tests:
        add_leak(reading, members, published)
    if "guide" in tests or "adversary" in tests:
        add_exclusivity(reading, members, published)
    return reading
