"""How many items must go before the decision flips, in which order? (Serrano & Smith 2019, section
5)"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import permutations

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from torch import Tensor

from attnprobe.core.metrics import ITEMS, SHARE, TRUTH, WEIGHT, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.readout import Readout
from attnprobe.core.settings import Count, Whole
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import Measure, as_truth, flips_of, least, mean_of, share_of
from attnprobe.evidence.reading import (
    Column,
    Drawing,
    Facts,
    Headline,
    HeatMap,
    Reading,
    Tabulation,
    facet_table,
    facts_of,
    importances_in,
)
from attnprobe.evidence.statistics import mean_in_columns, rank_biserial, wilson
from attnprobe.exact import smallest_flipping_set, smallest_overtaking_sets
from attnprobe.exact.checks import LEAST_MASS
from attnprobe.exact.erasure import decision, erase_in_order, smallest_winning_set
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

FILED = {"attention_gradient": "gradient", "gradient": "input_gradient"}
"""The published tests' gradient is by the weight."""
NEVER_FLIPS = 0
FLIPS_BY_BIAS = 1
FLIPS = 2
"""Values of `status_…`."""
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
        Scale("items", 0),
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
    """Erase items in the order of a ranking, renormalising, until the decision flips; and the
    fewest that do it.

    Rankings: the importances, highest score first; `random` (one random order); and with a linear
    decoder `optimal` (the smallest flipping set). Of an order that does not flip the decision
    before everything is erased, what it removes is NaN; where two are compared it needs more than
    any. The published code counts it as a flip at fraction 1 where only the bias decides otherwise
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
        return 20 + 2 * self.random_orders  # the noise, and its copy among the rankings

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        readout = subject.readout
        noise = draws.uniform(self.random_orders, readout.content, readout.example_id)
        nothing = readout.unattended  # by the decoder's bias alone, with everything erased
        never = torch.zeros_like(readout.content[:, 0])
        length = readout.content.sum(-1)
        by_bias = never if nothing is None else nothing.argmax(-1) != decision(readout)
        optimal = None
        counts: dict[str, Tensor] = {}
        if readout.position_logits is not None:
            smallest = smallest_flipping_set(
                readout.attention, readout.position_logits, readout.content
            )
            counts["optimal"] = optimal = smallest.size
            mass = torch.where(smallest.members, readout.attention, 0).sum(-1)
            yield from _removed("optimal", optimal, mass, by_bias, never, length)
            yield Measurement("never_flips", optimal < 0)
            there = readout.content & (optimal > 0).unsqueeze(-1)
            yield Measurement("smallest_set", smallest.members.double(), positions(there))
        # the random orders are this probe's own
        scores = {
            self.label(name): values
            for name, values in self.scores(subject).items()
            if name != "random"
        }
        orders = [*(values.nan_to_num(nan=0)[None] for values in scores.values()), noise]
        erased = erase_in_order(readout, torch.cat(orders))
        for number, name in enumerate([*scores, "random"]):
            counts[name] = erased.count[number]
            unknown = undefined_in(scores[name], readout.content) if name in scores else never
            yield from _removed(name, counts[name], erased.mass[number], by_bias, unknown, length)
            if optimal is not None:
                regret = (counts[name] - optimal).double()
                yield Measurement(
                    f"regret_{name}", regret.where((counts[name] > 0) & ~unknown, torch.nan)
                )
        random = erased.count[len(scores) :]
        times = (random > 0).sum(0)
        total = torch.where(random > 0, random, 0).sum(0).double() / length
        yield Measurement(
            "removed_fraction_random_mean", total / torch.where(times > 0, times, torch.nan)
        )
        yield Measurement("flip_share_random", times.double() / len(random))
        if nothing is not None:
            yield Measurement("flip_by_bias", by_bias)
        for first, second in PAIRS:
            if first in counts and second in counts:
                a = counts[first]
                b = counts[second]
                yield Measurement(f"fewer_{first}_than_{second}", (a > 0) & ((b < 0) | (a < b)))
        if optimal is not None:
            yield from _towards_each_class(readout, self.nodes if self.wins else None)
        yield from self.notes(subject)


def _removed(
    name: str, count: Tensor, mass: Tensor, by_bias: Tensor, undefined: Tensor, length: Tensor
) -> Iterator[Measurement]:
    flips = (count > 0) & ~undefined
    number = torch.where(flips, count.double(), torch.nan)
    yield Measurement(f"removed_count_{name}", number)
    yield Measurement(f"removed_fraction_{name}", number / length)
    yield Measurement(f"removed_mass_{name}", torch.where(flips, mass, torch.nan))
    status = torch.where(flips, FLIPS, torch.where(by_bias, FLIPS_BY_BIAS, NEVER_FLIPS)).double()
    yield Measurement(f"status_{name}", torch.where(undefined, torch.nan, status))


def _towards_each_class(readout: Readout, nodes: int | None) -> Iterator[Measurement]:
    """The fewest items after which each other class is ahead of the decision and, given `nodes`, of
    every class."""
    logits = readout.position_logits
    attention = readout.attention
    assert logits is not None
    sets = smallest_overtaking_sets(attention, logits, readout.content)
    classes = torch.arange(logits.shape[-1], device=logits.device)
    step = torch.where(classes == sets.decision.unsqueeze(-1), torch.nan, classes.double())
    yield Measurement(
        "overtake_size", torch.where(sets.size > 0, sets.size.double(), torch.nan), step
    )
    if nodes is None:
        return
    size, bound, exact = torch.full(
        (3, *sets.size.shape), torch.nan, dtype=torch.float64, device=logits.device
    )
    weighted = (attention.unsqueeze(-1) * logits).cpu().numpy()
    plain = logits.cpu().numpy()
    content = readout.content.cpu().numpy()
    for row, chosen in enumerate(sets.decision.tolist()):
        items = weighted[row][content[row]].T
        scores = plain[row][content[row]].T
        for rival in range(len(items)):
            if rival == chosen:
                continue
            others = [other for other in range(len(items)) if other != rival]
            least = LEAST_MASS * np.abs(scores[rival] - scores[others]).max(1)
            smallest = smallest_winning_set(items[rival] - items[others], least=least, nodes=nodes)
            size[row, rival] = smallest.size if smallest.size >= 0 else torch.nan
            bound[row, rival] = smallest.bound if smallest.bound >= 0 else torch.nan
            exact[row, rival] = smallest.size == smallest.bound
    yield Measurement("wins_size", size, step)
    yield Measurement("wins_bound", bound, step)
    yield Measurement("wins_exact", exact, step)


OWN = {"random": Facts("random", INK), "optimal": Facts("optimal", OPTIMUM)}
"""Orders that are the probe's own and no importances."""


