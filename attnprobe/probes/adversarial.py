"""Is there another attention, as different as can be, with the same prediction?

Jain & Wallace 2019, section 4.2.2.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from torch import Tensor
from torch.nn.functional import hardshrink
from torch.optim.adam import adam

from attnprobe.core.batch import Task
from attnprobe.core.clock import CLOCK
from attnprobe.core.metrics import JSD, SHARE, TRUTH, TVD, WEIGHT, Metric
from attnprobe.core.randomness import Draws
from attnprobe.core.readout import Readout
from attnprobe.core.settings import NotNegative, Portion, Positive, Whole
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import Evidence, Measure, as_truth, by_run, mean_of, share_of
from attnprobe.evidence.statistics import wilson_of_runs
from attnprobe.exact import FarthestAttention, farthest_attention
from attnprobe.measures import LN2, jensen_shannon
from attnprobe.plots.grid import around, counted, facet_grid, from_zero, grid, quarters, title
from attnprobe.plots.heatmap import METRICS as HEATMAP_METRICS
from attnprobe.plots.heatmap import heatmaps, telling_examples
from attnprobe.plots.style import CLASS_COLOURS, FAINT, FOUND, INK, OPTIMUM, box
from attnprobe.probes.base import DESCRIPTION, LINEAR, Measurement, ReadoutProbe, positions
from attnprobe.readings.reading import Column, Drawing, Headline, HeatMap, Reading
from attnprobe.results import pivot
from attnprobe.results.pivot import Facet

SOURCE = "Jain & Wallace 2019, section 4.2.2"
SEARCHED = "not with `restarts=0`"
METRICS = (
    Metric(
        "optimum_jsd",
        JSD,
        "farthest attention known within ε",
        higher_is_better=False,
        source=SOURCE,
    ),
    Metric("optimum_tvd", TVD, "its prediction's distance, at most ε"),
    Metric(
        "optimum_jsd_within",
        JSD,
        "the exact optimum at ε and along `curve`, with two classes",
        step="ε",
        higher_is_better=False,
        only=LINEAR,
    ),
    Metric(
        "upper_bound",
        JSD,
        "proved: no attention within ε is farther. Questions: no attention at all is farther, "
        "whatever it predicts (all weight on the least attended position)",
    ),
    Metric(
        "is_exact",
        TRUTH,
        "`optimum_jsd` is the optimum; else the optimum lies between it and `upper_bound`",
    ),
    Metric(
        "found_jsd",
        JSD,
        "what the gradient search found",
        higher_is_better=False,
        source=SOURCE,
        only=SEARCHED,
    ),
    Metric("found_tvd", TVD, "its prediction's distance", only=SEARCHED),
    Metric("feasible_restarts", SHARE, "restarts that ended within ε", only=SEARCHED),
    Metric(
        "reached_share",
        SHARE,
        "found / optimum, NaN where nothing but the search is known",
        only=SEARCHED,
    ),
    Metric("max_attention_optimum", WEIGHT, "its largest weight"),
    Metric("max_attention_found", WEIGHT, "its largest weight", only=SEARCHED),
    Metric("top_token_changed_optimum", TRUTH, "another position has the largest weight"),
    Metric("top_token_changed_found", TRUTH, "likewise", only=SEARCHED),
    Metric("optimum_attention", WEIGHT, "the attention itself, sums to 1", step="position"),
    Metric("found_attention", WEIGHT, "likewise", step="position", only=SEARCHED),
    *DESCRIPTION,
)


@dataclass
class Adversarial(ReadoutProbe):
    """The gradient adversary and the true optimum, both within TVD ε of the prediction.

    With three classes and more, or several labels, the optimum is bracketed. Where the decoder is
    not linear (question answering) the search's result is its lower bound, and the upper bound is
    the one that holds whatever the prediction.

    Attributes:
        epsilon: largest total variation distance of the prediction, 0 to 1 (paper: 0.01; question
            answering 0.05).
        restarts: of the gradient search; 0 switches it off, and with it the metrics of its result.
        steps: of Adam, for each restart.
        learning_rate: of Adam.
        penalty: weight of the TVD's excess over ε in the search's objective.
        diversity: weight of the restarts' mean distance from each other in that objective.
        start_scale: standard deviation of the initial logits.
        curve: further tolerances like ε: how much of the answer is the choice of ε?
    """

    name = "adversarial"
    metrics = METRICS
    epsilon: Portion = 0.01
    restarts: Whole = 5
    steps: Whole = 500
    learning_rate: Positive = 0.01
    penalty: NotNegative = 500.0
    diversity: NotNegative = 1.0
    start_scale: NotNegative = 3.0
    curve: Sequence[Portion] = (0.02, 0.05, 0.1, 0.2)

    @property
    def peak_buffers(self) -> int:
        """For every restart attention, logarithm, gradients and Adam's state; and every pair's."""
        return 1 + 10 * self.restarts + 3 * self.restarts * (self.restarts - 1)

    def measure(self, readout: Readout, draws: Draws) -> Iterator[Measurement]:
        """Yield what the search reached, the optimum or its bounds, and both attentions."""
        optimum = self.optimum(readout)
        adversary = self.search(readout, draws) if self.restarts else None
        if adversary is not None:
            optimum = raised_to(adversary, optimum)
            # with one content position nothing can move, and the search has reached all there is
            reached = torch.where(optimum.jsd > 0, adversary.jsd / optimum.jsd, 1.0)
            if readout.position_logits is None:
                reached = torch.full_like(reached, torch.nan)
            yield Measurement("found_jsd", adversary.jsd)
            yield Measurement("found_tvd", adversary.tvd)
            yield Measurement("feasible_restarts", adversary.feasible)
            yield Measurement("reached_share", reached)

        yield Measurement("optimum_jsd", optimum.jsd)
        yield Measurement("optimum_tvd", optimum.tvd)
        yield Measurement("upper_bound", optimum.upper_bound)
        yield Measurement("is_exact", optimum.is_exact)
        yield from attention_measurements("optimum", optimum.attention, readout)
        if adversary is not None:
            yield from attention_measurements("found", adversary.attention, readout)
        yield from self.optima_along_curve(readout)

    def optimum(self, readout: Readout) -> FarthestAttention:
        """What is proved about the farthest attention within ε."""
        if readout.position_logits is not None:
            return farthest_attention(
                readout.attention,
                readout.position_logits,
                readout.content,
                epsilon=self.epsilon,
                exclusive=readout.task is Task.SINGLE_LABEL,
            )
        # without a solver only the attention itself is known, and that it cannot be moved farther
        # than any attention
        zero = torch.zeros_like(readout.attention[:, 0])
        return FarthestAttention(
            attention=readout.attention,
            jsd=zero,
            tvd=zero,
            upper_bound=unconstrained_maximum(readout),
            is_exact=zero.bool(),
        )

    def search(self, readout: Readout, draws: Draws) -> "Adversary":
        """The published gradient search, from random attentions."""
        start = self.start_scale * draws.normal(self.restarts, readout.content, readout.example_id)
        return search_adversary(
            readout,
            start,
            epsilon=self.epsilon,
            steps=self.steps,
            learning_rate=self.learning_rate,
            penalty=self.penalty,
            diversity=self.diversity,
        )

    def optima_along_curve(self, readout: Readout) -> Iterator[Measurement]:
        """The exact optimum for every tolerance, for two classes, where it has a closed form."""
        logits = readout.position_logits
        single = readout.task is Task.SINGLE_LABEL
        if not self.curve or logits is None or not single or logits.shape[-1] != 2:
            return
        tolerances = sorted({self.epsilon, *self.curve})
        optima = [
            farthest_attention(readout.attention, logits, readout.content, epsilon=tolerance)
            for tolerance in tolerances
        ]
        jsd = torch.stack([optimum.jsd for optimum in optima], -1)
        step = torch.tensor(tolerances, dtype=torch.float64)
        yield Measurement("optimum_jsd_within", jsd, step)


def attention_measurements(
    label: str, attention: Float[Tensor, "batch seq"], readout: Readout
) -> Iterator[Measurement]:
    """Another attention itself, its largest weight, and whether that is on another position."""
    yield Measurement(f"max_attention_{label}", attention.amax(-1))
    top_changed = attention.argmax(-1) != readout.attention.argmax(-1)
    yield Measurement(f"top_token_changed_{label}", top_changed)
    yield Measurement(f"{label}_attention", attention, positions(readout.content, readout.text))


def raised_to(adversary: "Adversary", optimum: FarthestAttention) -> FarthestAttention:
    """The optimum where it is exact; else the farther of the solver's attention and the search's.

    Where the solver only brackets the optimum, a farther attention is a better lower bound.
    """
    farther = ~optimum.is_exact & (adversary.jsd > optimum.jsd)
    return replace(
        optimum,
        attention=torch.where(farther.unsqueeze(-1), adversary.attention, optimum.attention),
        jsd=torch.where(farther, adversary.jsd, optimum.jsd),
        tvd=torch.where(farther, adversary.tvd, optimum.tvd),
    )


def unconstrained_maximum(readout: Readout) -> Float[Tensor, "batch"]:
    """The largest JSD (nats) of any attention at all, whatever it predicts.

    It has everything on the content position with the least weight.
    """
    least = readout.attention.masked_fill(~readout.content, torch.inf).argmin(-1, keepdim=True)
    peaked = torch.zeros_like(readout.attention).scatter(-1, least, 1.0)
    return jensen_shannon(peaked, readout.attention)


# The published search

FLOOR = 1e-18
"""Weights count as at least this in logarithms: the gradient of a logit has the weight as a factor,
so what it changes is far below the 1e-8 that Adam adds to its denominator."""
OUTSIDE = -1e4
"""Logit of a position outside content: its weight is exactly 0, and 0 times it is 0, as it would
not be with −∞."""


@dataclass(frozen=True)
class Adversary:
    """What the search ended with, per example.

    Attributes:
        attention: the farthest feasible end point; the original where no restart is feasible.
        jsd: its Jensen-Shannon divergence from the original in nats, 0 to ln 2.
        tvd: total variation distance of its prediction, 0 to ε.
        feasible: share of the restarts that ended within ε, 0 to 1.
    """

    attention: Float[Tensor, "batch seq"]
    jsd: Float[Tensor, "batch"]
    tvd: Float[Tensor, "batch"]
    feasible: Float[Tensor, "batch"]


@torch.no_grad()
def search_adversary(
    readout: Readout,
    start: Float[Tensor, "restarts batch seq"],
    *,
    epsilon: float,
    steps: int = 500,
    learning_rate: float = 0.01,
    penalty: float = 500.0,
    diversity: float = 1.0,
) -> Adversary:
    """Adam (amsgrad) on the attention's logits, all examples and restarts at once.

    The restarts r of an example together minimise

        Σ_r −JSD(a_r, α) + penalty · max(0, TVD(ŷ(a_r), ŷ) − ε)
            − diversity · mean over restarts q, s of JSD(a_q, a_s)

    and its last iterate counts. Adam works coordinate by coordinate and examples share no
    coordinate, so an example's result does not depend on its batch.

    Args:
        readout: the frozen map from attention to prediction.
        start: initial logits; the paper's are a constant plus 3 · N(0, 1).
        epsilon: the largest TVD (0 to 1) that counts as the same prediction.
        steps: of Adam.
        learning_rate: of Adam.
        penalty: weight of the TVD's excess over ε.
        diversity: weight of the restarts' mean distance from each other.

    Note:
        The gradient is written out instead of built by autograd in every step: the same search at a
        fraction of the time. The published code returns every restart and leaves the choice to its
        plots, which filter at 0.05 whatever ε was optimised; here ε is one number.
    """
    logits = start.masked_fill(~readout.content, OUTSIDE).contiguous()
    prediction = readout.prediction()
    mean = torch.zeros_like(logits)
    square = torch.zeros_like(logits)
    largest = torch.zeros_like(logits)
    step_count = torch.zeros((), device=logits.device)
    for _ in CLOCK.track(range(steps), "search", "steps"):
        gradient = objective_gradient(
            logits, readout, prediction, epsilon=epsilon, penalty=penalty, diversity=diversity
        )
        # PyTorch's Adam without the hooks of an optimizer object: a tenth of a step's time
        adam(
            [logits],
            [gradient],
            [mean],
            [square],
            [largest],
            [step_count],
            fused=True,
            amsgrad=True,
            beta1=0.9,
            beta2=0.999,
            lr=learning_rate,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
        )
    return farthest_feasible(readout, _softmax(logits), epsilon)


def farthest_feasible(
    readout: Readout, attention: Float[Tensor, "restarts batch seq"], epsilon: float
) -> Adversary:
    """The farthest of each example's end points that predicts the same, within TVD ε."""
    tvd = readout.distance(readout.predict(attention), readout.prediction())
    jsd = jensen_shannon(attention, readout.attention)
    feasible = tvd <= epsilon
    score, best = jsd.masked_fill(~feasible, -1.0).max(0)

    infeasible = score < 0
    zero = torch.zeros_like(score)
    rows = torch.arange(attention.shape[1], device=attention.device)
    return Adversary(
        attention=torch.where(infeasible.unsqueeze(-1), readout.attention, attention[best, rows]),
        jsd=torch.where(infeasible, zero, jsd[best, rows]),
        tvd=torch.where(infeasible, zero, tvd[best, rows]),
        feasible=feasible.double().mean(0),
    )


