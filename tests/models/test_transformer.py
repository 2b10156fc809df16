from functools import partial

import pytest
import torch
from torch import nn

from attnprobe.core.errors import UserError
from attnprobe.importance import layers as followed
from attnprobe.importance.base import Subject
from attnprobe.importance.layers import parts_of_logits
from attnprobe.models.transformer import PooledRowAttention, PooledRowDecoder, TransformerEncoder
from tests.toys import assert_same_alone, toy_batch, toy_classifier, toy_readout


def pooled(layers=1, **extra):
    encoder = partial(TransformerEncoder, hidden_size=12, layers=layers, heads=3, asks=True)
    return toy_classifier(
        encoder, PooledRowAttention, decoder=PooledRowDecoder, classes=3, **extra
    ).double()


def test_a_layer_is_pytorchs_own_and_positions_are_added_before_the_first():
    torch.manual_seed(0)
    encoder = TransformerEncoder(8, hidden_size=12, layers=2, heads=3).eval().double()
    batch = toy_batch([5, 2])
    states = encoder.below(torch.randn(*batch.ids.shape, 8).double())
    expected = states
    for layer in encoder.layers:
        theirs = (
            nn.TransformerEncoderLayer(12, 3, 48, 0.1, "gelu", batch_first=True, norm_first=True)
            .eval()
            .double()
        )
        names = {
            "self_attn.in_proj_": "queries_keys_values.",
            "self_attn.out_proj.": "mixed.",
            "linear1.": "inner.0.",
            "linear2.": "inner.3.",
            "norm1.": "before_attention.",
            "norm2.": "before_inner.",
        }
        own = layer.state_dict()
        theirs.load_state_dict(
            {a + part: own[b + part] for a, b in names.items() for part in ("weight", "bias")}
        )
        states = layer(states, batch.mask)
        expected = theirs(expected, src_key_padding_mask=~batch.mask)
        torch.testing.assert_close(states[batch.mask], expected[batch.mask], atol=1e-12, rtol=0)
    encoder = (
        TransformerEncoder(4, hidden_size=4, heads=2).eval().double()
    )  # the position signals by hand
    torch.nn.init.zeros_(encoder.projection.bias)
    [found] = encoder.below(torch.zeros(1, 3, 4).double())
    near = torch.arange(3).double()
    far = torch.arange(3).double() / 100
    torch.testing.assert_close(
        found, torch.stack([near.sin(), near.cos(), far.sin(), far.cos()], -1)
    )
    with pytest.raises(UserError, match=r"hidden_size=10 does not divide .*hidden_size=8"):
        TransformerEncoder(8, hidden_size=10, heads=4)


def test_the_pooled_row_is_decoded_by_its_readout_and_does_not_see_padding():
    classifier = pooled()
    batch = toy_batch([5, 2], classes=3, padding=3)
    assert_same_alone(classifier, batch)
    outputs = classifier(batch)
    readout = classifier.readout(batch, outputs)
    assert readout.position_logits is None
    torch.testing.assert_close(readout.prediction(), outputs.logits.softmax(-1))
    # by hand: x = q + W Σ a h, the feed-forward network, the norm, the classes
    decoder = classifier.decoder
    query = outputs.hidden[:, 0]
    x = query + decoder.values((outputs.attention.unsqueeze(-1) * outputs.hidden).sum(1))
    x = x + decoder.inner(decoder.before_inner(x))
    torch.testing.assert_close(decoder.output(decoder.norm(x)), outputs.logits)
    with pytest.raises(UserError, match=r"needs model=transformer"):
        PooledRowAttention(8)
    with pytest.raises(UserError, match="take one of them"):
        pooled(question=True)


def subject(model, padding=0):
    batch = toy_batch([5, 2], padding=padding, classes=model.classes)
    return Subject(model, batch, *toy_readout(model, batch))


MODELS = {
    "attention": lambda: toy_classifier("transformer", spread=4),
    "pooled row": lambda: pooled(2),
}
every = pytest.mark.parametrize("kind", MODELS)


@every
def test_its_parts_add_up_to_its_logits_and_its_states(kind):
    found = subject(MODELS[kind]())
    model = found.classifier
    batch = found.batch
    linearised = model.linearised(batch)
    for text in range(len(batch)):
        torch.testing.assert_close(
            parts_of_logits(linearised, text).sum(0),
            found.outputs.logits[text].detach(),
            atol=1e-12,
            rtol=0,
        )
    assert model.layers(batch).adds_input == [True, True, kind == "pooled row"]
    states = model.states_silencing(batch, None, 0)
    torch.testing.assert_close(states[-2], found.outputs.hidden.detach(), atol=1e-12, rtol=0)
    for block, state in zip(linearised.blocks[1:-1], states[1:-2], strict=True):
        torch.testing.assert_close(block.mixing.state, state, atol=1e-12, rtol=0)


@every
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
    alone = subject(model).scores(name)
    padded = subject(model, padding=3).scores(name)
    torch.testing.assert_close(padded[:, : alone.shape[1]], alone, atol=1e-10, rtol=0)
    assert not padded[:, alone.shape[1] :].any()


def test_rollout_of_one_layer_is_the_classifiers_attention_over_half_of_the_layers():
    model = toy_classifier("transformer", spread=4)
    model.encoder.layers = model.encoder.layers[:1]
    found = subject(model)
    below = found.classifier.layers(found.batch).weights[0].mean(1)
    expected = torch.einsum(
        "bi,bij->bj", found.outputs.attention, (below + torch.eye(below.shape[-1])) / 2
    )
    torch.testing.assert_close(
        found.scores("rollout"), expected.masked_fill(~found.batch.content, 0).detach()
    )


def test_a_silent_value_is_as_a_weight_of_nothing():
    found = subject(toy_classifier("transformer", spread=4))
    model = found.classifier
    batch = found.batch
    part = 2
    layer = model.encoder.layers[0]
    mixing = model.linearised(batch).blocks[0].mixing
    mixed = torch.zeros_like(mixing.state)
    for head in range(3):
        for j in range(mixing.state.shape[1]):
            if j != part:
                moved = layer.mixed.weight[:, 4 * head : 4 * head + 4] @ mixing.values[
                    :, head, j
                ].unsqueeze(-1)
                mixed += mixing.weights[:, head, :, j, None] * moved.transpose(1, 2)
    total = mixing.state + mixed + layer.mixed.bias
    expected = total + layer.inner(layer.before_inner(total))
    torch.testing.assert_close(
        model.states_silencing(batch, 0, part)[1], expected.detach(), atol=1e-12, rtol=0
    )


def test_lengths_of_a_model_that_passes_everything_on_are_attention_times_length():
    model = toy_classifier("transformer", spread=4)
    with torch.no_grad():
        for layer in model.encoder.layers:
            layer.mixed.weight.zero_()
    found = subject(model)  # the last layer's vectors are α_t h_t
    moved = (found.outputs.attention.unsqueeze(-1) * found.outputs.hidden).norm(dim=-1)
    expected = (moved / moved.sum(-1, keepdim=True)).detach()
    torch.testing.assert_close(found.scores("vector_norm_residual"), expected, atol=1e-12, rtol=0)


def test_texts_may_be_taken_one_at_a_time(monkeypatch):
    model = toy_classifier("transformer", spread=4)
    whole = {name: subject(model).scores(name) for name in ("alti", "decompx")}
    monkeypatch.setattr(followed, "PARTS", 1)
    for name, scores in whole.items():
        torch.testing.assert_close(subject(model).scores(name), scores, atol=1e-12, rtol=0)
