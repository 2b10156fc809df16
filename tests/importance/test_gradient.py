from functools import partial

import pytest
import torch

from attnprobe.core.batch import Task, probabilities
from attnprobe.importance.gradients import gradients
from attnprobe.measures import kendall_tau
from tests.importance.leave_one_out import loops
from tests.toys import ATTENTIONS, ENCODERS, rows_of

subject = partial(loops.subject, lengths=[6, 1, 9, 4])


def number(classifier, batch, embeddings, row, target, attention=None):
    """One probability of one text as a plain function of its word vectors."""
    hidden = classifier.encoder.states(embeddings, batch)[0]
    query = classifier.query(batch, hidden)
    if attention is None:
        _, attention = classifier.attend(hidden, batch.content, query)
    logits = classifier.decoder.decode(hidden, attention, query, batch.candidates)
    return probabilities(logits, classifier.task)[row, target]


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("held", [True, False])
def test_gradient_times_word_vector_by_finite_differences(encoder, held):
    classifier, batch, outputs = subject(encoder)
    kinds = gradients(classifier, batch)
    scores = kinds.embedding if held else kinds.embedding_through_attention
    attention = outputs.attention if held else None
    vectors = classifier.embedding(batch.ids).detach()
    small = 1e-6
    for row, position in ((0, 1), (0, 4), (2, 9), (3, 2)):
        changed = []
        for sign in (1, -1):
            # along the word vector itself: d/ds ŷ((1 + s) e) = e · ∂ŷ/∂e
            moved = vectors.clone()
            moved[row, position] *= 1 + sign * small
            with torch.no_grad():
                changed.append(number(classifier, batch, moved, row, 1, attention))
        expected = ((changed[0] - changed[1]) / (2 * small)).abs()
        torch.testing.assert_close(scores[row, position], expected, atol=1e-9, rtol=1e-5)
    assert (scores[~batch.content] == 0).all()


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_gradient_times_state_with_the_attention_fixed_by_hand(attention):
    classifier, batch, outputs = subject(attention=attention)
    weight = classifier.decoder.output.weight[0]
    p = outputs.logits.softmax(-1)[:, 1:]
    expected = (p * (1 - p) * outputs.attention * (outputs.hidden @ weight)).abs()
    torch.testing.assert_close(gradients(classifier, batch).hidden, expected.detach())


def test_what_the_paper_stores_for_the_states_is_the_attention_itself():
    classifier, batch, outputs = subject(question=True)
    hidden = outputs.hidden.clone().requires_grad_()
    logits = classifier.decoder.decode(hidden, outputs.attention, outputs.query)
    (gradient,) = torch.autograd.grad(logits.softmax(-1)[:, 2].sum(), hidden)
    tau = kendall_tau(gradient.sum(-1).abs(), outputs.attention, batch.content)
    torch.testing.assert_close(tau[[0, 2, 3]], torch.ones(3).double())


@pytest.mark.parametrize(
    ("classes", "task"), [(3, Task.SINGLE_LABEL), (2, Task.MULTI_LABEL), (3, Task.MULTI_LABEL)]
)
def test_more_outputs_are_summed_in_absolute_value(classes, task):
    classifier, batch, outputs = subject(classes=classes, task=task)
    vectors = classifier.embedding(batch.ids).detach().requires_grad_()
    expected = 0
    for target in range(classes):
        (gradient,) = torch.autograd.grad(
            number(classifier, batch, vectors, 2, target, outputs.attention), vectors
        )
        expected = expected + (gradient * vectors).sum(-1).abs()
    torch.testing.assert_close(
        gradients(classifier, batch).embedding[2, 1:10], expected[2, 1:10].detach()
    )


def test_an_instance_with_a_question_is_asked_about_its_predicted_class():
    classifier, batch, _ = subject(question=True)
    batch.candidates = torch.tensor([[True, True, False], *[[True, True, True]] * 3])
    outputs = classifier(batch)
    vectors = classifier.embedding(batch.ids).detach().requires_grad_()
    scores = gradients(classifier, batch).embedding_through_attention
    for row in range(4):
        decision = int(outputs.logits[row].argmax())
        (gradient,) = torch.autograd.grad(
            number(classifier, batch, vectors, row, decision), vectors
        )
        expected = (gradient * vectors).sum(-1).abs().masked_fill(~batch.content, 0)
        torch.testing.assert_close(scores[row], expected[row].detach())


@pytest.mark.parametrize("encoder", ENCODERS)
def test_batch_and_padding_change_no_number(encoder):
    classifier, batch, outputs = subject(encoder)
    _, padded, wide = subject(encoder, padding=3)
    for name, values in vars(gradients(classifier, batch)).items():
        torch.testing.assert_close(
            getattr(gradients(classifier, padded), name)[:, :11], values, atol=1e-12, rtol=1e-9
        )
        for row in range(4):
            single = getattr(gradients(classifier, rows_of(batch, [row])), name)[0]
            torch.testing.assert_close(single, values[row, : len(single)], atol=1e-12, rtol=1e-9)
    torch.testing.assert_close(
        classifier.readout(padded, wide).gradient()[:, :11],
        classifier.readout(batch, outputs).gradient(),
    )


def test_works_where_gradients_are_off_in_float32_and_touches_no_parameter():
    classifier, batch, _ = subject()
    expected = gradients(classifier, batch).embedding
    classifier.float()
    before = [weight.clone() for weight in classifier.parameters()]
    with torch.no_grad():
        kinds = gradients(classifier, batch)
        assert not torch.is_grad_enabled()
    torch.testing.assert_close(kinds.embedding.double(), expected, atol=1e-6, rtol=1e-4)
    assert not kinds.embedding.requires_grad
    assert all(weight.grad is None and weight.requires_grad for weight in classifier.parameters())
    assert all(torch.equal(a, b) for a, b in zip(before, classifier.parameters(), strict=True))
