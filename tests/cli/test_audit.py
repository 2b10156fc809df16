import shlex

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
from tests.light_commands import light_commands
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


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "a b.csv"
    path.write_text("评论,stars\na film that is good,1\na film that is bad,0\n", encoding="utf-8")
    return str(path)


def test_a_dry_run_checks_and_prints_the_settings(texts, capsys, monkeypatch):
    monkeypatch.setattr("attnprobe.__main__.DRY_RUN", [])
    audit.audit([texts, "--text", "评论", "--label", "stars", "--dry-run"])
    settings, last = capsys.readouterr().out.removeprefix("settings: ").rsplit("\n", 2)[:2]
    assert shlex.split(settings.replace("\\\n", "")) == [
        *("attnprobe", "run", "+experiment=audit", "data=files"),
        *(f"data.path='{texts}'", "data.text='评论'", "data.label=stars"),
    ]
    assert last.startswith("nothing was run")


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (
            ["--label", "stars", "--by", "shop"],
            "choose one with --by NAME, or do without: leave --by out",
        ),
        (["--label", "starts"], "--label starts: there is no such column; did you mean stars?"),
        (["--label", "stars", "--model", "bert-base-uncased"], "model=bert-base-uncased"),
        (["--label", "stars", "seed=x"], "seed=x: expected a whole number"),
        (["--label", "stars", "probe.swaps.passes=3"], "probe.swaps.passes=3: expected"),
    ],
)
def test_a_dry_run_refuses_what_a_run_would(texts, words, answer, capsys, monkeypatch):
    monkeypatch.setattr("attnprobe.__main__.DRY_RUN", [])
    monkeypatch.setattr("attnprobe.__main__.TYPED", {})
    with pytest.raises(SystemExit, match="2"):
        audit.audit([texts, "--text", "评论", *words, "--dry-run"])
    assert answer in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["--lable", "stars"], "--lable: there is no such option; did you mean --label?"),
        (["--label", "stars", "--minutes", "ten"], "--minutes: 'ten': expected a number above 0"),
        (["--label", "stars", "--minutes", "0"], "--minutes: '0': expected a number above 0"),
        (["--label", "stars", "--zzz"], "--zzz: there is no such option. Known: "),
    ],
)
def test_a_mistyped_option_is_answered_by_its_name(words, answer, capsys):
    with pytest.raises(SystemExit, match="2"):
        audit.audit(["reviews.csv", "--text", "review", *words])
    assert answer in capsys.readouterr().err


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """Commands in processes that have imported nothing heavy."""
    with light_commands(tmp_path_factory.mktemp("outputs")) as processes:
        yield processes


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (["{texts}", "--text", "评论", "--label", "starts"], "did you mean stars?"),
        (["{texts}.gone", "--text", "评论", "--label", "stars"], "does not exist"),
        (["{texts}", "--text", "评论", "--label", "stars", "data.txt=x"], "data.txt"),
        (["{texts}", "--text", "评论", "--label", "stars", "--model", "lstn"], "lstm"),
        (["{texts}", "--text", "评论", "--lable", "stars"], "--label"),
        (["{texts}", "--text", "评论", "--label", "stars", "--minutes", "ten"], "'ten'"),
        (["{texts}", "--text", "评论", "--label", "stars", "data.min_df=0"], "data.min_df=0"),
        (
            ["{texts}", "--text", "评论", "--label", "stars", "--fail-if", "erasure.wrd == no"],
            "did you mean erasure.word?",
        ),
    ],
)
def test_files_columns_settings_and_options_are_answered_before_torch_is_there(
    commands, texts, words, answer, tmp_path
):
    arguments = [word.format(texts=texts) for word in words]
    ended = commands.carry_out(["audit", *arguments], tmp_path)
    assert_refused_lightly(ended, answer)


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        (["run", "run=nowhere"], "run=nowhere: no run of attnprobe there"),
        (["run", "data.batch_size=-3"], "data.batch_size=-3: expected a whole number"),
        (["run", "seed=abc"], "seed=abc: expected a whole number of at least 0"),
        (["run", "training.epochs=ten"], "training.epochs=ten: expected a whole number"),
        (["run", "on_finished=never"], "on_finished=never: expected error, skip"),
        (["run", "probe.permutation.samples=0"], "probe.permutation.samples=0: expected a whole"),
        (["run", "task.epsilon=2"], "task.epsilon=2: expected a number of at least 0"),
        (["run", "model.width=x"], "model.width=x: expected a whole number of at least 1"),
        (
            ["run", "model=pretrained", "model.path=/nowhere", "training=none"],
            "model.path=/nowhere: there is no such folder",
        ),
        (
            ["run", "-m", "seed=1,abc"],
            "seed=abc: expected a whole number of at least 0 and of at most 4294967295 "
            "(in the job seed=abc; no job was started)",
        ),
        (["run", "-m", "probe.permutation.samples=0,1"], "probe.permutation.samples=0: expected"),
        (["bench", "attention"], "bench holds no bench: expected a folder with models.parquet"),
        (["report", "nowhere"], "nowhere does not exist"),
        (["report"], "RUNS"),
        (["compare", "nowhere", "elsewhere"], "nowhere does not exist"),
        (["explain", "nowhere", "a text"], "nowhere does not exist"),
    ],
)
def test_what_is_not_there_is_answered_before_torch_is_there(commands, command, answer, tmp_path):
    assert_refused_lightly(commands.carry_out(command, tmp_path), answer)


def assert_refused_lightly(ended, answer):
    """A command ended with status 2 and this answer, and imported nothing heavy."""
    assert answer in ended.stderr
    assert ended.status == 2
    assert ended.heavy == []


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
