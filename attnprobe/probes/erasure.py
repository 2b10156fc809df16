"""How many items must go before the decision flips, in which order?

Serrano & Smith 2019, section 5.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, permutations
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from torch import Tensor

from attnprobe.core.metrics import ITEMS, SHARE, TRUTH, WEIGHT, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.readout import Readout
from attnprobe.core.settings import Count, Whole
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import (
    Evidence,
    Measure,
    as_truth,
    by_run,
    flips_of,
    least,
    mean_of,
    share_of,
)
from attnprobe.evidence.statistics import rank_biserial
from attnprobe.exact import smallest_flipping_set, smallest_overtaking_sets
from attnprobe.exact.checks import LEAST_MASS
from attnprobe.exact.erasure import (
    WinningSet,
    decision,
    erase_in_order,
    smallest_winning_set,
)
from attnprobe.exact.flipping import FlippingSet, OvertakingSets
from attnprobe.plots.grid import NOTE_SIZE, around, cells, counted, facet_grid, grid, title
from attnprobe.plots.style import FAINT, INK, OPTIMUM, box
from attnprobe.probes.base import (
    DESCRIPTION,
    LINEAR,
    Measurement,
    Note,
    RankingProbe,
    Subject,
    positions,
    undefined_in,
)
from attnprobe.readings.importances import Facts, facts_of, importances_in
from attnprobe.readings.means import facet_table, mean_in_columns, texts_with
from attnprobe.readings.reading import Column, Drawing, Headline, HeatMap, Reading, Tabulation
from attnprobe.results.pivot import Facet

REGRET = Scale("items", 0)
FILED = {"attention_gradient": "gradient", "gradient": "input_gradient"}
"""The gradient of the published tests is that by the attention weight."""
NEVER_FLIPS = 0
FLIPS_BY_BIAS = 1
FLIPS = 2
"""Values of `status_…`: no erasure flips the decision, erasing everything does, less does."""
LINE_STYLES = ("-", "--", "-.", ":")
"""Of the rankings in turn: of two on the same course both are seen."""
PAIRS = (
    ("gradient", "attention"),
    ("gradient_attention", "attention"),
    ("gradient_attention", "gradient"),
    ("contribution", "gradient_attention"),
    ("attention", "random"),
)
"""Rankings that are compared example by example (the first against the second)."""

SOURCE = "Serrano & Smith 2019, section 5"
WINS = "only with `probe.erasure.wins=true`"
OPTIMAL = "the smallest set of all"
STATUS = Scale("code", 0, 2)
METRICS = (
    Metric(
        "removed_count_{ranking}",
        ITEMS,
        "erased until the decision flips; NaN where it does not",
        higher_is_better=False,
        source=SOURCE,
    ),
    Metric("removed_count_optimal", ITEMS, OPTIMAL, only=LINEAR),
    Metric(
        "removed_fraction_{ranking}",
        SHARE,
        "the same as a share of the content",
        higher_is_better=False,
        source=SOURCE,
    ),
    Metric("removed_fraction_optimal", SHARE, OPTIMAL, only=LINEAR),
    Metric("removed_mass_{ranking}", WEIGHT, "attention that was on them"),
    Metric("removed_mass_optimal", WEIGHT, OPTIMAL, only=LINEAR),
    Metric(
        "status_{ranking}",
        STATUS,
        "2 flips; 1 only the decoder's bias does, with everything erased; 0 never",
    ),
    Metric("status_optimal", STATUS, OPTIMAL, only=LINEAR),
    Metric(
        "regret_{ranking}",
        REGRET,
        "count − count of `optimal`",
        higher_is_better=False,
        only=LINEAR,
    ),
    Metric(
        "never_flips",
        TRUTH,
        "proved, up to rounding: no set of items flips the decision",
        only=LINEAR,
    ),
    Metric(
        "smallest_set",
        TRUTH,
        "belongs to the smallest set; no rows where no set flips",
        step="position",
        only=LINEAR,
    ),
    Metric("flip_by_bias", TRUTH, "the bias alone decides otherwise"),
    Metric("removed_fraction_random_mean", SHARE, "over the random orders that flip"),
    Metric("flip_share_random", SHARE, "random orders that flip"),
    Metric("fewer_{ranking}_than_{other}", TRUTH, "the first flips with fewer items; ties are 0"),
    Metric(
        "overtake_size",
        ITEMS,
        "fewest after which this class is ahead of the decision; NaN never",
        step="class",
        only=LINEAR,
    ),
    Metric("wins_size", ITEMS, "after which it is ahead of every class", step="class", only=WINS),
    Metric("wins_bound", ITEMS, "certainly needed", step="class", only=WINS),
    Metric("wins_exact", TRUTH, "the two are proved to be the same", step="class", only=WINS),
    *DESCRIPTION,
)


@dataclass
class Erasure(RankingProbe):
    """Erase items in the order of a ranking, renormalising, until the decision flips.

    Rankings: the importances, highest score first; `random` (one random order); and with a linear
    decoder `optimal` (the smallest flipping set). Where an order does not flip the decision before
    everything is erased, what it removes is NaN; where two are compared it needs more than any. The
    published code counts it as a flip at fraction 1 where only the bias decides otherwise
    (`status_…` 1).

    Attributes:
        random_orders: how many random orders, 1 or more (paper: 5).
        wins: also find the smallest set after which each other class wins outright.
        nodes: branch-and-bound nodes per class and example before bounds are given instead.
    """

    name = "erasure"
    metrics = METRICS
    one_decision = True
    published = (
        "attention",
        "ascending",
        "attention_gradient",
        "gradient_attention",
        "value_norm",
        "contribution",
    )
    filed = FILED
    random_orders: Count = 5
    wins: bool = False
    nodes: Whole = 1000

    @property
    def peak_buffers(self) -> int:
        """The noise of the random orders, and its copy among the rankings."""
        return 20 + 2 * self.random_orders

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield what each ranking removes, how the rankings compare, and what each class needs."""
        readout = subject.readout
        bias_flips = flips_by_bias(readout)
        removals: dict[str, Removal] = {}
        if readout.position_logits is not None:
            smallest = smallest_flipping_set(
                readout.attention, readout.position_logits, readout.content
            )
            mass = torch.where(smallest.members, readout.attention, 0).sum(-1)
            removals["optimal"] = Removal(smallest.size, mass)
            yield from removal_measurements("optimal", removals["optimal"], readout, bias_flips)
            yield from smallest_measurements(smallest, readout)

        # the random orders are this probe's own
        scores = {
            self.label(name): values
            for name, values in self.scores(subject).items()
            if name != "random"
        }
        noise = draws.uniform(self.random_orders, readout.content, readout.example_id)
        orders = [values.nan_to_num(nan=0).unsqueeze(0) for values in scores.values()]
        erased = erase_in_order(readout, torch.cat([*orders, noise]))
        for number, name in enumerate([*scores, "random"]):
            removal = Removal(erased.count[number], erased.mass[number])
            if name in scores:
                removal = replace(removal, undefined=undefined_in(scores[name], readout.content))
            removals[name] = removal
            yield from removal_measurements(name, removal, readout, bias_flips)
            if "optimal" in removals:
                regret = (removal.count - removals["optimal"].count).double()
                yield Measurement(f"regret_{name}", regret.where(removal.flips, torch.nan))

        yield from random_measurements(erased.count[len(scores) :], readout)
        if readout.unattended is not None:
            yield Measurement("flip_by_bias", bias_flips)
        yield from pair_measurements(removals)
        if readout.position_logits is not None:
            yield from class_measurements(readout, self.nodes if self.wins else None)
        yield from self.notes(subject)


