"""Claims that need two models of one data set: does context, or the kind of encoder, change what attention is worth?

The same examples went through both models, so each claim compares them within the example. Such findings say something
about models; they speak neither for nor against reading one model's attention as an explanation.
"""

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pandas as pd

from attnprobe.evidence.claims import Claim, Finding
from attnprobe.evidence.evidence import Evidence, Measure, over_seeds, values_of
from attnprobe.evidence.reading import facts_of, importances_in
from attnprobe.probes.erasure import removal_share
from attnprobe.results.numbers import Numbers, numbers_of

CONTEXT_FREE = {
    "flannoenc": ("flanrnn", "flanconv"),
    "hannoenc": ("hanrnn", "hanconv"),
    "average_additive": ("lstm_additive", "cnn_additive"),
    "average_dot": ("lstm_dot", "cnn_dot"),
}
"""Model whose encoder sees one word (or sentence) at a time → the same model with an encoder that sees the others."""
CONVOLUTIONAL = {"flanconv": "flanrnn", "hanconv": "hanrnn"}
"""Convolutional model → its recurrent counterpart."""
Comparison = tuple[str, str, str, Claim]
"""A probe, two models as the results' column `model` calls them, and a claim about its long table of both."""


def difference(first: str, second: str, *metrics: str, value: Callable[..., np.ndarray]) -> Measure:
    """A measure: mean over the examples that both models have of the first one's `value(*columns)` minus the second's.

    Bootstrap interval over the examples; each model's value is its mean over seeds. Examples in which the value is
    undefined (NaN) for either model are left out.
    """

    def measure(table: pd.DataFrame) -> Evidence | None:
        of_model = {}
        for model in (first, second):
            rows = values_of(table[table["model"] == model], *metrics)
            if rows is None:
                return None
            values = np.asarray(value(*(rows[metric].to_numpy() for metric in metrics)), np.float64)
            of_model[model] = over_seeds(rows, values)
        evidence = Evidence.of((of_model[first] - of_model[second]).dropna())
        return evidence if evidence.n else None

    return Measure(metrics, measure)


def beyond_optimum(attention: np.ndarray, optimal: np.ndarray, never_flips: np.ndarray) -> np.ndarray:
    """How much larger a share of the items attention's order needs than the smallest set; NaN where nothing flips."""
    return removal_share(attention, never_flips) - removal_share(optimal, never_flips)


def comparisons(importances: Mapping[str, str]) -> Iterator[Comparison]:
    """All claims about two models, with one about the agreement of attention and each of the importances, name → title."""
    for second, contextual in CONTEXT_FREE.items():
        for first in contextual:
            yield "erasure", first, second, Claim(
                name=f"order_worse_{first}_{second}",
                criterion="erasure",
                statement=f"Attention's order is farther from the smallest set with {first} than with {second}",
                source="Serrano & Smith 2019, section 5: attention is a worse order with contextual encoders",
                measure=difference(first, second, "removed_fraction_attention", "removed_fraction_optimal", "never_flips",
                                   value=beyond_optimum),
                quantity="share of the items removed beyond the optimum, difference of the models, mean of the examples "
                "that both can flip, −1 to 1",
            )  # fmt: skip
            yield "single_weight", first, second, Claim(
                name=f"effects_follow_less_{first}_{second}",
                criterion="erasure",
                statement=f"What erasing each item does follows the weights less closely with {first} than with {second}",
                source="Serrano & Smith 2019, section 4, asked of every item",
                measure=difference(first, second, "tau_attention_effect", value=np.negative),
                quantity="Kendall's τ-b of weight and effect, the second model's minus the first's, mean of the examples",
            )  # fmt: skip
            for importance, title in importances.items():
                yield "correlation", first, second, Claim(
                    name=f"{importance}_agrees_less_{first}_{second}",
                    criterion="agreement",
                    statement=f"Attention agrees less with the importance “{title}” in {first} than in {second}",
                    source="Jain & Wallace 2019, section 4.1: agreement is higher where the encoder sees no context",
                    measure=difference(first, second, f"tau_attention_{importance}", value=np.negative),
                    quantity="Kendall's τ-b, the second model's minus the first's, mean of the examples, −2 to 2",
                )  # fmt: skip
    for first, second in CONVOLUTIONAL.items():
        yield "erasure", first, second, Claim(
            name=f"needs_more_{first}_{second}",
            criterion="erasure",
            statement=f"By attention's order {first} needs more items removed than {second}",
            source="Serrano & Smith 2019, section 5: convolutional models need more removals than recurrent ones",
            measure=difference(first, second, "removed_fraction_attention", "never_flips", value=removal_share),
            quantity="difference of the shares of the items removed, mean of the examples that both can flip, −1 to 1",
        )  # fmt: skip


def compare_models(results: pd.DataFrame | Numbers) -> list[Finding]:
    """Test `comparisons` on each data set of which both models are there; seeds are pooled.

    Args:
        results: the numbers of several runs; a long table (`attnprobe.results.table.read_results`) will do.

    Returns:
        Findings whose `model` names both, such as "flanrnn, flannoenc".
    """
    numbers = numbers_of(results)
    models = {(str(one["data"]), str(one["model"])) for one in numbers.runs}
    findings = []
    outline = numbers.outline("correlation")
    names = importances_in(outline, "correlation", "tau_attention_")
    every = [*comparisons({name: facts_of(name, outline, "correlation").title for name in names})]
    for data in sorted({data for data, _ in models}):
        for probe, first, second, claim in every:
            if {(data, first), (data, second)} <= models:
                rows = numbers.rows(probe, claim.metrics)
                evidence = claim.measure(rows[rows["data"] == data])
                if evidence is not None:
                    findings.append(Finding(claim, evidence, data, f"{first}, {second}"))
    return findings
