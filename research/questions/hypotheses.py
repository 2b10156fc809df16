"""The hypotheses: what each says of which numbers, and what these numbers say of it."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import scipy
from jaxtyping import Float

from attnprobe.evidence.statistics import Interval, holm, p_value
from research.questions.numbers import LEARNED, UNIFORM, Adversary, ByDraw, Cell, Grid, over_draws

BOUNDS = {"recall2": 0.750, "recall4": 0.604}
"""The best accuracy of equal weights and an additive decoder: E[longest increasing subsequence] / m
of a permutation."""
MARGINS = {
    "Q1a": 0.02,
    "Q1b": 0.15,
    "Q1b bound": 0.02,
    "Q1c": 0.03,
    "Q2a": 0.1,
    "Q2b": 0.1,
    "Q3 leak": 0.1,
    "Q3 none": 0.02,
    "Q4a length": 0.03,
    "Q4a width": 0.02,
    "Q4b": 0.01,
}
TO_EXCEED = ("Q1b", "Q1c", "Q2a", "Q3 leak", "Q4a length", "Q4b")
"""Margins that a number has to exceed: the larger, the stricter. Of the others it is the other way
round."""
FAR = 0.4
"""Nats of JSD that an adversary moves at least, in the mean."""

HOLDS = "holds"
REFUTED = "refuted"
OPEN = "open"


LEAST = -1.0
"""Lower end of the scale of every number of the plan: a difference of shares or of distances, or a
slope of such."""
GREATEST = 1.0


@dataclass(frozen=True)
class Decision:
    """What a contrast says: its verdict, the number with its interval, and the p of the verdict."""

    verdict: str
    value: float
    low: float = np.nan
    high: float = np.nan
    p: float = np.nan


@dataclass(frozen=True)
class Contrast:
    """One number against its margin.

    Attributes:
        side: where the number should be: `above` or `below` the margin, or `within` it on both
            sides of 0.
        texts: how many it is of.
    """

    label: str
    number: ByDraw
    side: str
    margin: float
    texts: int = 0

    def decide(self) -> Decision:
        """Whether the whole interval is on the right side of the margin, or on the wrong one."""
        value, low, high = self.interval()
        if np.isnan(value) or np.isnan(low):
            return Decision(OPEN, value)
        p_margin = self.p_against(self.margin)
        p_other_side = self.p_against(-self.margin)
        if self.side == "within":
            holds = -self.margin < low and high < self.margin
            is_refuted = low > self.margin or high < -self.margin
            p = max(p_margin, p_other_side) if holds else min(p_margin, p_other_side)
        else:
            is_above = low > self.margin
            is_below = high <= self.margin
            holds = is_above if self.side == "above" else is_below
            is_refuted = is_below if self.side == "above" else is_above
            p = p_margin
        verdict = OPEN
        if holds:
            verdict = HOLDS
        elif is_refuted:
            verdict = REFUTED
        return Decision(verdict, value, low, high, p)

    def p_against(self, margin: float) -> float:
        """Two-sided p for "the number is the margin": Student's over the draws."""
        if self._draws_are_equal():
            return p_value(*self.interval(), margin)
        known = self.number[np.isfinite(self.number)]
        return float(scipy.stats.ttest_1samp(known, margin).pvalue)

    def interval(self) -> Interval:
        """The number over all draws, with its 95 % interval."""
        if self.texts and self._draws_are_equal():
            # no text differs: as many may as 0 of so many still allow (Clopper & Pearson)
            value = float(np.nanmean(self.number))
            most = 1 - 0.025 ** (1 / self.texts)
            return Interval(value, max(LEAST, value - most), min(GREATEST, value + most))
        return over_draws(self.number, LEAST, GREATEST)

    def _draws_are_equal(self) -> bool:
        """Whether several draws have one number; a single draw tells nothing of the others."""
        known = self.number[np.isfinite(self.number)]
        return len(known) > 1 and bool(np.ptp(known) < 1e-9)


