"""Every subset of a short text's words: the exact answer behind attributions and orders."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated

import pandas as pd
import torch
from annotated_types import Ge, Le
from jaxtyping import Bool, Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from attnprobe.core.batch import probabilities
from attnprobe.core.metrics import COUNT, PROBABILITY_DIFFERENCE, SCORE, SHARE, TAU, Metric, Scale
from attnprobe.core.randomness import Draws
from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import mean_of
from attnprobe.exact.subsets import (
    PrefixLimits,
    complement,
    minimal_sets,
    prefix_limits,
    shapley_values,
    smallest_set,
)
from attnprobe.importance.attribution import Attribution, Explained
from attnprobe.measures import kendall_tau
from attnprobe.plots.grid import interval_figure
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, RankingProbe, Subject, positions
from attnprobe.readings.importances import importances_in
from attnprobe.readings.means import means_by_importance
from attnprobe.readings.reading import Drawing, Headline, Reading, Tabulation

SOURCE = "Edin et al. 2025"
METRICS = (
    Metric(
        "aopc_lower",
        PROBABILITY_DIFFERENCE,
        "mean fall of the predicted class's probability over the prefixes of the "
        "worst of all orders",
        source=SOURCE,
    ),
    Metric("aopc_upper", PROBABILITY_DIFFERENCE, "of the best of all orders", source=SOURCE),
    Metric(
        "input_set",
        Scale("words", 1),
        "the fewest words without which the decision differs; NaN where no set does it",
    ),
    Metric("necessary_sets", COUNT, "minimal sets without which it differs"),
    Metric("sufficient_sets", COUNT, "minimal sets that alone keep it"),
    Metric("shapley", Scale("units of the logit"), "exact Shapley values", step="position"),
    Metric(
        "aopc_{importance}",
        PROBABILITY_DIFFERENCE,
        "the mean fall in this order",
        higher_is_better=True,
        source=SOURCE,
    ),
    Metric(
        "aopc_normalised_{importance}",
        SCORE,
        "where that lies between the two limits",
        higher_is_better=True,
        source=SOURCE,
    ),
    Metric(
        "shapley_tau_{importance}",
        TAU,
        "of the scores and the Shapley values (their sizes, where the importance has no sign)",
        higher_is_better=True,
    ),
    Metric(
        "shapley_top_{importance}",
        SHARE,
        "whether its highest-scored word is theirs (the largest in size, where the "
        "importance has no sign); of words with equal scores, the share",
        higher_is_better=True,
    ),
    Metric(
        "shapley_share_error_{importance}",
        SHARE,
        "half the sum of the differences between both scorings (the Shapley "
        "values by size, where the importance has no sign), each divided by the sum of its sizes",
        higher_is_better=False,
    ),
    Metric(
        "shapley_error_{importance}",
        Scale("ratio", 0),
        "sum of the differences from the Shapley values over the sum of "
        "their sizes; of importances that should add up",
        higher_is_better=False,
    ),
    *DESCRIPTION,
)


@dataclass
class Subsets(RankingProbe):
    """Predict all 2^n texts in which some of the n words are replaced.

    From these follows exactly what others search or sample for.

    What is explained, and what replaces a word, are `target` and `baseline` of the importance
    `shapley_sampling`. Texts of more than `most_words` words are left out (NaN), and no importance
    is asked about them.

    Scores X are compared with the Shapley values φ, or with |φ| where X has no sign:
    `shapley_share_error_X` is ½ Σ|X / Σ|X| − φ / Σ|φ||, and of an X that should add up as Shapley
    values do `shapley_error_X` is Σ|X − φ| / Σ|φ|.

    Attributes:
        most_words: 1 to 16; every further word doubles the time.
    """

    name = "subsets"
    metrics = METRICS
    of_words = True
    one_decision = True
    published = (
        "attention",
        "random",
        "gradient_input",
        "integrated_gradients",
        "leave_one_out",
        "lime",
        "kernel_shap",
        "shapley_sampling",
    )
    most_words: Annotated[int, Ge(1), Le(16)] = 12

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the exact numbers of the short texts, and how each importance compares."""
        content = subject.batch.content
        numbers = {
            metric: torch.full(content.shape[:1], torch.nan, dtype=torch.float64)
            for metric in self._metrics(subject)
        }
        shapley = torch.full(content.shape, torch.nan, dtype=torch.float64, device=content.device)
        short = (content.sum(-1) <= self.most_words).nonzero()[:, 0]
        if len(short):
            short_texts = _part_of(subject, short)
            for row, subsets, text_numbers in self._texts(short_texts, short.tolist()):
                shapley[row, content[row]] = subsets.shapley
                for metric, value in text_numbers.items():
                    numbers[metric][row] = value
            yield from self.notes(short_texts)

        for metric, values in numbers.items():
            yield Measurement(metric, values)
        yield Measurement("shapley", shapley, positions(content & ~shapley.isnan()))

    def _texts(
        self, subject: Subject, rows: Sequence[int]
    ) -> Iterator[tuple[int, "AllSubsets", dict[str, Tensor]]]:
        """Each text's row in the whole batch, its subsets, and its numbers by metric."""
        game = subject.importance("shapley_sampling")
        assert isinstance(game, Attribution)
        explained = subject.cached(game.explained)
        scores = self.scores(subject)
        for number, row in enumerate(rows):
            is_word = subject.batch.content[number]
            subsets = AllSubsets.of(explained.alone(number), words=int(is_word.sum()))
            text_scores = {
                name: values[number][is_word].double() for name, values in scores.items()
            }
            yield row, subsets, subsets.numbers() | _compared(subject, subsets, text_scores)

    def _metrics(self, subject: Subject) -> list[str]:
        """Those of every batch, whether or not it has a short text."""
        metrics = ["aopc_lower", "aopc_upper", "input_set", "necessary_sets", "sufficient_sets"]
        for name in self.uses:
            importance = subject.importance(name)
            if importance.is_defined(subject):
                kinds = [kind for kind in KINDS if kind != "shapley_error" or importance.complete]
                metrics += [f"{kind}_{name}" for kind in kinds]
        return metrics


