import torch
from captum.attr import Saliency

from tests.importance.attributions import additive_subject, contextual_subject, weights


def test_on_an_additive_model_every_word_has_the_gradient_of_the_class():
    subject = additive_subject()
    content, predicted = subject.batch.content, subject.outputs.logits.argmax(-1)
    length = weights(subject.classifier)[predicted].norm(dim=-1) / content.sum(-1)
    torch.testing.assert_close(subject.scores("saliency"), (content * length[:, None]).double())


def test_it_is_captums_direct_call():
    subject = contextual_subject()
    model, batch = subject.classifier, subject.batch
    inputs = model.inputs(batch).detach().requires_grad_()
    direct = Saliency(lambda vectors: model.outputs_from(batch, vectors).logits)
    gradient = direct.attribute(inputs, target=subject.outputs.logits.argmax(-1), abs=False)
    torch.testing.assert_close(subject.scores("saliency"), (gradient.norm(dim=-1) * batch.content).detach())
