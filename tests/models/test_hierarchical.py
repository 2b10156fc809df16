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
SENTENCES = [
    [4, 1, 7, 2],
    [3],
    [2, 2, 9],
    [1],
]


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
    words = [sum(text) for text in lengths]
    batch = toy_batch(words, padding=padding)
    sentence = torch.full_like(batch.ids, -1)
    for row, text in enumerate(lengths):
        numbers = torch.arange(len(text))
        number_of_word = numbers.repeat_interleave(torch.tensor(text))
        sentence[row, batch.content[row]] = number_of_word
    return replace(batch, sentence=sentence)


def looped(classifier, batch, row):
    """One text, one sentence at a time: the sentences' states, and the attention in all of them."""
    encoder = classifier.encoder
    attention = encoder.word_attention
    v = attention.score.weight[0]
    sentences = []
    weights = []
    for number in range(len(SENTENCES[row])):
        in_sentence = batch.sentence[row] == number
        ids = batch.ids[row, in_sentence]
        vectors = classifier.embedding(ids)
        (states,) = encode_alone(encoder.word_encoder, vectors)
        scores = torch.tanh(attention.states(states)) @ v
        inner_weights = scores.softmax(0)
        weights.append(inner_weights)
        sentences.append(inner_weights @ states)
    (states,) = encode_alone(encoder.sentence_encoder, torch.stack(sentences))
    return states, torch.cat(weights)


def encode_alone(encoder, vectors):
    """The states of one sequence without padding."""
    mask = torch.ones(1, len(vectors), dtype=torch.bool)
    return encoder(vectors[None], mask, mask)


@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("name", WORD_ENCODERS)
def test_equals_a_loop_over_sentences_whatever_the_padding_and_the_batch(name, row):
    classifier = han(name).double()
    batch = with_sentences(padding=5)
    outputs = classifier(batch)
    states, weights = looped(classifier, batch, row)
    is_sentence = torch.arange(4) < len(SENTENCES[row])
    hidden = outputs.hidden[row]
    assert torch.equal(outputs.content[row], is_sentence)
    assert_close(hidden[is_sentence], states)
    assert (hidden[~is_sentence] == 0).all()

    is_word = batch.content[row]
    word_attention = outputs.word_attention[row]
    assert_close(word_attention[is_word], weights)
    assert (word_attention[~is_word] == 0).all()


def test_its_unit_is_a_sentence():
    assert han("rnn").unit is Unit.SENTENCE


def test_a_sentence_without_words_is_not_counted():
    classifier = han("rnn").double()
    batch = with_sentences([[3, 2, 4]])
    is_later = batch.sentence > 0
    sentence = batch.sentence + 3 * is_later
    with_gap = classifier(replace(batch, sentence=sentence))
    without_gap = classifier(batch)
    assert_close(with_gap.hidden, without_gap.hidden)


def test_markers_are_not_read():
    classifier = han("rnn").double()
    batch = with_sentences([[3, 2, 4]])
    is_marker = batch.mask & ~batch.content
    ids = batch.ids.masked_fill(is_marker, 5)
    expected = classifier(batch)
    outputs = classifier(replace(batch, ids=ids))
    assert_close(outputs.logits, expected.logits)


def test_every_parameter_gets_a_gradient():
    classifier = han("rnn").double()
    outputs = classifier(with_sentences([[3, 2, 4]]))
    outputs.logits.sum().backward()
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


def sentences_of(batch, row):
    """Number and words of each sentence of a text."""
    for place in range(len(SENTENCES[row])):
        yield place, batch.sentence[row] == place


ATTENTIONS = ["additive", "dot", SparsemaxAttention]


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_gathered_words_say_what_words_say(attention):
    batch = with_sentences(padding=3)
    words = gathering(attention, unit=Unit.WORD)(batch)
    sentences = gathering(attention)(batch)
    assert_close(sentences.logits, words.logits)


@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_sentence_has_the_weight_of_its_words(attention, row):
    batch = with_sentences(padding=3)
    words = gathering(attention, unit=Unit.WORD)(batch)
    sentences = gathering(attention)(batch)
    for place, members in sentences_of(batch, row):
        weights = words.attention[row, members]
        inner_weights = sentences.word_attention[row, members]
        total = weights.sum()
        assert_close(sentences.attention[row, place], total)
        assert_close(inner_weights * total, weights)
        assert_close(inner_weights.sum(), torch.ones_like(total))
    is_sentence = torch.arange(4) < len(SENTENCES[row])
    beyond_text = sentences.attention[row, ~is_sentence]
    assert torch.equal(sentences.content[row], is_sentence)
    assert (beyond_text == 0).all()


