"""How unlike the texts that a model knows are texts without some of their words?"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

import pandas as pd
import torch
from annotated_types import Ge, MinLen
from jaxtyping import Float
from torch import Tensor

from attnprobe.core.batch import Outputs
from attnprobe.core.errors import UserError
from attnprobe.core.metrics import P_VALUE, Metric
from attnprobe.core.randomness import Draws
from attnprobe.core.settings import Share
from attnprobe.data.batching import TextSplit
from attnprobe.importance import word_removal
from attnprobe.models.base import Model
from attnprobe.probes.base import (
    DESCRIPTION,
    Measurement,
    Note,
    RankingProbe,
    Subject,
    undefined_in,
)
from attnprobe.readings.importances import facts_of, importances_and_operators
from attnprobe.readings.means import facet_table, mean_in_columns, texts_with
from attnprobe.readings.reading import Headline, Reading, Tabulation

TEXT_OPERATORS = tuple(operator for operator in word_removal.OPERATORS if operator != "attention")
"""Ways in which words go from a text; `attention` changes none."""
TEXTS_AT_ONCE = 64
"""Held-out texts that are read at a time."""
METRICS = (
    Metric(
        "novelty_p",
        P_VALUE,
        "share of the held-out texts that are no nearer to another held-out text than this text "
        "is: even from 0 to 1 for texts like these",
    ),
    Metric(
        "novelty_p_without_{importance}_by_{operator}",
        P_VALUE,
        "of the text without its highest-scored share of words",
    ),
    Metric("novelty_p_alone_{importance}_by_{operator}", P_VALUE, "of these words alone"),
    *DESCRIPTION,
)


@dataclass
class Novelty(RankingProbe):
    """Are texts without some of their words like the texts that the model knows how to read?

    A text is what attention gives the decoder (`_represented`), each number in standard deviations
    over held-out texts. Its p-value is (1 + the held-out texts that are at least as far from their
    own nearest neighbour) / (1 + their number). NaN where no word is left.

    Attributes:
        operators: ways in which words go (`TEXT_OPERATORS`).
        share: share of the words that go, above 0 and below 1.
        reference: held-out texts, the first of the validation split, 2 or more.
    """

    name = "novelty"
    metrics = METRICS
    of_words = True
    one_decision = True
    published = ("attention", "random", "integrated_gradients")
    operators: Annotated[Sequence[Literal[TEXT_OPERATORS]], MinLen(1)] = ("delete", "mask", "zeros")
    share: Share = 0.2
    reference: Annotated[int, Ge(2)] = 500
    _held_out: TextSplit | None = field(default=None, init=False, repr=False)
    _known: "KnownTexts | None" = field(default=None, init=False, repr=False)

    def refuse(self, classifier: Model) -> None:
        """Refuse the operator `mask` as well where the model has no mask token."""
        super().refuse(classifier)
        word_removal.refuse_mask(self.name, self.operators, TEXT_OPERATORS, classifier)

    def prepare(self, splits: Mapping[str, TextSplit]) -> None:
        """Keep the validation split: the held-out texts."""
        if "validation" not in splits:
            raise UserError(
                "probe novelty needs held-out texts: expected 'data.path={validation: FILE, test: "
                "FILE}'"
            )
        self._held_out = splits["validation"]
        self._known = None

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the p-value of each whole text, without its top words, and of these alone."""
        content = subject.batch.content
        with torch.no_grad():
            if self._known is None:
                self._known = self._held_out_texts(subject.classifier, content.device)
            held_out = self._known
            yield Measurement("novelty_p", held_out.p_values(_represented(subject.outputs)))

            for name, scores in self.scores(subject).items():
                undefined = undefined_in(scores, content)
                top = word_removal.top_words(scores.nan_to_num(nan=0), content, self.share)
                for operator in self.operators:
                    for kind, removed in (("without", top), ("alone", content & ~top)):
                        is_empty = ~(content & ~removed).any(-1)
                        outputs = word_removal.outputs_without(
                            subject.classifier,
                            subject.batch,
                            removed & ~is_empty.unsqueeze(-1),
                            operator,
                        )
                        p = held_out.p_values(_represented(outputs))
                        p = p.masked_fill(is_empty | undefined, torch.nan)
                        yield Measurement(f"novelty_p_{kind}_{name}_by_{operator}", p)
        yield from self.notes(subject)

    def _held_out_texts(self, model: Model, device: torch.device) -> "KnownTexts":
        if self._held_out is None:
            raise UserError(
                "probe novelty compares with held-out texts, which only a run has: leave it out "
                "here"
            )
        vectors = []
        for rows in torch.arange(min(self.reference, len(self._held_out))).split(TEXTS_AT_ONCE):
            batch = self._held_out[rows.tolist()].to(device)
            vectors.append(_represented(model(batch)))
        return KnownTexts.of(torch.cat(vectors))


