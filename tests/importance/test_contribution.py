import pytest
import torch

from tests.importance.subjects import LENGTHS, subject_of


def test_the_contributions_add_up_to_the_margin_of_the_decision():
    """An independent check: Σ_t α_t (z_t[c] − z_t[k]) is the difference of the two largest logits."""
    subject = subject_of(classes=4)
    largest = subject.classifier(subject.batch).logits.double().sort(-1, descending=True).values
    total = subject.scores("contribution").masked_fill(~subject.outputs.content, 0).sum(-1)
    torch.testing.assert_close(total, largest[:, 0] - largest[:, 1])


def test_equals_the_decoder_at_each_state():
    subject = subject_of(classes=4)
    scores, logits = subject.scores("contribution").detach(), subject.outputs.logits
    decoder = subject.classifier.decoder
    for row, length in enumerate(LENGTHS):
        chosen, other = logits[row].argsort(descending=True)[:2].tolist()
        for t in range(1, length + 1):
            z = decoder(subject.outputs.hidden[row, t])
            expected = float(subject.outputs.attention[row, t] * (z[chosen] - z[other]).detach())
            assert float(scores[row, t]) == pytest.approx(expected)


def test_is_left_out_without_a_linear_decoder():
    subject = subject_of(question=True)
    assert not subject.importance("contribution").is_defined(subject)
