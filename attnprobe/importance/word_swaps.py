"""Words of a text replaced by those of another one: the operator of the swap test.

Words keep their places, and a text its length in words. What comes in is near the data: real words,
each as common at its place as it is there. No mask, no gap, no text closes up."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.func import functional_call
from torch.nn.utils.rnn import pad_sequence

from attnprobe.core.batch import Batch, Outputs, Task, probabilities
from attnprobe.data.batching import short_enough
from attnprobe.models.base import Model

FEWEST_DONORS = 20
"""Texts that are drawn from: all of the same length, and of the nearest lengths until there are so
many."""
PIECES = ("pieces", "piece_word", "piece_kind")
AT_ONCE = 8192
"""Positions of changed texts that go through a model at a time."""


def donors_of(
    row: int, lengths: Int[np.ndarray, " rows"], decisions: Int[np.ndarray, " rows"]
) -> Int[np.ndarray, " donors"]:
    """Rows of the texts of a split that lend words to the one at `row`: those of its length, and of
    the nearest lengths until there are `FEWEST_DONORS`. A text borrows of those that the model
    decides differently: of the others it would get the same evidence back. None where all are
    decided alike."""
    apart = np.abs(lengths - lengths[row])
    other = decisions != decisions[row]
    known = np.sort(apart[other])
    if not len(known):
        return np.zeros(0, np.int64)
    return np.flatnonzero(other & (apart <= known[min(FEWEST_DONORS, len(known)) - 1]))


@dataclass(frozen=True)
class Swapper:
    """One text, and the texts that lend it words, each as a batch.

    Args:
        run: a model that attends to words, or `in_single` of it.
        decision: the class whose probability is looked at.
        longest: pieces that the model reads at most; None: it reads none, or any number.
    """

    run: Callable[[Batch], Outputs]
    task: Task
    text: Batch
    donors: Batch
    decision: int = 0
    longest: int | None = None

    def swapped(
        self, taken: Bool[Tensor, "variants words"], donor: Int[Tensor, "variants"]
    ) -> Batch:
        """The text with the words of `taken` replaced by those of a donor: in the first half of the
        text by the word at the same place from the donor's start, in the second from its end. What
        is known of a word comes with it. Of a pair each text is one, and its words come from the
        donor's text of the same place."""
        own = self.text.content[0].nonzero().squeeze(-1)
        # the words of the one text, or of the first and of the second
        segments = [
            [one.content]
            if one.segment is None
            else [one.content & (one.segment == number) for number in (0, 1)]
            for one in (self.text, self.donors)
        ]
        places = []
        for of_text, of_donors in zip(*segments, strict=True):
            count = int(of_text.sum())
            there = of_donors.sum(-1, keepdim=True)
            number = torch.arange(count, device=own.device)
            place = (
                torch.where(number < count / 2, number, there - count + number)
                .clamp(min=0)
                .minimum(there - 1)
            )
            # a text's words stand together; a donor that was cut before its second text lends none
            # of that
            places.append((of_donors.long().argmax(-1, keepdim=True) + place).clamp(min=1))
        source = torch.cat(places, -1)[donor]  # [variants, words]
        alone = replace(
            self.text, teacher_attention=None, teacher_probability=None, counterfactual=None
        )
        many = alone.rows(torch.zeros_like(donor))
        columns: dict[str, Any] = {"ids": many.ids, "rationale": many.rationale}
        for name, column in columns.items():
            other = getattr(self.donors, name)
            if column is not None and other is not None:
                changed = column.clone()
                changed[:, own] = torch.where(taken, other[donor].gather(1, source), column[:, own])
                columns[name] = changed
        result = replace(many, **columns)
        return result if many.pieces is None else self._with_pieces(result, taken, donor, source)

    def _with_pieces(
        self,
        result: Batch,
        taken: Bool[Tensor, "variants words"],
        donor: Int[Tensor, "variants"],
        source: Tensor,
    ) -> Batch:
        """Whole words with all their pieces; special tokens, and the other text of a pair, stay."""
        pieces, piece_word, piece_kind = (getattr(self.text, name)[0].tolist() for name in PIECES)
        number_of = {
            place: number
            for number, place in enumerate(self.text.content[0].nonzero()[:, 0].tolist())
        }
        # the text in segments, each a word with its pieces, or another piece; −1 is the number of
        # what is never replaced
        own: list[tuple[int, int, int, list[int]]] = []
        for piece, word, kind in zip(pieces, piece_word, piece_kind, strict=True):
            if own and word >= 0 and own[-1][0] == word:
                own[-1][-1].append(piece)
            elif word != -2:
                own.append((word, number_of.get(word, -1), kind, [piece]))
        lent: list[dict[int, list[int]]] = [{} for _ in range(len(self.donors))]
        row_word = (getattr(self.donors, name).tolist() for name in PIECES[:2])
        for words, donor_pieces, of_words in zip(lent, *row_word, strict=True):
            for piece, word in zip(donor_pieces, of_words, strict=True):
                words.setdefault(word, []).append(piece)
        replaceable = [place for place, (_, number, *_) in enumerate(own) if number >= 0]
        end = replaceable[-1] + 1 if replaceable else 0
        # longer than the model reads: the last words lose pieces, the special tokens at the end
        # stay
        room = (
            None
            if self.longest is None
            else max(0, self.longest - sum(len(one[-1]) for one in own[end:]))
        )
        rows = []
        for is_taken, of_donor, sources in zip(
            taken.tolist(), donor.tolist(), source.tolist(), strict=True
        ):
            row: list[tuple[int, int, int]] = []
            for place, (word, number, kind, kept) in enumerate(own):
                new = (
                    lent[of_donor].get(sources[number], [])
                    if number >= 0 and is_taken[number]
                    else kept
                )
                row += [(piece, word, kind) for piece in new]
                if place < end:
                    row = row[:room]
            rows.append(torch.tensor(row, dtype=torch.long).view(-1, 3))
        columns: dict[str, Any] = {
            name: pad_sequence([row[:, at] for row in rows], True, fill).to(donor.device)
            for at, (name, fill) in enumerate(zip(PIECES, (0, -2, 0), strict=True))
        }
        return replace(result, **columns)

    def probability(
        self, taken: Bool[Tensor, "variants words"], donor: Int[Tensor, "variants"]
    ) -> Float[Tensor, "variants"]:
        """Of the class, for each changed text; float64, 0 to 1."""
        batch = self.swapped(taken, donor)
        found = torch.zeros(len(donor), dtype=torch.float64, device=donor.device)
        with torch.no_grad():
            # of pieces fewer at a time: the words that come in have more or fewer, and the rest
            # would be padding
            most = AT_ONCE if batch.pieces is None else AT_ONCE // 4
            for rows in short_enough(batch.lengths.cpu().numpy() - 2, most=most):
                logits = self.run(
                    batch.rows(torch.tensor(rows, device=donor.device)).cut(batch.ids.shape[1])
                ).logits
                found[rows] = probabilities(logits.double(), self.task)[:, self.decision]
        return found

    def differences(
        self, chosen: Bool[Tensor, "pairs words"], donor: Int[Tensor, "pairs"]
    ) -> Float[Tensor, "pairs"]:
        """How much more of the class's probability stays with the chosen words (and the donor's
        others) than with the others (and the donor's words in the place of the chosen ones); −1 to
        1."""
        kept, gone = self.probability(
            torch.cat([~chosen, chosen]), torch.cat([donor, donor])
        ).chunk(2)
        return kept - gone


