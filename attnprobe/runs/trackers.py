"""Where training curves go: a class per choice of conf/logger, which opens Lightning's logger.

A further one is one more subclass of `Tracker` and its YAML. Lightning and the trackers' own
packages take seconds to import, which a mistake in the settings need not wait for: they are
imported where a tracker is opened.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attnprobe.core.errors import UserError
from attnprobe.core.settings import Choice, Whole
from attnprobe.results.directory import CURVES
from attnprobe.results.writer import OwnRunDirectory

if TYPE_CHECKING:
    from lightning.pytorch.loggers import Logger


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker is told of a run.

    Attributes:
        identity: the run's `run_id`, `experiment`, `data`, `model`, `seed`.
        config: its settings.
        directory: where its files are.
    """

    identity: Mapping[str, Any]
    config: dict[str, Any]
    directory: OwnRunDirectory


@dataclass(frozen=True)
class Tracker(Choice):
    """Where training curves go.

    Attributes:
        package: the module that it needs, which the extra named like the tracker installs; empty
            where nothing further is needed.
    """

    settings_place: ClassVar[str] = "logger"
    package: ClassVar[str] = ""

    name: str

    def __post_init__(self) -> None:
        if self.package and find_spec(self.package) is None:
            extra = self.chosen_by
            raise UserError(f"logger={extra} needs pip install 'attnprobe[{extra}]'")

    @contextmanager
    def opened(self, run: TrackedRun) -> "Iterator[Logger | None]":
        """Hold the logger of the training's curves open as long as the run; None: there is none."""
        yield None

    def name_classes(self, logger: "Logger", classes: Sequence[str]) -> None:
        """Let the curves of a class go by its name, where the tracker can show names."""

    def log_results(self, logger: "Logger | None", directory: Path) -> None:
        """Hand over what a finished run holds, where the tracker takes more than curves."""


@dataclass(frozen=True)
class NoTracker(Tracker):
    """Nowhere but into the run directory's tables."""

    chosen_by: ClassVar[str] = "none"


@dataclass(frozen=True)
class CsvTracker(Tracker):
    """Into a CSV file in the run directory."""

    chosen_by: ClassVar[str] = "csv"

    @contextmanager
    def opened(self, run: TrackedRun) -> "Iterator[Logger | None]":
        """See `Tracker.opened`."""
        from lightning.pytorch.loggers import CSVLogger

        yield CSVLogger(run.directory.folder(""), name="", version=_curves_folder(run))


@dataclass(frozen=True)
class TensorBoardTracker(Tracker):
    """Into TensorBoard's event files in the run directory."""

    chosen_by: ClassVar[str] = "tensorboard"
    package: ClassVar[str] = "tensorboard"

    @contextmanager
    def opened(self, run: TrackedRun) -> "Iterator[Logger | None]":
        """See `Tracker.opened`."""
        from lightning.pytorch.loggers import TensorBoardLogger

        yield TensorBoardLogger(run.directory.folder(""), name="", version=_curves_folder(run))


def _curves_folder(run: TrackedRun) -> str:
    """The folder of the curves, which both loggers call a version."""
    return run.directory.folder(CURVES).name


@dataclass(frozen=True)
class MlflowTracker(Tracker):
    """To MLflow.

    Attributes:
        project: the experiment's name there; None: MLFLOW_EXPERIMENT_NAME, else `attnprobe`.
        tracking_uri: a server; None: MLFLOW_TRACKING_URI, else a database below `output`.
    """

    chosen_by: ClassVar[str] = "mlflow"
    package: ClassVar[str] = "mlflow"

    project: str | None
    tracking_uri: str | None

    @contextmanager
    def opened(self, run: TrackedRun) -> "Iterator[Logger | None]":
        """See `Tracker.opened`."""
        from lightning.pytorch.loggers import MLFlowLogger

        output = Path(run.config["output"]).absolute()
        project = self.project or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "attnprobe"
        server = self.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
        yield MLFlowLogger(
            experiment_name=project,
            run_name=run.identity["run_id"],
            # a database, because MLflow 3 refuses plain files
            tracking_uri=server or f"sqlite:///{output / 'mlflow.db'}",
            artifact_location=None if server else (output / "mlruns").as_uri(),
        )


@dataclass(frozen=True)
class WandbTracker(Tracker):
    """To Weights & Biases: curves while training; tables, figures and files at the end.

    Attributes:
        project: None: the environment's WANDB_PROJECT, else `attnprobe`.
        entity: None: WANDB_ENTITY, else the user's own.
        mode: None: WANDB_MODE, else `online`.
        group: None: the environment's WANDB_RUN_GROUP, else the experiment's name.
        log_text: False: no words of the data leave the machine.
        log_model: False: the checkpoint stays here.
        examples: rows of the table with heat maps.
    """

    chosen_by: ClassVar[str] = "wandb"

    project: str | None
    entity: str | None
    group: str | None
    mode: Literal["online", "offline", "disabled", "shared"] | None
    log_text: bool
    log_model: bool
    examples: Whole

    @contextmanager
    def opened(self, run: TrackedRun) -> "Iterator[Logger | None]":
        """See `Tracker.opened`; W&B's run ends with it.

        Raises:
            UserError: W&B cannot be reached or does not know the user.
        """
        from attnprobe.report.tracking import open_run
        from attnprobe.runs.wandb_logger import NamedWandbLogger

        wandb_run = open_run(
            run.identity,
            list(run.config["probe"]),
            run.config,
            run.directory.path,
            project=self.project,
            entity=self.entity,
            mode=self.mode,
            group=self.group,
            resumed=run.directory.is_trained,
        )
        try:
            yield NamedWandbLogger(experiment=wandb_run)
        finally:
            wandb_run.finish()  # otherwise the next run of this process would continue this one

    def name_classes(self, logger: "Logger", classes: Sequence[str]) -> None:
        """Let the curves of a class go by its name, unless no words may leave the machine."""
        from attnprobe.runs.wandb_logger import NamedWandbLogger

        if self.log_text and isinstance(logger, NamedWandbLogger):
            logger.classes = classes

    def log_results(self, logger: "Logger | None", directory: Path) -> None:
        """Log tables, heat maps, figures and files of a finished run."""
        from attnprobe.report.tracking import log_results
        from attnprobe.runs.wandb_logger import NamedWandbLogger

        assert isinstance(logger, NamedWandbLogger)
        log_results(
            logger.experiment,
            directory,
            log_text=self.log_text,
            log_model=self.log_model,
            examples=self.examples,
        )
