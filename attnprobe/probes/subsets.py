"""Every subset of a short text's words: the truth that sampled attributions and single orders are measured against."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.batch import probabilities
from attnprobe.errors import UserError
from attnprobe.exact.subsets import complement, minimal_sets, prefix_limits, shapley_values, smallest_set
from attnprobe.importance.attribution import Attribution, Explained
from attnprobe.measures import kendall_tau
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, RankingProbe, Subject, description, positions
from attnprobe.randomness import Draws
from attnprobe.results.metrics import COUNT, PROBABILITY_DIFFERENCE, SCORE, SHARE, TAU, Metric, Scale

MOST_WORDS = 16
"""2^16 texts in the place of one."""


SOURCE = "Edin et al. 2025"
METRICS = (
    Metric("aopc_lower", PROBABILITY_DIFFERENCE, "mean fall of the predicted class's probability over the prefixes of the "
           "worst of all orders", source=SOURCE),
    Metric("aopc_upper", PROBABILITY_DIFFERENCE, "of the best of all orders", source=SOURCE),
    Metric("input_set", Scale("words", 1), "the fewest words without which the decision differs; NaN where no set does it"),
    Metric("necessary_sets", COUNT, "minimal sets without which it differs"),
    Metric("sufficient_sets", COUNT, "minimal sets that alone keep it"),
    Metric("shapley", Scale("units of the logit"), "exact Shapley values", step="position"),
    Metric("aopc_{importance}", PROBABILITY_DIFFERENCE, "the mean fall in this order", higher_is_better=True,
           source=SOURCE),
    Metric("aopc_normalised_{importance}", SCORE, "where that lies between the two limits", higher_is_better=True,
           source=SOURCE),
    Metric("shapley_tau_{importance}", TAU, "of the scores and the Shapley values (their sizes, where the importance has no "
           "sign)", higher_is_better=True),
    Metric("shapley_top_{importance}", SHARE, "whether its highest-scored word is theirs (the largest in size, where the "
           "importance has no sign); of words with equal scores, the share", higher_is_better=True),
    Metric("shapley_share_error_{importance}", SHARE, "half the sum of the differences between both scorings (the Shapley "
           "values by size, where the importance has no sign), each divided by the sum of its sizes", higher_is_better=False),
    Metric("shapley_error_{importance}", Scale("ratio", 0), "sum of the differences from the Shapley values over the sum of "
           "their sizes; of importances that should add up", higher_is_better=False),
    *DESCRIPTION,
)  # fmt: skip
"""See `Subsets`."""


@dataclass
class Subsets(RankingProbe):
    """Predict all 2^n texts in which some of the n words are replaced, and read off exactly what others search or sample for.

    What is explained, and what replaces a word, are `target` and `baseline` of the importance `shapley_sampling`. Of texts of
    more than `most_words` words everything is NaN, and no importance is asked about them. Yields per example

    - `aopc_lower`, `aopc_upper`: the least and the greatest mean fall of the predicted class's probability over the n
      prefixes that any of the n! orders of removal can reach (Edin et al. 2025);
    - `input_set`: the fewest words without which the decision differs, NaN where no set does it; `necessary_sets`,
      `sufficient_sets`: how many minimal sets there are without which it differs, and that alone keep it;
    - per position (step) `shapley`, in units of the logit;

    and per importance X `aopc_X`, the same mean fall in its order; `aopc_normalised_X`, where that lies between the two
    limits, 0 to 1. Against the Shapley values φ, or |φ| where X has no sign: `shapley_tau_X`, Kendall's τ-b; `shapley_top_X`,
    1 where both have the same highest word and 0 elsewhere (of words with equal scores the share); `shapley_share_error_X`,
    ½ Σ|X / Σ|X| − φ / Σ|φ||, 0 to 1, which asks nothing of X's unit. Where X should add up as Shapley values do,
    `shapley_error_X`, Σ|X − φ| / Σ|φ|, 0 or more. And `predicted_class`, `content_length`, `max_attention`.

    Attributes:
        importances: see `RankingProbe`.
        most_words: 1 to 16; every further word doubles the time.
    """

    name: ClassVar[str] = "subsets"
    metrics = METRICS
    of_words = True
    one_decision = True
    published = (
        "attention", "random", "gradient_input", "integrated_gradients", "leave_one_out", "lime", "kernel_shap",
        "shapley_sampling",
    )  # fmt: skip
    most_words: int = 12

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.most_words <= MOST_WORDS:
            raise UserError(
                f"probe.subsets.most_words={self.most_words}: expected 1 to {MOST_WORDS}; a text of n words takes 2^n "
                f"predictions"
            )

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        game, content = subject.importance("shapley_sampling"), subject.batch.content
        assert isinstance(game, Attribution)
        names = [name for name in self.uses if subject.importance(name).is_defined(subject)]
        short = (content.sum(-1) <= self.most_words).nonzero()[:, 0]
        by_metric: dict[str, Tensor] = {}
        shapley = torch.full(content.shape, torch.nan, dtype=torch.float64, device=content.device)
        if len(short):
            # what other probes have computed of these texts is there, unless some are left out
            some = subject if len(short) == len(content) else with_rows(subject, short)
            explained, scores = some.cached(game.explained), self.scores(some)
            for row, place in enumerate(short.tolist()):
                inside = content[place]
                value, probability, same = tables_of(explained.alone(row), int(inside.sum()))
                exact = shapley_values(value[None])[0]
                shapley[place, inside] = exact
                numbers = exact_numbers(probability, same)
                for name, own in ((name, values[row][inside].double()) for name, values in scores.items()):
                    one = subject.importance(name)
                    numbers |= of_order(name, own, drops(probability), numbers)
                    numbers |= against(name, own, exact, one.signed, one.complete)
                for metric, number in numbers.items():
                    nothing = torch.full(content.shape[:1], torch.nan, dtype=torch.float64)
                    by_metric.setdefault(metric, nothing)[place] = number
            yield from self.notes(some)
        for metric, values in self.with_all(by_metric, names, subject).items():
            yield Measurement(metric, values)
        yield Measurement("shapley", shapley, positions(content & ~shapley.isnan()))
        yield from description(subject.readout)

    def with_all(self, numbers: dict[str, Tensor], names: Sequence[str], subject: Subject) -> dict[str, Tensor]:
        """The same numbers, NaN for those that no text of this batch has: every batch has the same metrics."""
        metrics = ["aopc_lower", "aopc_upper", "input_set", "necessary_sets", "sufficient_sets"]
        for name in names:
            kinds = ["aopc", "aopc_normalised", "shapley_tau", "shapley_top", "shapley_share_error"]
            kinds += ["shapley_error"] if subject.importance(name).complete else []
            metrics += [f"{kind}_{name}" for kind in kinds]
        nothing = torch.full((len(subject.batch),), torch.nan, dtype=torch.float64)
        return {metric: numbers.get(metric, nothing) for metric in metrics}


def with_rows(subject: Subject, rows: Int[Tensor, "chosen"]) -> Subject:
    """Some of the texts, of which nothing has been computed yet."""
    batch, outputs = subject.batch.rows(rows), subject.outputs.rows(rows)
    return replace(
        subject, batch=batch, outputs=outputs, readout=subject.classifier.readout(batch, outputs), _results={}
    )


def tables_of(
    explained: Explained, words: int
) -> tuple[Float[Tensor, "subsets"], Float[Tensor, "subsets"], Bool[Tensor, "subsets"]]:
    """By the bit mask of the words kept: the number that is explained, the probability of the class predicted for the whole
    text, and whether that class is predicted."""
    masks = torch.arange(2**words, device=explained.inputs.device)
    kept = (masks.unsqueeze(-1) >> torch.arange(words, device=masks.device)) & 1
    logits = explained.logits_keeping(kept.double()).double()
    value = explained.number_of(logits, torch.zeros_like(masks))
    decision = logits[-1].argmax()
    probability = probabilities(logits, explained.model.task)[:, decision]
    return value, probability, logits.argmax(-1) == decision


def exact_numbers(probability: Tensor, same: Tensor) -> dict[str, Tensor]:
    """What follows from the table of one text."""
    limits = prefix_limits(drops(probability)[None])
    flipped = ~complement(same)[None]  # by the words removed
    size = smallest_set(flipped).size[0].double()
    return {
        "aopc_lower": limits.lower[0],
        "aopc_upper": limits.upper[0],
        "input_set": torch.where(size < 0, torch.nan, size),
        "necessary_sets": minimal_sets(flipped).sum().double(),
        "sufficient_sets": minimal_sets(same[None]).sum().double(),
    }


def drops(probability: Float[Tensor, "subsets"]) -> Float[Tensor, "subsets"]:
    """Fall of the probability by the bit mask of the words removed."""
    return probability[-1] - complement(probability)


def of_order(
    name: str, scores: Float[Tensor, "words"], fall: Float[Tensor, "subsets"], limits: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The mean fall in the order of an importance, and where it lies between the limits."""
    order = scores.argsort(descending=True, stable=True)
    aopc = fall[(1 << order).cumsum(0)].mean()
    aopc = torch.where(scores.isnan().any(), torch.nan, aopc)
    lower, width = limits["aopc_lower"], limits["aopc_upper"] - limits["aopc_lower"]
    return {
        f"aopc_{name}": aopc,
        f"aopc_normalised_{name}": (aopc - lower) / torch.where(width > 0, width, torch.nan),
    }


