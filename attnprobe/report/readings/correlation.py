"""Does attention agree with gradients and leave-one-out? (Jain & Wallace 2019, section 4.1)"""

from itertools import permutations

import numpy as np
import pandas as pd

from attnprobe.report.claims import Claim
from attnprobe.report.evidence import mean_of
from attnprobe.report.figures.correlation import (
    PROBE,
    PUBLISHED,
    densities,
    gradient_histogram,
    leave_one_out_histogram,
)
from attnprobe.report.importances import facts_of, importances_in
from attnprobe.report.reading import Column, Drawing, Headline, Reading
from attnprobe.report.readings.leave_one_out import checked
from attnprobe.results.statistics import discovered

LEVEL = 0.05
"""Of the p-values."""
NEARLY_EVEN = 0.95
"""Attention whose entropy is a larger share of ln n has hardly an order that could agree with anything."""


def significant(p: np.ndarray) -> np.ndarray:
    """1 where p ≤ 0.05, 0 where it is larger, NaN where it is undefined."""
    return np.where(np.isnan(p), np.nan, p <= LEVEL)


def headlines(first: str, second: str, words: str) -> tuple[Headline, ...]:
    """The numbers of one pair of measures, called by these words."""
    pair, paper = f"{first}_{second}", PUBLISHED.get((first, second))
    tau, p = f"tau_{pair}", f"p_{pair}"

    def beside(number: str) -> str | None:
        return None if paper is None else f"{paper}_{number}"

    return (
        Headline(tau, f"tau({words})", published=beside("mean"), by_class=True),
        Headline(
            tau, "  standard deviation", published=beside("std"), by_class=True, name=f"{tau}_std", spread=True
        ),
        Headline(
            p, "  share with p <= 0.05", published=beside("fraction_significant"), by_class=True,
            name=f"significant_{pair}", transform=significant,
        ),
        Headline(
            p, "  the same, false discoveries held at 5 %", by_class=True, name=f"discovered_{pair}",
            transform=discovered,
        ),
        Headline(
            tau, "  tau where attention is not nearly even", name=f"{tau}_uneven",
            at_most=("attention_evenness", NEARLY_EVEN),
        ),
        Headline(f"tau_words_{pair}", "  tau over content words"),
        Headline(f"top_tau_{pair}", "  tau of the top tokens"),
        Headline(f"top_overlap_{pair}", "  overlap of the top tokens"),
    )  # fmt: skip


def floor(importance: str, words: str) -> Headline:
    """How large |τ| is by chance."""
    metric = f"tau_shuffled_{importance}"
    return Headline(metric, f"|tau|(shuffled attention, {words})", name=f"{metric}_absolute", transform=np.abs)


def _needs(*metrics: str) -> tuple[tuple[str, str], ...]:
    return tuple((PROBE, metric) for metric in metrics)


SOURCE = "Jain & Wallace 2019, section 4.1"
CEILING = "tau_gradient_leave_one_out"


CLAIMS = (
    Claim(
        name="attention_agrees_as_the_gradient_does",
        criterion="agreement",
        statement="Attention agrees with leave-one-out better than the gradient does",
        source=SOURCE,
        measure=mean_of("tau_attention_leave_one_out", CEILING, value=np.subtract),
        quantity="τ(attention, leave-one-out) minus τ(gradient, leave-one-out), mean of the examples, −2 to 2",
        speaks="for",
        level="word",
        smallest=0.05,
    ),
)
"""Whether attention agrees more than an attention without meaning would is asked by the probe `agreement`: against a
shuffled attention alone, whatever a gradient contains as a factor agrees with it."""


def of_importance(name: str, title: str) -> tuple[Headline, ...]:
    """The numbers of attention and one further importance."""
    return (*headlines("attention", name, f"attention, {title}"), floor(name, title))


def ceilings(results: pd.DataFrame) -> tuple[Headline, ...]:
    """The numbers of the pairs without the attention: how well other measures agree with each other."""
    there = importances_in(results, PROBE, "tau_")
    names = [name for name in importances_in(results, PROBE, "tau_shuffled_") if f"attention_{name}" in there]
    pairs = [pair for pair in permutations(names, 2) if "_".join(pair) in there]
    words = {name: facts_of(name, results, PROBE).ascii_title for name in names}
    return tuple(one for first, second in pairs for one in headlines(first, second, f"{words[first]}, {words[second]}"))


READING = Reading(
    probe=PROBE,
    of_importance=of_importance,
    mark="tau_attention_",
    order=50,
    noted=checked,
    title="Agreement: do attention, gradients and leave-one-out rank the words alike?",
    about=(
        "Kendall's τ-b between two rankings of a text's words, −1 (reversed) over 0 (unrelated) to 1 (the same), mean over "
        "the texts. Gradient against leave-one-out is shown as a ceiling, a shuffled attention as a floor. Low "
        "agreement does not say which of the two measures is wrong: neither gradients nor leave-one-out is a ground truth, "
        "τ over all words is ruled by the many weights near 0, and it depends on the length of the text (Neely et al. 2021). "
        "So this is called agreement, not faithfulness."
    ),
    claims=CLAIMS,
    columns=(
        Column("tau_attention_gradient", "disagreement with the gradient, 1 − τ", one_minus=True),
        Column("tau_attention_leave_one_out", "disagreement with leave-one-out, 1 − τ", one_minus=True),
    ),
    headlines=(Headline("attention_evenness", "evenness of the attention (1: uniform)"),),
    closing=ceilings,
    drawings=(
        Drawing(
            "correlation_gradient",
            gradient_histogram,
            _needs("tau_attention_gradient", "predicted_class"),
            optional=(),
        ),
        Drawing(
            "correlation_leave_one_out",
            leave_one_out_histogram,
            _needs("tau_attention_leave_one_out", "predicted_class"),
            optional=(),
        ),
        Drawing(
            "correlation_densities", densities,
            _needs(*(f"tau_{'_'.join(pair)}" for pair in PUBLISHED), "tau_shuffled_gradient", "predicted_class"),
            optional=_needs("tau_shuffled_leave_one_out"),
        ),
    ),
)  # fmt: skip