@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_a_sentence_says_what_its_words_say(attention, row):
    batch = with_sentences(padding=3)
    over_words = gathering(attention, unit=Unit.WORD)
    over_sentences = gathering(attention)
    _, word_readout = toy_readout(over_words, batch)
    outputs, readout = toy_readout(over_sentences, batch)
    for place, members in sentences_of(batch, row):
        inner_weights = outputs.word_attention[row, members]
        logits = inner_weights @ word_readout.position_logits[row, members]
        assert_close(readout.position_logits[row, place], logits)


def test_under_another_attention_the_words_of_a_sentence_share_its_weight_as_before():
    batch = with_sentences()
    words, word_readout = toy_readout(gathering(unit=Unit.WORD), batch)
    classifier = gathering()
    outputs, readout = toy_readout(classifier, batch)
    generator = torch.Generator().manual_seed(1)
    noise = torch.rand(outputs.content.shape, generator=generator, dtype=torch.float64)
    mass = noise * outputs.content
    moved = mass / mass.sum(-1, keepdim=True)

    over_words = torch.zeros_like(words.attention)
    for row in range(4):
        for place, members in sentences_of(batch, row):
            weights = words.attention[row, members]
            inner_weights = weights / weights.sum()
            over_words[row, members] = moved[row, place] * inner_weights

    logits = word_readout.logits(over_words)
    assert_close(readout.logits(moved), logits)
    moved_outputs = classifier.outputs_from(batch, attention=moved)
    assert_close(moved_outputs.logits, logits)


def test_a_sentence_without_any_weight_says_what_its_words_say_on_average():
    """States 1 and 2 are those of the first sentence, 3 to 5 those of the second."""
    batch = with_sentences([[2, 3]])
    attention = torch.zeros(batch.ids.shape, dtype=torch.float64)
    attention[0, 1:3] = torch.tensor([0.75, 0.25])
    attention.requires_grad_()
    hidden = torch.arange(7.0, dtype=torch.float64).view(1, 7, 1)

    gathered = gather_words(batch, hidden, attention)

    first, second = gathered.hidden.flatten().tolist()
    assert gathered.attention.tolist() == [[1, 0]]
    assert first == pytest.approx(1 * 0.75 + 2 * 0.25)
    assert second == pytest.approx((3 + 4 + 5) / 3)
    total = gathered.hidden.sum()
    (gradient,) = torch.autograd.grad(total, attention)
    assert gradient.isfinite().all()


def gradients_in_training(unit):
    """Name of a parameter → its gradient."""
    batch = with_sentences()
    classifier = gathering(unit=unit)
    outputs = classifier(batch)
    losses = classifier.losses(outputs, batch)
    losses["loss"].sum().backward()
    return {name: parameter.grad for name, parameter in classifier.named_parameters()}


def test_a_model_whose_words_are_gathered_trains_as_one_of_words():
    expected = gradients_in_training(Unit.WORD)
    gradients = gradients_in_training(Unit.SENTENCE)
    for name, gradient in gradients.items():
        assert_close(gradient, expected[name])


TEXTS = [
    [2, 1, 3, 2, 1],
    [1, 2, 2, 1],
    [3, 1, 1],
    [2, 2, 2, 2, 1, 1],
]


def test_the_fewest_sentences_that_change_a_decision_are_those_of_all_sets():
    sizes = set()
    for seed in range(6):
        classifier = gathering()
        batch = with_sentences(TEXTS)
        other_words = (batch.ids + 5 * seed) % 26 + 4
        batch.ids = torch.where(batch.content, other_words, batch.ids)
        classifier = undecided(classifier, batch)
        _, readout = toy_readout(classifier, batch)
        search = smallest_flipping_set(readout.attention, readout.position_logits, readout.content)
        for row, text in enumerate(TEXTS):
            sentences = range(len(text))
            weights = readout.attention[row, sentences]
            logits = readout.position_logits[row, sentences]
            smallest = smallest_by_enumeration(weights, logits)
            assert search.size[row] == smallest
            sizes.add(smallest)
    assert {1, 2} <= sizes


def smallest_by_enumeration(weights, logits):
    """The fewest sentences whose erasure changes the decision; -1: no set does."""
    decision = (weights @ logits).argmax()
    sentences = range(len(weights))
    for size in sentences[1:]:
        for erased in combinations(sentences, size):
            remaining = weights.clone()
            remaining[list(erased)] = 0
            if (remaining @ logits).argmax() != decision:
                return size
    return -1


@pytest.mark.parametrize(
    "classifier",
    [
        pytest.param(gathering(), id="gathered"),
        pytest.param(han("rnn"), id="han"),
    ],
)
def test_texts_without_sentences_are_refused_before_anything_is_trained(classifier):
    with pytest.raises(UserError, match=r"attends to sentences.*set data\.sentences=rule"):
        classifier.prepare(toy_batch([3]))


def test_layers_of_words_are_not_those_of_sentences():
    assert gathering(encoder="transformer", unit=Unit.WORD).has_layers
    assert not gathering(encoder="transformer").has_layers
