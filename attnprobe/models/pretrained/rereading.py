"""Read a text again from which words were removed."""

from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from attnprobe.core.batch import Batch
from attnprobe.data.characters import Characters
from attnprobe.data.pieces import PieceReader, Pieces


def reread(batch: Batch, reader: PieceReader) -> Batch:
    """The batch with the pieces of the words that its texts still have.

    The characters of all other words are taken out, and the tokenizer reads what is left. What was
    cut off at the model's longest text stays cut.

    Args:
        batch: texts from which words were removed, with their characters.
        reader: the tokenizer.
    """
    assert batch.characters is not None
    assert batch.span_start is not None
    assert batch.span_end is not None
    is_word = batch.mask & (batch.span_start >= 0)
    texts = []
    for row in range(len(batch)):
        codes = batch.characters[row]
        words = is_word[row]
        characters = Characters(
            codes[codes >= 0].cpu().numpy(),
            batch.span_start[row, words].cpu().numpy(),
            batch.span_end[row, words].cpu().numpy(),
        )
        texts.append(characters.text())

    pieces_of_texts = reader.read(texts)
    places = [words.nonzero().squeeze(-1).cpu().numpy() for words in is_word]
    words_of_texts = [
        _places_of_pieces(pieces, place)
        for pieces, place in zip(pieces_of_texts, places, strict=True)
    ]
    device = batch.ids.device
    return replace(
        batch,
        pieces=_padded([pieces.ids for pieces in pieces_of_texts], 0).to(device),
        piece_word=_padded(words_of_texts, -2).to(device),
        piece_kind=_padded([pieces.kind for pieces in pieces_of_texts], 0).to(device),
    )


def _places_of_pieces(
    pieces: Pieces, places: Int[np.ndarray, " words"]
) -> Int[np.ndarray, " pieces"]:
    """The position in the batch of each piece's word: of several words that share it the first's.

    Args:
        pieces: of a text.
        places: the positions of its words.
    """
    result = pieces.word.copy()  # numbers of units from 1, or `SPECIAL`
    of_word = result > 0
    result[of_word] = places[pieces.first[result[of_word] - 1]]
    return result


def _padded(rows: list[np.ndarray], padding: int) -> Int[Tensor, "batch pieces"]:
    """Rows of different lengths, filled up at their ends."""
    return pad_sequence(
        [torch.from_numpy(row) for row in rows], batch_first=True, padding_value=padding
    )
