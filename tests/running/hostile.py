# ruff: noqa: E501
"""Settings that try to run code, made at random: `python -m tests.running.hostile 10000` says how many of them did."""

import copy
import gc
import random
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from hydra._internal.instantiate import _instantiate2

from attnprobe.core.errors import UserError
from attnprobe.runs.load import checked_settings
from attnprobe.runs.settings import Settings, resumed
from tests.running.test_allowed import ARGUMENTS, ELSEWHERE, ENCODER, MALFORMED, OURS, REFERENCES, places
from tests.runs import composed


def placed(settings: dict, place: tuple, change: Any) -> dict:
    """A copy of the settings in which `change(container, key)` was applied at a place."""
    changed = copy.deepcopy(settings)
    container: Any = changed
    for key in place[:-1]:
        container = container[key]
    change(container, place[-1])
    return changed


def hostile(settings: dict, generator: random.Random) -> tuple[str, dict]:
    """A name and settings, one place of which names what no run's settings may name there."""
    place = generator.choice(list(places(settings)))
    if generator.random() < 0.25:
        text = generator.choice(REFERENCES)
        as_key = generator.random() < 0.3

        def refer(container: Any, key: Any) -> None:
            if as_key and isinstance(container, dict):
                container[text] = container.pop(key)
            else:
                container[key] = text

        return f"{text} at {place}", placed(settings, place, refer)
    target = generator.choice([*ELSEWHERE, *(f"attnprobe.{one}" for one in OURS), generator.choice(MALFORMED)])
    payload = {"_target_": target, **generator.choice(ARGUMENTS)}
    form = generator.choice(["instead", "within", "list", "target", "nested"])

    def ask(container: Any, key: Any) -> None:
        value = container[key]
        if form == "target" and isinstance(value, dict):
            value["_target_"] = target
        elif form == "within" and isinstance(value, dict):
            value["extra"] = payload
        elif form == "list":
            container[key] = [value, [payload]]
        elif form == "nested":
            container[key] = {"_target_": ENCODER, "_partial_": True, "hidden_size": payload}
        else:
            container[key] = payload

    return f"{target!r} at {place}, {form}", placed(settings, place, ask)


STARTED = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "socket.connect", "shutil.rmtree")
"""Events by which code that settings asked for would show."""
watching: list[list[str]] = []
"""Where such events are noted, as long as somebody watches."""


@cache
def watch() -> None:
    """Begin to note events. A hook stays as long as the process, so that there is one for all tests."""

    def note(event: str, _: tuple) -> None:
        if watching and event in STARTED:
            for one in watching:
                one.append(event)

    sys.addaudithook(note)


@contextmanager
def calls() -> Iterator[list[str]]:
    """What Hydra calls for settings, or starts a process, meanwhile.

    The garbage of earlier tests is collected first and not in between: a temporary directory among it is removed by
    `shutil.rmtree`, which nobody's settings asked for.
    """
    made: list[str] = []
    original = _instantiate2._call_target

    def spy(target: Any, *rest: Any) -> Any:
        made.append(repr(target))
        return original(target, *rest)

    gc.collect()
    gc.disable()
    _instantiate2._call_target = spy
    watch()
    watching.append(made)
    try:
        yield made
    finally:
        watching.pop()
        gc.enable()
        _instantiate2._call_target = original


def attempt(directory: Path, settings: dict, config: Any) -> list[bool]:
    """Write settings into a run directory and read them as load_run and `run=` do; which of them refused."""
    text = yaml.safe_dump(settings, allow_unicode=True, sort_keys=False)
    (directory / "config.yaml").write_text(text, "utf-8")
    refused = []
    for read in (lambda: checked_settings(directory, ()), lambda: resumed(config, [])):
        try:
            read()
            refused.append(False)
        except UserError:
            refused.append(True)
    return refused


def campaign(directory: Path, count: int, seed: int = 0) -> tuple[int, list[str], list[str]]:
    """Try `count`; how many readings were refused, which were not, and what was called."""
    settings = Settings.of(composed("model=hanrnn", "+experiment=serrano", "data=imdb")).config
    config = composed(f"run={directory}")
    generator = random.Random(seed)
    refused, accepted = 0, []
    assert attempt(directory, settings, config) == [False, False]  # unchanged, they are read
    with calls() as made:
        for _ in range(count):
            name, changed = hostile(settings, generator)
            results = attempt(directory, changed, config)
            refused += sum(results)
            accepted += [name] * (len(results) - sum(results))
    return refused, accepted, made


if __name__ == "__main__":
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder:
        turned_away, through, executed = campaign(Path(folder), number)
    print(
        f"{number:,} settings, each read by load_run and by run=: refused {turned_away:,} of {2 * number:,}, executed {len(executed)}"
    )
    for line in [*through[:20], *executed[:20]]:
        print(line)
    sys.exit(bool(through or executed))