def _part_of(subject: Subject, rows: Int[Tensor, "rows"]) -> Subject:
    """Some of the texts; the subject itself, with all that is known of it, where these are all."""
    if len(rows) == len(subject.batch.content):
        return subject
    batch = subject.batch.rows(rows)
    outputs = subject.outputs.rows(rows)
    readout = subject.classifier.readout(batch, outputs)
    return replace(subject, batch=batch, outputs=outputs, readout=readout, _results={})


def _compared(
    subject: Subject, subsets: "AllSubsets", scores: Mapping[str, Float[Tensor, "words"]]
) -> dict[str, Tensor]:
    """The metrics of each importance in one text (name → its scores)."""
    numbers: dict[str, Tensor] = {}
    for name, text_scores in scores.items():
        importance = subject.importance(name)
        numbers |= subsets.order_numbers(name, text_scores)
        numbers |= against(
            name, text_scores, subsets.shapley, importance.signed, importance.complete
        )
    return numbers


@dataclass(frozen=True)
class AllSubsets:
    """What the model makes of one text with every set of its words, by the bit mask of the set.

    Attributes:
        keeps_decision: whether the class predicted for the whole text is predicted with these words
            alone.
        fall: by how much the probability of that class falls *without* these words.
        limits: the mean fall in the worst and in the best of all orders of removal.
        shapley: the exact Shapley value of each word, in the unit of what is explained.
    """

    keeps_decision: Bool[Tensor, "subsets"]
    fall: Float[Tensor, "subsets"]
    limits: PrefixLimits
    shapley: Float[Tensor, "words"]

    @classmethod
    def of(cls, text: Explained, words: int) -> "AllSubsets":
        """Predict the text with every set of its words."""
        masks = torch.arange(2**words, device=text.inputs.device)
        is_kept = (masks.unsqueeze(-1) >> torch.arange(words, device=masks.device)) & 1
        logits = text.logits_keeping(is_kept.double()).double()
        value = text.number_of(logits, torch.zeros_like(masks))
        decision = logits[-1].argmax()
        probability = probabilities(logits, text.model.task)[:, decision]
        fall = probability[-1] - complement(probability)
        return cls(
            keeps_decision=logits.argmax(-1) == decision,
            fall=fall,
            limits=prefix_limits(fall[None]),
            shapley=shapley_values(value[None])[0],
        )

    def numbers(self) -> dict[str, Tensor]:
        """The metrics that are about the text and no importance."""
        flips_without = ~complement(self.keeps_decision)[None]
        size = smallest_set(flips_without).size[0].double()
        return {
            "aopc_lower": self.limits.lower[0],
            "aopc_upper": self.limits.upper[0],
            "input_set": torch.where(size < 0, torch.nan, size),
            "necessary_sets": minimal_sets(flips_without).sum().double(),
            "sufficient_sets": minimal_sets(self.keeps_decision[None]).sum().double(),
        }

    def order_numbers(self, name: str, scores: Float[Tensor, "words"]) -> dict[str, Tensor]:
        """The metrics of an importance's order, the highest score removed first; NaN with a NaN."""
        order = scores.argsort(descending=True, stable=True)
        removed_masks = (1 << order).cumsum(0)
        aopc = self.fall[removed_masks].mean()
        aopc = torch.where(scores.isnan().any(), torch.nan, aopc)
        lower = self.limits.lower[0]
        width = self.limits.upper[0] - lower
        return {
            f"aopc_{name}": aopc,
            f"aopc_normalised_{name}": (aopc - lower) / _nonzero(width),
        }


