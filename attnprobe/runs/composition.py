"""Where conf/ lies, and how a configuration is composed from it outside of a command line."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import visible
from attnprobe.core.settings import listed, nearest
from attnprobe.data.naming import name_of_files

PACKAGE = Path(__file__).resolve().parent.parent
CONFIGURATION = next(p for p in (PACKAGE / "conf", PACKAGE.parent / "conf") if p.is_dir())
"""Beside the package in a checkout, inside it in an installed copy."""


@contextmanager
def composing() -> Iterator[None]:
    """Within it `hydra.compose("config", overrides=…)` reads conf/."""
    with initialize_config_dir(config_dir=str(CONFIGURATION), version_base="1.3"):
        yield


def composed(overrides: Sequence[str]) -> DictConfig:
    """The configuration of a command line, where Hydra is initialised (`composing`)."""
    return with_importances(compose("config", overrides=list(overrides)), overrides)


def with_importances(config: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """A configuration with the settings of all importances that it asks for.

    conf/importance holds those that come with attnprobe; others are found in the folder of
    `--config-dir`, as a probe is. What is nowhere is left to `resolved`.
    """
    lists = [config.get("importances")]
    lists += [probe.get("importances") for probe in config.probe.values()]
    names = [str(name) for names in lists if OmegaConf.is_list(names) for name in names]
    absent = [
        name
        for name in dict.fromkeys(names)
        if "_target_" not in (config.importance.get(name) or {})
    ]
    if not absent:
        return config
    loader = GlobalHydra.instance().config_loader()
    options = loader.get_group_options(
        "importance", config_name="config", overrides=list(overrides)
    )
    absent = [name for name in absent if name in options]
    if not absent:
        return config
    every = ",".join(dict.fromkeys([*config.importance, *absent]))
    return compose("config", overrides=[*overrides, f"importance=[{every}]"])


def resolved(config: DictConfig) -> dict[str, Any]:
    """A composed configuration as plain data, every interpolation resolved.

    Importances that it asks for and that installed packages bring are added with their defaults.

    Raises:
        UserError: an importance is nowhere.
    """
    content: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    importances = content.get("importance")
    probes = content.get("probe")
    if isinstance(importances, dict) and isinstance(probes, dict):
        _add_installed(importances, _asked_importances(content, probes))
    return {str(key): value for key, value in content.items()}


def _asked_importances(
    content: Mapping[str, Any], probes: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Every importance that a configuration asks for, after the setting that names it."""
    lists = {"importances": content.get("importances")}
    for probe, settings in probes.items():
        if isinstance(settings, dict):
            lists[f"probe.{probe}.importances"] = settings.get("importances")
    for setting, names in lists.items():
        # what is no list of names is refused where settings are checked
        for name in names if isinstance(names, list) else []:
            if isinstance(name, str):
                yield setting, name


def _add_installed(importances: dict[str, Any], requests: Iterable[tuple[str, str]]) -> None:
    """Add the importances of installed packages that are asked for."""
    absent: dict[str, str] = {}
    for setting, name in requests:
        if name not in importances:
            absent.setdefault(name, setting)
    if not absent:
        return  # to look through all installed packages takes longer than all else here
    installed = {
        entry.name: entry.value.replace(":", ".")
        for entry in entry_points(group="attnprobe.importances")
    }
    for name, setting in absent.items():
        if name not in installed:
            names = [*importances, *installed]
            raise UserError(
                f"{setting}: {visible(name)}: there is no such importance"
                f"{nearest(name, names) or '.'} Known here: {listed(names)}; one of your own is "
                f"conf/importance/{visible(name)}.yaml in the folder of --config-dir"
            )
        importances[name] = {"_target_": installed[name]}


OmegaConf.register_new_resolver("name_of_files", name_of_files, replace=True)
