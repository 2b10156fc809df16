"""Which of a network's attentions matter, and which say what? The same questions of every layer and head."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.errors import UserError
from attnprobe.importance.plausibility import average_precision
from attnprobe.measures import entropy, kendall_tau
from attnprobe.models.base import AtSite
from attnprobe.models.trained import TrainedModel
from attnprobe.probes.base import Measurement, Note, RankingProbe, Subject, positions
from attnprobe.probes.permutation import permute_attention
from attnprobe.randomness import Draws
from attnprobe.readout import Readout
from attnprobe.results.metrics import SCORE, SHARE, TAU, TRUTH, TVD, WEIGHT, Metric

METRICS = (
    Metric("attention", WEIGHT, "what a reader of this layer or head would see", step="position"),
    Metric("max_attention", WEIGHT),
    Metric("evenness", SHARE, "entropy / ln n; 1 is uniform"),
    Metric("special_mass", SHARE, "of its attention that is on no word of the text"),
    Metric("median_tvd", TVD, "its weights permuted, and nothing else: median over the permutations",
           higher_is_better=True, source="Jain & Wallace 2019, section 4.2.1"),
    Metric("uniform_tvd", TVD, "every word the same", higher_is_better=True),
    Metric("top_tvd", TVD, "without its most attended word", higher_is_better=True),
    Metric("top_flips", TRUTH, "the decision is another then", higher_is_better=True),
    Metric("tau_{importance}", TAU, "with the size of the importance's scores", higher_is_better=True),
    Metric("auprc_rationale", SCORE, "average precision", higher_is_better=True, only="data with rationales"),
)  # fmt: skip
"""See `Sites`."""


@dataclass
class Sites(RankingProbe):
    """Every attention of the network (of each layer all heads together, and each head by itself) on the same texts.

    Yields per example and site: `attention` per position (step), the explanation that a reader of this head would see;
    `max_attention`; `evenness`, its entropy / ln n (1 is uniform); `special_mass`, the share of the site's attention that
    is on no word of the text; and how far the prediction moves (TVD, 0 to 1) where this attention alone is exchanged:

    - `median_tvd`: its weights go to other words, median over `samples` permutations (Jain & Wallace 2019);
    - `uniform_tvd`: every word gets the same (the frozen model's answer to "is it needed?", Wiegreffe & Pinter 2019);
    - `top_tvd` and `top_flips`: the most attended word gets nothing, the others its share; how far, and whether the decision
      is another (Serrano & Smith 2019).

    And of the words, per importance X: `tau_X`, Kendall's τ-b with the size of its scores, which are the same for all sites;
    `auprc_rationale` where the data have rationales.

    Attributes:
        samples: permutations per text and site.
        importances: see `RankingProbe`; leave-one-out takes as many passes as a text has words.
    """

    name: ClassVar[str] = "sites"
    metrics = METRICS
    of_words = True
    resumes = True
    published = ("gradient", "leave_one_out")
    samples: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.samples < 1:
            raise UserError(f"probe.sites.samples={self.samples}: expected 1 or more permutations")

    def refuse(self, classifier: TrainedModel) -> None:
        """Refuse what has one attention only."""
        super().refuse(classifier)
        if len(classifier.sites) < 2:
            raise UserError(
                "probe sites compares the layers and heads of a network, and this model has one attention: leave it out of "
                "probe=[…], or take model=pretrained"
            )

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        content = subject.batch.content
        noise = draws.uniform(self.samples, content, subject.batch.example_id)
        scores = {name: values.abs().double() for name, values in self.scores(subject).items()}
        rationale = subject.batch.rationale
        for at in subject.classifier.at_sites(subject.batch):
            for metric, values in {**alone(at), **exchanged(at.readout, noise)}.items():
                yield Measurement(metric, values, site=at.name)
            attention = at.readout.attention
            yield Measurement("attention", attention, positions(content), at.name)
            for name, values in scores.items():
                yield Measurement(f"tau_{name}", kendall_tau(attention, values, content), site=at.name)
            if rationale is not None:
                given = (rationale & content).any(-1)
                precision = average_precision(attention, rationale, content)
                yield Measurement("auprc_rationale", torch.where(given, precision, torch.nan), site=at.name)
        yield from self.notes(subject)


def alone(at: AtSite) -> dict[str, Float[Tensor, "batch"]]:
    """What the attention is, before anything is exchanged."""
    attention, content = at.readout.attention, at.readout.content
    length = content.sum(-1).double()
    most = torch.where(length > 1, length.log(), torch.nan)
    return {
        "max_attention": attention.amax(-1),
        "evenness": entropy(attention, content) / most,
        "special_mass": at.off_text,
    }


def exchanged(readout: Readout, noise: Float[Tensor, "samples batch seq"]) -> dict[str, Float[Tensor, "batch"]]:
    """What moves when it is exchanged: for permuted weights, even ones, and those without the largest."""
    others = torch.cat(
        [
            permute_attention(readout.attention, readout.content, noise),
            even(readout.content).unsqueeze(0),
            without_top(readout.attention).unsqueeze(0),
        ]
    )
    prediction = readout.prediction()
    changed = readout.predict(others)
    distance = readout.distance(changed, prediction)
    several = readout.content.sum(-1) > 1  # the only word of a text cannot be left out
    flips = (changed[-1].argmax(-1) != prediction.argmax(-1)).double()
    return {
        "median_tvd": distance[:-2].quantile(0.5, dim=0),
        "uniform_tvd": distance[-2],
        "top_tvd": torch.where(several, distance[-1], torch.nan),
        "top_flips": torch.where(several, flips, torch.nan),
    }


def even(content: Bool[Tensor, "batch seq"]) -> Float[Tensor, "batch seq"]:
    """The same weight for every word."""
    return content.double() / content.sum(-1, keepdim=True)


def without_top(attention: Float[Tensor, "batch seq"]) -> Float[Tensor, "batch seq"]:
    """The attention without its largest weight, made to sum to 1; as it was where nothing else has any."""
    rest = attention.scatter(-1, attention.argmax(-1, keepdim=True), 0.0)
    total = rest.sum(-1, keepdim=True)
    return torch.where(total > 0, rest / torch.where(total > 0, total, 1), attention)
