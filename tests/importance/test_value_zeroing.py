"""Value zeroing with hooks on a BERT's values, by a plain loop."""

import numpy as np
import torch
from scipy.spatial.distance import cosine

from tests.importance.layered import inputs_of, words_of


def test_value_zeroing_with_hooks_on_the_values(bert, librarys_bert):
    scores = bert.scores("value_zeroing")
    row, ids = 1, inputs_of(bert.batch, 1)
    with torch.no_grad():
        own = librarys_bert(ids, output_hidden_states=True).hidden_states
    followed = np.eye(ids.shape[1])
    for number, layer in enumerate(librarys_bert.bert.encoder.layer):
        apart = np.zeros((ids.shape[1], ids.shape[1]))
        for part in range(ids.shape[1]):

            def silence(module, given, output, part=part):
                changed = output.clone()
                changed[:, part] = 0
                return changed

            hook = layer.attention.self.value.register_forward_hook(silence)
            with torch.no_grad():
                other = librarys_bert(ids, output_hidden_states=True).hidden_states[number + 1][0]
            hook.remove()
            apart[:, part] = [cosine(a, b) for a, b in zip(own[number + 1][0].double(), other.double(), strict=True)]
        followed = (apart / apart.sum(1, keepdims=True)) @ followed
    np.testing.assert_allclose(scores[row].numpy(), words_of(followed[0], bert.batch, row), atol=1e-4)
