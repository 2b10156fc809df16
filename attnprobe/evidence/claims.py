"""What the papers claim, put to the test on one's own numbers.

The *whole* interval of a number is compared with a threshold and a smallest difference of interest,
so that no verdict is ever stronger than its interval.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd
import scipy
from jaxtyping import Float

from attnprobe.evidence.evidence import Evidence
from attnprobe.evidence.statistics import over_pairs, parts_of
from attnprobe.evidence.verdicts import Verdict
from attnprobe.results.numbers import EVERY, Numbers

CRITERIA = {
    "necessity": "is attention needed at all?",
    "stability": "does another seed attend to the same words?",
    "agreement": "does attention agree with other measures of importance?",
    "exclusivity": "is there no very different attention that predicts the same?",
    "erasure": "does removing what it points at matter most?",
    "leak": "do the weights carry the label?",
    "plausibility": "does it point at what a human calls the reason?",
}
"""The properties that the published tests are about; there is never one score of all."""
LEVELS = {
    "model": "of trained models as a whole",
    "state": "does the weight say how much the prediction takes from the encoder's state at a "
    "position?",
    "word": "does the weight say how much the word at a position decides?",
}
"""What a claim is about. With an encoder that reads context an attention can be right about states
and wrong about words."""


@dataclass(frozen=True)
class Claim:
    """A sentence that the numbers of one data set and model can confirm.

    Attributes:
        name: in files and links, such as `random_is_worst`.
        criterion: one of `CRITERIA`.
        statement: the sentence, plain text, such as "A random order needs more items than
            attention's".
        source: paper and section that make the claim, or define the test.
        measure: the long table of one data set, model and probe (all seeds) → the number, which is
            *above* `threshold` where the claim holds; None where the table lacks what it needs, or
            the number is of several runs. A function that is not a `Measure` gets every metric
            without steps.
        threshold: in the number's own unit.
        quantity: what the number is, with its unit, such as "difference of the fractions removed, 0
            to 1".
        speaks: `for` reading attention as an explanation where the claim holds, or `neither`; yes
            never speaks against it.
        level: one of `LEVELS`.
        smallest: the smallest difference from the threshold that is of interest: the claim holds
            only beyond it.
        primary: the verdict on its criterion and level goes by this claim; others are shown as
            detail.
        against: the importance that attention is compared with; the claim is not asked where that
            importance does not agree with itself over seeds (`with_ceilings`).
    """

    name: str
    criterion: str
    statement: str
    source: str
    measure: Callable[[pd.DataFrame], Evidence | None]
    quantity: str
    threshold: float = 0.0
    speaks: str = "neither"
    level: str = "model"
    smallest: float = 0.0
    primary: bool = False
    against: str = ""

    def __post_init__(self) -> None:
        for name, choices in (("criterion", CRITERIA), ("level", LEVELS)):
            if getattr(self, name) not in choices:
                raise ValueError(
                    f"{name}={getattr(self, name)!r}: expected one of {', '.join(choices)}"
                )
        if self.speaks not in ("for", "neither"):
            raise ValueError(
                f"speaks={self.speaks!r}: expected for or neither; word a claim against attention "
                "the other way round"
            )
        if self.smallest < 0:
            raise ValueError(f"smallest={self.smallest}: expected a difference of 0 or more")
        if self.primary and self.speaks == "neither":
            raise ValueError("primary=True: expected a claim that speaks for attention")

    @property
    def place(self) -> tuple[str, str]:
        """Criterion and level: the line of the card that it belongs to."""
        return self.criterion, self.level

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names or patterns of what the number is made of; `EVERY` where it does not say."""
        return getattr(self.measure, "metrics", EVERY)


@dataclass(frozen=True)
class Finding:
    """A claim after it was put to the test on one data set and model.

    Attributes:
        claim: what was asked.
        evidence: the number that came of it.
        data: name of the data set.
        model: name of the model.
        section: the part of a page that shows it; empty where there is no page yet.
    """

    claim: Claim
    evidence: Evidence
    data: str
    model: str
    section: str = ""

    @property
    def verdict(self) -> Verdict:
        """What the number says by itself."""
        return self.evidence.exceeds(self.claim.threshold, self.claim.smallest)


def put_to_test(claims: Iterable[Claim], table: pd.DataFrame) -> list[Finding]:
    """Test claims on each data set and model of one probe's long table.

    Returns:
        A finding per data set, model and claim; none where the table lacks the claim's number.
    """
    several = list(claims)
    findings = []
    for (data, model), rows in table.groupby(["data", "model"], observed=True):
        for claim in several:
            evidence = claim.measure(rows)
            if evidence is not None:
                findings.append(Finding(claim, evidence, str(data), str(model)))
    return findings


# Does an importance agree with itself over seeds? With one that does not, no agreement of attention
# is claimed.


