"""Does attention agree with other measures of importance, and do these agree with each other?
(Jain & Wallace 2019, section 4.1)"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.errors import UserError
from attnprobe.importance.words import is_function_word
from attnprobe.measures import (
    entropy,
    jensen_shannon,
    kendall_tau,
    kendall_tau_test,
    normalised,
    spearman,
    tenth,
    top_overlap,
    top_tau,
)
from attnprobe.nulls.permutation import permute_attention
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, RankingProbe, Subject, description
from attnprobe.randomness import Draws
from attnprobe.results.metrics import CORRELATION, COUNT, JSD, P_VALUE, SHARE, TAU, Metric

CEILINGS = (("gradient", "leave_one_out"), ("gradient_through_attention", "leave_one_out"))
"""The paper's."""


SOURCE = "Jain & Wallace 2019, section 4.1"
METRICS = (
    Metric("tau_{pair}", TAU, "Kendall's τ-b over the content positions", higher_is_better=True, source=SOURCE),
    Metric("p_{pair}", P_VALUE, "of it, uncorrected", source=SOURCE),
    Metric("spearman_{pair}", CORRELATION, "Spearman's ρ", higher_is_better=True),
    Metric("top_tau_{pair}", CORRELATION, "Kendall's τ of the lists of the `top` (5) largest", higher_is_better=True,
           source="Fagin et al. 2003, K with p = ½"),
    Metric("top_overlap_{pair}", SHARE, "what these lists have in common", higher_is_better=True),
    Metric("tenth_overlap_{pair}", SHARE, "the same of the largest tenth", higher_is_better=True),
    Metric("jsd_{pair}", JSD, "of the two, each made to sum to 1", higher_is_better=False),
    Metric("tau_words_{pair}", TAU, "τ-b over content words alone", higher_is_better=True),
    Metric("tau_shuffled_{importance}", TAU, "τ-b with the attention in random order: a floor"),
    Metric("attention_evenness", SHARE, "entropy / ln n; 1 is uniform"),
    Metric("content_words", COUNT, "positions in `tau_words_{pair}`"),
    *DESCRIPTION,
)  # fmt: skip
"""See `Correlation`."""


@dataclass
class Correlation(RankingProbe):
    """Rank agreement per example between attention and each importance, over the content positions.

    For each pair (`attention_X`, published: X = `gradient`, `gradient_through_attention`, `leave_one_out`; and
    `gradient_leave_one_out` and `gradient_through_attention_leave_one_out`, the paper's control, where both are among the
    importances) it yields

    - `tau_…` Kendall's τ-b, −1 to 1, and `p_…`, its p-value without correction for the number of examples;
    - `spearman_…`, −1 to 1;
    - `top_tau_…` Kendall's τ of the lists of the `top` largest, `top_overlap_…` what share they have in common, and
      `tenth_overlap_…` the same for the largest tenth of the positions;
    - `jsd_…` Jensen-Shannon divergence of the scores made to sum to 1, in nats, 0 to ln 2;
    - `tau_words_…` τ-b over content words alone, where the vocabulary is known: no function words, no punctuation.

    Of a signed importance the size is compared. And per importance `tau_shuffled_…`, τ-b with the attention in
    random order, a floor; `attention_evenness` (entropy / ln n: 1 is uniform), `content_words` (how many), `predicted_class`,
    `content_length`. What is undefined for an example (a row of one token, or of equal scores) is NaN.

    Attributes:
        top: length of the lists that are compared.
        function_words: words that `tau_words_…` leaves out; None: spaCy's English stop words. "not" is among these.
        ceilings: pairs of importances that have nothing to do with attention: how well these agree is the most that can be
            asked of it. A pair is compared where both are among the importances.
        importances: see `RankingProbe`.
    """

    name: ClassVar[str] = "correlation"
    metrics = METRICS
    of_words = True
    published = ("attention", "gradient", "gradient_through_attention", "leave_one_out")
    top: int = 5
    function_words: Sequence[str] | None = None
    ceilings: Sequence[Sequence[str]] = CEILINGS

    def __post_init__(self) -> None:
        super().__post_init__()
        if set(self.uses) <= {"attention"}:
            raise UserError(
                f"probe.correlation.importances={list(self.uses)}: expected one or more to compare with attention, such as "
                f"[attention, gradient]"
            )
        if wrong := [list(pair) for pair in self.ceilings if len(set(pair)) != 2 or "attention" in pair]:
            raise UserError(
                f"probe.correlation.ceilings: {wrong[0]}: expected two importances, neither of them attention, such as "
                f"[gradient, leave_one_out]"
            )
        if self.top < 2:
            raise UserError(f"probe.correlation.top={self.top}: expected the length of two lists to compare, 2 or more")

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        scores, content = self.strengths(subject), subject.outputs.content
        pairs = self.pairs(list(scores))
        names = ["_".join(pair) for pair in pairs]
        left, right = (torch.stack([scores[pair[side]] for pair in pairs]) for side in (0, 1))
        tau, p = kendall_tau_test(left, right, content)
        size = torch.full(content.shape[:1], self.top, device=content.device)
        apart = jensen_shannon(normalised(left, content), normalised(right, content), content)
        # leave-one-out is NaN outside content too, where nothing was removed
        undefined = ((left.isnan() | right.isnan()) & content).any(-1)
        statistics = {
            "tau": tau,
            "p": p,
            "spearman": spearman(left, right, content),
            "top_tau": top_tau(left, right, self.top, content),
            "top_overlap": top_overlap(left, right, size, content),
            "tenth_overlap": top_overlap(left, right, tenth(content), content),
            "jsd": torch.where(undefined, torch.nan, apart),
        }
        words = self.content_words(subject)
        if words is not None:
            statistics["tau_words"] = kendall_tau(left, right, words)
            yield Measurement("content_words", words.sum(-1))
        for metric, values in statistics.items():
            for name, value in zip(names, values, strict=True):
                yield Measurement(f"{metric}_{name}", value)

        attention = scores.pop("attention")
        noise = draws.uniform(1, content, subject.batch.example_id)
        shuffled = permute_attention(attention, content, noise)
        for name, importance in scores.items():
            yield Measurement(f"tau_shuffled_{name}", kendall_tau(shuffled[0], importance, content))
        length = content.sum(-1).double()
        # one position is neither even nor uneven
        most = torch.where(length > 1, length.log(), torch.nan)
        yield Measurement("attention_evenness", entropy(attention, content) / most)
        yield from description(subject.readout)
        yield from self.notes(subject)

    def strengths(self, subject: Subject) -> dict[str, Float[Tensor, "batch seq"]]:
        """Attention and every other importance, in size."""
        scores = {"attention": subject.scores("attention")} | self.scores(subject)
        return {name: one.abs() if subject.importance(name).signed else one for name, one in scores.items()}

    def pairs(self, names: Sequence[str]) -> list[tuple[str, str]]:
        """Attention with each of the others, then the ceilings."""
        ceilings = [(first, second) for first, second in self.ceilings if {first, second} <= set(names)]
        return [*(("attention", name) for name in names if name != "attention"), *ceilings]

    def content_words(self, subject: Subject) -> Bool[Tensor, "batch seq"] | None:
        """Content positions that hold a content word; None where the vocabulary is not known."""
        if subject.words is None:
            return None
        excluded = is_function_word(subject.words, self.function_words).to(subject.batch.ids.device)
        return subject.outputs.content & ~excluded[subject.batch.ids]
