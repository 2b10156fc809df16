from dataclasses import replace
from functools import partial
from itertools import combinations

import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.exact import smallest_flipping_set
from attnprobe.models.attention import AdditiveAttention, SparsemaxAttention
from attnprobe.models.base import Unit
from attnprobe.models.controls import FirstAttention
from attnprobe.models.encoders import CNNEncoder, GRUEncoder, NoEncoder
from attnprobe.models.hierarchical import HierarchicalEncoder, gather_words
from tests.toys import toy_batch, toy_classifier, toy_readout, undecided

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


def gathering(attention="additive", encoder="lstm", unit=Unit.SENTENCE):
    """A classifier over words, whose attention is looked at over sentences, and one over words."""
    return toy_classifier(encoder, attention, spread=4.0, classes=3, unit=unit).double()


@pytest.mark.parametrize("attention", ["additive", "dot", SparsemaxAttention])
def test_a_sentence_has_the_weight_of_its_words_and_says_what_they_say(attention):
    batch = with_sentences(padding=3)
    words, word_readout = toy_readout(gathering(attention, unit=Unit.WORD), batch)
    sentences, sentence_readout = toy_readout(gathering(attention), batch)
    assert_close(sentences.logits, words.logits)
    for row, text in enumerate(SENTENCES):
        for place in range(len(text)):
            members = batch.sentence[row] == place
            weight = words.attention[row, members].sum()
            assert_close(sentences.attention[row, place], weight)
            inner = sentences.word_attention[row, members]
            assert_close(inner.sum(), torch.ones_like(weight))
            assert_close(inner * weight, words.attention[row, members])
            logits = inner @ word_readout.position_logits[row, members]
            assert_close(sentence_readout.position_logits[row, place], logits)
        assert (sentences.attention[row, len(text) :] == 0).all()
        assert sentences.content[row].tolist() == [place < len(text) for place in range(4)]


def test_under_another_attention_the_words_of_a_sentence_share_its_weight_as_before():
    batch = with_sentences()
    words, word_readout = toy_readout(gathering(unit=Unit.WORD), batch)
    classifier = gathering()
    outputs, readout = toy_readout(classifier, batch)
    generator = torch.Generator().manual_seed(1)
    moved = torch.rand(outputs.content.shape, generator=generator, dtype=torch.float64)
    moved = moved * outputs.content
    moved = moved / moved.sum(-1, keepdim=True)
    over_words = torch.zeros_like(words.attention)
    for row, text in enumerate(SENTENCES):
        for place in range(len(text)):
            members = batch.sentence[row] == place
            share = words.attention[row, members] / words.attention[row, members].sum()
            over_words[row, members] = moved[row, place] * share
    assert_close(readout.logits(moved), word_readout.logits(over_words))
    assert_close(classifier.outputs_from(batch, attention=moved).logits, readout.logits(moved))


def test_a_sentence_without_any_weight_says_what_its_words_say_on_average():
    batch = with_sentences([[2, 3]])
    attention = torch.zeros(batch.ids.shape, dtype=torch.float64)
    attention[0, 1:3] = torch.tensor([0.75, 0.25])
    attention.requires_grad_()
    hidden = torch.arange(7.0, dtype=torch.float64).view(1, 7, 1)
    gathered = gather_words(batch, hidden, attention)
    assert gathered.attention.tolist() == [[1, 0]]
    assert gathered.hidden[0, :, 0].tolist() == pytest.approx([1 * 0.75 + 2 * 0.25, 4])
    (gradient,) = torch.autograd.grad(gathered.hidden.sum(), attention)
    assert bool(gradient.isfinite().all())


def test_a_model_whose_words_are_gathered_trains_as_one_of_words():
    batch = with_sentences()
    gradients = []
    for unit in (Unit.WORD, Unit.SENTENCE):
        classifier = gathering(unit=unit)
        classifier.losses(classifier(batch), batch)["loss"].sum().backward()
        gradients.append({name: value.grad for name, value in classifier.named_parameters()})
    for name, gradient in gradients[0].items():
        assert_close(gradient, gradients[1][name])


def test_the_fewest_sentences_that_change_a_decision_are_those_of_all_sets():
    sizes = set()
    for seed in range(6):
        classifier = gathering()
        texts = [[2, 1, 3, 2, 1], [1, 2, 2, 1], [3, 1, 1], [2, 2, 2, 2, 1, 1]]
        batch = with_sentences(texts)
        other_words = (batch.ids + 5 * seed) % 26 + 4
        batch = replace(batch, ids=torch.where(batch.content, other_words, batch.ids))
        _, readout = toy_readout(undecided(classifier, batch), batch)
        search = smallest_flipping_set(readout.attention, readout.position_logits, readout.content)
        for row, text in enumerate(texts):
            weights = readout.attention[row, : len(text)]
            logits = readout.position_logits[row, : len(text)]
            smallest = smallest_by_enumeration(weights, logits)
            assert int(search.size[row]) == smallest
            sizes.add(smallest)
    assert {1, 2} <= sizes


def smallest_by_enumeration(weights, logits):
    """The fewest sentences whose erasure changes the decision; -1: no set does."""
    decision = int((weights @ logits).argmax())
    for size in range(1, len(weights)):
        for erased in combinations(range(len(weights)), size):
            remaining = weights.clone()
            remaining[list(erased)] = 0
            if int((remaining / remaining.sum() @ logits).argmax()) != decision:
                return size
    return -1


def test_texts_without_sentences_are_refused_before_anything_is_trained():
    for classifier in (gathering(), han("rnn")):
        with pytest.raises(UserError, match=r"attends to sentences.*set data\.sentences=rule"):
            classifier.prepare(toy_batch([3]))


def test_layers_of_words_are_not_those_of_sentences():
    assert gathering(encoder="transformer", unit=Unit.WORD).has_layers
    assert not gathering(encoder="transformer").has_layers