@dataclass(frozen=True)
class KnownTexts:
    """Held-out texts, and how far each is from its nearest neighbour among them.

    Attributes:
        vectors: in units of `scale`.
        scale: standard deviation of each feature; 1 where it does not vary.
        neighbour_distance: Euclidean, of each text to the nearest other one.
    """

    vectors: Float[Tensor, "texts features"]
    scale: Float[Tensor, "features"]
    neighbour_distance: Float[Tensor, "texts"]

    @classmethod
    def of(cls, vectors: Float[Tensor, "texts features"]) -> "KnownTexts":
        """Scale the texts, and compare each with all others."""
        deviation = vectors.std(0)
        scale = torch.where(deviation > 0, deviation, 1)
        distance = torch.cdist(vectors / scale, vectors / scale).fill_diagonal_(torch.inf)
        return cls(vectors / scale, scale, distance.amin(-1))

    def p_values(self, vectors: Float[Tensor, "batch features"]) -> Float[Tensor, "batch"]:
        """How usual it is to be this far from the nearest held-out text, above 0 to 1."""
        distance = torch.cdist(vectors / self.scale, self.vectors).amin(-1)
        as_far = (self.neighbour_distance >= distance.unsqueeze(-1)).sum(-1).double()
        return (1 + as_far) / (1 + len(self.neighbour_distance))


def _represented(outputs: Outputs) -> Float[Tensor, "batch features"]:
    """What attention gives the decoder; the centred logits where the states are not known."""
    if outputs.hidden.shape[-1]:
        return torch.einsum("bs,bsh->bh", outputs.attention.double(), outputs.hidden.double())
    return outputs.logits.double() - outputs.logits.double().mean(-1, keepdim=True)


UNLIKE = 0.05
"""A p-value below this is that of an unlike text."""


def novelty_table(results: pd.DataFrame) -> pd.DataFrame:
    """Shares of unlike texts and mean p-values, by importance and operator."""
    pairs = importances_and_operators(results, "novelty", "novelty_p_without_")
    kinds = {"without them": "without", "alone": "alone"}

    def lines(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        for name, operator in pairs:
            line: dict[str, object] = {
                "importance": facts_of(name, results, "novelty").title,
                "operator": operator,
                "n": texts_with(rows, rows["novelty_p"]),
                "unlike, whole texts": share_of_unlike(rows["novelty_p"]),
            }
            for heading, kind in kinds.items():
                p = rows[f"novelty_p_{kind}_{name}_by_{operator}"]
                line[f"unlike, {heading}"] = share_of_unlike(p)
                line |= mean_in_columns(f"p, {heading}", rows, p, P_VALUE)
            yield line

    metrics = ["novelty_p"] if pairs else []
    for name, operator in pairs:
        metrics += [f"novelty_p_{kind}_{name}_by_{operator}" for kind in kinds.values()]
    return facet_table(results, "novelty", metrics, lines)


def share_of_unlike(p: "pd.Series[float]") -> float:
    """Share of the texts with p < `UNLIKE`; NaN values are left out."""
    return (p.dropna() < UNLIKE).mean()


READING = Reading(
    probe="novelty",
    order=66,
    title="Novelty: are texts without words like those that the model knows?",
    about=(
        "What erasing words does to a prediction says little if the model has never seen such a "
        "text. So each text is compared with held-out ones, by what the attention gives the "
        "decoder. The p-value is the share of held-out texts whose nearest neighbour is as far. "
        "It is even from 0 to 1 for texts like these; of whole test texts 5 % are below 0.05."
    ),
    headlines=(Headline("novelty_p", "p-value of the whole texts (0.5 is expected)"),),
    tables=(
        Tabulation(
            "novelty",
            "Shares of n texts that are unlike held-out ones (p < 0.05), whole, without the "
            "highest-scored words and with these alone, and mean p-values with 95 % bootstrap "
            "intervals.",
            novelty_table,
        ),
    ),
)
