"""A probe as a callback of Lightning: `Trainer(callbacks=[Permutation()]).test(model, data)`."""

import operator
import os

import pandas as pd
from lightning import Callback, LightningModule, Trainer

from attnprobe.core.errors import UserError
from attnprobe.findings.headlines import headline
from attnprobe.models.examined import Examined, classifier_of, forget_batch
from attnprobe.probes.base import Probe, ProbeRunner
from attnprobe.results.table import frame_of
from attnprobe.runs.test_loop import BatchReader, gathered, texts_of

NOBODY = dict.fromkeys(("run_id", "experiment", "data", "model", "split"), "")
"""Identifying columns of numbers that are in no run directory."""


class ProbeHooks(BatchReader):
    """What Lightning calls of a probe.

    The probes among a trainer's callbacks share a `ProbeRunner`. One that has measured nothing yet
    is used (`ProbeRunner.callbacks`), so that a seed and importances can be given; else the seed is
    that of `lightning.seed_everything`, and 0 without it.
    """

    runner: ProbeRunner | None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a model that this probe cannot examine, before it is trained or tested."""
        if stage in ("fit", "test"):
            self._probe.refuse(classifier_of(pl_module))

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let the probes of this trainer share a runner, which reads what they need of the data."""
        callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        probes: list[Probe] = [callback for callback in callbacks if isinstance(callback, Probe)]
        if self is not probes[0]:
            return
        if self.runner is None or not _same(self.runner.probes, probes):
            self.runner = ProbeRunner(probes, int(os.environ.get("PL_GLOBAL_SEED", 0)))
        elif self.runner.started:
            self.runner = self.runner.fresh()
        self.runner.callbacks()
        if not self.runner.prepared:
            texts = texts_of(trainer, pl_module)
            self.runner.prepare(classifier_of(pl_module), texts.splits, texts.data)

    def on_batch_examined(self, examined: Examined) -> None:
        """Measure a batch that went through the model."""
        assert self.runner is not None
        classifier = examined.classifier
        with classifier.precisely():
            self.runner.measure(self._probe, classifier, examined.batch, examined.outputs)

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Bring together what several devices measured, and log this probe's headline numbers."""
        assert self.runner is not None
        name = self._probe.name
        self.runner.join(name, gathered(trainer, self.runner.measured(name)))
        rows = self.runner.rows[name].per_example()
        if rows.columns:
            table = frame_of(rows.table({**NOBODY, "seed": self.runner.seed, "probe": name}))
            # several devices have the same numbers by now
            pl_module.log_dict(headline(table), sync_dist=trainer.world_size > 1)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let go of the last batch."""
        forget_batch(pl_module)

    def table(self) -> pd.DataFrame:
        """What this probe measured in the last test loop.

        Returns:
            A row per number: `probe metric example_id step value site`, as in
            `attnprobe.read_results`.

        Raises:
            UserError: nothing was measured yet.
        """
        name = self._probe.name
        if self.runner is None or not self.runner.started:
            raise UserError(
                f"probe {name} has measured nothing: expected "
                f"Trainer(callbacks=[…]).test(model, datamodule=data) before its table"
            )
        identity = {**NOBODY, "seed": self.runner.seed, "probe": name}
        columns = ["probe", "metric", "example_id", "step", "value", "site"]
        return frame_of(self.runner.rows[name].table(identity))[columns]

    @property
    def _probe(self) -> Probe:
        assert isinstance(self, Probe)
        return self


def _same(probes: list[Probe], others: list[Probe]) -> bool:
    """Whether these are the same objects, in the same order."""
    return len(probes) == len(others) and all(map(operator.is_, probes, others))
