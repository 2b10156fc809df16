"""What the papers claim, put to the test on one's own numbers: the *whole* interval of a number is
compared with a threshold and a smallest difference of interest, so that no verdict is ever stronger
than its interval."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import pandas as pd
import scipy

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
    "state": "does the weight say how much the prediction takes from the encoder's state at a position?",
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
            the number is of several runs. A function that is not a `Measure` is given every metric
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
        against: the measure of importance that attention is compared with; the claim is not asked
            where that measure does not agree with itself over seeds (`with_ceilings`).
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
        for name, known in (("criterion", CRITERIA), ("level", LEVELS)):
            if getattr(self, name) not in known:
                raise ValueError(
                    f"{name}={getattr(self, name)!r}: expected one of {', '.join(known)}"
                )
        if self.speaks not in ("for", "neither"):
            raise ValueError(
                f"speaks={self.speaks!r}: expected for or neither; word a claim against attention the other way round"
            )
        if self.smallest < 0:
            raise ValueError(f"smallest={self.smallest}: expected a difference of 0 or more")
        if self.primary and self.speaks == "neither":
            raise ValueError("primary=True: expected a claim that speaks for attention")

    @property
    def metrics(self) -> tuple[str, ...]:
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
    """Test claims on each data set and model of one probe's long table; those whose numbers are not
    there are left out."""
    tested = []
    for (data, model), rows in table.groupby(["data", "model"], observed=True):
        measured = ((claim, claim.measure(rows)) for claim in claims)
        tested += [
            Finding(claim, found, str(data), str(model))
            for claim, found in measured
            if found is not None
        ]
    return tested


# Does a measure of importance agree with itself over seeds? Of one that does not, no agreement with
# attention is claimed.


CEILING = 0.2
"""Kendall's τ-b of a measure with itself, or with another measure, below which it measures no one
thing: no agreement can be asked of attention then."""
TEXTS = 300
"""Texts that are compared, evenly spread over those that all seeds have: beyond them the seeds are
what varies."""
MEASURES = {"leave_one_out": "leave-one-out", "gradient": "the gradient"}
"""Probes that store a number for every word, under their own name."""


def reliability(runs: Sequence[Numbers], measure: str) -> Evidence | None:
    """τ-b of one of `MEASURES` with itself in another seed, mean over the texts and all pairs of
    the runs of one model, with an interval over both; two runs have none. Of scores without meaning
    it is 0. None where fewer than two runs have it."""
    having = [run for run in runs if measure in run.probes]
    if len(having) < 2:
        return None
    theirs = (
        set(run.rows(measure, ("predicted_class",))["example_id"].astype(int)) for run in having
    )
    shared = sorted(set.intersection(*theirs))
    examples = shared[:: max(1, -(-len(shared) // TEXTS))]
    of_runs = []
    for run in having:
        rows = run.rows(measure, (), stepped=(measure,), example_ids=examples).sort_values(
            ["example_id", "step"]
        )
        of_runs.append(
            {
                example: own.to_numpy(np.float64)
                for example, own in rows.groupby("example_id")["value"]
            }
        )
    taus = np.full((len(having), len(having), len(examples)), np.nan)
    for (base, one), (other, two) in combinations(enumerate(of_runs), 2):
        for place, example in enumerate(examples):
            first = one.get(example, np.zeros(0))
            second = two.get(example, np.zeros(0))
            if (
                len(first) == len(second) > 1 and np.ptp(first) > 0 and np.ptp(second) > 0
            ):  # constant ones rank nothing
                taus[[base, other], [other, base], place] = scipy.stats.kendalltau(
                    first, second
                ).statistic
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
    """The findings of one model, and how reliable each measure is that they compare attention with;
    those against a measure that does not agree with itself over seeds are not asked."""
    result = list(findings)
    for measure in dict.fromkeys(one.claim.against for one in findings if one.claim.against):
        evidence = reliability(runs, measure)
        if evidence is None:
            continue
        if evidence.value < CEILING:
            why = f"{MEASURES[measure]} hardly agrees with itself over seeds (τ = {evidence.value:.2f})"
            for place, one in enumerate(result):
                if one.claim.against == measure:
                    result[place] = replace(one, evidence=replace(one.evidence, unasked=why))
        result.append(Finding(CLAIMS[measure], evidence, findings[0].data, findings[0].model))
    return result
