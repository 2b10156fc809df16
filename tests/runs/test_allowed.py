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
from attnprobe.data.teacher import Teacher
from attnprobe.results.files import read_sealed
from attnprobe.results.saved_settings import read_settings
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


@pytest.fixture
def made(monkeypatch):
    """What Hydra calls for settings."""
    calls = []
    original = _instantiate2._call_target
    monkeypatch.setattr(
        _instantiate2,
        "_call_target",
        lambda target, *rest: calls.append(target) or original(target, *rest),
    )
    return calls


def test_the_watch_sees_a_call(made):
    instantiate({"_target_": "pathlib.Path", "_args_": ["x"]})
    assert len(made) == 1


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_payload_is_executed(copied, empty, made, payload):
    good = (copied / "config.yaml").read_text()
    config = composed(f"run={copied}")
    made.clear()
    for spot in SPOTS:
        settings = part = yaml.safe_load(good)
        *outer, last = spot.split(".")
        for key in outer:
            part = part[key]
        part[last] = payload
        write_text(copied, yaml.safe_dump(settings))
        for read in (
            attnprobe.load_run,
            lambda path: checked_settings(path, ()),
            lambda path: resumed(config, []),
        ):
            with pytest.raises(UserError, match=r"config\.yaml"):
                read(copied)
        with suppress(UserError):
            assert "hunter2" not in str(read_settings(copied))
        Teacher.open(copied, ())
    assert not made
    assert not list(empty.iterdir())


def places(content, outer=()):
    """Every place of nested settings."""
    for key, value in content.items() if isinstance(content, dict) else enumerate(content):
        yield (*outer, key)
        if isinstance(value, (dict, list)):
            yield from places(value, (*outer, key))


def spoilt(settings, source):
    """Settings, one place of which names what no run's settings may name there: every place, the
    payloads in turn."""
    targets = [*ELSEWHERE, *(f"attnprobe.{one}" for one in OURS), *MALFORMED]
    forms = ["instead", "within", "list", "target", "nested", "refers", "name"]
    lists = [source.sample(one, len(one)) for one in (targets, ARGUMENTS, REFERENCES, forms)]
    targets, arguments, references, forms = map(cycle, lists)
    for *outer, key in places(settings):
        container = changed = copy.deepcopy(settings)
        for one in outer:
            container = container[one]
        value = container[key]
        form = next(forms)
        target = next(targets)
        payload = {"_target_": target, **next(arguments)}
        if form == "target" and isinstance(value, dict):
            value["_target_"] = target
        elif form == "within" and isinstance(value, dict):
            value["extra"] = payload
        elif form == "name" and isinstance(container, dict):
            container[next(references)] = container.pop(key)
        else:
            nested = {"_target_": ENCODER, "_partial_": True, "hidden_size": payload}
            container[key] = {
                "list": [value, [payload]],
                "nested": nested,
                "refers": next(references),
            }.get(form, payload)
        yield f"{form} {target!r} at {(*outer, key)}", changed


def accepted(folder, cases):
    """The names of those settings that are read in a run directory."""
    config = composed(f"run={folder}")
    for name, settings in cases:
        (folder / "config.yaml").write_text(
            yaml.safe_dump(settings, allow_unicode=True, sort_keys=False), "utf-8"
        )
        for read in (lambda: checked_settings(folder, ()), lambda: resumed(config, [])):
            with suppress(UserError):
                read()
                yield name


def full_settings():
    return Settings.of(composed("model=hanrnn", "+experiment=serrano", "data=imdb")).config


def test_no_place_of_the_settings_may_name_what_is_executed(tmp_path, empty, made):
    settings = full_settings()
    made.clear()
    assert (
        list(accepted(tmp_path, [("unchanged", settings), *spoilt(settings, Random(0))]))
        == ["unchanged"] * 2
    )
    assert not made
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
    for read in (attnprobe.load_run, lambda path: resumed(composed(f"run={path}"), [])):
        with pytest.raises(UserError, match=r"config\.yaml"):
            read(copied)


def test_a_trusted_package_brings_subclasses_and_nothing_else(copied, tmp_path, monkeypatch):
    (tmp_path / "extra_package.py").write_text(
        "import os\nfrom os import system\nfrom attnprobe.models.encoders import LSTMEncoder\n"
        "class Mine(LSTMEncoder):\n    pass\nclass Other:\n    pass\ndef function():\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    settings = yaml.safe_load((copied / "config.yaml").read_text())
    settings["model"]["encoder"]["_target_"] = "extra_package.Mine"
    write_text(copied, yaml.safe_dump(settings))
    with pytest.raises(
        UserError, match=r"outside the trusted packages .*trusted=\[extra_package\]"
    ):
        checked_settings(copied, ())
    assert (
        checked_settings(copied, ["extra_package"])["model"]["encoder"]["_target_"]
        == "extra_package.Mine"
    )
    assert resumed(composed(f"run={copied}", "trusted=[extra_package]"), []).run_dir == str(copied)
    with pytest.raises(UserError, match="expected a list of packages' names"):
        checked_settings(copied, "extra_package")
    for name in ("Other", "function", "system", "os.system", "LSTMEncoder", "Missing", "os"):
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
    config.experiment = "\\${data.name}"
    with pytest.raises(UserError, match="may not be used in a setting"):
        Settings.of(config)
