"""Does a measure of importance agree with itself over seeds? Of one that does not, no agreement with attention is claimed."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Float
from scipy import stats

from attnprobe.report.claims import Claim, Finding
from attnprobe.report.evidence import Evidence
from attnprobe.report.numbers import Numbers
from attnprobe.results.statistics import over_pairs
from attnprobe.results.statistics.resampling import parts_of

CEILING = 0.2
"""Kendall's τ-b of a measure with itself, or with another measure, below which it measures no one thing: no agreement can
be asked of attention then."""
TEXTS = 300
"""Texts that are compared, evenly spread over those that all seeds have: beyond them the seeds are what varies."""
MEASURES = {"leave_one_out": "leave-one-out", "gradient": "the gradient"}
"""Probes that store a number for every word, under their own name."""

Scores = dict[int, Float[np.ndarray, " words"]]


def of_run(numbers: Numbers, measure: str) -> list[int]:
    """The examples of which one run has the measure."""
    ids = numbers.rows(measure, ("predicted_class",))["example_id"].unique()
    return sorted(int(one) for one in ids)


def scores(numbers: Numbers, measure: str, examples: Sequence[int]) -> Scores:
    """The measure of every word of some examples of one run."""
    rows = numbers.rows(measure, (), stepped=(measure,), example_ids=examples).sort_values(["example_id", "step"])
    parts = (part for _, part in rows.groupby("example_id"))
    return {int(part["example_id"].iloc[0]): part["value"].to_numpy(np.float64) for part in parts}


def agreeing(first: Scores, second: Scores, examples: Sequence[int]) -> Float[np.ndarray, " texts"]:
    """Kendall's τ-b of two runs' measures of each text, −1 to 1; NaN where one of them is constant."""
    taus = []
    for example in examples:
        one, other = (run.get(example, np.zeros(0)) for run in (first, second))
        defined = len(one) == len(other) > 1 and np.ptp(one) > 0 and np.ptp(other) > 0
        taus.append(float(stats.kendalltau(one, other).statistic) if defined else np.nan)
    return np.array(taus)


def reliability(runs: Sequence[Numbers], measure: str) -> Evidence | None:
    """τ-b of a measure with itself in another seed, mean over the texts and over all pairs of runs, with an interval over
    both; two runs have none. Of scores without meaning it is 0.

    Args:
        runs: those of one model from several seeds, each run's numbers by themselves.
        measure: one of `MEASURES`.

    Returns:
        None where fewer than two of the runs have the measure.
    """
    having = [run for run in runs if measure in run.probes]
    if len(having) < 2:
        return None
    shared = sorted(set.intersection(*(set(of_run(run, measure)) for run in having)))
    examples = shared[:: max(1, -(-len(shared) // TEXTS))]
    of_runs = [scores(run, measure, examples) for run in having]
    taus = np.full((len(having), len(having), len(examples)), np.nan)
    for base in range(len(having)):
        for other in range(base):
            taus[base, other] = taus[other, base] = agreeing(of_runs[base], of_runs[other], examples)
    known = ~np.isnan(taus[~np.eye(len(having), dtype=bool)]).all(0)
    if not known.any():
        return None
    return Evidence(*over_pairs(parts_of(taus[..., known]), low=-1, high=1), n=int(known.sum()))


CLAIMS = {
    measure: Claim(
        name=f"{measure}_agrees_with_itself",
        criterion="agreement",
        statement=f"{words[0].upper()}{words[1:]} ranks a text's words alike whatever the seed of the training",
        source="attnprobe: the reliability of a measure bounds its agreement with any other",
        measure=lambda rows: None,
        quantity=f"Kendall's τ-b of the measure with itself in another seed, −1 to 1, mean of texts and pairs of seeds; "
        f"where it is below {CEILING} no agreement is asked of attention",
        threshold=CEILING,
        level="word",
    )
    for measure, words in MEASURES.items()
}
"""About the measure and not the attention; what they come to is the ceiling of `Claim.against`."""


def with_ceilings(findings: Sequence[Finding], runs: Sequence[Numbers]) -> list[Finding]:
    """The findings of one model, with how reliable each measure is that they compare attention with; those against a measure
    that does not agree with itself are not asked."""
    result = list(findings)
    for measure in dict.fromkeys(one.claim.against for one in findings if one.claim.against):
        evidence = reliability(runs, measure)
        if evidence is None:
            continue
        first = next(one for one in findings if one.claim.against == measure)
        if evidence.value < CEILING:
            why = f"{MEASURES[measure]} hardly agrees with itself over seeds (τ = {evidence.value:.2f})"
            result = [
                replace(one, evidence=replace(one.evidence, unasked=why)) if one.claim.against == measure else one
                for one in result
            ]
        result.append(Finding(CLAIMS[measure], evidence, first.data, first.model))
    return result
