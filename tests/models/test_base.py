import pytest
import torch

from attnprobe.models.base import Unit
from tests.models.test_hierarchical import han, with_sentences
from tests.toys import ENCODERS, rows_of, toy_batch, toy_classifier


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_classifier_answers_what_probes_may_ask(encoder):
    classifier, batch = toy_classifier(encoder).double(), toy_batch([5, 2, 4])
    own = classifier(batch)
    again = classifier.outputs_from(batch, classifier.inputs(batch))
    torch.testing.assert_close(again.logits, own.logits)
    other = torch.where(batch.content, 1.0, 0.0).double()
    other = other / other.sum(-1, keepdim=True)
    replaced = classifier.outputs_from(batch, classifier.inputs(batch), other)
    torch.testing.assert_close(replaced.attention, other)
    torch.testing.assert_close(replaced.logits.softmax(-1), classifier.readout(batch, own).predict(other))
    assert not torch.equal(replaced.logits, own.logits)
    shared = classifier.under(batch, classifier.inputs(batch), own, other)
    torch.testing.assert_close(shared.logits, replaced.logits)
    torch.testing.assert_close(shared.attention, other)
    assert classifier.unit is Unit.WORD
    assert classifier.precision is torch.float64
    assert list(classifier.sites) == [""]


def test_without_a_token_is_the_text_without_it():
    classifier, batch = toy_classifier(), toy_batch([5, 2, 4])
    text = classifier.without(batch, torch.tensor([2, 0]), torch.tensor([3, 1]))
    ids = rows_of(batch, [2]).ids[0].tolist()
    assert text.ids[0, :5].tolist() == ids[:3] + ids[4:]
    assert text.example_id.tolist() == [102, 100]


def test_a_hierarchical_model_attends_to_sentences():
    classifier, batch = han("noenc"), with_sentences()
    assert classifier.unit is Unit.SENTENCE
    assert classifier(batch).attention.shape[1] == 4
