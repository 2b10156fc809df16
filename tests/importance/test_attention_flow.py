"""Greatest flows by networkx, and by hand where there is one layer."""

import networkx
import numpy as np
import pytest
import torch

from attnprobe.importance.layers import greatest_flow
from tests.importance.layered import inputs_of


def flow_of(attentions, into):
    """From the first state of the top layer to all of `into`, in floating point."""
    graph = networkx.DiGraph()
    for number, layer in enumerate(attentions):
        width = 0.5 * layer[0].double().numpy().mean(0) + 0.5 * np.eye(layer.shape[-1])
        for upper, lower in np.ndindex(*width.shape):
            graph.add_edge((number + 1, upper), (number, lower), capacity=width[upper, lower])
    graph.add_edge("from", (len(attentions), 0), capacity=1.0)
    for part in into:
        graph.add_edge((0, part), "to", capacity=1.0)
    return networkx.maximum_flow_value(graph, "from", "to")


def test_flow_of_the_librarys_own_attentions(bert, librarys_bert):
    scores, row = bert.scores("attention_flow"), 1
    with torch.no_grad():
        attentions = librarys_bert(inputs_of(bert.batch, row), output_attentions=True).attentions
    words = bert.batch.piece_word[row].tolist()
    for place in bert.batch.content[row].nonzero()[:, 0].tolist():
        into = [piece for piece, word in enumerate(words) if word == place]
        assert float(scores[row, place]) == pytest.approx(flow_of(attentions, into), abs=1e-5)
    assert not scores[row][~bert.batch.content[row]].any()


def test_of_one_layer_it_is_half_of_the_attention():
    attention = np.array([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    width, read = ((attention + np.eye(3)) / 2)[None], np.array([1.0, 0.0, 0.0])
    assert [greatest_flow(width, read, [part]) for part in range(3)] == pytest.approx([0.6, 0.25, 0.15], abs=1e-7)
    assert greatest_flow(width, read, [1, 2]) == pytest.approx(0.4, abs=1e-7)


def test_a_narrow_lower_layer_holds_it_back():
    wide, narrow = np.array([[0.5, 0.5], [0.5, 0.5]]), np.array([[1.0, 0.1], [1.0, 0.1]])
    assert greatest_flow(np.stack([narrow, wide]), np.array([1.0, 0.0]), [1]) == pytest.approx(0.2, abs=1e-7)
