"""Does attention agree with other measures of importance, and do these agree with each other?
(Jain & Wallace 2019, section 4.1)"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from annotated_types import Ge
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from attnprobe import measures
from attnprobe.core.errors import UserError
from attnprobe.core.metrics import CORRELATION, COUNT, JSD, P_VALUE, SHARE, TAU, Metric
from attnprobe.core.randomness import Draws
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import as_truth, mean_of
from attnprobe.evidence.reading import Column, Drawing, Headline, Reading, facts_of, importances_in
from attnprobe.evidence.statistics import discovered
from attnprobe.exact.nulls import permute_attention
from attnprobe.importance.baselines import is_function_word
from attnprobe.plots.grid import around, class_handles, counted, from_zero, grid, title
from attnprobe.plots.style import CLASS_COLOURS, FAINT, INK, density
from attnprobe.probes.base import (
    DESCRIPTION,
    Measurement,
    Note,
    RankingProbe,
    Subject,
    strengths,
    undefined_in,
)
from attnprobe.probes.leave_one_out import checked
from attnprobe.results.pivot import facets, per_example, split_by_class

CEILINGS = (("gradient", "leave_one_out"), ("gradient_through_attention", "leave_one_out"))
"""The paper's."""

SOURCE = "Jain & Wallace 2019, section 4.1"
PROBE = "correlation"
METRICS = (
    Metric(
        "tau_{pair}",
        TAU,
        "Kendall's τ-b over the content positions",
        higher_is_better=True,
        source=SOURCE,
    ),
    Metric("p_{pair}", P_VALUE, "of it, uncorrected", source=SOURCE),
    Metric("spearman_{pair}", CORRELATION, "Spearman's ρ", higher_is_better=True),
    Metric(
        "top_tau_{pair}",
        CORRELATION,
        "Kendall's τ of the lists of the `top` (5) largest",
        higher_is_better=True,
        source="Fagin et al. 2003, K with p = ½",
    ),
    Metric("top_overlap_{pair}", SHARE, "what these lists have in common", higher_is_better=True),
    Metric("tenth_overlap_{pair}", SHARE, "the same of the largest tenth", higher_is_better=True),
    Metric("jsd_{pair}", JSD, "of the two, each made to sum to 1", higher_is_better=False),
    Metric("tau_words_{pair}", TAU, "τ-b over content words alone", higher_is_better=True),
    Metric("tau_shuffled_{importance}", TAU, "τ-b with the attention in random order: a floor"),
    Metric("attention_evenness", SHARE, "entropy / ln n; 1 is uniform"),
    Metric("content_words", COUNT, "positions in `tau_words_{pair}`"),
    *DESCRIPTION,
)


