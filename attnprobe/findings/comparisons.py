"""Claims that need two models of one data set.

Does context, or the kind of encoder, change what attention is worth? The models are compared within
the example. Such findings speak neither for nor against reading one model's attention.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from attnprobe.evidence.claims import Claim, Finding
from attnprobe.evidence.evidence import Evidence, Measure, by_run_and_text, values_of
from attnprobe.evidence.statistics import means_of_runs
from attnprobe.probes.erasure import removal_share
from attnprobe.readings.importances import importances_in
from attnprobe.results.numbers import Numbers, numbers_of

CONTEXT_FREE = {
    "flannoenc": ("flanrnn", "flanconv"),
    "hannoenc": ("hanrnn", "hanconv"),
    "average_additive": ("lstm_additive", "cnn_additive"),
    "average_dot": ("lstm_dot", "cnn_dot"),
}
"""Model whose encoder sees one word (or sentence) at a time → the same model with an encoder that
sees its context."""
CONVOLUTIONAL = {"flanconv": "flanrnn", "hanconv": "hanrnn"}
"""Convolutional model → the same model with a recurrent encoder."""


@dataclass(frozen=True)
class ModelComparison:
    """A claim about a pair of models, with `{first}` and `{second}` in the place of their names.

    Attributes:
        name: begins the claim's name.
        probe: whose metrics it compares.
        criterion: as of `Claim`.
        statement: as of `Claim`; `{title}` is that of an importance.
        source: as of `Claim`.
        quantity: as of `Claim`.
        metrics: what it compares; `{importance}` is the name of one.
        value: the metrics' columns → what is compared, per example.
        reach: by how much two models can differ in it at most.
    """

    name: str
    probe: str
    criterion: str
    statement: str
    source: str
    quantity: str
    metrics: tuple[str, ...]
    value: Callable[..., np.ndarray]
    reach: float = 1.0

    def claim(self, first: str, second: str, importance: str = "", title: str = "") -> Claim:
        """The claim about two models, and about one importance where the metrics name it."""
        metrics = [metric.format(importance=importance) for metric in self.metrics]
        parts = (importance, self.name, first, second)
        return Claim(
            name="_".join(part for part in parts if part),
            criterion=self.criterion,
            statement=self.statement.format(first=first, second=second, title=title),
            source=self.source,
            measure=difference(first, second, metrics, self.value, self.reach),
            quantity=self.quantity,
        )


@dataclass(frozen=True)
class PairClaim:
    """A claim about two models, by their names in the column `model` of a probe's long table."""

    probe: str
    first: str
    second: str
    claim: Claim


def difference(
    first: str,
    second: str,
    metrics: Sequence[str],
    value: Callable[..., np.ndarray],
    reach: float,
) -> Measure:
    """A measure: by how much one model's number is above another's, mean over their examples.

    Each example's number is the mean over the model's seeds; an example that one of the models does
    not have, or where its number is NaN, is left out. The interval is the bootstrap's over
    examples, and over the seeds of either model where it has several.

    Args:
        first: name of the model whose number comes first.
        second: name of the model whose number is subtracted.
        metrics: of the probe.
        value: the metrics' columns → a number per row.
        reach: by how much two models can differ in it at most; no interval goes beyond.
    """

    def numbers_of_model(table: pd.DataFrame, model: str) -> pd.DataFrame | None:
        rows = values_of(table[table["model"] == model], *metrics)
        if rows is None:
            return None
        columns = [rows[metric].to_numpy() for metric in metrics]
        return by_run_and_text(rows, value(*columns))

    def measure(table: pd.DataFrame) -> Evidence | None:
        first_numbers = numbers_of_model(table, first)
        second_numbers = numbers_of_model(table, second)
        if first_numbers is None or second_numbers is None:
            return None
        differences = (first_numbers.mean() - second_numbers.mean()).dropna()
        if differences.empty:
            return None
        evidence = Evidence.of(differences).over_runs_too(
            means_of_runs(first_numbers[differences.index].to_numpy()),
            means_of_runs(second_numbers[differences.index].to_numpy()),
        )
        return evidence.within(-reach, reach)

    return Measure(tuple(metrics), measure)


def _optimum_gap(attention: np.ndarray, optimal: np.ndarray, never_flips: np.ndarray) -> np.ndarray:
    """Share of the items that attention's order removes beyond the smallest set."""
    return removal_share(attention, never_flips) - removal_share(optimal, never_flips)


