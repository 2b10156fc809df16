from functools import partial

import pytest
import torch

from attnprobe.errors import UserError
from attnprobe.models.attention import AdditiveAttention
from attnprobe.models.construction import build
from attnprobe.models.decoders import QuestionDecoder
from attnprobe.models.encoders import AverageEncoder, CNNEncoder, GRUEncoder, LSTMEncoder, NoEncoder
from tests.toys import recipe


def test_the_setting_that_a_class_complains_of_is_named():
    with pytest.raises(UserError) as caught:
        build("model.encoder", partial(torch.nn.Dropout, p=3, inplace=False))
    assert str(caught.value).startswith(
        "model.encoder.p=3: torch.nn.modules.dropout.Dropout cannot be constructed with p, "
    )
    assert "(ValueError: dropout probability has to be between 0 and 1, but got 3)" in str(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_argument_that_a_class_does_not_take_is_named():
    with pytest.raises(
        UserError,
        match=r"^model.decoder: .*\.Linear cannot be constructed with in_features, classes",
    ):
        build("model.decoder", partial(torch.nn.Linear), in_features=2, classes=3)


def test_a_class_that_is_passed_in_python_raises_as_it_is():
    with pytest.raises(ValueError, match="probability") as caught:
        build("model.encoder", torch.nn.Dropout, p=3)
    assert not isinstance(caught.value, UserError)


def test_what_is_said_to_the_user_already_is_said_as_it_is():
    def refuse(size):
        raise UserError(f"size={size}: expected another one")

    with pytest.raises(UserError, match=r"^size=3: expected another one$"):
        build("model.encoder", partial(refuse, size=3))


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: LSTMEncoder(8, hidden_size=0), r"model\.encoder\.hidden_size=0: expected at least 1"),
        (lambda: GRUEncoder(8, dropout=1.0), r"model\.encoder\.dropout=1\.0: expected a share"),
        (lambda: AverageEncoder(8, hidden_size=-1), r"model\.encoder\.hidden_size=-1"),
        (lambda: NoEncoder(8, dropout=-0.1), r"model\.encoder\.dropout=-0\.1"),
        (lambda: CNNEncoder(8, kernel_sizes=[]), r"model\.encoder\.kernel_sizes=\[\]"),
        (lambda: CNNEncoder(8, kernel_sizes=[3, 4]), r"kernel_sizes=\[3, 4\].*odd"),
        (lambda: CNNEncoder(8, filters=0), r"model\.encoder\.filters=0"),
        (lambda: AdditiveAttention(8, inner_size=0), r"model\.attention\.inner_size=0"),
        (lambda: QuestionDecoder(8, 3, query_size=8, inner_size=0), r"model\.decoder\.inner_size=0"),
        (lambda: recipe(skip_epochs=-1), r"training\.recipe\.skip_epochs=-1"),
        (lambda: recipe(attention_weight_decay=-1.0), r"attention_weight_decay=-1\.0"),
    ],
)
def test_wrong_values_are_refused_by_the_constructors_themselves(made, message):
    with pytest.raises(UserError, match=message):
        made()
