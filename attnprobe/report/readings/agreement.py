"""Agreement beyond what an attention without meaning has."""

from dataclasses import replace

import pandas as pd

from attnprobe.report.claims import Claim
from attnprobe.report.evidence import Evidence, Measure, mean_of
from attnprobe.report.reading import Headline, Reading
from attnprobe.report.reliability import CEILING, MEASURES
from attnprobe.report.skill import skill_of

SMALLEST = 0.1
"""Of the way from an attention without meaning to the best order of the same weights, what is worth a word."""


def agreement(measure: str) -> Measure:
    """A measure: skill of τ; not asked where gradient and leave-one-out do not agree with each other."""
    skill, ceiling = skill_of(f"tau_{measure}", reach=2.0), mean_of("tau_ceiling", reach=2.0)

    def measured(table: pd.DataFrame) -> Evidence | None:
        own, most = skill(table), ceiling(table)
        if own is None or most is None or most.value >= CEILING:
            return own
        return replace(own, unasked=f"gradient and leave-one-out hardly agree with each other (τ = {most.value:.2f})")

    return Measure((*skill.metrics, *ceiling.metrics), measured)


READING = Reading(
    probe="agreement",
    order=45,
    title="Agreement beyond chance: more than an attention without meaning would?",
    about=(
        "A gradient with the attention held fixed has each position's weight as a factor, and leave-one-out often nearly so: "
        "both agree with any attention, also with one that means nothing. Here they are taken again in the same model under "
        "its own weights in random order, and τ with each attention is compared: 0 is as much agreement as such an attention "
        "has, 1 the best order of the same weights. Beside it is a gradient in which attention is not a factor, that "
        "under equal weights. Gradient and leave-one-out are no truth about importance either (Neely et al. 2021): where "
        "they hardly agree with each other, or with themselves when the model is trained from another seed, nothing is asked."
    ),
    claims=tuple(
        Claim(
            name=f"agrees_with_{measure}",
            criterion="agreement",
            statement=f"Attention and {words} rank the words more alike than they do under an attention without meaning",
            source="Jain & Wallace 2019, section 4.1, with a null that keeps the mechanism",
            measure=agreement(measure),
            quantity=f"skill of Kendall's τ-b: 0 under the own weights in random order, 1 at best; up to {SMALLEST} is no "
            f"relevant difference",
            speaks="for",
            level="word",
            smallest=SMALLEST,
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
