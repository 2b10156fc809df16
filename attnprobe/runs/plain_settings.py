"""The settings of a run that are plain values; checking them imports nothing heavy.

`attnprobe.runs.configuration` adds those that name classes, whose modules import torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Ge, Le
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from attnprobe.core.settings import (
    Checked,
    Name,
    Positive,
    Section,
    Seed,
    Whole,
    arguments,
    check_arguments,
)


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
