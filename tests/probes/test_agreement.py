from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.special import softmax
from torch.testing import assert_close

from attnprobe.core.randomness import Draws
from attnprobe.exact.erasure import erase_each
from attnprobe.importance.base import Subject
from attnprobe.importance.gradients import gradients
from attnprobe.importance.nulls import aligned, gradients_under, removals_under
from attnprobe.measures import kendall_tau
from attnprobe.probes.agreement import Agreement
from tests.probes.tables import subject_of, values
from tests.probes.texts import Text
from tests.toys import toy_batch, toy_classifier, toy_readout


@pytest.mark.parametrize("classes", [2, 3])
def test_the_gradient_under_the_models_own_attention_is_its_gradient(classes):
    classifier = toy_classifier(spread=4, classes=classes)
    batch = toy_batch([6, 4], classes=classes)
    _, readout = toy_readout(classifier, batch)
    attentions = torch.stack([readout.attention, readout.attention.flip(0)])

    gradient, flipped_gradient = gradients_under(classifier, batch, attentions)

    expected = gradients(classifier, batch).embedding
    assert_close(gradient, expected, rtol=1e-9, atol=1e-12)
    assert not torch.equal(flipped_gradient, gradient)


@pytest.fixture(scope="module")
def without_context():
    """Texts as a model without context reads them, and what removing each word does."""
    classifier = toy_classifier("average", spread=4)
    subject = subject_of(classifier, toy_batch([6, 4, 1]))
    readout = subject.readout
    attentions = readout.attention.unsqueeze(0)
    (distances,) = removals_under(classifier, subject.batch, readout, attentions, chunk=16)
    return subject, distances


@pytest.mark.parametrize("row", [0, 1])
def test_without_context_removing_a_word_under_an_attention_is_erasing_its_weight(
    without_context, row
):
    subject, distances = without_context
    text = Text(subject, row)
    prediction = softmax(text.weights @ text.logits)
    expected = []
    for word in range(len(text.weights)):
        weights = np.delete(text.weights, word)
        logits = np.delete(text.logits, word, axis=0)
        shortened = softmax(weights @ logits / weights.sum())
        expected.append(np.abs(shortened - prediction).sum() / 2)
    assert_allclose(text.at_words(distances), expected, atol=1e-9)


def test_removing_the_only_word_is_undefined_as_erasing_it_is(without_context):
    subject, distances = without_context
    erasures = erase_each(subject.readout)
    assert distances[2, 1].isnan()
    assert distances.isnan().equal(erasures.divergence.isnan())


def test_with_context_the_shortened_text_is_encoded():
    """The third of five words is removed: place 3, after the marker."""
    classifier = toy_classifier(spread=4)
    subject = subject_of(classifier, toy_batch([5]))
    readout = subject.readout
    attentions = readout.attention.unsqueeze(0)

    (distances,) = removals_under(classifier, subject.batch, readout, attentions)

    shortened = classifier.without(subject.batch, torch.tensor([0]), torch.tensor([3]))
    remaining = readout.attention[:, [0, 1, 2, 4, 5, 6]]
    weights = remaining / remaining.sum()
    with torch.no_grad():
        outputs = classifier.outputs_from(shortened, classifier.inputs(shortened), weights)
    change = outputs.logits.softmax(-1) - readout.prediction()
    expected = change.abs().sum() / 2
    assert_close(distances[0, 3], expected, atol=1e-12, rtol=0)


def test_no_order_of_the_weights_agrees_better_than_the_aligned_one():
    content = torch.tensor([[False, True, True, True, True, False]])
    attention = torch.tensor([[0.0, 0.1, 0.4, 0.4, 0.1, 0.0]])
    scores = torch.tensor([[9.0, 3.0, 1.0, 2.0, 4.0, 9.0]])

    best = aligned(attention, scores, content)

    assert best[0].tolist() == pytest.approx([0.0, 0.4, 0.1, 0.1, 0.4, 0.0])
    highest = kendall_tau(best, scores, content)
    for weights in permutations([0.1, 0.4, 0.4, 0.1]):
        permuted = torch.tensor([[0.0, *weights, 0.0]])
        assert kendall_tau(permuted, scores, content) <= highest + 1e-6


def test_a_meaningless_attention_agrees_with_its_own_gradient_and_its_null_says_so():
    """The skill of a random attention is about 0, though its τ with the gradient is far above 0.

    Without context the gradient has the attention as a factor, and so has the null's.
    """
    classifier = toy_classifier("average", spread=0.01)
    batch = toy_batch([20] * 60)
    outputs, _ = toy_readout(classifier, batch)
    (noise,) = Draws(3, "x").normal(1, batch.content, batch.example_id)
    scores = (2 * noise).masked_fill(~batch.content, -torch.inf)
    meaningless = replace(outputs, attention=scores.softmax(-1))
    readout = classifier.readout(batch, meaningless)
    subject = Subject(classifier, batch, meaningless, readout)

    numbers = values(Agreement(share=1.0, removals=False), subject)

    tau = numbers["tau_gradient_own"].mean()
    null = numbers["tau_gradient_null"].mean()
    best = numbers["tau_gradient_best"].mean()
    skill = (tau - null) / (best - null)
    assert tau > 0.4
    assert abs(skill) < 0.1
    assert abs(numbers["tau_free_gradient"].mean()) < 0.1
