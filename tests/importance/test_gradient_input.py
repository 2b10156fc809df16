import torch
from captum.attr import InputXGradient

from tests.importance.attributions import additive_subject, contextual_subject, words_shares


def test_on_an_additive_model_it_is_what_each_word_adds():
    subject = additive_subject()
    torch.testing.assert_close(subject.scores("gradient_input"), words_shares(subject))


def test_of_two_exclusive_classes_the_difference_is_attributed():
    """One of two logits may be a constant 0: its gradient would be 0 as well."""
    subject = contextual_subject(classes=2)
    logits = subject.classifier(subject.batch).logits
    assert (logits[:, 0] == 0).all()
    assert (subject.scores("gradient_input").abs().sum(-1) > 0).all()


def test_it_is_captums_direct_call():
    subject = contextual_subject()
    model, batch = subject.classifier, subject.batch
    predicted = subject.outputs.logits.argmax(-1)
    inputs = model.inputs(batch).detach().requires_grad_()
    direct = InputXGradient(lambda vectors: model.outputs_from(batch, vectors).logits)
    expected = direct.attribute(inputs, target=predicted).sum(-1).masked_fill(~batch.content, 0)
    torch.testing.assert_close(subject.scores("gradient_input"), expected.detach())
