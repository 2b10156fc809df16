"""One run: settings → data → model → fit → test with probes → tables → figures → manifest."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from lightning import Callback, seed_everything
from lightning.pytorch.loggers import Logger
from omegaconf import DictConfig, OmegaConf
from safetensors.torch import load_file, save

from attnprobe.core.clock import CLOCK
from attnprobe.core.errors import UserError
from attnprobe.core.hooks import with_hooks
from attnprobe.core.launchers import is_worker, leave_other_launchers
from attnprobe.data.data_warnings import tell_section
from attnprobe.data.module import TextDataModule
from attnprobe.data.teacher import Teacher
from attnprobe.findings.groups import read_run
from attnprobe.findings.stored import kept_findings
from attnprobe.models.trained import TrainedModel
from attnprobe.probes.base import ProbeRunner
from attnprobe.report.figures import save_figures
from attnprobe.results.directory import (
    CONFIG,
    PIPELINE,
    SECTION,
    UNTESTED,
    VOCABULARY,
    WEIGHTS,
    examples_file,
    table_file,
)
from attnprobe.results.files import DamagedRun, records_of, write_atomically, write_text
from attnprobe.results.fingerprint import fingerprint
from attnprobe.results.lock import locked
from attnprobe.results.numbers import Numbers
from attnprobe.results.table import Rows, attrs_of
from attnprobe.results.writer import CHECKPOINTS, OwnRunDirectory
from attnprobe.runs.build import untrained
from attnprobe.runs.collecting import (
    Listeners,
    PlaygroundCollector,
    PredictionCollector,
    made_with,
    whole_rows,
    write_results,
)
from attnprobe.runs.forecasts import Forecast
from attnprobe.runs.prepare import prepare
from attnprobe.runs.settings import SPLIT, Settings
from attnprobe.runs.trackers import TrackedRun
from attnprobe.runs.training import fit, run_predict_loop, run_test_loop

PHASES = 4
"""Phases of a run: the data are read, the model is trained and tested, and the claims decided."""


def run(config: DictConfig, *, sweep: bool = False) -> Path:
    """`examine` a classifier by a composed configuration.

    Args:
        config: composed.
        sweep: see `examine`.

    Returns:
        the run's directory.

    Raises:
        UserError: see `examine`.
    """
    return examine(Settings.of(config), sweep=sweep)


def examine(settings: Settings, *, sweep: bool = False) -> Path:
    """Train one classifier, or load one that is trained, and examine it with the configured probes.

    Args:
        settings: of the run.
        sweep: this is one job of several: a finished one is skipped and not an error.

    Returns:
        the run's directory.

    Raises:
        UserError: if a setting, a file or the data cannot be used; nothing half-written is left
            behind.
    """
    parts = settings.parts
    _refuse_study(settings)
    _refuse_several_tasks()
    runner = ProbeRunner(list(parts.probe.values()), parts.seed, parts.importance)
    for importance in runner.importances.values():
        importance.files()  # refuses those that are missing

    # Lightning starts further processes to train on several devices; the first alone writes and
    # examines
    directory = settings.directory
    leave_other_launchers()
    on_finished = settings.config["on_finished"] or ("skip" if sweep else "error")
    if is_worker():
        own_directory = OwnRunDirectory(directory)
        own_directory.is_replaced = on_finished == "replace"
        if not own_directory.is_trained:
            carry_out(settings, own_directory, ProbeRunner([], 0), None, sweep)
        return directory

    with locked(directory):
        place = prepare(directory, settings, on_finished)
        if place is None:
            return directory
        own_directory = place.directory
        # the other tables are there, and stay
        missing = [probe for name, probe in parts.probe.items() if name in place.probes]
        runner = ProbeRunner(missing, parts.seed, parts.importance)
        try:
            tracked = TrackedRun(settings.identity("all"), settings.config, own_directory)
            with parts.logger.opened(tracked) as logger:
                carry_out(settings, own_directory, runner, logger, sweep)
                with CLOCK.step("decide"), suppress(DamagedRun):
                    # another probe's table may be damaged: whoever reads it learns of it
                    kept_findings([read_run(directory)], directory)
                parts.logger.log_results(logger, directory)
        except BaseException:
            # what is trained is kept for the next try; anything less is removed
            if not own_directory.is_trained:
                own_directory.discard()
            raise
    return directory


def _refuse_study(settings: Settings) -> None:
    """Refuse settings of a study, which is several runs."""
    if settings.parts.study is None:
        return
    experiment = settings.config["experiment"]
    raise UserError(
        f"experiment={experiment} is a study of several runs: start it with "
        f"`python -m attnprobe +experiment={experiment}`, "
        f"or with attnprobe.runs.studies.carry_out_study"
    )


def _refuse_several_tasks() -> None:
    """Refuse a command that srun has started several times."""
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    if not tasks.isdigit() or int(tasks) <= 1:
        return
    raise UserError(
        f"srun started this command {tasks} times (--ntasks={tasks}), and a run is one process: "
        f"expected --ntasks=1. For several devices ask for them with --gpus-per-node, "
        f"and set trainer.devices, which starts their processes"
    )


def carry_out(
    settings: Settings,
    directory: OwnRunDirectory,
    runner: ProbeRunner,
    logger: Logger | None,
    sweep: bool,
) -> None:
    """Do everything between the prepared directory and the manifest, which is written last.

    Args:
        settings: of the run.
        directory: prepared for this run.
        runner: the probes to examine the classifier with.
        logger: of the training's curves; None for none.
        sweep: this is one job of several.

    Raises:
        UserError: if the data or a file cannot be used, or a probe does not suit the model.
    """
    started_at = time.time()
    config = settings.config
    seed_everything(config["seed"], workers=True, verbose=False)
    data = settings.parts.data
    with CLOCK.step("read the data"):
        data.setup("fit")
        teacher = None
        if config["teacher"] is not None:
            teacher = Teacher.open(config["teacher"], tuple(data.splits))
        classifier = untrained(settings.parts, data)
    if not is_worker():
        tell_section(str(data.name), data.section)
    if teacher is not None:
        data.attach_teacher(teacher)
    runner.prepare(classifier, data.splits, data)

    with CLOCK.step(""):
        trained = train(settings, directory, data, classifier, logger)
    trained_at = time.time()
    listeners = _test(settings, classifier, runner, sweep=sweep)

    earlier = directory.read_manifest() or {"tables": {}, "files": {}}
    write_text(OmegaConf.to_yaml(config), directory.place(CONFIG))
    performance = listeners.predictions.performance()
    rows = {"training": _curve_rows(trained["curve"]), "performance": whole_rows(performance)}
    written = write_results(
        directory, data.splits[SPLIT], listeners, rows, settings.identity, config
    )
    facts = {
        **_identity_of_run(settings),
        "tables": earlier["tables"] | written,
        "training": settings.training,
    }
    if config["figures"]:
        _draw(directory, list(written), facts)

    content = {
        **facts,
        "classes": data.classes,
        "counts": data.counts,
        SECTION: data.section,
        "chosen_epoch": trained["chosen_epoch"],
        "teacher": _facts_of_teacher(teacher, config["teacher"]),
        "halved_batches": classifier.halving.count,
        "model_facts": classifier.facts,
        "attention_on": listeners.predictions.shares,
        "training_fingerprint": fingerprint(settings.training),
        "seconds": {
            "until_trained": round(trained_at - started_at, 1),
            "total": round(time.time() - started_at, 1),
        },
        **made_with("lightning", "torchmetrics", "scipy", "datasets", "spacy"),
    }
    directory.finish(content, trained["files"] | _remaining_files(earlier["files"], directory))


def _test(
    settings: Settings, classifier: TrainedModel, runner: ProbeRunner, *, sweep: bool
) -> Listeners:
    """Pass over the test split, and return what has listened."""
    data = settings.parts.data
    split = data.splits[SPLIT]
    predictions = PredictionCollector()
    playground = PlaygroundCollector(split, settings.parts.task.epsilon)
    callbacks: list[Callback] = [
        *runner.callbacks(),
        predictions,
        playground,
    ]
    if not sweep:  # a study has said how long its runs take
        callbacks.insert(0, Forecast(split, runner=runner))
    accelerator = settings.parts.trainer.arguments["accelerator"]
    run_test_loop(classifier, with_hooks(data), accelerator=accelerator, callbacks=callbacks)
    return Listeners(runner, predictions, playground)


def _curve_rows(curve: list[dict[str, float]]) -> Rows:
    """Rows of the table of the training's curve."""
    names = {name for epoch in curve for name in epoch}
    epochs = {
        name.replace("/", "_"): np.array([epoch.get(name, np.nan) for epoch in curve])
        for name in names
    }
    return whole_rows(epochs)


