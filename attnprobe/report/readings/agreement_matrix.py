"""How far importances agree with each other: a matrix between a floor and a ceiling."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from attnprobe.report.claims import Claim
from attnprobe.report.evidence import mean_of
from attnprobe.report.figures.erasure import NARROW
from attnprobe.report.figures.grid import around, counted, grid, title
from attnprobe.report.figures.notes import note
from attnprobe.report.figures.style import TEXT_WIDTH
from attnprobe.report.importances import facts_of, importances_in
from attnprobe.report.reading import Drawing, Headline, Reading, Tabulation
from attnprobe.report.wide import facets, mean_in_columns, per_example

PROBE = "agreement_matrix"
KINDS = {"tau": "tau", "weighted_tau": "weighted tau", "rbo": "RBO", "top_overlap": "top overlap"}


def pairs(results: pd.DataFrame) -> list[tuple[str, str]]:
    """The pairs that the table has, in the probe's order."""
    names = importances_in(results, PROBE, "tau_floor_")
    there = set(importances_in(results, PROBE, "tau_"))
    return [(first, second) for first in names for second in names if f"{first}_and_{second}" in there]


def headlines(results: pd.DataFrame) -> tuple[Headline, ...]:
    """τ of every pair, and of every importance with itself redrawn."""
    words = {name: facts_of(name, results, PROBE).ascii_title for name in importances_in(results, PROBE, "tau_floor_")}
    of_pairs = [
        Headline(f"tau_{first}_and_{second}", f"tau({words[first]}, {words[second]})")
        for first, second in pairs(results)
    ]
    return (*of_pairs, *(Headline(f"tau_ceiling_{one}", f"tau({words[one]}, itself redrawn)") for one in words))


def rows(results: pd.DataFrame) -> pd.DataFrame:
    """Every pair, and every importance's floor and ceiling, in four measures with 95 % bootstrap intervals."""
    names = importances_in(results, PROBE, "tau_floor_")
    titles = {name: facts_of(name, results, PROBE).title for name in names}
    wanted = [(titles[first], titles[second], f"{first}_and_{second}") for first, second in pairs(results)]
    wanted += [(titles[one], "itself, shuffled (floor)", f"floor_{one}") for one in names]
    wanted += [(titles[one], "itself, redrawn (ceiling)", f"ceiling_{one}") for one in names]
    lines = []
    metrics = [f"{kind}_{end}" for _, _, end in wanted for kind in KINDS]
    for facet in facets(per_example(results, PROBE, metrics)) if wanted else []:
        for first, second, end in wanted:
            known = int(facet.rows[f"tau_{end}"].notna().sum())
            line: dict[str, object] = {
                "data and model": facet.title,
                "importance": first,
                "against": second,
                "n": known,
            }
            for kind, heading in KINDS.items():
                line |= mean_in_columns(heading, facet.rows[f"{kind}_{end}"].to_numpy())
            lines.append(line)
    return pd.DataFrame(lines)


MOST_NUMBERED = 12
"""Importances up to which the cells of the heat map have their numbers; of more they are in its notes and in the table."""


def clustered(matrix: np.ndarray) -> list[int]:
    """An order that puts together what agrees: average linkage on 1 − agreement.

    >>> clustered(np.array([[1, 0.1, 0.9], [0.1, 1, 0.2], [0.9, 0.2, 1]]))
    [1, 0, 2]
    """
    apart = 1 - np.nan_to_num((matrix + matrix.T) / 2)
    np.fill_diagonal(apart, 0)
    if len(matrix) < 3:
        return list(range(len(matrix)))
    return [int(one) for one in leaves_list(linkage(squareform(apart.clip(min=0), checks=False), "average"))]


