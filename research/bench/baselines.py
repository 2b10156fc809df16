"""Other ways to tell a right attention from a wrong one, asked of the bench's models.

Attentions by construction are taken as scores of the words of a model, whose own attention is
learned. Each way makes one number of a model and an attention.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import scipy
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.core.batch import Batch
from attnprobe.core.randomness import Draws
from attnprobe.evidence.statistics import UPPER_TAIL, Interval
from attnprobe.findings.bench.folder import BenchFolder, BenchModel, BenchText
from attnprobe.findings.bench.judging import auroc, numbers_of_model, numbers_of_texts
from attnprobe.findings.track_record import YES, mean_of_rules
from attnprobe.importance.base import Subject
from attnprobe.importance.word_swaps import Filler, Swapper, in_float32
from attnprobe.models.controls import FirstAttention, FocusedAttention, RationaleAttention
from attnprobe.probes.faithfulness import Faithfulness, curves_of
from attnprobe.results.files import write_atomically
from research.attentions import PlacedAttention
from research.grammar import ATTENTIONS
from research.markdown import percent
from research.words.truth import model_of_run, truth_of

PASSES = 400
"""Changed texts per text of keep and drop: as many as the verdict takes at first."""
LEARNED = "learned"
BUILT: dict[str, FocusedAttention] = {
    "right_95": RationaleAttention(0, mass=0.95),
    "right_60": RationaleAttention(0, mass=0.6),
    "right_40": RationaleAttention(0, mass=0.4),
    "right_in_half": PlacedAttention(0, where="half"),
    "first": FirstAttention(0),
    "last": PlacedAttention(0, where="last"),
    "random_place": PlacedAttention(0, where="random"),
    "first_three": PlacedAttention(0, where="first_three"),
    "overridden": PlacedAttention(0, where="overridden"),
}
"""The attentions of `research.grammar.ATTENTIONS` that know no training texts."""
VERDICT = "share"
WAYS = {
    VERDICT: "the verdict's share",
    "keep_drop": "keep and drop: the prediction with the top words kept, less that with them gone",
    "comprehensiveness": "comprehensiveness (ERASER, words deleted)",
    "sufficiency": "sufficiency (ERASER, words deleted; the smaller the better)",
    "leave_one_out": "Kendall's τ with leave-one-out",
    "largest": "the largest weight of the attention itself",
}
"""Number of a model and an attention → what it is."""
RESAMPLES = 2000
MOST_FALSE = 0.05
"""Share of wrong attentions that a way may say yes of."""


@dataclass(frozen=True)
class Case:
    """A model of the bench with all that the ways need.

    Attributes:
        model: what is known of it.
        texts: that are stored.
        subject: the same texts, which went through the model.
        filler: the words of all texts.
    """

    model: BenchModel
    texts: Sequence[BenchText]
    subject: Subject
    filler: Filler

    @classmethod
    def of(cls, bench: BenchFolder, model: BenchModel, most_texts: int | None = None) -> "Case":
        """A model that is stored.

        Args:
            bench: with the models' runs.
            model: of the bench.
            most_texts: so many of its texts, the first ones; None: all.
        """
        classifier, data = model_of_run(bench.run(model.name))
        split = data.splits["test"]
        texts = bench.texts(model)[:most_texts]
        batch = split[[split.row_of(text.example_id) for text in texts]]
        with torch.no_grad():
            outputs = classifier(batch)
        subject = Subject(classifier, batch, outputs, classifier.readout(batch, outputs))
        filler = Filler.of(split[[row]] for row in range(len(split)))
        return cls(model, texts, subject, filler)

    def attentions(self) -> dict[str, Float[Tensor, "batch seq"]]:
        """The model's own attention, and those by construction."""
        built = {name: attention.given(self.subject.batch) for name, attention in BUILT.items()}
        attentions = {LEARNED: self.subject.outputs.attention} | built
        return {name: weights.double() for name, weights in attentions.items()}


