"""ALTI by plain loops over a BERT's modules, and by hand on three vectors."""

import numpy as np
import torch

from attnprobe.importance.layers import Alti
from tests.importance.layered import TEXTS, followed_by_hand, inputs_of, words_of


def nearness(vector, state):
    return max(0.0, float(state.abs().sum() - (state - vector).abs().sum()))


def test_equals_plain_loops_over_the_librarys_modules(bert, librarys_bert):
    scores = bert.scores("alti")
    for row in range(len(TEXTS)):
        expected = followed_by_hand(
            librarys_bert, inputs_of(bert.batch, row), nearness, own=True, normalised=True, half=False
        )
        np.testing.assert_allclose(scores[row].numpy(), words_of(expected, bert.batch, row), atol=1e-5)


def test_a_vector_that_points_away_counts_for_nothing():
    vectors = torch.tensor([[[3.0, 0.0], [1.0, 2.0], [-2.0, 0.0]]])
    found = Alti().strength(vectors, vectors.sum(1))
    assert found.tolist() == [[1.0, 3.0, 0.0]]
