"""A run directory is data: nothing that its settings or a study's plan say is called, followed or looked up."""

import tempfile
from contextlib import suppress

import pytest
import yaml
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
from tests.running.hostile import calls, campaign
from tests.runs import composed, seal, small_run

TOUCH = "{_target_: pathlib.Path.touch, self: {_target_: pathlib.Path, _args_: [PWNED]}}"
PAYLOADS = {
    "shell": {"_target_": "torch.utils.collect_env.run", "command": "touch PWNED"},
    "pickle within": {
        "_target_": "torch.load",
        "f": {
            "_target_": "torch.serialization.io.BytesIO",
            "initial_bytes": {"_target_": "base64.b64decode", "s": "gA=="},
        },
        "weights_only": False,
    },
    "process": {"_target_": "attnprobe.runs.launching._Process", "command": ["touch", "PWNED"]},
    "created": "${oc.create:'" + TOUCH + "'}",
    "environment": "${oc.env:SECRET_TOKEN}",
    "wrong base": {"_target_": "attnprobe.models.decoders.LinearDecoder", "_partial_": True},
}
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


def copied(finished, tmp_path, change):
    """A copy of a run with changed settings, and a manifest that was made to fit them."""
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in finished.iterdir():
        if path.is_file():
            (copy / path.name).write_bytes(path.read_bytes())
    settings = yaml.safe_load((copy / "config.yaml").read_text())
    change(settings)
    write_settings(copy, settings)
    return copy


def write_settings(directory, settings):
    """As somebody would who knows of the checksums."""
    write_text(directory, yaml.safe_dump(settings))


def write_text(directory, text):
    (directory / "config.yaml").write_text(text)
    seal(directory, **read_sealed(directory / "manifest.json") | {"tables": {}})


def put(settings, place, value):
    *outer, last = place.split(".")
    for key in outer:
        settings = settings[key]
    settings[last] = value


@pytest.mark.parametrize("payload", PAYLOADS)
def test_no_payload_is_executed(finished, tmp_path, empty, payload):
    copy = copied(finished, tmp_path, lambda settings: None)
    good = yaml.safe_load((copy / "config.yaml").read_text())
    config = composed(f"run={copy}")
    with calls() as made:
        for spot in SPOTS:
            settings = yaml.safe_load(yaml.safe_dump(good))
            put(settings, spot, PAYLOADS[payload])
            write_settings(copy, settings)
            for read in (attnprobe.load_run, lambda path: checked_settings(path, ()), lambda path: resumed(config, [])):
                with pytest.raises(UserError, match=r"config\.yaml"):
                    read(copy)
            with suppress(UserError):
                assert "hunter2" not in str(read_settings(copy))
            Teacher.open(copy, ())
    assert not made
    assert not list(empty.iterdir())


def test_the_watch_sees_a_call(empty):
    with calls() as made:
        instantiate({"_target_": "pathlib.Path", "_args_": ["x"]})
    assert len(made) == 1


def test_the_watch_blames_nobody_for_earlier_garbage(tmp_path):
    garbage = [tempfile.TemporaryDirectory(dir=tmp_path)]
    garbage.append(garbage)
    del garbage
    with calls() as made:
        kept = [[number] for number in range(100_000)]  # which would start a collection
    assert len(kept) == 100_000
    assert not made
    assert not list(tmp_path.iterdir())


def test_no_made_up_settings_are_executed(tmp_path, empty):
    """`make fuzz` tries 10,000."""
    refused, accepted, made = campaign(tmp_path, 100)
    assert not accepted
    assert not made
    assert refused == 200
    assert not list(empty.iterdir())


def test_an_alias_bomb_ends_at_once(finished, tmp_path):
    copy = copied(finished, tmp_path, lambda settings: None)
    write_text(copy, BOMB)
    for read in (attnprobe.load_run, read_settings, lambda path: resumed(composed(f"run={path}"), [])):
        with pytest.raises(UserError, match=r"config\.yaml"):
            read(copy)


@pytest.mark.parametrize(
    "content", ["", "3", "[]", "{}", "model: 3", "model: {}", "run_id: x", "a: 1", "data: {_target_: 3}"]
)
def test_settings_of_another_shape_are_one_message(finished, tmp_path, content):
    copy = copied(finished, tmp_path, lambda settings: None)
    write_text(copy, content)
    for read in (attnprobe.load_run, lambda path: resumed(composed(f"run={path}"), [])):
        with pytest.raises(UserError, match=r"config\.yaml"):
            read(copy)


@pytest.mark.parametrize(
    "overrides",
    [
        ("model=hanrnn", "+experiment=serrano", "data=imdb"),
        (
            "task=qa",
            "data=babi1",
            "probe=[permutation,leave_one_out,erasure,teacher,single_weight,gradient,plausibility]",
        ),
        ("training=adversary", "data=sst", "teacher_id=x", "model=cnn"),
        ("model=flannoenc", "training=serrano", "data=files", "data.path=x.csv"),
    ],
)
def test_settings_of_ours_are_allowed(overrides, tmp_path):
    check_saved(Settings.of(composed(*overrides)).config, tmp_path / "config.yaml")


def test_a_trusted_package_brings_subclasses_and_nothing_else(finished, tmp_path, monkeypatch):
    (tmp_path / "extra_package.py").write_text(
        "import os\nfrom os import system\nfrom attnprobe.models.encoders import LSTMEncoder\n"
        "class Mine(LSTMEncoder):\n    pass\nclass Other:\n    pass\ndef function():\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def encoder(target):
        def change(settings):
            settings["model"]["encoder"]["_target_"] = target

        return change

    copy = copied(finished, tmp_path, encoder("extra_package.Mine"))
    with pytest.raises(UserError, match=r"outside the trusted packages .*trusted=\[extra_package\]"):
        checked_settings(copy, ())
    assert checked_settings(copy, ["extra_package"])["model"]["encoder"]["_target_"] == "extra_package.Mine"
    assert resumed(composed(f"run={copy}", "trusted=[extra_package]"), []).run_dir == str(copy)
    with pytest.raises(UserError, match="expected a list of packages' names"):
        checked_settings(copy, "extra_package")
    settings = checked_settings(copy, ["extra_package"])
    for name in ("Other", "function", "system", "os.system", "LSTMEncoder", "Missing", "os"):
        settings["model"]["encoder"]["_target_"] = f"extra_package.{name}"
        with pytest.raises(UserError, match=r"model\.encoder\._target_="):
            check_saved(settings, copy / "config.yaml", ["extra_package"])


@pytest.mark.parametrize(
    "value", ["${oc.env:HOME}", "${oc.decode:3}", "x${oc.env:HOME}", "${oc.select:${oc.env:HOME}}", "${now:%Y}"]
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
