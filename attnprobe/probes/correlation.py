"""Does attention agree with other importances, and do these agree with each other?

Jain & Wallace 2019, section 4.1.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, permutations
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from annotated_types import Ge
from jaxtyping import Bool, Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from torch import Tensor

from attnprobe import measures
from attnprobe.core.errors import UserError
from attnprobe.core.metrics import (
    CORRELATION,
    COUNT,
    JSD,
    P_VALUE,
    SHARE,
    TAU,
    TRUTH,
    Metric,
    Scale,
)
from attnprobe.core.randomness import Draws
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import as_truth, mean_of
from attnprobe.evidence.statistics import discovered
from attnprobe.exact.nulls import permute_attention
from attnprobe.importance.baselines import is_function_word
from attnprobe.models.base import Unit
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
from attnprobe.readings.importances import facts_of, importances_in
from attnprobe.readings.reading import Column, Drawing, Headline, Reading
from attnprobe.results.pivot import Facet, facets, per_example, split_by_class

MAGNITUDE = Scale("|τ-b|", 0, 1)
CEILINGS = (("gradient", "leave_one_out"), ("gradient_through_attention", "leave_one_out"))
"""The paper's pairs without attention."""

SOURCE = "Jain & Wallace 2019, section 4.1"
PROBE = "correlation"
Pair = tuple[str, str]
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
    """Rank agreement per example between attention and each importance, over the content positions.

    Signed importances are compared in size. What is undefined for an example (a row of one token,
    or of equal scores) is NaN.

    Attributes:
        top: length of the lists that are compared.
        function_words: words that `tau_words_…` leaves out; None: spaCy's English stop words, which
            include "not".
        ceilings: the paper's control, pairs of importances that have nothing to do with attention:
            their agreement is the most that can be expected of attention. A pair is compared where
            both are among the importances.
    """

    name = "correlation"
    metrics = METRICS
    published = ("attention", "gradient", "gradient_through_attention", "leave_one_out")
    top: Annotated[int, Ge(2)] = 5
    function_words: Sequence[str] | None = None
    ceilings: Sequence[Sequence[str]] = CEILINGS

    def __post_init__(self) -> None:
        super().__post_init__()
        if set(self.uses) <= {"attention"}:
            raise UserError(
                f"probe.correlation.importances={list(self.uses)}: expected one or more to compare "
                f"with attention, such as [attention, gradient]"
            )
        for pair in self.ceilings:
            if len(set(pair)) != 2 or "attention" in pair:
                raise UserError(
                    f"probe.correlation.ceilings: {list(pair)}: expected two importances, neither "
                    f"of them attention, such as [gradient, leave_one_out]"
                )

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield every pair's agreement, that of a shuffled attention, and attention's evenness."""
        content = subject.outputs.content
        scores = strengths(subject, ["attention", *self.scores(subject)])
        words = self.content_words(subject)
        if words is not None:
            yield Measurement("content_words", words.sum(-1))

        pairs = self.pairs(scores)
        first = torch.stack([scores[pair[0]] for pair in pairs])
        second = torch.stack([scores[pair[1]] for pair in pairs])
        statistics = self.agreement(first, second, content)
        if words is not None:
            statistics["tau_words"] = measures.kendall_tau(first, second, words)
        for metric, values in statistics.items():
            for pair, value in zip(pairs, values, strict=True):
                yield Measurement(f"{metric}_{'_'.join(pair)}", value)

        attention = scores.pop("attention")
        noise = draws.uniform(1, content, subject.batch.example_id)
        yield from floors(permute_attention(attention, content, noise)[0], scores, content)
        yield Measurement("attention_evenness", evenness(attention, content))
        yield from self.notes(subject)

    def pairs(self, scores: Mapping[str, Tensor]) -> list[Pair]:
        """Attention with each other importance, then the ceilings that are among the scores."""
        pairs = [("attention", name) for name in scores if name != "attention"]
        pairs += [(a, b) for a, b in self.ceilings if a in scores and b in scores]
        return pairs

    def agreement(
        self,
        first: Float[Tensor, "pairs batch seq"],
        second: Float[Tensor, "pairs batch seq"],
        content: Bool[Tensor, "batch seq"],
    ) -> dict[str, Float[Tensor, "pairs batch"]]:
        """Metric → how far the two scores of each pair agree over the content."""
        tau, p = measures.kendall_tau_test(first, second, content)
        top = torch.full(content.shape[:1], self.top, device=content.device)
        jsd = measures.jensen_shannon(
            measures.normalised(first, content), measures.normalised(second, content), content
        )
        # leave-one-out is NaN outside content too, where nothing was removed
        undefined = undefined_in(first, content) | undefined_in(second, content)
        return {
            "tau": tau,
            "p": p,
            "spearman": measures.spearman(first, second, content),
            "top_tau": measures.top_tau(first, second, self.top, content),
            "top_overlap": measures.top_overlap(first, second, top, content),
            "tenth_overlap": measures.top_overlap(first, second, measures.tenth(content), content),
            "jsd": torch.where(undefined, torch.nan, jsd),
        }

    def content_words(self, subject: Subject) -> Bool[Tensor, "batch seq"] | None:
        """The content that is no function word; None where there are no words, or unknown ones."""
        if subject.words is None or subject.classifier.unit is not Unit.WORD:
            return None
        listed = None if self.function_words is None else tuple(self.function_words)
        excluded = is_function_word(tuple(subject.words), listed).to(subject.batch.ids.device)
        return subject.outputs.content & ~excluded[subject.batch.ids]


def floors(
    shuffled: Float[Tensor, "batch seq"],
    scores: Mapping[str, Float[Tensor, "batch seq"]],
    content: Bool[Tensor, "batch seq"],
) -> Iterator[Measurement]:
    """The agreement of each importance with a shuffled attention."""
    for name, importance in scores.items():
        tau = measures.kendall_tau(shuffled, importance, content)
        yield Measurement(f"tau_shuffled_{name}", tau)


def evenness(
    attention: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch"]:
    """Entropy as a share of ln n, 0 to 1 for uniform weights; NaN for a single position."""
    length = content.sum(-1).double()
    largest = torch.where(length > 1, length.log(), torch.nan)
    return measures.entropy(attention, content) / largest


# Headlines and claims

NEARLY_EVEN = 0.95
"""Attention whose entropy is a larger share of ln n has hardly an order that could agree with
anything."""
PUBLISHED: dict[Pair, str] = {
    ("attention", "gradient"): "tau_attention_gradient",
    ("attention", "leave_one_out"): "tau_attention_loo",
    ("gradient", "leave_one_out"): "tau_gradient_loo",
}
"""Pair → what its published numbers begin with."""


def _headlines(results: pd.DataFrame) -> tuple[Headline, ...]:
    """Those of attention and each importance, with how large |τ| is by chance; then ceilings."""
    compared = importances_in(results, PROBE, "tau_attention_")
    titles = {name: facts.ascii_title for name, facts in compared.items()}
    headlines: list[Headline] = []
    for name, importance in titles.items():
        headlines += _pair_headlines("attention", name, f"attention, {importance}")
        shuffled = f"tau_shuffled_{name}"
        headlines.append(
            Headline(
                shuffled,
                f"|tau|(shuffled attention, {importance})",
                name=f"{shuffled}_absolute",
                transform=np.abs,
                scale=MAGNITUDE,
            )
        )

    endings = importances_in(results, PROBE, "tau_")
    rivals = [name for name in importances_in(results, PROBE, "tau_shuffled_") if name in titles]
    for first, second in permutations(rivals, 2):
        if f"{first}_{second}" in endings:
            headlines += _pair_headlines(first, second, f"{titles[first]}, {titles[second]}")
    return tuple(headlines)


def _pair_headlines(first: str, second: str, titles: str) -> tuple[Headline, ...]:
    pair = f"{first}_{second}"
    tau = f"tau_{pair}"
    p = f"p_{pair}"
    paper = PUBLISHED.get((first, second))
    return (
        Headline(tau, f"tau({titles})", paper and f"{paper}_mean", by_class=True),
        Headline(
            tau,
            "  standard deviation",
            paper and f"{paper}_std",
            by_class=True,
            name=f"{tau}_std",
            spread=True,
        ),
        Headline(
            p,
            "  share with p <= 0.05",
            paper and f"{paper}_fraction_significant",
            by_class=True,
            name=f"significant_{pair}",
            transform=as_truth(lambda p: p <= 0.05),
            scale=TRUTH,
        ),
        Headline(
            p,
            "  the same, false discoveries held at 5 %",
            by_class=True,
            name=f"discovered_{pair}",
            transform=discovered,
            scale=TRUTH,
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


# Figures

EDGES = np.linspace(-1, 1, 41)
OVERLAID = 3
"""The most classes that can be told apart on top of each other; more are drawn in rows above each
other."""
DASHES = (0, (3, 1.5))
DENSITY_METRICS = (
    "tau_attention_gradient",
    "tau_attention_leave_one_out",
    "tau_gradient_leave_one_out",
    "tau_shuffled_gradient",
    "predicted_class",
)
OPTIONAL_DENSITIES = ("tau_shuffled_leave_one_out",)


@dataclass(frozen=True)
class _Sample:
    """The τ of the texts of one class, or those of the shuffled attention."""

    name: str
    colour: str
    tau: Float[np.ndarray, "texts"]

    @property
    def shares(self) -> Float[np.ndarray, "bins"]:
        """The share of the texts in each bin of `EDGES`."""
        return np.histogram(self.tau, EDGES)[0] / max(1, len(self.tau))


def _samples_by_class(rows: pd.DataFrame, metric: str) -> list[_Sample]:
    groups = split_by_class(rows, len(CLASS_COLOURS))
    return [
        _Sample(name, colour, group[metric].dropna().to_numpy())
        for (name, group), colour in zip(groups, CLASS_COLOURS, strict=False)
    ]


def histogram(pair: Pair, results: pd.DataFrame, examples: pd.DataFrame | None = None) -> Figure:
    """Histogram of Kendall's τ per predicted class, one panel per data set and model.

    40 bins from −1 to 1, a dashed line at the mean. More than three classes are drawn in rows above
    each other, all to one scale.

    Jain & Wallace's figures 2 and 3.
    """
    metric = f"tau_{'_'.join(pair)}"
    panels = facets(per_example(results, PROBE, (metric, "predicted_class")))
    samples = [_samples_by_class(facet.rows, metric) for facet in panels]
    names = [sample.name for sample in max(samples, key=len)]
    stacked = len(names) > OVERLAID
    step = 0.0
    if stacked:
        step = 1.1 * max(float(sample.shares.max()) for sample in chain.from_iterable(samples))

    figure, axes = grid(len(panels), panel_height=0.7 + 0.33 * len(names) if stacked else 1.75)
    for panel, facet, classes in zip(axes, panels, samples, strict=True):
        _draw_histograms(panel, classes, step)
        _frame(panel, facet.title, facet.rows[metric], scale=not stacked)
    from_zero(axes)
    titles = " and ".join(facts_of(name, results, PROBE).title for name in pair)
    around(
        figure,
        x=f"Kendall's τ of {titles}",
        y="share of the class",
        handles=class_handles(names),
        heading="predicted",
    )
    return figure


def _draw_histograms(panel: Axes, classes: list[_Sample], step: float) -> None:
    """Each class's histogram, `step` above the next class's; 0 draws them on top of each other."""
    height = step or max(float(sample.shares.max()) for sample in classes)
    for place, sample in enumerate(classes):
        base = step * (len(classes) - 1 - place)
        top = base + sample.shares
        colour = sample.colour
        panel.stairs(top, EDGES, baseline=base, fill=True, color=colour, alpha=0.35, linewidth=0)
        panel.stairs(top, EDGES, baseline=base, color=colour, linewidth=0.9)
        if len(sample.tau):
            mean = sample.tau.mean()
            panel.plot([mean, mean], [base, base + height], color=colour, lw=0.8, ls=(0, (3, 2)))


def densities(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Density of Kendall's τ per predicted class and pair of measures, beside a shuffled attention.

    Gaussian kernel estimates (Scott's bandwidth), cut at the smallest and largest value. More than
    three classes are drawn in rows above each other, all to one scale. The shuffled attention
    (grey) is compared with the measure that the attention is: what an order without meaning gets.
    """
    rows = per_example(results, PROBE, (*DENSITY_METRICS, *OPTIONAL_DENSITIES))
    panels = [_DensityPanel.of(facet, pair) for facet in facets(rows) for pair in PUBLISHED]
    names = max((panel.names for panel in panels), key=len)
    step = 0.0
    if len(names) > OVERLAID:
        step = 1.1 * max(panel.height for panel in panels)

    panel_height = 1.03 + 0.33 * len(names) if len(names) >= OVERLAID else 1.75
    figure, axes = grid(len(panels), panel_height=panel_height)
    for axis, panel in zip(axes, panels, strict=True):
        panel.draw(axis, step)
        titles = ", ".join(facts_of(name, results, PROBE).title for name in panel.pair)
        tau = panel.facet.rows[f"tau_{'_'.join(panel.pair)}"]
        _frame(axis, f"{titles} · {panel.facet.title}", tau, scale=False)
    from_zero(axes)
    floor = Line2D([], [], color=FAINT, lw=0.9, ls=DASHES, label="shuffled attention")
    around(
        figure,
        x="Kendall's τ",
        y="density",
        handles=[*class_handles(names), floor],
        heading="predicted" if len(names) > 1 else None,
    )
    return figure


