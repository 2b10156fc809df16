import torch

from tests.importance.attributions import additive_subject, contextual_subject, words_shares


def test_on_an_additive_model_it_is_what_speaks_for_the_class():
    """There every position has the same gradient, so that its mean is each position's own."""
    subject = additive_subject()
    torch.testing.assert_close(subject.scores("grad_cam"), words_shares(subject).clamp(min=0))


def test_it_is_the_weighted_sum_of_the_states_text_by_text():
    subject = contextual_subject()
    model = subject.classifier
    for row in range(len(subject.batch)):
        alone = subject.batch.rows(slice(row, row + 1))
        outputs = model.outputs_from(alone, model.inputs(alone))
        content, target = alone.content[0], outputs.logits[0, outputs.logits[0].argmax()]
        (gradient,) = torch.autograd.grad(target, outputs.hidden)
        weight = gradient[0, content].mean(0)
        expected = torch.stack([torch.dot(weight, state) for state in outputs.hidden[0, content]]).relu()
        torch.testing.assert_close(subject.scores("grad_cam")[row][content], expected.detach())
