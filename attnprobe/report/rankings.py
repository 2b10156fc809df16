"""Rankings by which a probe erases, compared: how much each removes, and which of two needs fewer items."""

from itertools import permutations

import numpy as np
import pandas as pd

from attnprobe.report.importances import facts_of, importances_in
from attnprobe.report.wide import ByMetric, facets, mean_in_columns, per_example
from attnprobe.results.statistics import rank_biserial, wilson

PROBE = "erasure"
OWN = {"random": ("random", "#222222"), "optimal": ("optimal", "#0072B2")}
"""Orders that are the probe's own and no importances, with the words and the colour for each."""


def shown(results: pd.DataFrame | ByMetric, kind: str = "removed_fraction") -> list[str]:
    """The rankings that the table has numbers of this kind of."""
    there = [name for name in importances_in(results, PROBE, f"{kind}_") if name != "random_mean"]
    first, last = ([name for name in there if name == own] for own in OWN)
    return [*first, *(name for name in there if name not in OWN), *last]


def look(results: pd.DataFrame | ByMetric, name: str) -> tuple[str, str]:
    """A ranking's words and colour."""
    facts = facts_of(name, results, PROBE)
    return OWN.get(name, (facts.title, facts.colour))


def paired(results: pd.DataFrame | ByMetric) -> pd.DataFrame:
    """Every two rankings compared example by example: who flips the decision with fewer items.

    A ranking that never flips needs more than one that does; where neither flips, nothing is compared.

    Returns:
        per panel and ordered pair: `fewer`, `tie`, `more`, `neither` (shares of all `n` examples, summing to 1),
        `low`, `high` (Wilson's 95 % interval of `fewer`), and `rank_biserial`: −1 (the second always needs fewer) to 1
        (the first does), the matched-pairs rank-biserial correlation of the numbers needed (Kerby 2014), in which a
        ranking that never flips needs one item more than there are; NaN where they never differ.
    """
    names = shown(results, "removed_count")
    rows = []
    metrics = ["content_length", *(f"removed_count_{name}" for name in names)]
    for facet in facets(per_example(results, PROBE, metrics)):
        never = facet.rows["content_length"].to_numpy() + 1
        counts = {name: facet.rows[f"removed_count_{name}"].to_numpy() for name in names}
        for first, second in permutations(names, 2):
            a, b = (np.where(np.isnan(counts[name]), never, counts[name]) for name in (first, second))
            neither = np.isnan(counts[first]) & np.isnan(counts[second])
            fewer, low, high = wilson((a < b).sum(), len(a))
            ties = float(((a == b) & ~neither).mean())
            row = {"panel": facet.title, "first": first, "second": second, "n": len(a)}
            row |= {"fewer": fewer, "low": low, "high": high, "tie": ties, "more": float((a > b).mean())}
            rows.append(row | {"neither": float(neither.mean()), "rank_biserial": rank_biserial(b - a)})
    return pd.DataFrame(rows)


def rank_rows(results: pd.DataFrame) -> pd.DataFrame:
    """How much each ranking has to remove, per data set and model, with 95 % bootstrap intervals.

    `share removed where it flips` is over the examples that this ranking flips (the paper's way: other examples in
    every row), `share removed` over all that some set flips, an order that does not flip them needing all of their
    items. `regret`: items more than the smallest set, over the examples that the ranking flips.
    """
    names = shown(results)
    rows = []
    metrics = [f"{kind}_{name}" for name in names for kind in ("removed_fraction", "regret")]
    for facet in facets(per_example(results, PROBE, ["never_flips", *metrics])) if names else []:
        never = facet.rows["never_flips"].to_numpy()
        for name in names if (never == 0).any() else []:
            fraction = facet.rows[f"removed_fraction_{name}"]
            row = {"data and model": facet.title, "ranking": look(results, name)[0], "n": int((never == 0).sum())}
            row |= {"it flips": int(fraction.notna().sum()), "share removed where it flips": fraction.mean()}
            row |= mean_in_columns("share removed", removal_share(fraction.to_numpy(), never))
            regret = facet.rows[f"regret_{name}"].to_numpy()
            rows.append(
                row | mean_in_columns("regret", np.where(never == 0, 0.0, np.nan) if name == "optimal" else regret)
            )
    return pd.DataFrame(rows)


def of_each(outline: pd.DataFrame) -> list[tuple[str, ...]]:
    """What `rank_rows` needs of each ranking by itself."""
    return [("never_flips", f"removed_fraction_{name}", f"regret_{name}") for name in shown(outline)]


def pair_rows(results: pd.DataFrame | ByMetric) -> pd.DataFrame:
    """`paired`, headed in words."""
    names = shown(results, "removed_count")
    if len(names) < 2:
        return pd.DataFrame()
    table = paired(results)
    words = {name: look(results, name)[0] for name in names}
    headings = {
        "panel": "data and model", "first": "ranking", "second": "against", "fewer": "needs fewer", "low": "low",
        "high": "high", "tie": "tie", "more": "needs more", "neither": "neither flips", "rank_biserial": "rank-biserial",
        "n": "n",
    }  # fmt: skip
    table[["first", "second"]] = table[["first", "second"]].replace(words)
    return table[list(headings)].rename(columns=headings)


def removal_share(fraction: np.ndarray, never_flips: np.ndarray) -> np.ndarray:
    """Share of the items that an order needs: all (1) where it does not flip what can be flipped, and NaN where nothing
    can be. So all orders are compared on the same examples."""
    return np.where(never_flips == 0, np.where(np.isnan(fraction), 1.0, fraction), np.nan)
