"""What is read from the source agrees with what Python says after importing it."""

import inspect
from importlib import import_module

import pytest

from attnprobe.schema.ranges import CLASSES
from attnprobe.schema.source import constructor, home_of, names_in

OURS = sorted(name for name in CLASSES if name.startswith("attnprobe."))
OTHERS = ["torch.optim.Adam", "torch.optim.AdamW", "torch.optim.SGD", "lightning.Trainer"]


@pytest.mark.parametrize("target", [*OURS, *OTHERS])
def test_a_constructor_has_the_arguments_that_inspect_finds(target):
    module, name = home_of(target)
    signature = inspect.signature(getattr(import_module(module), name))
    made = constructor(target)
    assert made is not None
    assert list(made.arguments) == [
        one.name for one in signature.parameters.values() if one.kind is not one.VAR_KEYWORD
    ]
    required = {name for name, argument in made.arguments.items() if argument.required}
    assert required == {one.name for one in signature.parameters.values() if one.default is one.empty}


@pytest.mark.parametrize(
    "constant", ["attnprobe.data.text.CLEANING", "attnprobe.data.text.TOKENIZERS", "attnprobe.data.text.TOKEN_RULES",
                 "attnprobe.data.text.SENTENCES", "attnprobe.studies.wiegreffe.TESTS", "attnprobe.data.files.SPLITS"]
)  # fmt: skip
def test_choices_are_those_of_the_constant(constant):
    module, name = home_of(constant)
    assert names_in(constant) == tuple(getattr(import_module(module), name))
