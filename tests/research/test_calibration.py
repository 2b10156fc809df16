"""The calibration from training to the shipped table: tiny always, a tenth of it as a slow test."""

import re
import shutil

import pandas as pd
import pytest

from attnprobe.core.errors import UserError
from attnprobe.findings.studies.base import read_study
from attnprobe.report.publish import publish_study
from attnprobe.results.files import read_sealed
from attnprobe.runs.studies import carry_out_study
from research.calibration.__main__ import main
from research.calibration.records import SHIPPED, collected, models_in
from research.calibration.study import Calibration
from tests.small_runs import composed

TINY = (
    "+experiment=calibration",
    "study.controls=[learned,first]",
    "study.encoders=[average]",
    "study.data=[token]",
    "study.seeds=[0,1]",
    "study.probes=[known_answer,permutation,plausibility]",
    "study.settings=['data.source.train_size=300','data.source.validation_size=60','data.source.test_size=60',"
    "'data.embedding_size=16','training.epochs=6','training.recipe.optimizer.lr=0.03','trainer.accelerator=cpu']",
)


def composed_of(overrides):
    return composed(*overrides)


def test_a_tiny_study_from_training_to_the_table(tmp_path, capsys, no_pictures):
    command = [*TINY, f"output={tmp_path}"]
    directory = carry_out_study(command, composed_of)
    assert carry_out_study(command, composed_of) == directory  # nothing is trained twice
    members = read_sealed(directory / "study.json")["members"]
    assert [f"{member['role']} {member['seed']}" for member in members] == [
        "learned 0",
        "first 0",
        "learned 1",
        "first 1",
    ]
    models, answered = collected(directory / member["directory"] for member in members)
    assert set(models["encoder"]) == {"average"}
    learned = models[models["control"] == "learned"]
    assert learned[["accuracy", "rightness"]].min().gt([0.9, 0.5]).all()
    assert (models[models["control"] == "first"]["rightness"].abs() < 0.1).all()
    yes = answered[
        (answered["claim"] == "top_word_in_rationale") & (answered["version"] == "published")
    ]
    assert yes.set_index("control")["met"].groupby("control").mean()["learned"] == 1
    publish_study(directory)
    page = (directory / "report.html").read_text(encoding="utf-8")
    assert "4 small models" in page
    first = re.search(r'<section id="glance".*?</article>', page, re.S)[0]
    reason = "it takes models with right attention and models with wrong attention."
    assert f"No test can be judged: {reason}" in first
    written = tmp_path / "table.parquet"
    main([str(directory), "-o", str(written)])
    assert "4 models" in capsys.readouterr().out
    assert set(SHIPPED) == set(pd.read_parquet(written).columns)
    shutil.rmtree(directory)  # as one that was cut short: its models are there, and no list of them
    assert len(models_in([tmp_path])) == 4
    again = shutil.copytree(models_in([tmp_path])[0], tmp_path / "other" / "token" / "copy")
    with pytest.raises(UserError, match=r"is the model of .* again: name one of the two"):
        models_in([tmp_path, again.parent.parent])


@pytest.mark.slow
def test_a_tenth_of_the_study_tells_right_from_wrong(tmp_path):
    """pytest -m slow tests/research/test_calibration.py: 36 trainings."""
    cells = (
        "study.seeds=[0,1]",
        "study.encoders=[average,cnn,lstm]",
        "study.data=[token]",
        "study.controls=[learned,rationale,position,first,uniform,untrained]",
    )
    directory = carry_out_study(
        ["+experiment=calibration", *cells, f"output={tmp_path}"], composed_of
    )
    reading = read_study(directory)
    members = read_sealed(directory / "study.json")["members"]
    models, answered = collected(directory / member["directory"] for member in members)
    assert len(models) == 36
    labels = models.groupby("control")["rightness_label"].agg(set)
    assert labels["rationale"] == {"right"}
    assert not labels["first"] & {"right", "between"}
    top = answered[
        (answered["claim"] == "top_word_in_rationale") & (answered["version"] == "published")
    ]
    assert top[top["rightness_label"] == "right"]["met"].mean() == 1
    assert top[top["rightness_label"] == "wrong"]["met"].fillna(0).mean() < 0.2
    assert len(reading.tables) >= 3


SETTINGS = ["data.source.train_size=1000", "training.epochs=6"]


@pytest.fixture
def cells():
    """(data, model) → the overrides of its run, in order."""
    study = Calibration(
        seeds=[0],
        encoders=["average", "lstm"],
        data=["token", "order", "geco"],
        controls=["learned"],
        settings=SETTINGS,
    )
    (stage,) = study.stages(0, "", [])
    return {
        tuple(name.partition("=")[2] for name in member.overrides[-3:-1]): member.overrides
        for member in stage
    }


def last_of(overrides, setting):
    """The one that wins."""
    return [override for override in overrides if override.startswith(f"{setting}=")][-1]


def test_no_context_is_asked_for_where_none_is_read(cells):
    assert list(cells) == [
        ("token", "average_learned"),
        ("token", "lstm_learned"),
        ("order", "lstm_learned"),
        ("geco", "average_learned"),
        ("geco", "lstm_learned"),
    ]


@pytest.mark.parametrize(
    ("data", "train_size", "epochs"), [("token", 1000, 6), ("order", 4000, 10)]
)
def test_what_takes_more_to_learn_has_it(cells, data, train_size, epochs):
    overrides = cells[data, "lstm_learned"]
    size = f"data.source.train_size={train_size}"
    assert last_of(overrides, "data.source.train_size") == size
    assert last_of(overrides, "training.epochs") == f"training.epochs={epochs}"


def test_a_file_is_given_no_sizes(cells):
    overrides = cells["geco", "lstm_learned"]
    assert not [override for override in overrides if override.startswith("data.source.")]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"seeds": []}, r"study\.seeds is empty"),
        ({"seeds": [0], "data": []}, r"study\.data=\[\]"),
        (
            {"seeds": [0], "controls": ["rigth"]},
            r"study\.controls=\['rigth'\]: expected one or more of learned, word",
        ),
        ({"seeds": [0], "probes": ["erasure"]}, "lacks known_answer"),
    ],
)
def test_settings_that_make_no_study(settings, message):
    with pytest.raises(UserError, match=message):
        Calibration(**settings)


def test_the_table_of_another_study_is_refused(tmp_path):
    with pytest.raises(SystemExit, match="holds no models of a study"):
        main([str(tmp_path)])