def compare(bench: BenchFolder, path: Path, most_texts: int | None = None) -> pd.DataFrame:
    """A row per model and attention: its rightness, and what each way says of it.

    Args:
        bench: with its models' runs.
        path: of the rows, which are added to: what is cut short goes on.
        most_texts: so many texts of each model; None: all.
    """
    rows = pd.DataFrame(columns=["model"])
    if path.exists():
        rows = pd.read_parquet(path)
    for model in bench.models("*--learned--*"):
        if model.name in set(rows["model"]):
            continue
        added = pd.DataFrame(rows_of_model(Case.of(bench, model, most_texts)))
        rows = pd.concat([rows, added], ignore_index=True)
        write_atomically(path, lambda target, rows=rows: rows.to_parquet(target, index=False))
        print(f"{model.name}: {len(added)} attentions", flush=True)
    return rows


def rows_of_model(case: Case) -> list[dict[str, object]]:
    """A row per attention of a model."""
    effects = [text.sets.effects() for text in case.texts]
    rows = []
    for name, weights in case.attentions().items():
        texts = zip(weights, case.subject.batch.content, strict=True)
        scores = [text_weights[content].numpy() for text_weights, content in texts]
        numbers = numbers_of_model(numbers_of_texts(case.texts, effects, scores))
        avoids_reason = ATTENTIONS[name].avoids_reason
        rows.append(
            {
                "model": case.model.name,
                "rule": case.model.rule,
                "encoder": case.model.encoder,
                "attention": name,
                "texts": len(case.texts),
                "rightness": numbers["truth"],
                "standing": truth_of(numbers["truth"], avoids_reason=avoids_reason),
                "answer": numbers["answer"],
                "share": numbers["share"],
                **rival_numbers(case, weights),
            }
        )
    return rows


def rival_numbers(case: Case, weights: Float[Tensor, "batch seq"]) -> dict[str, float]:
    """What each other way says of an attention, mean of the texts; the larger, the more right."""
    subject = case.subject
    eraser = Faithfulness()
    shares = torch.tensor(sorted(eraser.thresholds), dtype=torch.float64)
    curves = curves_of(subject, weights, "delete", shares)
    return {
        "keep_drop": keep_drop(case, weights),
        "comprehensiveness": float(curves.deletion.nanmean()),
        "sufficiency": -float(curves.insertion.nanmean()),
        "leave_one_out": agreement(weights, subject.scores("leave_one_out"), subject.batch),
        "largest": float(weights.amax(-1).mean()),
    }


def agreement(
    weights: Float[Tensor, "batch seq"], scores: Float[Tensor, "batch seq"], batch: Batch
) -> float:
    """Kendall's τ-b of two scores, mean of the texts of which it is defined."""
    taus = []
    for text_weights, text_scores, content in zip(weights, scores, batch.content, strict=True):
        correlation = scipy.stats.kendalltau(text_weights[content], text_scores[content])
        taus.append(correlation.statistic)
    return float(np.nanmean(taus))


def keep_drop(case: Case, weights: Float[Tensor, "batch seq"]) -> float:
    """The predicted class's probability with the top words kept, less that with them gone.

    The other words are filler, as for the verdict, and as many texts are changed: the number of top
    words goes through all that there are, again and again, each time with other filler.
    """
    run = in_float32(case.subject.classifier)
    draws = Draws(case.model.draw, "keep_drop")
    differences = []
    pairs = PASSES // 2
    for row, decision in enumerate(case.subject.outputs.logits.argmax(-1).tolist()):
        text = case.subject.batch.rows(slice(row, row + 1))
        tokens = int(text.mask.sum())
        swapper = Swapper(run, text.cut(tokens), case.filler)
        is_top = top_words(weights[row, text.content[0]], pairs)
        generator = draws.generator(int(text.example_id))
        filler = swapper.draw_filler(pairs, generator)

        kept = torch.cat([is_top, ~is_top])
        logits = swapper.logits(kept, torch.cat([filler, filler]))
        probability = logits.softmax(-1)[:, decision]
        with_top, without_top = probability.chunk(2)
        differences.append(float((with_top - without_top).mean()))
    return float(np.mean(differences))


def top_words(weights: Float[Tensor, " words"], samples: int) -> Bool[Tensor, "samples words"]:
    """The words of the largest weights: one in the first sample, two in the next, and so on."""
    rank = weights.argsort(descending=True, stable=True).argsort()
    counts = 1 + torch.arange(samples) % (len(rank) - 1)
    return rank < counts.unsqueeze(-1)


