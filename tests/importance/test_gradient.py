from functools import partial

import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.batch import Task, probabilities
from attnprobe.importance.gradients import gradients
from attnprobe.measures import kendall_tau
from tests.importance.leave_one_out import loops
from tests.toys import ATTENTIONS, ENCODERS, rows_of

subject = partial(loops.subject, lengths=[6, 1, 9, 4])


def number(classifier, batch, embeddings, row, target, attention=None):
    """One probability of one text as a plain function of its word vectors."""
    hidden, *_ = classifier.encoder.states(embeddings, batch)
    query = classifier.query(batch, hidden)
    if attention is None:
        _, attention = classifier.attend(hidden, batch.content, query)
    logits = classifier.decoder.decode(hidden, attention, query, batch.candidates)
    prediction = probabilities(logits, classifier.task)
    return prediction[row, target]


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("held", [True, False])
def test_gradient_times_word_vector_by_finite_differences(encoder, held):
    """Along the word vector itself: d/ds ŷ((1 + s) e) = e · ∂ŷ/∂e."""
    classifier, batch, outputs = subject(encoder)
    kinds = gradients(classifier, batch)
    scores = kinds.embedding if held else kinds.embedding_through_attention
    assert (scores[~batch.content] == 0).all()
    attention = outputs.attention if held else None
    vectors = classifier.embedding(batch.ids).detach()
    step = 1e-6
    some_words = [(0, 1), (0, 4), (2, 9), (3, 2)]
    for row, position in some_words:
        longer = vectors.clone()
        longer[row, position] *= 1 + step
        shorter = vectors.clone()
        shorter[row, position] *= 1 - step
        with torch.no_grad():
            above = number(classifier, batch, longer, row, 1, attention)
            below = number(classifier, batch, shorter, row, 1, attention)
        slope = (above - below) / (2 * step)
        score = scores[row, position]
        assert_close(score, slope.abs(), atol=1e-9, rtol=1e-5)


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_gradient_times_state_with_the_attention_fixed_by_hand(attention):
    """Of p = σ(Σ_t α_t w · h_t + b): h_t · ∂p/∂h_t = p (1 − p) α_t w · h_t."""
    classifier, batch, outputs = subject(attention=attention)
    weight = classifier.decoder.output.weight[0]
    p = outputs.logits.softmax(-1)[:, 1:]
    position_logit = outputs.hidden @ weight
    slope_of_sigmoid = p * (1 - p)
    expected = slope_of_sigmoid * outputs.attention * position_logit
    scores = gradients(classifier, batch).hidden
    assert_close(scores, expected.abs().detach())


@pytest.mark.parametrize("encoder", ENCODERS)
def test_padding_changes_no_number(encoder):
    classifier, batch, outputs = subject(encoder)
    _, padded, padded_outputs = subject(encoder, padding=3)
    kinds = gradients(classifier, batch)
    padded_kinds = gradients(classifier, padded)
    for name, expected in vars(kinds).items():
        scores = getattr(padded_kinds, name)[:, :11]
        assert_close(scores, expected, atol=1e-12, rtol=1e-9)
    readout = classifier.readout(batch, outputs)
    padded_readout = classifier.readout(padded, padded_outputs)
    gradient = readout.gradient()
    padded_gradient = padded_readout.gradient()
    assert_close(padded_gradient[:, :11], gradient)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_text_alone_has_the_numbers_that_it_has_in_its_batch(encoder):
    classifier, batch, _ = subject(encoder)
    batch_kinds = gradients(classifier, batch)
    for row in range(4):
        single_kinds = gradients(classifier, rows_of(batch, [row]))
        for name, [scores] in vars(single_kinds).items():
            length = len(scores)
            expected = getattr(batch_kinds, name)[row, :length]
            assert_close(scores, expected, atol=1e-12, rtol=1e-9)


@pytest.fixture
def without_gradients():
    """A classifier in float32 and a batch, where PyTorch's gradients are off."""
    classifier, batch, _ = subject()
    with torch.no_grad():
        yield classifier.float(), batch


def test_works_in_float32_where_gradients_are_off(without_gradients):
    kinds = gradients(*without_gradients)
    assert not torch.is_grad_enabled()
    assert not kinds.embedding.requires_grad
    classifier, batch, _ = subject()
    with torch.enable_grad():
        expected = gradients(classifier, batch).embedding
    assert_close(kinds.embedding.double(), expected, atol=1e-6, rtol=1e-4)


def test_no_parameter_is_touched(without_gradients):
    classifier, _ = without_gradients
    before = [weight.clone() for weight in classifier.parameters()]
    gradients(*without_gradients)
    for weight, weight_before in zip(classifier.parameters(), before, strict=True):
        assert torch.equal(weight, weight_before)
        assert weight.requires_grad
        assert weight.grad is None


def test_what_the_paper_stores_for_the_states_is_the_attention_itself():
    classifier, batch, outputs = subject(question=True)
    hidden = outputs.hidden.clone().requires_grad_()
    logits = classifier.decoder.decode(hidden, outputs.attention, outputs.query)
    probability = logits.softmax(-1)[:, 2]
    (gradient,) = torch.autograd.grad(probability.sum(), hidden)
    stored_by_the_paper = gradient.sum(-1).abs()
    tau = kendall_tau(stored_by_the_paper, outputs.attention, batch.content)
    tau_of_several_words = tau[[0, 2, 3]]
    assert_close(tau_of_several_words, torch.ones(3).double())


@pytest.mark.parametrize(
    ("classes", "task"),
    [
        (3, Task.SINGLE_LABEL),
        (2, Task.MULTI_LABEL),
        (3, Task.MULTI_LABEL),
    ],
)
def test_more_outputs_are_summed_in_absolute_value(classes, task):
    classifier, batch, outputs = subject(classes=classes, task=task)
    vectors = classifier.embedding(batch.ids).detach().requires_grad_()
    row = 2
    content = batch.content[row]
    expected = torch.zeros(9, dtype=torch.float64)
    for target in range(classes):
        probability = number(classifier, batch, vectors, row, target, outputs.attention)
        (gradient,) = torch.autograd.grad(probability, vectors)
        product = (gradient * vectors).detach().sum(-1)
        expected += product[row, content].abs()
    kinds = gradients(classifier, batch)
    scores = kinds.embedding[row, content]
    assert_close(scores, expected)


def test_an_instance_with_a_question_is_asked_about_its_predicted_class():
    classifier, batch, _ = subject(question=True)
    batch.candidates = torch.ones(4, 3, dtype=torch.bool)
    batch.candidates[0, 2] = False
    decisions = classifier(batch).logits.argmax(-1)
    vectors = classifier.embedding(batch.ids).detach().requires_grad_()
    scores = gradients(classifier, batch).embedding_through_attention
    for row, decision in enumerate(decisions):
        probability = number(classifier, batch, vectors, row, decision)
        (gradient,) = torch.autograd.grad(probability, vectors)
        product = (gradient * vectors).detach().sum(-1)
        content = batch.content[row]
        expected = torch.where(content, product[row].abs(), 0)
        assert_close(scores[row], expected)
