"""Every subset of a short text's words: each order between its limits, each attribution compared with the Shapley values."""

import pandas as pd
from matplotlib.figure import Figure

from attnprobe.report.claims import Claim
from attnprobe.report.evidence import mean_of
from attnprobe.report.figures.grid import around, counted, grid, title
from attnprobe.report.figures.notes import note
from attnprobe.report.figures.style import FAINT
from attnprobe.report.importances import facts_of, importances_in, means_by_importance
from attnprobe.report.reading import Drawing, Headline, Reading, Tabulation

PROBE = "subsets"
MARK = "aopc_normalised_"
KINDS = {
    "aopc": "AOPC",
    "aopc_normalised": "between its limits",
    "shapley_tau": "tau with Shapley",
    "shapley_top": "same top word as Shapley",
    "shapley_share_error": "shares differ from Shapley's by",
    "shapley_error": "error against Shapley",
}


def of_importance(name: str, words: str) -> tuple[Headline, ...]:
    """The numbers of one importance."""
    return (
        Headline(f"aopc_normalised_{name}", f"AOPC between its limits (0 to 1): {words}"),
        Headline(f"shapley_tau_{name}", "  tau with the Shapley values"),
        Headline(f"shapley_top_{name}", "  same top word as the Shapley values"),
        Headline(f"shapley_share_error_{name}", "  shares differ from theirs by (0 to 1)"),
        Headline(f"shapley_error_{name}", "  error against the Shapley values"),
    )


def rows(results: pd.DataFrame) -> pd.DataFrame:
    """Every importance against the exact limits and values, per data set and model, with intervals."""
    return means_by_importance(results, PROBE, MARK, KINDS)


def limits(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Where each importance's AOPC lies between the worst (0) and the best (1) of all orders: means with 95 % bootstrap
    intervals, one panel per data set and model."""
    table = rows(results)
    panels = list(table.groupby("data and model", sort=False))
    titles = list(dict.fromkeys(table["importance"]))
    names = importances_in(results, PROBE, MARK)
    colours = {facts.title: facts.colour for name in names if (facts := facts_of(name, results, PROBE))}
    figure, axes = grid(len(panels), panel_height=0.5 + 0.2 * len(titles), columns=2)
    for panel, (heading, own) in zip(axes, panels, strict=True):
        for row in own.to_dict("records"):
            at, colour = len(titles) - 1 - titles.index(row["importance"]), colours[row["importance"]]
            panel.plot(
                [row["between its limits, low"], row["between its limits, high"]], [at, at], color=colour, lw=0.8
            )
            panel.plot(row["between its limits"], at, "o", ms=4, color=colour)
            mean, low, high = (row[f"between its limits{end}"] for end in ("", ", low", ", high"))
            note(panel, mean, at, f"{row['importance']}: {mean:.3f} [{low:.3f}, {high:.3f}], n = {row['n']:,}")
        panel.set_yticks(range(len(titles)), titles[::-1])
        panel.set_ylim(-0.6, len(titles) - 0.4)
        panel.set_xlim(0, 1)
        panel.axvline(0.5, lw=0.5, color=FAINT, zorder=0)
        title(panel, counted(str(heading), int(own["n"].max())))
    around(figure, x="worst order = 0, best order = 1")
    return figure


CLAIMS = (
    Claim(
        name="attention_order_is_nearer_to_the_best",
        criterion="erasure",
        statement="Removing words by their attention comes nearer to the best of all orders than to the worst",
        source="Edin et al. 2025",
        measure=mean_of("aopc_normalised_attention"),
        quantity="AOPC between its exact limits, mean of the short texts, 0 to 1; more than 0.5 is asked for",
        threshold=0.5,
        speaks="for",
        level="word",
    ),
)

READING = Reading(
    probe=PROBE,
    title="Every subset: how near do orders and attributions come to the exact answer?",
    about=(
        "Of every short text all 2^n versions with some words replaced are predicted. From these follow exactly: the best "
        "and the worst order of removal, between which each importance's AOPC is placed (0 to 1); the Shapley values, which "
        "several attributions estimate; and the fewest words without which the decision differs. Longer texts are left out, "
        "so this is about the short ones."
    ),
    order=64,
    claims=CLAIMS,
    of_importance=of_importance,
    mark=MARK,
    headlines=(
        Headline("aopc_lower", "AOPC of the worst order"),
        Headline("aopc_upper", "AOPC of the best order"),
        Headline("input_set", "fewest words that decide"),
    ),
    tables=(
        Tabulation(
            "subsets",
            "Each importance against all subsets of the words of the n short texts: its AOPC, where that lies between the "
            "worst (0) and the best (1) of all orders; Kendall's tau with the exact Shapley values, the share of texts in "
            "which both have the same highest word, and half the sum of their differences as shares of the text's sum (0 to "
            "1), all three by size where the importance has no sign, so that such rows are comparable among themselves; and "
            "for attributions that estimate these values the error, differences over sizes. Random scores are the level of "
            "chance. Means over texts with 95 % bootstrap intervals over texts; one model.",
            rows,
        ),
    ),
    drawings=(Drawing("subsets_limits", limits, ((PROBE, "aopc_normalised_attention"),), optional=((PROBE, "*_*"),)),),
)