@dataclass
class Correlation(RankingProbe):
    """Rank agreement per example between attention and each importance, over the content positions;
    of a signed importance the size is compared.

    What is undefined for an example (a row of one token, or of equal scores) is NaN.

    Attributes:
        top: length of the lists that are compared.
        function_words: words that `tau_words_…` leaves out; None: spaCy's English stop words. "not"
            is among these.
        ceilings: the paper's control, pairs of importances that have nothing to do with attention:
            how well these agree is the most that can be asked of it. A pair is compared where both
            are among the importances.
    """

    name = "correlation"
    metrics = METRICS
    of_words = True
    published = ("attention", "gradient", "gradient_through_attention", "leave_one_out")
    top: Annotated[int, Ge(2)] = 5
    function_words: Sequence[str] | None = None
    ceilings: Sequence[Sequence[str]] = CEILINGS

    def __post_init__(self) -> None:
        super().__post_init__()
        if set(self.uses) <= {"attention"}:
            raise UserError(
                f"probe.correlation.importances={list(self.uses)}: expected one or more to "
                "compare with attention, such as [attention, gradient]"
            )
        if wrong := [
            list(pair) for pair in self.ceilings if len(set(pair)) != 2 or "attention" in pair
        ]:
            raise UserError(
                f"probe.correlation.ceilings: {wrong[0]}: expected two importances, neither of "
                "them attention, such as [gradient, leave_one_out]"
            )

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        content = subject.outputs.content
        scores = strengths(subject, ["attention", *self.scores(subject)])
        pairs = [("attention", name) for name in scores if name != "attention"]
        pairs += [
            (first, second) for first, second in self.ceilings if {first, second} <= set(scores)
        ]
        names = ["_".join(pair) for pair in pairs]
        left, right = (torch.stack([scores[pair[side]] for pair in pairs]) for side in (0, 1))
        tau, p = measures.kendall_tau_test(left, right, content)
        size = torch.full(content.shape[:1], self.top, device=content.device)
        apart = measures.jensen_shannon(
            measures.normalised(left, content), measures.normalised(right, content), content
        )
        # leave-one-out is NaN outside content too, where nothing was removed
        undefined = undefined_in(left, content) | undefined_in(right, content)
        statistics = {
            "tau": tau,
            "p": p,
            "spearman": measures.spearman(left, right, content),
            "top_tau": measures.top_tau(left, right, self.top, content),
            "top_overlap": measures.top_overlap(left, right, size, content),
            "tenth_overlap": measures.top_overlap(left, right, measures.tenth(content), content),
            "jsd": torch.where(undefined, torch.nan, apart),
        }
        if subject.words is not None:
            own = None if self.function_words is None else tuple(self.function_words)
            excluded = is_function_word(tuple(subject.words), own).to(subject.batch.ids.device)
            words = content & ~excluded[subject.batch.ids]
            statistics["tau_words"] = measures.kendall_tau(left, right, words)
            yield Measurement("content_words", words.sum(-1))
        for metric, values in statistics.items():
            for name, value in zip(names, values, strict=True):
                yield Measurement(f"{metric}_{name}", value)

        attention = scores.pop("attention")
        noise = draws.uniform(1, content, subject.batch.example_id)
        shuffled = permute_attention(attention, content, noise)
        for name, importance in scores.items():
            yield Measurement(
                f"tau_shuffled_{name}", measures.kendall_tau(shuffled[0], importance, content)
            )
        length = content.sum(-1).double()
        # one position is neither even nor uneven
        most = torch.where(length > 1, length.log(), torch.nan)
        yield Measurement("attention_evenness", measures.entropy(attention, content) / most)
        yield from self.notes(subject)


NEARLY_EVEN = 0.95
"""Attention whose entropy is a larger share of ln n has hardly an order that could agree with
anything."""


def _of_pair(first: str, second: str, words: str) -> tuple[Headline, ...]:
    pair = f"{first}_{second}"
    paper = PUBLISHED.get((first, second))
    tau = f"tau_{pair}"
    p = f"p_{pair}"
    mean, std, fraction = (
        paper and f"{paper}_{kind}" for kind in ("mean", "std", "fraction_significant")
    )
    return (
        Headline(tau, f"tau({words})", mean, by_class=True),
        Headline(tau, "  standard deviation", std, by_class=True, name=f"{tau}_std", spread=True),
        Headline(
            p,
            "  share with p <= 0.05",
            fraction,
            by_class=True,
            name=f"significant_{pair}",
            transform=as_truth(lambda p: p <= 0.05),
        ),
        Headline(
            p,
            "  the same, false discoveries held at 5 %",
            by_class=True,
            name=f"discovered_{pair}",
            transform=discovered,
        ),
        Headline(
            tau,
            "  tau where attention is not nearly even",
            name=f"{tau}_uneven",
            at_most=("attention_evenness", NEARLY_EVEN),
        ),
        Headline(f"tau_words_{pair}", "  tau over content words"),
        Headline(f"top_tau_{pair}", "  tau of the top tokens"),
        Headline(f"top_overlap_{pair}", "  overlap of the top tokens"),
    )


EDGES = np.linspace(-1, 1, 41)
OVERLAID = 3
"""The most classes that can be told apart on top of each other; more are drawn in rows above each
other."""
Pair = tuple[str, str]
PUBLISHED: dict[Pair, str] = {
    ("attention", "gradient"): "tau_attention_gradient",
    ("attention", "leave_one_out"): "tau_attention_loo",
    ("gradient", "leave_one_out"): "tau_gradient_loo",
}
"""Pair → what its published numbers begin with."""


