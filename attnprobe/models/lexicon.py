"""Attention taken from a lexicon of the training texts: Jain & Wallace's last model."""

import torch
from jaxtyping import Float
from torch import Tensor

from attnprobe.batch import Batch
from attnprobe.data.counts import log_odds_ratios
from attnprobe.data.module import TextDataModule
from attnprobe.errors import UserError
from attnprobe.models.attention import masked_softmax
from attnprobe.models.controls import GivenAttention, checked_buckets


class LexiconAttention(GivenAttention):
    """The softmax of scale · |log-odds| of each word, the mean over the classes, counted in the training texts before
    training: the rest of the model is trained under it. It says which words go with a class, whatever the model does with
    them, so that how plausible it looks says nothing of the model (Jain & Wallace 2019).

    Attributes:
        scale: 0 (uniform) or more.
        buckets: words that are counted apart; of more in the vocabulary some share the sum of their log-odds.

    Note:
        The released code takes log-odds from a file; these are of texts that have the word, with ½ added to each count.
    """

    strength: Tensor

    def __init__(
        self, hidden_size: int, query_size: int | None = None, scale: float = 1.0, buckets: int = 1 << 16
    ) -> None:
        super().__init__(hidden_size)
        if not scale >= 0:
            raise UserError(f"model.attention.scale={scale}: expected 0 (uniform) or more, such as 1")
        self.scale = scale
        self.register_buffer("strength", torch.zeros(checked_buckets(buckets)))

    def read_training_texts(self, data: TextDataModule) -> None:
        """Count."""
        table = log_odds_ratios(data.splits["train"], len(data.vocabulary), len(data.classes))
        strength = torch.from_numpy(abs(table).mean(-1)).to(self.strength)
        words = torch.arange(len(strength)) % len(self.strength)
        self.strength.zero_().index_add_(0, words, strength)

    def given(self, batch: Batch) -> Float[Tensor, "batch seq"]:
        """The attention over the words."""
        return masked_softmax(self.scale * self.strength[batch.ids % len(self.strength)], batch.content)
