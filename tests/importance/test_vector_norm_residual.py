"""The lengths of the vectors that a BERT's layers add up, by plain loops over the library's modules."""

import numpy as np

from tests.importance.layered import TEXTS, followed_by_hand, inputs_of, length, words_of


def test_equals_plain_loops_over_the_librarys_modules(bert, librarys_bert):
    scores = bert.scores("vector_norm_residual")
    for row in range(len(TEXTS)):
        expected = followed_by_hand(
            librarys_bert, inputs_of(bert.batch, row), length, own=True, normalised=False, half=False
        )
        np.testing.assert_allclose(scores[row].numpy(), words_of(expected, bert.batch, row), atol=1e-5)
