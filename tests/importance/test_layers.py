import math

import networkx
import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.spatial.distance import cosine

from attnprobe.core.errors import UserError
from tests.importance.layered import TEXTS, followed_by_hand, inputs_of, length, words_of
from tests.importance.subjects import LENGTHS, subject_of


def mean_attentions(network, ids):
    """Of each layer the mean over the heads, half of it beside half of the state itself."""
    with torch.no_grad():
        attentions = network(ids, output_attentions=True).attentions
    for [heads] in attentions:
        mean = heads.double().numpy().mean(0)
        yield 0.5 * mean + 0.5 * np.eye(len(mean))


def test_rollout_of_the_librarys_own_attentions(bert, librarys_bert):
    scores = bert.scores("rollout")
    for row in range(len(TEXTS)):
        ids = inputs_of(bert.batch, row)
        followed = np.eye(ids.shape[1])
        for shares in mean_attentions(librarys_bert, ids):
            followed = shares @ followed
        expected = words_of(followed[0], bert.batch, row)
        assert_allclose(scores[row], expected, atol=1e-6)


@pytest.mark.parametrize(
    "name", ["rollout", "attention_flow", "value_zeroing", "vector_norm", "alti", "decompx"]
)
def test_a_model_without_layers_is_refused_before_training(name):
    subject = subject_of()
    message = f"importance {name} follows attention through layers .* model=transformer"
    with pytest.raises(UserError, match=message):
        subject.importance(name).refuse(subject.classifier)
    assert not subject.importance(name).is_defined(subject)


def flow_of(layers, into):
    """From the first state of the top layer to all of `into`, in floating point.

    Args:
        layers: how much goes from each state after a layer to each before it.
        into: pieces.
    """
    graph = networkx.DiGraph()
    for number, width in enumerate(layers):
        for (upper, lower), capacity in np.ndenumerate(width):
            graph.add_edge((number + 1, upper), (number, lower), capacity=capacity)
    graph.add_edge("from", (len(layers), 0), capacity=1.0)
    for part in into:
        graph.add_edge((0, part), "to", capacity=1.0)
    return networkx.maximum_flow_value(graph, "from", "to")


def test_flow_of_the_librarys_own_attentions(bert, librarys_bert):
    scores = bert.scores("attention_flow")
    row = 1
    layers = [*mean_attentions(librarys_bert, inputs_of(bert.batch, row))]
    words = bert.batch.piece_word[row]
    content = bert.batch.content[row]
    for place in content.nonzero()[:, 0]:
        pieces = (words == place).nonzero()[:, 0].tolist()
        flow = flow_of(layers, pieces)
        assert float(scores[row, place]) == pytest.approx(flow, abs=1e-5)
    assert not scores[row, ~content].any()


def states_without_value(network, layer, ids, piece):
    """All states of the network where this layer's value of one piece is 0."""

    def silence(module, inputs, output):
        changed = output.clone()
        changed[:, piece] = 0
        return changed

    hook = layer.attention.self.value.register_forward_hook(silence)
    with torch.no_grad():
        states = network(ids, output_hidden_states=True).hidden_states
    hook.remove()
    return states


def test_value_zeroing_with_hooks_on_the_values(bert, librarys_bert):
    scores = bert.scores("value_zeroing")
    row = 1
    ids = inputs_of(bert.batch, row)
    pieces = ids.shape[1]
    with torch.no_grad():
        states = librarys_bert(ids, output_hidden_states=True).hidden_states
    followed = np.eye(pieces)
    for number, layer in enumerate(librarys_bert.bert.encoder.layer):
        after = states[number + 1][0].double()
        distances = np.zeros((pieces, pieces))
        for silenced in range(pieces):
            changed_states = states_without_value(librarys_bert, layer, ids, silenced)
            changed_after = changed_states[number + 1][0].double()
            for piece in range(pieces):
                distances[piece, silenced] = cosine(after[piece], changed_after[piece])
        shares = distances / distances.sum(1, keepdims=True)
        followed = shares @ followed
    expected = words_of(followed[0], bert.batch, row)
    assert_allclose(scores[row], expected, atol=1e-4)


def nearness(vector, state):
    """By how much less is left of the state without the vector (L1); 0 where it is more."""
    whole = float(state.abs().sum())
    rest = float((state - vector).abs().sum())
    return max(0.0, whole - rest)


def test_value_norm_equals_a_plain_loop():
    subject = subject_of(question=True)
    outputs = subject.outputs
    scores = subject.scores("value_norm")
    for row, words in enumerate(LENGTHS):
        for t in range(1, words + 1):
            norm = math.hypot(*outputs.hidden[row, t].tolist())
            weight = outputs.attention[row, t].item()
            assert scores[row, t].item() == pytest.approx(weight * norm)


@pytest.mark.parametrize(
    ("name", "strength", "settings"),
    [
        ("alti", nearness, {"with_input": True, "normalised": True}),
        ("vector_norm", length, {"with_input": False, "normalised": False}),
        ("vector_norm_normalised", length, {"with_input": True, "normalised": True}),
        ("vector_norm_residual", length, {"with_input": True, "normalised": False}),
    ],
)
def test_equals_plain_loops_over_the_librarys_modules(
    bert, librarys_bert, name, strength, settings
):
    scores = bert.scores(name)
    for row in range(len(TEXTS)):
        ids = inputs_of(bert.batch, row)
        followed = followed_by_hand(librarys_bert, ids, strength, **settings)
        expected = words_of(followed, bert.batch, row)
        assert_allclose(scores[row], expected, atol=1e-5)
