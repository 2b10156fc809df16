"""Erasing in a ranking's order until the decision flips (Serrano & Smith 2019, section 5)"""

import numpy as np
import pandas as pd

from attnprobe.report.claims import Claim
from attnprobe.report.evidence import Measure, flips_of, least, mean_of, share_of
from attnprobe.report.figures.erasure import boxes, pairs, regret
from attnprobe.report.importances import importances_in
from attnprobe.report.rankings import PROBE, look, of_each, pair_rows, rank_rows, removal_share
from attnprobe.report.reading import Column, Drawing, Headline, HeatMap, Reading, Tabulation

NEEDED = ("removed_fraction_attention", "removed_fraction_random")


def with_bias(status: np.ndarray) -> np.ndarray:
    """1 where the order flips the decision as the published code counts it: the bias alone counts too."""
    return np.where(np.isnan(status), np.nan, status >= 1)


SOURCE = "Serrano & Smith 2019, section 5"


def needs_more(first: str, second: str) -> Measure:
    """A measure: mean difference of the shares of the items that two orders need. Every example has a random order of
    its own, so the luck of the draw is within the interval."""
    return mean_of(
        f"removed_fraction_{first}", f"removed_fraction_{second}", "never_flips",
        value=lambda a, b, never: removal_share(a, never) - removal_share(b, never),
    )  # fmt: skip


def win_rate(first: str, second: str) -> Measure:
    """A measure: of the examples that one of two orders flips, the share that the first flips with fewer items minus the
    share that the second does. Ties count for neither; an order that never flips needs more than any."""

    def compared(*counts: np.ndarray) -> np.ndarray:
        a, b = (np.where(np.isnan(count), np.inf, count) for count in counts)
        return np.where(np.isinf(a) & np.isinf(b), np.nan, (a < b).astype(float) - (a > b))

    return flips_of(f"removed_count_{first}", f"removed_count_{second}", value=compared)


def ahead_of_midpoint(
    attention: np.ndarray, random: np.ndarray, optimal: np.ndarray, never_flips: np.ndarray
) -> np.ndarray:
    """How much less attention's order needs than the middle between a random order and the optimum."""
    own, worst, best = (removal_share(fraction, never_flips) for fraction in (attention, random, optimal))
    return (worst + best) / 2 - own


def as_the_optimum(regret: np.ndarray, never_flips: np.ndarray) -> np.ndarray:
    """1 where an order needs no more items than the smallest set; 0 where it does not flip what that set flips."""
    return np.where(never_flips == 0, regret < 1, np.nan)


SHARES = "difference of the shares of the items removed, mean of the examples that can flip, −1 to 1"
CLAIMS = (
    Claim(
        name="attention_beats_random",
        criterion="erasure",
        statement="A random order needs more items than attention's until the decision flips",
        source=SOURCE,
        measure=needs_more("random", "attention"),
        quantity=SHARES,
        speaks="for",
        level="state",
        smallest=0.02,
    ),
    # Above 0 would be no test: nothing needs fewer than the optimum. The middle is where "it finds the items that matter"
    # and "it hardly does" are equally far off.
    Claim(
        name="attention_closer_to_optimal_than_to_random",
        criterion="erasure",
        statement="Attention's order is closer to the smallest set than to a random order",
        source=f"{SOURCE}; scale as in Edin et al. 2025",
        measure=mean_of(
            "removed_fraction_attention", "removed_fraction_random", "removed_fraction_optimal", "never_flips",
            value=ahead_of_midpoint,
        ),
        quantity="the middle of random and optimal minus the share of the items removed by attention, mean of the examples",
        speaks="for",
        level="state",
        smallest=0.02,
    ),
    Claim(
        name="attention_needs_no_more_than_the_optimum",
        criterion="erasure",
        statement="For most examples attention's order needs no more items than the smallest set",
        source=f"{SOURCE}; the optimum is attnprobe's",
        measure=share_of("regret_attention", "never_flips", value=as_the_optimum),
        quantity="share of the examples that can flip with a regret of no item; more than half is asked for",
        threshold=0.5,
        speaks="for",
        level="state",
    ),
    Claim(
        name="attention_beats_gradient",
        criterion="erasure",
        statement="Attention's order needs fewer items than the gradient's more often than the other way round",
        source=SOURCE,
        measure=win_rate("attention", "gradient"),
        quantity="difference of the shares of the examples that either flips, paired, ties counted for neither, −1 to 1",
        speaks="for",
        level="state",
        smallest=0.02,
    ),
    # What the paper finds of the other orders says nothing of attention: the two below speak neither way.
    Claim(
        name="random_is_worst",
        criterion="erasure",
        statement="A random order needs more items than attention, gradient and gradient × attention each do",
        source=SOURCE,
        measure=least(*(needs_more("random", name) for name in ("attention", "gradient", "gradient_attention"))),
        quantity=f"the least of three: {SHARES}",
        level="state",
    ),
    Claim(
        name="gradient_attention_is_best",
        criterion="erasure",
        statement="Gradient × attention needs fewer items than attention, gradient and a random order each do",
        source=SOURCE,
        measure=least(*(needs_more(name, "gradient_attention") for name in ("attention", "gradient", "random"))),
        quantity=f"the least of three: {SHARES}",
        level="state",
    ),
)  # fmt: skip