@dataclass(frozen=True)
class Removal:
    """How far one ranking had to be followed in each text.

    Attributes:
        count: items erased until the decision flips; −1 where it does not.
        mass: attention that was on them, 0 to 1.
        undefined: texts in which the ranking has no score for an item; None: no text.
    """

    count: Int[Tensor, "batch"]
    mass: Float[Tensor, "batch"]
    undefined: Bool[Tensor, "batch"] | None = None

    @property
    def flips(self) -> Bool[Tensor, "batch"]:
        """The texts whose decision it flips."""
        flips = self.count > 0
        return flips if self.undefined is None else flips & ~self.undefined

    def needs_fewer_than(self, rival: "Removal") -> Bool[Tensor, "batch"]:
        """Where it flips the decision with fewer items; never flipping needs more than any."""
        return (self.count > 0) & ((rival.count < 0) | (self.count < rival.count))


def flips_by_bias(readout: Readout) -> Bool[Tensor, "batch"]:
    """The texts that the decoder's bias decides otherwise, with everything erased."""
    if readout.unattended is None:
        return torch.zeros_like(readout.content[:, 0])
    return readout.unattended.argmax(-1) != decision(readout)


def removal_measurements(
    name: str, removal: Removal, readout: Readout, bias_flips: Bool[Tensor, "batch"]
) -> Iterator[Measurement]:
    """The four metrics of one ranking."""
    flips = removal.flips
    count = torch.where(flips, removal.count.double(), torch.nan)
    yield Measurement(f"removed_count_{name}", count)
    yield Measurement(f"removed_fraction_{name}", count / readout.content.sum(-1))
    yield Measurement(f"removed_mass_{name}", torch.where(flips, removal.mass, torch.nan))

    status = torch.where(bias_flips, FLIPS_BY_BIAS, NEVER_FLIPS)
    status = torch.where(flips, FLIPS, status).double()
    if removal.undefined is not None:
        status = torch.where(removal.undefined, torch.nan, status)
    yield Measurement(f"status_{name}", status)


