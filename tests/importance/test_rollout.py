"""Rollout from the library's own attentions, and value zeroing with hooks on a BERT's values, both by plain loops."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine

from attnprobe.importance.base import Subject
from tests.importance.subjects import subject_of
from tests.models.pretrained.families import batch_of, checkpoint, classifier

TEXTS = ["the film was fine", "unable people"]


@pytest.fixture(scope="module")
def subject():
    model = classifier("bert", layer=-1)
    batch = batch_of(model, TEXTS)
    model.prepare(batch)
    outputs = model(batch)
    return Subject(model, batch, outputs, model.readout(batch, outputs))


@pytest.fixture(scope="module")
def theirs():
    from transformers import AutoModelForSequenceClassification

    return AutoModelForSequenceClassification.from_pretrained(checkpoint("bert"), attn_implementation="eager").eval()


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


def test_rollout_of_the_librarys_own_attentions(subject, theirs):
    scores = subject.scores("rollout")
    for row in range(len(TEXTS)):
        with torch.no_grad():
            attentions = theirs(inputs_of(subject.batch, row), output_attentions=True).attentions
        followed = np.eye(attentions[0].shape[-1])
        for layer in attentions:
            followed = (0.5 * layer[0].double().numpy().mean(0) + 0.5 * np.eye(len(followed))) @ followed
        np.testing.assert_allclose(scores[row].numpy(), words_of(followed[0], subject.batch, row), atol=1e-6)


def test_value_zeroing_with_hooks_on_the_values(subject, theirs):
    scores = subject.scores("value_zeroing")
    row, ids = 1, inputs_of(subject.batch, 1)
    with torch.no_grad():
        own = theirs(ids, output_hidden_states=True).hidden_states
    followed = np.eye(ids.shape[1])
    for number, layer in enumerate(theirs.bert.encoder.layer):
        apart = np.zeros((ids.shape[1], ids.shape[1]))
        for part in range(ids.shape[1]):

            def silence(module, given, output, part=part):
                changed = output.clone()
                changed[:, part] = 0
                return changed

            hook = layer.attention.self.value.register_forward_hook(silence)
            with torch.no_grad():
                other = theirs(ids, output_hidden_states=True).hidden_states[number + 1][0]
            hook.remove()
            apart[:, part] = [cosine(a, b) for a, b in zip(own[number + 1][0].double(), other.double(), strict=True)]
        followed = (apart / apart.sum(1, keepdims=True)) @ followed
    np.testing.assert_allclose(scores[row].numpy(), words_of(followed[0], subject.batch, row), atol=1e-4)


def test_neither_is_defined_without_layers():
    other = subject_of()
    assert not any(other.importance(name).is_defined(other) for name in ("rollout", "value_zeroing"))