@dataclass(frozen=True)
class _DensityPanel:
    """One data set and model, one pair: the τ of every class, and of the shuffled attention."""

    facet: Facet
    pair: Pair
    names: list[str]
    samples: list[_Sample]
    curves: list[tuple[np.ndarray, np.ndarray]]

    @classmethod
    def of(cls, facet: Facet, pair: Pair) -> "_DensityPanel":
        """Estimate the densities of one panel."""
        samples = _samples_by_class(facet.rows, f"tau_{'_'.join(pair)}")
        names = [sample.name for sample in samples]
        if pair[0] == "attention":
            floor = facet.rows[f"tau_shuffled_{pair[1]}"].dropna().to_numpy()
            samples.append(_Sample("shuffled attention", FAINT, floor))
        return cls(facet, pair, names, samples, [density(sample.tau) for sample in samples])

    @property
    def height(self) -> float:
        """The largest density."""
        return max(float(y.max()) for _, y in self.curves)

    def draw(self, axes: Axes, step: float) -> None:
        """The curves, `step` above each other; 0 draws them on top of each other."""
        # the lowest row is the shuffled attention's, also where a pair has none
        lowest = 0 if self.pair[0] == "attention" else 1
        for place, (sample, (x, y)) in enumerate(zip(self.samples, self.curves, strict=True)):
            base = step * (len(self.curves) - 1 - place + lowest)
            colour = sample.colour
            if len(y) != len(x) or not y.any():  # too few values for a curve
                axes.plot(x, np.full(len(x), base), "|", ms=5, color=colour, clip_on=False)
            elif colour == FAINT:
                axes.plot(x, base + y, color=colour, lw=0.9, ls=DASHES)
            else:
                axes.fill_between(x, base, base + y, color=colour, alpha=0.3, linewidth=0)
                axes.plot(x, base + y, color=colour, lw=0.9)


def _frame(axes: Axes, heading: str, values: "pd.Series[float]", *, scale: bool) -> None:
    if not scale:
        axes.set_yticks([])
        axes.spines["left"].set_visible(False)
    axes.axvline(0, lw=0.5, color=INK, zorder=0)
    axes.set_xlim(-1, 1)
    axes.set_xticks([-1, -0.5, 0, 0.5, 1], ["−1", "−.5", "0", ".5", "1"])
    remarks = [f"{values.isna().sum():,} undefined"] if values.isna().any() else []
    title(axes, counted(heading, int(values.notna().sum()), *remarks))


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
        Drawing(
            "correlation_gradient",
            partial(histogram, ("attention", "gradient")),
            ("tau_attention_gradient", "predicted_class"),
            optional=(),
        ),
        Drawing(
            "correlation_leave_one_out",
            partial(histogram, ("attention", "leave_one_out")),
            ("tau_attention_leave_one_out", "predicted_class"),
            optional=(),
        ),
        Drawing(
            "correlation_densities",
            densities,
            DENSITY_METRICS,
            optional=OPTIONAL_DENSITIES,
        ),
    ),
)