def smallest_measurements(smallest: FlippingSet, readout: Readout) -> Iterator[Measurement]:
    """Whether no set flips the decision, and the positions of the smallest one that does."""
    yield Measurement("never_flips", smallest.size < 0)
    step = positions(readout.content & (smallest.size > 0).unsqueeze(-1))
    yield Measurement("smallest_set", smallest.members.double(), step)


def pair_measurements(removals: Mapping[str, Removal]) -> Iterator[Measurement]:
    """Which of two rankings needs fewer items, for the `PAIRS` of which both are there."""
    for first, second in PAIRS:
        if first in removals and second in removals:
            fewer = removals[first].needs_fewer_than(removals[second])
            yield Measurement(f"fewer_{first}_than_{second}", fewer)


def random_measurements(
    counts: Int[Tensor, "orders batch"], readout: Readout
) -> Iterator[Measurement]:
    """How many of the random orders flip the decision, and the share that these remove."""
    flips = counts > 0
    flipping = flips.sum(0)
    total = torch.where(flips, counts, 0).sum(0).double() / readout.content.sum(-1)
    mean = total / torch.where(flipping > 0, flipping, torch.nan)
    yield Measurement("removed_fraction_random_mean", mean)
    yield Measurement("flip_share_random", flipping.double() / len(counts))


def class_measurements(readout: Readout, nodes: int | None) -> Iterator[Measurement]:
    """The fewest items after which each other class is ahead, with a linear decoder.

    Args:
        readout: has position logits.
        nodes: None: only until it is ahead of the decision; else also until it is ahead of every
            class, by branch and bound with this many nodes.
    """
    logits = readout.position_logits
    assert logits is not None
    sets = smallest_overtaking_sets(readout.attention, logits, readout.content)
    classes = torch.arange(logits.shape[-1], device=logits.device)
    step = torch.where(classes == sets.decision.unsqueeze(-1), torch.nan, classes.double())
    size = torch.where(sets.size > 0, sets.size.double(), torch.nan)
    yield Measurement("overtake_size", size, step)
    if nodes is not None:
        yield from win_measurements(readout, sets, step, nodes)


def win_measurements(
    readout: Readout, sets: OvertakingSets, step: Float[Tensor, "batch classes"], nodes: int
) -> Iterator[Measurement]:
    """The fewest items after which each other class is ahead of every class, or bounds of it."""
    wins = winning_sets(readout, sets.decision, nodes)
    is_known = ~wins.bound.isnan()
    yield Measurement("wins_size", torch.where(wins.size >= 0, wins.size, torch.nan), step)
    yield Measurement("wins_bound", torch.where(wins.bound >= 0, wins.bound, torch.nan), step)
    exact = (wins.size == wins.bound).double()
    yield Measurement("wins_exact", torch.where(is_known, exact, torch.nan), step)


