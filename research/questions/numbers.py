"""The numbers of every cell of the grid, one for each draw of the data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from attnprobe.evidence.statistics import Interval, student
from attnprobe.findings.members import numbers_by_text

LEARNED = "learned"
UNIFORM = "uniform"
ALL_KNOW = 0.1
"""By how much the attended states have to be ahead of a state at random, as a share of the most
that a state knows: where all know alike, none is the wrong one to attend to."""
SOLVED = 0.95
"""Accuracy from which a task counts as solved."""
BEST_STATE = "state_change_best"


class Cell(NamedTuple):
    """One cell of the grid.

    Attributes:
        width: of the encoder.
        texts: for training.
        length: how many times as long as they are drawn the texts are.
    """

    family: str
    encoder: str
    width: int
    texts: int
    length: int


@dataclass(frozen=True)
class Quantity:
    """One number per model and text.

    Attributes:
        probe: that has the metrics.
        parts: the metrics' values → numerator and denominator; a number of a cell is the ratio of
            their sums over texts.
    """

    probe: str
    metrics: tuple[str, ...]
    parts: Callable[..., tuple[Any, Any]]


def as_mean(value: Any) -> tuple[Any, Any]:
    """The parts of a mean."""
    return value, 1.0


QUANTITIES = {
    "accuracy": Quantity("known_answer", ("correct",), as_mean),
    "word": Quantity(
        "known_answer",
        ("mass_on_rationale", "chance"),
        lambda mass, chance: (mass, 1 - chance),
    ),
    "state": Quantity(
        "known_answer",
        ("state_change_own", "state_change_null", BEST_STATE),
        lambda attended, null, best: (attended - null, best - null),
    ),
    "jsd": Quantity("adversarial", ("optimum_jsd",), as_mean),
    "gain": Quantity(
        "readouts",
        ("readout_words_attention", "readout_words_equal", "readout_weight"),
        lambda attention, equal, weight: (weight * (attention - equal), 1.0),
    ),
    "far": Quantity("teacher", ("jsd",), as_mean),
    "tvd": Quantity("teacher", ("tvd",), as_mean),
}


def quantities_of_run(run: Path) -> dict[str, Float[np.ndarray, "texts 2"]]:
    """Quantity → its numerator and denominator in one run, by text.

    What the run was not asked is left out, and what its kind of model has no number of.
    """
    probes = dict.fromkeys(quantity.probe for quantity in QUANTITIES.values())
    tables = {probe: numbers_by_text(run, probe) for probe in probes}
    quantities = {}
    for name, quantity in QUANTITIES.items():
        table = tables[quantity.probe]
        if table.empty or not set(quantity.metrics) <= set(table):
            continue
        metrics = [table[metric] for metric in quantity.metrics]
        above, below = quantity.parts(*metrics)
        parts = pd.DataFrame({"above": above, "below": below})
        parts = parts.where(above.notna(), 0.0)
        if name == "state":
            room = parts["below"].sum()
            most_known = table[BEST_STATE].sum()
            if room < ALL_KNOW * most_known:
                continue
        quantities[name] = parts.to_numpy(np.float64)
    return quantities


ByDraw = Float[np.ndarray, " draws"]
"""A number in each draw of the data, its seeds and texts together; NaN where it is not known."""


def over_draws(number: ByDraw, low: float = -np.inf, high: float = np.inf) -> Interval:
    """The mean over the draws that have the number, with Student's interval over them.

    Seeds and texts differ from draw to draw as well, so that their spread is in it. A percentile
    bootstrap over three draws holds the truth in 74 %; how often this one does is in
    tests/research/test_questions.py.

    Args:
        number: of each draw, NaN where a draw does not have it.
        low: the least that it can be; the interval ends there.
        high: the greatest that it can be.

    Returns:
        No interval with one draw, or where all are equal.
    """
    return student(number[np.isfinite(number)], low=low, high=high)


def role_of(member: Mapping[str, Any]) -> tuple[Cell, str, int]:
    """The cell of a study's member, its attention or λ, and the draw of its data."""
    family, encoder, *sizes, attention, draw = member["role"].split("-")
    if member["parameter"] is not None:
        attention = f"{member['parameter']:g}"
    return Cell(family, encoder, *map(int, sizes)), attention, int(draw)


