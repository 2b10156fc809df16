"""What the bench says of scores: do they find the words that decide, and what is the verdict?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pandas as pd
import scipy
import torch
from jaxtyping import Bool
from typing_extensions import TypedDict

from attnprobe.evidence.claims import put_to_test
from attnprobe.evidence.deciding_words import PASSES_METRIC, ROUNDED_METRIC, SHARE_CLAIM
from attnprobe.evidence.statistics import Interval, student
from attnprobe.findings.bench.folder import BenchFolder, BenchModel, BenchText
from attnprobe.findings.bench.scores import Scorer, TextScores
from attnprobe.findings.track_record import ANSWER_OF_VERDICT, UNASKED, YES, mean_of_rules
from attnprobe.importance.plausibility import average_precision
from attnprobe.importance.word_swaps import WordEffects
from attnprobe.probes.swaps import PASSES_OF_PAIR, as_weights

ALL = "all"
"""In place of a kind: all rules."""
MEASURES = {"auroc": (0, 1), "average_precision": (0, 1), "truth": (-1, 1), "share": (-1, 1)}
"""Number of a model → the least and the most that it can be.

- `auroc`: of a word that decides and one that does not, how often the first has the larger score,
  mean of the texts; 0.5 by chance.
- `average_precision` of the words that decide, mean of the texts.
- `truth`: the share of the scores, beyond chance, that is on the words that decide by the rule.
- `share`: the same on words that move the prediction, as the verdict estimates it without knowing
  the rule.
"""


def judged(
    bench: BenchFolder,
    models: Sequence[BenchModel],
    sources: Mapping[str, Scorer],
    most_texts: int | None = None,
) -> Iterator[dict[str, object]]:
    """A row per model and source of scores.

    Args:
        bench: with the texts.
        models: of the bench.
        sources: scores by their name.
        most_texts: so many texts of each model, the first ones; None: all.

    Yields:
        What the model is, `MEASURES`, the interval of the share (`share_low`, `share_high`), and
        the `answer`: yes, no, open or not asked.

    Raises:
        UserError: the bench is damaged, or a source has no scores for a model.
    """
    for model in models:
        texts = bench.texts(model)[:most_texts]
        effects = [text.sets.effects() for text in texts]
        for name, scorer in sources.items():
            scores = scorer(model, texts)
            numbers = numbers_of_texts(texts, effects, scores)
            yield {
                "scores": name,
                "model": model.name,
                "rule": model.rule,
                "kind": model.kind,
                "encoder": model.encoder,
                "attention": model.attention,
                "draw": model.draw,
                "half": model.half,
                **numbers_of_model(numbers),
            }


def numbers_of_texts(
    texts: Sequence[BenchText], effects: Sequence[WordEffects], scores: Sequence[TextScores]
) -> pd.DataFrame:
    """What each text says of its scores: a row per text, in this order.

    Scores count by their sizes, as in the verdict; a text without scores has equal ones.
    """
    rows = []
    for text, effect, values in zip(texts, effects, scores, strict=True):
        weights = weights_of(values)
        shares = effect.shares
        rows.append(
            {
                "example_id": text.example_id,
                **agreement_with_rule(weights, text.deciding),
                "swap_excess": float(torch.from_numpy(weights) @ shares - shares.mean()),
                "swap_room": float(1 - shares.mean()),
                "swap_strength": effect.strength,
                "swap_reliability": effect.reliability,
                "predicted_class": text.prediction,
                PASSES_METRIC: PASSES_OF_PAIR * len(text.sets.kept),
            }
        )
    return pd.DataFrame(rows)


def agreement_with_rule(
    weights: TextScores, deciding: Bool[np.ndarray, " words"]
) -> dict[str, float]:
    """How well weights find the words that decide; NaN where all words do, or none does.

    Returns:
        `auroc` and `average_precision` of these words, the weight on them (`mass`), and that of
        equal weights (`chance`).
    """
    if deciding.all() or not deciding.any():
        return dict.fromkeys(("auroc", "average_precision", "mass", "chance"), np.nan)
    return {
        "auroc": auroc(weights, deciding),
        "average_precision": precision(weights, deciding),
        "mass": weights[deciding].sum(),
        "chance": deciding.mean(),
    }


def weights_of(scores: TextScores) -> TextScores:
    """The sizes of a text's scores as weights that sum to 1; equal ones where all are 0 or NaN."""
    row = torch.from_numpy(np.asarray(scores, np.float64))[None]
    return as_weights(row, torch.ones_like(row, dtype=torch.bool))[0].numpy()


def auroc(scores: TextScores, deciding: Bool[np.ndarray, " words"]) -> float:
    """How often a word that decides has a larger score than one that does not, ties half.

    >>> auroc(np.array([3.0, 1.0, 2.0, 1.0]), np.array([True, True, False, False]))
    0.625
    """
    ranks = scipy.stats.rankdata(scores)
    count = int(deciding.sum())
    above = ranks[deciding].sum() - count * (count + 1) / 2
    return float(above / (count * (len(scores) - count)))


def precision(scores: TextScores, deciding: Bool[np.ndarray, " words"]) -> float:
    """The average precision of the words that decide."""
    row = torch.from_numpy(scores)[None]
    content = torch.ones_like(row, dtype=torch.bool)
    return float(average_precision(row, torch.from_numpy(deciding)[None], content))