def histogram(pair: Pair, results: pd.DataFrame, examples: pd.DataFrame | None = None) -> Figure:
    """Histogram of Kendall's τ per predicted class, one panel per data set and model; 40 bins from
    −1 to 1, a dashed line at the mean. More than three classes are drawn in rows above each other,
    all to one scale.

    Jain & Wallace's figures 2 and 3.
    """
    metric = f"tau_{'_'.join(pair)}"
    panels = facets(per_example(results, PROBE, (metric, "predicted_class")))
    split = [split_by_class(facet.rows, len(CLASS_COLOURS)) for facet in panels]
    names = max(([name for name, _ in groups] for groups in split), key=len)
    values = [[rows[metric].dropna().to_numpy() for _, rows in groups] for groups in split]
    shares = [
        [np.histogram(tau, EDGES)[0] / max(1, len(tau)) for tau in of_panel] for of_panel in values
    ]
    in_rows = len(names) > OVERLAID
    step = (
        1.1 * float(max(share.max() for of_panel in shares for share in of_panel))
        if in_rows
        else 0.0
    )
    figure, axes = grid(len(panels), panel_height=0.7 + 0.33 * len(names) if in_rows else 1.75)
    for panel, facet, of_panel, own in zip(axes, panels, values, shares, strict=True):
        for place, (tau, share, colour) in enumerate(
            zip(of_panel, own, CLASS_COLOURS, strict=False)
        ):
            base = step * (len(own) - 1 - place)
            panel.stairs(
                base + share, EDGES, baseline=base, fill=True, color=colour, alpha=0.35, linewidth=0
            )
            panel.stairs(base + share, EDGES, baseline=base, color=colour, linewidth=0.9)
            if len(tau):
                top = step or max(one.max() for one in own)
                panel.plot(
                    [tau.mean()] * 2, [base, base + top], color=colour, lw=0.8, ls=(0, (3, 2))
                )
        _frame(panel, facet.title, facet.rows[metric], scale=not in_rows)
    from_zero(axes)
    words = " and ".join(facts_of(name, results, PROBE).title for name in pair)
    around(
        figure,
        x=f"Kendall's τ of {words}",
        y="share of the class",
        handles=class_handles(names),
        heading="predicted",
    )
    return figure


