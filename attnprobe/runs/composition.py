"""Where conf/ lies, and how a configuration is composed from it outside of a command line."""

import re
from collections.abc import Iterator, Mapping, Sequence
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

PACKAGE = Path(__file__).resolve().parent.parent
CONFIGURATION = next(p for p in (PACKAGE / "conf", PACKAGE.parent / "conf") if p.is_dir())
"""Beside the package in a checkout, inside it in an installed copy."""


@contextmanager
def composing() -> Iterator[None]:
    """Within it `hydra.compose("config", overrides=…)` reads conf/."""
    with initialize_config_dir(config_dir=str(CONFIGURATION), version_base="1.3"):
        yield


def composed(overrides: Sequence[str]) -> DictConfig:
    """The configuration that these command-line arguments give, where Hydra is initialised
    (`composing`)."""
    return with_importances(compose("config", overrides=list(overrides)), overrides)


def with_importances(config: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """A configuration with those importances that it asks for, conf/importance does not hold, and
    another folder of settings (`--config-dir`) does: they are found there as a probe is."""
    asked = [
        config.get("importances"),
        *(part.get("importances") for part in config.probe.values()),
    ]
    names = dict.fromkeys(str(name) for one in asked if OmegaConf.is_list(one) for name in one)
    absent = [name for name in names if "_target_" not in (config.importance.get(name) or {})]
    if absent:
        loader = GlobalHydra.instance().config_loader()
        known = loader.get_group_options(
            "importance", config_name="config", overrides=list(overrides)
        )
        absent = [name for name in absent if name in known]
    if not absent:
        return config
    every = ",".join(dict.fromkeys([*config.importance, *absent]))
    return compose("config", overrides=[*overrides, f"importance=[{every}]"])


def resolved(config: DictConfig) -> dict[str, Any]:
    """A composed configuration with every interpolation resolved, and with the settings of those
    importances that it asks for and that installed packages bring; a `UserError` where one is
    nowhere."""
    content: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    parts = content.get("importance")
    probes = content.get("probe")
    if not isinstance(parts, dict) or not isinstance(
        probes, dict
    ):  # refused where settings are checked
        return dict(content)
    own = {
        f"probe.{name}.importances": one.get("importances")
        for name, one in probes.items()
        if isinstance(one, dict)
    }
    installed = {
        entry.name: entry.value.replace(":", ".")
        for entry in entry_points(group="attnprobe.importances")
    }
    for setting, names in {"importances": content.get("importances"), **own}.items():
        for name in names if isinstance(names, list) else []:
            if name in parts or not isinstance(name, str):
                continue
            if name not in installed:
                known = [*parts, *installed]
                raise UserError(
                    f"{setting}: {visible(name)}: there is no such importance{nearest(name, known) or '.'} Known here: "
                    f"{listed(known)}; one of your own is conf/importance/{visible(name)}.yaml in the folder of --config-dir"
                )
            parts[name] = {"_target_": installed[name]}
    return {str(key): value for key, value in content.items()}


def name_of_files(path: str | Mapping[str, str] | None) -> str:
    """What a data set of local files is called where nobody says: the file's name without its
    endings, or the folder's.

    >>> name_of_files("data/my reviews.csv.gz"), name_of_files("corpora/sst/"), name_of_files({"train": "tweets/train.csv"})
    ('my_reviews', 'sst', 'tweets')
    """
    if path is None:
        return "files"
    file = Path(
        str(path.get("train", path.get("test", ""))) if isinstance(path, Mapping) else str(path)
    )
    stem = re.sub(r"(\.(jsonl?|csv|tsv|parquet|xlsx))?(\.gz)?$", "", file.name, flags=re.IGNORECASE)
    if stem.lower() == "train":
        stem = file.absolute().parent.name
    return re.sub(r"[^\w.-]+", "_", stem)[:60].strip("._-") or "files"


OmegaConf.register_new_resolver("name_of_files", name_of_files, replace=True)