def _softmax(logits: Tensor) -> Tensor:
    # on a CPU a third of the time of PyTorch's own for rows as short as texts
    weights = torch.sub(logits, logits.amax(-1, keepdim=True)).exp_()
    return weights.div_(weights.sum(-1, keepdim=True))


def objective_gradient(
    logits: Float[Tensor, "restarts batch seq"],
    readout: Readout,
    prediction: Float[Tensor, "batch classes"],
    *,
    epsilon: float,
    penalty: float,
    diversity: float,
) -> Float[Tensor, "restarts batch seq"]:
    """The gradient of the search's objective with respect to the logits.

    With u the gradient with respect to the weights a_r, that of the logits is a_r · (u − Σ a_r u):
    whatever is constant over a text's positions cancels. Therefore ln a_r is as good as the logits
    themselves, and with R restarts

        u = −½ ln(2a_r / (a_r + α)) − w Σ_s ln(2a_r / (a_r + a_s)) + penalty · excess
          = −(½ + w(R − 1)) logits + ½ ln(a_r + α) + w ln Π_s (a_r + a_s) + penalty · excess
            + constant

    where w = diversity / R²: the mean runs over all ordered pairs, as published, which doubles d
    JSD(p, q)/dp = ½ ln(2p / (p + q)). Products of as many sums as cannot underflow share one
    logarithm. The excess is the gradient of max(0, TVD(ŷ(a), ŷ) − ε).

    Args:
        logits: of the attentions.
        readout: the frozen map from attention to prediction.
        prediction: ŷ, under the model's own attention.
        epsilon: see `search_adversary`, as the next two.
        penalty: weight of the excess.
        diversity: weight of the restarts' mean distance from each other.
    """
    restarts = len(logits)
    weight = diversity / restarts**2
    attention = _softmax(logits)
    floored = attention.clamp_min(FLOOR)
    gradient = logits * (-0.5 - weight * (restarts - 1))
    gradient.add_((floored + readout.attention).log_(), alpha=0.5)

    factors = int(math.log(torch.finfo(logits.dtype).tiny) / math.log(FLOOR))
    ring = torch.cat([floored, floored])  # the restarts twice: every rotation is a view
    for first in range(1, restarts, factors):
        product = floored + ring[first : first + restarts]
        for turn in range(first + 1, min(first + factors, restarts)):
            product.mul_(floored + ring[turn : turn + restarts])
        gradient.add_(product.log_(), alpha=weight)

    z = readout.position_logits
    if z is None or readout.task is not Task.SINGLE_LABEL:
        _add_excess_by_autograd(gradient, attention, readout, prediction, epsilon, penalty)
    elif z.shape[-1] == 2:
        _add_excess_of_two_classes(gradient, attention, z, prediction, epsilon, penalty)
    else:
        _add_excess_of_several_classes(gradient, attention, z, prediction, epsilon, penalty)
    mean = (attention * gradient).sum(-1, keepdim=True)
    return torch.addcmul(attention * gradient, attention, mean, value=-1)


