"""Does attention agree with gradients and leave-one-out more than an attention without meaning
would?"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import pandas as pd
import torch
from annotated_types import Ge, Gt, Le
from jaxtyping import Float
from torch import Tensor

from attnprobe.core.metrics import TAU, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.core.settings import Number
from attnprobe.evidence.claims import CEILING, MEASURES, Claim
from attnprobe.evidence.evidence import Evidence, Measure, mean_of, skill_of
from attnprobe.evidence.reading import Headline, Reading
from attnprobe.exact.nulls import even, permuted
from attnprobe.importance.nulls import aligned, gradients_under, removals_under
from attnprobe.measures import kendall_tau
from attnprobe.probes.base import DESCRIPTION, Measurement, Probe, Subject

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
    """Kendall's τ-b of attention with gradient × input and with leave-one-out; and the same in the
    same model under other attentions, each compared with the measure taken under it.

    Attributes:
        samples: permuted attentions per text, each with a backward pass of its own.
        share: of the texts, drawn at random; of the others there is no number (NaN).
        removals: with leave-one-out, for which every shortened text is encoded.
    """

    name = "agreement"
    metrics = METRICS
    of_words = True
    buffers_per_sample = 8  # noise, weights, and both measures
    samples: Annotated[int, Ge(2)] = 9
    share: Annotated[Number, Gt(0), Le(1)] = 1.0
    removals: bool = True

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement]:
        # which texts take part depends on the text's number alone
        numbers = subject.batch.example_id.tolist()
        lots = torch.tensor(
            [float(torch.rand(1, generator=draws.generator(number))) for number in numbers]
        )
        chosen = (lots < self.share).to(subject.batch.content.device)
        measures = ["gradient", *(["leave_one_out"] if self.removals else [])]
        metrics = [
            f"tau_{name}_{kind}" for name in measures for kind in ("own", "null", "spread", "best")
        ]
        statistics: dict[str, Float[Tensor, " some"]] = {}
        if chosen.any():
            rows = chosen.nonzero().squeeze(-1)
            batch = subject.batch.rows(rows)
            outputs = subject.outputs.rows(rows)
            readout = subject.classifier.readout(batch, outputs)
            attention = readout.attention
            content = readout.content
            noise, ties = draws.uniform(2 * self.samples, content, readout.example_id).split(
                self.samples
            )
            nulls = permuted(attention, content, noise, ties).attention
            under = torch.cat([attention.unsqueeze(0), nulls])
            gradient = gradients_under(
                subject.classifier, batch, torch.cat([under, even(content).unsqueeze(0)])
            )
            taken = {"gradient": gradient[:-1]}
            statistics["tau_free_gradient"] = kendall_tau(attention, gradient[-1], content)
            if self.removals:
                taken["leave_one_out"] = removals_under(subject.classifier, batch, readout, under)
                statistics["tau_ceiling"] = kendall_tau(
                    gradient[0], taken["leave_one_out"][0], content
                )
            for name, measure in taken.items():
                taus = kendall_tau(under, measure, content)
                best = aligned(attention, measure[0], content)
                statistics[f"tau_{name}_own"] = taus[0]
                statistics[f"tau_{name}_null"], statistics[f"tau_{name}_spread"] = (
                    taus[1:].mean(0),
                    taus[1:].std(0),
                )
                statistics[f"tau_{name}_best"] = kendall_tau(best, measure[0], content)
        for name in ["tau_free_gradient", *metrics, *(["tau_ceiling"] if self.removals else [])]:
            values = torch.full(chosen.shape, torch.nan, dtype=torch.float64, device=chosen.device)
            if statistics:
                values[chosen] = statistics[name].double()
            yield Measurement(name, values)


SMALLEST = 0.1
"""Smallest relevant difference, as a share of the way from permuted weights to the best order of
the same weights."""


def _skill(measure: str) -> Measure:
    # skill of τ; not asked where gradient and leave-one-out do not agree with each other
    skill = skill_of(f"tau_{measure}", reach=2.0)
    ceiling = mean_of("tau_ceiling", reach=2.0, ends=(-1, 1))

    def measured(table: pd.DataFrame) -> Evidence | None:
        own = skill(table)
        most = ceiling(table)
        if own is None or most is None or most.value >= CEILING:
            return own
        return replace(
            own,
            unasked=f"gradient and leave-one-out hardly agree with each other (τ = {most.value:.2f})",
        )

    return Measure((*skill.metrics, *ceiling.metrics), measured)


READING = Reading(
    probe="agreement",
    order=45,
    title="Agreement beyond chance: more than an attention without meaning would?",
    about=(
        "A gradient with the attention held fixed has each weight as a factor, and leave-one-out nearly has. So both "
        "agree with any attention, even one that means nothing. Here they are taken again in the same model, with its "
        "own weights in random order. Then τ with each attention is compared: 0 is as much agreement as a random order "
        "has, 1 is the best order of the same weights. Beside it is a gradient in which attention is not a factor, "
        "that under equal weights. Gradient and leave-one-out are no truth about importance either (Neely et al. "
        "2021). Where they hardly agree with each other, or with themselves under another seed, nothing is asked."
    ),
    claims=tuple(
        Claim(
            name=f"agrees_with_{measure}",
            criterion="agreement",
            level="word",
            speaks="for",
            smallest=SMALLEST,
            statement=f"Attention and {words} rank the words more alike than they do under an attention without meaning",
            source="Jain & Wallace 2019, section 4.1, with a null that keeps the mechanism",
            measure=_skill(measure),
            quantity=f"skill of Kendall's τ-b: 0 under the own weights in random order, 1 at best; up to {SMALLEST} is no "
            f"relevant difference",
            primary=measure == "leave_one_out",
            against=measure,
        )
        for measure, words in MEASURES.items()
    ),
    headlines=(
        *(
            Headline(f"tau_{measure}_{kind}", f"{start}tau(attention, {words}){ending}")
            for measure, words in MEASURES.items()
            for kind, start, ending in (
                ("own", "", ""),
                ("null", "  ", ": weights in random order"),
                ("best", "  ", ": best order"),
            )
        ),
        Headline("tau_free_gradient", "tau(attention, gradient under equal weights)"),
        Headline("tau_ceiling", "tau(gradient, leave-one-out)"),
    ),
)
