"""How far do importances agree with each other, between what chance gives and what each of them
reaches with itself?"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
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
from attnprobe.evidence.reading import (
    Drawing,
    Facts,
    Headline,
    Reading,
    Tabulation,
    importances_in,
    mean_table,
)
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
    """Every two importances compared per example over the content positions, in size where they
    have a sign.

    Each metric stands for every pair (`…_X_and_Y`, in the order of the importances), and per
    importance X for a floor, `…_floor_X`: X against itself in random order; and for a ceiling,
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
                f"probe.agreement_matrix.importances={list(self.uses)}: expected two or more to compare, such as "
                f"[attention, gradient_input]"
            )

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        content = subject.batch.content
        other = subject.redrawn()
        sizes = {
            name: values.double()
            for name, values in strengths(subject, self.scores(subject)).items()
        }
        noise = draws.uniform(1, content, subject.batch.example_id)
        pairs = {f"{a}_and_{b}": (sizes[a], sizes[b]) for a, b in combinations(sizes, 2)}
        for name, scores in sizes.items():
            again = (
                strengths(other, [name])[name].double()
                if subject.importance(name).drawn
                else scores
            )
            pairs[f"floor_{name}"] = scores, permute_attention(scores, content, noise)[0]
            pairs[f"ceiling_{name}"] = scores, again
        top = torch.full(content.shape[:1], self.top, device=content.device)
        for names, (a, b) in pairs.items():
            undefined = undefined_in(a, content) | undefined_in(b, content)
            for metric, values in {
                "tau": kendall_tau(a, b, content),
                "weighted_tau": weighted_tau(a, b, content),
                "rbo": rank_biased_overlap(a, b, content),
                "top_overlap": top_overlap(a, b, top, content),
            }.items():
                yield Measurement(
                    f"{metric}_{names}", values.masked_fill(undefined.to(values.device), torch.nan)
                )
        yield from self.notes(subject)


def weighted_tau(
    a: Float[Tensor, "batch seq"], b: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch"]:
    """scipy's weighted τ of each row's content, ranked by either in turn; NaN where it is
    undefined."""
    found = torch.full(a.shape[:1], torch.nan, dtype=torch.float64)
    for row, inside in enumerate(content.cpu()):
        if inside.sum() > 1:
            left, right = (scores[row].cpu()[inside].numpy() for scores in (a, b))
            found[row] = float(stats.weightedtau(left, right, rank=True).statistic)
    return found


KINDS = {"tau": "tau", "weighted_tau": "weighted tau", "rbo": "RBO", "top_overlap": "top overlap"}


def _importances_and_pairs(results: pd.DataFrame) -> tuple[dict[str, Facts], list[tuple[str, str]]]:
    names = importances_in(results, "agreement_matrix", "tau_floor_")
    there = importances_in(results, "agreement_matrix", "tau_")
    return names, [
        (first, second) for first in names for second in names if f"{first}_and_{second}" in there
    ]


def _headlines(results: pd.DataFrame) -> tuple[Headline, ...]:
    names, pairs = _importances_and_pairs(results)
    words = {name: facts.ascii_title for name, facts in names.items()}
    of_pairs = (
        Headline(f"tau_{one}_and_{other}", f"tau({words[one]}, {words[other]})")
        for one, other in pairs
    )
    return (
        *of_pairs,
        *(Headline(f"tau_ceiling_{one}", f"tau({words[one]}, itself redrawn)") for one in names),
    )


def agreement_table(results: pd.DataFrame) -> pd.DataFrame:
    """Every pair, and each one's floor and ceiling."""
    names, pairs = _importances_and_pairs(results)
    wanted = [(first, names[second].title, f"{first}_and_{second}") for first, second in pairs]
    wanted += [
        (one, f"itself, {how} ({end})", f"{end}_{one}")
        for end, how in (("floor", "shuffled"), ("ceiling", "redrawn"))
        for one in names
    ]
    lines = (
        (
            {"importance": names[one].title, "against": other},
            {words: f"{kind}_{end}" for kind, words in KINDS.items()},
        )
        for one, other, end in wanted
    )
    return mean_table(results, "agreement_matrix", lines)


MOST_NUMBERED = 12
"""Importances up to which the cells of the heat map have their numbers; of more they are in its
notes and in the table."""


def clustered(matrix: np.ndarray) -> list[int]:
    """An order that puts together what agrees: average linkage on 1 − agreement.

    >>> clustered(np.array([[1, 0.1, 0.9], [0.1, 1, 0.2], [0.9, 0.2, 1]]))
    [1, 0, 2]
    """
    apart = 1 - np.nan_to_num((matrix + matrix.T) / 2)
    np.fill_diagonal(apart, 0)
    if len(matrix) < 3:
        return list(range(len(matrix)))
    return [
        int(one)
        for one in leaves_list(linkage(squareform(apart.clip(min=0), checks=False), "average"))
    ]


def heat(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Mean τ of every pair, importances that agree next to each other; on the diagonal each with
    itself redrawn."""
    there, pairs = _importances_and_pairs(results)
    names = list(there)
    words = [facts.title for facts in there.values()]
    metrics = [
        *(f"tau_{first}_and_{second}" for first, second in pairs),
        *(f"tau_ceiling_{one}" for one in names),
    ]
    crowded = len(names) > MOST_NUMBERED
    height = 0.8 + (0.16 if crowded else 0.28) * len(names)
    columns = 1 if crowded else 2
    figure, panels = facet_grid(
        results, "agreement_matrix", metrics, panel_height=height, columns=columns
    )
    if crowded:
        figure.set_figwidth(TEXT_WIDTH)
    for panel, facet in panels:
        means = facet.rows[metrics].mean()
        matrix = np.diag([float(means[f"tau_ceiling_{one}"]) for one in names])
        for first, second in pairs:
            a = names.index(first)
            b = names.index(second)
            matrix[a, b] = matrix[b, a] = means[f"tau_{first}_and_{second}"]
        order = clustered(matrix)
        words_of = (lambda tau: "") if crowded else in_cell
        colours = cells(
            panel,
            matrix[np.ix_(order, order)],
            words_of,
            size=6,
            dark=0.6,
            cmap="RdBu_r",
            vmin=-1,
            vmax=1,
        )
        angle, side = (90, "center") if crowded else (35, "right")
        panel.set_xticks(range(len(names)), [words[one] for one in order], rotation=angle, ha=side)
        panel.set_yticks(range(len(names)), [words[one] for one in order])
        if crowded:
            panel.tick_params(axis="both", labelsize=5.5)
        title(panel, counted(facet.title, len(facet.rows)), 1.5 * 72)
    around(figure)
    bar = figure.colorbar(
        colours, ax=[panel for panel, _ in panels], aspect=30, pad=0.02
    )  # one scale for all panels
    bar.set_label("Kendall's τ")
    return figure


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
        "Every importance against every other one, mean of the texts. Kendall's τ-b counts all pairs alike, weighted "
        "τ counts the top more. Overlap says what the lists of the top words have in common. A method against itself "
        "in random order is the floor; against itself with other random numbers the ceiling, 1 where none are drawn. "
        "Agreement does not say who is right."
    ),
    tables=(
        Tabulation(
            "agreement_matrix",
            "Agreement of importances per text, mean over the n texts with 95 % bootstrap intervals: Kendall's tau-b, "
            "weighted tau, rank-biased overlap (p = 0.9), overlap of the top words; each one's floor and ceiling below.",
            agreement_table,
        ),
    ),
    drawings=(Drawing("agreement_matrix", heat, ("tau_floor_attention",), optional=("tau_*",)),),
)
