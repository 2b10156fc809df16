"""Sets of words kept, all others replaced by filler: the operator of the test on words.

Words keep their places, and a text its length in words. The filler of each place is drawn by itself
from all words of the texts, so that it knows of no place, no label and no decision. No mask, no
gap, and no text closes up.

What each word does is estimated twice, from sets that have nothing in common but the text: the
product of two independent estimates has no bias, while the square of one is positive even for a
word that does nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import pad_sequence

from attnprobe.core.batch import Batch, Outputs
from attnprobe.data.batching import short_enough
from attnprobe.models.base import Model

POSITIONS_AT_ONCE = 8192
"""Positions of changed texts that go through a model at a time."""
NOT_REPLACED = -1
"""Number of a stretch of pieces that is no word of the text: a special token, or of the other text
of a pair."""
RIDGE = 1.0
"""Penalty of the least squares, in pairs of changed texts."""
WHOLE_EFFECT = 1 / 3
"""A word with this share of the strongest word's effect counts as a whole word that decides."""
NO_STRENGTH = 1e-6
"""Strength up to which no word of a text does anything."""
CONTENT_OF_WORDS = ("ids", "rationale", "annotators")
"""Columns of a batch that come with a word, besides `extra`."""


@dataclass(frozen=True)
class Filler:
    """All words of some texts, any of which may stand in the place of a word.

    Attributes:
        columns: what is known of each word, by the column of the batch; `[words]`.
        segment: of a pair of texts, the one that the word is of; else 0.
        pieces: each word's pieces, for a model that reads pieces; else none.
    """

    columns: dict[str, Tensor]
    segment: Int[np.ndarray, " words"]
    pieces: Sequence[Sequence[int]] = ()

    @classmethod
    def of(cls, texts: Iterable[Batch], device: torch.device | str = "cpu") -> "Filler":
        """The words of some texts.

        A tokenizer may cut the first word of a text into other pieces than the same word elsewhere
        (byte-level ones know its space), so that of texts in pieces the first words are left out.

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
                (of_word,) = pieces_by_word(text)
                pieces += [of_word.get(place, []) for place in places.tolist()]
        joined = {name: torch.cat(parts).to(device) for name, parts in columns.items()}
        return cls(joined, np.concatenate(segments), pieces)

    def draw(
        self,
        segment: Int[np.ndarray, " words"],
        samples: int,
        generator: torch.Generator,
    ) -> Int[Tensor, "samples words"]:
        """Words for these places, each drawn by itself, as their numbers in this filler.

        Args:
            segment: of a pair of texts, the one that each place is of; it gets words of that one.
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
    """Which text of a pair each place of a batch of one text is of; 0 where there is no pair."""
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
    """

    run: Callable[[Batch], Outputs]
    text: Batch
    filler: Filler
    longest: int | None = None

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

        What is known of a word comes with it.

        Args:
            kept: the words that stay.
            drawn: what stands in the place of the others, as numbers of the filler.
        """
        places = self.places
        unmarked = replace(
            self.text, teacher_attention=None, teacher_probability=None, counterfactual=None
        )
        variants = unmarked.rows(torch.zeros_like(drawn[:, 0]))
        mixed = {}
        for name, column in _columns_of_words(variants).items():
            if name in self.filler.columns:
                changed = column.clone()
                lent = self.filler.columns[name][drawn].to(column.dtype)
                changed[:, places] = torch.where(kept, column[:, places], lent)
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
        """Replace whole words with all their pieces; special tokens and a pair's other text stay.

        Of a variant that is longer than the model reads the last words lose pieces; the special
        tokens at its end stay.
        """
        words, closing = _without_closing(stretches_of(self.text))
        closing_lines = [line for stretch in closing for line in stretch.lines()]
        room = None if self.longest is None else max(0, self.longest - len(closing_lines))
        rows = []
        for is_kept, lent in zip(kept.tolist(), drawn.tolist(), strict=True):
            lines = []
            for stretch in words:
                if stretch.number == NOT_REPLACED or is_kept[stretch.number]:
                    lines += stretch.lines()
                else:
                    lines += stretch.lines(self.filler.pieces[lent[stretch.number]])
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
        """What the model says of each variant; float64."""
        variants = self.swapped(kept, drawn)
        parts = []
        order = []
        for rows in _parts_of(variants):
            part = variants.rows(rows.to(drawn.device))
            with torch.no_grad():
                parts.append(self.run(part.cut(variants.ids.shape[1])).logits.double())
            order.append(rows)
        logits = torch.cat(parts)
        return logits[torch.cat(order).argsort().to(logits.device)]

    def pairs(self, pairs: int, sharpness: float, generator: torch.Generator) -> "KeptWords":
        """Keep random sets of words, and in a second text all words but those.

        Both texts of a pair have the same filler. The sets have from one to all but one words,
        evenly.

        Args:
            pairs: how many.
            sharpness: what the logits are multiplied by before they become probabilities.
            generator: of the text.
        """
        words = len(self.places)
        order = torch.rand(pairs, words, generator=generator, dtype=torch.float64)
        kept = prefixes(order, generator).to(self.text.ids.device)
        drawn = self.draw_filler(pairs, generator)
        logits = self.logits(torch.cat([kept, ~kept]), torch.cat([drawn, drawn]))
        outcome = (sharpness * logits).softmax(-1).cpu()
        with_set, without_set = outcome.chunk(2)
        return KeptWords(kept.cpu(), with_set, without_set)


