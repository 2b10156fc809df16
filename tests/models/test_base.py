from functools import partial

import pytest
import torch

from attnprobe.core.errors import UserError
from attnprobe.models.base import Unit, build
from attnprobe.models.decoders import QuestionDecoder
from attnprobe.models.encoders import CNNEncoder, GRUEncoder, LSTMEncoder
from tests.toys import ENCODERS, recipe, toy_batch, toy_classifier


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


def test_the_setting_that_a_class_complains_of_is_named():
    with pytest.raises(UserError) as caught:
        build("model.encoder", partial(torch.nn.Dropout, p=3, inplace=False))
    assert str(caught.value).startswith("model.encoder.p=3: torch.nn.modules.dropout.Dropout cannot be constructed")
    assert "but got 3" in str(caught.value)
    with pytest.raises(UserError, match=r"^model.decoder: .*\.Linear cannot be constructed with in_features, classes"):
        build("model.decoder", partial(torch.nn.Linear), in_features=2, classes=3)


def test_what_is_passed_in_python_or_said_to_the_user_already_is_raised_as_it_is():
    with pytest.raises(ValueError, match="probability") as caught:
        build("model.encoder", torch.nn.Dropout, p=3)
    assert not isinstance(caught.value, UserError)

    def refuse(size):
        raise UserError(f"size={size}: expected another one")

    with pytest.raises(UserError, match=r"^size=3: expected another one$"):
        build("model.encoder", partial(refuse, size=3))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: LSTMEncoder(8, hidden_size=0), r"model\.encoder\.hidden_size=0: expected .* at least 1"),
        (lambda: GRUEncoder(8, dropout=1.0), r"model\.encoder\.dropout=1\.0: expected .* below 1"),
        (lambda: CNNEncoder(8, kernel_sizes=[]), r"model\.encoder\.kernel_sizes=\[\]"),
        (lambda: CNNEncoder(8, kernel_sizes=[3, 4]), r"kernel_sizes=\[3, 4\].*odd"),
        (lambda: QuestionDecoder(8, 3, query_size=8, inner_size=0), r"model\.decoder\.inner_size=0"),
        (lambda: recipe(skip_epochs=-1), r"training\.recipe\.skip_epochs=-1"),
        (lambda: recipe(attention_weight_decay=-1.0), r"attention_weight_decay=-1\.0"),
    ],
)
def test_wrong_values_are_refused_by_the_constructors_themselves(made, message):
    with pytest.raises(UserError, match=message):
        made()
