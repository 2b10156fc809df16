"""Further attentions that are wrong, or half right, by construction."""

from attnprobe.core.batch import Batch
from attnprobe.models.attention import Content
from attnprobe.models.controls import FocusedAttention


class LastAttention(FocusedAttention):
    """On the last word of every text."""

    def focus(self, batch: Batch) -> Content:
        return batch.content & (batch.content.sum(-1, keepdim=True) == batch.content.cumsum(-1))


class HalfAttention(FocusedAttention):
    """On the words that decide in every other text, and on the first word of the others."""

    def focus(self, batch: Batch) -> Content:
        assert batch.rationale is not None
        first = batch.content & (batch.content.cumsum(-1) == 1)
        even = (batch.example_id % 2 == 0).unsqueeze(-1)
        return (batch.rationale & even) | (first & ~even)