class ModelNumbers(TypedDict):
    """`MEASURES` of a model and some scores, the interval of the share, and the verdict.

    Attributes:
        texts: how many they are of.
        auroc: see `MEASURES`.
        average_precision: see `MEASURES`.
        truth: see `MEASURES`; NaN where no text has both words that decide and others.
        share: see `MEASURES`.
        share_low: lower end of its 95 % interval.
        share_high: upper end of the interval.
        answer: one of `attnprobe.findings.track_record.ANSWERS`.
    """

    texts: int
    auroc: float
    average_precision: float
    truth: float
    share: float
    share_low: float
    share_high: float
    answer: str


def numbers_of_model(texts: pd.DataFrame) -> ModelNumbers:
    """`MEASURES` and the verdict of a model, from the numbers of its texts.

    The verdict is that of a run with the probe swaps: the same claim, asked of the same table.
    """
    room = (1 - texts["chance"]).sum()
    beyond_chance = (texts["mass"] - texts["chance"]).sum()
    (finding,) = put_to_test([SHARE_CLAIM], as_table_of_probe(texts))
    evidence = finding.evidence
    answer = ANSWER_OF_VERDICT[evidence.exceeds(SHARE_CLAIM.threshold, SHARE_CLAIM.smallest)]
    return {
        "texts": len(texts),
        "auroc": texts["auroc"].mean(),
        "average_precision": texts["average_precision"].mean(),
        "truth": beyond_chance / room if room > 0 else np.nan,
        "share": evidence.value,
        "share_low": evidence.low,
        "share_high": evidence.high,
        "answer": answer,
    }


def as_table_of_probe(texts: pd.DataFrame) -> pd.DataFrame:
    """The numbers of the texts as the long table that the probe swaps writes."""
    # the bench's passes were in float32, so that no text is marked as rounded
    metrics = [metric for metric in SHARE_CLAIM.metrics if metric != ROUNDED_METRIC]
    table = texts.melt("example_id", metrics, var_name="metric")
    return table.assign(
        run_id="bench",
        experiment="bench",
        data="bench",
        model="bench",
        seed=0,
        split="test",
        probe="swaps",
        step=np.nan,
    )


# Rates over models.


@dataclass(frozen=True)
class BenchRates:
    """What the bench says of some scores, of one kind of rule or of all.

    Every number is the mean of the rules' means, with a 95 % interval over rules: models of one
    rule are alike.

    Attributes:
        scores: their name.
        kind: of the rules, or `ALL`.
        models: how many there are.
        rules: how many there are.
        asked: models of which the verdict can be asked: words move their predictions.
        texts: of a model, mean of the models.
        auroc: see `MEASURES`.
        average_precision: see `MEASURES`.
        truth: see `MEASURES`.
        share: see `MEASURES`; of the models that are asked.
        yes: share of the models that are asked of which the verdict is yes.
    """

    scores: str
    kind: str
    models: int
    rules: int
    asked: int
    texts: float
    auroc: Interval
    average_precision: Interval
    truth: Interval
    share: Interval
    yes: Interval


def rates_by_kind(rows: pd.DataFrame) -> list[BenchRates]:
    """The rates of each source: of all rules, and of each kind; the best source first.

    Args:
        rows: as of `judged`.
    """
    sources = []
    for _, source in rows.groupby("scores", sort=False):
        rates = [rates_of(source, ALL)]
        for kind, models in source.groupby("kind", sort=True):
            rates.append(rates_of(models, str(kind)))
        sources.append(rates)
    sources.sort(key=lambda rates: -np.nan_to_num(rates[0].auroc.value))
    return list(chain.from_iterable(sources))


def rates_of(rows: pd.DataFrame, kind: str) -> BenchRates:
    """The rates of one source on some models.

    Args:
        rows: as of `judged`, of one source.
        kind: of their rules, or `ALL`.
    """
    tested = rows[rows["answer"] != UNASKED]
    yes_shares = (tested["answer"] == YES).groupby(tested["rule"]).mean()
    return BenchRates(
        scores=str(rows["scores"].iloc[0]),
        kind=kind,
        models=len(rows),
        rules=rows["rule"].nunique(),
        asked=len(tested),
        texts=rows["texts"].mean(),
        auroc=over_rules(rows, "auroc"),
        average_precision=over_rules(rows, "average_precision"),
        truth=over_rules(rows, "truth"),
        share=over_rules(tested, "share"),
        yes=mean_of_rules(yes_shares.to_numpy()),
    )


def over_rules(rows: pd.DataFrame, measure: str) -> Interval:
    """The mean of the rules' means with Student's interval, which ends where the scale does."""
    low, high = MEASURES[measure]
    means = rows.groupby("rule")[measure].mean().dropna().to_numpy()
    return student(means, low=low, high=high)


def as_columns(rates: Sequence[BenchRates]) -> pd.DataFrame:
    """Rates as a table: of each interval three columns (`auroc`, `auroc_low`, `auroc_high`)."""
    rows = []
    for line in rates:
        row: dict[str, object] = {}
        for name, value in vars(line).items():
            if isinstance(value, Interval):
                row |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
            else:
                row[name] = value
        rows.append(row)
    return pd.DataFrame(rows)
