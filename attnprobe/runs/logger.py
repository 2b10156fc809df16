"""The logger that a run's settings choose, open as long as the run."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from lightning.pytorch.callbacks import TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm
from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger

from attnprobe.core.errors import UserError
from attnprobe.results.directory import CURVES, TRACKING
from attnprobe.results.writer import OwnRunDirectory
from attnprobe.runs.settings import Settings


class NamedWandbLogger(WandbLogger):
    """W&B's logger; curves of a class have the class's name, as soon as `classes` holds the names.

    Attributes:
        tells_names: whether names of classes may leave the machine.
    """

    classes: Sequence[str] = ()
    tells_names = True

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Log what the training reports."""
        from attnprobe.report.tracking import curve

        super().log_metrics({curve(name, self.classes): value for name, value in metrics.items()}, step)


@contextmanager
def tracked(settings: Settings, directory: OwnRunDirectory) -> Iterator[Logger | None]:
    """The configured logger, open as long as the run."""
    choice = settings.config["logger"]
    if choice["name"] == "none":
        yield None
    elif choice["name"] == "csv":
        yield CSVLogger(directory.folder(""), name="", version=directory.folder(CURVES).name)
    elif choice["name"] == "tensorboard":
        yield TensorBoardLogger(directory.folder(""), name="", version=directory.folder(CURVES).name)
    elif choice["name"] == "mlflow":
        # a database: MLflow 3 refuses plain files
        output = Path(settings.config["output"]).absolute()
        yield MLFlowLogger(
            experiment_name=choice["project"],
            run_name=settings.run_id,
            tracking_uri=choice["tracking_uri"] or f"sqlite:///{output / 'mlflow.db'}",
            artifact_location=None if choice["tracking_uri"] else (output / "mlruns").as_uri(),
        )
    elif choice["name"] == "wandb":
        # wandb takes half a second that other runs need not wait for
        from attnprobe.report.tracking import open_run

        probes = list(settings.config["probe"])
        where = {key: choice[key] for key in ("project", "entity", "mode", "group")}
        if where["mode"] == "online":  # what wandb's own variable says holds for the setting that nobody made
            where["mode"] = os.environ.get("WANDB_MODE", "online")
        where["resumed"] = directory.is_trained
        directory.checked(TRACKING)
        run = open_run(settings.identity("all"), probes, settings.config, directory.path, **where)
        try:
            logger = NamedWandbLogger(experiment=run)
            logger.tells_names = choice["log_text"]
            yield logger
        finally:
            # without it the next run of this process would go into this one
            run.finish()
    else:
        raise UserError(f"logger.name={choice['name']}: expected none, csv, tensorboard, mlflow or wandb")


class Progress(TQDMProgressBar):
    """Lightning's bars on standard error, where a log file gets few lines.

    Args:
        test_title: what the test loop is called, normally the names of the probes.
    """

    def __init__(self, test_title: str = "test") -> None:
        super().__init__(refresh_rate=1 if sys.stderr.isatty() else 200, leave=True)
        self.test_title = test_title

    def _bar(self, title: str, leave: bool) -> Tqdm:
        return Tqdm(desc=title, leave=leave, dynamic_ncols=True, file=sys.stderr, disable=self.is_disabled, smoothing=0)

    def init_train_tqdm(self) -> Tqdm:
        """Of one epoch."""
        return self._bar("train", True)

    def init_validation_tqdm(self) -> Tqdm:
        """Of the pass after an epoch."""
        return self._bar("validate", False)

    def init_test_tqdm(self) -> Tqdm:
        """Of the probes."""
        return self._bar(self.test_title, True)

    @property
    def test_description(self) -> str:
        """What Lightning writes before the bar of the probes."""
        return self.test_title
