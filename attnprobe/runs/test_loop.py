"""What callbacks of this package need of Lightning's test loop."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, final

import torch
from lightning import Callback, LightningModule, Trainer
from torch.utils.data import DistributedSampler, SequentialSampler

from attnprobe.core.errors import UserError
from attnprobe.data.batching import TextSplit
from attnprobe.data.module import TextDataModule
from attnprobe.models.examined import Examined, examined, places_of
from attnprobe.models.staged import Staged
from attnprobe.probes.base import SPLIT

Value = TypeVar("Value")


@dataclass(frozen=True)
class Texts:
    """What is tested.

    Attributes:
        splits: by name; that of `test` always.
        data: of which they are; None: of another loader.
    """

    splits: Mapping[str, TextSplit]
    data: TextDataModule | None


def texts_of(trainer: Trainer, module: LightningModule) -> Texts:
    """The texts of a trainer's test loop.

    Raises:
        UserError: they cannot be read.
    """
    data = trainer.datamodule  # type: ignore[attr-defined]
    if isinstance(data, TextDataModule):
        return Texts(data.splits, data)
    loader = _loader_of(trainer)
    if isinstance(loader.dataset, TextSplit):
        return Texts({SPLIT: loader.dataset}, None)
    if isinstance(module, Staged):
        return Texts({SPLIT: module.split_of(loader.dataset, loader.collate_fn)}, None)
    raise UserError(
        f"probes cannot read texts of {type(loader.dataset).__name__}: expected "
        f"Trainer(…).test(model, datamodule=TextDataModule.from_files(…))"
    )


class BatchReader(Callback, ABC):
    """A callback that reads each batch of the test loop, as probes do."""

    @abstractmethod
    def on_batch_examined(self, examined: Examined) -> None:
        """Take a batch that went through the model."""

    @final
    def on_test_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Read the batch, unless it only fills up a device's share."""
        examined = _read_batch(trainer, pl_module, outputs, batch, batch_idx)
        if examined is not None:
            self.on_batch_examined(examined)


def _read_batch(
    trainer: Trainer, module: LightningModule, outputs: Any, batch: Any, batch_idx: int
) -> Examined | None:
    """A batch of the test loop as probes read it; None: it only fills up a device's share."""
    loader = _loader_of(trainer)
    size = len(batch) if loader.batch_size is None else loader.batch_size
    first = batch_idx * size
    if loader.batch_size is not None:
        size = min(size, len(loader.sampler) - first)
    rows, is_repeat = places_of(loader.sampler, batch_idx, size, loader.batch_size)
    return examined(module, outputs, batch, rows, is_repeat)


def _loader_of(trainer: Trainer) -> Any:
    """The loader of the texts.

    Raises:
        UserError: there are several, or it may give texts in another order than the data set.
    """
    loaders: Any = trainer.test_dataloaders
    if not isinstance(loaders, torch.utils.data.DataLoader):
        raise UserError(
            f"{type(loaders).__name__} for the test loop: probes examine one DataLoader; test each "
            f"of several by a call of its own"
        )
    # an own split's batches know their texts
    if not isinstance(loaders.dataset, TextSplit) and not _keeps_order(loaders):
        raise UserError(
            f"the test loader takes texts by {_order_of(loaders)}, and they are known by their "
            f"place in the data set: expected DataLoader(dataset, batch_size=…), with "
            f"shuffle=False and no sampler or batch_sampler"
        )
    return loaders


def _keeps_order(loader: torch.utils.data.DataLoader) -> bool:
    """Whether batches of one size hold the data set's texts one after the other."""
    sampler = loader.sampler
    is_sequential = type(sampler) is SequentialSampler
    is_shared_out = type(sampler) is DistributedSampler and not sampler.shuffle
    return loader.batch_size is not None and (is_sequential or is_shared_out)


def _order_of(loader: torch.utils.data.DataLoader) -> str:
    """What chooses the texts of a batch, in words."""
    if loader.batch_size is None:
        return "batch_size=None" if loader.batch_sampler is None else "a batch_sampler"
    return type(loader.sampler).__name__


def gathered(trainer: Trainer, value: Value) -> list[Value]:
    """The value of every process, that of the first one first."""
    if trainer.world_size == 1 or not torch.distributed.is_initialized():
        return [value]
    values: list[Any] = [None] * trainer.world_size
    torch.distributed.all_gather_object(values, value)
    return values
