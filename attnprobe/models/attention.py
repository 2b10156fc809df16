"""Attention: hidden states (and a question's state) → one score per position."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from entmax import entmax15, sparsemax
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnprobe.core.batch import Batch
from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked, Size
from attnprobe.data.module import TextDataModule

States = Float[Tensor, "batch seq hidden"]
Query = Float[Tensor, "batch query"]
Scores = Float[Tensor, "batch seq"]
Content = Bool[Tensor, "batch seq"]


class Attention(nn.Module, metaclass=Checked):
    """A score for every position, and the weights that the scores become.

    A subclass defines `forward(hidden: States, query: Query | None = None) -> Scores`, any real
    numbers at any position (the mask comes later), or else `given`.

    Args:
        hidden_size: features of a state.
        query_size: features of the question's state; None for tasks without a question.
    """

    settings_place: ClassVar[str] = "model.attention"

    imposed: ClassVar[bool] = False
    """The attention is a teacher's, taken as it is."""
    positionwise: ClassVar[bool] = False
    """A position's score depends on its own state (and the question's) alone, and the weights are
    the softmax of the scores. Leave-one-out then computes only the states that a removed token
    changes. Not inherited by a class with another `forward`."""

    def __init__(self, hidden_size: int = 0, query_size: int | None = None) -> None:
        super().__init__()

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "forward" in vars(cls) and "positionwise" not in vars(cls):
            cls.positionwise = False

    def given(self, batch: Batch) -> Scores | None:
        """The attention where it does not come from the states.

        Returns:
            Weights of 0 or more that sum to 1 over `batch.content`, without a gradient; None where
            `forward` scores the states.
        """
        return None

    def read_training_texts(self, data: TextDataModule) -> None:
        """Called once before training, with data that are set up."""

    def weights(self, scores: Scores, content: Content) -> Scores:
        """Turn scores into weights: 0 or more, sum 1 over `content`, 0 elsewhere."""
        return scores.masked_fill(~content, -math.inf).softmax(-1)