def of_importance(name: str, title: str) -> tuple[Headline, ...]:
    """The numbers of one ranking."""
    return (
        Headline(f"removed_fraction_{name}", f"share removed: {title}"),
        Headline(
            f"status_{name}", "  share that flips, bias alone counted", name=f"flips_with_bias_{name}",
            transform=with_bias,
        ),
        Headline(f"regret_{name}", "  items more than the optimum"),
    )  # fmt: skip


def compared(results: pd.DataFrame) -> tuple[Headline, ...]:
    """Which of two rankings needs fewer items, for the pairs that the table has."""
    pairs_there = [name.split("_than_") for name in importances_in(results, PROBE, "fewer_")]
    words = {name: look(results, name)[0].replace("×", "x") for pair in pairs_there for name in pair}
    return tuple(
        Headline(f"fewer_{first}_than_{second}", f"{words[first]} needs fewer than {words[second]}",
                 published=f"fewer_{first}_than_{second}")
        for first, second in pairs_there
    )  # fmt: skip


READING = Reading(
    probe=PROBE,
    of_importance=of_importance,
    mark="status_",
    title="Erasing in order: how many items until the decision flips?",
    about=(
        "Items (words, in the hierarchical models sentences) are erased in the order of a ranking, the rest renormalised "
        "after each, until the decision flips; the number is the share of the items that had to go, 0 to 1, small for a "
        "ranking that knows what the decision rests on. Beside every ranking is the smallest set that flips the decision "
        "at all, found exactly; regret is how many items more a ranking needs. Decisions that no set flips are counted "
        "apart. Flips are coarse, an attended state with half of its weights erased is unlike what the decoder was trained "
        "on, and with a contextual encoder an item's state also tells of its neighbours."
    ),
    claims=CLAIMS,
    order=60,
    maps=(HeatMap("smallest_set", "Smallest flipping set", "1 where the position belongs to it"),),
    columns=(
        Column("removed_count_optimal", "smallest flipping set, positions", 0),
        Column("removed_count_attention", "erased until the flip, by attention", 0),
        Column("never_flips", "no set flips it (proved, up to rounding)", sorts=False, truth=True),
    ),
    headlines=(
        Headline("never_flips", "share that no set flips (proved, up to rounding)"),
        Headline("flip_by_bias", "share that the bias alone decides otherwise"),
    ),
    closing=compared,
    tables=(
        Tabulation(
            "erasure_rankings",
            "Share of the items (0 to 1) that each ranking removes until the decision flips, over the examples that it "
            "flips, and over all n that some set flips (an order that does not flip one needs all of its items); regret: "
            "items more than the smallest flipping set. Means with 95 % bootstrap intervals over the examples "
            "(Serrano & Smith 2019, section 5).",
            rank_rows,
            parts=of_each,
        ),
        Tabulation(
            "erasure_pairs",
            "Two rankings compared example by example: share of all examples in which the first needs fewer items (with "
            "Wilson's 95 % interval), as many, more, and in which neither flips the decision; matched-pairs rank-biserial "
            "correlation, 1 where the first always needs fewer.",
            pair_rows,
            by_metric=True,
        ),
    ),
    drawings=(
        Drawing("erasure_boxes", boxes, tuple((PROBE, metric) for metric in NEEDED), by_metric=True),
        Drawing("erasure_regret", regret, ((PROBE, "never_flips"), (PROBE, "regret_attention")), by_metric=True),
        Drawing(
            "erasure_pairs", pairs, ((PROBE, "removed_count_attention"), (PROBE, "content_length")), by_metric=True
        ),
    ),
)  # fmt: skip
