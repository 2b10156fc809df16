"""What audits of a few seeds show: how often they say yes and no, by the true effect.

The audits are drawn from pools of many seeds.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float

from attnprobe.evidence.statistics import f1_of
from attnprobe.evidence.verdicts import Verdict
from attnprobe.findings.members import (
    CLAIM,
    Score,
    balanced_accuracy,
    compare_pairs,
    difference,
    stability,
)
from attnprobe.findings.studies.criteria.statements import margin_of
from research.models.training import Parts, kept_attentions, kept_parts, scores_of

CLAIMS: dict[str, Score] = {
    "attention_is_needed": f1_of,
    "attention_guides": balanced_accuracy,
}
"""Claim → the score that it is a difference of."""
SHARES = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
"""Of the texts that the learned model answers, one with equal weights the others: the true effect,
as a share of the pool's."""
SEEDS = (3, 5, 9)
"""Of an audit."""
AUDITS = 150


def verdict_on_gain(learned: Sequence[Parts], equal: Sequence[Parts], score: Score) -> str:
    """What an audit says of the difference of two models with the same seeds."""
    gain = difference(dict(enumerate(learned)), dict(enumerate(equal)), score)
    return gain.exceeds(0, margin_of(scores_of(learned, score)))


def shares_of(verdicts: Iterable[str]) -> dict[str, float]:
    """How often audits say yes and no."""
    answers = np.array(list(verdicts))
    return {
        "yes": float(np.mean(answers == Verdict.MEETS)),
        "no": float(np.isin(answers, [Verdict.FAILS, Verdict.NO_DIFFERENCE]).mean()),
    }


@dataclass(frozen=True)
class Pool:
    """Models of many seeds that audits draw from.

    Attributes:
        learned: with learned weights, a model per seed.
        equal: with equal weights.
        score: that tells one from the other.
    """

    learned: Sequence[Parts]
    equal: Sequence[Parts]
    score: Score

    def __len__(self) -> int:
        """Seeds of which both models are there."""
        return min(len(self.learned), len(self.equal))

    def gain(self) -> "np.floating[Any]":
        """The true effect: the difference of the mean scores."""
        learned = np.mean(scores_of(self.learned, self.score))
        return learned - np.mean(scores_of(self.equal, self.score))

    def audit(self, share: float, seeds: int, draw: np.random.Generator) -> str:
        """What an audit of so many seeds says, if this share of the effect is there."""
        chosen = draw.permutation(len(self))[:seeds]
        rivals = draw.permutation(len(self))[: 2 * seeds]
        mixed = []
        for number, substitute in zip(chosen, rivals[:seeds], strict=True):
            texts = self.learned[number]
            is_learned = draw.random((len(texts), 1)) < share
            mixed.append(np.where(is_learned, texts, self.equal[substitute]))
        equal = [self.equal[number] for number in rivals[seeds:]]
        return verdict_on_gain(mixed, equal, self.score)


def curves(folder: Path, cell: str, claim: str) -> pd.DataFrame:
    """How often audits say yes and no, by the true effect: the pool's mean.

    Args:
        folder: of the models.
        cell: of `CELLS`.
        claim: of `CLAIMS`.
    """
    score = CLAIMS[claim]
    learned = kept_parts(folder.glob(f"pool-{cell}-learned-*.json"), score)
    equal = kept_parts(folder.glob(f"pool-{cell}-equal-*.json"), score)
    pool = Pool(learned, equal, score)
    gain = pool.gain()
    draw = np.random.default_rng(0)
    rows = []
    for share, seeds in product(SHARES, SEEDS):
        verdicts = [pool.audit(share, seeds, draw) for _ in range(AUDITS)]
        rows.append(
            {
                "claim": claim,
                "cell": cell,
                "models": 2 * len(pool),
                "seeds": seeds,
                "effect": round(share * gain, 4),
                **shares_of(verdicts),
                "audits": AUDITS,
            }
        )
    return pd.DataFrame(rows)


def stability_curves(folder: Path, cell: str) -> pd.DataFrame:
    """The same of stability, by the nearness of all seeds.

    In some texts each seed's weights are put in a random order.
    """
    attentions = kept_attentions(folder, cell)
    draw = np.random.default_rng(0)
    intact = compare_pairs(attentions)
    shuffles = []
    for attentions_of_seed in attentions:
        shuffles.append([draw.permutation(weights) for weights in attentions_of_seed])
    shuffled = compare_pairs(shuffles)
    texts = len(attentions[0])
    rows = []
    for share in SHARES:
        is_intact = draw.permutation(np.arange(texts) < round(share * texts))
        pairs = np.where(is_intact[:, None], intact, shuffled)
        for seeds in SEEDS:
            rows.append(
                {
                    "claim": CLAIM.name,
                    "cell": cell,
                    "models": len(attentions),
                    "seeds": seeds,
                    # that of weights in a random order is known
                    "effect": round(stability(pairs).value, 4) if share else 0.0,
                    **shares_of_stability(pairs, seeds, draw),
                    "audits": AUDITS,
                }
            )
    return pd.DataFrame(rows)


def shares_of_stability(
    pairs: Float[np.ndarray, "runs runs texts 4"], seeds: int, draw: np.random.Generator
) -> dict[str, float]:
    """How often audits of so many of these runs say that seeds attend alike."""
    verdicts = []
    for _ in range(AUDITS):
        runs = draw.permutation(len(pairs))[:seeds]
        nearness = stability(pairs[np.ix_(runs, runs)])
        verdicts.append(nearness.exceeds(CLAIM.threshold, CLAIM.smallest))
    return shares_of(verdicts)
