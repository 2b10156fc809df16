"""Decoders: the attended vector → logits."""

from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked, Size
from attnprobe.models.linearised_layers import Affine, affine_of

Attended = Float[Tensor, "*any hidden"]
Query = Float[Tensor, "batch query"]
Logits = Float[Tensor, "*any classes"]

EXCLUDED = 64.0
"""How far the position logit of a class that is no candidate lies below all others.

e^−64 is nothing in float64.
"""


class Decoder(nn.Module, metaclass=Checked):
    """The map from the attended vector to logits.

    A subclass defines `forward(attended: Attended, query: Query | None = None) -> Logits`. Leading
    axes are free; the last of them is the batch where there is a query.
    """

    settings_place: ClassVar[str] = "model.decoder"

    linear: ClassVar[bool]
    """Logits are affine in the attended vector, so that position logits exist (see
    attnprobe.core.readout.Readout)."""
    weighs_by_query: ClassVar[bool] = False
    """What a state says depends on the question, and not only what is added to it."""

    def decode(
        self,
        hidden: Float[Tensor, "batch seq hidden"],
        attention: Float[Tensor, "*samples batch seq"],
        query: Query | None = None,
        candidates: Bool[Tensor, "batch classes"] | None = None,
    ) -> Float[Tensor, "*samples batch classes"]:
        """Logits of the attended vector Σ_t a_t h_t, for any attention a.

        Args:
            hidden: the states h_t.
            attention: one or many per text.
            query: the question's state.
            candidates: the classes that a text may be answered with; None: all.

        Returns:
            Logits; −∞ for classes that are not candidates.
        """
        attended = torch.einsum("...bs,bsh->...bh", attention, hidden)
        logits: Tensor = self(attended, query)
        return logits if candidates is None else logits.masked_fill(~candidates, -torch.inf)

    def position_logits(
        self,
        hidden: Float[Tensor, "batch seq hidden"],
        query: Query | None = None,
        candidates: Bool[Tensor, "batch classes"] | None = None,
    ) -> tuple[Float[Tensor, "batch seq classes"], Float[Tensor, "batch classes"]]:
        """What a linear decoder says if all attention is on one position, z_t = W h_t + b.

        Args:
            hidden: the states h_t.
            query: the question's state.
            candidates: the classes that a text may be answered with; None: all.

        Returns:
            The logits of every position, and those under no attention at all (b, and what the
            question adds).

        Note:
            −∞ times a weight of 0 is undefined. So a class that is no candidate gets the same
            finite logit at every position, `EXCLUDED` below the lowest: no mixture moves it.
        """
        logits = self(hidden.transpose(0, 1), query)  # [seq, batch, classes]
        bias = self(torch.zeros_like(hidden[:, 0]), query)
        if candidates is not None:
            lowest = torch.minimum(logits.amin((0, 2)), bias.amin(-1)).unsqueeze(-1)
            logits = torch.where(candidates, logits, lowest - EXCLUDED)
            bias = torch.where(candidates, bias, lowest - EXCLUDED)
        return logits.transpose(0, 1), bias


class LinearDecoder(Decoder):
    """W v + b.

    Two exclusive classes get a single logit s, read as [0, s]: a sigmoid output.
    """

    linear = True

    def __init__(
        self,
        hidden_size: int,
        classes: int,
        query_size: int | None = None,
        exclusive: bool = True,
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
        """W v + b; the logit of the first of two exclusive classes is 0."""
        logits = self.output(attended)
        if self.question is not None and query is not None:
            logits = logits + self.question(query)
        return F.pad(logits, (1, 0)) if self.single_logit else logits

    def affine(self) -> Affine:
        """W and b in float64, with a row of zeros for the first of two exclusive classes."""
        weight, bias = affine_of(self.output)
        if self.single_logit:
            weight = F.pad(weight, (0, 0, 1, 0))
            bias = F.pad(bias, (1, 0))
        return Affine(weight, bias)


class AdditiveDecoder(LinearDecoder):
    """W v + U q + b; without a query W v + b.

    Linear in v, so that the exact solvers answer questions too. Text and question meet in the
    attention alone.
    """

    def __init__(
        self,
        hidden_size: int,
        classes: int,
        query_size: int | None = None,
        exclusive: bool = True,
    ) -> None:
        if query_size is None:
            raise UserError(
                "the additive decoder adds what a question says; use model/decoder=linear for "
                "texts without a question"
            )
        super().__init__(hidden_size, classes, exclusive=exclusive)
        self.question = nn.Linear(query_size, self.output.out_features, bias=False)


class LabelDecoder(Decoder):
    """w_l · v + b_l: whether the text has the label l that is asked for, as logits [0, s].

    w_l and b_l are linear in the label's vector. Linear in v, so that every label's answer is exact
    in its own attention.
    """

    linear = True
    weighs_by_query = True

    def __init__(
        self,
        hidden_size: int,
        classes: int,
        query_size: int | None = None,
        exclusive: bool = True,
    ) -> None:
        super().__init__()
        if query_size is None or not exclusive or classes != 2:
            raise UserError(
                "the label decoder says no or yes to one label: add task=labels, or use "
                "model/decoder=linear"
            )
        self.weight = nn.Linear(query_size, hidden_size, bias=False)
        self.bias = nn.Linear(query_size, 1)

    def forward(self, attended: Attended, query: Query | None = None) -> Logits:
        """[0, w_l · v + b_l]; the label's vector is required."""
        score = torch.einsum("...bh,bh->...b", attended, self.weight(query)).unsqueeze(-1)
        return F.pad(score + self.bias(query), (1, 0))


class QuestionDecoder(Decoder):
    """U tanh(W_p v + b_p + W_q q + b_q) + d.

    Jain & Wallace's decoder for question answering and inference.
    """

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
        """U tanh(W_p v + b_p + W_q q + b_q) + d; the query is required."""
        return self.output((self.document(attended) + self.question(query)).tanh())