@dataclass(frozen=True)
class WinningSets:
    """`WinningSet` of every text and class; NaN for the decision, which wins already."""

    size: Float[Tensor, "batch classes"]
    bound: Float[Tensor, "batch classes"]


def winning_sets(readout: Readout, decided: Int[Tensor, "batch"], nodes: int) -> WinningSets:
    """The smallest sets whose erasure makes each other class win, with a linear decoder.

    Args:
        readout: has position logits.
        decided: the decisions.
        nodes: branch-and-bound nodes per text and class before bounds stand as they are.
    """
    logits = readout.position_logits
    assert logits is not None
    size = torch.full_like(logits[:, 0], torch.nan, dtype=torch.float64)
    bound = size.clone()
    contributions = (readout.attention.unsqueeze(-1) * logits).cpu().numpy()
    scores = logits.cpu().numpy()
    content = readout.content.cpu().numpy()
    for row, decided_class in enumerate(decided.tolist()):
        inside = content[row]
        for rival in range(logits.shape[-1]):
            if rival == decided_class:
                continue
            smallest = _winning_set(
                contributions[row][inside].T, scores[row][inside].T, rival, nodes
            )
            size[row, rival] = smallest.size
            bound[row, rival] = smallest.bound
    return WinningSets(size, bound)


def _winning_set(
    contributions: Float[np.ndarray, "classes items"],
    logits: Float[np.ndarray, "classes items"],
    rival: int,
    nodes: int,
) -> WinningSet:
    """What must go for the rival to beat every other class, by more than rounding."""
    ahead = contributions[rival] - np.delete(contributions, rival, axis=0)
    least = LEAST_MASS * np.abs(logits[rival] - np.delete(logits, rival, axis=0)).max(1)
    return smallest_winning_set(ahead, least=least, nodes=nodes)


# Claims


def removal_share(fraction: np.ndarray, never_flips: np.ndarray) -> np.ndarray:
    """Share of the items that an order needs, on the same examples for all orders.

    All (1) where the order does not flip what can be flipped, and NaN where nothing can be.
    """
    needed = np.where(np.isnan(fraction), 1.0, fraction)
    return np.where(never_flips == 0, needed, np.nan)


def _needs_more(first: str, second: str) -> Measure:
    """Mean difference of the shares of the items that two orders need.

    Every example has a random order of its own, so the luck of the draw is within the interval.
    """
    return mean_of(
        f"removed_fraction_{first}",
        f"removed_fraction_{second}",
        "never_flips",
        value=share_difference,
        ends=(-1, 1),
    )


def share_difference(a: np.ndarray, b: np.ndarray, never_flips: np.ndarray) -> np.ndarray:
    """By how much the first order needs a larger share of the items than the second."""
    return removal_share(a, never_flips) - removal_share(b, never_flips)


def _fewer(count: np.ndarray, rival_count: np.ndarray) -> np.ndarray:
    """1 where the first needs fewer items, −1 where the second does, 0 for a tie.

    An order that never flips needs more than any; NaN where neither flips.
    """
    a = np.where(np.isnan(count), np.inf, count)
    b = np.where(np.isnan(rival_count), np.inf, rival_count)
    compared = np.where(a < b, 1.0, np.where(a > b, -1.0, 0.0))
    return np.where(np.isinf(a) & np.isinf(b), np.nan, compared)


def ahead_of_midpoint(
    attention: np.ndarray, random: np.ndarray, optimal: np.ndarray, never_flips: np.ndarray
) -> np.ndarray:
    """How much less attention's order needs than the middle of a random order and the optimum."""
    worst = removal_share(random, never_flips)
    best = removal_share(optimal, never_flips)
    return (worst + best) / 2 - removal_share(attention, never_flips)


def _as_the_optimum(regret: np.ndarray, never_flips: np.ndarray) -> np.ndarray:
    """1 where an order needs no more items than the smallest set; NaN where no set flips.

    0 where the order does not flip what the smallest set flips.
    """
    return np.where(never_flips == 0, regret < 1, np.nan)


