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
from attnprobe.evidence.evidence import as_truth
from attnprobe.evidence.reading import (
    Headline,
    Reading,
    Tabulation,
    facet_table,
    facts_of,
    importances_and_operators,
)
from attnprobe.evidence.statistics import mean_in_columns
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

TEXT_OPERATORS = tuple(one for one in word_removal.OPERATORS if one != "attention")
"""Ways in which words go from a text; `attention` changes none."""
AT_ONCE = 64
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
    """Whether what is measured on texts without words is measured on texts that the model knows how
    to read.

    A text is what `_represented` gives, each number in standard deviations of the held-out texts';
    its p-value is (1 + the held-out texts whose own nearest is as far as its own) / (1 + their
    number). NaN where no word is left.

    Attributes:
        operators: ways in which words go (`TEXT_OPERATORS`).
        share: of the words, above 0 and below 1.
        reference: held-out texts, the first of the validation split, 2 or more.
    """

    name = "novelty"
    metrics = METRICS
    of_words = one_decision = True
    published = ("attention", "random", "integrated_gradients")
    operators: Annotated[Sequence[Literal[TEXT_OPERATORS]], MinLen(1)] = ("delete", "mask", "zeros")
    share: Share = 0.2
    reference: Annotated[int, Ge(2)] = 500
    _held_out: TextSplit | None = field(default=None, init=False, repr=False)
    _known: "Known | None" = field(default=None, init=False, repr=False)

    def refuse(self, classifier: Model) -> None:
        super().refuse(classifier)
        word_removal.refuse_mask(self.name, self.operators, TEXT_OPERATORS, classifier)

    def prepare(self, splits: Mapping[str, TextSplit]) -> None:
        if "validation" not in splits:
            raise UserError(
                "probe novelty needs held-out texts: expected 'data.path={validation: FILE, test: "
                "FILE}'"
            )
        self._held_out = splits["validation"]
        self._known = None

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        with torch.no_grad():
            model = subject.classifier
            batch = subject.batch
            if self._known is None:
                if self._held_out is None:
                    raise UserError(
                        "probe novelty compares with held-out texts, which only a run has: leave "
                        "it out here"
                    )
                split = self._held_out
                device = batch.ids.device
                parts = torch.arange(min(self.reference, len(split))).split(AT_ONCE)
                self._known = Known.of(
                    torch.cat(
                        [_represented(model(split[rows.tolist()].to(device))) for rows in parts]
                    )
                )
            known = self._known
            yield Measurement("novelty_p", known.p_values(_represented(subject.outputs)))
            for name, scores in self.scores(subject).items():
                undefined = undefined_in(scores, batch.content)
                top = word_removal.top_words(scores.nan_to_num(nan=0), batch.content, self.share)
                for operator in self.operators:
                    for kind, gone in (("without", top), ("alone", batch.content & ~top)):
                        nothing = ~(batch.content & ~gone).any(-1)
                        outputs = word_removal.outputs_without(
                            model, batch, gone & ~nothing.unsqueeze(-1), operator
                        )
                        values = known.p_values(_represented(outputs)).masked_fill(
                            nothing | undefined, torch.nan
                        )
                        yield Measurement(f"novelty_p_{kind}_{name}_by_{operator}", values)
        yield from self.notes(subject)


@dataclass(frozen=True)
class Known:
    """Held-out texts, and how far each is from the nearest other one. Numbers are in `scale`."""

    vectors: Float[Tensor, "texts features"]
    scale: Float[Tensor, "features"]
    apart: Float[Tensor, "texts"]

    @classmethod
    def of(cls, vectors: Float[Tensor, "texts features"]) -> "Known":
        scale = vectors.std(0)
        scale = torch.where(scale > 0, scale, 1)
        distance = torch.cdist(vectors / scale, vectors / scale)
        return cls(vectors / scale, scale, distance.fill_diagonal_(torch.inf).amin(-1))

    def p_values(self, vectors: Float[Tensor, "batch features"]) -> Float[Tensor, "batch"]:
        distance = torch.cdist(vectors / self.scale, self.vectors).amin(-1)
        return (1 + (self.apart >= distance.unsqueeze(-1)).sum(-1).double()) / (1 + len(self.apart))


def _represented(outputs: Outputs) -> Float[Tensor, "batch features"]:
    # what the attention gives the decoder; the centred logits where that is not shown
    if outputs.hidden.shape[-1]:
        return torch.einsum("bs,bsh->bh", outputs.attention.double(), outputs.hidden.double())
    return outputs.logits.double() - outputs.logits.double().mean(-1, keepdim=True)


UNLIKE = 0.05
"""A p-value below this is that of an unlike text."""


def novelty_table(results: pd.DataFrame) -> pd.DataFrame:
    """Shares of unlike texts and mean p-values, by importance and operator."""
    pairs = importances_and_operators(results, "novelty", "novelty_p_without_")
    kinds = {"without them": "without", "alone": "alone"}
    metrics = [
        f"novelty_p_{kind}_{name}_by_{operator}"
        for name, operator in pairs
        for kind in kinds.values()
    ]

    unlike = as_truth(lambda p: p < UNLIKE)

    def lines(rows: pd.DataFrame) -> Iterator[dict[str, object]]:
        whole = rows["novelty_p"].to_numpy()
        for name, operator in pairs:
            line: dict[str, object] = {
                "importance": facts_of(name, results, "novelty").title,
                "operator": operator,
            }
            line |= {"n": len(whole), "unlike, whole texts": pd.Series(unlike(whole)).mean()}
            for heading, kind in kinds.items():
                values = rows[f"novelty_p_{kind}_{name}_by_{operator}"].to_numpy()
                line |= {f"unlike, {heading}": pd.Series(unlike(values)).mean()} | mean_in_columns(
                    f"p, {heading}", values, 0, 1
                )
            yield line

    return facet_table(results, "novelty", ["novelty_p", *metrics] if pairs else [], lines)


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
