from functools import partial

import pytest
import torch

from attnprobe.errors import UserError
from attnprobe.models.construction import build


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
