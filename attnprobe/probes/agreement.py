"""Does attention agree with gradients and leave-one-out more than a meaningless attention would?"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import pandas as pd
import torch
from annotated_types import Ge, Gt, Le
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.core.batch import Batch
from attnprobe.core.metrics import TAU, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.readout import Readout
from attnprobe.core.settings import Number
from attnprobe.evidence.claims import CEILING, MEASURES, Claim
from attnprobe.evidence.evidence import Evidence, Measure, mean_of, skill_of
from attnprobe.exact.nulls import even, permuted
from attnprobe.importance.nulls import aligned, gradients_under, removals_under
from attnprobe.measures import kendall_tau
from attnprobe.probes.base import DESCRIPTION, Measurement, Probe, Subject
from attnprobe.readings.reading import Headline, Reading

METRICS = (
    Metric(
        "tau_{measure}_own",
        TAU,
        "of attention and the measure (`gradient`, which is gradient × input, or "
        "`leave_one_out`), taken with the attention held fixed",
        higher_is_better=True,
    ),
    Metric(
        "tau_{measure}_null",
        TAU,
        "the same under the own weights in random order, mean of the orders",
    ),
    Metric("tau_{measure}_spread", Scale("τ-b", 0, math.sqrt(2)), "their standard deviation"),
    Metric(
        "tau_{measure}_best",
        TAU,
        "of the own weights in the measure's order: below 1 where weights are level",
    ),
    Metric(
        "tau_free_gradient",
        TAU,
        "of attention and the gradient under equal weights, of which attention is not a factor",
        higher_is_better=True,
    ),
    Metric("tau_ceiling", TAU, "of gradient and leave-one-out"),
    *DESCRIPTION,
)


@dataclass
class Agreement(Probe):
    """Kendall's τ-b of attention with gradient × input and leave-one-out, beside that of a null.

    The null is the same model under its own weights in random order, each compared with the measure
    taken under it.

    Attributes:
        samples: permuted attentions per text, each with a backward pass of its own.
        share: of the texts, drawn at random; the rest have no number (NaN).
        removals: with leave-one-out, for which every shortened text is encoded.
    """

    name = "agreement"
    metrics = METRICS
    of_words = True
    buffers_per_sample = 8  # noise, weights, and both measures
    samples: Annotated[int, Ge(2)] = 9
    share: Annotated[Number, Gt(0), Le(1)] = 0.25
    removals: bool = True

    @property
    def measures(self) -> list[str]:
        """What attention is compared with."""
        return ["gradient", "leave_one_out"] if self.removals else ["gradient"]

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement]:
        """Yield every τ-b, NaN for the texts that are left out."""
        drawn = self.drawn_texts(subject.batch, draws)
        statistics: dict[str, Float[Tensor, " drawn"]] = {}
        if drawn.any():
            statistics = self.statistics(subject, drawn.nonzero().squeeze(-1), draws)

        metrics = ["tau_free_gradient"]
        for measure in self.measures:
            metrics += [f"tau_{measure}_{kind}" for kind in ("own", "null", "spread", "best")]
        if self.removals:
            metrics.append("tau_ceiling")

        for metric in metrics:
            values = torch.full(drawn.shape, torch.nan, dtype=torch.float64, device=drawn.device)
            if metric in statistics:
                values[drawn] = statistics[metric].double()
            yield Measurement(metric, values)

    def drawn_texts(self, batch: Batch, draws: Draws) -> Bool[Tensor, "batch"]:
        """The texts that take part, which depends on the text's number alone."""
        lots = [
            float(torch.rand(1, generator=draws.generator(number)))
            for number in batch.example_id.tolist()
        ]
        return (torch.tensor(lots) < self.share).to(batch.content.device)

    def statistics(
        self, subject: Subject, rows: Int[Tensor, "drawn"], draws: Draws
    ) -> dict[str, Float[Tensor, "drawn"]]:
        """Metric → its value for these rows of the batch."""
        classifier = subject.classifier
        batch = subject.batch.rows(rows)
        readout = classifier.readout(batch, subject.outputs.rows(rows))
        attention = readout.attention
        content = readout.content
        attentions = torch.cat([attention.unsqueeze(0), self.nulls(readout, draws)])

        # the last gradient is that under equal weights, of which attention is not a factor
        with_even = torch.cat([attentions, even(content).unsqueeze(0)])
        gradients = gradients_under(classifier, batch, with_even)
        importances = {"gradient": gradients[:-1]}
        statistics = {"tau_free_gradient": kendall_tau(attention, gradients[-1], content)}
        if self.removals:
            removals = removals_under(classifier, batch, readout, attentions)
            importances["leave_one_out"] = removals
            statistics["tau_ceiling"] = kendall_tau(gradients[0], removals[0], content)

        for measure, importance in importances.items():
            taus = kendall_tau(attentions, importance, content)
            statistics[f"tau_{measure}_own"] = taus[0]
            statistics[f"tau_{measure}_null"] = taus[1:].mean(0)
            statistics[f"tau_{measure}_spread"] = taus[1:].std(0)
            statistics[f"tau_{measure}_best"] = kendall_tau(
                aligned(attention, importance[0], content), importance[0], content
            )
        return statistics

    def nulls(self, readout: Readout, draws: Draws) -> Float[Tensor, "samples drawn seq"]:
        """The texts' own weights in random order."""
        uniform = draws.uniform(2 * self.samples, readout.content, readout.example_id)
        noise, ties = uniform.split(self.samples)
        return permuted(readout.attention, readout.content, noise, ties).attention