SHARES = (
    "difference of the shares of the items removed, mean of the examples that can flip, −1 to 1"
)
CLAIMS = (
    Claim(
        name="attention_beats_random",
        criterion="erasure",
        level="state",
        statement="A random order needs more items than attention's until the decision flips",
        source=SOURCE,
        measure=_needs_more("random", "attention"),
        quantity=SHARES,
        speaks="for",
        smallest=0.02,
    ),
    # Above 0 would be no test: nothing needs fewer than the optimum. The middle is where "it finds
    # the items that matter" and "it hardly does" are equally far off.
    Claim(
        name="attention_closer_to_optimal_than_to_random",
        criterion="erasure",
        level="state",
        statement="Attention's order is closer to the smallest set than to a random order",
        source=f"{SOURCE}; scale as in Edin et al. 2025",
        measure=mean_of(
            "removed_fraction_attention",
            "removed_fraction_random",
            "removed_fraction_optimal",
            "never_flips",
            value=ahead_of_midpoint,
            ends=(-1, 1),
        ),
        quantity=(
            "the middle of random and optimal minus the share of the items removed by attention, "
            "mean of the examples"
        ),
        speaks="for",
        smallest=0.02,
    ),
    Claim(
        name="attention_needs_no_more_than_the_optimum",
        criterion="erasure",
        level="state",
        statement="For most examples attention's order needs no more items than the smallest set",
        source=f"{SOURCE}; the optimum is attnprobe's",
        measure=share_of(
            "regret_attention",
            "never_flips",
            value=_as_the_optimum,
        ),
        quantity=(
            "share of the examples that can flip with a regret of no item; more than half is "
            "asked for"
        ),
        threshold=0.5,
        speaks="for",
    ),
    Claim(
        name="attention_beats_gradient",
        criterion="erasure",
        level="state",
        statement=(
            "Attention's order needs fewer items than the gradient's more often than the other "
            "way round"
        ),
        source=SOURCE,
        measure=flips_of("removed_count_attention", "removed_count_gradient", value=_fewer),
        quantity=(
            "difference of the shares of the examples that either flips, paired, ties counted "
            "for neither, −1 to 1"
        ),
        speaks="for",
        smallest=0.02,
    ),
    # What the paper finds of the other orders says nothing of attention: the two below speak
    # neither way.
    Claim(
        name="random_is_worst",
        criterion="erasure",
        level="state",
        statement=(
            "A random order needs more items than attention, gradient and gradient × attention "
            "each do"
        ),
        source=SOURCE,
        quantity=f"the least of three: {SHARES}",
        measure=least(
            _needs_more("random", "attention"),
            _needs_more("random", "gradient"),
            _needs_more("random", "gradient_attention"),
        ),
    ),
    Claim(
        name="gradient_attention_is_best",
        criterion="erasure",
        level="state",
        statement=(
            "Gradient × attention needs fewer items than attention, gradient and a random order "
            "each do"
        ),
        source=SOURCE,
        quantity=f"the least of three: {SHARES}",
        measure=least(
            _needs_more("attention", "gradient_attention"),
            _needs_more("gradient", "gradient_attention"),
            _needs_more("random", "gradient_attention"),
        ),
    ),
)


# Tables

RANKINGS = {"random": Facts("random", INK), "optimal": Facts("optimal", OPTIMUM)}
"""Orders that are the probe's own and no importances."""


def facts_of_ranking(name: str, results: pd.DataFrame) -> Facts:
    """Title and colour of a ranking, an importance or one of the probe's own."""
    return RANKINGS.get(name, facts_of(name, results, "erasure"))


def rankings_in(results: pd.DataFrame, kind: str = "removed_fraction") -> dict[str, Facts]:
    """The rankings of which the table has numbers of this kind, random first and optimal last."""
    names = [
        name for name in importances_in(results, "erasure", f"{kind}_") if name != "random_mean"
    ]
    names.sort(key=lambda name: {"random": 0, "optimal": 2}.get(name, 1))
    return {name: facts_of_ranking(name, results) for name in names}


