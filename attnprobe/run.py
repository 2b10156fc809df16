"""One run, top to bottom: settings → data → model → fit → test with probes → tables → figures → manifest."""

import json
import platform
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hydra.utils import get_class, instantiate
from lightning import seed_everything
from lightning.pytorch.loggers import CSVLogger, Logger, WandbLogger
from omegaconf import DictConfig, OmegaConf
from safetensors.torch import load_file, save_file

from attnprobe.data.module import TextDataModule
from attnprobe.data.sources import SPLITS
from attnprobe.data.teaching import Teacher
from attnprobe.errors import UserError
from attnprobe.launching.devices import helps_to_train, several_devices
from attnprobe.launching.lock import locked
from attnprobe.loading import TRUSTED, targets, untrained
from attnprobe.models.attention import Attention
from attnprobe.models.classifier import AttentionClassifier
from attnprobe.models.objectives import Objective
from attnprobe.predictions import LessonCollector, PredictionCollector
from attnprobe.probes.base import Probe, ProbeRunner
from attnprobe.progress import ExampleProgress
from attnprobe.report.figures import draw_tables
from attnprobe.results import (
    MANIFEST,
    WHOLE_SPLIT,
    Rows,
    count_undefined,
    fingerprint,
    read_manifest,
    write_atomically,
    write_json,
    write_table,
)
from attnprobe.training import examine, fit, predict

TRAINED = "training.json"
"""Written after training: from here on the run may be taken up again without training."""

SPLIT = "test"
UNIMPORTANT = ("eval_batch_size", "num_workers")
"""Settings of the data that change no number."""

LIBRARIES = ("attnprobe", "torch", "lightning", "torchmetrics", "numpy", "scipy", "datasets", "spacy")


@dataclass(frozen=True)
class Settings:
    """The resolved configuration of one run, and what follows from it."""

    config: dict[str, Any]

    @classmethod
    def of(cls, config: DictConfig) -> "Settings":
        """Resolve every interpolation, so that nothing in the run directory depends on this machine's environment.

        Raises:
            UserError: the teacher is named and not finished.
        """
        if config.teacher not in (None, "auto"):
            config = config.copy()
            config.teacher_id = str(Teacher.open(config.teacher, ()).manifest["run_id"])
        content = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        assert isinstance(content, dict)
        return cls({str(key): value for key, value in content.items()})

    @property
    def training(self) -> dict[str, Any]:
        """The part that decides the trained weights."""
        data = {key: value for key, value in self.config["data"].items() if key not in UNIMPORTANT}
        part = {key: self.config[key] for key in ("model", "training", "seed")}
        trainer = self.config["trainer"]
        part |= {"data": data, "precision": trainer["precision"]}
        # several devices take a step together, on as many batches: another training than one device's
        part |= {"devices": trainer["devices"]} if several_devices(trainer) else {}
        return part | ({"teacher": self.teacher_id} if self.is_taught else {})

    @property
    def is_taught(self) -> bool:
        """Whether a teacher decides the weights: its attention is imposed, or the objective follows it."""
        objective: dict[str, str] = self.config["training"]["recipe"].get("objective") or {}
        goal: type[Objective] = get_class(objective.get("_target_", "attnprobe.models.objectives.CrossEntropy"))
        attention: type[Attention] = get_class(self.config["model"]["attention"]["_target_"])
        return goal.taught or attention.imposed

    @property
    def teacher_id(self) -> str:
        """The teacher's run id.

        Raises:
            UserError: this run needs a teacher and has none.
        """
        if self.config["teacher_id"] is None:
            raise UserError(
                f"model={self.config['model']['name']} with training.recipe as given learns from a teacher, and "
                f"teacher={self.config['teacher']}: name a finished run with teacher=PATH, or teacher=auto on the command "
                f"line, which finds or trains one"
            )
        return str(self.config["teacher_id"])

    @property
    def run_id(self) -> str:
        """Data, model, seed and a fingerprint of everything else that decides the trained weights."""
        names = f"{self.config['data']['name']}-{self.config['model']['name']}-seed{self.config['seed']}"
        return f"{names}-{fingerprint(self.training)}"

    @property
    def directory(self) -> Path:
        """Where this run's results go."""
        if self.config["run_dir"] is not None:
            return Path(self.config["run_dir"])
        data, model = self.config["data"]["name"], self.config["model"]["name"]
        return Path(self.config["output"]) / data / f"{model}-seed{self.config['seed']}-{fingerprint(self.training)}"

    def identity(self, probe: str) -> dict[str, Any]:
        """The identifying columns of one table."""
        return {
            "run_id": self.run_id,
            "experiment": self.config["experiment"],
            "data": self.config["data"]["name"],
            "model": self.config["model"]["name"],
            "seed": self.config["seed"],
            "split": "validation" if probe == "training" else SPLIT,
            "probe": probe,
        }


