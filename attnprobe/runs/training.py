"""Fitting a classifier by its recipe, what ends it early, and where its curves go."""

import logging
import math
import os
import shutil
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint, TQDMProgressBar
from lightning.pytorch.callbacks.progress.tqdm_progress import Tqdm
from lightning.pytorch.loggers import (
    CSVLogger,
    Logger,
    MLFlowLogger,
    TensorBoardLogger,
    WandbLogger,
)
from lightning.pytorch.plugins.environments import LightningEnvironment, TorchElasticEnvironment
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader

from attnprobe.core.batch import Batch
from attnprobe.core.errors import UserError
from attnprobe.core.oom_retry import is_out_of_memory
from attnprobe.data.module import TextDataModule
from attnprobe.models.trained import TrainedModel
from attnprobe.results.directory import CURVES, TRACKING, UNTESTED
from attnprobe.results.writer import OwnRunDirectory
from attnprobe.runs.configuration import (
    CsvTracker,
    MlflowTracker,
    TensorBoardTracker,
    WandbTracker,
)
from attnprobe.runs.settings import Settings


class TrainingCurve(Callback):
    """Keeps the metrics of every epoch (`epochs[k]`: those of epoch k, by name), and ends a
    training whose loss is no longer a number, before it fills tables with NaN.

    Any epoch from number `skip` on (from 0) is better than all before it, which are chosen only
    among themselves: whatever compares epochs forgets the best value so far when epoch `skip`
    begins."""

    def __init__(self, skip: int) -> None:
        self.skip = skip
        self.epochs: list[dict[str, float]] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        loss: Tensor = outputs["loss"]
        if not torch.isfinite(loss):
            raise UserError(
                f"the training loss became {loss.item()} in epoch {trainer.current_epoch + 1}, batch {batch_idx + 1}: "
                f"the training diverged. Try a lower training.recipe.optimizer.lr or training.gradient_clip=5, "
                f"and look for extreme values in data.vectors."
            )

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        metrics = {
            name: float(one)
            for name, one in trainer.callback_metrics.items()
            if name.startswith("validation/")
        }
        del metrics["validation/selection"]
        self.epochs.append(metrics)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the last epoch's mean loss, which Lightning reduces only after the epoch's end."""
        if self.epochs and "train/loss" in trainer.callback_metrics:
            self.epochs[-1]["train/loss"] = float(trainer.callback_metrics["train/loss"])

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.on_train_end(trainer, pl_module)  # of the epoch before
        if trainer.current_epoch != self.skip or self.skip == 0:
            return
        worst = torch.tensor(-torch.inf)
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, ModelCheckpoint):
                callback.best_k_models = dict.fromkeys(callback.best_k_models, worst)
                callback.best_model_score = worst
            elif isinstance(callback, EarlyStopping):
                callback.best_score = worst
        for config in trainer.lr_scheduler_configs:
            if isinstance(config.scheduler, ReduceLROnPlateau):
                config.scheduler.best = -math.inf


UNCONCERNING = (
    "LeafSpec.* is deprecated",
    "does not have many workers",
    "Checkpoint directory .* exists and is not empty",
    "`srun` command is available on your system but is not used",
    # torchmetrics has gathered these from all processes already
    "sync_dist=True.* when logging on epoch level in distributed setting",
    "number of training batches .* is smaller than the logging interval",
)
"""Lightning's advice that does not concern a user of this program."""


