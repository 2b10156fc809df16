"""Sets of words kept, all others replaced by filler: the operator of the test on words.

Words keep their places, and a text keeps its number of words: nothing is masked, and no gap closes.
The filler of each place is drawn independently from all words of the texts, so that it depends on
no place, no label and no decision.

What each word does is estimated twice, from sets that have nothing in common but the text: the
product of two independent estimates has no bias, while the square of one estimate is positive even
for a word that does nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import pad_sequence

from attnprobe.core.batch import Batch, Outputs
from attnprobe.data.batching import short_enough
from attnprobe.models.base import Model

Precision = Literal["float32", "bfloat16"]
"""What matrices are multiplied in; everything else is computed in float32."""
POSITIONS_AT_ONCE = 8192
"""Positions of changed texts that go through a model at a time."""
NOT_REPLACED = -1
"""Number of a stretch of pieces that stays in every variant: a special token, or a word of a pair's
other text."""
RIDGE = 1.0
"""Penalty of the least squares, in pairs of changed texts."""
WHOLE_EFFECT = 1 / 3
"""A word with this share of the strongest word's effect counts as a whole word that decides."""
NO_STRENGTH = 1e-6
"""Strength below which no word of a text does anything."""
CONTENT_OF_WORDS = ("ids", "rationale", "annotators")
"""Columns of a batch that belong to a word and move with it, besides `extra`."""


@dataclass(frozen=True)
class Filler:
    """All words of some texts, any of which may stand in the place of a word.

    Attributes:
        columns: what is known of each word, by the column of the batch; `[words]`.
        segment: which text of a pair the word is from; 0 where there are no pairs.
        pieces: each word's pieces, for a model that reads pieces; else none.
    """

    columns: dict[str, Tensor]
    segment: Int[np.ndarray, " words"]
    pieces: Sequence[Sequence[int]] = ()

    @classmethod
    def of(cls, texts: Iterable[Batch], device: torch.device | str = "cpu") -> "Filler":
        """The words of some texts.

        Where texts are in pieces, the first word of each is left out: a tokenizer may cut it into
        other pieces than the same word elsewhere (byte-level ones count the space before a word).

        Args:
            texts: a batch of one text each.
            device: where the words are held.
        """
        columns: dict[str, list[Tensor]] = {}
        segments: list[np.ndarray] = []
        pieces: list[list[int]] = []
        for text in texts:
            places = text.content[0].nonzero().squeeze(-1)
            if text.pieces is not None and len(places) > 1:
                places = places[1:]
            for name, column in _columns_of_words(text).items():
                columns.setdefault(name, []).append(column[0, places])
            segments.append(_segment_of(text, places))
            if text.pieces is not None:
                (pieces_at,) = pieces_by_word(text)
                pieces += [pieces_at.get(place, []) for place in places.tolist()]
        joined = {name: torch.cat(parts).to(device) for name, parts in columns.items()}
        return cls(joined, np.concatenate(segments), pieces)

    def draw(
        self,
        segment: Int[np.ndarray, " words"],
        samples: int,
        generator: torch.Generator,
    ) -> Int[Tensor, "samples words"]:
        """Draw a word for each place, independently of the others, as its number in this filler.

        Args:
            segment: which text of a pair each place is in; its words come from the same side.
            samples: how many draws.
            generator: of the text.
        """
        drawn = torch.zeros(samples, len(segment), dtype=torch.long)
        for number in np.unique(segment):
            candidates = torch.from_numpy(np.flatnonzero(self.segment == number))
            places = torch.from_numpy(np.flatnonzero(segment == number))
            chosen = torch.randint(len(candidates), (samples, len(places)), generator=generator)
            drawn[:, places] = candidates[chosen]
        return drawn


def _columns_of_words(text: Batch) -> dict[str, Tensor]:
    """What a batch knows of its words, by the column's name."""
    columns = {name: getattr(text, name) for name in CONTENT_OF_WORDS}
    return {name: column for name, column in columns.items() if column is not None} | text.extra


