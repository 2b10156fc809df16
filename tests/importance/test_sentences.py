"""Deletions and gradients where the attention is looked at over sentences."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.batch import probabilities
from attnprobe.importance.base import Subject
from attnprobe.importance.gradients import gradients
from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.importance.word_removal import predictions_keeping
from attnprobe.models.base import Unit
from attnprobe.models.encoders import AverageEncoder
from attnprobe.probes.correlation import Correlation
from tests.models.test_hierarchical import SENTENCES, han, with_sentences
from tests.probes.tables import values
from tests.toys import predict, toy_batch, toy_classifier, toy_readout

ENCODERS = ["lstm", "cnn", "average", "transformer"]
EVEN_LENGTHS = [[2, 3, 1, 4]]


def gathering(encoder="lstm"):
    """A classifier over words, whose attention is looked at over sentences."""
    return toy_classifier(encoder, spread=4.0, classes=3, unit=Unit.SENTENCE).double()


def without_attention():
    """A classifier of even attention whose words have no context: its logits are the mean over the
    words of what each one says."""
    encoder = partial(AverageEncoder, hidden_size=12)
    classifier = toy_classifier(encoder, classes=3, unit=Unit.SENTENCE)
    with torch.no_grad():
        classifier.attention.score.weight.zero_()
    return classifier.double()


def subject_of(classifier, batch):
    outputs, readout = toy_readout(classifier, batch)
    return Subject(classifier, batch, outputs, readout)


def probability_of_words(classifier, batch, row, keep):
    """The prediction of one text's words at `keep`, as a text of its own with its sentences."""
    words = batch.ids[row, keep].tolist()
    sentences = batch.sentence[row, keep].tolist()
    single = toy_batch([len(words)])
    single.ids = torch.tensor([[2, *words, 3]])
    single.sentence = torch.tensor([[-1, *sentences, -1]])
    [probability] = predict(classifier, single)
    return probability


CLASSIFIERS = [gathering(encoder) for encoder in ENCODERS]


@pytest.mark.parametrize("classifier", [*CLASSIFIERS, han("rnn").double()])
def test_leave_one_out_is_a_loop_over_texts_without_a_sentence(classifier):
    batch = with_sentences(padding=3)
    outputs, readout = toy_readout(classifier, batch)
    originals = readout.prediction()
    removals = leave_one_out(classifier, batch, outputs)
    assert removals.distance.shape == outputs.content.shape
    assert removals.distance.nan_to_num().max() > 1e-3

    distances = torch.full_like(removals.distance, torch.nan)
    for row, text in enumerate(SENTENCES):
        original = originals[row]
        for place in range(len(text)):
            is_elsewhere = batch.sentence[row] != place
            rest = batch.content[row] & is_elsewhere
            if rest.any():
                shortened = probability_of_words(classifier, batch, row, rest)
                change = shortened - original
                distances[row, place] = change.abs().sum() / 2
                flips = shortened.argmax() != original.argmax()
                assert removals.flips[row, place] == flips
    assert_close(removals.distance, distances, atol=1e-9, rtol=0, equal_nan=True)


def test_without_context_and_under_even_weights_a_deletion_is_a_mean_over_the_other_words():
    classifier = without_attention()
    batch = with_sentences(EVEN_LENGTHS)
    outputs, readout = toy_readout(classifier, batch)
    vectors = classifier.inputs(batch)
    states, *_ = classifier.encoder.states(vectors, batch)
    [word_logits], _ = classifier.decoder.position_logits(states, None, None)
    [original] = readout.prediction()
    [distances] = leave_one_out(classifier, batch, outputs).distance
    for place, distance in enumerate(distances):
        is_elsewhere = batch.sentence[0] != place
        rest = batch.content[0] & is_elsewhere
        mean_logits = word_logits[rest].mean(0)
        change = mean_logits.softmax(-1) - original
        expected = change.abs().sum() / 2
        assert_close(distance, expected)


def test_equal_neighbours_have_one_number():
    classifier = gathering()
    batch = with_sentences([[2, 2, 3]])
    ids = batch.ids.clone()
    ids[0, 3:5] = ids[0, 1:3]
    batch = replace(batch, ids=ids)
    outputs, _ = toy_readout(classifier, batch)
    [distance] = leave_one_out(classifier, batch, outputs).distance
    assert distance[0] == distance[1]
    assert distance[0] != distance[2]


@pytest.fixture
def same_words():
    """A text of four sentences of one word, repeated, and a model without attention and context."""
    batch = with_sentences(EVEN_LENGTHS)
    ids = torch.where(batch.content, 7, batch.ids)
    return without_attention(), replace(batch, ids=ids)


def test_where_all_words_are_the_same_no_deletion_does_anything(same_words):
    classifier, batch = same_words
    outputs, _ = toy_readout(classifier, batch)
    [distance] = leave_one_out(classifier, batch, outputs).distance
    nothing = torch.zeros_like(distance)
    assert_close(distance, nothing, atol=1e-12, rtol=0)


def test_where_all_words_are_the_same_gradients_are_lengths(same_words):
    [scores] = gradients(*same_words).embedding
    shares = scores / scores.sum()
    share_of_words = torch.tensor([0.2, 0.3, 0.1, 0.4], dtype=torch.float64)
    assert_close(shares, share_of_words)


