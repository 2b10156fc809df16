from functools import partial

import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.models.base import build
from attnprobe.models.encoders import CNNEncoder
from tests.toys import ENCODERS, toy_batch, toy_classifier


@pytest.mark.parametrize("encoder", ENCODERS)
def test_other_vectors_and_another_attention_are_followed_to_the_prediction(encoder):
    classifier = toy_classifier(encoder).double()
    batch = toy_batch([5, 2, 4])
    outputs = classifier(batch)
    vectors = classifier.inputs(batch)
    assert_close(classifier.outputs_from(batch, vectors).logits, outputs.logits)

    even = batch.content.double() / batch.content.sum(-1, keepdim=True)
    replaced = classifier.outputs_from(batch, vectors, even)
    assert_close(replaced.attention, even)
    prediction = classifier.readout(batch, outputs).predict(even)
    assert_close(replaced.logits.softmax(-1), prediction)
    assert not torch.equal(replaced.logits, outputs.logits)
    under = classifier.under(batch, vectors, outputs, even)
    assert_close(under.logits, replaced.logits)


@pytest.mark.parametrize(
    ("place", "part", "facts", "message"),
    [
        (
            "model.encoder",
            partial(torch.nn.Dropout, p=3, inplace=False),
            {},
            r"^model.encoder.p=3: .*\.Dropout cannot be constructed .*but got 3",
        ),
        (
            "model.decoder",
            partial(torch.nn.Linear),
            {"in_features": 2, "classes": 3},
            r"^model.decoder: .*\.Linear cannot be constructed with in_features, classes",
        ),
    ],
)
def test_the_setting_that_a_class_complains_of_is_named(place, part, facts, message):
    with pytest.raises(UserError, match=message):
        build(place, part, **facts)


def test_a_message_that_is_for_the_user_already_is_raised_as_it_is():
    with pytest.raises(UserError, match=r"^model.encoder.kernel_sizes=\[3, 4\]: .*expected .*odd"):
        build("model.encoder", partial(CNNEncoder, 8, kernel_sizes=[3, 4]))


def test_what_a_class_that_is_passed_in_python_raises_is_raised_as_it_is():
    with pytest.raises(ValueError, match="probability") as caught:
        build("model.encoder", torch.nn.Dropout, p=3)
    assert not isinstance(caught.value, UserError)
