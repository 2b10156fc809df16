"""The settings of one run, and what follows from them: its name, its directory, and what decides
the trained weights."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from attnprobe.core.errors import UserError
from attnprobe.core.settings import check_arguments
from attnprobe.data.teacher import Teacher
from attnprobe.models.pretrained.checkpoint import CHECKPOINT_FILES
from attnprobe.results.directory import CONFIG
from attnprobe.results.fingerprint import fingerprint
from attnprobe.results.saved_settings import read_settings, references
from attnprobe.runs.composition import resolved
from attnprobe.runs.configuration import Configuration, Stages
from attnprobe.runs.validation import check_saved, configured

SPLIT = "test"
UNIMPORTANT = ("eval_batch_size", "num_workers")
"""Settings of the data that change no number."""
REFERENCE = re.compile(
    r"\$\{(oc\.select:\s*[\w.]+(,\s*[\w.+-]+)?|oc\.dict\.keys:[\w.]+|name_of_files:[^${}]*|[\w.]+)\}"
)
"""What may stand for a value: the place of another one (`${data.path}`),
`${oc.select:place,default}`, the names at a place (`${oc.dict.keys:probe}`), and a name made of a
path (`${name_of_files:${data.path}}`)."""
RESUMED = {
    "run",
    "probe",
    "importance",
    "importances",
    "trainer",
    "logger",
    "launcher",
    "figures",
    "verbose",
    "on_finished",
    "trusted",
}
"""What this command line decides with `run=PATH`. `experiment` and `teacher` are its own only where
it names them; everything else is as the run was trained with."""
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
        """Resolve every interpolation, so that nothing in the run directory depends on this
        machine's environment.

        Raises:
            UserError: the teacher is not finished, or a setting has a wrong type, range, key or
                choice.
        """
        check_references(OmegaConf.to_container(config))
        if (
            isinstance(config.teacher, str) and config.teacher != "auto"
        ):  # which other settings refer to
            config = config.copy()
            config.teacher_id = str(Teacher.open(config.teacher, ()).manifest["run_id"])
        content = resolved(config)
        for place, _ in references(
            content
        ):  # would be read as a reference when the settings are read again
            raise UserError(
                f"{place}: the characters ${{ may not be used in a setting's name or value: leave them out"
            )
        return cls(content, configured(content))

    def input_files(self) -> dict[str, Path]:
        """The files that decide what is measured, by the setting that names each: the data's, and a
        checkpoint's."""
        files = self.parts.data.input_files()
        path = self.config["model"].get("path")
        folder = Path("" if path is None else str(path))
        checkpoint = sorted(folder.iterdir()) if path is not None and folder.is_dir() else []
        return files | {
            f"model.path/{one.name}": one for one in checkpoint if one.suffix in CHECKPOINT_FILES
        }

    @property
    def training(self) -> dict[str, Any]:
        """The part that decides the trained weights."""
        data = {key: value for key, value in self.config["data"].items() if key not in UNIMPORTANT}
        trainer = self.config["trainer"]
        part = {key: self.config[key] for key in ("model", "training", "seed")}
        part |= {"data": data, "precision": trainer["precision"]}
        # several devices take each step together, on that many batches: a different training from
        # one device's
        part |= {"devices": trainer["devices"]} if several_devices(trainer) else {}
        return part | ({"teacher": self.teacher_id} if self.is_taught else {})

    @property
    def is_taught(self) -> bool:
        """Whether a teacher decides the weights: its attention is imposed, or the objective follows
        it."""
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
        """The teacher's run id; a `UserError` where there is none."""
        if self.config["teacher_id"] is None:
            raise UserError(
                f"model={self.config['model']['name']} with training.recipe as given learns from a teacher, and "
                f"teacher={self.config['teacher']}: name a finished run with teacher=PATH, or teacher=auto on the command "
                f"line, which finds or trains one"
            )
        return str(self.config["teacher_id"])

    @property
    def run_id(self) -> str:
        """Data, model, seed and a fingerprint of everything else that decides the trained
        weights."""
        names = f"{self.config['data']['name']}-{self.config['model']['name']}-seed{self.config['seed']}"
        return f"{names}-{fingerprint(self.training)}"

    @property
    def directory(self) -> Path:
        """Where this run's results go."""
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

    >>> several_devices({"devices": 2}), several_devices({"devices": "0,1"}), several_devices({"devices": "auto"})
    (True, True, False)
    """
    devices = trainer["devices"]
    if int(trainer.get("num_nodes") or 1) > 1:
        return True
    if isinstance(devices, str):
        listed = [part for part in devices.split(",") if part.strip()]
        return len(listed) > 1 or (devices.strip().isdigit() and int(devices) > 1)
    return len(devices) > 1 if isinstance(devices, Sequence) else devices > 1


def refuse_several_devices(trainer: Mapping[str, Any]) -> None:
    """Raise a `UserError` where a job of a sweep asks for several devices."""
    if several_devices(trainer):
        raise UserError(
            f"trainer.devices={trainer['devices']} in a sweep: every job of a sweep has one device, for several jobs "
            f"that each take several would wait for each other's. Leave trainer.devices out (a sweep uses all devices "
            f"by running several jobs), or start single runs, without -m"
        )


def constructible(config: DictConfig, overrides: Sequence[str]) -> Settings:
    """The settings of a run that can begin: they are right, and its files are there.

    Raises:
        UserError: a mistake in the settings, a missing file, or a missing teacher.
    """
    settings = Settings.of(resumed(config, overrides))
    if config.run is None:
        settings.parts.data.check_files()
    if config.study is None and not settings.awaits_teacher:
        assert settings.directory  # refused where a teacher is missing
    return settings


def check_references(content: Any) -> None:
    """Raise a `UserError` where a setting asks for more than the value of another one: the
    environment, the clock, code's results. All settings are written into the run directory, tables
    and W&B, where a secret of the environment has no place."""
    for place, text in references(content):
        if "${" in REFERENCE.sub("", REFERENCE.sub("", text)):
            raise UserError(
                f"{place}={ascii(text[:200])[1:-1]}: expected a value, or the place of another setting such as "
                f"${{data.path}}. Settings are written down in every run, so that the environment and the clock are not "
                f"looked up; where the value may be known, let your shell fill it in"
            )


def resumed(config: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """With `run=PATH` that run's settings, with the probes and the hardware of this command line;
    without it, `config`.

    Raises:
        UserError: no run there, a setting that is the run's own, or a class from outside the
            trusted packages.
    """
    if config.run is None:
        return config
    given = {one: re.split(r"[./@=]", one.lstrip("+~"))[0] for one in overrides}
    free = tuple(f"data.{name}=" for name in UNIMPORTANT)
    allowed = {*RESUMED, "experiment", "teacher"}
    if own := [
        one for one, key in given.items() if key not in allowed and not one.startswith(free)
    ]:
        raise UserError(
            f"run={config.run} has its own data, model, training and seed: leave out {' '.join(own)}. Beside run= "
            f"only these may be given: probe, importances, trusted, +experiment (its probes), teacher, trainer, logger, "
            f"figures, on_finished, {' '.join(free)}"
        )
    if config.teacher == "auto" and "teacher" in given.values():
        raise UserError(
            f"run={config.run} with teacher=auto: name the teacher, a finished run's directory"
        )
    if config.on_finished == "replace":
        raise UserError(
            f"run={config.run} with on_finished=replace would remove that model and all its tables: on_finished=remeasure "
            f"measures the probes named here again and keeps the rest"
        )
    path = Path(str(config.run))
    try:
        saved = read_settings(path)
    except OSError:
        raise UserError(
            f"run={path}: no run of attnprobe there (no config.yaml); expected a run directory such as "
            f"{config.output}/testbed/lstm_additive-seed0-…"
        ) from None
    source = path / CONFIG
    check_saved(
        saved,
        source,
        [config.trusted] if isinstance(config.trusted, str) else list(config.trusted or ()),
    )
    try:
        check_arguments("", saved, Configuration, {"study": None})
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
    for place in EVERY_RUN_HAS:
        group, _, name = place.partition(".")
        if group not in saved or (name and name not in saved[group]):
            raise UserError(f"{source}: {place} is missing: it is damaged or not of a run")
    content: dict[str, Any] = OmegaConf.to_container(config)  # type: ignore[assignment]
    decided = {*RESUMED, *given.values()} - {"data"}
    merged = content | {key: value for key, value in saved.items() if key not in decided}
    given_keys = {one.split("=")[0] for one in overrides} | {
        "data.num_workers"
    }  # processes are this machine's affair
    merged["data"] |= {
        name: content["data"][name] for name in UNIMPORTANT if f"data.{name}" in given_keys
    }
    merged["trainer"] |= {
        name: saved["trainer"][name] for name in ("precision", "devices")
    }  # part of the training
    return OmegaConf.create(merged | {"run_dir": str(path), "run": None})
