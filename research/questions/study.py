"""The four open questions: the plan of their runs, and what they come to."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import quoted
from attnprobe.evidence.statistics import in_columns, wilson
from attnprobe.findings.studies.base import Compose, Done, Member, Plan, Study, StudyReading
from research.questions.figures import figures_of
from research.questions.hypotheses import (
    FAR,
    MARGINS,
    NEVER,
    STATED,
    TO_EXCEED,
    contrasts,
    cost_of_distance,
    verdicts,
)
from research.questions.numbers import LEARNED, UNIFORM, Cell, Grid, over_draws

ATTENTIONS: dict[str, tuple[str, ...]] = {
    LEARNED: (),
    "adversary": (),
    UNIFORM: ("model/attention=uniform",),
}
"""Attention → its overrides; every other one is a column of the data."""
CENTRE = {
    "widths": [32],
    "texts": [1000],
    "lengths": [1],
    "attentions": [LEARNED, UNIFORM],
}
"""What a block has where it does not say otherwise."""


@dataclass(frozen=True)
class Questions(Study):
    """Trains every cell of a grid with learned and with equal weights, then adversaries of some.

    Each is trained once per draw of the data and seed.
    Replicates come one after the other, each with all cells: a study that is cut short is even at
    any time.

    Attributes:
        families: name → overrides of its data.
        encoders: name → overrides of its model, `{width}`, `{half}`, `{quarter}` being the cell's.
        blocks: crossed products of families and encoders, with what differs from `CENTRE`.
        adversaries: blocks that are imitated, with `weights` (λ).
        without_context: encoders that only get the families in `single`.
        draws: seeds of the data.
        seeds: of the trainings.
        margins: those that differ from `MARGINS`; they are tightened, never loosened.
        settings: overrides that all members share.
    """

    name: ClassVar[str] = "questions"
    families: Mapping[str, Sequence[str]]
    encoders: Mapping[str, Sequence[str]]
    blocks: Sequence[Mapping[str, Any]]
    adversaries: Sequence[Mapping[str, Any]] = ()
    without_context: Sequence[str] = ()
    single: Sequence[str] = ()
    draws: Sequence[int] = (0,)
    seeds: Sequence[int] = (0,)
    margins: Mapping[str, float] = None  # type: ignore[assignment]
    settings: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "margins", {**MARGINS, **(self.margins or {})})
        for block in (*self.blocks, *self.adversaries):
            check_block(block, families=self.families, encoders=self.encoders)
        if not self.draws or not self.seeds:
            raise UserError(
                "study.draws or study.seeds is empty: expected seeds of the data and of trainings, "
                "as [0,1]"
            )
        for name, margin in self.margins.items():
            if not is_strict(name, margin):
                raise UserError(
                    f"study.margins: {name}={margin}: expected one of {', '.join(MARGINS)}, at "
                    f"least as strict as {MARGINS.get(name, 'these')}"
                )

    def plan(self, compose: Compose, measure: Callable[..., Any]) -> Plan:
        """The contrasts and margins, written before the first run."""
        cells = [*self.cells(self.blocks), *self.cells(self.adversaries)]
        runs = len(cells) * len(self.draws) * len(self.seeds)
        hypotheses = [
            f"{name}: {hypothesis.statement} (refuted if {hypothesis.refuted_if})."
            for name, hypothesis in STATED.items()
        ]
        margins = ", ".join(f"{name} {margin:g}" for name, margin in self.margins.items())
        return Plan(
            words=f"{runs} runs; draws {list(self.draws)}, seeds {list(self.seeds)}; sealed before "
            f"the first: {' '.join(hypotheses)} Margins: {margins}."
        )

    def cells(self, blocks: Sequence[Mapping[str, Any]]) -> list[tuple[Cell, str | float]]:
        """Every cell of these blocks once, in order, with its attention or weight λ."""
        cells: dict[tuple[Cell, str | float], None] = {}
        for block in blocks:
            values_of = {**CENTRE, **block}
            attentions = values_of.get("weights", values_of["attentions"])
            for *knobs, attention in product(
                values_of["families"],
                values_of["encoders"],
                values_of["widths"],
                values_of["texts"],
                values_of["lengths"],
                attentions,
            ):
                cell = Cell(*knobs)
                if cell.encoder not in self.without_context or cell.family in self.single:
                    cells[cell, attention] = None
        return list(cells)

    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """All trainings, then the adversaries of some.

        The command line's own seed and model play no part.
        """
        replicates = list(product(self.draws, self.seeds))
        cells = self.cells(self.blocks)
        yield [
            self.member(cell, str(attention), draw, each)
            for draw, each in replicates
            for cell, attention in cells
        ]

        learned = {(run.member.role, run.member.seed): run.directory for run in done}
        imitated = []
        for (draw, each), (cell, weight) in product(replicates, self.cells(self.adversaries)):
            role = self.member(cell, LEARNED, draw, each).role
            teacher = learned.get((role, each))
            if teacher is None:
                raise UserError(
                    f"study.adversaries: {cell} is in no block: there is no learned model to "
                    "imitate"
                )
            imitated.append(self.adversary(cell, float(weight), draw, each, teacher))
        if imitated:
            yield imitated

    def member(self, cell: Cell, attention: str, draw: int, seed: int) -> Member:
        """One training; its role is such as `token-lstm-32-1000-1-learned-0`."""
        widths = {"width": cell.width, "half": cell.width // 2, "quarter": cell.width // 4}
        column = ("model/attention=column", f"model.attention.column={attention}")
        overrides = (
            *self.settings,
            *(override.format(**widths) for override in self.encoders[cell.encoder]),
            *self.families[cell.family],
            f"data.source.train_size={cell.texts}",
            f"data.source.longer={cell.length}",
            f"data.source.seed={draw}",
            f"data.name={cell.family}",
            f"model.name={cell.encoder}_{attention}",
            *ATTENTIONS.get(attention, column),
        )
        role = "-".join(map(str, (*cell, attention, draw)))
        return Member(role, seed, overrides)

    def adversary(self, cell: Cell, weight: float, draw: int, seed: int, teacher: Path) -> Member:
        """An imitation of a cell's learned model that attends elsewhere.

        Args:
            cell: of the grid.
            weight: λ.
            draw: seed of the data.
            seed: of the training.
            teacher: the learned model's run.
        """
        member = self.member(cell, "adversary", draw, seed)
        without_probes = [each for each in member.overrides if not each.startswith("probe")]
        overrides = (
            *without_probes,
            "training=adversary",
            f"training.recipe.objective.weight={weight}",
            f"teacher={quoted(str(teacher))}",
            f"model.name={cell.encoder}_adversary_{weight:g}",
            "probe=[teacher]",
        )
        return Member(member.role, seed, overrides, weight)


def check_block(block: Mapping[str, Any], **settings: Mapping[str, Any]) -> None:
    """Check that a block names some of what each setting describes.

    Raises:
        UserError: it does not.
    """
    for setting, choices in settings.items():
        names = block.get(setting)
        if not names or not set(names) <= set(choices):
            raise UserError(
                f"study.blocks: {setting}={names}: expected some of {', '.join(choices)}"
            )


def is_strict(name: str, margin: float) -> bool:
    """Whether a margin is a known one, and at least as strict as stated."""
    if name not in MARGINS:
        return False
    if name in TO_EXCEED:
        return margin >= MARGINS[name]
    return margin <= MARGINS[name]


def read(directory: Path, content: dict[str, Any]) -> StudyReading:
    """Eight verdicts, four figures, the models that solved their task, and how far adversaries got.

    Args:
        directory: of the study.
        content: of its study.json.
    """
    numbers = Grid.read(directory, content)
    settings = content["settings"]
    margins = {**MARGINS, **settings["margins"]}
    table = verdicts(contrasts(numbers, margins))
    solved = verdicts(contrasts(numbers, margins, solved_only=True))
    table["solved models only"] = solved["verdict"]
    first = content["members"][0]
    family, encoder, *_ = first["role"].split("-")
    counts = ", ".join(
        f"{count} {verdict}" for verdict, count in table["verdict"].value_counts().items()
    )
    tables = {
        "Hypotheses, each with the contrast that decides it and its 95 % interval": table,
        "Models that solved their task (accuracy of 0.95), by cell": solved_models(numbers),
    }
    adversaries = reach(numbers)
    if not adversaries.empty:
        caption = f"Adversaries that reach a JSD of {FAR} nats, and what it costs them there"
        tables[caption] = adversaries
    return StudyReading(
        title="Four open questions: is attention needed, what is its meaning, does it transfer, "
        "what eases adversaries?",
        about=f"{len(content['members'])} small models on texts whose rule is known: "
        f"{len(settings['draws'])} draws of the data × {len(settings['seeds'])} seeds. Intervals "
        f"are Student's over draws; p by Holm over the hypotheses. {content['plan']}",
        data=family,
        model=encoder,
        directory=directory,
        figures=figures_of(numbers),
        runs=[directory / first["directory"]],
        tables=tables,
        answer=f"Of eight hypotheses {counts}.",
    )


def solved_models(numbers: Grid) -> pd.DataFrame:
    """A row per cell: how many of its models solved their task, and its other numbers."""
    rows = []
    for cell, solved in numbers.solved.items():
        count = int(solved.sum())
        row = cell._asdict() | {"models": solved.size, "solved": count}
        row |= in_columns("share", wilson(count, solved.size))
        row["accuracy"] = over_draws(numbers.number("accuracy", cell)).value
        row["equal weights"] = over_draws(numbers.number("accuracy", cell, UNIFORM)).value
        row["word"] = over_draws(numbers.number("word", cell)).value
        row["state"] = over_draws(numbers.number("state", cell)).value
        rows.append(row)
    return pd.DataFrame(rows)


def reach(numbers: Grid) -> pd.DataFrame:
    """A row per cell with adversaries: in how many draws one is far, and the TVD at that distance.

    The TVD is a mean over the draws in which one is far; the hypothesis counts the others too.
    """
    rows = []
    for cell in numbers.solved:
        adversaries = numbers.adversaries(cell)
        if not adversaries:
            continue
        cost = cost_of_distance(adversaries)
        is_far = cost < NEVER
        row = cell._asdict() | {"draws": len(cost), "reach it": int(is_far.sum())}
        for weight, adversary in adversaries.items():
            row[f"JSD at λ = {weight:g}"] = over_draws(adversary.jsd).value
        rows.append(row | in_columns("TVD there", over_draws(cost[is_far], 0.0, 1.0)))
    return pd.DataFrame(rows)