@dataclass(frozen=True)
class Effects:
    """The numbers that hypotheses are about.

    Attributes:
        margins: by the names of `MARGINS`.
        solved_only: models that did not solve their task are left out.
    """

    grid: Grid
    margins: Mapping[str, float]
    solved_only: bool = False

    def contrast(self, label: str, number: ByDraw, side: str, margin: str) -> list[Contrast]:
        """A contrast with a margin of this name; none where the number is not known."""
        draws = int(np.isfinite(number).sum())
        if not draws:
            return []
        return [Contrast(label, number, side, self.margins[margin], draws * self.grid.texts)]

    def number(self, quantity: str, cell: Cell, attention: str = LEARNED) -> ByDraw:
        """One quantity of a cell."""
        return self.grid.number(quantity, cell, attention, solved_only=self.solved_only)

    def advantage(self, cell: Cell) -> ByDraw:
        """Accuracy with learned minus with equal weights."""
        return self.number("accuracy", cell) - self.number("accuracy", cell, UNIFORM)

    def mean(self, quantity: str, cells: Sequence[Cell]) -> ByDraw:
        """The mean over cells."""
        return mean_of([self.number(quantity, cell) for cell in cells])

    def mean_change(
        self, quantity: str, knob: str, before: Any, after: Any, **knobs: Any
    ) -> ByDraw:
        """How much a quantity changes with a knob, mean over the cells that agree in all others.

        Args:
            quantity: of `QUANTITIES`.
            knob: field of `Cell` that is changed.
            before: its value before.
            after: its value after.
            knobs: see `Grid.cells`.
        """
        changes = []
        for cell in self.grid.cells(quantity, **{knob: before}, **knobs):
            changed = cell._replace(**{knob: after})
            changes.append(self.number(quantity, changed) - self.number(quantity, cell))
        return mean_of(changes)

    def cost(self, cell: Cell) -> ByDraw:
        """What adversaries of a cell pay to be far: see `cost_of_distance`."""
        return cost_of_distance(self.grid.adversaries(cell))


NEVER = 1.0
"""TVD that stands for adversaries that are far at no λ: the largest that a TVD can be, so that a
cell in which they never are ranks last and is not left out (Lachin 1999)."""


def cost_of_distance(adversaries: Mapping[float, Adversary]) -> ByDraw:
    """The TVD at which the attention is `FAR` from the imitated one, between the values of λ.

    In each draw the adversaries and the imitated model itself, at (0, 0), are put in the order of
    their JSD; the least TVD at that distance or beyond is interpolated linearly at `FAR`.

    Args:
        adversaries: of one cell, by λ.

    Returns:
        `NEVER` in a draw in which none is far; NaN where a draw has no adversary.
    """
    if not adversaries:
        return np.full(1, np.nan)
    jsd = np.stack([each.jsd for each in adversaries.values()], 1)
    tvd = np.stack([each.tvd for each in adversaries.values()], 1)
    return np.array([_cost_in_draw(*curve) for curve in zip(jsd, tvd, strict=True)])


def _cost_in_draw(jsd: Float[np.ndarray, " weights"], tvd: Float[np.ndarray, " weights"]) -> float:
    known = np.isfinite(jsd) & np.isfinite(tvd)
    if not known.any():
        return np.nan
    order = np.argsort(jsd[known], kind="stable")
    distances = np.r_[0.0, jsd[known][order]]
    changes = np.r_[0.0, tvd[known][order]]
    if distances[-1] < FAR:
        return NEVER
    least_from_here_on = np.minimum.accumulate(changes[::-1])[::-1]
    return float(np.interp(FAR, distances, least_from_here_on))


def mean_of(numbers: Sequence[ByDraw]) -> ByDraw:
    """The mean of the numbers that are known, draw by draw; NaN if none is."""
    defined = [number for number in numbers if np.isfinite(number).any()]
    if not defined:
        return np.full(1, np.nan)
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
        return np.nanmean(defined, 0)  # a draw may have none of them


PLAIN = {"family": ("token", "twins", "majority5"), "width": 32, "texts": 1000, "length": 1}
"""The cells in which words and states are compared."""


