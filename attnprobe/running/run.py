"""One run, top to bottom: settings → data → model → fit → test with probes → tables → figures → manifest."""

import os
import platform
import shutil
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

from hydra.utils import instantiate
from lightning import seed_everything
from lightning.pytorch.loggers import Logger, WandbLogger
from omegaconf import DictConfig, OmegaConf

from attnprobe.data.files import SPLITS
from attnprobe.data.module import TextDataModule
from attnprobe.data.section import tell_section
from attnprobe.data.teaching import Teacher
from attnprobe.errors import UserError
from attnprobe.importance.base import Importance
from attnprobe.models.trained import TrainedModel
from attnprobe.probes.base import Probe, ProbeRunner
from attnprobe.probes.parts import Parts
from attnprobe.report.figures.draw import save_figures
from attnprobe.report.numbers import StoredNumbers, StoredTable
from attnprobe.results.directory import (
    PARTS,
    PLAYGROUND,
    WORKSHOP,
    RunDirectory,
    examples_file,
    figure_file,
    table_file,
)
from attnprobe.results.fingerprint import fingerprint
from attnprobe.results.ownership import OwnRunDirectory
from attnprobe.results.statements import SECTION
from attnprobe.results.table import IMPORTANCES, Told, told
from attnprobe.running.build import importances_of, untrained
from attnprobe.running.collecting import PredictionCollector
from attnprobe.running.devices import is_worker_rank
from attnprobe.running.expecting import tell_expected
from attnprobe.running.lock import locked
from attnprobe.running.logger import tracked
from attnprobe.running.playground import PlaygroundCollector, chosen
from attnprobe.running.prepare import EVERY_RUN, Finished, prepare
from attnprobe.running.progress import ExampleProgress
from attnprobe.running.settings import SPLIT, Settings
from attnprobe.running.tables import write_tables
from attnprobe.running.training import test
from attnprobe.running.weights import train
from attnprobe.running.whole import performance_rows, training_rows

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
            f"+experiment={config.experiment}`, or with attnprobe.studies.base.carry_out_study"
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
            carry_out(settings, OwnRunDirectory(directory), [], {}, None)
        return directory
    with locked(directory):
        prepared = prepare(directory, settings, policy)
        if isinstance(prepared, Finished):
            return directory
        own = prepared.directory
        try:
            with tracked(settings, own) as logger:
                carry_out(settings, own, probes, importances, logger)
                if isinstance(logger, WandbLogger):
                    from attnprobe.report.tracking.log import log_results

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
) -> None:
    """Everything between the prepared directory and the manifest, which is written last."""
    started, config = time.time(), settings.config
    seed_everything(config["seed"], workers=True, verbose=False)
    data, teacher, classifier = opened(settings, probes, importances)
    trained = train(settings, directory, data, classifier, logger)
    trained_at = time.time()

    parts = None
    if any(probe.resumes for probe in probes):
        decides = [config["probe"], config["importance"], config["seed"], trained["files"], trained["data_fingerprint"]]
        parts = Parts(directory.folder(PARTS), decides)
    words = data.vocabulary.words
    runner = ProbeRunner(probes, config["seed"], words, directory.path, importances, data.classes, parts)
    tell_expected(classifier, data.splits[SPLIT], probes, words, importances, config["trainer"])
    predictions = PredictionCollector(directory.path)
    playground = PlaygroundCollector(chosen(data.splits[SPLIT]), config["task"]["epsilon"])
    title = f"probe with {', '.join(probe.name for probe in probes)}" if probes else "test"
    progress = ExampleProgress(data.sizes, title)
    test(classifier, data, hardware=config["trainer"], callbacks=[runner, predictions, playground, progress])

    rows = {
        "training": training_rows(trained["curve"]),
        "performance": performance_rows(classifier.performance, data.sizes[SPLIT]),
    } | runner.rows
    before = directory.withdraw(rows, EVERY_RUN)
    directory.write_config(OmegaConf.to_yaml(config))
    predictions.write(data.splits[SPLIT], directory.place(examples_file(SPLIT)))
    playground.write(directory.place(PLAYGROUND))
    tables = before["tables"] | write_tables(directory, runner, rows, settings.identity, settings.config)
    if config["figures"]:
        draw_figures_of(directory, list(rows), told([{"tables": tables}]))
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
        "training": settings.training,
        "training_fingerprint": fingerprint(settings.training),
        "seconds": {"until_trained": round(trained_at - started, 1), "total": round(time.time() - started, 1)},
        "versions": {name: version(name) for name in LIBRARIES} | {"python": platform.python_version()},
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    shutil.rmtree(directory / PARTS, ignore_errors=True)
    directory.finish(content, trained["files"] | before["files"])


def opened(
    settings: Settings, probes: Sequence[Probe], importances: Mapping[str, Importance]
) -> tuple[TextDataModule, Teacher | None, TrainedModel]:
    """The data, the teacher where there is one, and the untrained model.

    Raises:
        UserError: one of them cannot be used, or a probe or an importance is not defined for such a model.
    """
    config, data = settings.config, settings.data()
    data.setup("fit")
    teacher = None if config["teacher"] is None else Teacher.open(config["teacher"], SPLITS)
    classifier = untrained(config, data)
    if not is_worker_rank():
        tell_section(str(data.name), data.section)
    if teacher is not None:
        data.attach_teacher(teacher)
    for probe in probes:
        probe.refuse(classifier)
        probe.prepare(data)
    for importance in importances.values():
        importance.refuse(classifier)
        importance.prepare(data, SPLIT)
    return data, teacher, classifier


def draw_figures_of(directory: OwnRunDirectory, probes: Sequence[str], importances: Told) -> None:
    """Draw what these probes' tables allow. The figures are made beside their place, for their names are known only then."""
    workshop = directory.folder(WORKSHOP)
    tables = {probe: StoredTable(directory / table_file(probe)) for probe in probes}
    numbers = StoredNumbers((tables,), {IMPORTANCES: importances})
    for path in save_figures([directory], numbers, workshop):
        target = directory.place(figure_file(path.name))
        directory.withdraw([], [figure_file(path.name)])
        target.parent.mkdir(exist_ok=True)
        os.replace(path, target)
    shutil.rmtree(workshop, ignore_errors=True)
