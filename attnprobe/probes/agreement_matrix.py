"""How far do importances agree with each other, between what chance gives and what each of them reaches with itself?"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from scipy import stats
from torch import Tensor

from attnprobe.errors import UserError
from attnprobe.measures import kendall_tau, rank_biased_overlap, top_overlap
from attnprobe.nulls.permutation import permute_attention
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, RankingProbe, Subject, description
from attnprobe.randomness import Draws
from attnprobe.results.metrics import CORRELATION, SCORE, SHARE, TAU, Metric

METRICS = (
    Metric("tau_{pair}", TAU, "Kendall's τ-b over the content positions", source="Neely et al. 2022"),
    Metric("weighted_tau_{pair}", CORRELATION, "an exchange counts by 1 / rank", source="Vigna 2015"),
    Metric("rbo_{pair}", SCORE, "rank-biased overlap, p = 0.9", source="Webber et al. 2010"),
    Metric("top_overlap_{pair}", SHARE, "what the lists of the `top` (5) largest have in common"),
    *DESCRIPTION,
)
"""See `AgreementMatrix`."""


@dataclass
class AgreementMatrix(RankingProbe):
    """Every two importances compared per example over the content positions, in size where they have a sign.

    For each pair X, Y in the order of the importances it yields

    - `tau_X_and_Y`: Kendall's τ-b, −1 to 1;
    - `weighted_tau_X_and_Y`: τ in which an exchange counts by 1 / rank (Vigna 2015), −1 to 1;
    - `rbo_X_and_Y`: rank-biased overlap with p = 0.9, 0 to 1 (Webber et al. 2010);
    - `top_overlap_X_and_Y`: what share the lists of the `top` largest have in common.

    And per importance X the same four between a floor, `…_floor_X`: X against itself in random order; and a ceiling,
    `…_ceiling_X`: X against itself with other random numbers, 1 for one that draws none. Two importances cannot be asked to
    agree better than each agrees with itself. `predicted_class`, `content_length`, `max_attention`.

    Attributes:
        top: length of the lists that are compared.
        importances: see `RankingProbe`; two or more.
    """

    name: ClassVar[str] = "agreement_matrix"
    metrics = METRICS
    of_words = True
    published = ("attention", "gradient_input", "integrated_gradients", "leave_one_out", "shapley_sampling", "random")
    top: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.uses) < 2:
            raise UserError(
                f"probe.agreement_matrix.importances={list(self.uses)}: expected two or more to compare, such as "
                f"[attention, gradient_input]"
            )
        if self.top < 1:
            raise UserError(
                f"probe.agreement_matrix.top={self.top}: expected the length of two lists to compare, 1 or more"
            )

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        content, other = subject.batch.content, subject.redrawn()
        sizes = {name: self.size(subject, name, scores) for name, scores in self.scores(subject).items()}
        noise = draws.uniform(1, content, subject.batch.example_id)
        for first, second in combinations(sizes, 2):
            yield from self.compared(f"{first}_and_{second}", sizes[first], sizes[second], content)
        for name, scores in sizes.items():
            shuffled = permute_attention(scores, content, noise)[0]
            yield from self.compared(f"floor_{name}", scores, shuffled, content)
            again = self.size(other, name, other.scores(name)) if subject.importance(name).drawn else scores
            yield from self.compared(f"ceiling_{name}", scores, again, content)
        yield from description(subject.readout)
        yield from self.notes(subject)

    @staticmethod
    def size(subject: Subject, name: str, scores: Float[Tensor, "batch seq"]) -> Float[Tensor, "batch seq"]:
        """The scores without their sign."""
        return scores.abs().double() if subject.importance(name).signed else scores.double()

    def compared(
        self,
        names: str,
        a: Float[Tensor, "batch seq"],
        b: Float[Tensor, "batch seq"],
        content: Bool[Tensor, "batch seq"],
    ) -> Iterator[Measurement]:
        """The four measures of two scorings."""
        undefined = ((a.isnan() | b.isnan()) & content).any(-1)
        top = torch.full(content.shape[:1], self.top, device=content.device)
        statistics: Mapping[str, Tensor] = {
            "tau": kendall_tau(a, b, content),
            "weighted_tau": weighted_tau(a, b, content),
            "rbo": rank_biased_overlap(a, b, content),
            "top_overlap": top_overlap(a, b, top, content),
        }
        for metric, values in statistics.items():
            yield Measurement(f"{metric}_{names}", values.masked_fill(undefined.to(values.device), torch.nan))


def weighted_tau(
    a: Float[Tensor, "batch seq"], b: Float[Tensor, "batch seq"], content: Bool[Tensor, "batch seq"]
) -> Float[Tensor, "batch"]:
    """scipy's weighted τ of each row's content, ranked by either in turn; NaN where it is undefined."""
    rows = zip(a.cpu().numpy(), b.cpu().numpy(), content.cpu().numpy(), strict=True)
    return torch.tensor(
        [
            float(stats.weightedtau(left[kept], right[kept], rank=True).statistic) if kept.sum() > 1 else torch.nan
            for left, right, kept in rows
        ],
        dtype=torch.float64,
    )