def not_needed_without_a_question(effects: Effects) -> list[Contrast]:
    """Q1a."""
    contrasts = []
    for cell in effects.grid.cells("accuracy", texts=4000):
        if cell.family not in BOUNDS:
            label = " ".join(map(str, cell))
            contrasts += effects.contrast(label, effects.advantage(cell), "within", "Q1a")
    return contrasts


def needed_for_recall(effects: Effects) -> list[Contrast]:
    """Q1b."""
    contrasts = []
    families = tuple(BOUNDS)
    for cell in effects.grid.cells("accuracy", family=families, width=32, texts=1000, length=1):
        label = f"{cell.family} {cell.encoder}"
        contrasts += effects.contrast(label, effects.advantage(cell), "above", "Q1b")
        excess = effects.number("accuracy", cell, UNIFORM) - BOUNDS[cell.family]
        label += ", equal weights over their bound"
        contrasts += effects.contrast(label, excess, "below", "Q1b bound")
    return contrasts


def saves_texts(effects: Effects) -> list[Contrast]:
    """Q1c."""
    contrasts = []
    for cell in effects.grid.cells("accuracy", family="token", texts=250, length=4):
        fall = effects.advantage(cell) - effects.advantage(cell._replace(texts=4000))
        contrasts += effects.contrast(cell.encoder, fall, "above", "Q1c")
    return contrasts


def context_moves_it_off_the_word(effects: Effects) -> list[Contrast]:
    """Q2a."""
    without_context = effects.grid.cells("word", encoder="average", **PLAIN)
    with_context = effects.grid.cells("word", encoder=("lstm", "transformer2"), **PLAIN)
    lead = effects.mean("word", without_context) - effects.mean("word", with_context)
    return effects.contrast("words, average minus LSTM and transformer", lead, "above", "Q2a")


def but_not_off_the_states(effects: Effects) -> list[Contrast]:
    """Q2b."""
    contrasts = []
    encoders = dict.fromkeys(cell.encoder for cell in effects.grid.cells("state", **PLAIN))
    for encoder in encoders:
        if encoder != "average":
            change = effects.mean_change("state", "encoder", "average", encoder, **PLAIN)
            label = f"states, {encoder} minus average"
            contrasts += effects.contrast(label, change, "within", "Q2b")
    return contrasts


def transfer_follows_the_leak(effects: Effects) -> list[Contrast]:
    """Q3."""
    contrasts = []
    for quantity, cell, attention in effects.grid.parts:
        if quantity != "gain" or not attention.endswith(("_leak", "_none")):
            continue
        leaks = attention.endswith("_leak")
        side = "above" if leaks else "below"
        margin = "Q3 leak" if leaks else "Q3 none"
        label = f"{attention.replace('_', ', ').replace('none', 'no leak')}: {cell.encoder}"
        gain = effects.number("gain", cell, attention)
        contrasts += effects.contrast(label, gain, side, margin)
    return contrasts


def length_eases_and_width_does_not(effects: Effects) -> list[Contrast]:
    """Q4a: slopes of the farthest attention with the same prediction."""
    length_slope = effects.mean_change("jsd", "length", 1, 4) / 2  # two doublings
    width_slope = effects.mean_change("jsd", "width", 8, 128) / 4  # four doublings
    return [
        *effects.contrast("nats per doubling of length", length_slope, "above", "Q4a length"),
        *effects.contrast("nats per doubling of width", width_slope, "within", "Q4a width"),
    ]


def width_eases_with_training(effects: Effects) -> list[Contrast]:
    """Q4b: the fall of what distance costs; adversaries that never are far cost the most."""
    contrasts = []
    for cell in effects.grid.solved:
        wide = cell._replace(width=128)
        if cell.width == 8 and effects.grid.adversaries(cell) and effects.grid.adversaries(wide):
            fall = effects.cost(cell) - effects.cost(wide)
            label = f"{cell.family} {cell.encoder}, width 8 minus 128"
            contrasts += effects.contrast(label, fall, "above", "Q4b")
    return contrasts


@dataclass(frozen=True)
class Hypothesis:
    """What a hypothesis says, what refutes it, and its contrasts, all of which have to hold."""

    statement: str
    refuted_if: str
    contrasts: Callable[[Effects], list[Contrast]]