ORDER_WORSE = ModelComparison(
    name="order_worse",
    probe="erasure",
    criterion="erasure",
    statement=(
        "Attention's order is farther from the smallest set with {first} than with {second}"
    ),
    source="Serrano & Smith 2019, section 5: attention is a worse order with contextual encoders",
    quantity=(
        "share of the items removed beyond the optimum, difference of the models, mean of the "
        "examples that both can flip, −1 to 1"
    ),
    metrics=("removed_fraction_attention", "removed_fraction_optimal", "never_flips"),
    value=_optimum_gap,
)
EFFECTS_FOLLOW_LESS = ModelComparison(
    name="effects_follow_less",
    probe="single_weight",
    criterion="erasure",
    statement=(
        "What erasing each item does follows the weights less closely with {first} than with "
        "{second}"
    ),
    source="Serrano & Smith 2019, section 4, asked of every item",
    quantity=(
        "Kendall's τ-b of weight and effect, the second model's minus the first's, mean of the "
        "examples"
    ),
    metrics=("tau_attention_effect",),
    value=np.negative,
    reach=2.0,
)
AGREES_LESS = ModelComparison(
    name="agrees_less",
    probe="correlation",
    criterion="agreement",
    statement=("Attention agrees less with the importance “{title}” in {first} than in {second}"),
    source=(
        "Jain & Wallace 2019, section 4.1: agreement is higher where the encoder sees no context"
    ),
    quantity=("Kendall's τ-b, the second model's minus the first's, mean of the examples, −2 to 2"),
    metrics=("tau_attention_{importance}",),
    value=np.negative,
    reach=2.0,
)
NEEDS_MORE = ModelComparison(
    name="needs_more",
    probe="erasure",
    criterion="erasure",
    statement="By attention's order {first} needs more items removed than {second}",
    source=(
        "Serrano & Smith 2019, section 5: convolutional models need more removals than recurrent "
        "ones"
    ),
    quantity=(
        "difference of the shares of the items removed, mean of the examples that both can flip, "
        "−1 to 1"
    ),
    metrics=("removed_fraction_attention", "never_flips"),
    value=removal_share,
)


def comparisons(importances: Mapping[str, str]) -> Iterator[PairClaim]:
    """Every claim about two models.

    Args:
        importances: name → title of what attention's agreement is measured with; each brings a
            claim of its own.
    """
    for second, contextual in CONTEXT_FREE.items():
        for first in contextual:
            for comparison in (ORDER_WORSE, EFFECTS_FOLLOW_LESS):
                claim = comparison.claim(first, second)
                yield PairClaim(comparison.probe, first, second, claim)
            for importance, title in importances.items():
                claim = AGREES_LESS.claim(first, second, importance, title)
                yield PairClaim(AGREES_LESS.probe, first, second, claim)
    for first, second in CONVOLUTIONAL.items():
        yield PairClaim(NEEDS_MORE.probe, first, second, NEEDS_MORE.claim(first, second))


def compare_models(results: pd.DataFrame | Numbers) -> list[Finding]:
    """Test `comparisons` on each data set of which both models are there; seeds are pooled.

    Args:
        results: numbers of several runs; a long table will do.

    Returns:
        Findings whose `model` names both, such as "flanrnn, flannoenc".
    """
    numbers = numbers_of(results)
    runs_of_model: dict[tuple[str, str], list[Numbers]] = {}
    for run_numbers in numbers.each_run():
        for run in run_numbers.runs:
            model = str(run["data"]), str(run["model"])
            runs_of_model.setdefault(model, []).append(run_numbers)
    importances = importances_in(numbers.outline("correlation"), "correlation", "tau_attention_")
    pairs = list(comparisons({name: facts.title for name, facts in importances.items()}))
    findings = []
    for data in sorted({data for data, _ in runs_of_model}):
        for pair in pairs:
            first_runs = runs_of_model.get((data, pair.first), [])
            second_runs = runs_of_model.get((data, pair.second), [])
            if not first_runs or not second_runs:
                continue
            both = Numbers.together([*first_runs, *second_runs])
            evidence = pair.claim.measure(both.rows(pair.probe, pair.claim.metrics))
            if evidence is not None:
                model_names = f"{pair.first}, {pair.second}"
                findings.append(Finding(pair.claim, evidence, data, model_names))
    return findings