def pair_table(results: pd.DataFrame) -> pd.DataFrame:
    """Every two rankings compared example by example, in shares of all `n` examples.

    A ranking that never flips needs one item more than there are.

    Returns:
        A row per data set, model and pair: the first `needs fewer` (with Wilson's 95 % interval),
        `tie`, `needs more`, `neither flips`; and the matched-pairs `rank-biserial` correlation of
        the numbers needed (Kerby 2014), 1 where the first always needs fewer.
    """
    rankings = rankings_in(results, "removed_count")
    if len(rankings) < 2:
        return pd.DataFrame()
    metrics = ["content_length", *(f"removed_count_{name}" for name in rankings)]
    return facet_table(results, "erasure", metrics, partial(_pair_lines, rankings))


def _pair_lines(rankings: dict[str, Facts], rows: pd.DataFrame) -> Iterator[dict[str, object]]:
    for first, second in permutations(rankings, 2):
        yield {
            "ranking": rankings[first].title,
            "against": rankings[second].title,
            **_compared(rows, first, second),
        }


def _compared(rows: pd.DataFrame, first: str, second: str) -> dict[str, object]:
    count = rows[f"removed_count_{first}"].to_numpy()
    rival_count = rows[f"removed_count_{second}"].to_numpy()
    neither = np.isnan(count) & np.isnan(rival_count)
    more_than_any = rows["content_length"].to_numpy() + 1
    needed = np.where(np.isnan(count), more_than_any, count)
    rival_needed = np.where(np.isnan(rival_count), more_than_any, rival_count)

    fewer = Evidence.of_share(by_run(rows, needed < rival_needed))
    return {
        "needs fewer": fewer.value,
        "low": fewer.low,
        "high": fewer.high,
        "tie": float(((needed == rival_needed) & ~neither).mean()),
        "needs more": float((needed > rival_needed).mean()),
        "neither flips": float(neither.mean()),
        "rank-biserial": rank_biserial(rival_needed - needed),
        "n": fewer.n,
    }


def rank_table(results: pd.DataFrame) -> pd.DataFrame:
    """What each ranking removes, with means and 95 % bootstrap intervals.

    `share removed where it flips` is over the examples that this ranking flips (the paper's way:
    other examples in every row), `share removed` over all that some set flips; `regret` over the
    examples that the ranking flips.
    """
    rankings = rankings_in(results)
    if not rankings:
        return pd.DataFrame()
    metrics = ["never_flips"]
    for name in rankings:
        metrics += [f"removed_fraction_{name}", f"regret_{name}"]
    return facet_table(results, "erasure", metrics, partial(_rank_lines, rankings))


def _rank_lines(rankings: dict[str, Facts], rows: pd.DataFrame) -> Iterator[dict[str, object]]:
    if (rows["never_flips"] == 0).any():
        for name, facts in rankings.items():
            yield {"ranking": facts.title, **_removed(rows, name)}


def _removed(rows: pd.DataFrame, name: str) -> dict[str, object]:
    never = rows["never_flips"].to_numpy()
    fraction = rows[f"removed_fraction_{name}"]
    regret = rows[f"regret_{name}"].to_numpy()
    if name == "optimal":
        regret = np.where(never == 0, 0.0, np.nan)
    return {
        "n": texts_with(rows, np.where(never == 0, 0.0, np.nan)),
        "it flips": texts_with(rows, fraction),
        "share removed where it flips": fraction.mean(),
        **mean_in_columns("share removed", rows, removal_share(fraction.to_numpy(), never), SHARE),
        **mean_in_columns("regret", rows, regret, REGRET),
    }


# Figures


