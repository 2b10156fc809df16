"""One run, top to bottom: settings → data → model → fit → test with probes → tables → figures → manifest."""

import os
import platform
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import numpy as np
from hydra.utils import instantiate
from lightning import seed_everything
from lightning.pytorch.callbacks import LambdaCallback
from lightning.pytorch.loggers import Logger, WandbLogger
from omegaconf import DictConfig, OmegaConf

from attnprobe.core.errors import UserError
from attnprobe.data.data_warnings import tell_section
from attnprobe.data.teacher import Teacher
from attnprobe.findings.groups import read_run
from attnprobe.findings.table import kept_findings
from attnprobe.importance.base import Importance
from attnprobe.probes.base import Probe, ProbeRunner
from attnprobe.report.figures import save_figures
from attnprobe.results.directory import (
    CONFIG,
    PLAYGROUND,
    SECTION,
    WHOLE_SPLIT,
    RunDirectory,
    examples_file,
    table_file,
)
from attnprobe.results.files import DamagedRun, write_text
from attnprobe.results.fingerprint import fingerprint
from attnprobe.results.numbers import Numbers
from attnprobe.results.table import IMPORTANCES, Rows, told
from attnprobe.results.writer import OwnRunDirectory
from attnprobe.runs.build import importances_of, untrained
from attnprobe.runs.collecting import PredictionCollector
from attnprobe.runs.devices import is_worker_rank
from attnprobe.runs.forecasts import Forecast
from attnprobe.runs.lock import locked
from attnprobe.runs.logger import Progress, tracked
from attnprobe.runs.playground import PlaygroundCollector, chosen
from attnprobe.runs.prepare import prepare
from attnprobe.runs.settings import SPLIT, Settings
from attnprobe.runs.tables import write_tables
from attnprobe.runs.training import listen
from attnprobe.runs.weights import train


def whole_rows(metrics: Mapping[str, np.ndarray]) -> Rows:
    """Numbers about the whole split as rows; a metric with several has a row for each, by step from 0 (epoch, class)."""
    rows = Rows()
    for name, values in metrics.items():
        step = np.arange(len(values)) if values.ndim else None
        rows.add(name, np.array([WHOLE_SPLIT]), values[None], step)
    return rows


LIBRARIES = ("attnprobe", "torch", "lightning", "torchmetrics", "numpy", "scipy", "datasets", "spacy")