STATED = {
    "Q1a": Hypothesis(
        "without a question attention is not needed, given texts",
        "learned minus equal weights is beyond the margin",
        not_needed_without_a_question,
    ),
    "Q1b": Hypothesis(
        "for recall from a question it is",
        "the gain is below the margin, or equal weights are above their bound",
        needed_for_recall,
    ),
    "Q1c": Hypothesis(
        "it saves texts where evidence is rare",
        "the gain falls by no more than the margin as texts are added",
        saves_texts,
    ),
    "Q2a": Hypothesis(
        "context moves attention off the word",
        "rightness about words without context is not ahead by the margin",
        context_moves_it_off_the_word,
    ),
    "Q2b": Hypothesis(
        "but not off the states that know",
        "rightness about states differs by the margin between encoders",
        but_not_off_the_states,
    ),
    "Q3": Hypothesis(
        "transfer follows what weights leak of the label, not rightness",
        "a leaking attention does not gain, or another does",
        transfer_follows_the_leak,
    ),
    "Q4a": Hypothesis(
        "with frozen states length eases adversaries and width does not",
        "the slopes are not so",
        length_eases_and_width_does_not,
    ),
    "Q4b": Hypothesis(
        "with training width eases them",
        "the change of the prediction at that distance falls by no more than the margin",
        width_eases_with_training,
    ),
}


def contrasts(
    grid: Grid, margins: Mapping[str, float], *, solved_only: bool = False
) -> dict[str, list[Contrast]]:
    """Hypothesis → its contrasts, as far as their cells were run."""
    effects = Effects(grid, margins, solved_only)
    return {name: hypothesis.contrasts(effects) for name, hypothesis in STATED.items()}


def verdicts(hypotheses: Mapping[str, Sequence[Contrast]]) -> pd.DataFrame:
    """A row per hypothesis: its verdict, and the contrast that decides it.

    All contrasts have to hold (an intersection-union test, whose p is the largest); one that is
    refuted refutes the hypothesis. p is adjusted by Holm over the hypotheses; from 0.05 on the
    verdict is open.
    """
    rows = []
    for name, contrasts in hypotheses.items():
        row: dict[str, Any] = {
            "": name,
            "hypothesis": STATED[name].statement,
            "refuted if": STATED[name].refuted_if,
            "contrasts": len(contrasts),
            "verdict": "not run",
        }
        rows.append(row | (deciding(contrasts) if contrasts else {}))
    table = pd.DataFrame(rows)
    if "p" in table:
        table["p"] = holm(table["p"].tolist())
        is_decided = table["verdict"].isin([HOLDS, REFUTED])
        table.loc[~(table["p"] < 0.05) & is_decided, "verdict"] = OPEN
    return table


def deciding(contrasts: Sequence[Contrast]) -> dict[str, Any]:
    """The verdict of one hypothesis, and the contrast that decides it.

    That is the one which is refuted most surely, else the one which holds least surely.
    """
    decisions = [contrast.decide() for contrast in contrasts]
    refuted = [number for number, decision in enumerate(decisions) if decision.verdict == REFUTED]
    if refuted:
        place = min(refuted, key=lambda number: decisions[number].p)
        verdict = REFUTED
        p = min(1.0, decisions[place].p * len(contrasts))  # of so many that were looked at
    else:
        # one without a p is the least sure
        place = max(
            range(len(contrasts)), key=lambda number: np.nan_to_num(decisions[number].p, nan=2.0)
        )
        all_hold = all(decision.verdict == HOLDS for decision in decisions)
        verdict = HOLDS if all_hold else OPEN
        p = decisions[place].p
    contrast = contrasts[place]
    sign = {"above": ">", "below": "≤", "within": "±"}[contrast.side]
    return {
        "verdict": verdict,
        "p": p,
        "decided by": contrast.label,
        "asked": f"{sign} {contrast.margin:g}",
        "number": decisions[place].value,
        "low": decisions[place].low,
        "high": decisions[place].high,
    }