def run(config: DictConfig, *, sweep: bool = False) -> Path:
    """Train one classifier, or take up one that is trained, and examine it with the configured probes.

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
    if helps_to_train():
        if not (directory / TRAINED).exists():
            carry_out(settings, directory, [], None)
        return directory
    with locked(directory):
        if claim(directory, settings, policy):
            return directory
        try:
            with tracked(settings, directory) as logger:
                write_json(carry_out(settings, directory, probes, logger), directory / MANIFEST)
                if isinstance(logger, WandbLogger):
                    from attnprobe.report.tracking import log_results

                    shown = {key: settings.config["logger"][key] for key in ("log_text", "log_model", "examples")}
                    log_results(logger.experiment, directory, **shown)
        except BaseException:
            # what is trained is kept for the next try; anything less is removed
            if not (directory / TRAINED).exists():
                discard(directory)
            raise
    return directory


@contextmanager
def tracked(settings: Settings, directory: Path) -> Iterator[Logger | None]:
    """The configured logger, open as long as the run."""
    choice = settings.config["logger"]
    if choice["name"] == "none":
        yield None
    elif choice["name"] == "csv":
        yield CSVLogger(directory, name="", version="training")
    elif choice["name"] == "wandb":
        from attnprobe.report.tracking import open_run  # wandb takes half a second that other runs need not wait for

        probes = list(settings.config["probe"])
        where = {key: choice[key] for key in ("project", "entity", "mode", "group")}
        where["taken_up"] = (directory / TRAINED).exists()
        run = open_run(settings.identity("all"), probes, settings.config, directory, **where)
        try:
            yield WandbLogger(experiment=run)
        finally:
            # without it the next run of this process would go into this one
            run.finish()
    else:
        raise UserError(f"logger.name={choice['name']}: expected none, csv or wandb")


def claim(directory: Path, settings: Settings, policy: str) -> bool:
    """Make the directory ready for this run.

    Returns:
        True where everything asked for is finished already and shall be left as it is.

    Raises:
        UserError: the directory holds another run, something else, or this run finished with policy "error".
    """
    if policy not in ("error", "skip", "replace"):
        raise UserError(f"on_finished={policy}: expected error, skip or replace")
    manifest = read_manifest(directory)
    if manifest is not None and policy != "replace":
        if manifest["training_fingerprint"] != fingerprint(settings.training):
            raise UserError(
                f"{directory} already holds a finished run with other settings ({differing(manifest, settings)}): "
                f"choose another run_dir, or on_finished=replace to lose the old one"
            )
        missing = [name for name, part in settings.config["probe"].items() if not has_table(manifest, name, part)]
        if not missing:
            if policy == "skip":
                return True
            raise UserError(
                f"{directory} already holds this finished run ({', '.join(manifest['tables'])}): look at it with "
                f"attnprobe.read_results('{directory}'), or add on_finished=replace to run it again, on_finished=skip "
                f"to leave it, or output=… to put a second one elsewhere"
            )
    try:
        foreign = directory.exists() and any(directory.iterdir()) and not (directory / "config.yaml").exists()
        if foreign:
            raise UserError(f"{directory} is not empty and no run of attnprobe: choose a new directory for run_dir")
        if policy == "replace" or (manifest is None and not (directory / TRAINED).exists()):
            discard(directory)
        directory.mkdir(parents=True, exist_ok=True)
        for path in directory.rglob(".*.partial"):  # a killed process was writing them
            path.unlink()
        write_atomically(
            directory / "config.yaml",
            lambda path: path.write_text(OmegaConf.to_yaml(settings.config), encoding="utf-8"),
        )
    except OSError as error:
        raise UserError(
            f"cannot write to {directory}: {error.strerror}. Choose a writable place with output=… or run_dir=…"
        ) from error
    return False


def is_finished(settings: Settings) -> bool:
    """Whether everything that these settings ask for is in their run directory; changes nothing.

    Raises:
        UserError: the settings cannot be used as they are.
    """
    manifest = read_manifest(settings.directory)
    if manifest is None or manifest["training_fingerprint"] != fingerprint(settings.training):
        return False
    return all(has_table(manifest, name, part) for name, part in settings.config["probe"].items())


TAKEN_UP = ("run", "probe", "trainer", "logger", "launcher", "figures", "on_finished")
"""What this command line decides with `run=PATH`. `experiment` and `teacher` are its own only where it names them;
everything else is as the run was trained with."""


def taken_up(config: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """With `run=PATH` that run's settings, with the probes and the hardware of this command line; without it, `config`.

    Args:
        config: the composed configuration.
        overrides: the settings given on the command line, `key=value` each.

    Raises:
        UserError: no run there, a setting that is the run's own, or a class from outside the trusted packages.
    """
    if config.run is None:
        return config
    given = {one: re.split(r"[./@=]", one.lstrip("+~"))[0] for one in overrides}
    free = tuple(f"data.{name}=" for name in UNIMPORTANT)
    allowed = (*TAKEN_UP, "experiment", "teacher")
    if own := [one for one, key in given.items() if key not in allowed and not one.startswith(free)]:
        raise UserError(
            f"run={config.run} has its own data, model, training and seed: leave out {' '.join(own)}. Beside run= may "
            f"stand: probe, +experiment (for its probes), teacher, trainer, logger, figures, on_finished, {' '.join(free)}"
        )
    if config.teacher == "auto" and "teacher" in given.values():
        raise UserError(f"run={config.run} with teacher=auto: name the teacher, a finished run's directory")
    path = Path(config.run)
    try:
        saved: dict[str, Any] = OmegaConf.to_container(OmegaConf.load(path / "config.yaml"))  # type: ignore[assignment]
    except OSError:
        raise UserError(
            f"run={path}: no run of attnprobe there (no config.yaml); expected a run directory such as "
            f"{config.output}/testbed/lstm_additive-seed0-…"
        ) from None
    if foreign := [one for one in targets(saved) if one.split(".")[0] not in TRUSTED]:
        raise UserError(
            f"{path}/config.yaml asks for {foreign[0]}, which is outside the trusted packages ({', '.join(TRUSTED)}): "
            f"if you trust it, give its settings on the command line (data=… model=…) instead of run={path}"
        )
    content: dict[str, Any] = OmegaConf.to_container(config)  # type: ignore[assignment]
    decided = {*TAKEN_UP, *given.values()}
    merged = content | {key: value for key, value in saved.items() if key not in decided or key == "data"}
    given_keys = {one.split("=")[0] for one in overrides}
    merged["data"] |= {name: content["data"][name] for name in UNIMPORTANT if f"data.{name}" in given_keys}
    merged["trainer"] |= {name: saved["trainer"][name] for name in ("precision", "devices")}  # part of the training
    return OmegaConf.create(merged | {"run_dir": str(path), "run": None})


def discard(directory: Path) -> None:
    """Remove what a run writes, and the directory itself if nothing else is in it. The manifest goes first, so that a
    kill in between leaves no run that looks finished."""
    for name in (MANIFEST, TRAINED, "model.safetensors", "vocabulary.json", "pipeline.json", "config.yaml"):
        (directory / name).unlink(missing_ok=True)
    for name in ("tables", "examples", "figures", "checkpoints", "training", "wandb"):
        shutil.rmtree(directory / name, ignore_errors=True)
    with suppress(OSError):
        directory.rmdir()


def has_table(manifest: dict[str, Any], probe: str, part: dict[str, Any]) -> bool:
    """Whether a manifest lists the table of a probe with these very settings."""
    entry = manifest["tables"].get(probe)
    return entry is not None and entry["settings"] == part


def differing(manifest: dict[str, Any], settings: Settings) -> str:
    """The first few settings in which a finished run differs, as `key: theirs → ours`."""
    theirs, ours = flattened(manifest["training"]), flattened(settings.training)
    keys = [key for key in sorted(theirs | ours) if theirs.get(key) != ours.get(key)]
    shown = [f"{key}: {theirs.get(key)} there, {ours.get(key)} here" for key in keys[:3]]
    return "; ".join(shown + (["…"] if len(keys) > 3 else []))


def flattened(content: Any, prefix: str = "") -> dict[str, Any]:
    """Nested settings as dotted keys."""
    if not isinstance(content, dict):
        return {prefix: content}
    parts = [flattened(value, f"{prefix}.{key}" if prefix else str(key)) for key, value in content.items()]
    return {key: value for part in parts for key, value in part.items()}


def carry_out(settings: Settings, directory: Path, probes: list[Probe], logger: Logger | None) -> dict[str, Any]:
    """Everything between the claimed directory and the manifest, which it returns."""
    started = time.time()
    config = settings.config
    seed_everything(config["seed"], workers=True, verbose=False)
    data: TextDataModule = instantiate(config["data"], seed=config["seed"])
    data.setup("fit")
    teacher = None if config["teacher"] is None else Teacher.open(config["teacher"], SPLITS)
    if teacher is not None:
        data.follow(teacher)
    classifier = untrained(config, data)
    trained = train(settings, directory, data, classifier, logger)
    trained_at = time.time()

    runner, predictions = ProbeRunner(probes, config["seed"], data.vocabulary.words), PredictionCollector()
    title = f"probe with {', '.join(probe.name for probe in probes)}" if probes else "test"
    progress = ExampleProgress(data.sizes, title)
    examine(classifier, data, hardware=config["trainer"], callbacks=[runner, predictions, progress])

    predictions.write(data, SPLIT, directory / "examples" / f"{SPLIT}.parquet")
    tables = dict((read_manifest(directory) or {}).get("tables", {}))
    rows = {
        "training": training_rows(trained["curve"]),
        "performance": performance_rows(classifier, data),
    } | runner.rows
    results = []
    for name, collected in rows.items():
        table = collected.table(settings.identity(name))
        file = f"tables/{name}.parquet"
        write_table(table, directory / file)
        results.append(table)
        tables[name] = {
            "file": file,
            "rows": table.num_rows,
            "undefined": count_undefined(table),
            "settings": config["probe"].get(name),
            "seconds": round(runner.seconds.get(name, 0.0), 3),
        }
    if config["figures"]:
        everything = pa.concat_tables(results).unify_dictionaries().combine_chunks().to_pandas()
        draw_tables({directory: everything}, directory / "figures")
    return {
        "run_id": settings.run_id,
        "experiment": config["experiment"],
        "data": config["data"]["name"],
        "model": config["model"]["name"],
        "seed": config["seed"],
        "classes": data.classes,
        "counts": data.counts,
        "chosen_epoch": trained["chosen_epoch"],
        "teacher": None if teacher is None else {"run_id": teacher.manifest["run_id"], "directory": config["teacher"]},
        "tables": tables,
        "training": settings.training,
        "training_fingerprint": fingerprint(settings.training),
        "seconds": {"until_trained": round(trained_at - started, 1), "total": round(time.time() - started, 1)},
        "versions": {name: version(name) for name in LIBRARIES} | {"python": platform.python_version()},
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def train(
    settings: Settings,
    directory: Path,
    data: TextDataModule,
    classifier: AttentionClassifier,
    logger: Logger | None,
) -> dict[str, Any]:
    """Train, or load the weights of a training that was finished before."""
    state = directory / TRAINED
    weights = directory / "model.safetensors"
    data_fingerprint = data.fingerprint
    if state.exists():
        trained = json.loads(state.read_text(encoding="utf-8"))
        if trained["data_fingerprint"] != data_fingerprint:
            raise UserError(
                f"{directory} was trained on other data under the same name: the files have changed since. Train anew "
                f"with on_finished=replace, or elsewhere with output=…"
            )
        classifier.load_state_dict(load_file(weights))
        return trained
    epoch, curve = fit(
        classifier,
        data,
        directory=directory,
        epochs=settings.config["training"]["epochs"],
        gradient_clip=settings.config["training"]["gradient_clip"],
        patience=settings.config["training"].get("patience"),
        hardware=settings.config["trainer"],
        callbacks=[ExampleProgress(data.sizes)],
        logger=logger,
    )
    shutil.rmtree(directory / "checkpoints", ignore_errors=True)
    data.pipeline.save(directory)
    write_atomically(weights, lambda path: save_file(classifier.state_dict(), path))
    lessons = LessonCollector()
    predict(classifier, data, hardware=settings.config["trainer"], callbacks=[lessons])
    lessons.write(data, directory)
    trained = {"chosen_epoch": epoch, "data_fingerprint": data_fingerprint, "curve": curve}
    write_json(trained, state)
    return trained


def training_rows(curve: list[dict[str, float]]) -> Rows:
    """Every epoch's metrics as rows about the whole split; the step is the epoch, from 0."""
    rows = Rows()
    whole = np.array([WHOLE_SPLIT])
    for metric in sorted({name for epoch in curve for name in epoch}):
        values = np.array([epoch.get(metric, np.nan) for epoch in curve])
        rows.add(metric.replace("/", "_"), whole, values[None], np.arange(len(curve)))
    return rows


def performance_rows(classifier: AttentionClassifier, data: TextDataModule) -> Rows:
    """The test metrics as rows about the whole split; F1 has one row per class (step)."""
    rows = Rows()
    whole = np.array([WHOLE_SPLIT])
    for metric, value in classifier.performance.items():
        numbers = value.double().cpu().numpy()
        if numbers.ndim:
            rows.add(metric, whole, numbers[None], np.arange(len(numbers)))
        else:
            rows.add(metric, whole, numbers[None])
    rows.add("examples", whole, np.array([data.sizes[SPLIT]]))
    return rows
