"""The settings of one run, and what follows from them: its name, its directory, its training."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from attnprobe.core.errors import UserError
from attnprobe.core.references import check_references, references
from attnprobe.core.settings import check_arguments
from attnprobe.data.teacher import Teacher
from attnprobe.models.pretrained.checkpoint import CHECKPOINT_FILES
from attnprobe.results.directory import CONFIG
from attnprobe.results.fingerprint import fingerprint
from attnprobe.results.saved_settings import saved_run
from attnprobe.runs.composition import resolved
from attnprobe.runs.configuration import Configuration, Stages
from attnprobe.runs.validation import check_saved, configured

SPLIT = "test"
UNIMPORTANT = ("eval_batch_size", "num_workers")
"""Settings of the data that change no number."""
RESUMED = {
    "run",
    "probe",
    "importance",
    "importances",
    "trainer",
    "logger",
    "launcher",
    "figures",
    "page",
    "verbose",
    "on_finished",
    "trusted",
}
"""What the command line decides beside `run=PATH`.

It decides `experiment` and `teacher` only where it names them; everything else is as the run was
trained with."""
EVERY_RUN_HAS = (
    "seed",
    "experiment",
    "data.name",
    "model.name",
    "training",
    "trainer.precision",
    "trainer.devices",
)


@dataclass(frozen=True)
class Settings:
    """The settings of one run, checked, and what follows from them.

    Attributes:
        config: resolved, as plain data: what is written down.
        parts: what they name, constructed: what the run works with.
    """

    config: dict[str, Any]
    parts: Configuration

    @classmethod
    def of(cls, config: DictConfig) -> "Settings":
        """Resolve every interpolation, check every setting and construct what they name.

        Resolved, so that nothing in the run directory depends on this machine's environment.

        Raises:
            UserError: the teacher is not finished, or a setting has a wrong type, range, key or
                choice.
        """
        check_references(OmegaConf.to_container(config))
        if isinstance(config.teacher, str) and config.teacher != "auto":
            config = config.copy()  # other settings refer to the teacher's id
            config.teacher_id = str(Teacher.open(config.teacher, ()).manifest["run_id"])
        content = resolved(config)
        for place, _ in references(content):
            # would be read as a reference when the settings are read again
            raise UserError(
                f"{place}: the characters ${{ may not be used in a setting's name or value: "
                f"leave them out"
            )
        return cls(content, configured(content))

    def input_files(self) -> dict[str, Path]:
        """The files that decide what is measured, the data's and a checkpoint's, by setting."""
        files = dict(self.parts.data.input_files())
        path = self.config["model"].get("path")
        if path is not None and Path(str(path)).is_file():
            files["model.path"] = Path(str(path))
        elif path is not None and Path(str(path)).is_dir():
            for file in sorted(Path(str(path)).iterdir()):
                if file.suffix in CHECKPOINT_FILES:
                    files[f"model.path/{file.name}"] = file
        return files

    @property
    def training(self) -> dict[str, Any]:
        """The settings that decide the trained weights."""
        data = {key: value for key, value in self.config["data"].items() if key not in UNIMPORTANT}
        trainer = self.config["trainer"]
        settings = {
            "model": self.config["model"],
            "training": self.config["training"],
            "seed": self.config["seed"],
            "data": data,
            "precision": trainer["precision"],
        }
        if several_devices(trainer):
            # they take each step together, on that many batches: another training than one device's
            settings["devices"] = trainer["devices"]
        if self.is_taught:
            settings["teacher"] = self.teacher_id
        return settings

    @property
    def is_taught(self) -> bool:
        """Whether a teacher decides the weights, by its attention or through the objective."""
        if self.parts.training.recipe.objective.taught:
            return True
        model = self.parts.model
        if not isinstance(model, Stages):  # a whole model has no attention of its own class
            return False
        attention: Any = model.attention
        return attention.func.imposed

    @property
    def awaits_teacher(self) -> bool:
        """Whether its teacher is still to be found or trained, so that nothing is named yet."""
        return self.config["teacher"] == "auto" and self.is_taught

    @property
    def teacher_id(self) -> str:
        """The teacher's run id.

        Raises:
            UserError: there is no teacher.
        """
        if self.config["teacher_id"] is None:
            raise UserError(
                f"model={self.config['model']['name']} with training.recipe as given learns from a "
                f"teacher, and teacher={self.config['teacher']}: name a finished run with "
                f"teacher=PATH, or teacher=auto on the command line, which finds or trains one"
            )
        return str(self.config["teacher_id"])

    @property
    def run_id(self) -> str:
        """Data, model, seed and a fingerprint of all that decides the trained weights."""
        data = self.config["data"]["name"]
        model = self.config["model"]["name"]
        return f"{data}-{model}-seed{self.config['seed']}-{fingerprint(self.training)}"

    @property
    def directory(self) -> Path:
        """The directory of this run's results."""
        if self.config["run_dir"] is not None:
            return Path(self.config["run_dir"])
        data = self.config["data"]["name"]
        return Path(self.config["output"]) / data / self.run_id.removeprefix(f"{data}-")

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