def boxes(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Share of the items erased until the decision flips, by ranking.

    Left boxes: the examples that this ranking flips (the paper's). Right boxes: those that all
    rankings flip but the control, which takes the lowest attention first. Quartiles, median,
    whiskers from the 5th to the 95th percentile; below, how many examples each left box has.

    Serrano & Smith's figures 5 and 6.
    """
    rankings = rankings_in(results)
    metrics = [f"removed_fraction_{name}" for name in rankings]
    figure, panels = facet_grid(results, "erasure", metrics, panel_height=2.2, columns=2)
    for panel, facet in panels:
        _draw_boxes(panel, facet, rankings)
    handles = [
        Patch(facecolor="white", edgecolor=INK, label="examples that this ranking flips"),
        Patch(facecolor="white", edgecolor=FAINT, label="examples that all of them flip"),
    ]
    around(figure, y="share of items erased at the flip", handles=handles)
    return figure


def _draw_boxes(panel: Axes, facet: Facet, rankings: dict[str, Facts]) -> None:
    judged = [f"removed_fraction_{name}" for name in rankings if name != "ascending"]
    common = facet.rows[judged].notna().all(axis=1).to_numpy()
    for place, (name, facts) in enumerate(rankings.items()):
        values = facet.rows[f"removed_fraction_{name}"].to_numpy()
        box(panel, values, place - 0.18, 0.3, facts.colour)
        box(panel, values[common], place + 0.18, 0.3, FAINT)
        panel.annotate(
            f"{np.count_nonzero(~np.isnan(values)):,}",
            (place, -0.055),
            ha="center",
            va="center",
            fontsize=NOTE_SIZE,
            color=FAINT,
        )
    panel.set_ylim(-0.1, 1.02)
    panel.set_xlim(-0.6, len(rankings) - 0.4)
    titles = [facts.title for facts in rankings.values()]
    panel.set_xticks(range(len(rankings)), titles, rotation=35, ha="right")
    title(panel, f"{facet.title} · all: n = {np.count_nonzero(common):,}")


def regrets(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Of the examples that can flip, the share that needs at most x items more than the optimum.

    A line per ranking; the optimum is the smallest set that flips the decision.
    """
    rankings = rankings_in(results, "regret")
    metrics = [f"regret_{name}" for name in rankings]
    figure, panels = facet_grid(results, "erasure", ["never_flips", *metrics], panel_height=1.9)
    largest = [facet.rows[metrics].max().max() for _, facet in panels]
    most = int(np.nanmax([3, *largest]))
    line_styles = dict(zip(rankings, cycle(LINE_STYLES), strict=False))
    lines: dict[str, dict[str, Any]] = {
        name: {"color": facts.colour, "ls": line_styles[name]} for name, facts in rankings.items()
    }
    for panel, facet in panels:
        _draw_regrets(panel, facet, lines, most)
    handles = [Line2D([], [], label=facts.title, **lines[name]) for name, facts in rankings.items()]
    around(
        figure,
        x="items more than the smallest flipping set",
        y="share of examples",
        handles=handles,
    )
    return figure


def _draw_regrets(
    panel: Axes, facet: Facet, lines: Mapping[str, Mapping[str, Any]], most: int
) -> None:
    """One panel.

    Args:
        panel: to draw on.
        facet: of one data set and model.
        lines: ranking → how its line looks.
        most: the largest number of items on the axis.
    """
    can_flip = facet.rows[facet.rows["never_flips"] == 0]
    x = np.arange(most + 1)
    for name, line in lines.items():
        regret = np.sort(can_flip[f"regret_{name}"].dropna().to_numpy())
        share = np.searchsorted(regret, x, side="right") / max(1, len(can_flip))
        panel.step(x + 1, share, where="post", lw=1.0, **line)
    ticks = [tick for tick in (0, 1, 3, 10, 30, 100, 300, 1000) if tick <= most]
    panel.set_xscale("log")
    panel.set_xticks([tick + 1 for tick in ticks], [str(tick) for tick in ticks])
    panel.set_xticks([], minor=True)
    panel.set_ylim(0, 1.02)
    title(panel, counted(facet.title, len(can_flip)))


def pairs(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Percent of the examples that the row's ranking flips with fewer items than the column's."""
    titles = [facts.title for facts in rankings_in(results, "removed_count").values()]
    panels = list(pair_table(results).groupby("data and model", sort=False))
    figure, axes = grid(len(panels), panel_height=2.3, columns=2)
    for panel, (name, rows) in zip(axes, panels, strict=True):
        shares = np.full((len(titles), len(titles)), np.nan)
        off_diagonal = ~np.eye(len(titles), dtype=bool)
        shares[off_diagonal] = rows["needs fewer"]  # the table has them in this order
        cells(
            panel,
            shares,
            lambda share: f"{100 * share:.0f}",
            size=6,
            cmap="Blues",
            vmin=0,
            vmax=1.3,
        )
        panel.set_xticks(range(len(titles)), titles, rotation=35, ha="right")
        panel.set_yticks(range(len(titles)), titles)
        title(panel, counted(str(name), int(rows["n"].iloc[0])), 1.5 * 72)
    around(figure, x="… than this one", y="this ranking needs fewer items …")
    return figure


def _pair_headlines(results: pd.DataFrame) -> tuple[Headline, ...]:
    headlines = []
    for ending in importances_in(results, "erasure", "fewer_"):
        first, second = ending.split("_than_")
        title = facts_of_ranking(first, results).ascii_title
        rival_title = facts_of_ranking(second, results).ascii_title
        metric = f"fewer_{ending}"
        headlines.append(
            Headline(metric, f"{title} needs fewer than {rival_title}", published=metric)
        )
    return tuple(headlines)


READING = Reading(
    probe="erasure",
    mark="status_",
    claims=CLAIMS,
    order=60,
    closing=_pair_headlines,
    of_importance=(
        Headline("removed_fraction_{importance}", "share removed: {title}"),
        Headline(
            "status_{importance}",
            "  share that flips, bias alone counted",
            name="flips_with_bias_{importance}",
            transform=as_truth(lambda status: status >= FLIPS_BY_BIAS),
            scale=TRUTH,
        ),
        Headline("regret_{importance}", "  items more than the optimum"),
    ),
    title="Erasing in order: how many items until the decision flips?",
    about=(
        "We remove words in a ranking's order and scale up the rest, until the decision changes. "
        "In the hierarchical models sentences stand for words. The fewer, the better the "
        "ranking: the number is the share that had to go, 0 to 1. Beside it is the smallest set "
        "that flips the decision at all, found exactly; regret is how many words more a ranking "
        "needs. Decisions that no set flips are counted apart. Caution: the decoder was not "
        "trained on a state with half of its weights erased. And where the encoder reads "
        "context, a state also tells of its neighbours."
    ),
    maps=(
        HeatMap(
            "smallest_set",
            "Smallest flipping set",
            "the fewest positions without whose weights the decision is another",
            is_set=True,
        ),
    ),
    columns=(
        Column("removed_count_optimal", "fewest words to erase until it flips", 0),
        Column("removed_count_attention", "words to erase until it flips, by attention", 0),
        Column(
            "never_flips", "no erasure flips it (proved, up to rounding)", sorts=False, truth=True
        ),
    ),
    headlines=(
        Headline("never_flips", "share that no set flips (proved, up to rounding)"),
        Headline("flip_by_bias", "share that the bias alone decides otherwise"),
    ),
    tables=(
        Tabulation(
            "erasure_rankings",
            "Share of the items (0 to 1) that each ranking removes until the decision flips, "
            "over the examples that it flips, and over all n that some set flips (an order that "
            "does not flip one needs all of its items); regret: items more than the smallest "
            "flipping set. Means with 95 % bootstrap intervals over the examples (Serrano & "
            "Smith 2019, section 5).",
            rank_table,
            ("never_flips", "removed_fraction_*", "regret_*"),
        ),
        Tabulation(
            "erasure_pairs",
            "Two rankings compared example by example: share of all examples in which the first "
            "needs fewer items (with Wilson's 95 % interval), as many, more, and in which "
            "neither flips the decision; matched-pairs rank-biserial correlation, 1 where the "
            "first always needs fewer.",
            pair_table,
            ("content_length", "removed_count_*"),
        ),
    ),
    drawings=(
        Drawing(
            "erasure_boxes",
            boxes,
            ("removed_fraction_attention", "removed_fraction_random"),
            optional=("removed_fraction_*",),
        ),
        Drawing(
            "erasure_regret", regrets, ("never_flips", "regret_attention"), optional=("regret_*",)
        ),
        Drawing(
            "erasure_pairs",
            pairs,
            ("removed_count_attention", "content_length"),
            optional=("removed_count_*",),
        ),
    ),
)
