"""Sentences made of words: encode and attend within each, then encode the sentences.

Yang et al. 2016.
"""

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
    """One state per sentence.

    Word encoder → attention over the words of the sentence → sum → sentence encoder. Markers and
    padding belong to no sentence and are not read.

    Args:
        input_size: features of a word vector.
        word_encoder: input_size → Encoder.
        word_attention: hidden_size → Attention.
        sentence_encoder: input_size → Encoder.
    """

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
        size = self.word_encoder.size
        self.word_attention = build(
            "model.encoder.word_attention",
            word_attention,
            hidden_size=size,
        )
        self.sentence_encoder = build(
            "model.encoder.sentence_encoder",
            sentence_encoder,
            input_size=size,
        )
        self.size = self.sentence_encoder.size

    def states(
        self,
        embeddings: Float[Tensor, "batch tokens embed"],
        batch: Batch,
    ) -> tuple[
        Float[Tensor, "batch seq hidden"], Bool[Tensor, "batch seq"], Float[Tensor, "batch tokens"]
    ]:
        """Encode and attend within each sentence, then encode the sentences.

        Returns:
            States of the sentences, zero after a text's last one; the positions that hold a
            sentence; and the attention within each sentence.

        Note:
            Sentences are encoded in groups whose longest is less than twice as long as the
            shortest. Side by side in one grid, a sentence of 300 words would make 300 columns of
            every other.
        """
        layout = sentence_layout(batch)
        vectors = embeddings.flatten(0, 1)
        word_attention = vectors.new_zeros(len(vectors))
        sentences = vectors.new_zeros(*layout.mask.shape, self.word_encoder.size)

        doublings = layout.words.double().log2().floor()
        for doubling in doublings.unique():
            group = (doublings == doubling).nonzero().squeeze(-1)
            token, mask = words_of(layout, group)
            hidden = self.word_encoder(vectors[token] * mask.unsqueeze(-1), mask, mask)
            attention = self.word_attention.weights(self.word_attention(hidden), mask)
            attended = torch.einsum("sw,swh->sh", attention, hidden)

            word_attention = word_attention.index_put((token[mask],), attention[mask])
            sentences = sentences.index_put((layout.row[group], layout.place[group]), attended)

        states = self.sentence_encoder(sentences, layout.mask, layout.mask)
        return states, layout.mask, word_attention.view(batch.ids.shape)


class Gathered(NamedTuple):
    """States and weights of words, gathered into sentences.

    Attributes:
        hidden: of each sentence the mean state of its words, weighted by the attention.
        attention: of each sentence the sum of its words' weights.
        content: the positions that hold a sentence.
        word_attention: the attention within each sentence, which sums to 1 there.
    """

    hidden: Float[Tensor, "batch seq hidden"]
    attention: Float[Tensor, "batch seq"]
    content: Bool[Tensor, "batch seq"]
    word_attention: Float[Tensor, "batch tokens"]


def gather_words(
    batch: Batch,
    hidden: Float[Tensor, "batch tokens hidden"],
    attention: Float[Tensor, "batch tokens"],
) -> Gathered:
    """Gather words into the sentences of their texts, so that Σ a_s h_s = Σ a_t h_t.

    Words of a sentence that has no weight at all count as even within it.

    Args:
        batch: the texts.
        hidden: states of their words.
        attention: weights of their words.

    Raises:
        UserError: the texts are not split into sentences.
    """
    layout = sentence_layout(batch)
    number = torch.arange(len(layout.row), device=hidden.device)
    sentence = number.repeat_interleave(layout.words)  # of each word
    weights = attention.flatten()[layout.token]
    total = weights.new_zeros(len(number)).index_add(0, sentence, weights)

    # of a division by 0 the gradient would be NaN, even where its result is not used
    is_weightless = (total == 0)[sentence]
    even = 1 / layout.words[sentence].to(weights.dtype)
    share = torch.where(
        is_weightless, even, weights / total[sentence].masked_fill(is_weightless, 1)
    )
    weighted = share.unsqueeze(-1) * hidden.flatten(0, 1)[layout.token]
    states = weighted.new_zeros(len(number), hidden.shape[-1]).index_add(0, sentence, weighted)

    place = (layout.row, layout.place)
    word_attention = share.new_zeros(attention.numel()).index_put((layout.token,), share)
    return Gathered(
        hidden=states.new_zeros(*layout.mask.shape, states.shape[-1]).index_put(place, states),
        attention=total.new_zeros(layout.mask.shape).index_put(place, total),
        content=layout.mask,
        word_attention=word_attention.view_as(attention),
    )


