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


def test_the_settings_are_those_that_hydra_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "Umsätze (neu)=2024.csv"
    file.write_text("Kommentar (frei);Note 1\nschön;4,5\n", encoding="cp1252")
    given = [
        file.name,
        "--text",
        "Kommentar (frei)",
        "--label",
        "Note 1",
        "--model",
        "cnn",
        "--minutes",
        "5",
    ]
    asked, settings = audit.audit_parser().parse_known_args(
        [*given, "--language", "de", "--output", "my runs", "seed=3"]
    )
    config = composed(*audit.overrides_of(asked, settings))
    content = resolved(config)
    configured(content).data.check_files()
    data = content["data"]
    assert (data["path"], data["text"], data["label"]) == (file.name, "Kommentar (frei)", "Note 1")
    assert (data["name"], data["language"], content["output"]) == (
        "Umsätze_neu_2024",
        "de",
        "my runs",
    )
    assert (content["seed"], content["model"]["name"], content["study"]["minutes"]) == (
        3,
        "cnn_additive",
        5,
    )
    with pytest.raises(
        UserError, match=r"data.label=Note: .*did you mean Note 1\?.*Kommentar \(frei\), Note 1"
    ):
        configured(content | {"data": data | {"label": "Note"}}).data.check_files()


def test_a_dry_run_prints_the_command(capsys):
    audit.audit(["a b.csv", "--text", "评论", "--label", "stars", "--dry-run"])
    assert capsys.readouterr().out == (
        "settings: attnprobe run +experiment=audit data=files \"data.path='a b.csv'\" "
        "\"data.text='评论'\" data.label=stars\n"
    )


def overrides(*given):
    asked, settings = audit.audit_parser().parse_known_args(
        ["a.csv", "--text", "text", "--label", "label", *given]
    )
    return audit.overrides_of(asked, settings)


def test_a_folder_or_a_name_on_the_hub_is_a_checkpoint_that_is_taken_as_it_is(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my bert").mkdir()
    (tmp_path / "lstm").mkdir()
    for name, path in {
        "my bert": "my bert",
        "owner/name": "owner/name",
        "./lstm": "./lstm",
    }.items():
        content = resolved(composed(*overrides("--model", name)))
        configured(content)
        assert content["model"]["path"] == path
        assert (content["training"]["epochs"], content["study"]["epochs"]) == (0, 0)
    trained = resolved(composed(*overrides("--model", "my bert", "training=finetune")))
    assert (trained["model"]["path"], trained["training"]["epochs"]) == ("my bert", 3)
    for name in ("lstm", "cnn"):  # a choice of conf/model comes first
        assert "_target_" not in resolved(composed(*overrides("--model", name)))["model"]


def test_a_model_that_is_nothing_and_one_without_its_path_are_one_line(capsys):
    for settings in (
        overrides("--model", "my_bret"),
        overrides("model=pretrained"),
        ["model=pretrained"],
    ):
        with pytest.raises(Exception, match=r".") as raised:
            resolved(composed(*settings))
        said = answer(raised.value, settings)
        assert "\n" not in said
        assert "model.path=FOLDER" in said
        assert ("my_bret" in said) == ("my_bret" in str(settings))
        assert ("model.path=???" in said) != ("my_bret" in said)
