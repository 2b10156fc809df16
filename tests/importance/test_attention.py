import torch

from tests.importance.subjects import subject_of


def test_is_what_the_forward_pass_says():
    subject = subject_of()
    weights = subject.classifier(subject.batch).attention.double()
    torch.testing.assert_close(subject.scores("attention"), weights)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3).double())
