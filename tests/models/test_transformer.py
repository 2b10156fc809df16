from functools import partial

import pytest
import torch
from torch import nn

from attnprobe.errors import UserError
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.transformer import (
    PooledRowAttention,
    PooledRowDecoder,
    TransformerEncoder,
    sinusoids,
)
from tests.toys import ENCODERS, VOCABULARY, rows_of, toy_batch, toy_classifier


def pooled():
    torch.manual_seed(0)
    encoder = partial(TransformerEncoder, hidden_size=12, layers=1, heads=3, asks=True)
    return AttentionClassifier(
        embeddings=torch.randn(VOCABULARY, 8),
        encoder=encoder,
        attention=PooledRowAttention,
        decoder=PooledRowDecoder,
        classes=3,
    ).eval().double()  # fmt: skip


def test_a_layer_is_pytorchs_own():
    """The same weights in torch.nn.TransformerEncoderLayer, which is written otherwise."""
    torch.manual_seed(0)
    encoder = TransformerEncoder(8, hidden_size=12, layers=2, heads=3).eval().double()
    batch = toy_batch([5, 2])
    states = encoder.projection(torch.randn(*batch.ids.shape, 8).double())
    states = states + sinusoids(states.shape[1], states)
    expected = states
    for layer in encoder.layers:
        theirs = nn.TransformerEncoderLayer(12, 3, 48, 0.1, "gelu", batch_first=True, norm_first=True).eval().double()
        names = {"self_attn.in_proj_": "queries_keys_values.", "self_attn.out_proj.": "mixed.", "linear1.": "inner.0.",
                 "linear2.": "inner.3.", "norm1.": "before_attention.", "norm2.": "before_inner."}  # fmt: skip
        own = layer.state_dict()
        theirs.load_state_dict({a + part: own[b + part] for a, b in names.items() for part in ("weight", "bias")})
        states, expected = layer(states, batch.mask), theirs(expected, src_key_padding_mask=~batch.mask)
        torch.testing.assert_close(states[batch.mask], expected[batch.mask], atol=1e-12, rtol=0)


def test_the_position_signals_are_those_computed_by_hand():
    found = sinusoids(3, torch.zeros(1, 3, 4).double())
    for position in range(3):
        near, far = torch.tensor(float(position)).double(), torch.tensor(position / 100).double()
        torch.testing.assert_close(found[position], torch.stack([near.sin(), near.cos(), far.sin(), far.cos()]))


def test_the_order_of_the_words_matters():
    classifier, batch = toy_classifier("transformer"), toy_batch([5])
    swapped = batch.rows(torch.tensor([0]))
    swapped.ids[0, [1, 2]] = swapped.ids[0, [2, 1]]
    assert not torch.allclose(classifier(batch).logits, classifier(swapped).logits, atol=1e-5)


def test_the_pooled_row_is_decoded_by_its_readout_and_does_not_see_padding():
    classifier = pooled()
    batch, padded = toy_batch([5, 2], classes=3), toy_batch([5, 2], classes=3, padding=3)
    outputs = classifier(batch)
    torch.testing.assert_close(classifier(padded).logits, outputs.logits)
    torch.testing.assert_close(classifier(rows_of(batch, [1])).logits[0], outputs.logits[1])
    readout = classifier.readout(batch, outputs)
    assert readout.position_logits is None
    torch.testing.assert_close(readout.prediction(), outputs.logits.softmax(-1))
    # by hand: x = q + W Σ a h, the feed-forward network, the norm, the classes
    decoder, query = classifier.decoder, outputs.hidden[:, 0]
    x = query + decoder.values((outputs.attention.unsqueeze(-1) * outputs.hidden).sum(1))
    x = x + decoder.inner(decoder.before_inner(x))
    torch.testing.assert_close(decoder.output(decoder.norm(x)), outputs.logits)


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: TransformerEncoder(8, hidden_size=10, heads=4), r"hidden_size=10 does not divide .*hidden_size=8"),
        (lambda: TransformerEncoder(8, layers=0), r"model\.encoder\.layers=0"),
        (lambda: TransformerEncoder(8, dropout=1.0), r"model\.encoder\.dropout=1\.0"),
        (lambda: PooledRowAttention(8), r"needs model=transformer"),
        (
            lambda: AttentionClassifier(
                embeddings=torch.zeros(5, 8), encoder=partial(TransformerEncoder, asks=True), attention=PooledRowAttention,
                decoder=PooledRowDecoder, classes=2, question_encoder=ENCODERS["lstm"],
            ),
            "take one of them",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be(made, message):
    with pytest.raises(UserError, match=message):
        made()
