"""Sentences made of words: encode and attend within each sentence, then encode the sentences (Yang
et al. 2016)."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnprobe.core.batch import Batch
from attnprobe.core.errors import UserError
from attnprobe.models.attention import Attention
from attnprobe.models.base import Unit, build
from attnprobe.models.encoders import Encoder, TextEncoder


class HierarchicalEncoder(TextEncoder):
    """One state per sentence: word encoder → attention over the sentence's words → sum → sentence
    encoder. Markers and padding belong to no sentence and are not read."""

    unit = Unit.SENTENCE

    def __init__(
        self,
        input_size: int,
        word_encoder: Callable[..., Encoder],
        word_attention: Callable[..., Attention],
        sentence_encoder: Callable[..., Encoder],
    ) -> None:
        super().__init__()
        self.word_encoder = build("model.encoder.word_encoder", word_encoder, input_size=input_size)
        self.word_attention = build(
            "model.encoder.word_attention", word_attention, hidden_size=self.word_encoder.size
        )
        size = self.word_encoder.size
        self.sentence_encoder = build(
            "model.encoder.sentence_encoder", sentence_encoder, input_size=size
        )
        self.size = self.sentence_encoder.size

    def states(
        self, embeddings: Float[Tensor, "batch tokens embed"], batch: Batch
    ) -> tuple[
        Float[Tensor, "batch seq hidden"], Bool[Tensor, "batch seq"], Float[Tensor, "batch tokens"]
    ]:
        """Hidden states of the sentences, zero after a text's last one; where there is a sentence;
        and the attention within each."""
        layout = sentence_layout(batch)
        vectors = embeddings.flatten(0, 1)
        word_attention = vectors.new_zeros(len(vectors))
        sentences = vectors.new_zeros(*layout.mask.shape, self.word_encoder.size)
        # in groups whose longest is less than twice as long as its shortest: side by side in one
        # grid, one sentence of 300 words would make 300 columns of every other
        doublings = layout.words.double().log2().floor()
        for value in doublings.unique():
            group = (doublings == value).nonzero().squeeze(-1)
            number = torch.arange(int(layout.words[group].max()), device=group.device)
            mask = number < layout.words[group, None]
            # beyond a sentence's end an arbitrary word is read, which the mask removes again
            token = layout.token[
                (layout.start[group, None] + number).clamp(max=len(layout.token) - 1)
            ]
            hidden = self.word_encoder(vectors[token] * mask.unsqueeze(-1), mask, mask)
            attention = self.word_attention.weights(self.word_attention(hidden), mask)
            word_attention = word_attention.index_put((token[mask],), attention[mask])
            attended = torch.einsum("sw,swh->sh", attention, hidden)
            sentences = sentences.index_put((layout.row[group], layout.place[group]), attended)
        states = self.sentence_encoder(sentences, layout.mask, layout.mask)
        return states, layout.mask, word_attention.view(batch.ids.shape)


class SentenceLayout(NamedTuple):
    """Where the sentences of a batch are, text by text in reading order: of each its text (`row`),
    its number there from 0 (`place`), how many words it has and where they begin in `token`, the
    positions of all words in the flattened batch. `mask` says which texts have a sentence of this
    number. Sentences without words are left out."""

    row: Int[Tensor, "sentences"]
    place: Int[Tensor, "sentences"]
    words: Int[Tensor, "sentences"]
    start: Int[Tensor, "sentences"]
    token: Int[Tensor, "words"]
    mask: Bool[Tensor, "batch seq"]


def sentence_layout(batch: Batch) -> SentenceLayout:
    """Find the sentences of a batch by `batch.sentence`; a UserError where a text has none."""
    if batch.sentence is None:
        raise UserError(
            "this model reads sentences, but the data set does not split its texts into any: set data.sentences=rule "
            "(or spacy, or column)"
        )
    inside = batch.content & (batch.sentence >= 0)
    if not inside.any(-1).all():
        row = int((~inside.any(-1)).nonzero()[0, 0])
        raise UserError(
            f"example {int(batch.example_id[row])} has no word in any sentence: leave empty texts out"
        )
    token = inside.flatten().nonzero().squeeze(-1)
    most = batch.sentence.max() + 1
    key = (token // batch.ids.shape[1]) * most + batch.sentence.flatten()[token]
    key, order = key.sort(stable=True)
    keys, words = key.unique_consecutive(return_counts=True)
    row = keys // most
    count = row.bincount(minlength=len(batch))
    number = torch.arange(len(keys), device=keys.device)
    place = number - (count.cumsum(0) - count)[row]
    mask = torch.arange(int(count.max()), device=count.device) < count.unsqueeze(-1)
    return SentenceLayout(row, place, words, words.cumsum(0) - words, token[order], mask)


def words_per_sentence(batch: Batch) -> list[list[int]]:
    """How many words each sentence of each text has."""
    layout = sentence_layout(batch)
    return [layout.words[layout.row == row].tolist() for row in range(len(batch))]


def cut_into_sentences(words: Any, lengths: Sequence[int]) -> list[Any]:
    """One sequence of words (or their weights) cut into sentences of these lengths.

    >>> cut_into_sentences(["a", "b", "c"], [1, 2])
    [['a'], ['b', 'c']]
    """
    ends = accumulate(lengths)
    return [words[end - length : end] for end, length in zip(ends, lengths, strict=True)]
