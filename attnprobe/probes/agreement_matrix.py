"""How far do importances agree with each other, between chance and agreement with themselves?"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from scipy import stats
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform
from torch import Tensor

from attnprobe.core.errors import UserError
from attnprobe.core.metrics import CORRELATION, SCORE, SHARE, TAU, Metric
from attnprobe.core.randomness import Draws
from attnprobe.core.settings import Count
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import mean_of
from attnprobe.exact.nulls import permute_attention
from attnprobe.measures import kendall_tau, rank_biased_overlap, top_overlap
from attnprobe.plots.grid import around, cells, counted, facet_grid, in_cell, title
from attnprobe.plots.style import TEXT_WIDTH
from attnprobe.probes.base import (
    DESCRIPTION,
    Measurement,
    Note,
    RankingProbe,
    Subject,
    strengths,
    undefined_in,
)
from attnprobe.readings.importances import Facts, importances_in
from attnprobe.readings.means import mean_over_texts, mean_table
from attnprobe.readings.reading import Drawing, Headline, Reading, Tabulation

METRICS = (
    Metric(
        "tau_{pair}", TAU, "Kendall's τ-b over the content positions", source="Neely et al. 2022"
    ),
    Metric(
        "weighted_tau_{pair}", CORRELATION, "an exchange counts by 1 / rank", source="Vigna 2015"
    ),
    Metric("rbo_{pair}", SCORE, "rank-biased overlap, p = 0.9", source="Webber et al. 2010"),
    Metric("top_overlap_{pair}", SHARE, "what the lists of the `top` (5) largest have in common"),
    *DESCRIPTION,
)


@dataclass
class AgreementMatrix(RankingProbe):
    """Every two importances compared per example, in size where they have a sign.

    Each metric stands for every pair (`…_X_and_Y`, in the order of the importances). Each
    importance X has a floor, `…_floor_X`: X against itself in random order; and a ceiling,
    `…_ceiling_X`: X against itself with other random numbers, 1 for one that draws none.

    Attributes:
        top: length of the lists that are compared.
        importances: see `RankingProbe`; two or more.
    """

    name = "agreement_matrix"
    metrics = METRICS
    of_words = True
    published = (
        "attention",
        "gradient_input",
        "integrated_gradients",
        "leave_one_out",
        "shapley_sampling",
        "random",
    )
    top: Count = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.uses) < 2:
            raise UserError(
                f"probe.agreement_matrix.importances={list(self.uses)}: expected two or more to "
                f"compare, such as [attention, gradient_input]"
            )

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the agreement of every pair, and of each importance with itself."""
        content = subject.batch.content
        top = torch.full(content.shape[:1], self.top, device=content.device)
        for ending, (first, second) in self.comparisons(subject, draws).items():
            undefined = undefined_in(first, content) | undefined_in(second, content)
            statistics = {
                "tau": kendall_tau(first, second, content),
                "weighted_tau": weighted_tau(first, second, content),
                "rbo": rank_biased_overlap(first, second, content),
                "top_overlap": top_overlap(first, second, top, content),
            }
            for metric, values in statistics.items():
                defined = values.masked_fill(undefined.to(values.device), torch.nan)
                yield Measurement(f"{metric}_{ending}", defined)
        yield from self.notes(subject)

    def comparisons(
        self, subject: Subject, draws: Draws
    ) -> dict[str, tuple[Float[Tensor, "batch seq"], Float[Tensor, "batch seq"]]]:
        """The two scores that are compared, by what their metrics end in."""
        content = subject.batch.content
        redrawn = subject.redrawn()
        noise = draws.uniform(1, content, subject.batch.example_id)
        sizes = strengths(subject, self.scores(subject))
        sizes = {name: scores.double() for name, scores in sizes.items()}

        compared = {}
        for first, second in combinations(sizes, 2):
            compared[f"{first}_and_{second}"] = (sizes[first], sizes[second])
        for name, scores in sizes.items():
            again = scores
            if subject.importance(name).drawn:
                again = strengths(redrawn, [name])[name].double()
            shuffled = permute_attention(scores, content, noise)[0]
            compared[f"floor_{name}"] = (scores, shuffled)
            compared[f"ceiling_{name}"] = (scores, again)
        return compared