def several_devices(trainer: Mapping[str, Any]) -> bool:
    """Whether these settings of Lightning's trainer ask for more than one device.

    >>> [several_devices({"devices": devices}) for devices in (2, "0,1", "auto")]
    [True, True, False]
    """
    devices = trainer["devices"]
    if int(trainer.get("num_nodes") or 1) > 1:
        return True
    if isinstance(devices, str):
        numbers = [number for number in devices.split(",") if number.strip()]
        return len(numbers) > 1 or (devices.strip().isdigit() and int(devices) > 1)
    if isinstance(devices, Sequence):
        return len(devices) > 1
    return devices > 1


def refuse_several_devices(trainer: Mapping[str, Any]) -> None:
    """Raise a `UserError` where a job of a sweep asks for several devices."""
    if several_devices(trainer):
        raise UserError(
            f"trainer.devices={trainer['devices']} in a sweep: every job of a sweep has one "
            f"device, for several jobs that each take several would wait for each other's. Leave "
            f"trainer.devices out (a sweep uses all devices by running several jobs), or start "
            f"single runs, without -m"
        )


def constructible(
    config: DictConfig, overrides: Sequence[str], *, files_checked: bool = False
) -> Settings:
    """The settings of a run that can begin: they are right, and its files are there.

    Args:
        config: composed.
        overrides: the command line's settings.
        files_checked: the data's files were read already, and hold what is asked for.

    Raises:
        UserError: a mistake in the settings, a missing file, or a missing teacher.
    """
    settings = Settings.of(resumed(config, overrides))
    if config.run is None:
        settings.parts.data.check_files(read=not files_checked)
    if config.study is None and not settings.awaits_teacher:
        assert settings.directory  # refused where a teacher is missing
    return settings


def resumed(config: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """With `run=PATH` that run's settings, probed and computed as this command line says.

    Without it, `config`.

    Raises:
        UserError: no run there, a setting that is the run's own, or a class from outside the
            trusted packages.
    """
    if config.run is None:
        return config
    groups = {override: re.split(r"[./@=]", override.lstrip("+~"))[0] for override in overrides}
    _refuse_beside_run(config, groups)
    path = Path(str(config.run))
    saved = _saved_settings(config, path)
    content: dict[str, Any] = OmegaConf.to_container(config)  # type: ignore[assignment]
    decided_here = {*RESUMED, *groups.values()} - {"data"}
    merged = dict(content)
    merged |= {group: value for group, value in saved.items() if group not in decided_here}
    # processes are this machine's affair
    typed = {override.split("=")[0] for override in overrides} | {"data.num_workers"}
    for name in UNIMPORTANT:
        if f"data.{name}" in typed:
            merged["data"][name] = content["data"][name]
    for name in ("precision", "devices"):  # part of the training
        merged["trainer"][name] = saved["trainer"][name]
    return OmegaConf.create(merged | {"run_dir": str(path), "run": None})


def _refuse_beside_run(config: DictConfig, groups: Mapping[str, str]) -> None:
    """Refuse what may not stand beside `run=PATH`; `groups`: override → the group that it sets."""
    if config.study is not None:
        raise UserError(
            f"run={config.run} with experiment={config.experiment}, a study of several runs, which "
            f"it trains itself: leave one of the two out. Further tests of that run: "
            f"run={config.run} 'probe=[…]'"
        )
    free = tuple(f"data.{name}=" for name in UNIMPORTANT)
    allowed = {*RESUMED, "experiment", "teacher"}
    refused = [
        override
        for override, group in groups.items()
        if group not in allowed and not override.startswith(free)
    ]
    if refused:
        raise UserError(
            f"run={config.run} has its own data, model, training and seed: leave out "
            f"{' '.join(refused)}. Beside run= only these may be given: probe, importances, "
            f"trusted, +experiment (its probes), teacher, trainer, logger, figures, on_finished, "
            f"{' '.join(free)}"
        )
    if config.teacher == "auto" and "teacher" in groups.values():
        raise UserError(
            f"run={config.run} with teacher=auto: name the teacher, a finished run's directory"
        )
    if config.on_finished == "replace":
        raise UserError(
            f"run={config.run} with on_finished=replace would remove that model and all its "
            f"tables: on_finished=remeasure measures the probes named here again and keeps the rest"
        )


def _saved_settings(config: DictConfig, path: Path) -> dict[str, Any]:
    """The settings that a run directory holds, their classes checked against `config.trusted`."""
    saved = saved_run(path)
    source = path / CONFIG
    trusted = config.trusted
    check_saved(saved, source, [trusted] if isinstance(trusted, str) else list(trusted or ()))
    try:
        check_arguments("", saved, Configuration, {"study": None})
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
    for place in EVERY_RUN_HAS:
        group, _, name = place.partition(".")
        if group not in saved or (name and name not in saved[group]):
            raise UserError(f"{source}: {place} is missing: it is damaged or not of a run")
    return saved