def heat(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Mean τ of every pair, importances that agree next to each other; on the diagonal each with itself redrawn."""
    names = importances_in(results, PROBE, "tau_floor_")
    metrics = [f"tau_{first}_and_{second}" for first, second in pairs(results)] + [
        f"tau_ceiling_{one}" for one in names
    ]
    panels = facets(per_example(results, PROBE, metrics))
    crowded = len(names) > MOST_NUMBERED
    each, columns = (0.16, 1) if crowded else (0.28, 2)
    figure, axes = grid(len(panels), panel_height=0.8 + each * len(names), columns=columns)
    if crowded:
        figure.set_figwidth(TEXT_WIDTH)
    words = [facts_of(name, results, PROBE).title for name in names]
    for panel, facet in zip(axes, panels, strict=True):
        matrix = np.diag([float(facet.rows[f"tau_ceiling_{one}"].mean()) for one in names])
        for first, second in pairs(results):
            mean, a, b = float(facet.rows[f"tau_{first}_and_{second}"].mean()), names.index(first), names.index(second)
            matrix[a, b] = matrix[b, a] = mean
        order = clustered(matrix)
        shown = matrix[np.ix_(order, order)]
        colours = panel.imshow(np.ma.masked_invalid(shown), cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
        for (y, x), tau in np.ndenumerate(shown):
            if not np.isnan(tau):
                shade = "white" if abs(tau) > 0.6 else "black"
                if not crowded:
                    panel.annotate(in_cell(tau), (x, y), ha="center", va="center", fontsize=6, color=shade)
                note(panel, x, y, f"{words[order[y]]} and {words[order[x]]}: τ = {tau:.3f}", width=1, height=1)
        angle, side = (90, "center") if crowded else (35, "right")
        panel.set_xticks(range(len(names)), [words[one] for one in order], rotation=angle, ha=side)
        if crowded:
            panel.tick_params(axis="both", labelsize=5.5)
        panel.set_yticks(range(len(names)), [words[one] for one in order])
        panel.tick_params(length=0)
        title(panel, counted(facet.title, len(facet.rows)), NARROW)
    around(figure)
    figure.colorbar(colours, ax=axes, aspect=30, pad=0.02).set_label("Kendall's τ")  # one scale for all panels
    return figure


def in_cell(tau: float) -> str:
    """A correlation in as few characters as it needs, so that those of neighbouring cells do not touch.

    >>> in_cell(-0.018), in_cell(0.754), in_cell(-0.001), in_cell(-1.0)
    ('−.02', '.75', '0', '−1')
    """
    rounded = round(tau, 2) + 0.0  # none is called −0
    words = f"{rounded:.0f}" if rounded == int(rounded) else f"{rounded:.2f}".replace("0.", ".")
    return words.replace("-", "−")


CLAIMS = (
    Claim(
        name="attention_agrees_with_integrated_gradients",
        criterion="agreement",
        statement="Attention and integrated gradients rank the words more alike than chance",
        source="Neely et al. 2022",
        measure=mean_of("tau_attention_and_integrated_gradients"),
        quantity="Kendall's τ-b, mean of the examples, −1 to 1; more than 0 is asked for",
        speaks="for",
        level="word",
    ),
)

READING = Reading(
    probe=PROBE,
    title="Agreement of all importances: who ranks the words alike?",
    about=(
        "Every importance against every other one, mean of the texts: Kendall's τ-b, τ that counts the top more, rank-biased "
        "overlap, and what the lists of the top words have in common. A method against itself in random order is the floor; "
        "against itself with other random numbers the ceiling, 1 where none are drawn. Agreement does not say who is right."
    ),
    order=55,
    claims=CLAIMS,
    closing=headlines,
    tables=(
        Tabulation(
            "agreement_matrix",
            "Agreement of importances per text, mean over the n texts with 95 % bootstrap intervals: Kendall's tau-b, "
            "weighted tau, rank-biased overlap (p = 0.9), overlap of the top words; each one's floor and ceiling below.",
            rows,
        ),
    ),
    drawings=(Drawing("agreement_matrix", heat, ((PROBE, "tau_floor_attention"),), optional=((PROBE, "tau_*"),)),),
)