def against(
    name: str,
    scores: Float[Tensor, "words"],
    exact: Float[Tensor, "words"],
    signed: bool,
    complete: bool,
) -> dict[str, Tensor]:
    """How far the scores of an importance are from the Shapley values, by the metric's name.

    Args:
        name: of the importance.
        scores: its scores.
        exact: the Shapley values.
        signed: the scores have a sign; without, they are compared with the values' sizes.
        complete: the scores should add up as the values do.
    """
    wanted = exact if signed else exact.abs()
    all_words = torch.ones_like(scores[None]).bool()
    tau = kendall_tau(scores[None], wanted[None], all_words)[0]
    is_top = scores == scores.max()
    same_top = (wanted[is_top] == wanted.max()).double().mean()
    share = scores / _nonzero(scores.abs().sum())
    wanted_share = wanted / _nonzero(wanted.abs().sum())
    numbers = {
        f"shapley_tau_{name}": tau,
        f"shapley_top_{name}": torch.where(scores.isnan().any(), torch.nan, same_top),
        f"shapley_share_error_{name}": (share - wanted_share).abs().sum() / 2,
    }
    if complete:
        error = (scores - exact).abs().sum() / _nonzero(exact.abs().sum())
        numbers[f"shapley_error_{name}"] = error
    return numbers


def _nonzero(size: Float[Tensor, ""]) -> Float[Tensor, ""]:
    return torch.where(size > 0, size, torch.nan)


MARK = "aopc_normalised_"
KINDS = {
    "aopc": "AOPC",
    "aopc_normalised": "between its limits",
    "shapley_tau": "tau with Shapley",
    "shapley_top": "same top word as Shapley",
    "shapley_share_error": "shares differ from Shapley's by",
    "shapley_error": "error against Shapley",
}
subsets_table = partial(means_by_importance, probe="subsets", mark=MARK, kinds=KINDS)


def limits(results: pd.DataFrame, examples: pd.DataFrame | None) -> Figure:
    """Where each importance's AOPC lies between the worst (0) and the best (1) of all orders.

    Means with 95 % bootstrap intervals, one panel per data set and model.
    """
    figure, panels = interval_figure(
        subsets_table(results),
        "data and model",
        importances_in(results, "subsets", MARK).values(),
        {"between its limits": ""},
        x="worst order = 0, best order = 1",
        zero=0.5,
    )
    for panel in panels.values():
        panel.set_xlim(0, 1)
    return figure


CLAIMS = (
    Claim(
        name="attention_order_is_nearer_to_the_best",
        criterion="erasure",
        level="word",
        speaks="for",
        source=SOURCE,
        statement=(
            "Removing words by their attention comes nearer to the best of all orders than to the "
            "worst"
        ),
        measure=mean_of("aopc_normalised_attention", ends=(0, 1)),
        threshold=0.5,
        quantity=(
            "AOPC between its exact limits, mean of the short texts, 0 to 1; more than 0.5 is "
            "asked for"
        ),
    ),
)

READING = Reading(
    probe="subsets",
    order=64,
    claims=CLAIMS,
    mark=MARK,
    title="Every subset: how near do orders and attributions come to the exact answer?",
    about=(
        "Each short text is predicted in all 2^n versions with some words replaced. Three things "
        "follow from these without any guess. The best and the worst order of removal: each "
        "importance's AOPC lies between them (0 to 1). The Shapley values: several attributions "
        "aim at them. And the fewest words without which the decision differs. Longer texts are "
        "left out, so this is about the short ones."
    ),
    of_importance=(
        Headline("aopc_normalised_{importance}", "AOPC between its limits (0 to 1): {title}"),
        Headline("shapley_tau_{importance}", "  tau with the Shapley values"),
        Headline("shapley_top_{importance}", "  same top word as the Shapley values"),
        Headline("shapley_share_error_{importance}", "  shares differ from theirs by (0 to 1)"),
        Headline("shapley_error_{importance}", "  error against the Shapley values"),
    ),
    headlines=(
        Headline("aopc_lower", "AOPC of the worst order"),
        Headline("aopc_upper", "AOPC of the best order"),
        Headline("input_set", "fewest words that decide"),
    ),
    tables=(
        Tabulation(
            "subsets",
            "Each importance against all subsets of the words of the n short texts: its AOPC, "
            "where that lies between the worst (0) and the best (1) of all orders; Kendall's tau "
            "with the exact Shapley values, the share of texts in which both have the same "
            "highest word, and half the sum of their differences as shares of the text's sum (0 "
            "to 1), all three by size where the importance has no sign, so that such rows are "
            "comparable among themselves; and for attributions that estimate these values the "
            "error, differences over sizes. Random scores are the level of chance. Means over "
            "texts with 95 % bootstrap intervals over texts; one model.",
            subsets_table,
        ),
    ),
    drawings=(
        Drawing("subsets_limits", limits, ("aopc_normalised_attention",), optional=("*_*",)),
    ),
)
