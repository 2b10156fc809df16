"""The transformer that is trained from scratch, taken apart: its parts against PyTorch's own attention and its own states."""

from functools import partial

import pytest
import torch
from torch import nn

from attnprobe.importance import followed
from attnprobe.importance.base import Subject
from attnprobe.importance.decompx import parts_of_logits
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.transformer import PooledRowAttention, PooledRowDecoder, TransformerEncoder
from tests.toys import VOCABULARY, toy_batch, toy_classifier, toy_readout

METHODS = ["rollout", "attention_flow", "vector_norm", "vector_norm_residual", "alti", "value_zeroing"]


def pooled():
    torch.manual_seed(0)
    return AttentionClassifier(
        embeddings=torch.randn(VOCABULARY, 8),
        encoder=partial(TransformerEncoder, hidden_size=12, layers=2, heads=3, asks=True),
        attention=PooledRowAttention,
        decoder=PooledRowDecoder,
        classes=3,
    ).eval()


def subject(model, padding=0):
    batch = toy_batch([5, 2], padding=padding, classes=model.classes)
    return Subject(model, batch, *toy_readout(model, batch))


MODELS = {"attention": lambda: toy_classifier("transformer", spread=4), "pooled row": pooled}
every = pytest.mark.parametrize("kind", MODELS)


@every
def test_its_parts_add_up_to_its_logits_and_its_states(kind):
    found = subject(MODELS[kind]())
    model, batch = found.classifier, found.batch
    anatomy = model.anatomy(batch)
    for text in range(len(batch)):
        torch.testing.assert_close(
            parts_of_logits(anatomy, text).sum(0), found.outputs.logits[text].detach(), atol=1e-12, rtol=0
        )
    states = model.states_silencing(batch, None, 0)
    torch.testing.assert_close(states[-2], found.outputs.hidden.detach(), atol=1e-12, rtol=0)
    for block, state in zip(anatomy.blocks[1:-1], states[1:-2], strict=True):
        torch.testing.assert_close(block.mixing.state, state, atol=1e-12, rtol=0)


@every
@pytest.mark.parametrize("name", [*METHODS, "decompx"])
def test_padding_changes_nothing(kind, name):
    model = MODELS[kind]()
    alone, padded = subject(model).scores(name), subject(model, padding=3).scores(name)
    torch.testing.assert_close(padded[:, : alone.shape[1]], alone, atol=1e-10, rtol=0)
    assert not padded[:, alone.shape[1] :].any()


def test_the_attention_is_what_pytorchs_own_gives():
    found = subject(toy_classifier("transformer", spread=4))
    encoder, batch = found.classifier.encoder, found.batch
    layers = found.classifier.layers(batch)
    assert layers.own == [True, True, False]
    state = encoder.below(found.classifier.inputs(batch))
    for layer, weights in zip(encoder.layers, layers.weights, strict=False):
        theirs = nn.MultiheadAttention(12, 3, batch_first=True).double()
        own = {"in_proj_": layer.queries_keys_values, "out_proj.": layer.mixed}
        theirs.load_state_dict({a + b: getattr(module, b) for a, module in own.items() for b in ("weight", "bias")})
        given = layer.before_attention(state)
        expected = theirs(given, given, given, key_padding_mask=~batch.mask, average_attn_weights=False)[1]
        torch.testing.assert_close(weights, expected.detach(), atol=1e-12, rtol=0)
        state = layer(state, batch.mask)


def test_rollout_of_one_layer_is_the_classifiers_attention_over_half_of_the_layers():
    torch.manual_seed(0)
    model = toy_classifier("transformer", spread=4)
    model.encoder.layers = model.encoder.layers[:1]
    found = subject(model)
    below = found.classifier.layers(found.batch).weights[0].mean(1)
    expected = torch.einsum("bi,bij->bj", found.outputs.attention, (below + torch.eye(below.shape[-1])) / 2)
    torch.testing.assert_close(found.scores("rollout"), expected.masked_fill(~found.batch.content, 0).detach())


def test_a_silent_value_is_as_a_weight_of_nothing():
    found = subject(toy_classifier("transformer", spread=4))
    model, batch, part = found.classifier, found.batch, 2
    layer, mixing = model.encoder.layers[0], model.anatomy(batch).blocks[0].mixing
    mixed = torch.zeros_like(mixing.state)
    for head in range(3):
        for j in range(mixing.state.shape[1]):
            if j != part:
                moved = layer.mixed.weight[:, 4 * head : 4 * head + 4] @ mixing.values[:, head, j].unsqueeze(-1)
                mixed += mixing.weights[:, head, :, j, None] * moved.transpose(1, 2)
    total = mixing.state + mixed + layer.mixed.bias
    expected = total + layer.inner(layer.before_inner(total))
    torch.testing.assert_close(model.states_silencing(batch, 0, part)[1], expected.detach(), atol=1e-12, rtol=0)


def test_of_one_layer_without_an_encoder_above_lengths_are_attention_times_length():
    """The last layer's vectors are α_t h_t: of one that passes everything on, the share of ‖α_t h_t‖."""
    model = toy_classifier("transformer", spread=4)
    with torch.no_grad():
        for layer in model.encoder.layers:
            layer.mixed.weight.zero_()
    found = subject(model)
    moved = (found.outputs.attention.unsqueeze(-1) * found.outputs.hidden).norm(dim=-1)
    expected = (moved / moved.sum(-1, keepdim=True)).detach()
    torch.testing.assert_close(found.scores("vector_norm_residual"), expected, atol=1e-12, rtol=0)


def test_texts_may_be_taken_one_at_a_time(monkeypatch):
    model = toy_classifier("transformer", spread=4)
    whole = {name: subject(model).scores(name) for name in ("alti", "decompx")}
    monkeypatch.setattr(followed, "PARTS", 1)
    for name, scores in whole.items():
        torch.testing.assert_close(subject(model).scores(name), scores, atol=1e-12, rtol=0)
