"""What to show instead of attention: the most faithful method on these texts.

It is chosen on one half of them and measured on the other, so that it is not called better for
having been chosen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import Evidence
from attnprobe.evidence.statistics import in_columns
from attnprobe.evidence.verdicts import Verdict
from attnprobe.findings.bench.rates import beside_attention_on_bench
from attnprobe.findings.studies.base import StudyReading
from attnprobe.findings.studies.criteria.statements import cite, of_several_runs
from attnprobe.probes.faithfulness import SOURCE, measured
from attnprobe.readings.importances import facts_of
from attnprobe.results.pivot import per_example

MEANINGLESS = ("random", "position")
"""What nobody would show; random is the null."""
TAKES_OUT = ("leave_one_out", "sufficient_subset", "occlusion")
"""Methods that take words out themselves, as the metric does."""
LARGEST_LOSS = 1.0
"""Comprehensiveness at most: a probability falls by −1 to 1."""
CAPTION = (
    "What to show instead: fall of the prediction without each method's top words (deleted), and "
    "beside attention"
)

CLAIM = Claim(
    name="another_method_is_more_faithful",
    criterion="erasure",
    statement="Another method's top words cost the prediction more than attention's",
    source=SOURCE,
    measure=of_several_runs,
    quantity="comprehensiveness (AOPC, words deleted), the method chosen on the other texts minus "
    "attention, −2 to 2",
    smallest=0.01,
)


def comprehensiveness(method: str, operator: str = "delete") -> str:
    """The metric: fall of the prediction without the method's top words, taken out in this way."""
    return f"comprehensiveness_{method}_by_{operator}"


def add_alternative(reading: StudyReading, results: pd.DataFrame) -> None:
    """Add a table of every method beside attention, and what to show instead.

    Nothing is added where faithfulness was not measured, of attention, of random words, and of
    another method.

    Args:
        reading: of the study, which is added to.
        results: the base's table of the probe faithfulness.
    """
    pairs = measured(results)
    methods = list(dict.fromkeys(method for method, operator in pairs if operator == "delete"))
    if not {"attention", "random"} <= set(methods) or len(methods) < 3:
        return
    columns = [comprehensiveness(method, operator) for method, operator in pairs]
    texts = per_example(results, "faithfulness", columns)
    reading.tables[CAPTION] = beside_attention(texts, results, methods)

    candidates = [method for method in methods if method not in ("attention", *MEANINGLESS)]
    if not candidates or len(texts) < 4:
        return
    best, second_half = chosen(texts, candidates)
    title = facts_of(best, results, "faithfulness").title
    operators = list(dict.fromkeys(operator for _, operator in pairs))
    comparison = compared_with_attention(best, second_half, operators)
    claim = replace(CLAIM, statement=f"Show {title}: its top words cost the prediction more")
    evidence = comparison.gain
    if comparison.looks_better and not comparison.is_confirmed:
        why = "words were deleted, and no other way of removing them agrees"
        evidence = replace(evidence, unasked=why)
    reading.add(claim, evidence, in_words(comparison, best, title))


def beside_attention(
    texts: pd.DataFrame, results: pd.DataFrame, methods: Sequence[str]
) -> pd.DataFrame:
    """Each method's comprehensiveness and how far it is from attention's, on all texts.

    Args:
        texts: a row per text, a column per metric.
        results: the long table that they are of, which names the methods.
        methods: a row each.
    """
    attention = texts[comprehensiveness("attention")].to_numpy()
    rows = []
    for method in methods:
        values = texts[comprehensiveness(method)].to_numpy()
        difference = values - attention
        if method == "attention":
            difference = np.full(len(values), np.nan)
        loss = loss_of(values)
        more = difference_of_losses(difference)
        row: dict[str, object] = {
            "method": facts_of(method, results, "faithfulness").title,
            "texts": loss.n,
        }
        row |= in_columns("loss", (loss.value, loss.low, loss.high))
        row |= in_columns("more than attention", (more.value, more.low, more.high))
        rows.append(row)
    return pd.DataFrame(rows).sort_values("loss", ascending=False).reset_index(drop=True)


def loss_of(values: Float[np.ndarray, " texts"]) -> Evidence:
    """Mean comprehensiveness, −1 to 1."""
    return Evidence.of(values, reach=2 * LARGEST_LOSS).within(-LARGEST_LOSS, LARGEST_LOSS)