class SentenceLayout(NamedTuple):
    """Where the sentences of a batch are, text by text in reading order.

    Sentences without words are left out.

    Attributes:
        row: the text of each sentence.
        place: its number in the text, from 0.
        words: how many words it has.
        start: where they begin in `token`.
        token: positions of all words in the flattened batch, sentence by sentence.
        mask: which texts have a sentence of this number.
    """

    row: Int[Tensor, "sentences"]
    place: Int[Tensor, "sentences"]
    words: Int[Tensor, "sentences"]
    start: Int[Tensor, "sentences"]
    token: Int[Tensor, "words"]
    mask: Bool[Tensor, "batch seq"]


def sentence_layout(batch: Batch) -> SentenceLayout:
    """Find the sentences of a batch by `batch.sentence`.

    Raises:
        UserError: the texts are not split into sentences, or a text has no word in any.
    """
    if batch.sentence is None:
        raise UserError(
            "this model attends to sentences, but the data set does not split its texts into any: "
            "set data.sentences=rule (or spacy, column, or a number of words)"
        )
    inside = batch.content & (batch.sentence >= 0)
    if not inside.any(-1).all():
        empty = int((~inside.any(-1)).nonzero()[0, 0])
        raise UserError(
            f"example {int(batch.example_id[empty])} has no word in any sentence: leave empty "
            f"texts out"
        )

    # one key per sentence, ascending in reading order
    token = inside.flatten().nonzero().squeeze(-1)
    most = batch.sentence.max() + 1
    key = (token // batch.ids.shape[1]) * most + batch.sentence.flatten()[token]
    key, order = key.sort(stable=True)
    keys, words = key.unique_consecutive(return_counts=True)

    row = keys // most
    sentences_per_text = row.bincount(minlength=len(batch))
    first = sentences_per_text.cumsum(0) - sentences_per_text
    number = torch.arange(int(sentences_per_text.max()), device=row.device)
    return SentenceLayout(
        row=row,
        place=torch.arange(len(keys), device=keys.device) - first[row],
        words=words,
        start=words.cumsum(0) - words,
        token=token[order],
        mask=number < sentences_per_text.unsqueeze(-1),
    )


def sentence_of_word(batch: Batch) -> Int[Tensor, "batch tokens"]:
    """The number in its text, from 0, of each word's sentence; −1 for what is in none."""
    layout = sentence_layout(batch)
    number = torch.full_like(batch.ids, -1).flatten()
    place = layout.place.repeat_interleave(layout.words)
    return number.index_put((layout.token,), place).view_as(batch.ids)


def words_of(
    layout: SentenceLayout,
    group: Int[Tensor, "group"],
) -> tuple[Int[Tensor, "group longest"], Bool[Tensor, "group longest"]]:
    """Lay the words of some sentences side by side.

    Returns:
        Positions in the flattened batch, and which of them are words of the sentence; beyond its
        end positions are arbitrary.
    """
    number = torch.arange(int(layout.words[group].max()), device=group.device)
    place = layout.start[group, None] + number
    token = layout.token[place.clamp(max=len(layout.token) - 1)]
    return token, number < layout.words[group, None]


def words_per_sentence(batch: Batch) -> list[list[int]]:
    """Count the words of each sentence, text by text."""
    layout = sentence_layout(batch)
    return [layout.words[layout.row == row].tolist() for row in range(len(batch))]


def cut_into_sentences(words: Any, lengths: Sequence[int]) -> list[Any]:
    """Cut a sequence of words (or of their weights) into sentences of these lengths.

    >>> cut_into_sentences(["a", "b", "c"], [1, 2])
    [['a'], ['b', 'c']]
    """
    ends = accumulate(lengths)
    return [words[end - length : end] for end, length in zip(ends, lengths, strict=True)]
