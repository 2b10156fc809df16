"""Further attentions that are wrong, or half right, by construction."""

from dataclasses import dataclass
from typing import Literal

import torch

from attnprobe.core.batch import Batch
from attnprobe.data.module import TextDataModule
from attnprobe.models.attention import Content, GivenAttention, Scores
from attnprobe.models.controls import FocusedAttention, noise


def first_of(positions: Content) -> Content:
    """The first position of each text that is True, alone."""
    return positions & (positions.cumsum(-1) == 1)


def or_first(positions: Content, substitutes: Content) -> Content:
    """These positions, and in texts without any the first of the substitutes."""
    return torch.where(positions.any(-1, keepdim=True), positions, first_of(substitutes))


Where = Literal["last", "random", "other", "first_three", "overridden", "region", "half"]


@dataclass(eq=False, repr=False)
class PlacedAttention(FocusedAttention):
    """On a place that says nothing of the label, in all texts or in some.

    Attributes:
        where: content-blind: on the `last` word or a `random` one. Avoiding the reason: on the
            first word that does not decide (`other`), on such words among the first three
            (`first_three`), among the cues that do not decide (`overridden`) or where cues stand
            (`region`; both are columns of `data.per_word`), in texts without such words on the
            first that does not decide. On the words that decide in a random `half` of the texts, on
            the first word in the other.
    """

    where: Where = "half"

    def focus(self, batch: Batch) -> Content:
        """The positions that the mass lies on."""
        assert batch.rationale is not None
        content = batch.content
        place = content.cumsum(-1)
        length = content.sum(-1, keepdim=True)
        silent = content & ~batch.rationale
        match self.where:
            case "last":
                return content & (place == length)
            case "random":
                rank = torch.special.ndtr(noise(batch.example_id.unsqueeze(-1))) * length
                return content & (place == rank.floor() + 1)
            case "other":
                return first_of(silent)
            case "first_three":
                return or_first(silent & (place <= 3), silent)
            case "overridden" | "region":
                return or_first(silent & (batch.extra[self.where] > 0), silent)
        is_right = noise(batch.example_id.unsqueeze(-1)) > 0  # a coin that knows no label
        return torch.where(is_right, batch.rationale, first_of(content))


@dataclass(eq=False, repr=False)
class PairAttention(GivenAttention):
    """On the two words that decide by their order.

    70 and 25 % say which of them comes first; 47.5 % each say nothing.

    Attributes:
        first: weight of the earlier one.
        second: weight of the later one.
    """

    first: float = 0.7
    second: float = 0.25

    def given(self, batch: Batch) -> Scores:
        """Both weights, and the rest evenly on all other words."""
        assert batch.rationale is not None
        deciding = batch.rationale & batch.content
        rest = batch.content & ~deciding
        place = deciding.cumsum(-1)
        earlier = deciding & (place == 1)
        later = deciding & (place == 2)
        weights = self.first * earlier + self.second * later
        rest_weight = (1 - self.first - self.second) / rest.sum(-1, keepdim=True)
        return weights + rest * rest_weight


class LabelAttention(FocusedAttention):
    """On a word that says nothing, another one in each class, so that the weights carry the label.

    It reads test labels.
    """

    def read_training_texts(self, data: TextDataModule) -> None:
        """Look up the words: a full stop in class 0, `the` in class 1."""
        self.words = torch.tensor(data.vocabulary.encode([".", "the"]))

    def focus(self, batch: Batch) -> Content:
        """The word's first place in each text."""
        word = self.words[batch.labels].unsqueeze(-1)
        return first_of(batch.content & (batch.ids == word))