def _add_excess_by_autograd(
    gradient: Tensor,
    attention: Tensor,
    readout: Readout,
    prediction: Tensor,
    epsilon: float,
    penalty: float,
) -> None:
    with torch.enable_grad():
        variable = attention.detach().requires_grad_()
        excess = (readout.distance(readout.predict(variable), prediction) - epsilon).relu()
        (slope,) = torch.autograd.grad(excess.sum(), variable)
    gradient.add_(slope, alpha=penalty)


def _add_excess_of_two_classes(
    gradient: Tensor,
    attention: Tensor,
    position_logits: Tensor,
    prediction: Tensor,
    epsilon: float,
    penalty: float,
) -> None:
    # p₁ is the logistic function of one number, d · a, and the TVD is |p₁ − ŷ₁|
    d = position_logits[..., 1] - position_logits[..., 0]
    p = (attention * d).sum(-1, keepdim=True).sigmoid_()
    slope = torch.addcmul(p, p, p, value=-1)  # p(1 − p)
    slope.mul_(hardshrink(p.sub_(prediction[:, 1:]), epsilon).sign_())  # 0 within ε
    gradient.addcmul_(slope, d, value=penalty)


def _add_excess_of_several_classes(
    gradient: Tensor,
    attention: Tensor,
    position_logits: Tensor,
    prediction: Tensor,
    epsilon: float,
    penalty: float,
) -> None:
    # with s = sign(p − ŷ) outside ε, d TVD/d logit_k = ½ p_k (s_k − Σ p s)
    p = torch.bmm(attention.transpose(0, 1), position_logits).softmax(-1)
    difference = p - prediction.unsqueeze(1)
    outside = difference.abs().sum(-1, keepdim=True) > 2 * epsilon
    signed = p * difference.sign_() * outside
    slope = torch.addcmul(signed, p, signed.sum(-1, keepdim=True), value=-1)
    classes_first = position_logits.transpose(1, 2).contiguous()
    gradient.add_(torch.bmm(slope, classes_first).transpose(0, 1), alpha=0.5 * penalty)


