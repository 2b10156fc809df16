"""Fitting a classifier by its recipe, what ends it early, and its pass over other texts."""

import logging
import math
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins.environments import LightningEnvironment
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader

from attnprobe.core.batch import Batch
from attnprobe.core.clock import CLOCK, Step
from attnprobe.core.errors import UserError
from attnprobe.core.oom_retry import is_out_of_memory
from attnprobe.data.module import TextDataModule
from attnprobe.models.trained import TrainedModel


class TrainingCurve(Callback):
    """Keeps the metrics of every epoch, and ends a training that diverges.

    A loss that is no longer finite ends the training before it fills tables with NaN.

    Attributes:
        skip: the first epoch, from 0, that is better than all before it whatever their metrics.
            Whatever compares epochs forgets the best value so far when this one begins.
        epochs: every epoch's metrics, by name.
    """

    def __init__(self, skip: int) -> None:
        """Begin an empty curve.

        Args:
            skip: how many epochs are chosen only if no later one ends.
        """
        self.skip = skip
        self.epochs: list[dict[str, float]] = []

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Refuse a loss that is infinite or NaN."""
        loss: Tensor = outputs["loss"]
        if not torch.isfinite(loss):
            raise UserError(
                f"the training loss became {loss.item()} in epoch {trainer.current_epoch + 1}, "
                f"batch {batch_idx + 1}: the training diverged. Try a lower "
                f"training.recipe.optimizer.lr or training.gradient_clip=5, "
                f"and look for extreme values in data.vectors."
            )

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the validation metrics of the epoch."""
        metrics = {
            name: float(value)
            for name, value in trainer.callback_metrics.items()
            if name.startswith("validation/")
        }
        del metrics["validation/selection"]
        self.epochs.append(metrics)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the loss of the epoch before; in epoch `skip`, forget the best value so far."""
        self._keep_loss(trainer)
        if self.skip > 0 and trainer.current_epoch == self.skip:
            _forget_best_value(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep the loss of the last epoch."""
        self._keep_loss(trainer)

    def _keep_loss(self, trainer: Trainer) -> None:
        """Keep the last epoch's mean loss, which Lightning reduces only after the epoch's end."""
        if self.epochs and "train/loss" in trainer.callback_metrics:
            self.epochs[-1]["train/loss"] = float(trainer.callback_metrics["train/loss"])


def _forget_best_value(trainer: Trainer) -> None:
    """Let the next epoch count as the best so far, for checkpoint, patience and rate."""
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


IRRELEVANT_ADVICE = (
    "LeafSpec.* is deprecated",
    "does not have many workers",
    "Checkpoint directory .* exists and is not empty",
    "`srun` command is available on your system but is not used",
    # torchmetrics has gathered these from all processes already
    "sync_dist=True.* when logging on epoch level in distributed setting",
    "number of training batches .* is smaller than the logging interval",
    # `trainer.accelerator=cpu` is a choice
    "GPU available but not used",
)
"""Lightning's advice that does not concern a user of this program."""


@contextmanager
def quiet_lightning() -> Iterator[dict[str, Any]]:
    """Silence Lightning's `IRRELEVANT_ADVICE`, and leave new tensors uninitialised.

    With deterministic algorithms, which Lightning switches on for good, PyTorch fills every new
    tensor with NaN first. That is a tenth of a training's time.

    Yields:
        Arguments of `Trainer` that training and examination share.
    """
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)

    setting: Any = torch.utils.deterministic  # which hides its setting from type checkers
    fill_before = setting.fill_uninitialized_memory
    setting.fill_uninitialized_memory = False
    try:
        with warnings.catch_warnings():
            for advice in IRRELEVANT_ADVICE:
                warnings.filterwarnings("ignore", f".*{advice}.*")
            yield {
                # a run starts its further processes itself, wherever it runs: on SLURM Lightning
                # would take the tasks of the job for them, or warn that `srun` is not used
                "plugins": [LightningEnvironment()],
                # every process validates on all texts: the metrics are those of one device
                "use_distributed_sampler": False,
                "enable_model_summary": False,
                "enable_progress_bar": False,  # the clock says how far it is
            }
    finally:
        setting.fill_uninitialized_memory = fill_before


