"""Is there another attention, as different as can be, with the same prediction? (Jain & Wallace 2019, section 4.2.2)"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from attnprobe.batch import Task
from attnprobe.errors import UserError
from attnprobe.exact import farthest_attention
from attnprobe.measures import jensen_shannon
from attnprobe.probes.base import DESCRIPTION, LINEAR, Measurement, ReadoutProbe, description, positions
from attnprobe.probes.gradient_adversary import Found, search_adversary
from attnprobe.randomness import Draws
from attnprobe.readout import Readout
from attnprobe.results.metrics import JSD, SHARE, TRUTH, TVD, WEIGHT, Metric

SOURCE, SEARCHED = "Jain & Wallace 2019, section 4.2.2", "not with `restarts=0`"
METRICS = (
    Metric("optimum_jsd", JSD, "farthest attention known within ε", higher_is_better=False, source=SOURCE),
    Metric("optimum_tvd", TVD, "its prediction's distance, at most ε"),
    Metric("optimum_jsd_within", JSD, "the exact optimum at ε and along `curve`, with two classes", step="ε",
           higher_is_better=False, only=LINEAR),
    Metric("upper_bound", JSD, "proved: no attention within ε is farther. Questions: no attention at all is farther, "
           "whatever it predicts (all weight on the least attended position)"),
    Metric("is_exact", TRUTH, "`optimum_jsd` is the optimum; else the optimum lies between it and `upper_bound`"),
    Metric("found_jsd", JSD, "what the gradient search found", higher_is_better=False, source=SOURCE, only=SEARCHED),
    Metric("found_tvd", TVD, "its prediction's distance", only=SEARCHED),
    Metric("feasible_restarts", SHARE, "restarts that ended within ε", only=SEARCHED),
    Metric("reached_share", SHARE, "found / optimum, NaN where nothing but the search is known", only=SEARCHED),
    Metric("max_attention_optimum", WEIGHT, "its largest weight"),
    Metric("max_attention_found", WEIGHT, "its largest weight", only=SEARCHED),
    Metric("top_token_changed_optimum", TRUTH, "another position has the largest weight"),
    Metric("top_token_changed_found", TRUTH, "likewise", only=SEARCHED),
    Metric("optimum_attention", WEIGHT, "the attention itself, sums to 1", step="position"),
    Metric("found_attention", WEIGHT, "likewise", step="position", only=SEARCHED),
    *DESCRIPTION,
)  # fmt: skip
"""See `Adversarial`."""


@dataclass
class Adversarial(ReadoutProbe):
    """The gradient adversary and the true optimum, both within TVD ε of the prediction.

    Yields per example, divergences in nats (0 to ln 2): `found_jsd`, `found_tvd`, `feasible_restarts` (share of the
    restarts that ended within ε); `optimum_jsd`, `optimum_tvd`, `upper_bound` and `is_exact` (1: optimum_jsd is the
    global optimum; 0: it is the best one known and the optimum lies between it and upper_bound); `reached_share` =
    found_jsd / optimum_jsd (NaN where nothing but the search is known); `max_attention`, `max_attention_found`,
    `max_attention_optimum`; `top_token_changed_found`, `top_token_changed_optimum` (0/1); `predicted_class`,
    `content_length`; per content position (step) `found_attention` and `optimum_attention`; and with two classes, where it
    is exact, `optimum_jsd_within` at ε and at every other tolerance of `curve` (step).

    With several labels at once the distance is the mean over the labels, and the optimum is bracketed as it is for three
    classes and more. Where the decoder is not linear in the attention (question answering) the gradient adversary's result
    stands as the optimum's lower bound, and the upper bound is the one that holds whatever the prediction: a tighter one
    would need linear limits of that decoder, which are not computed.

    Attributes:
        epsilon: largest total variation distance of the prediction, 0 to 1 (paper: 0.01; question answering 0.05).
        restarts, steps, learning_rate, penalty, diversity: of the gradient search; restarts=0 switches it off, and
            with it the metrics about what it found.
        start_scale: standard deviation of the initial logits.
        curve: further tolerances like ε: how much of the answer is the choice of ε?
    """

    name: ClassVar[str] = "adversarial"
    metrics = METRICS
    epsilon: float = 0.01
    restarts: int = 5
    steps: int = 500
    learning_rate: float = 0.01
    penalty: float = 500.0
    diversity: float = 1.0
    start_scale: float = 3.0
    curve: Sequence[float] = (0.02, 0.05, 0.1, 0.2)

    def __post_init__(self) -> None:
        if not 0 <= self.epsilon <= 1:
            raise UserError(
                f"probe.adversarial.epsilon={self.epsilon}: expected a total variation distance from 0 to 1"
            )
        if wrong := [one for one in self.curve if not 0 <= one <= 1]:
            raise UserError(f"probe.adversarial.curve: {wrong[0]}: expected total variation distances from 0 to 1")
        if self.restarts < 0 or self.steps < 0:
            raise UserError(f"probe.adversarial: restarts={self.restarts} and steps={self.steps} cannot be negative")

    @property
    def copies(self) -> int:
        """Of every restart: attention, logarithm, gradients, and the optimizer's state; of every two: what lies between."""
        return 1 + 10 * self.restarts + 3 * self.restarts * (self.restarts - 1)

    def measure(self, readout: Readout, draws: Draws) -> Iterator[Measurement]:
        """Yield the measurements of one batch."""
        found = self.search(readout, draws) if self.restarts else None
        optimum = optimum_within(readout, self.epsilon, found)
        attentions = {"optimum": optimum.attention}
        if found is not None:
            attentions["found"] = found.attention
            yield Measurement("found_jsd", found.jsd)
            yield Measurement("found_tvd", found.tvd)
            yield Measurement("feasible_restarts", found.feasible)
            yield Measurement("reached_share", reached_share(found, optimum))
        yield Measurement("optimum_jsd", optimum.jsd)
        yield Measurement("optimum_tvd", optimum.tvd)
        yield Measurement("upper_bound", optimum.upper_bound)
        yield Measurement("is_exact", optimum.is_exact)
        for label, attention in attentions.items():
            yield Measurement(f"max_attention_{label}", attention.amax(-1))
            yield Measurement(f"top_token_changed_{label}", attention.argmax(-1) != readout.attention.argmax(-1))
            yield Measurement(f"{label}_attention", attention, positions(readout.content))
        yield from self.along(readout)
        yield from description(readout)

    def along(self, readout: Readout) -> Iterator[Measurement]:
        """The exact optimum for every tolerance; nothing where it is none or takes long (more than two classes)."""
        logits = readout.position_logits
        if not self.curve or logits is None or readout.task is not Task.SINGLE_LABEL or logits.shape[-1] != 2:
            return
        tolerances = sorted({self.epsilon, *self.curve})
        jsd = [farthest_attention(readout.attention, logits, readout.content, epsilon=one).jsd for one in tolerances]
        yield Measurement("optimum_jsd_within", torch.stack(jsd, -1), torch.tensor(tolerances, dtype=torch.float64))

    def search(self, readout: Readout, draws: Draws) -> Found:
        """Run the gradient adversary."""
        return search_adversary(
            readout,
            self.start_scale * draws.normal(self.restarts, readout.content, readout.example_id),
            epsilon=self.epsilon,
            steps=self.steps,
            learning_rate=self.learning_rate,
            penalty=self.penalty,
            diversity=self.diversity,
        )


