from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.importance import layers as layer_importance
from attnprobe.importance.base import Subject
from attnprobe.importance.layers import parts_of_logits
from attnprobe.models.transformer import PooledRowAttention, PooledRowDecoder, TransformerEncoder
from tests.toys import assert_same_alone, toy_batch, toy_classifier, toy_readout


def pooled(layers=1, **settings):
    """A transformer whose attention and decoder are those of a pooled row."""
    encoder = partial(TransformerEncoder, hidden_size=12, layers=layers, heads=3, asks=True)
    classifier = toy_classifier(
        encoder,
        PooledRowAttention,
        decoder=PooledRowDecoder,
        classes=3,
        **settings,
    )
    return classifier.double()


PYTORCH_NAMES = {
    "self_attn.in_proj_": "queries_keys_values.",
    "self_attn.out_proj.": "mixed.",
    "linear1.": "inner.0.",
    "linear2.": "inner.3.",
    "norm1.": "before_attention.",
    "norm2.": "before_inner.",
}


def pytorch_layer(layer):
    """PyTorch's layer of the same weights."""
    result = nn.TransformerEncoderLayer(12, 3, 48, 0.1, "gelu", batch_first=True, norm_first=True)
    weights = layer.state_dict()
    for theirs, ours in PYTORCH_NAMES.items():
        for part in ("weight", "bias"):
            weights[theirs + part] = weights.pop(ours + part)
    result.load_state_dict(weights)
    return result.eval().double()


def test_a_layer_is_pytorchs():
    torch.manual_seed(0)
    encoder = TransformerEncoder(8, hidden_size=12, layers=2, heads=3).eval().double()
    batch = toy_batch([5, 2])
    vectors = torch.randn(*batch.ids.shape, 8, dtype=torch.float64)
    states = encoder.below(vectors)
    expected = states
    for layer in encoder.layers:
        states = layer(states, batch.mask)
        expected = pytorch_layer(layer)(expected, src_key_padding_mask=~batch.mask)
        assert_close(states[batch.mask], expected[batch.mask], atol=1e-12, rtol=0)


def test_positions_by_hand_are_added_before_the_first_layer():
    encoder = TransformerEncoder(4, hidden_size=4, heads=2).eval().double()
    torch.nn.init.zeros_(encoder.projection.bias)
    (states,) = encoder.below(torch.zeros(1, 3, 4, dtype=torch.float64))
    near = torch.arange(3, dtype=torch.float64)
    far = near / 100
    expected = torch.stack([near.sin(), near.cos(), far.sin(), far.cos()], -1)
    assert_close(states, expected)


def test_a_size_that_does_not_divide_into_heads_is_refused():
    with pytest.raises(UserError, match=r"hidden_size=10 does not divide .*hidden_size=8"):
        TransformerEncoder(8, hidden_size=10, heads=4)


def test_the_pooled_row_is_decoded_by_its_readout_and_does_not_see_padding():
    classifier = pooled()
    batch = toy_batch([5, 2], classes=3, padding=3)
    assert_same_alone(classifier, batch)
    outputs = classifier(batch)
    readout = classifier.readout(batch, outputs)
    assert readout.position_logits is None
    assert_close(readout.prediction(), outputs.logits.softmax(-1))


def test_the_pooled_row_is_decoded_as_by_hand():
    """x = q + W Σ a h, the feed-forward network, the norm, the classes."""
    classifier = pooled()
    outputs = classifier(toy_batch([5, 2], classes=3, padding=3))
    decoder = classifier.decoder
    weights = outputs.attention.unsqueeze(-1)
    attended = (weights * outputs.hidden).sum(1)
    mixed = outputs.hidden[:, 0] + decoder.values(attended)
    x = mixed + decoder.inner(decoder.before_inner(mixed))
    assert_close(decoder.output(decoder.norm(x)), outputs.logits)


def test_a_pooled_row_needs_the_start_markers_state():
    with pytest.raises(UserError, match=r"needs model=transformer"):
        PooledRowAttention(8)


def test_a_pooled_row_and_a_question_exclude_each_other():
    with pytest.raises(UserError, match="take one of them"):
        pooled(question=True)


def subject(model, padding=0):
    """What a probe is given of two texts."""
    batch = toy_batch([5, 2], padding=padding, classes=model.classes)
    return Subject(model, batch, *toy_readout(model, batch))