def in_single(model: Model) -> Callable[[Batch], Outputs]:
    """The model as a function that computes in float32: half the time, and what a set of words does
    is known to 1e-6."""
    state = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    single = {
        name: one.detach().float() if one.dtype is torch.float64 else one.detach()
        for name, one in state.items()
    }
    return lambda batch: functional_call(model, single, (batch,))


def prefixes(
    keys: Float[Tensor, "pairs words"], generator: torch.Generator
) -> Bool[Tensor, "pairs words"]:
    """Of each order, by falling key, the first k words: k from 1 to all but one, evenly spread over
    the pairs."""
    pairs, words = keys.shape
    order = torch.randperm(pairs, generator=generator)
    even = (order + torch.rand(pairs, generator=generator, dtype=torch.float64)) / pairs
    count = 1 + (even * (words - 1)).floor().clamp(max=words - 2)
    rank = keys.argsort(dim=-1, descending=True).argsort(dim=-1)
    return rank < count.unsqueeze(-1).to(rank.device)


def drawn_by(
    weights: Float[Tensor, "words"], pairs: int, generator: torch.Generator
) -> Float[Tensor, "pairs words"]:
    """Keys of orders in which words are drawn one after the other, each with a probability in
    proportion to its weight: the logarithm and a Gumbel number. Even weights give every order the
    same probability."""
    noise = torch.rand(pairs, len(weights), generator=generator, dtype=torch.float64).clamp(1e-300)
    return weights.double().clamp(min=1e-12).log() - (-noise.log()).log().to(weights.device)


def effects(
    chosen: Bool[Tensor, "pairs words"], difference: Float[Tensor, "pairs"], ridge: float = 0.1
) -> Float[Tensor, "words"]:
    """Each word's part in the differences: least squares on ±1 (with the chosen, with the others),
    with a small ridge. Over uniform k it is a semivalue between Banzhaf's and Shapley's."""
    sides = 2 * chosen.double() - 1
    gram = sides.T @ sides + ridge * torch.eye(
        sides.shape[1], dtype=torch.float64, device=sides.device
    )
    return torch.linalg.solve(gram, sides.T @ difference.double())


def rearranged(
    weights: Float[Tensor, "words"], by: Float[Tensor, "words"]
) -> Float[Tensor, "words"]:
    """The same weights, the largest where `by` is largest, and so on down."""
    result = torch.empty_like(weights)
    result[by.argsort(descending=True)] = weights.sort(descending=True).values
    return result