def _draw(directory: OwnRunDirectory, probes: list[str], facts: Mapping[str, Any]) -> None:
    """Draw the figures of these probes' tables; `facts` are what the manifest will say of them."""
    files = {probe: directory.file(table_file(probe)) for probe in probes}
    numbers = Numbers((files,), dict(attrs_of([(facts, directory)])))
    for path in save_figures([directory], numbers, directory.folder("figures/")):
        directory.place(f"figures/{path.name}")  # its name is known only now


def _identity_of_run(settings: Settings) -> dict[str, Any]:
    """What identifies the run in its manifest, without the columns of a single table."""
    identity = settings.identity("all")
    return {name: value for name, value in identity.items() if name not in ("split", "probe")}


def _facts_of_teacher(teacher: Teacher | None, directory: str | None) -> dict[str, Any] | None:
    """The manifest's entry about the teacher; None where there is none."""
    if teacher is None:
        return None
    return {"run_id": teacher.manifest["run_id"], "directory": directory}


def _remaining_files(files: Mapping[str, Any], directory: OwnRunDirectory) -> dict[str, Any]:
    """An earlier manifest's records without those of figures that somebody has deleted.

    These are no loss to the figures that are made now.
    """
    remaining = {}
    for name, record in files.items():
        is_figure = name.split("/")[0] == "figures"
        if not is_figure or directory.has(name):
            remaining[name] = record
    return remaining