CEILING = 0.2
"""Kendall's τ-b of an importance with itself, or with another one, below which it measures nothing
stable: no agreement can be asked of attention then."""
TEXTS = 300
"""Texts that are compared, evenly spread over those that all seeds have: beyond them the seeds are
what varies."""
MEASURES = {"leave_one_out": "leave-one-out", "gradient": "the gradient"}
"""Probes that store a number for every word, under their own name → the importance in words."""

Scores = Mapping[Hashable, Float[np.ndarray, " words"]]
"""Example → its words' importances."""


def reliability(runs: Sequence[Numbers], measure: str) -> Evidence | None:
    """τ-b of an importance with itself in another seed, mean over the texts and all pairs of runs.

    Args:
        runs: of one model.
        measure: one of `MEASURES`.

    Returns:
        −1 to 1, and 0 of scores without meaning, with an interval over texts and runs; two runs
        have none. None where fewer than two runs have the importance.
    """
    measured = [run for run in runs if measure in run.probes]
    if len(measured) < 2:
        return None
    examples = _shared_examples(measured, measure)
    scores = [_scores(run, measure, examples) for run in measured]
    taus = np.full((len(scores), len(scores), len(examples)), np.nan)
    for first, second in combinations(range(len(scores)), 2):
        for place, example in enumerate(examples):
            tau = _rank_correlation(scores[first].get(example), scores[second].get(example))
            taus[first, second, place] = tau
            taus[second, first, place] = tau

    is_ranked = ~np.isnan(taus[~np.eye(len(scores), dtype=bool)]).all(0)
    if not is_ranked.any():
        return None
    mean = over_pairs(parts_of(taus[..., is_ranked]), low=-1, high=1)
    return Evidence(*mean, n=int(is_ranked.sum()))


def _shared_examples(runs: Sequence[Numbers], measure: str) -> list[int]:
    """Examples that all runs have, `TEXTS` at most."""
    examples_of_runs = [
        set(run.rows(measure, ("predicted_class",))["example_id"].astype(int)) for run in runs
    ]
    shared = sorted(set.intersection(*examples_of_runs))
    step = max(1, -(-len(shared) // TEXTS))
    return shared[::step]


def _scores(run: Numbers, measure: str, examples: Sequence[int]) -> Scores:
    rows = run.rows(measure, (), stepped=(measure,), example_ids=examples)
    rows = rows.sort_values(["example_id", "step"])
    return {
        example: values.to_numpy(np.float64)
        for example, values in rows.groupby("example_id")["value"]
    }


def _rank_correlation(
    first: Float[np.ndarray, " words"] | None, second: Float[np.ndarray, " words"] | None
) -> float:
    """Kendall's τ-b of one text's words.

    NaN where a seed does not have the text, or where its scores are constant and rank nothing.
    """
    if first is None or second is None or len(first) != len(second) or len(first) < 2:
        return np.nan
    if not (np.ptp(first) > 0 and np.ptp(second) > 0):
        return np.nan
    return float(scipy.stats.kendalltau(first, second).statistic)


def _reliability_claim(measure: str, words: str) -> Claim:
    return Claim(
        name=f"{measure}_agrees_with_itself",
        criterion="agreement",
        statement=f"{words[0].upper()}{words[1:]} ranks a text's words alike whatever the seed of "
        "the training",
        source="attnprobe: the reliability of a measure bounds its agreement with any other",
        measure=lambda rows: None,
        quantity="Kendall's τ-b of the measure with itself in another seed, −1 to 1, mean of texts "
        f"and pairs of seeds; where it is below {CEILING} no agreement is asked of attention",
        threshold=CEILING,
        level="word",
    )


CLAIMS = {measure: _reliability_claim(measure, words) for measure, words in MEASURES.items()}
"""About the importance and not the attention; its number is the ceiling of `Claim.against`."""


def with_ceilings(findings: Sequence[Finding], runs: Sequence[Numbers]) -> list[Finding]:
    """Add how reliable each importance is that attention is compared with.

    Args:
        findings: on one model. Those against an importance that does not agree with itself over
            seeds are not asked.
        runs: of that model.

    Returns:
        The findings, then one per importance.
    """
    result = list(findings)
    measures = [finding.claim.against for finding in findings if finding.claim.against]
    for measure in dict.fromkeys(measures):
        evidence = reliability(runs, measure)
        if evidence is None:
            continue
        if evidence.value < CEILING:
            reason = (
                f"{MEASURES[measure]} hardly agrees with itself over seeds "
                f"(τ = {evidence.value:.2f})"
            )
            result = [
                _not_asked(finding, reason) if finding.claim.against == measure else finding
                for finding in result
            ]
        first = findings[0]
        result.append(Finding(CLAIMS[measure], evidence, first.data, first.model))
    return result


def _not_asked(finding: Finding, reason: str) -> Finding:
    return replace(finding, evidence=replace(finding.evidence, unasked=reason))
