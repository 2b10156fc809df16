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


def held(network, ids):
    """The states before the first layer, and the logits from them with attention weights, spreads
    and ratios held. No biases."""

    def normed(norm, vectors):
        spread = (vectors.var(-1, correction=0, keepdim=True) + norm.eps).sqrt().detach()
        return norm.weight * (vectors - vectors.mean(-1, keepdim=True)) / spread

    def active(vectors, function):
        return vectors * (function(vectors) / vectors).detach()

    start = network.bert.embeddings(ids)[0].detach().requires_grad_()
    state = start
    for layer in network.bert.encoder.layer:
        inner = layer.attention.self
        output = layer.attention.output
        query, key, value = (
            module(state).unflatten(-1, (inner.num_attention_heads, -1)).transpose(0, 1)
            for module in (inner.query, inner.key, inner.value)
        )
        weights = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5).softmax(-1).detach()
        mixed = (weights @ value).transpose(0, 1).flatten(1)
        state = normed(output.LayerNorm, state + output.dense(mixed))
        moved = layer.output.dense(active(layer.intermediate.dense(state), F.gelu))
        state = normed(layer.output.LayerNorm, state + moved)
    return start, network.classifier(active(network.bert.pooler.dense(state[0]), torch.tanh))


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
        for number in range(2):
            (gradient,) = torch.autograd.grad(logits[number], start, retain_graph=True)
            torch.testing.assert_close(
                parts[:, number], (gradient * start).sum(-1).detach(), atol=1e-10, rtol=0
            )


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
    expected = examined.outputs.attention * (
        examined.outputs.hidden @ model.decoder.output.weight[0]
    )
    sign = examined.outputs.logits.argmax(-1, keepdim=True) * 2 - 1
    torch.testing.assert_close(
        examined.scores("decompx"), (expected * sign).detach(), atol=1e-12, rtol=0
    )


def test_a_bias_goes_where_the_vectors_point():
    vectors = torch.tensor([[1.0, 0.0], [-3.0, 1.0], [0.0, 5.0]])
    bias = torch.tensor([2.0, 0.0])
    torch.testing.assert_close(
        shared(vectors, bias) - vectors, torch.tensor([[0.5, 0.0], [1.5, 0.0], [0.0, 0.0]])
    )
    assert shared(vectors, 0 * bias).equal(vectors)
    torch.testing.assert_close(shared(0 * vectors, bias), torch.tensor([[2 / 3, 0.0]] * 3))
