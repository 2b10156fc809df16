"""One progress bar per stage, counted in examples."""

import sys
from typing import Any

from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from tqdm import tqdm

from attnprobe.batch import Batch


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
