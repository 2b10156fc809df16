import torch

from attnprobe.importance.gradients import gradients
from attnprobe.probes.gradient import Gradient
from tests.probes.tables import measured, subject_of
from tests.toys import toy_batch, toy_classifier


def test_shares_of_every_text_sum_to_one_over_its_content_positions():
    classifier = toy_classifier(spread=3)
    batch = toy_batch([5, 1, 3])
    found = measured(Gradient(), subject_of(classifier, batch))
    raw = gradients(classifier, batch)
    torch.testing.assert_close(
        found["gradient"].value, raw.embedding / raw.embedding.sum(-1, keepdim=True)
    )
    for metric in (
        "gradient",
        "gradient_through_attention",
        "hidden_gradient",
        "hidden_gradient_through_attention",
    ):
        torch.testing.assert_close(found[metric].value.sum(-1), torch.ones(3).double())
        assert (~found[metric].step.isnan()).sum(-1).tolist() == [5, 1, 3]
    assert found["max_gradient"].value.tolist() == found["gradient"].value.amax(-1).tolist()
    assert found["max_gradient"].value[1] == 1
    assert (found["attention_gradient"].value < 0).any()


def test_a_prediction_that_does_not_react_has_undefined_shares():
    classifier = toy_classifier()
    batch = toy_batch([4])
    with torch.no_grad():
        classifier.decoder.output.weight.zero_()
    found = measured(Gradient(), subject_of(classifier, batch))
    assert found["gradient"].value[batch.content].isnan().all()
    assert found["max_gradient"].value.isnan().all()