def looks_in(results: pd.DataFrame, kind: str = "removed_fraction") -> dict[str, Facts]:
    """The rankings that the table has numbers of this kind of, random first and optimal last."""
    names = [
        name for name in importances_in(results, "erasure", f"{kind}_") if name != "random_mean"
    ]
    names.sort(key=lambda name: (name == "optimal") - (name == "random"))
    return {name: OWN.get(name, facts_of(name, results, "erasure")) for name in names}


def pair_table(results: pd.DataFrame) -> pd.DataFrame:
    """Every two rankings compared example by example, in shares of all `n` examples: the first
    `needs fewer` (with Wilson's 95 % interval), `tie`, `needs more`, `neither flips`; and the
    matched-pairs `rank-biserial` correlation of the numbers needed (Kerby 2014), 1 where the first
    always needs fewer. A ranking that never flips needs one more than there are."""
    looks = looks_in(results, "removed_count")

    def lines(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        counts = {name: rows[f"removed_count_{name}"].to_numpy() for name in looks}
        never = rows["content_length"].to_numpy() + 1
        for first, second in permutations(looks, 2):
            a, b = (
                np.where(np.isnan(counts[name]), never, counts[name]) for name in (first, second)
            )
            neither = np.isnan(counts[first]) & np.isnan(counts[second])
            fewer, low, high = wilson((a < b).sum(), len(a))
            ties = float(((a == b) & ~neither).mean())
            yield {
                "ranking": looks[first].title,
                "against": looks[second].title,
                "needs fewer": fewer,
                "low": low,
                "high": high,
                "tie": ties,
                "needs more": float((a > b).mean()),
                "neither flips": float(neither.mean()),
                "rank-biserial": rank_biserial(b - a),
                "n": len(a),
            }

    metrics = ["content_length", *(f"removed_count_{name}" for name in looks)]
    return facet_table(results, "erasure", metrics if len(looks) > 1 else [], lines)


def _rank_table(results: pd.DataFrame) -> pd.DataFrame:
    # `share removed where it flips` is over the examples that this ranking flips (the paper's way:
    # other examples in every row), `share removed` over all that some set flips; `regret` over the
    # examples that the ranking flips
    looks = looks_in(results)

    def lines(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        never = rows["never_flips"].to_numpy()
        for name in looks if (never == 0).any() else ():
            fraction = rows[f"removed_fraction_{name}"]
            regret = rows[f"regret_{name}"].to_numpy()
            if name == "optimal":
                regret = np.where(never == 0, 0.0, np.nan)
            yield {
                "ranking": looks[name].title,
                "n": int((never == 0).sum()),
                "it flips": int(fraction.notna().sum()),
                "share removed where it flips": fraction.mean(),
                **mean_in_columns("share removed", removal_share(fraction.to_numpy(), never), 0, 1),
                **mean_in_columns("regret", regret, 0),
            }

    metrics = [
        "never_flips",
        *(f"{kind}_{name}" for name in looks for kind in ("removed_fraction", "regret")),
    ]
    return facet_table(results, "erasure", metrics if looks else [], lines)


def removal_share(fraction: np.ndarray, never_flips: np.ndarray) -> np.ndarray:
    """Share of the items that an order needs: all (1) where it does not flip what can be flipped,
    and NaN where nothing can be. So all orders are compared on the same examples."""
    return np.where(never_flips == 0, np.where(np.isnan(fraction), 1.0, fraction), np.nan)


def boxes(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Share of the items erased until the decision flips, by ranking. Left boxes: the examples that
    this ranking flips (the paper's). Right boxes: those that all rankings flip but the control,
    which takes the lowest attention first. Quartiles, median, whiskers from the 5th to the 95th
    percentile; below, how many examples each left box has.

    Serrano & Smith's figures 5 and 6.
    """
    looks = looks_in(results)
    metrics = [f"removed_fraction_{name}" for name in looks]
    figure, panels = facet_grid(results, "erasure", metrics, panel_height=2.2, columns=2)
    for panel, facet in panels:
        columns = {name: facet.rows[f"removed_fraction_{name}"].to_numpy() for name in looks}
        common = ~np.logical_or.reduce(
            [np.isnan(columns[name]) for name in looks if name != "ascending"]
        )
        for at, (name, values) in enumerate(columns.items()):
            box(panel, values, at - 0.18, 0.3, looks[name].colour)
            box(panel, values[common], at + 0.18, 0.3, FAINT)
            count = np.count_nonzero(~np.isnan(values))
            panel.annotate(
                f"{count:,}",
                (at, -0.055),
                ha="center",
                va="center",
                fontsize=NOTE_SIZE,
                color=FAINT,
            )
        panel.set_ylim(-0.1, 1.02)
        panel.set_xlim(-0.6, len(looks) - 0.4)
        panel.set_xticks(
            range(len(looks)), [one.title for one in looks.values()], rotation=35, ha="right"
        )
        title(panel, f"{facet.title} · all: n = {np.count_nonzero(common):,}")
    handles = [
        Patch(facecolor="white", edgecolor=INK, label="examples that this ranking flips"),
        Patch(facecolor="white", edgecolor=FAINT, label="examples that all of them flip"),
    ]
    around(figure, y="share of items erased at the flip", handles=handles)
    return figure


def regret(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Share of the examples that can flip which a ranking flips with at most x items more than the
    smallest set."""
    looks = looks_in(results, "regret")
    metrics = [f"regret_{name}" for name in looks]
    figure, panels = facet_grid(results, "erasure", ["never_flips", *metrics], panel_height=1.9)
    most = max(
        [3, *(int(one) for _, facet in panels for one in facet.rows[metrics].max().dropna())]
    )
    x = np.arange(most + 1)
    ticks = [tick for tick in (0, 1, 3, 10, 30, 100, 300, 1000) if tick <= most]
    for panel, facet in panels:
        can_flip = facet.rows[facet.rows["never_flips"] == 0]
        for name, look in looks.items():
            known = np.sort(can_flip[f"regret_{name}"].dropna().to_numpy())
            share = np.searchsorted(known, x, side="right") / max(1, len(can_flip))
            panel.step(x + 1, share, where="post", color=look.colour, lw=1.0)
        panel.set_xscale("log")
        panel.set_xticks([tick + 1 for tick in ticks], [str(tick) for tick in ticks])
        panel.set_xticks([], minor=True)
        panel.set_ylim(0, 1.02)
        title(panel, counted(facet.title, len(can_flip)))
    handles = [Line2D([], [], color=one.colour, label=one.title) for one in looks.values()]
    around(
        figure,
        x="items more than the smallest flipping set",
        y="share of examples",
        handles=handles,
    )
    return figure


def pairs(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """In how many percent of the examples the row's ranking flips the decision with fewer items
    than the column's."""
    words = [one.title for one in looks_in(results, "removed_count").values()]
    panels = list(pair_table(results).groupby("data and model", sort=False))
    figure, axes = grid(len(panels), panel_height=2.3, columns=2)
    for panel, (name, rows) in zip(axes, panels, strict=True):
        shares = np.full((len(words), len(words)), np.nan)
        shares[~np.eye(len(words), dtype=bool)] = rows[
            "needs fewer"
        ]  # the table has them in this order
        cells(
            panel,
            shares,
            lambda share: f"{100 * share:.0f}",
            size=6,
            cmap="Blues",
            vmin=0,
            vmax=1.3,
        )
        panel.set_xticks(range(len(words)), words, rotation=35, ha="right")
        panel.set_yticks(range(len(words)), words)
        title(panel, counted(str(name), int(rows["n"].iloc[0])), 1.5 * 72)
    around(figure, x="… than this one", y="this ranking needs fewer items …")
    return figure


def _needs_more(first: str, second: str) -> Measure:
    # every example has a random order of its own, so the luck of the draw is within the interval
    return mean_of(
        f"removed_fraction_{first}",
        f"removed_fraction_{second}",
        "never_flips",
        value=lambda a, b, never: removal_share(a, never) - removal_share(b, never),
        ends=(-1, 1),
    )


def _fewer(attention: np.ndarray, gradient: np.ndarray) -> np.ndarray:
    # ties count for neither; an order that never flips needs more than any; NaN where neither flips
    a, b = (np.where(np.isnan(count), np.inf, count) for count in (attention, gradient))
    return np.where(np.isinf(a) & np.isinf(b), np.nan, (a < b).astype(float) - (a > b))


def _ahead_of_midpoint(*fractions: np.ndarray) -> np.ndarray:
    *orders, never_flips = fractions
    own, worst, best = (removal_share(fraction, never_flips) for fraction in orders)
    return (worst + best) / 2 - own


SHARES = (
    "difference of the shares of the items removed, mean of the examples that can flip, −1 to 1"
)
claim = partial(Claim, criterion="erasure", level="state")
CLAIMS = (
    claim(
        name="attention_beats_random",
        statement="A random order needs more items than attention's until the decision flips",
        source=SOURCE,
        measure=_needs_more("random", "attention"),
        quantity=SHARES,
        speaks="for",
        smallest=0.02,
    ),
    # Above 0 would be no test: nothing needs fewer than the optimum. The middle is where "it finds
    # the items that matter" and "it hardly does" are equally far off.
    claim(
        name="attention_closer_to_optimal_than_to_random",
        statement="Attention's order is closer to the smallest set than to a random order",
        source=f"{SOURCE}; scale as in Edin et al. 2025",
        measure=mean_of(
            "removed_fraction_attention",
            "removed_fraction_random",
            "removed_fraction_optimal",
            "never_flips",
            value=_ahead_of_midpoint,
            ends=(-1, 1),
        ),
        quantity=(
            "the middle of random and optimal minus the share of the items removed by attention, "
            "mean of the examples"
        ),
        speaks="for",
        smallest=0.02,
    ),
    # 0 where the order does not flip what the smallest set flips
    claim(
        name="attention_needs_no_more_than_the_optimum",
        statement="For most examples attention's order needs no more items than the smallest set",
        source=f"{SOURCE}; the optimum is attnprobe's",
        measure=share_of(
            "regret_attention",
            "never_flips",
            value=lambda regret, never_flips: np.where(never_flips == 0, regret < 1, np.nan),
        ),
        quantity=(
            "share of the examples that can flip with a regret of no item; more than half is "
            "asked for"
        ),
        threshold=0.5,
        speaks="for",
    ),
    claim(
        name="attention_beats_gradient",
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
    claim(
        name="random_is_worst",
        statement=(
            "A random order needs more items than attention, gradient and gradient × attention "
            "each do"
        ),
        source=SOURCE,
        quantity=f"the least of three: {SHARES}",
        measure=least(
            *(
                _needs_more("random", name)
                for name in ("attention", "gradient", "gradient_attention")
            )
        ),
    ),
    claim(
        name="gradient_attention_is_best",
        statement=(
            "Gradient × attention needs fewer items than attention, gradient and a random order "
            "each do"
        ),
        source=SOURCE,
        quantity=f"the least of three: {SHARES}",
        measure=least(
            *(
                _needs_more(name, "gradient_attention")
                for name in ("attention", "gradient", "random")
            )
        ),
    ),
)


def _pair_headlines(results: pd.DataFrame) -> tuple[Headline, ...]:
    headlines = []
    for pair in importances_in(results, "erasure", "fewer_"):
        names = pair.split("_than_")
        first, second = (
            OWN.get(name, facts_of(name, results, "erasure")).ascii_title for name in names
        )
        headlines.append(
            Headline(
                f"fewer_{pair}", f"{first} needs fewer than {second}", published=f"fewer_{pair}"
            )
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
    maps=(HeatMap("smallest_set", "Smallest flipping set", "1 where the position belongs to it"),),
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
            _rank_table,
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
            "erasure_regret", regret, ("never_flips", "regret_attention"), optional=("regret_*",)
        ),
        Drawing(
            "erasure_pairs",
            pairs,
            ("removed_count_attention", "content_length"),
            optional=("removed_count_*",),
        ),
    ),
)
