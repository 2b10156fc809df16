"""A run directory is data: nothing that its settings say is called, followed or looked up."""

import copy
from contextlib import suppress
from itertools import cycle
from random import Random

import pytest
import yaml
from hydra._internal.instantiate import _instantiate2
from hydra.utils import instantiate

import attnprobe
from attnprobe.core.errors import UserError
from attnprobe.core.references import entries
from attnprobe.data.teacher import Teacher
from attnprobe.models.encoders import TextEncoder
from attnprobe.probes.base import Probe
from attnprobe.results.files import read_sealed
from attnprobe.results.saved_settings import read_settings
from attnprobe.runs import validation
from attnprobe.runs.load import checked_settings
from attnprobe.runs.run import run
from attnprobe.runs.settings import Settings, resumed
from attnprobe.runs.validation import check_saved
from tests.results.test_untrusted import BOMB
from tests.small_runs import composed, seal, small_run

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
    "runs.launching._Process",
    "runs.launching.RemoteJob.__call__",
    "results.files.write_json",
    "results.files.os.system",
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
ENCODER = "attnprobe.models.encoders.LSTMEncoder"
MALFORMED = [
    "",
    ".",
    "..",
    "attnprobe..models",
    f".{ENCODER}",
    "attnprobe.models.encoders.",
    f" {ENCODER}",
    f"{ENCODER}\n",
    f"ａ{ENCODER[1:]}",
    "attnprobe/models/encoders.LSTMEncoder",
    "attnprobe.models.encoders:LSTMEncoder",
    "attnprobe.0",
    "a" * 10_000,
    "\x1b]0;x.y",
    None,
    3,
    True,
    1.5,
    [],
    ["os.system"],
    {},
    {"_target_": "os.system"},
]
REFERENCES = [
    "${oc.env:HOME}",
    "${oc.env:SECRET_TOKEN,none}",
    "${oc.decode:'1'}",
    "${oc.select:seed}",
    "${seed}",
    "${.name}",
    "${nope}",
    "${oc.create:'{_target_: pathlib.Path.touch, self: PWNED}'}",
    "a${seed}b",
    "\\${seed}",
    "${",
    "${oc.dict.keys:model}",
    "${hydra:job.name}",
    "${oc.deprecated:seed}",
    "${${seed}}",
    "${oc.env:${experiment}}",
    "${python:1}",
    "${now:%Y}",
]
ARGUMENTS = [
    {},
    {"command": "touch PWNED"},
    {"self": "PWNED"},
    {"args": ["touch", "PWNED"]},
    {"directory": "."},
    {"f": "PWNED", "weights_only": False},
    {"path": "PWNED", "content": "x"},
    {"_args_": ["touch PWNED"]},
    {"_partial_": True},
    {"_recursive_": False},
    {"_partial_": True, "hidden_size": 3},
    {"_convert_": "none"},
    {"_partial_": "yes"},
]
TOUCH = "{_target_: pathlib.Path.touch, self: {_target_: pathlib.Path, _args_: [PWNED]}}"
PAYLOADS = (
    {"_target_": "torch.utils.collect_env.run", "command": "touch PWNED"},
    {
        "_target_": "torch.load",
        "weights_only": False,
        "f": {
            "_target_": "torch.serialization.io.BytesIO",
            "initial_bytes": {"_target_": "base64.b64decode", "s": "gA=="},
        },
    },
    {"_target_": "attnprobe.runs.launching._Process", "command": ["touch", "PWNED"]},
    "${oc.create:'" + TOUCH + "'}",
    "${oc.env:SECRET_TOKEN}",
    {"_target_": "attnprobe.models.decoders.LinearDecoder", "_partial_": True},
)
SPOTS = (
    "training.recipe",
    "training.recipe.optimizer",
    "model.encoder",
    "model.question_encoder",
    "data",
    "data.source",
    "experiment",
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return run(small_run(tmp_path_factory.mktemp("runs"), probes="[]"))


@pytest.fixture
def empty(tmp_path, monkeypatch):
    """An empty folder to be in, so that a payload's file would be seen, and a secret to leak."""
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    """A copy of a run."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in finished.iterdir():
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
    return copy


def write_text(directory, text):
    """Other settings, and a manifest that was made to fit them, as somebody would who knows of the
    checksums."""
    (directory / "config.yaml").write_text(text)
    seal(directory, **read_sealed(directory / "manifest.json") | {"tables": {}})


CONSTRUCTORS = (
    (_instantiate2, "_call_target"),
    (validation, "construct"),
    (validation, "defer"),
)
"""The functions by which settings become objects: Hydra's, and ours."""


@pytest.fixture
def constructed(monkeypatch):
    """What is constructed from settings."""
    calls = []

    def watch(module, name):
        original = getattr(module, name)

        def noted(*args, **kwargs):
            calls.append(args)
            return original(*args, **kwargs)

        monkeypatch.setattr(module, name, noted)

    for module, name in CONSTRUCTORS:
        watch(module, name)
    return calls


def test_the_watch_sees_what_hydra_constructs(constructed):
    instantiate({"_target_": "pathlib.Path", "_args_": ["x"]})
    assert len(constructed) == 1


def test_the_watch_sees_what_we_construct(constructed):
    probe = {"_target_": "attnprobe.probes.permutation.Permutation"}
    validation.built_part("probe.permutation", probe, Probe)
    encoder = {"_target_": ENCODER, "_partial_": True}
    validation.built_part("model.encoder", encoder, TextEncoder, deferred=True)
    assert len(constructed) == 2


READERS = {
    "load_run": attnprobe.load_run,
    "checked_settings": lambda directory: checked_settings(directory, ()),
    "resumed": lambda directory: resumed(composed(f"run={directory}"), []),
}
"""Everything that reads the settings of a run directory."""


@pytest.mark.parametrize("spot", SPOTS)
@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_payload_is_executed(copied, empty, constructed, payload, spot):
    settings = part = yaml.safe_load((copied / "config.yaml").read_text())
    *outer, name = spot.split(".")
    for key in outer:
        part = part[key]
    part[name] = payload
    write_text(copied, yaml.safe_dump(settings))
    for read in READERS.values():
        with pytest.raises(UserError, match=r"config\.yaml"):
            read(copied)
    with suppress(UserError):
        assert "hunter2" not in str(read_settings(copied))
    Teacher.open(copied, ())
    assert not constructed
    assert not list(empty.iterdir())


def places(content, outer=()):
    """Every place of nested settings, as the keys that lead there."""
    for key, value in entries(content):
        yield (*outer, key)
        yield from places(value, (*outer, key))


FORMS = ("instead", "within", "list", "target", "nested", "refers", "name")
"""How a place is spoilt: by a payload instead of its value, within it, beside it in a list, …"""


def shuffled(values, source):
    """The values in a random order, again and again."""
    return cycle(source.sample(values, len(values)))


def spoilt(settings, source):
    """Settings, one place of which names what no run's settings may name there.

    Yields every place, the forms and payloads in turn, as (name, settings).
    """
    ours = [f"attnprobe.{name}" for name in OURS]
    targets = shuffled([*ELSEWHERE, *ours, *MALFORMED], source)
    arguments = shuffled(ARGUMENTS, source)
    references = shuffled(REFERENCES, source)
    forms = shuffled(FORMS, source)
    for *outer, key in places(settings):
        container = changed = copy.deepcopy(settings)
        for step in outer:
            container = container[step]
        form = next(forms)
        target = next(targets)
        payload = {"_target_": target, **next(arguments)}
        spoil(container, key, form, payload, references)
        yield f"{form} {target!r} at {(*outer, key)}", changed


def spoil(container, key, form, payload, references):
    """Spoil one entry of a mapping or a list, in place."""
    value = container[key]
    if form == "target" and isinstance(value, dict):
        value["_target_"] = payload["_target_"]
    elif form == "within" and isinstance(value, dict):
        value["extra"] = payload
    elif form == "name" and isinstance(container, dict):
        container[next(references)] = container.pop(key)
    elif form == "list":
        container[key] = [value, [payload]]
    elif form == "nested":
        container[key] = {"_target_": ENCODER, "_partial_": True, "hidden_size": payload}
    elif form == "refers":
        container[key] = next(references)
    else:
        container[key] = payload


def accepted(folder, cases):
    """The names of those settings that are read in a run directory, once for each reader."""
    config = composed(f"run={folder}")
    for name, settings in cases:
        text = yaml.safe_dump(settings, allow_unicode=True, sort_keys=False)
        (folder / "config.yaml").write_text(text, "utf-8")
        with suppress(UserError):
            checked_settings(folder, ())
            yield name
        with suppress(UserError):
            resumed(config, [])
            yield name


def full_settings():
    """Settings of a run with every kind of part in them."""
    return Settings.of(composed("model=hanrnn", "+experiment=serrano", "data=imdb")).config


def test_no_place_of_the_settings_may_name_what_is_executed(tmp_path, empty, constructed):
    settings = full_settings()
    constructed.clear()
    cases = [("unchanged", settings), *spoilt(settings, Random(0))]
    assert list(accepted(tmp_path, cases)) == ["unchanged", "unchanged"]
    assert not constructed
    assert not list(empty.iterdir())


@pytest.mark.parametrize(
    "content",
    [
        "",
        "3",
        "[]",
        "{}",
        "model: 3",
        "model: {}",
        "run_id: x",
        "a: 1",
        "data: {_target_: 3}",
        BOMB,
    ],
)
def test_settings_of_another_shape_are_one_message(copied, content):
    write_text(copied, content)
    with pytest.raises(UserError, match=r"config\.yaml"):
        attnprobe.load_run(copied)
    with pytest.raises(UserError, match=r"config\.yaml"):
        resumed(composed(f"run={copied}"), [])


EXTRA = """
import os
from os import system

from attnprobe.models.encoders import LSTMEncoder

class Mine(LSTMEncoder):
    pass

class Other:
    pass

def function():
    pass
"""


@pytest.fixture
def settings_of_extra_package(copied, tmp_path, monkeypatch):
    """The settings of a run whose encoder is of a package that can be imported."""
    (tmp_path / "extra_package.py").write_text(EXTRA)
    monkeypatch.syspath_prepend(tmp_path)
    settings = yaml.safe_load((copied / "config.yaml").read_text())
    settings["model"]["encoder"]["_target_"] = "extra_package.Mine"
    write_text(copied, yaml.safe_dump(settings))
    return settings


@pytest.mark.usefixtures("settings_of_extra_package")
def test_a_package_is_refused_unless_it_is_trusted(copied):
    message = r"outside the trusted packages .*trusted=\[extra_package\]"
    with pytest.raises(UserError, match=message):
        checked_settings(copied, ())


@pytest.mark.usefixtures("settings_of_extra_package")
def test_a_trusted_package_brings_a_subclass(copied):
    settings = checked_settings(copied, ["extra_package"])
    assert settings["model"]["encoder"]["_target_"] == "extra_package.Mine"
    config = resumed(composed(f"run={copied}", "trusted=[extra_package]"), [])
    assert config.run_dir == str(copied)


@pytest.mark.usefixtures("settings_of_extra_package")
def test_trusted_packages_are_a_list(copied):
    with pytest.raises(UserError, match="expected a list of packages' names"):
        checked_settings(copied, "extra_package")


@pytest.mark.parametrize(
    "name", ["Other", "function", "system", "os.system", "LSTMEncoder", "Missing", "os"]
)
def test_a_trusted_package_brings_nothing_but_subclasses(settings_of_extra_package, copied, name):
    settings = settings_of_extra_package
    settings["model"]["encoder"]["_target_"] = f"extra_package.{name}"
    with pytest.raises(UserError, match=r"model\.encoder\._target_="):
        check_saved(settings, copied / "config.yaml", ["extra_package"])


@pytest.mark.parametrize(
    "value",
    [
        "${oc.env:HOME}",
        "${oc.decode:3}",
        "x${oc.env:HOME}",
        "${oc.select:${oc.env:HOME}}",
        "${now:%Y}",
    ],
)
def test_the_environment_does_not_reach_a_run(value):
    config = composed()
    config.experiment = value
    with pytest.raises(UserError, match="experiment="):
        Settings.of(config)


def test_places_of_other_settings_may_be_named():
    config = composed()
    config.experiment = "${data.name}-${oc.select:nowhere,default}"
    assert Settings.of(config).config["experiment"] == "testbed-default"


def test_an_escaped_reference_is_refused():
    config = composed()
    config.experiment = "\\${data.name}"
    with pytest.raises(UserError, match="may not be used in a setting"):
        Settings.of(config)
