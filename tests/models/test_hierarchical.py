from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.models.attention import AdditiveAttention
from attnprobe.models.base import Unit
from attnprobe.models.controls import FirstAttention
from attnprobe.models.encoders import CNNEncoder, GRUEncoder, NoEncoder
from attnprobe.models.hierarchical import HierarchicalEncoder
from tests.toys import toy_batch, toy_classifier

WORD_ENCODERS = {
    "rnn": partial(GRUEncoder, hidden_size=5),
    "conv": partial(CNNEncoder, kernel_sizes=(3, 5), filters=4, dropout=0.3),
    "noenc": NoEncoder,
}
SENTENCES = [[4, 1, 7, 2], [3], [2, 2, 9], [1]]


def han(name):
    """A classifier whose words and sentences are encoded in this way."""
    encoder = partial(
        HierarchicalEncoder,
        word_encoder=WORD_ENCODERS[name],
        sentence_encoder=WORD_ENCODERS[name],
        word_attention=AdditiveAttention,
    )
    return toy_classifier(encoder)


def with_sentences(lengths=SENTENCES, *, padding=0):
    """Texts of sentences with these numbers of words."""
    batch = toy_batch([sum(text) for text in lengths], padding=padding)
    sentence = torch.full_like(batch.ids, -1)
    for row, text in enumerate(lengths):
        numbers = torch.arange(len(text)).repeat_interleave(torch.tensor(text))
        sentence[row, 1 : sum(text) + 1] = numbers
    return replace(batch, sentence=sentence)


def looped(classifier, batch, row):
    """One text, one sentence at a time: the sentences' states, and the attention in all of them."""
    encoder = classifier.encoder
    vectors = []
    weights = []
    for number in range(int(batch.sentence[row].max()) + 1):
        ids = batch.ids[row][batch.sentence[row] == number][None]
        if ids.numel() == 0:
            continue
        mask = torch.ones_like(ids).bool()
        hidden = encoder.word_encoder(classifier.embedding(ids), mask, mask)
        module = encoder.word_attention
        v = module.score.weight[0]
        scores = torch.stack([v @ torch.tanh(module.states(h)) for h in hidden[0]])
        weights.append(scores.softmax(0))
        vectors.append(weights[-1] @ hidden[0])
    sentences = torch.stack(vectors)[None]
    mask = torch.ones(1, len(vectors)).bool()
    return encoder.sentence_encoder(sentences, mask, mask)[0], torch.cat(weights)


@pytest.mark.parametrize("name", WORD_ENCODERS)
def test_equals_a_loop_over_sentences_whatever_the_padding_and_the_batch(name):
    classifier = han(name).double()
    batch = with_sentences(padding=5)
    outputs = classifier(batch)
    assert classifier.unit is Unit.SENTENCE
    counts = torch.tensor([len(text) for text in SENTENCES])
    assert outputs.content.equal(torch.arange(4) < counts.unsqueeze(1))
    for row in range(4):
        states, weights = looped(classifier, batch, row)
        assert_close(outputs.hidden[row, : len(states)], states)
        assert_close(outputs.word_attention[row][batch.content[row]], weights)
        assert (outputs.hidden[row, len(states) :] == 0).all()
    assert (outputs.word_attention[~batch.content] == 0).all()


def test_a_sentence_without_words_is_not_counted():
    classifier = han("rnn").double()
    batch = with_sentences([[3, 2, 4]])
    sentence = torch.where(batch.sentence > 0, batch.sentence + 3, batch.sentence)
    gap = replace(batch, sentence=sentence)
    assert_close(classifier(gap).hidden, classifier(batch).hidden)


def test_markers_are_not_read():
    classifier = han("rnn").double()
    batch = with_sentences([[3, 2, 4]])
    ids = torch.where(batch.mask & ~batch.content, 5, batch.ids)
    assert_close(classifier(replace(batch, ids=ids)).logits, classifier(batch).logits)


def test_every_parameter_gets_a_gradient():
    classifier = han("rnn").double()
    classifier(with_sentences([[3, 2, 4]])).logits.sum().backward()
    for parameter in classifier.parameters():
        assert parameter.grad is not None
        assert parameter.grad.any()


def test_texts_without_sentences_are_refused():
    with pytest.raises(UserError, match=r"set data\.sentences=rule"):
        han("rnn")(toy_batch([3]))


def test_a_text_without_words_is_refused():
    batch = with_sentences([[2], [2]])
    batch.sentence[1] = -1
    with pytest.raises(UserError, match="example 101 has no word in any sentence"):
        han("rnn")(batch)


def test_an_attention_over_words_is_refused():
    classifier = han("noenc")
    classifier.attention = FirstAttention(8)
    with pytest.raises(UserError, match=r"FirstAttention is given over the words, .* model=lstm"):
        classifier(with_sentences())