def fit(
    classifier: TrainedModel,
    data: LightningDataModule,
    *,
    checkpoints: Path,
    epochs: int,
    gradient_clip: float | None,
    hardware: dict[str, Any],
    callbacks: list[Callback],
    logger: Logger | None,
    patience: int | None = None,
    stop_at: float | None = None,
) -> tuple[int, list[dict[str, float]]]:
    """Train a classifier in place, and leave the chosen epoch's weights in it.

    Args:
        classifier: with a recipe.
        data: with a training and a validation split.
        checkpoints: a folder for the best epoch so far.
        epochs: at most.
        gradient_clip: the norm of the gradient at most; None: any.
        hardware: arguments of `Trainer` that say where to train.
        callbacks: that listen as well.
        logger: of the curves; None for none.
        patience: epochs without a better one that end the training; None: all epochs are trained.
        stop_at: value of the selection metric that ends the training; None: none does.

    Returns:
        the chosen epoch, from 0, and every epoch's metrics, by name.

    Raises:
        UserError: if the loss diverges or the training does not fit into memory.
        SystemExit: with status 0, in all but the first of several devices' processes.
    """
    assert classifier.recipe is not None
    curve = TrainingCurve(classifier.recipe.skip_epochs)
    selection = "validation/selection"
    best = ModelCheckpoint(
        checkpoints, monitor=selection, mode="max", save_weights_only=True, filename="{epoch}"
    )
    listeners: list[Callback] = [best, curve]
    if patience is not None or stop_at is not None:
        most = epochs if patience is None else patience
        listeners.append(
            EarlyStopping(selection, mode="max", patience=most, stopping_threshold=stop_at)
        )

    step = CLOCK.step("train the model", epochs, "epochs")
    with quiet_lightning() as shared, step as epochs_step:
        trainer = Trainer(
            **shared | hardware,
            max_epochs=epochs,
            gradient_clip_val=gradient_clip,
            deterministic=True,
            logger=logger or False,
            callbacks=[*listeners, *callbacks, EpochsOnClock(epochs_step)],
            num_sanity_val_steps=0,
            default_root_dir=checkpoints,
        )
        try:
            trainer.fit(classifier, datamodule=data)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            # the batch is not halved here: a step of half the examples would be another training
            message = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
            raise UserError(
                f"training does not fit into memory: set a smaller data.batch_size, "
                f"or shorten the texts with data.max_tokens ({message})"
            ) from error
        if trainer.world_size > 1:
            _leave_process_group(trainer)

    checkpoint = torch.load(best.best_model_path, map_location="cpu", weights_only=True)
    classifier.load_state_dict(checkpoint["state_dict"])
    return int(checkpoint["epoch"]), curve.epochs


def _leave_process_group(trainer: Trainer) -> None:
    """Let the first of several processes continue alone, and end all others.

    Raises:
        SystemExit: with status 0, in the others.
    """
    # as long as the first process's group stands, torchmetrics waits for those that have left
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    if trainer.global_rank > 0:
        raise SystemExit(0)
    # Lightning left these for the processes that it started. In a second training they would make
    # this process one of them
    for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)


def run_test_loop(
    classifier: TrainedModel,
    texts: LightningDataModule | DataLoader[Batch],
    *,
    accelerator: str,
    callbacks: list[Callback],
) -> None:
    """Pass over the test split once, on one device, with probes among the callbacks.

    Args:
        classifier: trained; it is held in the precision that it is examined in.
        texts: the data set, or batches of it.
        accelerator: where.
        callbacks: that listen.
    """
    if torch.backends.mps.is_available():  # Apple's GPUs have no float64
        accelerator = "cpu"
    test = CLOCK.step("test", 1, "batches")
    with quiet_lightning() as shared, classifier.precisely(), test as step:
        trainer = Trainer(
            accelerator=accelerator,
            inference_mode=False,  # else each batch would be copied for probes that differentiate
            callbacks=[*callbacks, BatchesOnClock(step)],
            devices=1,
            logger=False,
            enable_checkpointing=False,
            **shared,
        )
        trainer.test(classifier, texts, verbose=False)


def run_predict_loop(
    classifier: TrainedModel,
    data: TextDataModule,
    splits: list[str],
    *,
    accelerator: str,
    callbacks: list[Callback],
) -> None:
    """Pass over splits that no probe examines once, on one device, with callbacks listening.

    Args:
        classifier: trained.
        data: the texts.
        splits: their names, a loader each.
        accelerator: where.
        callbacks: that listen.
    """
    prediction = CLOCK.step("predict the other splits", 1, "batches")
    with quiet_lightning() as shared, prediction as step:
        trainer = Trainer(
            accelerator=accelerator,
            callbacks=[*callbacks, BatchesOnClock(step)],
            devices=1,
            logger=False,
            enable_checkpointing=False,
            **shared,
        )
        loaders = [data.loader(name) for name in splits]
        trainer.predict(classifier, loaders, return_predictions=False)


class EpochsOnClock(Callback):
    """Says on the clock how many epochs of a training are done."""

    def __init__(self, step: Step) -> None:
        """Take the step whose parts are the epochs."""
        self.step = step

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Count this batch's share of the epoch."""
        epoch_share = (batch_idx + 1) / max(1, trainer.num_training_batches)
        self.step.done = trainer.current_epoch + epoch_share
        CLOCK.check()


class BatchesOnClock(Callback):
    """Says on the clock how many batches a pass over texts has done."""

    def __init__(self, step: Step) -> None:
        """Take the step whose parts are the batches."""
        self.step = step

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say how many there are."""
        self.step.total = sum(trainer.num_test_batches)

    def on_test_batch_end(self, *_: Any) -> None:
        """Count a batch that every other callback has seen."""
        self.step.done += 1
        CLOCK.check()

    def on_predict_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say how many there are, of all splits together."""
        self.step.total = sum(trainer.num_predict_batches)

    def on_predict_batch_end(self, *_: Any) -> None:
        """Count a batch, as in a test."""
        self.on_test_batch_end()