def _parts_of(variants: Batch) -> Sequence[Int[Tensor, " rows"]]:
    """The variants that go through a model at a time, by their rows."""
    if variants.pieces is None:  # all are as long as the text
        parts = -(-variants.ids.numel() // POSITIONS_AT_ONCE)
        return torch.arange(len(variants)).tensor_split(min(parts, len(variants)))

    # fewer of them: they differ in how many pieces they have, and the rest is padding
    lengths = variants.lengths.cpu().numpy() - 2
    return [torch.tensor(rows) for rows in short_enough(lengths, most=POSITIONS_AT_ONCE // 4)]


@dataclass(frozen=True)
class KeptWords:
    """Random sets of a text's words, and what the model says with them and without them.

    Attributes:
        kept: the words of each set.
        with_set: probabilities of all classes with the set kept, all other words being filler.
        without_set: the same with the set filler, all other words being kept.
    """

    kept: Bool[Tensor, "pairs words"]
    with_set: Float[Tensor, "pairs classes"]
    without_set: Float[Tensor, "pairs classes"]

    def effects(self) -> "WordEffects":
        """What each word does in texts of which any part is filler."""
        sides = 2 * self.kept.double() - 1
        return _twice(sides, self.with_set - self.without_set)

    def effects_in_own_context(self) -> "WordEffects":
        """What each word does in texts that are mostly as they were.

        Of each pair it is the text that keeps more of its words.
        """
        keeps_more = 2 * self.kept.sum(-1, keepdim=True) >= self.kept.shape[1]
        kept = torch.where(keeps_more, self.kept, ~self.kept)
        outcome = torch.where(keeps_more, self.with_set, self.without_set)
        presence = kept.double()  # 0 or 1: what the word does is one minus the other
        return _twice(presence - presence.mean(0), outcome - outcome.mean(0))


def _twice(
    sides: Float[Tensor, "pairs words"], change: Float[Tensor, "pairs classes"]
) -> "WordEffects":
    """The effects by every other pair, and by those in between."""
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

    @cached_property
    def squared(self) -> Float[Tensor, "words"]:
        """Half of each word's squared effect, over all classes; 0 to 1 but for noise.

        It is half of the product of the two estimates: without bias, and for a word that does
        nothing 0 on average. Of two classes it is the squared change of a probability.
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
        """How far both estimates of the strongest word agree: −1 to 1, and 1 where they are one."""
        norm = float(self._norms[self.strongest])
        return 4 * self.strength / norm if norm > 0 else 0.0

    @cached_property
    def shares(self) -> Float[Tensor, "words"]:
        """How far each word is one that decides, −1 to 1; 0 on average where it does nothing.

        A word with a third of the strongest effect (`WHOLE_EFFECT`) counts as a whole one, and
        below that in proportion to the square. The sign is noise alone: a word that speaks against
        the prediction moves it as one that speaks for it.
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

    Least squares of the changes on ±1 (the word is in the set, or not), with a small ridge. Where a
    model adds up what its words do, this is what each word does. With more words than pairs the
    same solution comes from the smaller system of the pairs.

    Args:
        sides: 1 where the set has the word, −1 where it has not; or, of single texts, whether a
            word is kept, less its mean.
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
        """Each piece with its word and its kind; `pieces` are others in the place of its own."""
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


def _without_closing(stretches: list[Stretch]) -> tuple[list[Stretch], list[Stretch]]:
    """The stretches up to the last word that may be replaced, and those after it."""
    after = 0
    for place, stretch in enumerate(stretches):
        if stretch.number != NOT_REPLACED:
            after = place + 1
    return stretches[:after], stretches[after:]


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
        of_word: dict[int, list[int]] = {}
        for piece, word in zip(pieces, words, strict=True):
            of_word.setdefault(word, []).append(piece)
        result.append(of_word)
    return result


class _RepeatedWords(nn.Module):
    """A model whose pass looks up each distinct word once."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> Outputs:
        return self.model.outputs_of_repeated_words(batch)


def in_float32(model: Model) -> Callable[[Batch], Outputs]:
    """The model as a function that computes in float32, without gradients.

    It takes half the time, and what a set of words does is still known to 1e-6.
    """
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    state = {}
    for name, tensor in tensors.items():
        is_double = tensor.dtype is torch.float64
        state[f"model.{name}"] = tensor.detach().float() if is_double else tensor.detach()
    repeated_words = _RepeatedWords(model)

    def outputs(batch: Batch) -> Outputs:
        with torch.no_grad():
            return functional_call(repeated_words, state, (batch,))

    return outputs


def prefixes(
    keys: Float[Tensor, "pairs words"], generator: torch.Generator
) -> Bool[Tensor, "pairs words"]:
    """The first k words of each order, as a set: k from 1 to all but one, evenly over the pairs.

    Args:
        keys: the orders; the word with the largest key comes first.
        generator: draws which pair gets which k.
    """
    pairs, words = keys.shape
    stratum = torch.randperm(pairs, generator=generator)
    offset = torch.rand(pairs, generator=generator, dtype=torch.float64)
    level = (stratum + offset) / pairs  # one number in each of `pairs` equal parts of [0, 1)
    count = 1 + (level * (words - 1)).floor().clamp(max=words - 2)
    rank = keys.argsort(dim=-1, descending=True).argsort(dim=-1)
    return rank < count.unsqueeze(-1).to(rank.device)