def train(
    settings: Settings,
    directory: OwnRunDirectory,
    data: TextDataModule,
    classifier: TrainedModel,
    logger: Logger | None,
) -> dict[str, Any]:
    """Train a classifier in place, or load the weights of an earlier training.

    Args:
        settings: of the run.
        directory: of the run; what is trained is written there.
        data: of the run.
        classifier: untrained.
        logger: of the curves; None for none.

    Returns:
        the content of training.json: the chosen epoch, every epoch's metrics (`curve`), …

    Raises:
        UserError: if the data have changed since the earlier training, or the training fails.
    """
    data_fingerprint = data.fingerprint
    if directory.is_trained:
        trained = directory.training()
        if trained["data_fingerprint"] != data_fingerprint:
            raise UserError(
                f"{directory.path} was trained on other data under the same name: "
                f"the files have changed since. "
                f"Train again with on_finished=replace, or elsewhere with output=…"
            )
        classifier.load_state_dict(load_file(directory / WEIGHTS))
        return trained

    epoch: int | None = None
    curve: list[dict[str, float]] = []
    if settings.parts.training.epochs:
        epoch, curve = _fit(settings, directory, data, classifier, logger)
    write_text(OmegaConf.to_yaml(settings.config), directory.place(CONFIG))
    directory.place(PIPELINE)
    data.pipeline.save(directory.place(VOCABULARY).parent)
    # weights that share memory are copied, as a file of safetensors holds each once
    weights = {
        name: weight.detach().clone().contiguous()
        for name, weight in classifier.state_dict().items()
    }
    # safetensors itself would write a file that nobody but its owner may read
    write_atomically(directory.place(WEIGHTS), lambda path: path.write_bytes(save(weights)))
    with CLOCK.limited(None):  # a training that is finished is kept
        _predict_untested(settings, directory, data, classifier)
    trained = {
        "chosen_epoch": epoch,
        "data_fingerprint": data_fingerprint,
        "inputs": records_of(settings.input_files()),
        "made_in": os.path.relpath(Path.cwd(), directory.path),
        "training": settings.training,
        "training_fingerprint": fingerprint(settings.training),
        "curve": curve,
    }
    return directory.finish_training(trained)


def _fit(
    settings: Settings,
    directory: OwnRunDirectory,
    data: TextDataModule,
    classifier: TrainedModel,
    logger: Logger | None,
) -> tuple[int, list[dict[str, float]]]:
    """`fit` a classifier by a run's settings."""
    parts = settings.parts
    if logger is not None:
        parts.logger.name_classes(logger, data.classes)
    forecast = Forecast(data.splits["train"], batch_size=data.settings.batch_size)
    return fit(
        classifier,
        with_hooks(data),
        checkpoints=directory.folder(CHECKPOINTS),
        epochs=parts.training.epochs,
        gradient_clip=parts.training.gradient_clip,
        patience=parts.training.patience,
        stop_at=parts.training.stop_at,
        hardware=parts.trainer.arguments,
        callbacks=[forecast],
        logger=logger,
    )


def _predict_untested(
    settings: Settings,
    directory: OwnRunDirectory,
    data: TextDataModule,
    classifier: TrainedModel,
) -> None:
    """Write predictions and attentions of the splits that no probe examines."""
    splits = [split for split in UNTESTED if split in data.splits]
    if not splits:
        return
    collectors = [PredictionCollector(number) for number in range(len(splits))]
    run_predict_loop(
        classifier,
        data,
        splits,
        accelerator=settings.parts.trainer.arguments["accelerator"],
        callbacks=list(collectors),
    )
    for split, collector in zip(splits, collectors, strict=True):
        collector.write(data.splits[split], directory.place(examples_file(split)))