# Claims

FAR = 0.4
"""Nats of JSD from which two attentions are called different, of at most ln 2 = 0.69.

It is the bound above which Wiegreffe & Pinter list their best adversaries. Attentions on different
words altogether have ln 2."""
is_near = as_truth(lambda jsd: jsd <= FAR)


def _near_share(table: pd.DataFrame) -> Evidence | None:
    """The share of the texts without a far attention.

    Where the optimum is only bracketed, the best attention known counts for the upper end of the
    interval and the certified upper bound for the lower end: that none was found does not say that
    there is none.
    """
    evidence = share_of("optimum_jsd", value=is_near)(table)
    proof = share_of("upper_bound", value=is_near)(table)
    if evidence is None or proof is None:
        return None
    return replace(evidence, low=proof.low)


def _missing_jsd(jsd: np.ndarray, optimum: np.ndarray, reached: np.ndarray) -> np.ndarray:
    """How far the search ended below the optimum, NaN where nothing but the search is known."""
    return np.where(np.isnan(reached), np.nan, optimum - jsd)


CLAIMS = (
    Claim(
        name="no_other_attention_exists",
        criterion="exclusivity",
        statement="For most texts no very different attention gives the same prediction",
        source=f"{SOURCE}, asked the other way round and of the exact optimum",
        measure=Measure(("optimum_jsd", "upper_bound"), _near_share),
        quantity=(
            f"share of the texts without such an attention, JSD > {FAR} nats within ε; more than "
            "half is asked for. That a search found none is no proof: what is not proved counts "
            "against the lower end"
        ),
        threshold=0.5,
        speaks="for",
        level="state",
        smallest=0.01,
        primary=True,
    ),
    Claim(
        name="the_search_falls_short",
        criterion="exclusivity",
        statement="The published gradient search ends below the largest JSD that there is",
        source=f"attnprobe: the search of {SOURCE}, compared with the exact solver",
        measure=mean_of(
            "found_jsd",
            "optimum_jsd",
            "reached_share",
            value=_missing_jsd,
            ends=(-LN2, LN2),
        ),
        # 0.01 nats is the smallest relevant difference, far below what the figures can show
        quantity=(
            "JSD of the farthest attention known minus that of the one found, nats; more than "
            "0.01 is asked for"
        ),
        threshold=0.01,
        level="state",
    ),
)

