"""Hydra without its repeated work: the same choices of conf/ are composed once, which Hydra alone
takes 0.2 s for."""

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from hydra._internal import config_loader_impl as loader
from hydra._internal.config_repository import ConfigRepository
from hydra.core.override_parser.types import Override

from attnprobe.runs.composition import CONFIGURATION

PATHS = {"hydra.conf", str(CONFIGURATION), ""}
"""Where settings are that do not change: in Hydra itself and in conf/."""
enabled = True


def is_conf(repo: ConfigRepository) -> bool:
    """Whether settings come from Hydra and conf/ alone."""
    return enabled and {source.path for source in repo.sources} == PATHS


@contextmanager
def reading_once() -> Iterator[None]:
    """Within it every file of settings is read and parsed once."""
    files: dict[str, bytes] = {}
    read = ConfigRepository.load_config

    def read_once(repo: ConfigRepository, config_path: str) -> Any:
        if not is_conf(repo):
            return read(repo, config_path=config_path)
        if config_path not in files:
            files[config_path] = pickle.dumps(read(repo, config_path=config_path))
        return pickle.loads(files[config_path])

    with mock.patch.object(ConfigRepository, "load_config", read_once):
        yield


@contextmanager
def composing_once() -> Iterator[None]:
    """Within it the defaults list, which depends on the chosen groups alone, and what it gives are
    composed once. The other settings are applied by Hydra as ever. What ends in an error, or has
    another folder of settings, is not remembered."""
    lists: dict[Any, bytes] = {}
    configs: dict[Any, bytes] = {}
    create = loader.create_defaults_list
    compose = loader.ConfigLoaderImpl._compose_config_from_defaults_list

    def create_once(
        repo: Any, config_name: str, overrides_list: Sequence[Override], **options: Any
    ) -> Any:
        if not is_conf(repo.delegate):
            return create(repo, config_name=config_name, overrides_list=overrides_list, **options)
        groups = []
        settings = []
        for override in overrides_list:
            is_group = repo.group_exists(override.key_or_group)
            chooses = is_group and not isinstance(override.value(), dict)
            if chooses or override.is_sweep_override():
                groups.append(override)
            else:
                settings.append(override)
        choices = tuple(override.input_line for override in groups)
        key = (config_name, choices, tuple(options.items()))
        if key not in lists:
            lists[key] = pickle.dumps(
                create(repo, config_name=config_name, overrides_list=groups, **options)
            )
        defaults = pickle.loads(lists[key])
        defaults.config_overrides[:] = settings
        return defaults

    def compose_once(self: Any, defaults: Sequence[Any], repo: Any) -> Any:
        if not is_conf(repo.delegate):
            return compose(self, defaults=defaults, repo=repo)
        key = pickle.dumps(list(defaults))
        if key not in configs:
            configs[key] = pickle.dumps(compose(self, defaults=defaults, repo=repo))
        return pickle.loads(configs[key])

    with (
        reading_once(),
        mock.patch.object(loader, "create_defaults_list", create_once),
        mock.patch.object(
            loader.ConfigLoaderImpl, "_compose_config_from_defaults_list", compose_once
        ),
    ):
        yield
