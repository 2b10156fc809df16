"""A run directory of what probes measured in a test loop that is not a run's own."""

import hashlib
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from lightning import Callback, LightningModule, Trainer

from attnprobe.data.batching import TextSplit
from attnprobe.models.examined import Examined
from attnprobe.probes.base import SPLIT, Probe, ProbeRunner
from attnprobe.results.directory import CONFIG, SECTION, TRAINED
from attnprobe.results.files import write_text
from attnprobe.results.fingerprint import fingerprint
from attnprobe.results.writer import OwnRunDirectory
from attnprobe.runs.collecting import (
    Listeners,
    PlaygroundCollector,
    PredictionCollector,
    made_with,
    whole_rows,
    write_results,
)
from attnprobe.runs.test_loop import BatchReader, texts_of

OUTSIDE = "outside"
"""The experiment of runs that no settings describe."""


class WriteRun(BatchReader):
    """Leaves a run directory, as `attnprobe report`, `compare` and `read_results` take it.

    Beside the probes' tables it holds every example's prediction and attention, and how well the
    model predicts. What another call left at its place is replaced once this one has measured;
    anything else is refused before the test begins. `fast_dev_run` writes nothing.

    Args:
        path: of the run directory.
        data: what the texts are called; None: as the data module is.
        model: what the model is called.
        epsilon: TVD within which another attention's prediction counts as the same, for the page's
            playground.
        identity: identifying columns of the tables in place of the run's own, such as `run_id` and
            `experiment`.
    """

    def __init__(
        self,
        path: str | os.PathLike,
        *,
        data: str | None = None,
        model: str = "own_model",
        epsilon: float = 0.01,
        identity: dict[str, Any] | None = None,
    ) -> None:
        super().__init__()
        self.directory = OwnRunDirectory(Path(path))
        self.data = data
        self.model = model
        self.epsilon = epsilon
        self.identity = identity or {}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Refuse a folder that is somebody else's."""
        if stage == "test":
            self.directory.refuse_foreign()

    def on_test_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Begin without examples."""
        self._texts = texts_of(trainer, pl_module)
        self._collectors = (
            PredictionCollector(),
            PlaygroundCollector(self._texts.splits[SPLIT], self.epsilon),
        )

    def on_batch_examined(self, examined: Examined) -> None:
        """Keep the predictions of a batch, and solve a few of its texts."""
        for collector in self._collectors:
            collector.on_batch_examined(examined)

    def on_test_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Bring together what several devices predicted."""
        for collector in self._collectors:
            collector.on_test_epoch_end(trainer, pl_module)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write the run, in the first process alone."""
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            print(f"fast_dev_run: nothing is written to {self.directory.path}", file=sys.stderr)
        elif trainer.is_global_zero:
            self._write(_runner_of(trainer))

    def _write(self, runner: ProbeRunner) -> None:
        """Replace what is at the run's place."""
        predictions, playground = self._collectors
        # limit_test_batches leaves texts out
        split = self._texts.splits[SPLIT].only(sorted(predictions.rows))
        data = self._texts.data
        name = self.data or ("texts" if data is None else str(data.name))
        facts: dict[str, Any] = {
            "data": {"name": name},
            "model": {"name": self.model},
            "seed": runner.seed,
        }
        if split.text_number is not None:
            facts["data"]["question_kind"] = "label"
        identity = {
            "run_id": f"{name}-{self.model}-seed{runner.seed}-"
            f"{fingerprint([facts, _digest_of(split)])}",
            "experiment": OUTSIDE,
            "data": name,
            "model": self.model,
            "seed": runner.seed,
            "split": SPLIT,
        } | self.identity

        directory = self.directory
        directory.path.parent.mkdir(parents=True, exist_ok=True)
        directory.clear()
        directory.mark()
        try:
            write_text(yaml.safe_dump(facts, allow_unicode=True), directory.place(CONFIG))
            training = {"training": facts, "training_fingerprint": fingerprint(facts)}
            directory.finish_training({**training, "curve": []})
            rows = {"performance": whole_rows(predictions.performance())}
            kept = {name: numbers.copy() for name, numbers in runner.rows.items()}
            tables = write_results(
                directory,
                split,
                Listeners(runner, predictions, playground),
                rows,
                lambda probe: identity | {"probe": probe},
                {},
            )
            runner.rows = kept  # for `probe.table()`
            content = identity | {
                "classes": list(split.classes),
                "counts": {SPLIT: {"kept": len(split)}},
                "tables": tables,
                **training,
                **({} if data is None else {SECTION: data.section}),
                **made_with(),
            }
            directory.finish(content, directory.read_listing(TRAINED)["files"])
        except BaseException:
            directory.discard()
            raise


def _runner_of(trainer: Trainer) -> ProbeRunner:
    """What the probes of this trainer measured."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    for callback in callbacks:
        if isinstance(callback, Probe) and callback.runner is not None:
            return callback.runner
    return ProbeRunner([], 0)


def _digest_of(split: TextSplit) -> str:
    """What tells texts and labels from others."""
    digest = hashlib.sha256(np.ascontiguousarray(split.words.flat).tobytes())
    digest.update(split.labels.tobytes())
    digest.update("\0".join(split.spelling).encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
