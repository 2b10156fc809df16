"""Hydra without its repeated work: the same defaults are composed once. A command line takes 75 ms with Hydra as it is."""

import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from hydra._internal import config_loader_impl as loader
from hydra._internal.core_plugins.file_config_source import FileConfigSource
from hydra.core.override_parser.types import Override


@contextmanager
def composing_once() -> Iterator[None]:
    """Within it a file of conf/ is read once; the defaults list, which depends on the chosen groups alone, and what it
    gives are composed once. The other settings are applied by Hydra as ever. What ends in an error is not remembered."""
    lists: dict[Any, bytes] = {}
    configs: dict[Any, bytes] = {}
    files: dict[Any, bytes] = {}
    create = loader.create_defaults_list
    compose = loader.ConfigLoaderImpl._compose_config_from_defaults_list

    def create_once(repo: Any, config_name: str, overrides_list: Sequence[Override], **options: Any) -> Any:
        groups, others = [], []
        for one in overrides_list:
            chooses = repo.group_exists(one.key_or_group) and not isinstance(one.value(), dict)
            (groups if chooses or one.is_sweep_override() else others).append(one)
        key = (config_name, tuple(one.input_line for one in groups), tuple(options.items()))
        if key not in lists:
            lists[key] = pickle.dumps(create(repo, config_name=config_name, overrides_list=groups, **options))
        found = pickle.loads(lists[key])
        found.config_overrides[:] = others
        return found

    def compose_once(self: Any, defaults: Sequence[Any], repo: Any) -> Any:
        key = pickle.dumps(list(defaults))
        if key not in configs:
            configs[key] = pickle.dumps(compose(self, defaults=defaults, repo=repo))
        return pickle.loads(configs[key])

    read = FileConfigSource.load_config

    def read_once(self: FileConfigSource, config_path: str) -> Any:
        key = (self.path, config_path)
        if key not in files:
            files[key] = pickle.dumps(read(self, config_path))
        return pickle.loads(files[key])

    with (
        mock.patch.object(FileConfigSource, "load_config", read_once),
        mock.patch.object(loader, "create_defaults_list", create_once),
        mock.patch.object(loader.ConfigLoaderImpl, "_compose_config_from_defaults_list", compose_once),
    ):
        yield
