"""Fitting a classifier by its recipe, and what ends it early."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import Logger
from torch import Tensor

from attnprobe.errors import UserError
from attnprobe.models.classifier import AttentionClassifier


class StopOnNaN(Callback):
    """Ends a training whose loss is no number any more, before it fills tables with NaN."""

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int  # noqa: ARG002
    ) -> None:
        """Look at one step's loss."""
        loss: Tensor = outputs["loss"]
        if not torch.isfinite(loss):
            raise UserError(
                f"the training loss became {loss.item()} in epoch {trainer.current_epoch + 1}, batch {batch_idx + 1}: "
                f"the training diverged. Try a lower training.recipe.optimizer.lr or training.gradient_clip=5, "
                f"and look for extreme values in data.vectors."
            )


@contextmanager
def quiet_lightning() -> Iterator[None]:
    """Silence Lightning's advice that does not concern a user of this program."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not have many workers.*")
        warnings.filterwarnings("ignore", ".*Checkpoint directory .* exists and is not empty.*")
        warnings.filterwarnings("ignore", ".*number of training batches .* is smaller than the logging interval.*")
        yield


def fit(
    classifier: AttentionClassifier,
    data: LightningDataModule,
    *,
    directory: Path,
    epochs: int,
    gradient_clip: float | None,
    hardware: dict[str, Any],
    callbacks: list[Callback],
    logger: Logger | None,
) -> int:
    """Train in place and leave the chosen epoch's weights in the classifier.

    Returns:
        the chosen epoch, from 0.
    """
    best = ModelCheckpoint(
        directory / "checkpoints", monitor="validation/selection", mode="max", save_weights_only=True, filename="{epoch}"
    )
    with quiet_lightning():
        trainer = Trainer(
            **hardware,
            max_epochs=epochs,
            gradient_clip_val=gradient_clip,
            deterministic=True,
            logger=logger or False,
            callbacks=[best, StopOnNaN(), *callbacks],
            num_sanity_val_steps=0,
            enable_model_summary=False,
            use_distributed_sampler=False,  # the data module's own sampler knows ranks and length buckets
            default_root_dir=directory,
        )
        trainer.fit(classifier, datamodule=data)
    checkpoint = torch.load(best.best_model_path, map_location="cpu", weights_only=True)
    classifier.load_state_dict(checkpoint["state_dict"])
    return int(checkpoint["epoch"])


@contextmanager
def examined_in_double(classifier: AttentionClassifier) -> Iterator[AttentionClassifier]:
    """The classifier in float64, its weights back in float32, unchanged, afterwards.

    float32 sums depend on the batch that an example is in, in their last digits, and a search of 500 steps makes first
    digits of these. In float64 what is left is far below anything that is reported.
    """
    try:
        yield classifier.double()
    finally:
        classifier.float()


def examine(
    classifier: AttentionClassifier, data: LightningDataModule, *, hardware: dict[str, Any], callbacks: list[Callback]
) -> None:
    """One pass over the test split with the probes listening, on one device whatever trained the model."""
    with quiet_lightning(), examined_in_double(classifier):
        trainer = Trainer(
            # Apple's GPUs have no float64
            accelerator="cpu" if torch.backends.mps.is_available() else hardware["accelerator"],
            devices=1,
            inference_mode=False,  # under inference mode no probe could differentiate anything
            logger=False,
            callbacks=callbacks,
            enable_checkpointing=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
        trainer.test(classifier, datamodule=data, verbose=False)
