"""The settings of a run that are plain values; checking them imports nothing heavy.

`attnprobe.runs.configuration` adds those that name classes, whose modules import torch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le, Predicate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attnprobe.core.errors import UserError
from attnprobe.core.settings import (
    Checked,
    Name,
    Positive,
    Section,
    Seed,
    Whole,
    arguments,
    check_arguments,
    check_value,
)
from attnprobe.models.pretrained.folder_checks import check_path
from attnprobe.report.page import PAGE_NAME, is_page_name
from attnprobe.runs.declared_types import declared_types

SECTIONS = {
    "model": "attnprobe.runs.configuration.Stages",
    "task": "attnprobe.runs.configuration.Task",
    "trainer": "attnprobe.runs.configuration.Trainer",
}
"""Group → the class of its settings, where they do not name one themselves."""

PRETRAINED = "attnprobe.models.pretrained."
"""How the names of classes begin that read a checkpoint of `transformers`."""


@dataclass(frozen=True)
class PlainSettings(metaclass=Checked):
    """Settings of conf/config.yaml itself."""

    settings_place: ClassVar[str] = ""

    experiment: Name
    seed: Seed
    output: str
    run_dir: str | None
    run: str | None
    teacher: str | None
    teacher_id: str | None
    teacher_overrides: Sequence[str]
    importances: Sequence[Name] | None
    trusted: Sequence[str] | str
    on_finished: Literal["error", "skip", "remeasure", "replace"] | None
    figures: bool
    page: Annotated[str, Predicate(is_page_name), PAGE_NAME] | None
    verbose: bool


@dataclass(frozen=True)
class TrainingLength(Section):
    """How long a model is trained.

    Attributes:
        epochs: at most so many; 0 takes a model as it is.
        gradient_clip: largest norm of a step's gradient; None: any.
        patience: epochs without a better one after which training stops; None: all are trained.
        stop_at: value of the selection metric from which an epoch is good enough, and training
            stops; None: none is.
    """

    settings_place: ClassVar[str] = "training"

    epochs: Annotated[int, Ge(0), Le(1_000_000)]
    gradient_clip: Positive | None
    patience: Whole | None = None
    stop_at: float | None = None


def check_plain_settings(config: DictConfig) -> None:
    """Refuse a wrong value of a composed configuration, before what takes seconds to import.

    Raises:
        UserError: a value has a wrong type or range. What refers to another setting that is not
            there is left to the check of all settings.
    """
    parts: dict[Checked, Any] = {PlainSettings: config, TrainingLength: config.get("training")}
    for kind, part in parts.items():
        if not isinstance(part, DictConfig):
            continue
        try:
            values = {name: part[name] for name in arguments(kind) if name in part}
        except OmegaConfBaseException:
            continue
        check_arguments(kind.settings_place, values, kind)
    groups = [str(group) for group, part in config.items_ex(False) if isinstance(part, DictConfig)]
    # what probes and importances take from the other groups is named there
    for group in sorted(groups, key=("probe", "importance").__contains__):
        _check_parts(group, config[group])
    if config.run is None:
        _check_checkpoint(config.model)


def refuse_page_of_several(config: DictConfig) -> None:
    """Refuse a page where each of several runs would write it, in a sweep or a study.

    Raises:
        UserError: one is asked for.
    """
    if config.page is not None:
        raise UserError(
            f"page={config.page} is of a single run: leave it out; a study writes a page of its "
            f"own, and `attnprobe report {config.output} -o {config.page}` one of several runs"
        )


def _check_parts(place: str, part: DictConfig) -> None:
    """Refuse a wrong plain value of the classes that a group of settings names.

    Raises:
        UserError: see `check_plain_settings`.
    """
    try:
        settings = OmegaConf.to_container(part, resolve=True)
    except OmegaConfBaseException:
        return
    for setting, value, kind in _declared(place, settings):
        check_value(setting, value, kind)


def _check_checkpoint(model: DictConfig) -> None:
    """Refuse the path of a pretrained model, or of a pretrained encoder, at which nothing is.

    Raises:
        UserError: see `check_path`.
    """
    try:
        settings = OmegaConf.to_container(model, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException:
        return
    assert isinstance(settings, dict)
    encoder = settings.get("encoder")
    reader = encoder if isinstance(encoder, dict) else settings
    path = settings.get("path")
    if isinstance(path, str) and str(reader.get("_target_")).startswith(PRETRAINED):
        check_path(path)


def _declared(place: str, settings: Any) -> Iterator[tuple[str, Any, Any]]:
    """Each plain value in a part with its setting's name and its type, where a file tells it."""
    if not isinstance(settings, Mapping):
        return
    types = declared_types(str(settings.get("_target_", SECTIONS.get(place))))
    for name, value in settings.items():
        setting = f"{place}.{name}"
        if isinstance(value, Mapping):
            yield from _declared(setting, value)
        elif name in types:
            yield setting, value, types[name]
