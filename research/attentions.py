"""Further attentions that are wrong, or half right, by construction."""

import torch

from attnprobe.core.batch import Batch
from attnprobe.data.module import TextDataModule
from attnprobe.models.attention import Content, GivenAttention, Scores
from attnprobe.models.controls import FocusedAttention


class PlacedAttention(FocusedAttention):
    """On the `last` word; on the first `other` word than those that decide, which tells nothing of
    the label; or on the words that decide in every other text (`half`), where `one` does, or
    `more`, each of which is enough, else on the first word."""

    def __init__(
        self,
        hidden_size: int,
        query_size: int | None = None,
        mass: float = 0.95,
        where: str = "half",
    ) -> None:
        super().__init__(hidden_size, mass=mass)
        self.where = where

    def focus(self, batch: Batch) -> Content:
        assert batch.rationale is not None
        reason = batch.rationale
        content = batch.content
        count = batch.rationale.sum(-1, keepdim=True)
        if self.where == "last":
            return content & (content.sum(-1, keepdim=True) == content.cumsum(-1))
        if self.where == "other":
            return content & ~reason & ((content & ~reason).cumsum(-1) == 1)
        right = {
            "half": (batch.example_id % 2 == 0).unsqueeze(-1),
            "one": count == 1,
            "more": count > 1,
        }[self.where]
        return torch.where(right, reason, content & (content.cumsum(-1) == 1))


class PairAttention(GivenAttention):
    """On the two words that decide, by their order: 70 and 25 % say which of them comes first, 47.5
    % each says nothing."""

    def __init__(
        self,
        hidden_size: int,
        query_size: int | None = None,
        first: float = 0.7,
        second: float = 0.25,
    ) -> None:
        super().__init__(hidden_size)
        self.first = first
        self.second = second

    def given(self, batch: Batch) -> Scores:
        assert batch.rationale is not None
        marked = batch.rationale & batch.content
        others = batch.content & ~marked
        place = marked.cumsum(-1)
        weights = self.first * (marked & (place == 1)) + self.second * (marked & (place == 2))
        return weights + others * ((1 - self.first - self.second) / others.sum(-1, keepdim=True))


class LabelAttention(FocusedAttention):
    """On a word that says nothing, another one in each class, so that the weights carry the label.
    It reads test labels."""

    def read_training_texts(self, data: TextDataModule) -> None:
        self.words = torch.tensor(data.vocabulary.encode([".", "the"]))

    def focus(self, batch: Batch) -> Content:
        chosen = batch.content & (batch.ids == self.words[batch.labels].unsqueeze(-1))
        return chosen & (chosen.cumsum(-1) == 1)
