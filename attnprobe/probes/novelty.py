"""How unlike the texts that a model knows are texts without some of their words?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attnprobe.batch import Batch, Outputs
from attnprobe.data.batching import TextSplit
from attnprobe.data.module import TextDataModule
from attnprobe.erasure.words import OPERATORS, check_operators, outputs_without, refuse_mask, top_words
from attnprobe.errors import UserError
from attnprobe.models.base import Model
from attnprobe.models.trained import TrainedModel
from attnprobe.probes.base import DESCRIPTION, Measurement, Note, RankingProbe, Subject, description
from attnprobe.randomness import Draws
from attnprobe.results.metrics import Metric, Scale

P_VALUE = Scale("p-value", 0, 1)
TEXT_OPERATORS = tuple(one for one in OPERATORS if one != "attention")
"""Ways in which words go from a text; `attention` changes none."""
AT_ONCE = 64
"""Held-out texts that are read at a time."""
METRICS = (
    Metric("novelty_p", P_VALUE, "share of the held-out texts that are no nearer to another held-out text than this text is: "
           "even from 0 to 1 for texts like these"),
    Metric("novelty_p_without_{importance}_by_{operator}", P_VALUE, "of the text without its highest-scored share of words"),
    Metric("novelty_p_alone_{importance}_by_{operator}", P_VALUE, "of these words alone"),
    *DESCRIPTION,
)  # fmt: skip
"""See `Novelty`."""


@dataclass
class Novelty(RankingProbe):
    """Whether what is measured on texts without words is measured on texts that the model knows how to read. A text is what
    the model's attention gives the decoder (where that is not shown, the centred logits), each number in standard deviations
    of the held-out texts'; its novelty the distance to the nearest held-out text. The p-value is (1 + the held-out texts
    whose own nearest is as far) / (1 + their number): even from 0 to 1 for texts drawn as these are (up to the one text by
    which the two searches differ), near 0 for unlike ones. Yields `novelty_p` of the whole text, and per importance X and
    operator O `novelty_p_without_X_by_O` (without the highest-scored `share` of its words) and `novelty_p_alone_X_by_O`
    (these alone). NaN where no word is left.

    Attributes:
        importances: see `RankingProbe`.
        operators: ways in which words go (`TEXT_OPERATORS`).
        share: of the words, above 0 and below 1.
        reference: held-out texts, the first of the validation split, 2 or more.
    """

    name: ClassVar[str] = "novelty"
    metrics = METRICS
    of_words = True
    one_decision = True
    published = ("attention", "random", "integrated_gradients")
    operators: Sequence[str] = ("delete", "mask", "zeros")
    share: float = 0.2
    reference: int = 500
    _held_out: TextSplit | None = field(default=None, init=False, repr=False)
    _known: "Known | None" = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_operators(self.name, self.operators, TEXT_OPERATORS)
        if not 0 < self.share < 1 or self.reference < 2:
            raise UserError(
                f"probe.novelty.share={self.share}, reference={self.reference}: expected a share of the words above 0 and "
                f"below 1, such as 0.2, and 2 held-out texts or more"
            )

    def refuse(self, classifier: TrainedModel) -> None:
        """Refuse a mask where the model has none.

        Raises:
            UserError: it, or the model, cannot be examined.
        """
        super().refuse(classifier)
        refuse_mask(self.name, self.operators, TEXT_OPERATORS, classifier)

    def prepare(self, data: TextDataModule) -> None:
        """Keep the validation split at hand."""
        self._held_out, self._known = data.splits["validation"], None

    def known(self, subject: Subject) -> "Known":
        """The held-out texts as this model reads them."""
        if self._known is None:
            if self._held_out is None:
                raise UserError("probe novelty compares with held-out texts, which only a run has: leave it out here")
            split, model = self._held_out, subject.classifier
            rows = list(range(min(self.reference, len(split))))
            read = [
                represented(model(batch))
                for start in range(0, len(rows), AT_ONCE)
                if (batch := split[rows[start : start + AT_ONCE]].to(subject.batch.ids.device))
            ]
            self._known = Known.of(torch.cat(read))
        return self._known

    def measure(self, subject: Subject, draws: Draws) -> Iterator[Measurement | Note]:
        """Yield the measurements of one batch."""
        with torch.no_grad():
            known = self.known(subject)
            yield Measurement("novelty_p", known.p_values(represented(subject.outputs)))
            model, batch = subject.classifier, subject.batch
            for name, scores in self.scores(subject).items():
                undefined = (scores.isnan() & batch.content).any(-1)
                top = top_words(scores.nan_to_num(nan=0), batch.content, self.share)
                for operator in self.operators:
                    for kind, gone in (("without", top), ("alone", batch.content & ~top)):
                        values = p_without(model, batch, gone, operator, known).masked_fill(undefined, torch.nan)
                        yield Measurement(f"novelty_p_{kind}_{name}_by_{operator}", values)
        yield from description(subject.readout)
        yield from self.notes(subject)


@dataclass(frozen=True)
class Known:
    """Held-out texts, and how far each is from the nearest other one. Numbers are in `scale`."""

    vectors: Float[Tensor, "texts features"]
    scale: Float[Tensor, "features"]
    apart: Float[Tensor, "texts"]

    @classmethod
    def of(cls, vectors: Float[Tensor, "texts features"]) -> "Known":
        """From two texts or more."""
        scale = vectors.std(0)
        scale = torch.where(scale > 0, scale, 1)
        distance = torch.cdist(vectors / scale, vectors / scale)
        return cls(vectors / scale, scale, distance.fill_diagonal_(torch.inf).amin(-1))

    def p_values(self, vectors: Float[Tensor, "batch features"]) -> Float[Tensor, "batch"]:
        """Of texts, by the distance to the nearest held-out one."""
        distance = torch.cdist(vectors / self.scale, self.vectors).amin(-1)
        return (1 + (self.apart >= distance.unsqueeze(-1)).sum(-1).double()) / (1 + len(self.apart))


def represented(outputs: Outputs) -> Float[Tensor, "batch features"]:
    """What the attention gives the decoder; the centred logits where that is not shown."""
    if outputs.hidden.shape[-1]:
        return torch.einsum("bs,bsh->bh", outputs.attention.double(), outputs.hidden.double())
    return outputs.logits.double() - outputs.logits.double().mean(-1, keepdim=True)


def p_without(
    model: Model, batch: Batch, gone: Bool[Tensor, "batch tokens"], operator: str, known: Known
) -> Float[Tensor, "batch"]:
    """Of the texts without these words; NaN where none would be left."""
    nothing = ~(batch.content & ~gone).any(-1)
    outputs = outputs_without(model, batch, gone & ~nothing.unsqueeze(-1), operator)
    return known.p_values(represented(outputs)).masked_fill(nothing, torch.nan)
