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
from tests.runs import composed

ELSEWHERE = [
    "os.system",
    "subprocess.Popen",
    "pathlib.Path.touch",
    "builtins.eval",
    "functools.partial",
    "importlib.import_module",
    "shutil.rmtree",
    "pickle.loads",
    "yaml.unsafe_load",
    "hydra.utils.instantiate",
    "hydra.utils.get_method",
    "omegaconf.OmegaConf.load",
    "pandas.read_pickle",
    "torch.load",
    "torch.hub.load",
    "torch.ops.load_library",
    "torch.utils.collect_env.run",
    "torch.nn.Linear",
    "torch.distributed.run.run_script_path",
    "torch.optim.Optimizer",
    "torch.optim.Adam.step",
    "torch.optim.optimizer.os.system",
    "torch.optim.swa_utils.AveragedModel",
    "torch.optim.lr_scheduler.LRScheduler",
    "torch.optim.lr_scheduler.warnings.warn",
    "torch.optim.torch.load",
    "tests.runs.composed",
    "hydra_plugins.attnprobe_launcher.PoolLauncher",
    "not_installed_anywhere.Encoder",
]
OURS = [
    f"attnprobe.{name}"
    for name in [
        "runs.launching._Process",
        "runs.launching.RemoteJob.__call__",
        "results.files.write_json",
        "results.files.os.system",
        "runs.prepare.discard",
        "runs.load.load_run",
        "runs.load.torch.load",
        "runs.load.TrainedRun",
        "report.page.browser.base64.b64decode",
        "models.encoders.Encoder",
        "models.encoders.nn.Linear",
        "models.encoders.both_ways",
        "models.encoders.LSTMEncoder.__init__",
        "models.encoders.LSTMEncoder.__init__.__globals__",
        "models.encoders.__dict__",
        "models.encoders.__builtins__.eval",
        "models.encoders.__loader__.load_module",
        "models.classifier.Encoder",
        "models.classifier.AttentionClassifier",
        "core.errors.UserError",
        "findings.studies.audit.Audit",
        "load_run",
        "__main__.main",
        "runs.run.run",
        "nowhere.Encoder",
        "probes.base.Probe",
        "probes.base.ProbeRunner",
        "data.sources.Source",
    ]
]
MALFORMED = ["", ".", "..", "attnprobe..models", ".attnprobe.models.encoders.LSTMEncoder", "attnprobe.models.encoders.",
    " attnprobe.models.encoders.LSTMEncoder", "attnprobe.models.encoders.LSTMEncoder\n", "ａttnprobe.models.encoders.LSTMEncoder",
    "attnprobe/models/encoders.LSTMEncoder", "attnprobe.models.encoders:LSTMEncoder", "attnprobe.0", "a" * 10_000, "\x1b]0;x.y",
    None, 3, True, 1.5, [], ["os.system"], {}, {"_target_": "os.system"}]  # fmt: skip
REFERENCES = ["${oc.env:HOME}", "${oc.env:SECRET_TOKEN,none}", "${oc.decode:'1'}", "${oc.select:seed}", "${seed}", "${.name}", "${nope}",
    "${oc.create:'{_target_: pathlib.Path.touch, self: PWNED}'}", "a${seed}b", "\\${seed}", "${", "${oc.dict.keys:model}", "${hydra:job.name}",
    "${oc.deprecated:seed}", "${${seed}}", "${oc.env:${experiment}}", "${python:1}", "${now:%Y}"]  # fmt: skip
ARGUMENTS = [{}, {"command": "touch PWNED"}, {"self": "PWNED"}, {"args": ["touch", "PWNED"]}, {"f": "PWNED", "weights_only": False},
    {"path": "PWNED", "content": "x"}, {"directory": "."}, {"_args_": ["touch PWNED"]}, {"_partial_": True}, {"_recursive_": False},
    {"_partial_": True, "hidden_size": 3}, {"_convert_": "none"}, {"_partial_": "yes"}]  # fmt: skip


def places(content: Any, place: tuple = ()) -> Iterator[tuple]:
    """Every place of nested settings."""
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        yield (*place, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*place, key))


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
    target = generator.choice([*ELSEWHERE, *OURS, generator.choice(MALFORMED)])
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
            container[key] = {
                "_target_": "attnprobe.models.encoders.LSTMEncoder",
                "_partial_": True,
                "hidden_size": payload,
            }
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