def _segment_of(text: Batch, places: Int[Tensor, " words"]) -> Int[np.ndarray, " words"]:
    """Which text of its pair each place of this one row is in; 0 where there is no pair."""
    if text.segment is None:
        return np.zeros(len(places), np.int64)
    return text.segment[0, places].cpu().numpy()


@dataclass(frozen=True)
class Swapper:
    """One text, some of whose words are replaced by filler.

    Args:
        run: a model that attends to words, or `in_float32` of it.
        text: a batch of the one text.
        filler: what stands in the place of a word.
        longest: pieces that the model reads at most; None: it reads no pieces, or any number.
        position: the position of the attention that each word is part of: of one position all words
            are kept, or none is; None: each has its own.
    """

    run: Callable[[Batch], Outputs]
    text: Batch
    filler: Filler
    longest: int | None = None
    position: Int[Tensor, "1 tokens"] | None = None

    @property
    def places(self) -> Int[Tensor, " words"]:
        """Where the words stand."""
        return self.text.content[0].nonzero().squeeze(-1)

    def draw_filler(self, samples: int, generator: torch.Generator) -> Int[Tensor, "samples words"]:
        """Filler for every word of the text."""
        drawn = self.filler.draw(_segment_of(self.text, self.places), samples, generator)
        return drawn.to(self.text.ids.device)

    def swapped(
        self, kept: Bool[Tensor, "variants words"], drawn: Int[Tensor, "variants words"]
    ) -> Batch:
        """Variants of the text, in each of which some words are kept and all others are filler.

        All columns that belong to a word (`CONTENT_OF_WORDS`) are replaced with it.

        Args:
            kept: the words that stay.
            drawn: what stands in the place of the others, as numbers of the filler.
        """
        places = self.places
        # what belongs to the whole text as it was says nothing of its variants
        unmarked = replace(
            self.text, teacher_attention=None, teacher_probability=None, counterfactual=None
        )
        variants = unmarked.rows(torch.zeros_like(drawn[:, 0]))
        mixed = {}
        for name, column in _columns_of_words(variants).items():
            if name in self.filler.columns:
                replacement = self.filler.columns[name][drawn].to(column.dtype)
                changed = column.clone()
                changed[:, places] = torch.where(kept, column[:, places], replacement)
                mixed[name] = changed
        extra = {name: mixed.pop(name, column) for name, column in variants.extra.items()}
        variants = replace(variants, **mixed, extra=extra)
        if variants.pieces is None:
            return variants
        return self._with_pieces(variants, kept, drawn)

    def _with_pieces(
        self,
        variants: Batch,
        kept: Bool[Tensor, "variants words"],
        drawn: Int[Tensor, "variants words"],
    ) -> Batch:
        """Replace words with all their pieces; special tokens and a pair's other text stay.

        A variant may be longer than the model reads: then its last words lose pieces, and the
        special tokens at its end stay.
        """
        words, closing = _split_closing(stretches_of(self.text))
        closing_lines = [line for stretch in closing for line in stretch.lines()]
        room = None if self.longest is None else max(0, self.longest - len(closing_lines))
        rows = []
        for is_kept, replacement in zip(kept.tolist(), drawn.tolist(), strict=True):
            lines = []
            for stretch in words:
                if stretch.number == NOT_REPLACED or is_kept[stretch.number]:
                    lines += stretch.lines()
                else:
                    lines += stretch.lines(self.filler.pieces[replacement[stretch.number]])
            row = torch.tensor(lines[:room] + closing_lines, dtype=torch.long)
            rows.append(row.view(-1, 3))
        return replace(
            variants,
            pieces=_padded_column(rows, 0, padding=0).to(drawn.device),
            piece_word=_padded_column(rows, 1, padding=-2).to(drawn.device),
            piece_kind=_padded_column(rows, 2, padding=0).to(drawn.device),
        )

    def logits(
        self, kept: Bool[Tensor, "variants words"], drawn: Int[Tensor, "variants words"]
    ) -> Float[Tensor, "variants classes"]:
        """The model's logits for each variant; float64."""
        variants = self.swapped(kept, drawn)
        width = variants.ids.shape[1]
        parts = []
        order = []
        for rows in _rows_at_once(variants):
            part = variants.rows(rows.to(drawn.device)).cut(width)
            with torch.no_grad():
                parts.append(self.run(part).logits.double())
            order.append(rows)

        # the parts may be sorted by length: back into the order of the variants
        logits = torch.cat(parts)
        return logits[torch.cat(order).argsort().to(logits.device)]

    def pairs(self, pairs: int, sharpness: float, generator: torch.Generator) -> "KeptWords":
        """Keep random sets of words (or of sentences), and in a second text all others.

        Both texts of a pair draw from the same filler. A set has from one word to all but one, each
        size equally often.

        Args:
            pairs: how many.
            sharpness: what the logits are multiplied by before they become probabilities.
            generator: of the text.
        """
        unit = torch.arange(len(self.places), device=self.text.ids.device)
        if self.position is not None:
            unit = self.position[0, self.places].unique(return_inverse=True)[1]
        order = torch.rand(pairs, int(unit.max()) + 1, generator=generator, dtype=torch.float64)
        kept_units = prefixes(order, generator)
        kept = kept_units.to(unit.device)[:, unit]
        drawn = self.draw_filler(pairs, generator)
        logits = self.logits(torch.cat([kept, ~kept]), torch.cat([drawn, drawn]))
        outcome = (sharpness * logits).softmax(-1).cpu()
        with_set, without_set = outcome.chunk(2)
        return KeptWords(kept_units, with_set, without_set)