def table_of_ways(rows: pd.DataFrame) -> pd.DataFrame:
    """How well each way tells right attentions from wrong ones.

    Args:
        rows: as of `compare`.

    Returns:
        A row per way, the best first: AUROC over all models and attentions with its interval over
        rules, the mean of the models' own, and how often it says yes of right and of wrong ones.
    """
    decided = rows[rows["standing"].isin(["right", "wrong"])]
    is_right = decided["standing"] == "right"
    table = []
    for way, title in WAYS.items():
        value, low, high = over_resampled_rules(decided, partial(auroc_of, way=way))
        by_model = decided.groupby("model")
        within = np.nanmean([auroc_of(part, way) for _, part in by_model])
        is_yes = says_yes(decided, way)
        row: dict[str, object] = {
            "way": title,
            "auroc": value,
            "low": low,
            "high": high,
            "within": within,
            "yes_on_right": yes_rate(decided[is_right], is_yes[is_right]),
            "yes_on_wrong": yes_rate(decided[~is_right], is_yes[~is_right]),
        }
        table.append(row)
    return pd.DataFrame(table).sort_values("auroc", ascending=False, kind="stable")


def says_yes(rows: pd.DataFrame, way: str) -> "pd.Series[bool]":
    """Whether each attention gets a yes.

    The verdict has a rule of its own. Any other way says yes above the number that `MOST_FALSE` of
    the wrong attentions of all *other* rules exceed: no rule chooses its own threshold.

    Args:
        rows: of right and wrong attentions.
        way: one of `WAYS`.
    """
    if way == VERDICT:
        return rows["answer"] == YES
    is_yes = pd.Series(False, index=rows.index)
    for rule, part in rows.groupby("rule"):
        is_other = (rows["rule"] != rule) & (rows["standing"] == "wrong")
        threshold = rows.loc[is_other, way].quantile(1 - MOST_FALSE)
        is_yes[part.index] = part[way] > threshold
    return is_yes


def yes_rate(rows: pd.DataFrame, is_yes: "pd.Series[bool]") -> Interval:
    """Share of the attentions that get a yes: the mean of the rules', with its interval."""
    return mean_of_rules(is_yes.groupby(rows["rule"]).mean().to_numpy())


def auroc_of(rows: pd.DataFrame, way: str) -> float:
    """How often a way's number is larger for a right attention than for a wrong one."""
    is_right = (rows["standing"] == "right").to_numpy()
    if is_right.all() or not is_right.any():
        return float("nan")
    return auroc(rows[way].to_numpy(float), is_right)


def over_resampled_rules(
    rows: pd.DataFrame, statistic: Callable[[pd.DataFrame], float]
) -> Interval:
    """A number of all rows, with the bootstrap's 95 % interval over rules."""
    parts = [part for _, part in rows.groupby("rule")]
    draw = np.random.default_rng(0)
    samples = []
    for _ in range(RESAMPLES):
        drawn = draw.integers(len(parts), size=len(parts))
        resample = pd.concat([parts[number] for number in drawn])
        samples.append(statistic(resample))
    low, high = np.nanquantile(samples, [1 - UPPER_TAIL, UPPER_TAIL])
    return Interval(statistic(rows), float(low), float(high))


def ways_as_markdown(rows: pd.DataFrame) -> str:
    """The table of the docs.

    Args:
        rows: as of `compare`.
    """
    counts = rows["standing"].value_counts()
    lines = [
        f"{counts.get('right', 0)} right and {counts.get('wrong', 0)} wrong attentions of "
        f"{rows['model'].nunique()} models of {rows['rule'].nunique()} rules, "
        f"{int(rows['texts'].max())} texts of each:",
        "",
        "| | AUROC, all models together | within a model | yes on right | yes on wrong |",
        "|---|---|---|---|---|",
    ]
    for row in table_of_ways(rows).to_dict("records"):
        cells = [
            str(row["way"]),
            f"{row['auroc']:.2f} [{row['low']:.2f}, {row['high']:.2f}]",
            f"{row['within']:.2f}",
            percent(*row["yes_on_right"]),
            percent(*row["yes_on_wrong"]),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
