"""The logger that a run's settings choose, open as long as the run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger

from attnprobe.errors import UserError
from attnprobe.results.directory import (
    CURVES,
    TRACKING,
)
from attnprobe.results.ownership import OwnRunDirectory
from attnprobe.running.settings import Settings


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
        place = Path(settings.config["output"]).absolute() / "mlruns"
        yield MLFlowLogger(
            experiment_name=choice["project"],
            run_name=settings.run_id,
            tracking_uri=choice["tracking_uri"] or place.as_uri(),
        )
    elif choice["name"] == "wandb":
        from attnprobe.report.tracking.log import (
            open_run,  # wandb takes half a second that other runs need not wait for
        )

        probes = list(settings.config["probe"])
        where = {key: choice[key] for key in ("project", "entity", "mode", "group")}
        where["taken_up"] = directory.is_trained
        directory.folder(TRACKING)
        run = open_run(settings.identity("all"), probes, settings.config, directory.path, **where)
        try:
            yield WandbLogger(experiment=run)
        finally:
            # without it the next run of this process would go into this one
            run.finish()
    else:
        raise UserError(f"logger.name={choice['name']}: expected none, csv, tensorboard, mlflow or wandb")