def weighted_tau(
    a: Float[Tensor, "batch seq"], b: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch"]:
    """scipy's weighted τ of each row's content, −1 to 1, ranked by either in turn.

    Returns:
        NaN for a row of fewer than two content positions, and where scipy's is undefined.
    """
    taus = torch.full(a.shape[:1], torch.nan, dtype=torch.float64)
    for row, inside in enumerate(content.cpu()):
        if inside.sum() > 1:
            x = a[row].cpu()[inside].numpy()
            y = b[row].cpu()[inside].numpy()
            taus[row] = float(stats.weightedtau(x, y, rank=True).statistic)
    return taus


KINDS = {"tau": "tau", "weighted_tau": "weighted tau", "rbo": "RBO", "top_overlap": "top overlap"}
"""Metric → its heading in the table."""


def _importances_and_pairs(
    results: pd.DataFrame,
) -> tuple[dict[str, Facts], list[tuple[str, str]]]:
    """The importances in the table, and the pairs of which it has numbers."""
    names = importances_in(results, "agreement_matrix", "tau_floor_")
    endings = importances_in(results, "agreement_matrix", "tau_")
    pairs = [
        (first, second)
        for first, second in product(names, repeat=2)
        if f"{first}_and_{second}" in endings
    ]
    return names, pairs


def _headlines(results: pd.DataFrame) -> tuple[Headline, ...]:
    names, pairs = _importances_and_pairs(results)
    titles = {name: facts.ascii_title for name, facts in names.items()}
    headlines = [
        Headline(f"tau_{first}_and_{second}", f"tau({titles[first]}, {titles[second]})")
        for first, second in pairs
    ]
    headlines += [
        Headline(f"tau_ceiling_{name}", f"tau({titles[name]}, itself redrawn)") for name in names
    ]
    return tuple(headlines)


def agreement_table(results: pd.DataFrame) -> pd.DataFrame:
    """Every pair's agreement, then each importance's floor and ceiling."""
    names, pairs = _importances_and_pairs(results)
    rows = [(first, names[second].title, f"{first}_and_{second}") for first, second in pairs]
    rows += [(name, "itself, shuffled (floor)", f"floor_{name}") for name in names]
    rows += [(name, "itself, redrawn (ceiling)", f"ceiling_{name}") for name in names]
    lines = []
    for name, against, ending in rows:
        cells = {"importance": names[name].title, "against": against}
        lines.append((cells, {heading: f"{kind}_{ending}" for kind, heading in KINDS.items()}))
    return mean_table(results, "agreement_matrix", lines)


MOST_NUMBERED = 12
"""Most importances for which the heat map has room for numbers; the table has them anyway."""


def heat(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Mean τ of every pair, importances that agree next to each other.

    The diagonal compares each importance with itself redrawn.
    """
    facts, pairs = _importances_and_pairs(results)
    names = list(facts)
    crowded = len(names) > MOST_NUMBERED
    figure, panels = facet_grid(
        results,
        "agreement_matrix",
        _tau_metrics(names, pairs),
        panel_height=0.8 + (0.16 if crowded else 0.28) * len(names),
        columns=1 if crowded else 2,
    )
    if crowded:
        figure.set_figwidth(TEXT_WIDTH)

    for panel, facet in panels:
        matrix = _mean_taus(facet.rows, names, pairs)
        order = clustered(matrix)
        titles = [facts[names[place]].title for place in order]
        colours = _draw_matrix(panel, matrix[np.ix_(order, order)], titles, crowded=crowded)
        title(panel, counted(facet.title, len(facet.rows)), 1.5 * 72)
    around(figure)

    # one scale for all panels
    bar = figure.colorbar(colours, ax=[panel for panel, _ in panels], aspect=30, pad=0.02)
    bar.set_label("Kendall's τ")
    return figure


def _draw_matrix(panel: Axes, matrix: np.ndarray, titles: list[str], *, crowded: bool) -> AxesImage:
    colours = cells(
        panel,
        matrix,
        _no_number if crowded else in_cell,
        size=6,
        dark=0.6,
        cmap="RdBu_r",
        vmin=-1,
        vmax=1,
    )
    places = range(len(titles))
    if crowded:
        panel.set_xticks(places, titles, rotation=90, ha="center")
        panel.tick_params(axis="both", labelsize=5.5)
    else:
        panel.set_xticks(places, titles, rotation=35, ha="right")
    panel.set_yticks(places, titles)
    return colours


def _tau_metrics(names: list[str], pairs: list[tuple[str, str]]) -> list[str]:
    metrics = [f"tau_{first}_and_{second}" for first, second in pairs]
    return metrics + [f"tau_ceiling_{name}" for name in names]


def _mean_taus(
    rows: pd.DataFrame, names: list[str], pairs: list[tuple[str, str]]
) -> Float[np.ndarray, "importances importances"]:
    matrix = np.diag([mean_over_texts(rows, rows[f"tau_ceiling_{name}"]) for name in names])
    for first, second in pairs:
        row = names.index(first)
        column = names.index(second)
        tau = mean_over_texts(rows, rows[f"tau_{first}_and_{second}"])
        matrix[row, column] = tau
        matrix[column, row] = tau
    return matrix


def _no_number(tau: float) -> str:
    return ""


def clustered(matrix: np.ndarray) -> list[int]:
    """An order that puts what agrees side by side: average linkage on 1 − agreement.

    >>> clustered(np.array([[1, 0.1, 0.9], [0.1, 1, 0.2], [0.9, 0.2, 1]]))
    [1, 0, 2]
    """
    if len(matrix) < 3:
        return list(range(len(matrix)))
    distance = 1 - np.nan_to_num((matrix + matrix.T) / 2)
    np.fill_diagonal(distance, 0)
    tree = linkage(squareform(distance.clip(min=0), checks=False), "average")
    return [int(leaf) for leaf in leaves_list(tree)]


CLAIMS = (
    Claim(
        name="attention_agrees_with_integrated_gradients",
        criterion="agreement",
        level="word",
        speaks="for",
        statement="Attention and integrated gradients rank the words more alike than chance",
        source="Neely et al. 2022",
        measure=mean_of("tau_attention_and_integrated_gradients", ends=(-1, 1)),
        quantity="Kendall's τ-b, mean of the examples, −1 to 1; more than 0 is asked for",
    ),
)

READING = Reading(
    probe="agreement_matrix",
    order=55,
    claims=CLAIMS,
    closing=_headlines,
    title="Agreement of all importances: who ranks the words alike?",
    about=(
        "Every importance against every other one, mean of the texts. Kendall's τ-b counts all "
        "pairs alike, weighted τ counts the top more. Overlap says what the lists of the top "
        "words have in common. A method against itself in random order is the floor; against "
        "itself with other random numbers the ceiling, 1 where none are drawn. Agreement does "
        "not say who is right."
    ),
    tables=(
        Tabulation(
            "agreement_matrix",
            "Agreement of importances per text, mean over the n texts with 95 % bootstrap "
            "intervals: Kendall's tau-b, weighted tau, rank-biased overlap (p = 0.9), overlap of "
            "the top words; each one's floor and ceiling below.",
            agreement_table,
        ),
    ),
    drawings=(Drawing("agreement_matrix", heat, ("tau_floor_attention",), optional=("tau_*",)),),
)
