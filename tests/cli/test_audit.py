import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import example, given
from hypothesis import strategies as st

from attnprobe.cli import audit
from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import quoted
from attnprobe.runs.answers import answer
from attnprobe.runs.composition import resolved
from attnprobe.runs.validation import configured
from tests.small_runs import composed

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=40)


@given(TEXT)
@example("it's \\' (free) \\")
@example("评论")
@example("umsatz=2024,März.csv")
@example("${data.path}")
@example("null")
@example("1e3")
@example("[a]")
def test_any_name_arrives_as_it_was_written(name):
    """Hydra's own grammar is the reference."""
    read = OverridesParser.create().parse_override(f"data.text={quoted(name)}").value()
    assert str(read) == name


def overrides(*words):
    """The settings of an audit of a.csv with these further words on its command line."""
    command = ["a.csv", "--text", "text", "--label", "label", *words]
    options, settings = audit.audit_parser().parse_known_args(command)
    return audit.overrides_of(options, settings)


@pytest.fixture
def german_file(tmp_path, monkeypatch):
    """A file in a foreign encoding, with a name and columns that a shell and Hydra would split."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "Umsätze (neu)=2024.csv"
    file.write_text("Kommentar (frei);Note 1\nschön;4,5\n", encoding="cp1252")
    return file.name


@pytest.fixture
def german_settings(german_file):
    """The settings of an audit of this file with every option."""
    command = [german_file, "--text", "Kommentar (frei)", "--label", "Note 1", "--model", "cnn"]
    command += ["--minutes", "5", "--language", "de", "--output", "my runs", "seed=3"]
    options, settings = audit.audit_parser().parse_known_args(command)
    return resolved(composed(*audit.overrides_of(options, settings)))


def test_the_settings_are_those_that_hydra_is_given(german_file, german_settings):
    content = german_settings
    configured(content).data.check_files()
    data = content["data"]
    assert data["path"] == german_file
    assert data["text"] == "Kommentar (frei)"
    assert data["label"] == "Note 1"
    assert data["name"] == "Umsätze_neu_2024"
    assert data["language"] == "de"
    assert content["output"] == "my runs"
    assert content["seed"] == 3
    assert content["model"]["name"] == "cnn_additive"
    assert content["study"]["minutes"] == 5


def test_a_column_that_is_not_there_is_answered_with_the_nearest(german_settings):
    data = german_settings["data"] | {"label": "Note"}
    message = r"data.label=Note: .*did you mean Note 1\?.*Kommentar \(frei\), Note 1"
    with pytest.raises(UserError, match=message):
        configured(german_settings | {"data": data}).data.check_files()


def test_a_dry_run_prints_the_command(capsys):
    audit.audit(["a b.csv", "--text", "评论", "--label", "stars", "--dry-run"])
    assert capsys.readouterr().out == (
        "settings: attnprobe run +experiment=audit data=files \"data.path='a b.csv'\" "
        "\"data.text='评论'\" data.label=stars\n"
    )


@pytest.fixture
def checkpoints(tmp_path, monkeypatch):
    """A folder with two checkpoints, one of which is called as a choice of conf/model."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my bert").mkdir()
    (tmp_path / "lstm").mkdir()


@pytest.mark.usefixtures("checkpoints")
@pytest.mark.parametrize("name", ["my bert", "owner/name", "./lstm"])
def test_a_folder_or_a_name_on_the_hub_is_a_checkpoint_that_is_taken_as_it_is(name):
    content = resolved(composed(*overrides("--model", name)))
    configured(content)
    assert content["model"]["path"] == name
    assert content["training"]["epochs"] == 0
    assert content["study"]["epochs"] == 0


@pytest.mark.usefixtures("checkpoints")
def test_a_checkpoint_is_trained_where_the_settings_say_so():
    content = resolved(composed(*overrides("--model", "my bert", "training=finetune")))
    assert content["model"]["path"] == "my bert"
    assert content["training"]["epochs"] == 3


@pytest.mark.usefixtures("checkpoints")
@pytest.mark.parametrize("name", ["lstm", "cnn"])
def test_a_choice_of_conf_comes_before_a_folder(name):
    assert "_target_" not in resolved(composed(*overrides("--model", name)))["model"]


def answered(settings):
    """What a command line is answered with whose settings cannot be composed."""
    with pytest.raises(Exception, match=r".") as raised:
        resolved(composed(*settings))
    line = answer(raised.value, settings)
    assert "\n" not in line
    assert "model.path=FOLDER" in line
    return line


def test_a_model_that_is_nothing_is_one_line():
    line = answered(overrides("--model", "my_bret"))
    assert "my_bret" in line
    assert "model.path=???" not in line


@pytest.mark.parametrize("settings", [overrides("model=pretrained"), ["model=pretrained"]])
def test_a_checkpoint_without_its_path_is_one_line(settings):
    line = answered(settings)
    assert "my_bret" not in line
    assert "model.path=???" in line
