"""Rollout from the library's own attentions, by a plain loop."""

import numpy as np
import pytest
import torch

from attnprobe.core.errors import UserError
from tests.importance.layered import TEXTS, inputs_of, words_of
from tests.importance.subjects import subject_of


def test_rollout_of_the_librarys_own_attentions(bert, librarys_bert):
    scores = bert.scores("rollout")
    for row in range(len(TEXTS)):
        with torch.no_grad():
            attentions = librarys_bert(inputs_of(bert.batch, row), output_attentions=True).attentions
        followed = np.eye(attentions[0].shape[-1])
        for layer in attentions:
            followed = (0.5 * layer[0].double().numpy().mean(0) + 0.5 * np.eye(len(followed))) @ followed
        np.testing.assert_allclose(scores[row].numpy(), words_of(followed[0], bert.batch, row), atol=1e-6)


def test_a_model_without_layers_is_refused_before_training():
    other = subject_of()
    for name in ("rollout", "attention_flow", "value_zeroing", "vector_norm", "alti", "decompx"):
        with pytest.raises(UserError, match=f"importance {name} follows attention through layers .* model=transformer"):
            other.importance(name).refuse(other.classifier)
        assert not other.importance(name).is_defined(other)