class AdditiveAttention(Attention):
    """s_t = v · tanh(W₁ h_t + b₁ [+ W₂ q + b₂]), where W₁: m → m/2, and v has no bias.

    Jain & Wallace's "tanh"; Bahdanau et al. 2015.
    """

    positionwise: ClassVar[bool] = True

    def __init__(
        self,
        hidden_size: int,
        query_size: int | None = None,
        inner_size: Size | None = None,
    ) -> None:
        super().__init__(hidden_size, query_size)
        inner = max(1, hidden_size // 2) if inner_size is None else inner_size
        self.states = nn.Linear(hidden_size, inner)
        self.question = None if query_size is None else nn.Linear(query_size, inner)
        self.score = nn.Linear(inner, 1, bias=False)

    def forward(self, hidden: States, query: Query | None = None) -> Scores:
        """v · tanh(W₁ h_t + b₁ [+ W₂ q + b₂]) of every position t."""
        inner = self.states(hidden)
        if self.question is not None:
            inner = inner + self.question(query).unsqueeze(1)
        return self.score(inner.tanh()).squeeze(-1)


class DotAttention(Attention):
    """s_t = w · h_t / √m, or with a question s_t = h_t · q / √m.

    Jain & Wallace's scaled dot product.
    """

    positionwise: ClassVar[bool] = True

    def __init__(self, hidden_size: int, query_size: int | None = None) -> None:
        super().__init__(hidden_size, query_size)
        if query_size not in (None, hidden_size):
            raise UserError(
                f"dot attention needs a question state of the states' size: got {query_size} for "
                f"{hidden_size}; give both encoders the same size, or use "
                f"model/attention=additive"
            )
        self.score = nn.Linear(hidden_size, 1, bias=False) if query_size is None else None
        self.scale = math.sqrt(hidden_size)

    def forward(self, hidden: States, query: Query | None = None) -> Scores:
        """w · h_t / √m, or h_t · q / √m, of every position t."""
        if self.score is not None:
            return self.score(hidden).squeeze(-1) / self.scale
        assert query is not None
        return (hidden * query.unsqueeze(1)).sum(-1) / self.scale


class LabelAttention(Attention):
    """s_t = u_l · f(h_t): every label l has its own attention over the text.

    The label is the question, and u_l = U q_l a map of its vector; any u_l can be learnt where
    vectors are longer than states. f is the identity (CAML: Mullenbach et al. 2018, section 2.2)
    or tanh(W h_t) (LAAT: Vu et al. 2020, section 3.3).

    Args:
        hidden_size: features of a state.
        query_size: features of the label's vector.
        inner_size: of tanh(W h_t); None: f is the identity.

    Raises:
        UserError: no label is asked for.
    """

    positionwise: ClassVar[bool] = True

    def __init__(
        self, hidden_size: int, query_size: int | None = None, inner_size: Size | None = None
    ) -> None:
        super().__init__(hidden_size, query_size)
        if query_size is None:
            raise UserError(
                "label attention has one query per label, and no label is asked for: add "
                "task=labels, or use model/attention=additive"
            )
        self.states = None if inner_size is None else nn.Linear(hidden_size, inner_size, bias=False)
        self.label = nn.Linear(query_size, inner_size or hidden_size, bias=False)

    def forward(self, hidden: States, query: Query | None = None) -> Scores:
        """u_l · f(h_t) of every position t; the label's vector is required."""
        return torch.einsum("bsf,bf->bs", self.features(hidden), self.label(query))

    def features(self, hidden: States) -> Float[Tensor, "batch seq inner"]:
        """f(h_t), once for all rows where these share one text, whose states are expanded."""
        if self.states is None:
            return hidden
        if hidden.stride(0) == 0:
            return self.states(hidden[:1]).tanh().expand(len(hidden), -1, -1)
        return self.states(hidden).tanh()


class UniformAttention(Attention):
    """The same weight for every position, with nothing to learn.

    Wiegreffe & Pinter 2019, section 3.2.
    """

    positionwise: ClassVar[bool] = True

    def forward(self, hidden: States, query: Query | None = None) -> Scores:
        """0 for every position."""
        return hidden.new_zeros(hidden.shape[:-1])


@dataclass(eq=False, repr=False)
class GivenAttention(Attention):
    """An attention that is not computed from the states, but `given`. Its settings are fields."""

    hidden_size: int = 0
    query_size: int | None = None

    def __post_init__(self) -> None:
        super().__init__()


class ImposedAttention(GivenAttention):
    """A teacher's attention, example by example, in training and in use.

    Wiegreffe & Pinter 2019, section 3.4.
    """

    imposed: ClassVar[bool] = True

    def given(self, batch: Batch) -> Scores:
        """The teacher's attention; a UserError for texts that the teacher has not read."""
        if batch.teacher_attention is None:
            raise UserError(
                "this model's attention is imposed by a teacher, and there is none for these "
                "texts: imposed attention is known for the data set's own examples only. Name the "
                "run with teacher=PATH, or leave out probes that change the text, such as "
                "leave_one_out"
            )
        return batch.teacher_attention


OUT_OF_REACH = 10.0
"""Scores this far below the largest one get no weight: 1 would do for sparsemax, 2 for entmax."""


class SparseAttention(AdditiveAttention):
    """Additive scores, and a map to weights that gives some positions no weight at all."""

    positionwise: ClassVar[bool] = False  # positionwise promises a softmax as well
    to_weights: ClassVar[Callable[..., Tensor]]

    def weights(self, scores: Scores, content: Content) -> Scores:
        """Apply the sparse map to the scores of `content`."""
        # positions outside content get a finite score: −∞ would make NaN
        largest = scores.masked_fill(~content, -torch.inf).amax(-1, keepdim=True).detach()
        finite = torch.where(content, scores, largest - OUT_OF_REACH)
        weights = type(self).to_weights(finite, dim=-1)
        return weights.masked_fill(~content, 0)


class SparsemaxAttention(SparseAttention):
    """The point of the simplex that is nearest to the scores, argmin ‖a − scores‖².

    Martins & Astudillo 2016.
    """

    to_weights = staticmethod(sparsemax)


class EntmaxAttention(SparseAttention):
    """The 1.5-entmax of the scores, between softmax and sparsemax (Peters et al. 2019).

    a_t = max(0, scores_t / 2 − τ)², with τ such that the weights sum to 1.
    """

    to_weights = staticmethod(entmax15)