def against(
    name: str, scores: Float[Tensor, "words"], exact: Float[Tensor, "words"], signed: bool, complete: bool
) -> dict[str, Tensor]:
    """How far the scores of an importance are from the Shapley values."""
    every = torch.ones_like(scores, dtype=torch.bool)[None]
    wanted = exact if signed else exact.abs()
    numbers = {
        f"shapley_tau_{name}": kendall_tau(scores[None], wanted[None], every)[0],
        f"shapley_top_{name}": same_top(scores, wanted),
        f"shapley_share_error_{name}": (shares(scores) - shares(wanted)).abs().sum() / 2,
    }
    if complete:
        numbers[f"shapley_error_{name}"] = (scores - exact).abs().sum() / nonzero(exact.abs().sum())
    return numbers


def same_top(scores: Float[Tensor, "words"], exact: Float[Tensor, "words"]) -> Float[Tensor, ""]:
    """The share of the highest-scored words that are among the exactly highest; NaN where a score is.

    >>> same_top(torch.tensor([0.2, 0.2, 0.1]), torch.tensor([3.0, 1.0, 2.0])).item()
    0.5
    """
    top = scores == scores.max()
    return torch.where(scores.isnan().any(), torch.nan, (exact[top] == exact.max()).double().mean())


def shares(scores: Float[Tensor, "words"]) -> Float[Tensor, "words"]:
    """Scores divided by the sum of their sizes; NaN where all are 0."""
    return scores / nonzero(scores.abs().sum())


def nonzero(size: Float[Tensor, ""]) -> Float[Tensor, ""]:
    """The same, NaN in place of 0."""
    return torch.where(size > 0, size, torch.nan)