SMALLEST = 0.1
"""Smallest relevant difference, as a share of the way from permuted weights to the best order of
the same weights."""


def _skill(measure: str) -> Measure:
    """The skill of τ, which is not asked where gradient and leave-one-out do not agree either."""
    skill = skill_of(f"tau_{measure}", reach=2.0)
    ceiling = mean_of("tau_ceiling", reach=2.0, ends=(-1, 1))

    def number(table: pd.DataFrame) -> Evidence | None:
        evidence = skill(table)
        most = ceiling(table)
        if evidence is None or most is None or most.value >= CEILING:
            return evidence
        return replace(
            evidence,
            unasked=(
                f"gradient and leave-one-out hardly agree with each other (τ = {most.value:.2f})"
            ),
        )

    return Measure((*skill.metrics, *ceiling.metrics), number)


def _claim(measure: str, words: str) -> Claim:
    return Claim(
        name=f"agrees_with_{measure}",
        criterion="agreement",
        level="word",
        speaks="for",
        smallest=SMALLEST,
        statement=(
            f"Attention and {words} rank the words more alike than they do under an attention "
            f"without meaning"
        ),
        source="Jain & Wallace 2019, section 4.1, with a null that keeps the mechanism",
        measure=_skill(measure),
        quantity=(
            f"skill of Kendall's τ-b: 0 under the own weights in random order, 1 at best; up to "
            f"{SMALLEST} is no relevant difference"
        ),
        primary=measure == "leave_one_out",
        against=measure,
    )


def _measure_headlines(measure: str, words: str) -> tuple[Headline, ...]:
    title = f"tau(attention, {words})"
    return (
        Headline(f"tau_{measure}_own", title),
        Headline(f"tau_{measure}_null", f"  {title}: weights in random order"),
        Headline(f"tau_{measure}_best", f"  {title}: best order"),
    )


READING = Reading(
    probe="agreement",
    order=45,
    title="Agreement beyond chance: more than an attention without meaning would?",
    about=(
        "A gradient with the attention held fixed has each weight as a factor, and leave-one-out "
        "nearly has. So both agree with any attention, even one that means nothing. Here they "
        "are taken again in the same model, with its own weights in random order. Then τ with "
        "each attention is compared: 0 is as much agreement as a random order has, 1 is the best "
        "order of the same weights. Beside it is a gradient in which attention is not a factor, "
        "that under equal weights. Gradient and leave-one-out are no truth about importance "
        "either (Neely et al. 2021). Where they hardly agree with each other, or with themselves "
        "under another seed, nothing is asked."
    ),
    claims=tuple(_claim(measure, words) for measure, words in MEASURES.items()),
    headlines=(
        *_measure_headlines("leave_one_out", MEASURES["leave_one_out"]),
        *_measure_headlines("gradient", MEASURES["gradient"]),
        Headline("tau_free_gradient", "tau(attention, gradient under equal weights)"),
        Headline("tau_ceiling", "tau(gradient, leave-one-out)"),
    ),
)
