"""The logger that a run's settings choose, open as long as the run."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger
from tqdm import tqdm

from attnprobe.core.batch import Batch
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


def name_curves(logger: Logger | None, classes: Sequence[str]) -> None:
    """Tell the logger what the classes are called, where it may know."""
    if isinstance(logger, NamedWandbLogger) and logger.tells_names:
        logger.classes = classes


@contextmanager
def tracked(settings: Settings, directory: OwnRunDirectory) -> Iterator[Logger | None]:
    """The configured logger, open as long as the run."""
    choice = settings.config["logger"]
    if choice["name"] == "none":
        yield None
    elif choice["name"] == "csv":
        yield CSVLogger(directory.path, name="", version=directory.folder(CURVES).name)
    elif choice["name"] == "tensorboard":
        yield TensorBoardLogger(directory.path, name="", version=directory.folder(CURVES).name)
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
        where["resumed"] = directory.is_trained
        directory.folder(TRACKING)
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


# One progress bar per stage, counted in examples.


class ExampleProgress(ProgressBar):
    """Shows how many examples of an epoch, or of the split under the probes, are done.

    Args:
        totals: number of examples per split: train, validation, test.
        test_title: what the test loop is called, normally the names of the probes.
    """

    def __init__(self, totals: dict[str, int], test_title: str = "test") -> None:
        super().__init__()
        self.totals, self.test_title = totals, test_title
        self.enabled = True
        self.bar: tqdm | None = None

    def disable(self) -> None:
        """Called by Lightning on every process but the first."""
        self.enabled = False

    def enable(self) -> None:
        """Show the bars again."""
        self.enabled = True

    def _open(self, title: str, split: str, keep: bool) -> None:
        self._close()
        # a log file gets a line every half minute instead of a bar that redraws itself
        interval = 0.1 if sys.stderr.isatty() else 30.0
        self.bar = tqdm(
            total=self.totals[split],
            desc=title,
            unit=" examples",
            leave=keep,
            mininterval=interval,
            disable=not self.enabled,
            dynamic_ncols=True,
            file=sys.stderr,
        )

    def _advance(self, batch: Batch) -> None:
        if self.bar is not None:
            self.bar.update(len(batch))

    def _close(self) -> None:
        if self.bar is not None:
            self.bar.close()
            self.bar = None

    def on_train_epoch_start(self, trainer: Trainer, *_: Any) -> None:
        """Open the bar of one epoch."""
        self._open(f"train, epoch {trainer.current_epoch + 1} of {trainer.max_epochs}", "train", keep=True)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        """Advance by one batch."""
        self._advance(batch)

    def on_train_epoch_end(self, *_: Any) -> None:
        """Close the bar of the epoch."""
        self._close()

    def on_validation_start(self, trainer: Trainer, *_: Any) -> None:
        """The epoch's own bar is complete when validation begins."""
        if not trainer.sanity_checking:
            self._open("validate", "validation", keep=False)

    def on_validation_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        """Advance by one batch."""
        self._advance(batch)

    def on_validation_end(self, *_: Any) -> None:
        """Close the bar."""
        self._close()

    def on_test_start(self, *_: Any) -> None:
        """Open the bar of the probes."""
        self._open(self.test_title, "test", keep=True)

    def on_test_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        """Advance by one batch."""
        self._advance(batch)

    def on_test_end(self, *_: Any) -> None:
        """Close the bar."""
        self._close()

    def on_exception(self, *_: Any) -> None:
        """Leave the terminal in order."""
        self._close()