def _rows_at_once(variants: Batch) -> Sequence[Int[Tensor, " rows"]]:
    """The rows that go through a model together, part by part."""
    if variants.pieces is None:  # every variant is as long as the text
        parts = -(-variants.ids.numel() // POSITIONS_AT_ONCE)
        return torch.arange(len(variants)).tensor_split(min(parts, len(variants)))

    # they differ in their number of pieces, and are padded to the longest: fewer at a time
    lengths = variants.lengths.cpu().numpy() - 2
    return [torch.tensor(rows) for rows in short_enough(lengths, most=POSITIONS_AT_ONCE // 4)]


@dataclass(frozen=True)
class KeptWords:
    """Random sets of a text's words, and what the model says with them and without them.

    Attributes:
        kept: the words (or the sentences) of each set.
        with_set: probabilities of all classes where the set is kept and all else is filler.
        without_set: the same where the set is filler and all else is kept.
    """

    kept: Bool[Tensor, "pairs words"]
    with_set: Float[Tensor, "pairs classes"]
    without_set: Float[Tensor, "pairs classes"]

    def effects(self) -> "WordEffects":
        """What each word does in texts of which any part is filler."""
        sides = 2 * self.kept.double() - 1
        return _estimated_twice(sides, self.with_set - self.without_set)

    def effects_in_own_context(self) -> "WordEffects":
        """What each word does in texts that are mostly as they were.

        Only that text of each pair is used which keeps more of its words.
        """
        is_larger = 2 * self.kept.sum(-1, keepdim=True) >= self.kept.shape[1]
        kept = torch.where(is_larger, self.kept, ~self.kept)
        outcome = torch.where(is_larger, self.with_set, self.without_set)
        presence = kept.double()  # 0 or 1, so that a slope is what the word's presence changes
        return _estimated_twice(presence - presence.mean(0), outcome - outcome.mean(0))


def _estimated_twice(
    sides: Float[Tensor, "pairs words"], change: Float[Tensor, "pairs classes"]
) -> "WordEffects":
    """The effects from the pairs of even number, and from those of odd number."""
    return WordEffects(
        effects_of_words(sides[0::2], change[0::2]), effects_of_words(sides[1::2], change[1::2])
    )


@dataclass(frozen=True)
class WordEffects:
    """What each word of a text does to the probabilities of all classes, estimated twice.

    Attributes:
        first: from a half of the sets.
        second: from the other half, which has filler of its own.
    """

    first: Float[Tensor, "words classes"]
    second: Float[Tensor, "words classes"]

    def of_class(self, number: int) -> "WordEffects":
        """What each word does to one class and to all others together: two outcomes."""
        first = self.first[:, number]
        second = self.second[:, number]
        return WordEffects(torch.stack([first, -first], -1), torch.stack([second, -second], -1))

    @cached_property
    def squared(self) -> Float[Tensor, "words"]:
        """Half of each word's squared effect, summed over classes; 0 to 1 but for noise.

        The square is the product of the two estimates, which has no bias: 0 on average for a word
        that does nothing. Of two classes the half is the squared change of either probability.
        """
        return (self.first * self.second).sum(-1) / 2

    @cached_property
    def strongest(self) -> int:
        """The word with the largest effect."""
        return int(self._norms.argmax())

    @cached_property
    def strength(self) -> float:
        """Half of the squared effect of the strongest word."""
        return float(self.squared[self.strongest])

    @cached_property
    def reliability(self) -> float:
        """How far both estimates of the strongest word agree: −1 to 1, and 1 where they are equal.

        It is 2 ⟨a, b⟩ / (|a|² + |b|²) of the estimates a and b, where `strength` is ⟨a, b⟩ / 2.
        """
        norm = float(self._norms[self.strongest])
        return 4 * self.strength / norm if norm > 0 else 0.0

    @cached_property
    def shares(self) -> Float[Tensor, "words"]:
        """How far each word is one that decides, −1 to 1; 0 on average where it does nothing.

        A word with a third of the strongest effect (`WHOLE_EFFECT`) or more counts fully, a weaker
        one in proportion to its square. A word that speaks against the prediction moves it as well
        as one that speaks for it: a negative share is noise, and no direction.
        """
        whole = max(self.strength, NO_STRENGTH) * WHOLE_EFFECT**2
        return (self.squared / whole).clamp(-1, 1)

    @cached_property
    def _norms(self) -> Float[Tensor, "words"]:
        return self.first.square().sum(-1) + self.second.square().sum(-1)


def effects_of_words(
    sides: Float[Tensor, "pairs words"],
    change: Float[Tensor, "pairs classes"],
    ridge: float = RIDGE,
) -> Float[Tensor, "words classes"]:
    """Each word's part in what random sets change.

    Least squares of the changes on ±1 (the word is in the set, or not), with a small ridge. For a
    model that adds up what its words do, the solution is what each word does. With more words than
    pairs, (SᵀS + λ)⁻¹Sᵀ = Sᵀ(SSᵀ + λ)⁻¹ gives the same solution from the smaller system.

    Args:
        sides: 1 where the set has the word, −1 where it has not; of single texts instead of pairs,
            1 where the word is kept and else 0, less the mean.
        change: of each class's probability.
        ridge: the penalty.
    """
    pairs, words = sides.shape
    size = min(pairs, words)
    penalty = ridge * torch.eye(size, dtype=sides.dtype, device=sides.device)
    if words <= pairs:
        return torch.linalg.solve(sides.T @ sides + penalty, sides.T @ change)
    return sides.T @ torch.linalg.solve(sides @ sides.T + penalty, change)


@dataclass(frozen=True)
class Stretch:
    """Consecutive pieces: those of a word, or a special token.

    Attributes:
        pieces: their numbers in the tokenizer's vocabulary.
        word: as in `Batch.piece_word`.
        kind: as in `Batch.piece_kind`.
        number: of the word among those that may be replaced, or `NOT_REPLACED`.
    """

    pieces: list[int]
    word: int
    kind: int
    number: int

    def lines(self, pieces: Sequence[int] | None = None) -> list[tuple[int, int, int]]:
        """Each piece with its word and its kind; `pieces` stand in the place of the stretch's."""
        if pieces is None:
            pieces = self.pieces
        return [(piece, self.word, self.kind) for piece in pieces]


def stretches_of(text: Batch) -> list[Stretch]:
    """The pieces of a batch of one text, word by word; padding is left out."""
    assert text.pieces is not None
    assert text.piece_word is not None
    assert text.piece_kind is not None
    places = text.content[0].nonzero().squeeze(-1).tolist()
    number_of_place = {place: number for number, place in enumerate(places)}
    stretches: list[Stretch] = []
    for piece, word, kind in zip(
        text.pieces[0].tolist(),
        text.piece_word[0].tolist(),
        text.piece_kind[0].tolist(),
        strict=True,
    ):
        if word >= 0 and stretches and stretches[-1].word == word:
            stretches[-1].pieces.append(piece)
        elif word != -2:
            number = number_of_place.get(word, NOT_REPLACED)
            stretches.append(Stretch([piece], word, kind, number))
    return stretches


def _split_closing(stretches: list[Stretch]) -> tuple[list[Stretch], list[Stretch]]:
    """The stretches up to the last word that may be replaced, and those after it."""
    end = 0
    for place, stretch in enumerate(stretches):
        if stretch.number != NOT_REPLACED:
            end = place + 1
    return stretches[:end], stretches[end:]


def _padded_column(
    rows: list[Int[Tensor, "_ 3"]], column: int, padding: int
) -> Int[Tensor, "variants pieces"]:
    return pad_sequence([row[:, column] for row in rows], batch_first=True, padding_value=padding)


def pieces_by_word(batch: Batch) -> list[dict[int, list[int]]]:
    """For each text, the pieces of each word by its position."""
    assert batch.pieces is not None
    assert batch.piece_word is not None
    result = []
    for pieces, words in zip(batch.pieces.tolist(), batch.piece_word.tolist(), strict=True):
        pieces_at: dict[int, list[int]] = {}
        for piece, word in zip(pieces, words, strict=True):
            pieces_at.setdefault(word, []).append(piece)
        result.append(pieces_at)
    return result


class _RepeatedWords(nn.Module):
    """A model whose pass looks up each distinct word once."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Outputs:
        return self.model.outputs_of_repeated_words(batch)


def in_float32(model: Model, *, products: Precision = "float32") -> Callable[[Batch], Outputs]:
    """The model as a function that computes in float32, without gradients.

    It takes half the time of float64, and what a set of words does is still known to 1e-6.

    Args:
        model: in any precision.
        products: what matrices are multiplied in. In bfloat16 a probability is known to about 0.01,
            less than what other sets of words change it by.
    """
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    state = {}
    for name, tensor in tensors.items():
        is_double = tensor.dtype is torch.float64
        state[f"model.{name}"] = tensor.detach().float() if is_double else tensor.detach()
    repeated_words = _RepeatedWords(model)
    in_bfloat16 = products == "bfloat16"

    def outputs(batch: Batch) -> Outputs:
        device = batch.ids.device.type
        with torch.no_grad(), torch.autocast(device, torch.bfloat16, enabled=in_bfloat16):
            return functional_call(repeated_words, state, (batch,))

    return outputs


def prefixes(
    keys: Float[Tensor, "pairs words"], generator: torch.Generator
) -> Bool[Tensor, "pairs words"]:
    """The first k words of each order, as a set; k goes from 1 to all but one, evenly.

    Args:
        keys: the orders; the word with the largest key comes first.
        generator: draws which pair gets which k.
    """
    pairs, words = keys.shape
    # stratified: one level in each of `pairs` equal parts of [0, 1)
    stratum = torch.randperm(pairs, generator=generator)
    offset = torch.rand(pairs, generator=generator, dtype=torch.float64)
    level = (stratum + offset) / pairs
    count = 1 + (level * (words - 1)).floor().clamp(max=words - 2)
    rank = keys.argsort(dim=-1, descending=True).argsort(dim=-1)
    return rank < count.unsqueeze(-1).to(rank.device)
