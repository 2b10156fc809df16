"""One run, top to bottom: settings → data → model → fit → test with probes → tables → figures →
manifest."""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from lightning import seed_everything
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.loggers import Logger, WandbLogger
from omegaconf import DictConfig, OmegaConf
from safetensors.torch import load_file, save_file

from attnprobe.core.errors import UserError
from attnprobe.data.data_warnings import tell_section
from attnprobe.data.module import TextDataModule
from attnprobe.data.teacher import Teacher
from attnprobe.findings.groups import read_run
from attnprobe.findings.stored import kept_findings
from attnprobe.importance.base import Importance
from attnprobe.models.trained import TrainedModel
from attnprobe.probes.base import Probe, ProbeRunner
from attnprobe.report.figures import save_figures
from attnprobe.results.directory import (
    CONFIG,
    PIPELINE,
    SECTION,
    UNTESTED,
    VOCABULARY,
    WEIGHTS,
    RunDirectory,
    examples_file,
    table_file,
)
from attnprobe.results.files import DamagedRun, records_of, write_atomically, write_text
from attnprobe.results.fingerprint import fingerprint
from attnprobe.results.numbers import Numbers
from attnprobe.results.table import IMPORTANCES, told
from attnprobe.results.writer import CHECKPOINTS, OwnRunDirectory
from attnprobe.runs.build import importances_of, untrained
from attnprobe.runs.collecting import (
    PlaygroundCollector,
    PredictionCollector,
    made_with,
    whole_rows,
    write_results,
)
from attnprobe.runs.configuration import WandbTracker
from attnprobe.runs.forecasts import Forecast
from attnprobe.runs.lock import locked
from attnprobe.runs.prepare import prepare
from attnprobe.runs.settings import SPLIT, Settings
from attnprobe.runs.training import NamedWandbLogger, Progress, fit, listen, tracked


def run(config: DictConfig, *, sweep: bool = False) -> Path:
    """`examine` a classifier by a composed configuration; arguments and errors are the same."""
    return examine(Settings.of(config), sweep=sweep)


def examine(settings: Settings, *, sweep: bool = False) -> Path:
    """Train one classifier, or load one that is trained, and examine it with the configured probes.

    Args:
        sweep: this is one job of several: a finished one is skipped and not an error.

    Returns:
        the run's directory.

    Raises:
        UserError: a setting, a file or the data cannot be used; nothing half-written is left
            behind.
    """
    config = settings.config
    parts = settings.parts
    experiment = config["experiment"]
    if parts.study is not None:
        raise UserError(
            f"experiment={experiment} is a study of several runs: start it with `python -m attnprobe "
            f"+experiment={experiment}`, or with attnprobe.runs.studies.carry_out_study"
        )
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks.isdigit() and int(tasks) > 1:
        raise UserError(
            f"srun started this command {tasks} times (--ntasks={tasks}), and a run is one process: expected --ntasks=1. "
            f"For several devices ask for them with --gpus-per-node, and set trainer.devices, which starts their processes"
        )
    # Lightning starts further processes to train on several devices; the first alone writes and
    # examines
    is_worker = int(os.environ.get("LOCAL_RANK", 0)) > 0
    directory = settings.directory
    probes = list(parts.probe.values())
    importances = importances_of(
        (name for probe in probes for name in probe.uses), parts.importance
    )
    for importance in importances.values():
        importance.files()  # refuses those that are missing
    if is_worker:
        if not RunDirectory(directory).is_trained:
            carry_out(settings, OwnRunDirectory(directory), [], {}, None, sweep)
        return directory
    with locked(directory):
        own = prepare(directory, settings, config["on_finished"] or ("skip" if sweep else "error"))
        if own is None:
            return directory
        try:
            with tracked(settings, own) as logger:
                carry_out(settings, own, probes, importances, logger, sweep)
                with suppress(DamagedRun):  # another probe's table: whoever reads it is told
                    kept_findings([read_run(directory)], directory)
                if isinstance(logger, WandbLogger) and isinstance(parts.logger, WandbTracker):
                    from attnprobe.report.tracking import log_results

                    log_results(
                        logger.experiment,
                        directory,
                        log_text=parts.logger.log_text,
                        log_model=parts.logger.log_model,
                        examples=parts.logger.examples,
                    )
        except BaseException:
            # what is trained is kept for the next try; anything less is removed
            if not own.is_trained:
                own.discard()
            raise
    return directory


