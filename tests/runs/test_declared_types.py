"""The types that a class's file declares are those that its settings are checked against."""

from importlib import import_module
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from attnprobe.core.settings import arguments, setting_type
from attnprobe.runs.declared_types import declared_types
from attnprobe.runs.plain_settings import SECTIONS

CONF = Path(__file__).parent.parent.parent / "conf"


def classes_of(settings):
    """Every class that settings name, at any depth."""
    if isinstance(settings, dict):
        target = settings.get("_target_")
        if isinstance(target, str) and target.startswith("attnprobe."):
            yield target
        for value in settings.values():
            yield from classes_of(value)


def named_classes():
    """Every class of attnprobe's that a file of conf/ names, and those of the sections."""
    names = set(SECTIONS.values())
    for file in CONF.rglob("*.yaml"):
        names.update(classes_of(OmegaConf.to_container(OmegaConf.load(file))))
    return sorted(names)


@pytest.mark.parametrize("target", named_classes())
def test_the_declared_types_are_those_of_the_class_itself(target):
    module, _, name = target.rpartition(".")
    checked = {
        argument: setting_type(parameter.annotation)
        for argument, parameter in arguments(getattr(import_module(module), name)).items()
    }
    declared = declared_types(target)
    assert declared == {argument: checked.get(argument) for argument in declared}


def test_most_probes_declare_what_they_take():
    probes = [target for target in named_classes() if target.startswith("attnprobe.probes.")]
    assert len(probes) >= 25
    declaring = [target for target in probes if declared_types(target)]
    assert len(declaring) >= 20
    assert {"passes", "most_passes", "texts"} <= set(declared_types("attnprobe.probes.swaps.Swaps"))


@pytest.mark.parametrize(
    "target",
    [
        "",
        "attnprobe",
        "attnprobe.probes",
        "attnprobe.probes.nowhere.Nothing",
        "attnprobe.probes.swaps.Nothing",
        "attnprobe./etc/module.Class",
        "attnprobe....probes.swaps.Swaps",
        "torch.optim.Adam",
    ],
)
def test_a_class_that_is_not_ours_or_not_there_declares_nothing(target):
    assert declared_types(target) == {}
