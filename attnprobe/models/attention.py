"""Attention: hidden states (and a question's state) → one score per position, before the
softmax."""

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
    """Scores positions: `forward(hidden: States, query: Query | None = None)` gives unmasked
    scores, any real number, unless the attention is `given`. `query_size` is the size of the
    question's state, None for tasks without a question."""

    settings_place: ClassVar[str] = "model.attention"

    imposed: ClassVar[bool] = False
    """The attention is a teacher's, taken as it is."""
    positionwise: ClassVar[bool] = False
    """A position's score is a function of its own state (and the question's) alone, and the weights
    are their softmax: leave-one-out then computes only the states that a removed token changes. Not
    inherited by a class with another `forward`."""

    def __init__(self, hidden_size: int = 0, query_size: int | None = None) -> None:
        super().__init__()

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "forward" in vars(cls) and "positionwise" not in vars(cls):
            cls.positionwise = False

    def given(self, batch: Batch) -> Scores | None:
        """The attention where it does not come from the states: 0 or more, sums to 1 over
        `batch.content`, no gradient. None: `forward` scores the states."""
        return None

    def read_training_texts(self, data: TextDataModule) -> None:
        """Called once before training, with data that are set up."""

    def weights(self, scores: Scores, content: Content) -> Scores:
        """What becomes of the scores: 0 or more, sums to 1 over `content`, 0 elsewhere."""
        return scores.masked_fill(~content, -math.inf).softmax(-1)


class AdditiveAttention(Attention):
    """s_t = v · tanh(W₁ h_t + b₁ [+ W₂ q + b₂]) with W₁: m → m/2 and v without bias (Jain &
    Wallace's "tanh"; Bahdanau et al. 2015)."""

    positionwise: ClassVar[bool] = True

    def __init__(
        self, hidden_size: int, query_size: int | None = None, inner_size: Size | None = None
    ) -> None:
        super().__init__(hidden_size, query_size)
        inner = max(1, hidden_size // 2) if inner_size is None else inner_size
        self.states = nn.Linear(hidden_size, inner)
        self.question = None if query_size is None else nn.Linear(query_size, inner)
        self.score = nn.Linear(inner, 1, bias=False)

    def forward(self, hidden: States, query: Query | None = None) -> Scores:
        inner = self.states(hidden)
        if self.question is not None:
            inner = inner + self.question(query).unsqueeze(1)
        return self.score(inner.tanh()).squeeze(-1)


class DotAttention(Attention):
    """s_t = w · h_t / √m, or with a question s_t = h_t · q / √m (Jain & Wallace's scaled dot
    product)."""

    positionwise: ClassVar[bool] = True

    def __init__(self, hidden_size: int, query_size: int | None = None) -> None:
        super().__init__(hidden_size, query_size)
        if query_size not in (None, hidden_size):
            raise UserError(
                f"dot attention needs a question state of the states' size: got {query_size} for {hidden_size}; "
                f"give both encoders the same size, or use model/attention=additive"
            )
        self.score = nn.Linear(hidden_size, 1, bias=False) if query_size is None else None
        self.scale = math.sqrt(hidden_size)

    def forward(self, hidden: States, query: Query | None = None) -> Scores:
        if self.score is not None:
            return self.score(hidden).squeeze(-1) / self.scale
        assert query is not None
        return (hidden * query.unsqueeze(1)).sum(-1) / self.scale


class UniformAttention(Attention):
    """The same weight for every position, with nothing to learn (Wiegreffe & Pinter 2019, section
    3.2)."""

    positionwise: ClassVar[bool] = True

    def forward(self, hidden: States, query: Query | None = None) -> Scores:
        return hidden.new_zeros(hidden.shape[:-1])


@dataclass(eq=False, repr=False)
class GivenAttention(Attention):
    """An attention that is not computed from the states: it is `given`. Its settings are fields."""

    hidden_size: int = 0
    query_size: int | None = None

    def __post_init__(self) -> None:
        super().__init__()


class ImposedAttention(GivenAttention):
    """A teacher's attention, example by example, in training and in use (Wiegreffe & Pinter 2019,
    section 3.4)."""

    imposed: ClassVar[bool] = True

    def given(self, batch: Batch) -> Scores:
        if batch.teacher_attention is None:
            raise UserError(
                "this model's attention is imposed by a teacher, and there is none for these texts: imposed attention is "
                "known for the data set's own examples only. Name the run with teacher=PATH, or leave out probes that change "
                "the text, such as leave_one_out"
            )
        return batch.teacher_attention


OUT_OF_REACH = 10.0
"""Scores this far below the largest one get no weight in either map: 1 (sparsemax) or 2 (entmax)
would do."""


class SparseAttention(AdditiveAttention):
    """Additive scores, and a map of them that gives some positions no weight at all."""

    positionwise: ClassVar[bool] = False  # promises a softmax as well
    to_weights: ClassVar[Callable[..., Tensor]]

    def weights(self, scores: Scores, content: Content) -> Scores:
        # finite scores stand for what is left out: −inf would make NaN
        largest = scores.masked_fill(~content, -torch.inf).amax(-1, keepdim=True).detach()
        weights = type(self).to_weights(
            torch.where(content, scores, largest - OUT_OF_REACH), dim=-1
        )
        return weights.masked_fill(~content, 0)


class SparsemaxAttention(SparseAttention):
    """The point of the simplex that is nearest to the scores, argmin ‖a − scores‖² (Martins &
    Astudillo 2016)."""

    to_weights = staticmethod(sparsemax)


class EntmaxAttention(SparseAttention):
    """The scores' 1.5-entmax, between softmax and sparsemax: a_t = max(0, scores_t / 2 − τ)², τ
    such that they sum to 1 (Peters et al. 2019)."""

    to_weights = staticmethod(entmax15)
