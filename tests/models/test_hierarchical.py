from dataclasses import replace
from functools import partial

import pytest
import torch

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


def han(words):
    part = {"word_encoder": WORD_ENCODERS[words], "sentence_encoder": WORD_ENCODERS[words]}
    return toy_classifier(partial(HierarchicalEncoder, **part, word_attention=AdditiveAttention))


def with_sentences(lengths=SENTENCES, *, padding=0):
    """Texts of sentences with these numbers of words."""
    batch = toy_batch([sum(text) for text in lengths], padding=padding)
    sentence = torch.full_like(batch.ids, -1)
    for row, text in enumerate(lengths):
        sentence[row, 1 : sum(text) + 1] = torch.arange(len(text)).repeat_interleave(
            torch.tensor(text)
        )
    return replace(batch, sentence=sentence)


def looped(classifier, batch, row):
    """One text, one sentence at a time: (sentence states, word attention of every sentence)."""
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
        scores = torch.stack(
            [module.score.weight[0] @ torch.tanh(module.states(h)) for h in hidden[0]]
        )
        weights.append(scores.softmax(0))
        vectors.append(weights[-1] @ hidden[0])
    sentences = torch.stack(vectors)[None]
    mask = torch.ones(1, len(vectors)).bool()
    return encoder.sentence_encoder(sentences, mask, mask)[0], torch.cat(weights)


@pytest.mark.parametrize("words", WORD_ENCODERS)
def test_equals_a_loop_over_sentences_whatever_the_padding_and_the_batch(words):
    classifier = han(words).double()
    batch = with_sentences(padding=5)
    outputs = classifier(batch)
    assert classifier.unit is Unit.SENTENCE
    assert outputs.content.tolist() == [[n < len(text) for n in range(4)] for text in SENTENCES]
    for row in range(4):
        states, weights = looped(classifier, batch, row)
        torch.testing.assert_close(outputs.hidden[row, : len(states)], states)
        torch.testing.assert_close(outputs.word_attention[row][batch.content[row]], weights)
        assert (outputs.hidden[row, len(states) :] == 0).all()
    assert (outputs.word_attention[~batch.content] == 0).all()


def test_a_sentence_without_words_is_not_counted_and_markers_are_not_read():
    classifier = han("rnn").double()
    batch = with_sentences([[3, 2, 4]])
    gap = replace(
        batch, sentence=torch.where(batch.sentence > 0, batch.sentence + 3, batch.sentence)
    )
    torch.testing.assert_close(classifier(gap).hidden, classifier(batch).hidden)
    other = replace(batch, ids=torch.where(batch.mask & ~batch.content, 5, batch.ids))
    torch.testing.assert_close(classifier(other).logits, classifier(batch).logits)
    classifier(batch).logits.sum().backward()
    assert all(
        parameter.grad is not None and parameter.grad.any() for parameter in classifier.parameters()
    )


def test_errors_say_what_to_do():
    with pytest.raises(UserError, match=r"set data\.sentences=rule"):
        han("rnn")(toy_batch([3]))
    batch = with_sentences([[2], [2]])
    batch.sentence[1] = -1
    with pytest.raises(UserError, match="example 101 has no word in any sentence"):
        han("rnn")(batch)
    classifier = han("noenc")
    classifier.attention = FirstAttention(8)
    with pytest.raises(UserError, match=r"FirstAttention is given over the words, .* model=lstm"):
        classifier(with_sentences())
