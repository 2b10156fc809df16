"""Words of a text replaced by those of another one: the operator of the swap test.

Words keep their places, and a text its length in words. What comes in is near the data: real words,
each as common at its place as it is there. No mask, no gap, and no text closes up.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.func import functional_call
from torch.nn.utils.rnn import pad_sequence

from attnprobe.core.batch import Batch, Outputs, Task, probabilities
from attnprobe.data.batching import TextSplit, short_enough
from attnprobe.models.base import Model

FEWEST_DONORS = 20
"""Donors that a text draws from: all of its own length, and of the nearest lengths until there are
so many."""
POSITIONS_AT_ONCE = 8192
"""Positions of changed texts that go through a model at a time."""
NOT_REPLACED = -1
"""Number of a stretch of pieces that is no word of the text: a special token, or of the other text
of a pair."""


def donors_of(
    row: int, lengths: Int[np.ndarray, " rows"], decisions: Int[np.ndarray, " rows"]
) -> Int[np.ndarray, " donors"]:
    """Rows of the texts that lend words to the one at `row`.

    They are the texts of its length, and of the nearest lengths until there are `FEWEST_DONORS`. A
    text borrows only from texts that the model decides differently: from the others it would get
    the same evidence back. None where all texts are decided alike.
    """
    distance = np.abs(lengths - lengths[row])
    is_rival = decisions != decisions[row]
    rival_distances = np.sort(distance[is_rival])
    if len(rival_distances) == 0:
        return np.zeros(0, np.int64)
    farthest = rival_distances[min(FEWEST_DONORS, len(rival_distances)) - 1]
    return np.flatnonzero(is_rival & (distance <= farthest))


def decisions_of(
    model: Callable[[Batch], Outputs], split: TextSplit, device: torch.device
) -> Int[np.ndarray, " rows"]:
    """The class that the model predicts for each text of a split."""
    decisions = np.zeros(len(split), np.int64)
    for rows in short_enough(split.words.lengths, most=POSITIONS_AT_ONCE):
        with torch.no_grad():
            logits = model(split[rows].to(device)).logits
        decisions[rows] = logits.argmax(-1).cpu().numpy()
    return decisions


@dataclass(frozen=True)
class Swapper:
    """One text and the texts that lend it words, its donors.

    Args:
        run: a model that attends to words, or `in_float32` of it.
        task: what the model's logits mean.
        text: a batch of the one text.
        donors: a batch of its donors.
        decision: the class whose probability is measured.
        longest: pieces that the model reads at most; None: it reads no pieces, or any number.
    """

    run: Callable[[Batch], Outputs]
    task: Task
    text: Batch
    donors: Batch
    decision: int = 0
    longest: int | None = None

    def swapped(
        self, replaced: Bool[Tensor, "variants words"], donor: Int[Tensor, "variants"]
    ) -> Batch:
        """Variants of the text, in each of which some words are replaced by those of a donor.

        What is known of a word comes with it.

        Args:
            replaced: the words that come from the donor.
            donor: the row of the variant's donor in `donors`.
        """
        places = self.text.content[0].nonzero().squeeze(-1)
        source = self._source_places()[donor]  # [variants, words]
        unmarked = replace(
            self.text, teacher_attention=None, teacher_probability=None, counterfactual=None
        )
        variants = unmarked.rows(torch.zeros_like(donor))
        for name in ("ids", "rationale"):
            column = getattr(variants, name)
            donor_column = getattr(self.donors, name)
            if column is not None and donor_column is not None:
                lent = donor_column[donor].gather(1, source)
                mixed = column.clone()
                mixed[:, places] = torch.where(replaced, lent, column[:, places])
                variants = replace(variants, **{name: mixed})
        if variants.pieces is None:
            return variants
        return self._with_pieces(variants, replaced, donor, source)

    def _source_places(self) -> Int[Tensor, "donors words"]:
        """Where in each donor the replacement of each word stands.

        In the first half of a text it is the word at the same place from the donor's start, in the
        second half from its end. Of a pair of texts, the words of each come from the donor's text
        of the same place.
        """
        source = []
        for text, donors in zip(_texts_of(self.text), _texts_of(self.donors), strict=True):
            words = int(text.sum())
            donor_words = donors.sum(-1, keepdim=True)
            from_start = torch.arange(words, device=text.device)
            from_end = donor_words - words + from_start
            number = torch.where(from_start < words / 2, from_start, from_end)
            number = number.clamp(min=0).minimum(donor_words - 1)
            # a text's words stand together; a donor that was cut before its second text has none
            # of it to lend
            first = donors.long().argmax(-1, keepdim=True)
            source.append((first + number).clamp(min=1))
        return torch.cat(source, -1)

    def _with_pieces(
        self,
        variants: Batch,
        replaced: Bool[Tensor, "variants words"],
        donor: Int[Tensor, "variants"],
        source: Int[Tensor, "variants words"],
    ) -> Batch:
        """Replace whole words with all their pieces; special tokens and a pair's other text stay.

        Of a variant that is longer than the model reads the last words lose pieces; the special
        tokens at its end stay.
        """
        words, closing = _without_closing(stretches_of(self.text))
        closing_lines = [line for stretch in closing for line in stretch.lines()]
        room = None if self.longest is None else max(0, self.longest - len(closing_lines))
        lent_pieces = pieces_by_word(self.donors)
        rows = []
        for is_replaced, lender, source_words in zip(
            replaced.tolist(), donor.tolist(), source.tolist(), strict=True
        ):
            lines = []
            for stretch in words:
                if stretch.number != NOT_REPLACED and is_replaced[stretch.number]:
                    pieces = lent_pieces[lender].get(source_words[stretch.number], [])
                    lines += stretch.lines(pieces)
                else:
                    lines += stretch.lines()
            row = torch.tensor(lines[:room] + closing_lines, dtype=torch.long)
            rows.append(row.view(-1, 3))
        return replace(
            variants,
            pieces=_padded_column(rows, 0, padding=0).to(donor.device),
            piece_word=_padded_column(rows, 1, padding=-2).to(donor.device),
            piece_kind=_padded_column(rows, 2, padding=0).to(donor.device),
        )

    def probability(
        self, replaced: Bool[Tensor, "variants words"], donor: Int[Tensor, "variants"]
    ) -> Float[Tensor, "variants"]:
        """Probability of the decision in each variant, 0 to 1; float64."""
        variants = self.swapped(replaced, donor)
        result = torch.zeros(len(donor), dtype=torch.float64, device=donor.device)
        # fewer where there are pieces: variants differ in their number, and the rest is padding
        most = POSITIONS_AT_ONCE if variants.pieces is None else POSITIONS_AT_ONCE // 4
        for rows in short_enough(variants.lengths.cpu().numpy() - 2, most=most):
            part = variants.rows(torch.tensor(rows, device=donor.device))
            with torch.no_grad():
                logits = self.run(part.cut(variants.ids.shape[1])).logits
            result[rows] = probabilities(logits.double(), self.task)[:, self.decision]
        return result

    def differences(
        self, chosen: Bool[Tensor, "pairs words"], donor: Int[Tensor, "pairs"]
    ) -> Float[Tensor, "pairs"]:
        """What each set of words keeps of the prediction, beyond what all other words keep.

        Args:
            chosen: the sets.
            donor: who lends the words of both texts of the pair.

        Returns:
            Probability with the chosen words (and the donor's others), less the probability with
            the others (and the donor's words in the place of the chosen ones); −1 to 1.
        """
        replaced = torch.cat([~chosen, chosen])
        with_chosen, with_others = self.probability(replaced, torch.cat([donor, donor])).chunk(2)
        return with_chosen - with_others


def _texts_of(batch: Batch) -> list[Bool[Tensor, "batch seq"]]:
    """The words of the one text, or those of the first and of the second text of a pair."""
    if batch.segment is None:
        return [batch.content]
    return [batch.content & (batch.segment == number) for number in (0, 1)]


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


def in_float32(model: Model) -> Callable[[Batch], Outputs]:
    """The model as a function that computes in float32.

    It takes half the time, and what a set of words does is still known to 1e-6.
    """
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    state = {}
    for name, tensor in tensors.items():
        is_double = tensor.dtype is torch.float64
        state[name] = tensor.detach().float() if is_double else tensor.detach()
    return lambda batch: functional_call(model, state, (batch,))


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


def order_by_weight(
    weights: Float[Tensor, "words"], pairs: int, generator: torch.Generator
) -> Float[Tensor, "pairs words"]:
    """Random orders of the words, each next one drawn in proportion to its weight.

    Even weights give every order the same probability.

    Returns:
        Keys, the word with the largest one first: the logarithm of the weight plus a Gumbel number
        (Yellott 1977: their order has the distribution of draws without replacement).
    """
    uniform = torch.rand(pairs, len(weights), generator=generator, dtype=torch.float64)
    gumbel = -(-uniform.clamp(1e-300).log()).log()
    return weights.double().clamp(min=1e-12).log() + gumbel.to(weights.device)


def effects_of_words(
    chosen: Bool[Tensor, "pairs words"], difference: Float[Tensor, "pairs"], ridge: float = 0.1
) -> Float[Tensor, "words"]:
    """Each word's part in what random sets keep of the prediction.

    Least squares of the differences on ±1 (the word is among the chosen ones, or the others), with
    a small ridge. Over uniform k it is a semivalue between Banzhaf's and Shapley's.
    """
    sides = 2 * chosen.double() - 1
    identity = torch.eye(sides.shape[1], dtype=torch.float64, device=sides.device)
    gram = sides.T @ sides + ridge * identity
    return torch.linalg.solve(gram, sides.T @ difference.double())


def rearranged(
    weights: Float[Tensor, "words"], scores: Float[Tensor, "words"]
) -> Float[Tensor, "words"]:
    """The same weights, the largest where the score is largest, and so on down."""
    result = torch.empty_like(weights)
    result[scores.argsort(descending=True)] = weights.sort(descending=True).values
    return result
