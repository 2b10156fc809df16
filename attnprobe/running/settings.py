"""The settings of one run, and what follows from them: its name, its directory, and what decides the trained weights."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf

from attnprobe.data.teaching import Teacher
from attnprobe.errors import UserError
from attnprobe.loading import TRUSTED, targets
from attnprobe.models.attention import Attention
from attnprobe.models.objectives import Objective
from attnprobe.results.fingerprint import fingerprint
from attnprobe.running.devices import several_devices
from attnprobe.schema import check, resolved

SPLIT = "test"
UNIMPORTANT = ("eval_batch_size", "num_workers")
"""Settings of the data that change no number."""


@dataclass(frozen=True)
class Settings:
    """The resolved configuration of one run, and what follows from it."""

    config: dict[str, Any]

    @classmethod
    def of(cls, config: DictConfig) -> "Settings":
        """Resolve every interpolation, so that nothing in the run directory depends on this machine's environment.

        Raises:
            UserError: the teacher is named and not finished, or a setting has a wrong type, range, key or choice.
        """
        if config.teacher not in (None, "auto"):
            config = config.copy()
            config.teacher_id = str(Teacher.open(config.teacher, ()).manifest["run_id"])
        content = resolved(config)
        check(content)
        return cls(content)

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
    if config.on_finished == "replace":
        raise UserError(
            f"run={config.run} with on_finished=replace would remove that model and all its tables: on_finished=remeasure "
            f"measures the probes named here anew and keeps the rest"
        )
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