def densities(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Density of Kendall's τ per predicted class for each pair of measures, beside that of a
    shuffled attention.

    Gaussian kernel estimates (Scott's bandwidth), cut at the smallest and largest value. More than
    three classes are drawn in rows above each other, all to one scale. The shuffled attention
    (grey) is compared with the measure that the attention is: what an order without meaning gets.
    """
    floors = {pair: f"tau_shuffled_{pair[1]}" for pair in PUBLISHED if pair[0] == "attention"}
    metrics = {pair: f"tau_{'_'.join(pair)}" for pair in PUBLISHED}
    drawn = []
    names = list[str]()
    for facet in facets(
        per_example(results, PROBE, (*metrics.values(), *floors.values(), "predicted_class"))
    ):
        groups = split_by_class(facet.rows, len(CLASS_COLOURS))
        names = max(names, [name for name, _ in groups], key=len)
        for pair, metric in metrics.items():
            samples = [
                (rows[metric], colour)
                for (_, rows), colour in zip(groups, CLASS_COLOURS, strict=False)
            ]
            samples += [(facet.rows[floors[pair]], FAINT)] if pair in floors else []
            drawn.append(
                (
                    facet,
                    pair,
                    [(*density(tau.dropna().to_numpy()), colour) for tau, colour in samples],
                )
            )
    tallest = max(float(y.max()) for _, _, curves in drawn for _, y, _ in curves)
    step = 1.1 * tallest if len(names) > OVERLAID else 0.0
    figure, axes = grid(
        len(drawn), panel_height=1.03 + 0.33 * len(names) if len(names) >= OVERLAID else 1.75
    )
    dashed = (0, (3, 1.5))
    for panel, (facet, pair, curves) in zip(axes, drawn, strict=True):
        for place, (x, y, colour) in enumerate(curves):
            # the lowest row is the shuffled attention's, also where a pair has none
            base = step * (len(curves) - 1 - place + (pair not in floors))
            if len(y) != len(x) or not y.any():
                panel.plot(x, np.full(len(x), base), "|", ms=5, color=colour, clip_on=False)
                continue
            if colour != FAINT:
                panel.fill_between(x, base, base + y, color=colour, alpha=0.3, linewidth=0)
            panel.plot(x, base + y, color=colour, lw=0.9, ls=dashed if colour == FAINT else "-")
        heading = (
            f"{', '.join(facts_of(name, results, PROBE).title for name in pair)} · {facet.title}"
        )
        _frame(panel, heading, facet.rows[metrics[pair]], scale=False)
    from_zero(axes)
    floor = Line2D([], [], color=FAINT, lw=0.9, ls=dashed, label="shuffled attention")
    over = "predicted" if len(names) > 1 else None
    around(
        figure, x="Kendall's τ", y="density", handles=[*class_handles(names), floor], heading=over
    )
    return figure


def _frame(axes: Axes, heading: str, values: "pd.Series[float]", *, scale: bool) -> None:
    if not scale:
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
    axes.axvline(0, lw=0.5, color=INK, zorder=0)
    axes.set_xlim(-1, 1)
    axes.set_xticks([-1, -0.5, 0, 0.5, 1], ["−1", "−.5", "0", ".5", "1"])
    more = [f"{values.isna().sum():,} undefined"] if values.isna().any() else []
    title(axes, counted(heading, int(values.notna().sum()), *more))


CLAIMS = (
    Claim(
        name="attention_agrees_as_the_gradient_does",
        criterion="agreement",
        source=SOURCE,
        speaks="for",
        level="word",
        smallest=0.05,
        statement="Attention agrees with leave-one-out better than the gradient does",
        measure=mean_of(
            "tau_attention_leave_one_out",
            "tau_gradient_leave_one_out",
            value=np.subtract,
            ends=(-2, 2),
        ),
        quantity=(
            "τ(attention, leave-one-out) minus τ(gradient, leave-one-out), mean of the examples, "
            "−2 to 2"
        ),
    ),
)
"""Whether attention agrees more than an attention without meaning would is asked by the probe
`agreement`: against a shuffled attention alone, whatever a gradient contains as a factor agrees
with it."""


def _headlines(results: pd.DataFrame) -> tuple[Headline, ...]:
    """Those of attention and each importance, with how large |τ| is by chance; then those of the
    pairs without attention."""
    words = {
        name: one.ascii_title
        for name, one in importances_in(results, PROBE, "tau_attention_").items()
    }
    headlines: list[Headline] = []
    for name, importance in words.items():
        shuffled = f"tau_shuffled_{name}"
        headlines += _of_pair("attention", name, f"attention, {importance}")
        headlines.append(
            Headline(
                shuffled,
                f"|tau|(shuffled attention, {importance})",
                name=f"{shuffled}_absolute",
                transform=np.abs,
            )
        )
    there = importances_in(results, PROBE, "tau_")
    others = [name for name in importances_in(results, PROBE, "tau_shuffled_") if name in words]
    for first, second in permutations(others, 2):
        if f"{first}_{second}" in there:
            headlines += _of_pair(first, second, f"{words[first]}, {words[second]}")
    return tuple(headlines)


READING = Reading(
    probe=PROBE,
    order=50,
    noted=checked,
    claims=CLAIMS,
    closing=_headlines,
    title="Agreement: do attention, gradients and leave-one-out rank the words alike?",
    about=(
        "Kendall's τ-b between two rankings of a text's words, −1 (reversed) over 0 (unrelated) "
        "to 1 (the same), mean over the texts. Gradient against leave-one-out is shown as a "
        "ceiling, a shuffled attention as a floor. Low agreement does not say which of the two "
        "is wrong. Neither gradients nor leave-one-out is the truth. And τ over all words is "
        "ruled by the many weights near 0, and by the length of the text (Neely et al. 2021). So "
        "this is called agreement, not faithfulness."
    ),
    columns=(
        Column("tau_attention_gradient", "disagrees with the gradient", one_minus=True),
        Column("tau_attention_leave_one_out", "disagrees with leave-one-out", one_minus=True),
    ),
    headlines=(Headline("attention_evenness", "evenness of the attention (1: uniform)"),),
    drawings=(
        *(
            Drawing(
                f"correlation_{name}",
                partial(histogram, ("attention", name)),
                (f"tau_attention_{name}", "predicted_class"),
                optional=(),
            )
            for name in ("gradient", "leave_one_out")
        ),
        Drawing(
            "correlation_densities",
            densities,
            (
                *(f"tau_{'_'.join(pair)}" for pair in PUBLISHED),
                "tau_shuffled_gradient",
                "predicted_class",
            ),
            optional=("tau_shuffled_leave_one_out",),
        ),
    ),
)