@dataclass(frozen=True)
class Optimum:
    """The farthest attention known and how far any could be, per example."""

    attention: Tensor
    jsd: Tensor
    tvd: Tensor
    upper_bound: Tensor
    is_exact: Tensor
    independent: Tensor
    """Whether a solver of its own looked for it, and not the search alone."""


def optimum_within(readout: Readout, epsilon: float, found: Found | None) -> Optimum:
    """The exact solver's answer where there is one, never below what the search found.

    Where the solver only brackets the optimum, a better attention from the search is a better lower bound.
    """
    if readout.position_logits is not None:
        solved = farthest_attention(
            readout.attention, readout.position_logits, readout.content, epsilon=epsilon,
            exclusive=readout.task is Task.SINGLE_LABEL,
        )  # fmt: skip
        everywhere = torch.ones_like(solved.is_exact)
        best = Optimum(solved.attention, solved.jsd, solved.tvd, solved.upper_bound, solved.is_exact, everywhere)
    else:
        nothing = torch.zeros_like(readout.attention[:, 0])
        never = nothing.bool()
        best = Optimum(readout.attention, nothing, nothing, unconstrained_maximum(readout), never, never)
    if found is None:
        return best
    better = ~best.is_exact & (found.jsd > best.jsd)
    return Optimum(
        attention=torch.where(better.unsqueeze(-1), found.attention, best.attention),
        jsd=torch.where(better, found.jsd, best.jsd),
        tvd=torch.where(better, found.tvd, best.tvd),
        upper_bound=best.upper_bound,
        is_exact=best.is_exact,
        independent=best.independent,
    )


def reached_share(found: Found, optimum: Optimum) -> Tensor:
    """What share of the optimum's JSD the search reached, 0 to 1.

    With one content position nothing can move, and the search has reached all there is. Where the search is all that is
    known of the optimum, the share is undefined (NaN).
    """
    share = torch.where(optimum.jsd > 0, found.jsd / optimum.jsd, 1.0)
    return torch.where(optimum.independent, share, torch.nan)


def unconstrained_maximum(readout: Readout) -> Tensor:
    """The largest JSD of any attention at all: everything on the content position with the least weight."""
    least = readout.attention.masked_fill(~readout.content, torch.inf).argmin(-1, keepdim=True)
    alone = torch.zeros_like(readout.attention).scatter(-1, least, 1.0)
    return jensen_shannon(alone, readout.attention)