# Figures

EDGES = np.linspace(0, 0.7, 41)
TICKS = [0, 0.2, 0.4, 0.6, LN2]
TICK_LABELS = ["0", "0.2", "0.4", "0.6", "ln 2"]
DASHES = (0, (2, 1.5))
MOST_PANELS = 12
"""With more panels, one for each class of each run, a figure would not fit a page."""
FIGURE_METRICS = (
    "found_jsd",
    "optimum_jsd",
    "upper_bound",
    "is_exact",
    "max_attention",
    "predicted_class",
)


def adversarial_jsd(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """How far an attention with the same prediction may be from the model's, in JSD.

    Filled: what the gradient search found. Lines: the true largest one, or the limits that are
    proved for it.

    Jain & Wallace's figure 7, with the truth next to the search: 40 bins from 0 to 0.7 nats, ln 2
    marked.
    """
    figure, panels = facet_grid(results, "adversarial", FIGURE_METRICS, panel_height=1.75)
    for panel, facet in panels:
        _draw_histograms(panel, facet)
    from_zero([panel for panel, _ in panels])

    any_bound = any(_is_bracketed(facet.rows) for _, facet in panels)
    optimum = "farthest known" if any_bound else "exact optimum"
    handles: list[Patch | Line2D] = [
        Patch(facecolor=FOUND, alpha=0.55, label="gradient adversary"),
        Line2D([], [], color=OPTIMUM, lw=1.2, label=optimum),
    ]
    if any_bound:
        handles.append(Line2D([], [], color=INK, lw=0.8, ls=DASHES, label="certified upper bound"))
    around(
        figure,
        x="largest JSD with the same prediction (nats)",
        y="share of examples",
        handles=handles,
    )
    return figure


def _is_bracketed(rows: pd.DataFrame) -> bool:
    return bool((rows["is_exact"] == 0).any())


def _draw_histograms(panel: Axes, facet: Facet) -> None:
    searched = _shares(facet.rows["found_jsd"])
    panel.stairs(searched, EDGES, fill=True, color=FOUND, alpha=0.55, linewidth=0)
    panel.stairs(_shares(facet.rows["optimum_jsd"]), EDGES, color=OPTIMUM, linewidth=1.2)
    remarks = []
    if _is_bracketed(facet.rows):
        bound = _shares(facet.rows["upper_bound"])
        panel.stairs(bound, EDGES, color=INK, linewidth=0.8, linestyle=DASHES)
        remarks = [f"{100 * (facet.rows['is_exact'] == 1).mean():.0f} % exact"]
    panel.axvline(LN2, lw=0.6, color=FAINT, zorder=0)
    panel.set_xlim(0, 0.7)
    panel.set_xticks(TICKS, TICK_LABELS)  # below the axis, where no histogram can run into it
    title(panel, counted(facet.title, len(facet.rows), *remarks))


def _shares(values: "pd.Series[float]") -> Float[np.ndarray, "bins"]:
    jsd = values.dropna().to_numpy()
    counts, _ = np.histogram(np.clip(jsd, EDGES[0], EDGES[-1]), EDGES)
    return counts / max(1, len(jsd))


def adversarial_by_attention(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Each dot is a text. Higher: another attention would do as well.

    The largest JSD against the largest attention weight. Boxes are quartiles and median, whiskers
    the 5th and 95th percentiles.

    Jain & Wallace's figure 8, with what the gradient adversary found (left boxes) beside the
    optimum (right ones).
    """
    facets = pivot.facets(pivot.per_example(results, "adversarial", FIGURE_METRICS))
    panels = []
    for facet in facets:
        for name, rows in pivot.split_by_class(facet.rows, len(CLASS_COLOURS)):
            panels.append((f"{facet.title} · {name}", rows))
    if len(panels) > MOST_PANELS:
        panels = [(facet.title, facet.rows) for facet in facets]

    figure, axes = grid(len(panels), panel_height=1.9)
    for panel, (heading, rows) in zip(axes, panels, strict=True):
        _draw_by_attention(panel, rows)
        title(panel, heading)
    is_exact = results.loc[results["metric"] == "is_exact", "value"]
    optimum = "farthest known" if (is_exact == 0).any() else "exact optimum"
    handles = [
        Patch(facecolor="white", edgecolor=FOUND, label="gradient adversary"),
        Patch(facecolor="white", edgecolor=OPTIMUM, label=optimum),
    ]
    around(figure, x="largest attention weight", y="largest JSD (nats)", handles=handles)
    return figure


def _draw_by_attention(panel: Axes, rows: pd.DataFrame) -> None:
    weight = rows["max_attention"].to_numpy()
    bins = pivot.max_attention_bin(weight)
    _draw_points_and_boxes(panel, weight, bins, rows["found_jsd"].to_numpy(), FOUND, -0.035)
    _draw_points_and_boxes(panel, weight, bins, rows["optimum_jsd"].to_numpy(), OPTIMUM, 0.035)
    panel.axhline(LN2, lw=0.6, color=FAINT, zorder=0)
    quarters(panel, 0.765, [f"n = {np.count_nonzero(bins == number):,}" for number in range(4)])
    panel.set_ylim(0, 0.77)
    panel.set_xticks(pivot.MAX_ATTENTION_EDGES, ["0", ".25", ".5", ".75", "1"])
    panel.set_yticks(TICKS, TICK_LABELS)


def _draw_points_and_boxes(
    panel: Axes, weight: np.ndarray, bins: np.ndarray, jsd: np.ndarray, colour: str, shift: float
) -> None:
    # thousands of points as pixels: the file stays small, all else stays vector
    panel.plot(
        weight,
        jsd,
        ".",
        ms=2.5,
        mew=0,
        alpha=float(np.clip(200 / max(1, len(jsd)), 0.2, 0.6)),
        color=colour,
        rasterized=True,
        zorder=1,
        clip_on=False,
    )
    for number, (low, high) in enumerate(pairwise(pivot.MAX_ATTENTION_EDGES)):
        box(panel, jsd[bins == number], (low + high) / 2 + shift, 0.05, colour)


def exclusivity_by_epsilon(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Share of the texts for which no far attention keeps the prediction, along ε.

    Far is more than 0.2, 0.4 (the claim's) or 0.6 nats; 95 % intervals. How much does the choice of
    either number matter?
    """
    wanted = (results["probe"] == "adversarial") & (results["metric"] == "optimum_jsd_within")
    panels = pivot.facets(pivot.distinct(results[wanted]))
    figure, axes = grid(len(panels), panel_height=1.75)
    colours = dict(zip((0.2, FAR, 0.6), CLASS_COLOURS, strict=False))
    for panel, facet in zip(axes, panels, strict=True):
        for bound, colour in colours.items():
            table = shares_along(facet.rows, bound)
            epsilon = table["epsilon"]
            panel.fill_between(epsilon, table["low"], table["high"], color=colour, alpha=0.2, lw=0)
            panel.plot(epsilon, table["share"], "o-", ms=2.5, lw=1, color=colour)
        panel.axhline(0.5, lw=0.6, color=FAINT, zorder=0)
        title(panel, counted(facet.title, facet.rows["example_id"].nunique()))
    axes[0].set_ylim(0, 1)
    handles = [
        Line2D([], [], color=colour, marker="o", ms=3, label=f"{bound:g} nats")
        for bound, colour in colours.items()
    ]
    around(
        figure,
        x="tolerance ε (TVD of the prediction)",
        y="share without a far attention",
        handles=handles,
        heading="farther than",
    )
    return figure


def shares_along(rows: pd.DataFrame, bound: float) -> pd.DataFrame:
    """Share of the texts whose farthest attention within a tolerance is no farther than the bound.

    Args:
        rows: of `optimum_jsd_within`, the tolerance as `step`.
        bound: JSD in nats.

    Returns:
        A row per tolerance: `epsilon share low high`, with Wilson's 95 % interval over texts and
        seeds; several questions about one text count as their mean.
    """
    is_near = as_truth(lambda jsd: jsd <= bound)
    lines = []
    for epsilon in sorted(rows["step"].unique()):
        at_epsilon = rows[rows["step"] == epsilon].reset_index(drop=True)
        near = is_near(at_epsilon["value"].to_numpy())
        lines.append((epsilon, *wilson_of_runs(by_run(at_epsilon, near))))
    return pd.DataFrame(lines, columns=["epsilon", "share", "low", "high"])


READING = Reading(
    probe="adversarial",
    order=20,
    claims=CLAIMS,
    title="Adversarial attention: how different can it be with the same prediction?",
    about=(
        "How far can another attention be and keep the prediction? The prediction may move by ε "
        "(TVD). How far is said in nats of JSD: 0 is the same attention, and near ln 2 = 0.69 "
        "wholly other words would do as well. The paper's search stands beside the true maximum "
        "(two classes), or beside bounds. The share solved exactly is among the numbers. Where "
        "the decoder is not linear there is only the search, and a bound that any attention "
        "keeps. That such an attention exists does not mean that a model would learn it "
        "(Wiegreffe & Pinter 2019): see the spread over seeds."
    ),
    maps=(
        HeatMap(
            "found_attention",
            "Adversary, found by search",
            "gradient search for a distant attention with the same prediction",
        ),
        HeatMap(
            "optimum_attention",
            "Farthest attention",
            "the most distant attention known with the same prediction",
        ),
    ),
    columns=(
        Column("optimum_jsd", "replaceable by another attention", leads=True),
        Column("found_jsd", "replaceable, as a search found", leads=True),
        Column("upper_bound", "upper bound of the JSD", sorts=False),
        Column("is_exact", "farthest attention is exact", sorts=False, truth=True),
        Column("found_tvd", "TVD of the found adversary", 4, sorts=False),
        Column("optimum_tvd", "TVD of the farthest attention", 4, sorts=False),
    ),
    headlines=(
        Headline(
            "found_jsd",
            "largest JSD, gradient adversary",
            published="adversarial_max_jsd_mean",
            by_class=True,
        ),
        Headline("optimum_jsd", "largest JSD, farthest attention known", by_class=True),
        Headline("upper_bound", "largest JSD, certified upper bound"),
        Headline("is_exact", "share of examples solved exactly"),
        Headline("reached_share", "share of it that the search reached"),
        Headline("top_token_changed_found", "top token changed, gradient adversary"),
        Headline("top_token_changed_optimum", "top token changed, farthest attention known"),
    ),
    drawings=(
        Drawing("adversarial_jsd", adversarial_jsd, FIGURE_METRICS, optional=()),
        Drawing("adversarial_by_attention", adversarial_by_attention, FIGURE_METRICS, optional=()),
        Drawing(
            "exclusivity_by_epsilon", exclusivity_by_epsilon, ("optimum_jsd_within",), optional=()
        ),
        Drawing(
            "adversarial_heatmaps",
            heatmaps,
            ("found_jsd", "optimum_jsd", "max_attention", "found_attention", "optimum_attention"),
            words=True,
            optional=HEATMAP_METRICS,
            examples=telling_examples,
        ),
    ),
)