def carry_out(
    settings: Settings,
    directory: OwnRunDirectory,
    probes: list[Probe],
    importances: Mapping[str, Importance],
    logger: Logger | None,
    sweep: bool,
) -> None:
    """Everything between the prepared directory and the manifest, which is written last."""
    started = time.time()
    config = settings.config
    parts = settings.parts
    seed_everything(config["seed"], workers=True, verbose=False)
    data = parts.data
    data.setup("fit")
    teacher = (
        None if config["teacher"] is None else Teacher.open(config["teacher"], tuple(data.splits))
    )
    classifier = untrained(parts, data)
    if int(os.environ.get("LOCAL_RANK", 0)) == 0:
        tell_section(str(data.name), data.section)
    if teacher is not None:
        data.attach_teacher(teacher)
    for probe in probes:
        probe.refuse(classifier)
        probe.prepare(data.splits)
    for importance in importances.values():
        importance.refuse(classifier)
        importance.prepare(data, SPLIT)
    trained = train(settings, directory, data, classifier, logger)
    trained_at = time.time()

    runner = ProbeRunner(probes, config["seed"], data.vocabulary.words, importances, data.classes)
    predictions = PredictionCollector()
    playground = PlaygroundCollector(data.splits[SPLIT], parts.task.epsilon)
    title = f"probe with {', '.join(probe.name for probe in probes)}" if probes else "test"
    forecast = (
        [] if sweep else [Forecast(data.splits[SPLIT], runner=runner)]
    )  # a study has said how long its runs take
    examining = LambdaCallback(on_test_batch_end=runner.on_test_batch_end)
    listeners = [*forecast, examining, predictions, playground, Progress(title)]
    listen(classifier, data, SPLIT, hardware=parts.trainer.arguments, callbacks=listeners)

    curve = {name for epoch in trained["curve"] for name in epoch}
    performance = {
        name: value.double().cpu().numpy() for name, value in classifier.performance.items()
    }
    epochs = {
        name.replace("/", "_"): np.array([one.get(name, np.nan) for one in trained["curve"]])
        for name in curve
    }
    rows = {
        "training": whole_rows(epochs),
        "performance": whole_rows(performance | {"examples": np.array(data.sizes[SPLIT])}),
    }
    before = directory.read_manifest() or {"tables": {}, "files": {}}
    write_text(OmegaConf.to_yaml(config), directory.place(CONFIG))
    heard = (runner, predictions, playground)
    written = write_results(directory, data.splits[SPLIT], heard, rows, settings.identity, config)
    tables = before["tables"] | written
    if config["figures"]:
        files = {probe: directory.file(table_file(probe)) for probe in written}
        numbers = Numbers((files,), {IMPORTANCES: told([{"tables": tables}])})
        for path in save_figures([directory], numbers, directory.folder("figures/")):
            directory.place(f"figures/{path.name}")  # its name is known only now
    content = {
        **{
            name: one
            for name, one in settings.identity("all").items()
            if name not in ("split", "probe")
        },
        "classes": data.classes,
        "counts": data.counts,
        SECTION: data.section,
        "chosen_epoch": trained["chosen_epoch"],
        "teacher": None
        if teacher is None
        else {"run_id": teacher.manifest["run_id"], "directory": config["teacher"]},
        "tables": tables,
        "halved_batches": classifier.halving.count,
        "model_facts": classifier.facts,
        "attention_on": predictions.shares,
        "training": settings.training,
        "training_fingerprint": fingerprint(settings.training),
        "seconds": {
            "until_trained": round(trained_at - started, 1),
            "total": round(time.time() - started, 1),
        },
        **made_with("lightning", "torchmetrics", "scipy", "datasets", "spacy"),
    }
    # a figure that somebody has deleted is no loss to those that are made now
    kept = {
        name: one
        for name, one in before["files"].items()
        if name.split("/")[0] != "figures" or directory.has(name)
    }
    directory.finish(content, trained["files"] | kept)


def train(
    settings: Settings,
    directory: OwnRunDirectory,
    data: TextDataModule,
    classifier: TrainedModel,
    logger: Logger | None,
) -> dict[str, Any]:
    """Train, or load the weights of a training that was finished before."""
    config = settings.config
    parts = settings.parts
    data_fingerprint = data.fingerprint
    if directory.is_trained:
        trained = directory.training()
        if trained["data_fingerprint"] != data_fingerprint:
            raise UserError(
                f"{directory.path} was trained on other data under the same name: the files have changed since. Train "
                f"again with on_finished=replace, or elsewhere with output=…"
            )
        classifier.load_state_dict(load_file(directory / WEIGHTS))
        return trained
    epoch: int | None = None
    curve: list[dict[str, float]] = []
    if parts.training.epochs:
        shows_text = isinstance(parts.logger, WandbTracker) and parts.logger.log_text
        if isinstance(logger, NamedWandbLogger) and shows_text:
            logger.classes = data.classes
        epoch, curve = fit(
            classifier,
            data,
            checkpoints=directory.folder(CHECKPOINTS),
            epochs=parts.training.epochs,
            gradient_clip=parts.training.gradient_clip,
            patience=parts.training.patience,
            hardware=parts.trainer.arguments,
            callbacks=[
                Forecast(data.splits["train"], batch_size=data.settings.batch_size),
                Progress(),
            ],
            logger=logger,
        )
    write_text(OmegaConf.to_yaml(config), directory.place(CONFIG))
    directory.place(PIPELINE)
    data.pipeline.save(directory.place(VOCABULARY).parent)
    # those that share memory copied: a file of safetensors holds each once
    weights = {
        name: weight.detach().clone().contiguous()
        for name, weight in classifier.state_dict().items()
    }
    write_atomically(directory.place(WEIGHTS), lambda path: save_file(weights, path))
    untested = [split for split in UNTESTED if split in data.splits]
    predictions = {split: PredictionCollector(number) for number, split in enumerate(untested)}
    if untested:
        listen(
            classifier,
            data,
            "predict",
            hardware=parts.trainer.arguments,
            callbacks=list(predictions.values()),
        )
    for split, collector in predictions.items():
        collector.write(data.splits[split], directory.place(examples_file(split)))
    trained = {
        "chosen_epoch": epoch,
        "data_fingerprint": data_fingerprint,
        "inputs": records_of(settings.input_files()),
        "training": settings.training,
        "training_fingerprint": fingerprint(settings.training),
        "curve": curve,
    }
    return directory.finish_training(trained)