def difference_of_losses(values: Float[np.ndarray, " texts"]) -> Evidence:
    """Mean difference of two methods' comprehensiveness, −2 to 2."""
    largest = 2 * LARGEST_LOSS
    return Evidence.of(values, reach=2 * largest).within(-largest, largest)


def chosen(texts: pd.DataFrame, candidates: Sequence[str]) -> tuple[str, pd.DataFrame]:
    """The best of the candidates on the texts with even places, and the other texts."""
    place = pd.factorize(texts["example_id"], sort=True)[0]
    is_even = place % 2 == 0
    means = {method: texts.loc[is_even, comprehensiveness(method)].mean() for method in candidates}
    best = max(candidates, key=lambda method: means[method])
    return best, texts[~is_even]


@dataclass(frozen=True)
class MethodComparison:
    """A method on texts that had no part in choosing it; all numbers are comprehensiveness.

    Attributes:
        loss: the method's, words deleted.
        gain: minus attention's, words deleted.
        over_random: minus that of random words, words deleted.
        other_operators: minus attention's, words taken out in each other way that both have.
    """

    loss: Evidence
    gain: Evidence
    over_random: Evidence
    other_operators: Sequence[Evidence]

    @property
    def looks_better(self) -> bool:
        """By whole intervals: than attention by a relevant difference, and than random words."""
        is_more_faithful = self.gain.exceeds(0.0, CLAIM.smallest) == Verdict.MEETS
        return is_more_faithful and self.over_random.exceeds(0.0) == Verdict.MEETS

    @property
    def is_confirmed(self) -> bool:
        """Better, and also at all where words go in another way.

        Deleting words favours what deletes them.
        """
        if not self.looks_better or not self.other_operators:
            return False
        return all(gain.exceeds(0.0) == Verdict.MEETS for gain in self.other_operators)


def compared_with_attention(
    method: str, texts: pd.DataFrame, operators: Sequence[str]
) -> MethodComparison:
    """Compare a method with attention and with random words.

    Args:
        method: the one that was chosen.
        texts: a row per text, a column per metric.
        operators: ways of taking words out, some of which a table may lack for a method.
    """

    def gain_over(rival: str, operator: str = "delete") -> Evidence:
        gain = (
            texts[comprehensiveness(method, operator)] - texts[comprehensiveness(rival, operator)]
        )
        return difference_of_losses(gain.to_numpy())

    # the operator attention only lowers weights, and leaves the words in the input
    common = [
        operator
        for operator in operators
        if operator not in ("delete", "attention")
        and comprehensiveness(method, operator) in texts
        and comprehensiveness("attention", operator) in texts
    ]
    return MethodComparison(
        loss=loss_of(texts[comprehensiveness(method)].to_numpy()),
        gain=gain_over("attention"),
        over_random=gain_over("random"),
        other_operators=[gain_over("attention", operator) for operator in common],
    )


def in_words(comparison: MethodComparison, method: str, title: str) -> str:
    """What to show instead, if anything, and what the other texts say of it.

    Args:
        comparison: of the method with attention.
        method: the one that was chosen.
        title: what it is called.
    """
    gain = comparison.gain
    caution = ""
    if method in TAKES_OUT:
        caution = " It takes words out itself, as this test does, which favours it."
    if comparison.is_confirmed:
        on_bench = beside_attention_on_bench(method)
        return (
            f"Instead of attention, show {title}. Without its top words the predicted class loses "
            f"{cite(comparison.loss)} of its probability. That is {cite(gain)} more than without "
            f"attention's, on {gain.n} texts that had no part in choosing it.{caution} {on_bench}"
        ).rstrip()
    if comparison.looks_better and not comparison.other_operators:
        return (
            "Nothing better than attention is confirmed. Without the top words of "
            f"{title} the predicted class loses {cite(gain)} more of its probability than without "
            f"attention's, on {gain.n} texts that had no part in choosing it. But words were only "
            "deleted. Another way of taking them out has to agree: "
            f"probe.faithfulness.operators=[delete,zeros].{caution}"
        )
    return (
        f"Nothing is shown to be better than attention. On half of the texts {title} looked best. "
        f"On the other {gain.n} its top words cost the prediction {cite(gain)} more than "
        "attention's do."
    )
