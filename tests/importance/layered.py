"""What tests of all layers of a tiny BERT share."""

import numpy as np

TEXTS = ["the film was fine", "unable people"]


def words_of(parts, batch, row):
    """The sum over each word's pieces, at its position."""
    found = np.zeros(batch.ids.shape[1])
    for piece, word in enumerate(batch.piece_word[row].tolist()):
        if word >= 0:
            found[word] += parts[piece]
    return found


def inputs_of(batch, row):
    count = int((batch.piece_word[row] > -2).sum())
    return batch.pieces[row : row + 1, :count]
