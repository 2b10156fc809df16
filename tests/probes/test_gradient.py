import pytest
import torch
from torch.testing import assert_close

from attnprobe.importance.gradients import gradients
from attnprobe.probes.gradient import Gradient
from tests.probes.tables import measured, subject_of
from tests.toys import toy_batch, toy_classifier

METRICS = (
    "gradient",
    "gradient_through_attention",
    "hidden_gradient",
    "hidden_gradient_through_attention",
)


def examined():
    classifier = toy_classifier(spread=3)
    batch = toy_batch([5, 1, 3])
    return classifier, batch, measured(Gradient(), subject_of(classifier, batch))


@pytest.mark.parametrize("metric", METRICS)
def test_shares_of_every_text_sum_to_one_over_its_content_positions(metric):
    _, _, numbers = examined()
    assert_close(numbers[metric].value.sum(-1), torch.ones(3).double())
    assert (~numbers[metric].step.isnan()).sum(-1).tolist() == [5, 1, 3]


def test_the_gradient_is_filed_as_a_share_of_its_sum_and_the_largest_share_beside_it():
    classifier, batch, numbers = examined()
    raw = gradients(classifier, batch).embedding
    assert_close(numbers["gradient"].value, raw / raw.sum(-1, keepdim=True))
    largest = numbers["gradient"].value.amax(-1)
    assert numbers["max_gradient"].value.tolist() == largest.tolist()
    assert numbers["max_gradient"].value[1] == 1


def test_the_gradient_by_the_weight_keeps_its_sign():
    _, _, numbers = examined()
    assert (numbers["attention_gradient"].value < 0).any()


def test_a_prediction_that_does_not_react_has_undefined_shares():
    classifier = toy_classifier()
    batch = toy_batch([4])
    with torch.no_grad():
        classifier.decoder.output.weight.zero_()
    numbers = measured(Gradient(), subject_of(classifier, batch))
    assert numbers["gradient"].value[batch.content].isnan().all()
    assert numbers["max_gradient"].value.isnan().all()