MODELS = {
    "attention": lambda: toy_classifier("transformer", spread=4),
    "pooled row": lambda: pooled(2),
}
every_kind = pytest.mark.parametrize("kind", MODELS)


@every_kind
def test_its_parts_add_up_to_its_logits(kind):
    toy = subject(MODELS[kind]())
    linearised = toy.classifier.linearised(toy.batch)
    for text in range(len(toy.batch)):
        logits = parts_of_logits(linearised, text).sum(0)
        expected = toy.outputs.logits[text].detach()
        assert_close(logits, expected, atol=1e-12, rtol=0)


@every_kind
def test_its_layers_are_linearised_at_its_states(kind):
    toy = subject(MODELS[kind]())
    model = toy.classifier
    linearised = model.linearised(toy.batch)
    assert model.layers(toy.batch).adds_input == [True, True, kind == "pooled row"]
    states = model.states_silencing(toy.batch, None, 0)
    assert_close(states[-2], toy.outputs.hidden.detach(), atol=1e-12, rtol=0)
    _, *blocks, _ = linearised.blocks
    _, *block_states, _, _ = states
    for block, state in zip(blocks, block_states, strict=True):
        assert_close(block.mixing.state, state, atol=1e-12, rtol=0)


@every_kind
@pytest.mark.parametrize(
    "name",
    [
        "rollout",
        "attention_flow",
        "vector_norm",
        "vector_norm_residual",
        "alti",
        "value_zeroing",
        "decompx",
    ],
)
def test_padding_changes_nothing(kind, name):
    model = MODELS[kind]()
    scores = subject(model).scores(name)
    padded = subject(model, padding=3).scores(name)
    width = scores.shape[1]
    assert_close(padded[:, :width], scores, atol=1e-10, rtol=0)
    assert not padded[:, width:].any()


def test_rollout_of_one_layer_is_the_classifiers_attention_over_half_of_the_layers():
    model = toy_classifier("transformer", spread=4)
    model.encoder.layers = model.encoder.layers[:1]
    toy = subject(model)
    below = model.layers(toy.batch).weights[0].mean(1)
    half = (below + torch.eye(below.shape[-1])) / 2
    attention = toy.outputs.attention.unsqueeze(1)
    rollout = (attention @ half).squeeze(1).detach()
    expected = rollout.masked_fill(~toy.batch.content, 0)
    assert_close(toy.scores("rollout"), expected)


SILENT = 2


"""The place whose value is silenced."""


def test_a_silent_value_is_as_a_weight_of_nothing():
    toy = subject(toy_classifier("transformer", spread=4))
    layer = toy.classifier.encoder.layers[0]
    mixing = toy.classifier.linearised(toy.batch).blocks[0].mixing
    mixed = torch.zeros_like(mixing.state)
    for head in range(3):
        weights = mixing.weights[:, head].clone()
        weights[:, :, SILENT] = 0
        of_head = slice(4 * head, 4 * head + 4)
        output = layer.mixed.weight[:, of_head]
        mixed += weights @ mixing.values[:, head] @ output.T
    total = mixing.state + mixed + layer.mixed.bias
    expected = total + layer.inner(layer.before_inner(total))

    states = toy.classifier.states_silencing(toy.batch, 0, SILENT)

    assert_close(states[1], expected.detach(), atol=1e-12, rtol=0)


def test_lengths_of_a_model_that_passes_everything_on_are_attention_times_length():
    """The last layer's vectors are α_t h_t."""
    model = toy_classifier("transformer", spread=4)
    with torch.no_grad():
        for layer in model.encoder.layers:
            layer.mixed.weight.zero_()
    toy = subject(model)
    vectors = toy.outputs.attention.unsqueeze(-1) * toy.outputs.hidden
    lengths = vectors.norm(dim=-1).detach()
    expected = lengths / lengths.sum(-1, keepdim=True)
    scores = toy.scores("vector_norm_residual")
    assert_close(scores, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", ["alti", "decompx"])
def test_texts_may_be_taken_one_at_a_time(monkeypatch, name):
    model = toy_classifier("transformer", spread=4)
    together = subject(model).scores(name)
    monkeypatch.setattr(layer_importance, "PARTS", 1)
    assert_close(subject(model).scores(name), together, atol=1e-12, rtol=0)