Parts = dict[tuple[str, Cell, str], Float[np.ndarray, "draws seeds texts 2"]]
"""(quantity, cell, attention or λ) → numerator and denominator of each text."""


def solved_models(parts: Parts) -> dict[Cell, Bool[np.ndarray, "draws seeds"]]:
    """Cell → which of its learned models solved their task."""
    solved = {}
    for (quantity, cell, attention), values in parts.items():
        if quantity == "accuracy" and attention == LEARNED:
            right = values[..., 0].sum(-1)
            texts = values[..., 1].sum(-1)
            solved[cell] = right >= SOLVED * texts
    return solved


@dataclass(frozen=True)
class Adversary:
    """Adversaries of one λ, in each draw.

    Attributes:
        jsd: of their attention to the imitated model's, mean over the texts, in nats.
        tvd: of their predictions to its predictions, mean over the texts, 0 to 1.
    """

    jsd: ByDraw
    tvd: ByDraw


@dataclass
class Grid:
    """The numbers of all members of a study.

    Attributes:
        parts: see `Parts`.
        texts: of each model.
        solved: see `solved_models`.
    """

    parts: Parts
    texts: int = 0
    solved: dict[Cell, Bool[np.ndarray, "draws seeds"]] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path, content: Mapping[str, Any]) -> "Grid":
        """Read a study's members.

        Args:
            directory: of the study.
            content: of its study.json.
        """
        draws = list(content["settings"]["draws"])
        seeds = list(content["settings"]["seeds"])
        parts: Parts = {}
        texts = 0
        for member in content["members"]:
            cell, attention, draw = role_of(member)
            replicate = (draws.index(draw), seeds.index(member["seed"]))
            run = directory / member["directory"]
            for quantity, values in quantities_of_run(run).items():
                texts = max(texts, len(values))
                empty = np.zeros((len(draws), len(seeds), texts, 2))
                cell_parts = parts.setdefault((quantity, cell, attention), empty)
                cell_parts[replicate][: len(values)] = values

        return cls(parts, texts, solved_models(parts))

    def number(
        self, quantity: str, cell: Cell, attention: str = LEARNED, *, solved_only: bool = False
    ) -> ByDraw:
        """One quantity of a cell; NaN where no model has it.

        Args:
            quantity: of `QUANTITIES`.
            cell: of the grid.
            attention: or λ of an adversary.
            solved_only: models that did not solve their task are left out.
        """
        parts = self.parts.get((quantity, cell, attention))
        if parts is None:
            return np.full(1, np.nan)
        if solved_only and cell in self.solved:
            parts = parts * self.solved[cell][:, :, None, None]
        above, below = parts.sum((1, 2)).T
        with np.errstate(invalid="ignore", divide="ignore"):
            return above / np.where(below == 0, np.nan, below)

    def adversaries(self, cell: Cell) -> dict[float, Adversary]:
        """λ → the adversaries of a cell, in the order of λ."""
        return {
            float(attention): Adversary(
                jsd=self.number("far", cell, attention), tvd=self.number("tvd", cell, attention)
            )
            for quantity, adversary_cell, attention in sorted(self.parts, key=str)
            if quantity == "far" and adversary_cell == cell
        }

    def cells(self, quantity: str, **knobs: Any) -> list[Cell]:
        """The cells with a learned model that has this quantity.

        Args:
            quantity: of `QUANTITIES`.
            knobs: field of `Cell` → its value, or a tuple of several.
        """

        cells = [
            cell
            for name, cell, attention in self.parts
            if name == quantity and attention == LEARNED
        ]
        for knob, value in knobs.items():
            allowed = value if isinstance(value, tuple) else (value,)
            cells = [cell for cell in cells if getattr(cell, knob) in allowed]
        return cells
