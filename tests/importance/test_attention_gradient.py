import torch

from attnprobe.core.batch import probabilities
from tests.importance.subjects import subject_of


def test_equals_autograd_on_free_weights():
    """More of it in test_gradient.py, beside the other gradients."""
    subject = subject_of()
    weights = subject.outputs.attention.detach().clone().requires_grad_()
    p = probabilities(subject.classifier.decode(subject.outputs.hidden, weights), subject.classifier.task)
    (expected,) = torch.autograd.grad(p.amax(-1).sum(), weights)
    torch.testing.assert_close(
        subject.scores("attention_gradient"), expected.masked_fill(~subject.outputs.content, 0), atol=1e-12, rtol=1e-9
    )
