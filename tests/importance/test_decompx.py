"""The parts of a logit: they add up to it, equal those of a BERT that is differentiated with its
weights held, and are known by hand where the layers pass everything on."""

import pytest
import torch
from torch.nn import functional as F

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
DEFINED = {
    **dict.fromkeys(
        ("modernbert-cls", "llama", "modernbert-mean", "qwen2", "qwen3", "gemma"), OF_VECTORS
    ),  # gated
    **dict.fromkeys(("deberta", "mpnet", "deberta-v2"), OF_WEIGHTS),  # values are not seen
    "t5": set(),  # an encoder and a decoder
}


def cases(families):
    return [
        pytest.param(family, marks=pytest.mark.slow) if family in KIN else family
        for family in families
    ]


def subject(family):
    model, batch = prepared(family, TEXTS)
    outputs = model.double()(batch)
    return Subject(model, batch, outputs, model.readout(batch, outputs))


@pytest.mark.parametrize(
    "family", cases(["bert", "roberta", "distilbert", "albert", "gpt2", "electra", "xlm-roberta"])
)
def test_parts_add_up_to_the_logits(family):
    examined = subject(family)
    linearised = examined.classifier.linearised(examined.batch)
    for text in range(len(TEXTS)):
        total = parts_of_logits(linearised, text).sum(0)
        torch.testing.assert_close(total, examined.outputs.logits[text].detach(), atol=1e-9, rtol=0)
    gap = examined.scores("decompx").sum(-1) - examined.importance("decompx").total(examined)
    assert gap.abs().max() < 1e-9


@pytest.mark.parametrize("family", cases(DEFINED))
def test_what_is_known_of_the_layers_is_followed_and_nothing_else(family):
    examined = subject(family)
    every = (*OF_VECTORS, "vector_norm_normalised", "decompx")
    assert {name for name in every if examined.importance(name).is_defined(examined)} == DEFINED[
        family
    ]


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
    heads = attention.num_attention_heads
    query = attention.query(state).unflatten(-1, (heads, -1)).transpose(0, 1)
    key = attention.key(state).unflatten(-1, (heads, -1)).transpose(0, 1)
    value = attention.value(state).unflatten(-1, (heads, -1)).transpose(0, 1)
    scores = query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5
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
            torch.testing.assert_close(parts[:, label], expected, atol=1e-10, rtol=0)


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
    torch.testing.assert_close(examined.scores("decompx"), expected, atol=1e-12, rtol=0)


def test_a_bias_goes_where_the_vectors_point():
    vectors = torch.tensor([[1.0, 0.0], [-3.0, 1.0], [0.0, 5.0]])
    bias = torch.tensor([2.0, 0.0])
    expected = torch.tensor([[0.5, 0.0], [1.5, 0.0], [0.0, 0.0]])
    torch.testing.assert_close(shared(vectors, bias) - vectors, expected)


def test_no_bias_changes_no_vector():
    vectors = torch.tensor([[1.0, 0.0], [-3.0, 1.0], [0.0, 5.0]])
    assert shared(vectors, torch.zeros(2)).equal(vectors)


def test_vectors_of_no_length_share_a_bias_evenly():
    bias = torch.tensor([2.0, 0.0])
    thirds = torch.tensor([[2 / 3, 0.0]] * 3)
    torch.testing.assert_close(shared(torch.zeros(3, 2), bias), thirds)
