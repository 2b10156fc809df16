"""The parts of a logit: they add up to it, equal those of a BERT that is differentiated with its
weights held, and are known by hand where the layers pass everything on."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from attnprobe.importance.base import Subject
from attnprobe.importance.layers import parts_of_logits, shared
from tests.importance.layered import TEXTS, inputs_of
from tests.models.pretrained.families import prepared
from tests.toys import toy_batch, toy_classifier, toy_readout

# those whose code is much like another's are looked at with the slow tests
KIN = {
    "electra",
    "xlm-roberta",
    "modernbert-mean",
    "qwen2",
    "qwen3",
    "gemma",
    "mpnet",
    "deberta-v2",
}
OF_WEIGHTS = {"rollout", "attention_flow"}
OF_VECTORS = {*OF_WEIGHTS, "vector_norm", "vector_norm_residual", "alti"}
ALL = {*OF_VECTORS, "vector_norm_normalised", "decompx"}

GATED = ["modernbert-cls", "llama", "modernbert-mean", "qwen2", "qwen3", "gemma"]
"""Families whose inner layer is a product."""
UNSEEN_VALUES = ["deberta", "mpnet", "deberta-v2"]
DEFINED = dict.fromkeys(GATED, OF_VECTORS)
DEFINED |= dict.fromkeys(UNSEEN_VALUES, OF_WEIGHTS)
DEFINED["t5"] = set()  # an encoder and a decoder


def cases(families):
    """Those that are much like another with a mark of the slow tests."""
    parameters = []
    for family in families:
        marks = pytest.mark.slow if family in KIN else ()
        parameters.append(pytest.param(family, marks=marks))
    return parameters


def subject(family):
    model, batch = prepared(family, TEXTS)
    outputs = model.double()(batch)
    readout = model.readout(batch, outputs)
    return Subject(model, batch, outputs, readout)


@pytest.mark.parametrize(
    "family", cases(["bert", "roberta", "distilbert", "albert", "gpt2", "electra", "xlm-roberta"])
)
def test_parts_add_up_to_the_logits(family):
    examined = subject(family)
    logits = examined.outputs.logits.detach()
    linearised = examined.classifier.linearised(examined.batch)
    for text in range(len(TEXTS)):
        parts = parts_of_logits(linearised, text)
        assert_close(parts.sum(0), logits[text], atol=1e-9, rtol=0)

    score_sum = examined.scores("decompx").sum(-1)
    total = examined.importance("decompx").total(examined)
    assert_close(score_sum, total, atol=1e-9, rtol=0)


@pytest.mark.parametrize("family", cases(DEFINED))
def test_what_is_known_of_the_layers_is_followed_and_nothing_else(family):
    examined = subject(family)
    defined = set()
    for name in ALL:
        if examined.importance(name).is_defined(examined):
            defined.add(name)
    assert defined == DEFINED[family]


def normed_with_held_spread(norm, vectors):
    """Layer normalisation without its shift, whose division is a constant for the gradient."""
    centred = vectors - vectors.mean(-1, keepdim=True)
    variance = vectors.var(-1, correction=0, keepdim=True)
    spread = (variance + norm.eps).sqrt()
    return norm.weight * centred / spread.detach()


def active_with_held_ratio(vectors, function):
    """The activation as a factor f(x) / x that is a constant for the gradient."""
    ratio = function(vectors) / vectors
    return vectors * ratio.detach()


def mixed_with_held_weights(attention, state):
    """Self-attention whose weights are constants for the gradient."""

    def by_head(vectors):
        heads = vectors.unflatten(-1, (attention.num_attention_heads, -1))
        return heads.transpose(0, 1)

    query = by_head(attention.query(state))
    key = by_head(attention.key(state))
    value = by_head(attention.value(state))
    scores = query @ key.mT / query.shape[-1] ** 0.5
    weights = scores.softmax(-1).detach()
    mixed = weights @ value
    return mixed.transpose(0, 1).flatten(1)


def held(network, ids):
    """The states before the first layer, and the logits from them with attention weights, spreads
    and ratios held. No biases."""
    start = network.bert.embeddings(ids)[0].detach().requires_grad_()
    state = start
    for layer in network.bert.encoder.layer:
        output = layer.attention.output
        mixed = output.dense(mixed_with_held_weights(layer.attention.self, state))
        state = normed_with_held_spread(output.LayerNorm, state + mixed)
        inner = active_with_held_ratio(layer.intermediate.dense(state), F.gelu)
        moved = layer.output.dense(inner)
        state = normed_with_held_spread(layer.output.LayerNorm, state + moved)
    pooled = network.bert.pooler.dense(state[0])
    logits = network.classifier(active_with_held_ratio(pooled, torch.tanh))
    return start, logits


def test_without_biases_they_are_those_of_the_network_differentiated_with_its_weights_held():
    model, batch = prepared("bert", TEXTS)
    with torch.no_grad():
        for name, parameter in model.network.named_parameters():
            if name.endswith("bias"):
                parameter.zero_()
    linearised = model.linearised(batch)
    for text in range(len(TEXTS)):
        start, logits = held(model.network, inputs_of(batch, text))
        parts = parts_of_logits(linearised, text)
        for label in range(2):
            (gradient,) = torch.autograd.grad(logits[label], start, retain_graph=True)
            expected = (gradient * start).sum(-1).detach()
            assert_close(parts[:, label], expected, atol=1e-10, rtol=0)


def test_by_hand_where_the_layers_pass_everything_on():
    """Then the states are the normalised inputs, and a word's part of the logit is its attention
    times W h."""
    model = toy_classifier("transformer", spread=4)
    batch = toy_batch([5, 2])
    with torch.no_grad():
        for layer in model.encoder.layers:
            for module in (layer.mixed, layer.inner[3]):
                module.weight.zero_()
                module.bias.zero_()
        model.decoder.output.bias.zero_()
    examined = Subject(model, batch, *toy_readout(model, batch))

    outputs = examined.outputs
    position_logit = outputs.hidden @ model.decoder.output.weight[0]
    parts = outputs.attention * position_logit
    sign = 2 * outputs.logits.argmax(-1, keepdim=True) - 1
    expected = (sign * parts).detach()
    assert_close(examined.scores("decompx"), expected, atol=1e-12, rtol=0)


VECTORS = torch.tensor(
    [
        [1.0, 0.0],
        [-3.0, 1.0],
        [0.0, 5.0],
    ]
)


def test_a_bias_goes_where_the_vectors_point():
    """By the size of each vector's part along it: 1, 3 and 0 of 4."""
    bias = torch.tensor([2.0, 0.0])
    expected = torch.tensor(
        [
            [0.5, 0.0],
            [1.5, 0.0],
            [0.0, 0.0],
        ]
    )
    assert_close(shared(VECTORS, bias) - VECTORS, expected)


def test_no_bias_changes_no_vector():
    assert shared(VECTORS, torch.zeros(2)).equal(VECTORS)


def test_vectors_of_no_length_share_a_bias_evenly():
    bias = torch.tensor([2.0, 0.0])
    thirds = torch.tensor([[2 / 3, 0.0]] * 3)
    assert_close(shared(torch.zeros(3, 2), bias), thirds)
