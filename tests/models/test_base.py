from functools import partial

import pytest
import torch

from attnprobe.core.errors import UserError
from attnprobe.models.base import build
from attnprobe.models.encoders import CNNEncoder
from tests.toys import ENCODERS, toy_batch, toy_classifier


@pytest.mark.parametrize("encoder", ENCODERS)
def test_other_vectors_and_another_attention_are_followed_to_the_prediction(encoder):
    classifier = toy_classifier(encoder).double()
    batch = toy_batch([5, 2, 4])
    own = classifier(batch)
    vectors = classifier.inputs(batch)
    torch.testing.assert_close(classifier.outputs_from(batch, vectors).logits, own.logits)
    even = batch.content.double() / batch.content.sum(-1, keepdim=True)
    replaced = classifier.outputs_from(batch, vectors, even)
    torch.testing.assert_close(replaced.attention, even)
    torch.testing.assert_close(
        replaced.logits.softmax(-1), classifier.readout(batch, own).predict(even)
    )
    assert not torch.equal(replaced.logits, own.logits)
    torch.testing.assert_close(classifier.under(batch, vectors, own, even).logits, replaced.logits)


def test_the_setting_that_a_class_complains_of_is_named():
    with pytest.raises(
        UserError, match=r"^model.encoder.p=3: .*\.Dropout cannot be constructed .*but got 3"
    ):
        build("model.encoder", partial(torch.nn.Dropout, p=3, inplace=False))
    with pytest.raises(
        UserError,
        match=r"^model.decoder: .*\.Linear cannot be constructed with in_features, classes",
    ):
        build("model.decoder", partial(torch.nn.Linear), in_features=2, classes=3)
    # what is passed in Python, or said to the user already, is raised as it is
    with pytest.raises(UserError, match=r"^model.encoder.kernel_sizes=\[3, 4\]: .*expected .*odd"):
        build("model.encoder", partial(CNNEncoder, 8, kernel_sizes=[3, 4]))
    with pytest.raises(ValueError, match="probability") as caught:
        build("model.encoder", torch.nn.Dropout, p=3)
    assert not isinstance(caught.value, UserError)
