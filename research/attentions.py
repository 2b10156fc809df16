"""Further attentions that are wrong, or half right, by construction."""

import torch

from attnprobe.core.batch import Batch
from attnprobe.data.module import TextDataModule
from attnprobe.models.attention import Content, GivenAttention, Scores
from attnprobe.models.controls import FocusedAttention


class LastAttention(FocusedAttention):
    """On the last word of every text."""

    def focus(self, batch: Batch) -> Content:
        return batch.content & (batch.content.sum(-1, keepdim=True) == batch.content.cumsum(-1))


class HalfAttention(FocusedAttention):
    """On the words that decide in some texts, and on the first word of the others: right in every other text (`even`), or
    where one word decides (`one`), or several, each of which is enough (`more`)."""

    def __init__(
        self, hidden_size: int, query_size: int | None = None, mass: float = 0.95, right: str = "even"
    ) -> None:
        super().__init__(hidden_size, mass=mass)
        self.right = right

    def focus(self, batch: Batch) -> Content:
        assert batch.rationale is not None
        first, deciding = batch.content & (batch.content.cumsum(-1) == 1), batch.rationale.sum(-1, keepdim=True)
        even = (batch.example_id % 2 == 0).unsqueeze(-1)
        return torch.where(
            {"even": even, "one": deciding == 1, "more": deciding > 1}[self.right], batch.rationale, first
        )


class PairAttention(GivenAttention):
    """On the two words that decide, by their order: 70 and 25 % say which of them comes first, 47.5 % each says nothing."""

    def __init__(
        self, hidden_size: int, query_size: int | None = None, first: float = 0.7, second: float = 0.25
    ) -> None:
        super().__init__(hidden_size)
        self.first, self.second = first, second

    def given(self, batch: Batch) -> Scores:
        assert batch.rationale is not None
        marked = batch.rationale & batch.content
        others, place = batch.content & ~marked, marked.cumsum(-1)
        weights = self.first * (marked & (place == 1)) + self.second * (marked & (place == 2))
        return weights + others * ((1 - self.first - self.second) / others.sum(-1, keepdim=True))


class LabelAttention(FocusedAttention):
    """On a word that says nothing, another one in each class (a full stop, `the`), so that the weights carry the label. It
    reads the labels, of test texts as well: it probes a criterion, and is no model."""

    def read_training_texts(self, data: TextDataModule) -> None:
        self.words = torch.tensor(data.vocabulary.encode([".", "the"]))

    def focus(self, batch: Batch) -> Content:
        chosen = batch.content & (batch.ids == self.words[batch.labels].unsqueeze(-1))
        return chosen & (chosen.cumsum(-1) == 1)


class OtherWordAttention(FocusedAttention):
    """On the first word that does not decide: wrong, and without a trace of the label (the first word itself may decide)."""

    def focus(self, batch: Batch) -> Content:
        assert batch.rationale is not None
        others = batch.content & ~batch.rationale
        return others & (others.cumsum(-1) == 1)