def slope_of_sentence(classifier, batch, attention, row, place):
    """By how much the prediction moves, summed over the classes, where a factor on the words of
    this sentence grows from 1: by central differences."""
    step = 1e-6
    vectors = classifier.inputs(batch).detach()
    in_sentence = batch.sentence[row] == place

    def prediction(factor):
        scaled = vectors.clone()
        scaled[row, in_sentence] *= factor
        with torch.no_grad():
            outputs = classifier.outputs_from(batch, scaled, attention)
        return probabilities(outputs.logits, classifier.task)[row]

    change = prediction(1 + step) - prediction(1 - step)
    slope = change / (2 * step)
    return slope.abs().sum()


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("held", [True, False])
def test_gradients_are_finite_differences_of_a_factor_on_the_words_of_a_sentence(encoder, held):
    classifier = gathering(encoder)
    batch = with_sentences(padding=2)
    outputs, _ = toy_readout(classifier, batch)
    kinds = gradients(classifier, batch)
    scores = kinds.embedding if held else kinds.embedding_through_attention
    assert scores.shape == outputs.content.shape
    assert (scores[~outputs.content] == 0).all()
    attention = outputs.attention if held else None
    some_sentences = [(0, 0), (0, 2), (1, 0), (2, 2), (3, 0)]
    for row, place in some_sentences:
        slope = slope_of_sentence(classifier, batch, attention, row, place)
        assert_close(scores[row, place], slope, atol=1e-9, rtol=1e-5)


def test_words_that_cancel_within_a_sentence_give_it_no_gradient():
    classifier = without_attention()
    batch = with_sentences([[2, 2]])
    # two words whose states are opposite: the average encoder's bias is switched off
    with torch.no_grad():
        for name, parameter in classifier.encoder.named_parameters():
            if "bias" in name:
                parameter.zero_()
        classifier.embedding.weight[8] = -classifier.embedding.weight[9]
    ids = batch.ids.clone()
    ids[0, 1:5] = torch.tensor([8, 9, 9, 9])
    batch = replace(batch, ids=ids)
    first_sentence, second_sentence = gradients(classifier, batch).embedding[0]
    assert first_sentence.item() == pytest.approx(0, abs=1e-12)
    assert second_sentence > 1e-3

    classifier_over_words = toy_over_words(classifier)
    words = gradients(classifier_over_words, batch).embedding[0, 1:5]
    assert (words > 1e-3).all()


def toy_over_words(classifier):
    """The same model, looked at over words."""
    encoder = partial(AverageEncoder, hidden_size=12)
    over_words = toy_classifier(encoder, classes=3).double()
    over_words.load_state_dict(classifier.state_dict())
    return over_words


def words_subject(batch):
    """A classifier over words, whose attention is looked at over them."""
    classifier = toy_classifier(spread=4.0, classes=3).double()
    return subject_of(classifier, batch)


@pytest.mark.parametrize("operator", ["delete", "zeros", "mean", "mask", "attention"])
def test_what_is_kept_of_the_sentences_is_what_is_kept_of_their_words(operator):
    batch = with_sentences(padding=2)
    sentences = subject_of(gathering(), batch)
    words = words_subject(batch)
    generator = torch.Generator().manual_seed(3)
    shape = (5, *sentences.outputs.content.shape)
    keep = torch.rand(shape, generator=generator) < 0.5
    sentence = batch.sentence.clamp(min=0).expand(5, -1, -1)
    is_word = batch.sentence >= 0
    keep_words = keep.gather(-1, sentence) & is_word
    expected = predictions_keeping(words, keep_words, operator)
    predicted = predictions_keeping(sentences, keep, operator)
    assert_close(predicted, expected, equal_nan=True)
    assert predicted.isfinite().any()


@pytest.mark.parametrize("name", ["occlusion", "shapley_sampling", "sufficient_subset"])
def test_an_attribution_of_sentences_replaces_whole_ones(name):
    subject = subject_of(gathering(), with_sentences(padding=1))
    scores = subject.scores(name)
    assert scores.shape == subject.outputs.content.shape
    importance = subject.importance(name)
    if importance.complete:
        total = importance.total(subject)
        assert_close(scores.sum(-1), total, atol=1e-6, rtol=0)


def test_occlusion_of_a_sentence_zeroes_all_of_its_words():
    batch = with_sentences(padding=1)
    subject = subject_of(gathering(), batch)
    scores = subject.scores("occlusion")
    explained = subject.importance("occlusion").explained(subject)
    whole = explained(explained.inputs)
    for row, text in enumerate(SENTENCES):
        for place in range(len(text)):
            in_sentence = batch.sentence[row] == place
            inputs = explained.inputs.clone()
            inputs[row, in_sentence] = 0
            rest = explained(inputs)
            expected = whole[row] - rest[row]
            assert_close(scores[row, place], expected)


def test_integrated_gradients_of_sentences_add_up_and_are_sums_over_their_words():
    batch = with_sentences(padding=1)
    sentences = subject_of(gathering(), batch)
    words = words_subject(batch)
    scores = sentences.scores("integrated_gradients")
    word_scores = words.scores("integrated_gradients")
    for row, text in enumerate(SENTENCES):
        for place in range(len(text)):
            in_sentence = batch.sentence[row] == place
            expected = word_scores[row, in_sentence].sum()
            assert_close(scores[row, place], expected, atol=1e-9, rtol=1e-6)


def test_attention_of_sentences_is_correlated_with_their_gradients_and_deletions():
    lengths = [
        [4, 1, 7, 2],
        [2, 3, 1],
        [2, 2, 9, 1, 1],
    ]
    subject = subject_of(gathering(), with_sentences(lengths))
    results = values(Correlation(), subject)
    assert "tau_words_attention_gradient" not in results
    for other in ("gradient", "gradient_through_attention", "leave_one_out"):
        assert results[f"tau_attention_{other}"].isfinite().all()