def run(config: DictConfig, *, sweep: bool = False) -> Path:
    """Train one classifier, or load one that is trained, and examine it with the configured probes.

    Args:
        config: the composed configuration (conf/config.yaml).
        sweep: this is one job of several: a finished one is skipped and not an error.

    Returns:
        the run directory; its manifest is written.

    Raises:
        UserError: a setting, a file or the data cannot be used; nothing half-written is left behind.
    """
    if config.study is not None:
        raise UserError(
            f"experiment={config.experiment} is a study of several runs: start it with `python -m attnprobe "
            f"+experiment={config.experiment}`, or with attnprobe.runs.studies.carry_out_study"
        )
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "1")
    if tasks.isdigit() and int(tasks) > 1:
        raise UserError(
            f"srun started this command {tasks} times (--ntasks={tasks}), and a run is one process: expected --ntasks=1. "
            f"For several devices ask for them with --gpus-per-node, and set trainer.devices, which starts their processes"
        )
    settings = Settings.of(config)
    directory = settings.directory
    policy = settings.config["on_finished"] or ("skip" if sweep else "error")
    probes: list[Probe] = [instantiate(part) for part in settings.config["probe"].values()]
    importances = importances_of((name for probe in probes for name in probe.uses), settings.config["importance"])
    for importance in importances.values():
        importance.files()  # refuses those that are missing
    if is_worker_rank():
        if not RunDirectory(directory).is_trained:
            carry_out(settings, OwnRunDirectory(directory), [], {}, None, sweep)
        return directory
    with locked(directory):
        own = prepare(directory, settings, policy)
        if own is None:
            return directory
        try:
            with tracked(settings, own) as logger:
                carry_out(settings, own, probes, importances, logger, sweep)
                with suppress(DamagedRun):  # another probe's table: whoever reads it is told
                    kept_findings([read_run(directory)], directory)
                if isinstance(logger, WandbLogger):
                    from attnprobe.report.tracking import log_results

                    shown = {key: settings.config["logger"][key] for key in ("log_text", "log_model", "examples")}
                    log_results(logger.experiment, directory, **shown)
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
    started, config = time.time(), settings.config
    seed_everything(config["seed"], workers=True, verbose=False)
    data = settings.data()
    data.setup("fit")
    teacher = None if config["teacher"] is None else Teacher.open(config["teacher"], tuple(data.splits))
    classifier = untrained(config, data)
    if not is_worker_rank():
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

    words = data.vocabulary.words
    runner = ProbeRunner(probes, config["seed"], words, importances, data.classes)
    examining = LambdaCallback(on_test_batch_end=runner.on_test_batch_end)
    predictions = PredictionCollector()
    playground = PlaygroundCollector(chosen(data.splits[SPLIT]), config["task"]["epsilon"])
    title = f"probe with {', '.join(probe.name for probe in probes)}" if probes else "test"
    forecast = [] if sweep else [Forecast(data.splits[SPLIT], runner=runner)]  # a study has said how long its runs take
    listeners = [*forecast, examining, predictions, playground, Progress(title)]
    listen(classifier, data, SPLIT, hardware=config["trainer"], callbacks=listeners)

    rows = {
        "training": whole_rows(
            {
                name.replace("/", "_"): np.array([epoch.get(name, np.nan) for epoch in trained["curve"]])
                for name in {name for epoch in trained["curve"] for name in epoch}
            }
        ),
        "performance": whole_rows(
            {name: value.double().cpu().numpy() for name, value in classifier.performance.items()}
            | {"examples": np.array(data.sizes[SPLIT])}
        ),
    } | runner.rows
    before = directory.read_manifest() or {"tables": {}, "files": {}}
    write_text(OmegaConf.to_yaml(config), directory.place(CONFIG))
    predictions.write(data.splits[SPLIT], directory.place(examples_file(SPLIT)))
    playground.write(directory.place(PLAYGROUND))
    tables = before["tables"] | write_tables(directory, runner, rows, settings.identity, settings.config)
    if config["figures"]:
        files = {probe: directory.file(table_file(probe)) for probe in rows}
        numbers = Numbers((files,), {IMPORTANCES: told([{"tables": tables}])})
        for path in save_figures([directory], numbers, directory.folder("figures/")):
            directory.place(f"figures/{path.name}")  # its name is known only now
    content = {
        "run_id": settings.run_id,
        "experiment": config["experiment"],
        "data": config["data"]["name"],
        "model": config["model"]["name"],
        "seed": config["seed"],
        "classes": data.classes,
        "counts": data.counts,
        SECTION: data.section,
        "chosen_epoch": trained["chosen_epoch"],
        "teacher": None if teacher is None else {"run_id": teacher.manifest["run_id"], "directory": config["teacher"]},
        "tables": tables,
        "halved_batches": classifier.halving.count,
        "model_facts": classifier.facts,
        "attention_on": predictions.shares,
        "training": settings.training,
        "training_fingerprint": fingerprint(settings.training),
        "seconds": {"until_trained": round(trained_at - started, 1), "total": round(time.time() - started, 1)},
        "versions": {name: version(name) for name in LIBRARIES} | {"python": platform.python_version()},
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    # a figure that somebody has deleted is no loss to those that are made now
    kept = {
        name: one for name, one in before["files"].items() if name.split("/")[0] != "figures" or directory.has(name)
    }
    directory.finish(content, trained["files"] | kept)
