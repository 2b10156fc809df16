"""Fitting a classifier by its recipe, and what ends it early."""

import logging
import math
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.plugins.environments import LightningEnvironment, TorchElasticEnvironment
from torch import Tensor
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils.data import DataLoader

from attnprobe.core.batch import Batch
from attnprobe.core.errors import UserError
from attnprobe.core.oom_retry import is_out_of_memory
from attnprobe.data.module import TextDataModule
from attnprobe.models.trained import TrainedModel


class StopOnNaN(Callback):
    """Ends a training whose loss is no longer a number, before it fills tables with NaN."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Look at one step's loss."""
        loss: Tensor = outputs["loss"]
        if not torch.isfinite(loss):
            raise UserError(
                f"the training loss became {loss.item()} in epoch {trainer.current_epoch + 1}, batch {batch_idx + 1}: "
                f"the training diverged. Try a lower training.recipe.optimizer.lr or training.gradient_clip=5, "
                f"and look for extreme values in data.vectors."
            )


class TrainingCurve(Callback):
    """Keeps the metrics of every epoch: `epochs[k]` holds those of epoch k, by name."""

    def __init__(self) -> None:
        self.epochs: list[dict[str, float]] = []

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the validation metrics, which are computed within the epoch."""
        names = [name for name in trainer.callback_metrics if name.startswith("validation/")]
        names.remove("validation/selection")
        self.epochs.append({name: float(trainer.callback_metrics[name]) for name in names})

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the last epoch's mean loss, which Lightning reduces only after the epoch's end."""
        self._take_loss(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """As above, for the last epoch of all."""
        self._take_loss(trainer)

    def _take_loss(self, trainer: Trainer) -> None:
        if self.epochs and "train/loss" in trainer.callback_metrics:
            self.epochs[-1]["train/loss"] = float(trainer.callback_metrics["train/loss"])


class SkippedEpochs(Callback):
    """Lets any epoch from number `count` on (from 0) be better than all before it, which are chosen only among themselves.

    Whatever compares epochs forgets the best value so far when epoch `count` begins; the checkpoint itself stays, for a
    training that ends before.
    """

    def __init__(self, count: int) -> None:
        self.count = count

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Forget the best value of the skipped epochs when the last of them is over."""
        if trainer.current_epoch != self.count or self.count == 0:
            return
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, ModelCheckpoint):
                worst = torch.tensor(-torch.inf)
                callback.best_k_models = dict.fromkeys(callback.best_k_models, worst)
                callback.best_model_score = worst
            elif isinstance(callback, EarlyStopping):
                callback.best_score = torch.tensor(-torch.inf)
        for config in trainer.lr_scheduler_configs:
            if isinstance(config.scheduler, ReduceLROnPlateau):
                config.scheduler.best = -math.inf


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence Lightning's advice that does not concern a user of this program."""
    for name in ("lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*LeafSpec.* is deprecated.*")
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
        warnings.filterwarnings("ignore", ".*Checkpoint directory .* exists and is not empty.*")
        warnings.filterwarnings("ignore", ".*`srun` command is available on your system but is not used.*")
        # torchmetrics has gathered these from all processes already
        warnings.filterwarnings("ignore", ".*sync_dist=True.* when logging on epoch level in distributed setting.*")
        warnings.filterwarnings("ignore", ".*number of training batches .* is smaller than the logging interval.*")
        yield


@contextmanager
def memory_unfilled() -> Iterator[None]:
    """Leave new tensors as they are found: with deterministic algorithms, which Lightning switches on for good, PyTorch fills
    each with NaN first, so that a program that reads what was never written does it again. That is a tenth of a training."""
    setting: Any = torch.utils.deterministic  # which hides its setting from type checkers
    filled, setting.fill_uninitialized_memory = setting.fill_uninitialized_memory, False
    try:
        yield
    finally:
        setting.fill_uninitialized_memory = filled


def processes() -> dict[str, Any]:
    """A trainer's setting by which Lightning starts a run's further processes itself on a SLURM machine too, and neither
    takes the job's tasks for them nor warns of an `srun` that is not used."""
    on_slurm = "SLURM_NTASKS" in os.environ or shutil.which("srun") is not None
    return {"plugins": [LightningEnvironment()]} if on_slurm and not TorchElasticEnvironment.detect() else {}


class Served(LightningDataModule):
    """The batches of a training, of which each of its processes has its share."""

    def __init__(self, data: TextDataModule) -> None:
        super().__init__()
        self.data = data

    def train_dataloader(self) -> DataLoader[Batch]:
        assert self.trainer is not None
        return self.data.train_dataloader(self.trainer.global_rank, self.trainer.world_size)

    def val_dataloader(self) -> DataLoader[Batch]:
        return self.data.val_dataloader()


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
    """Train in place and leave the chosen epoch's weights in the classifier.

    Args:
        checkpoints: the folder that the best epoch so far is kept in.
        patience: stop after that many epochs in a row without a better one; None trains all epochs.

    Returns:
        the chosen epoch, from 0, and every epoch's metrics by name.
    """
    curve = TrainingCurve()
    best = ModelCheckpoint(
        checkpoints, monitor="validation/selection", mode="max", save_weights_only=True, filename="{epoch}"
    )
    assert classifier.recipe is not None
    skipped = SkippedEpochs(classifier.recipe.skip_epochs)
    stopping = [] if patience is None else [EarlyStopping("validation/selection", mode="max", patience=patience)]
    with quiet_lightning(), memory_unfilled():
        trainer = Trainer(
            **processes() | hardware,
            max_epochs=epochs,
            gradient_clip_val=gradient_clip,
            deterministic=True,
            logger=logger or False,
            callbacks=[best, skipped, StopOnNaN(), curve, *stopping, *callbacks],
            num_sanity_val_steps=0,
            enable_model_summary=False,
            use_distributed_sampler=False,  # the data module's own sampler knows ranks and length buckets
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
        leave_process_group(trainer)
    checkpoint = torch.load(best.best_model_path, map_location="cpu", weights_only=True)
    classifier.load_state_dict(checkpoint["state_dict"])
    return int(checkpoint["epoch"]), curve.epochs


def leave_process_group(trainer: Trainer) -> None:
    """After a training on several devices the first process continues alone; the others have done their part and leave.

    The process group is taken down first: as long as it stands, torchmetrics would wait for processes that have left.

    Raises:
        SystemExit: with status 0, in all processes but the first.
    """
    if trainer.world_size == 1:
        return
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
    if trainer.global_rank > 0:
        raise SystemExit(0)
    # Lightning left its notes for the others here, and would take this process for one of them in a second training
    for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "LOCAL_RANK", "WORLD_SIZE"):
        os.environ.pop(name, None)


@contextmanager
def examined_precisely(classifier: TrainedModel) -> Iterator[TrainedModel]:
    """The classifier in the precision that it is examined in, its float32 weights back, unchanged, afterwards.

    float32 sums depend on the batch that an example is in, in their last digits, and a search of 500 steps makes first
    digits of these. In float64 what is left is far below anything that is reported.
    """
    try:
        yield classifier.to(classifier.precision)
    finally:
        classifier.float()


def listen(
    classifier: TrainedModel, data: TextDataModule, split: str, *, hardware: dict[str, Any], callbacks: list[Callback]
) -> None:
    """One pass with the callbacks listening, on one device whatever trained the model: over the `test` split with the probes
    among them, or over the splits that no probe examines (`predict`)."""
    is_test = split == "test"
    with quiet_lightning(), memory_unfilled(), examined_precisely(classifier) if is_test else nullcontext():
        trainer = Trainer(
            # Apple's GPUs have no float64
            accelerator="cpu" if is_test and torch.backends.mps.is_available() else hardware["accelerator"],
            inference_mode=not is_test,  # under inference mode no probe could differentiate anything
            callbacks=callbacks,
            enable_progress_bar=is_test,
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            **processes(),
        )
        if not is_test:
            trainer.predict(classifier, data.predict_dataloader(), return_predictions=False)
            return
        trainer.test(classifier, data.test_dataloader(), verbose=False)
