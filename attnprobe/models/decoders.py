"""Decoders: the attended vector → logits."""

from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked, Size

Attended = Float[Tensor, "*any hidden"]
Query = Float[Tensor, "batch query"]
Logits = Float[Tensor, "*any classes"]


class Decoder(nn.Module, metaclass=Checked):
    """`forward(attended: Attended, query: Query | None = None)` gives logits; leading axes are
    free, the last of them is the batch where there is a query. `linear` says that logits are affine
    in the attended vector, so that position logits exist (see attnprobe.core.readout.Readout)."""

    settings_place: ClassVar[str] = "model.decoder"

    linear: ClassVar[bool]

    def decode(
        self,
        hidden: Float[Tensor, "batch seq hidden"],
        attention: Float[Tensor, "*samples batch seq"],
        query: Query | None = None,
        candidates: Bool[Tensor, "batch classes"] | None = None,
    ) -> Float[Tensor, "*samples batch classes"]:
        """Logits of Σ_t a_t h_t, for any attention; −inf for classes that are not candidates."""
        logits: Tensor = self(torch.einsum("...bs,bsh->...bh", attention, hidden), query)
        return logits if candidates is None else logits.masked_fill(~candidates, -torch.inf)


class LinearDecoder(Decoder):
    """W v + b. Two exclusive classes get a single logit s, read as [0, s], as a sigmoid output
    is."""

    linear = True

    def __init__(
        self, hidden_size: int, classes: int, query_size: int | None = None, exclusive: bool = True
    ) -> None:
        super().__init__()
        if query_size is not None:
            raise UserError(
                "the linear decoder cannot read a question; use model/decoder=question or additive"
            )
        self.single_logit = exclusive and classes == 2
        self.question: nn.Linear | None = None
        self.output = nn.Linear(hidden_size, 1 if self.single_logit else classes)

    def forward(self, attended: Attended, query: Query | None = None) -> Logits:
        logits = self.output(attended)
        if self.question is not None and query is not None:
            logits = logits + self.question(query)
        return F.pad(logits, (1, 0)) if self.single_logit else logits


class AdditiveDecoder(LinearDecoder):
    """W v + U q + b: linear in v, so that the exact solvers answer questions too; text and question
    meet in the attention alone. Without a query it is W v + b."""

    def __init__(
        self, hidden_size: int, classes: int, query_size: int | None = None, exclusive: bool = True
    ) -> None:
        if query_size is None:
            raise UserError(
                "the additive decoder adds what a question says; use model/decoder=linear for texts without a question"
            )
        super().__init__(hidden_size, classes, exclusive=exclusive)
        self.question = nn.Linear(query_size, self.output.out_features, bias=False)


class QuestionDecoder(Decoder):
    """U tanh(W_p v + b_p + W_q q + b_q) + d (Jain & Wallace's decoder for question answering and
    inference)."""

    linear = False

    def __init__(
        self,
        hidden_size: int,
        classes: int,
        query_size: int | None = None,
        inner_size: Size | None = None,
        exclusive: bool = True,
    ) -> None:
        super().__init__()
        if query_size is None or not exclusive:
            raise UserError(
                "the question decoder answers one question with one of several classes; "
                "use model/decoder=linear for texts without a question"
            )
        inner = max(1, hidden_size // 2) if inner_size is None else inner_size
        self.document = nn.Linear(hidden_size, inner)
        self.question = nn.Linear(query_size, inner)
        self.output = nn.Linear(inner, classes)

    def forward(self, attended: Attended, query: Query | None = None) -> Logits:
        return self.output((self.document(attended) + self.question(query)).tanh())