@contextmanager
def quiet_lightning() -> Iterator[dict[str, Any]]:
    """Lightning without `UNCONCERNING` warnings, and new tensors left as they are found: with
    deterministic algorithms, which Lightning switches on for good, PyTorch fills each with NaN
    first, which is a tenth of a training.

    Yields a trainer's settings that training and examination share: on a SLURM machine Lightning
    starts a run's further processes itself, and neither takes the job's tasks for them nor warns of
    an `srun` that is not used."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    setting: Any = torch.utils.deterministic  # which hides its setting from type checkers
    filled = setting.fill_uninitialized_memory
    setting.fill_uninitialized_memory = False
    try:
        with warnings.catch_warnings():
            for advice in UNCONCERNING:
                warnings.filterwarnings("ignore", f".*{advice}.*")
            on_slurm = "SLURM_NTASKS" in os.environ or shutil.which("srun") is not None
            plugins = (
                [LightningEnvironment()]
                if on_slurm and not TorchElasticEnvironment.detect()
                else None
            )
            # the data module's own sampler knows ranks and length buckets
            yield {
                "plugins": plugins,
                "use_distributed_sampler": False,
                "enable_model_summary": False,
            }
    finally:
        setting.fill_uninitialized_memory = filled


class Served(LightningDataModule):
    """The batches of a training, of which each of its processes has its share. It can be pickled,
    as `ddp_spawn` asks."""

    def __init__(self, data: TextDataModule) -> None:
        super().__init__()
        self.data = data

    def train_dataloader(self) -> DataLoader[Batch]:
        assert self.trainer is not None
        return self.data.train_dataloader(self.trainer.global_rank, self.trainer.world_size)

    def val_dataloader(self) -> DataLoader[Batch]:
        return self.data.loader("validation")


def fit(
    classifier: TrainedModel,
    data: TextDataModule,
    *,
    checkpoints: Path,
    epochs: int,
    gradient_clip: float | None,
    hardware: dict[str, Any],
    callbacks: list[Callback],
    logger: Logger | None,
    patience: int | None = None,
) -> tuple[int, list[dict[str, float]]]:
    """Train in place, leave the chosen epoch's weights in the classifier, and say which it is, from
    0, and every epoch's metrics by name. The best epoch so far is kept in the folder `checkpoints`;
    None for `patience` trains all epochs. Of several devices' processes all but the first end here,
    by a SystemExit with status 0."""
    assert classifier.recipe is not None
    curve = TrainingCurve(classifier.recipe.skip_epochs)
    chosen_by = "validation/selection"
    best = ModelCheckpoint(
        checkpoints, monitor=chosen_by, mode="max", save_weights_only=True, filename="{epoch}"
    )
    stopping = [] if patience is None else [EarlyStopping(chosen_by, mode="max", patience=patience)]
    with quiet_lightning() as shared:
        trainer = Trainer(
            **shared | hardware,
            max_epochs=epochs,
            gradient_clip_val=gradient_clip,
            deterministic=True,
            logger=logger or False,
            callbacks=[best, curve, *stopping, *callbacks],
            num_sanity_val_steps=0,
            default_root_dir=checkpoints,
        )
        try:
            trainer.fit(classifier, datamodule=Served(data))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            # nothing is halved here: a step of half the examples would be another training
            said = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise UserError(
                f"training does not fit into memory: set a smaller data.batch_size, or shorten the texts with "
                f"data.max_tokens ({said})"
            ) from error
        if trainer.world_size > 1:
            # the first process continues alone; as long as its group stands, torchmetrics waits for
            # those that have left
            if torch.distributed.is_initialized():
                torch.distributed.barrier()
                torch.distributed.destroy_process_group()
            if trainer.global_rank > 0:
                raise SystemExit(0)
            # Lightning's notes for the others: in a second training this process would be taken for
            # one of them
            for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE"):
                os.environ.pop(name, None)
    checkpoint = torch.load(best.best_model_path, map_location="cpu", weights_only=True)
    classifier.load_state_dict(checkpoint["state_dict"])
    return int(checkpoint["epoch"]), curve.epochs


@contextmanager
def examined_precisely(classifier: TrainedModel) -> Iterator[TrainedModel]:
    """The classifier in the precision that it is examined in, its float32 weights back, unchanged,
    afterwards: float32 sums depend on an example's batch in their last digits, and a search of 500
    steps makes first digits of these."""
    try:
        yield classifier.to(classifier.precision)
    finally:
        classifier.float()


def listen(
    classifier: TrainedModel,
    data: TextDataModule,
    split: str,
    *,
    hardware: dict[str, Any],
    callbacks: list[Callback],
) -> None:
    """One pass with the callbacks listening, on one device whatever trained the model: over the
    `test` split with the probes among them, or over the splits that no probe examines
    (`predict`)."""
    is_test = split == "test"
    with quiet_lightning() as shared, examined_precisely(classifier) if is_test else nullcontext():
        trainer = Trainer(
            # Apple's GPUs have no float64
            accelerator="cpu"
            if is_test and torch.backends.mps.is_available()
            else hardware["accelerator"],
            inference_mode=not is_test,  # under inference mode no probe could differentiate anything
            callbacks=callbacks,
            enable_progress_bar=is_test,
            devices=1,
            logger=False,
            enable_checkpointing=False,
            **shared,
        )
        if is_test:
            trainer.test(classifier, data.loader("test"), verbose=False)
        else:
            others = [data.loader(split) for split in UNTESTED if split in data.splits]
            trainer.predict(classifier, others, return_predictions=False)


class NamedWandbLogger(WandbLogger):
    """W&B's logger; curves of a class have the class's name, as soon as `classes` holds the
    names."""

    classes: Sequence[str] = ()

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        from attnprobe.report.tracking import curve

        super().log_metrics(
            {curve(name, self.classes): value for name, value in metrics.items()}, step
        )


@contextmanager
def tracked(settings: Settings, directory: OwnRunDirectory) -> Iterator[Logger | None]:
    """The configured logger, open as long as the run."""
    tracker = settings.parts.logger
    if isinstance(tracker, CsvTracker | TensorBoardTracker):
        kind = CSVLogger if isinstance(tracker, CsvTracker) else TensorBoardLogger
        yield kind(directory.folder(""), name="", version=directory.folder(CURVES).name)
    elif isinstance(tracker, MlflowTracker):
        # a database: MLflow 3 refuses plain files
        output = Path(settings.config["output"]).absolute()
        yield MLFlowLogger(
            experiment_name=tracker.project,
            run_name=settings.run_id,
            tracking_uri=tracker.tracking_uri or f"sqlite:///{output / 'mlflow.db'}",
            artifact_location=None if tracker.tracking_uri else (output / "mlruns").as_uri(),
        )
    elif isinstance(tracker, WandbTracker):
        # wandb takes half a second that other runs need not wait for
        from attnprobe.report.tracking import open_run

        probes = list(settings.config["probe"])
        mode: Any = tracker.mode
        if mode == "online":  # wandb's own variable decides where nobody made the setting
            mode = os.environ.get("WANDB_MODE", "online")
        directory.checked(TRACKING)
        run = open_run(
            settings.identity("all"),
            probes,
            settings.config,
            directory.path,
            project=tracker.project,
            entity=tracker.entity,
            mode=mode,
            group=tracker.group,
            resumed=directory.is_trained,
        )
        try:
            yield NamedWandbLogger(experiment=run)
        finally:
            run.finish()  # else the next run of this process would go into this one
    else:
        yield None


class Progress(TQDMProgressBar):
    """Lightning's bars on standard error, where a log file gets few lines. `test_title`: what the
    test loop is called."""

    test_description = "test"

    def __init__(self, test_title: str = "test") -> None:
        super().__init__(refresh_rate=1 if sys.stderr.isatty() else 200, leave=True)
        self.test_description = test_title

    def init_train_tqdm(self, title: str = "train", *, leave: bool = True) -> Tqdm:
        return Tqdm(
            desc=title,
            leave=leave,
            dynamic_ncols=True,
            file=sys.stderr,
            disable=self.is_disabled,
            smoothing=0,
        )

    def init_validation_tqdm(self) -> Tqdm:
        return self.init_train_tqdm("validate", leave=False)

    def init_test_tqdm(self) -> Tqdm:
        return self.init_train_tqdm(self.test_description)
