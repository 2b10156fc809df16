"""The record, from a training to README: two tiny models for real, the rest by hand."""

from itertools import product

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from pandas.testing import assert_frame_equal

from attnprobe.core.errors import UserError
from attnprobe.evidence.verdicts import Answer, Verdict
from attnprobe.findings.track_record import CALIBRATION, answers_of
from research.grammar import RuleSpec, drawn_rules
from research.objectives import wrong_word
from research.words.__main__ import main
from research.words.cells import (
    CHECKPOINT_ATTENTIONS,
    ENCODERS,
    LEARNED,
    OWN_ATTENTIONS,
    Cell,
    Grid,
    sample_of,
)
from research.words.docs import PAGES, ROOT, parts_of, with_parts
from research.words.rows import SCHEMA, rows_of, ship, table_of
from research.words.tables import curve_table, tables_of
from research.words.truth import Facts
from tests.small_runs import composed

TOKEN = RuleSpec.named("token")
PLAN = (ROOT / "docs" / "results" / "verdict_plan.md").read_text(encoding="utf-8")
TINY = ("--rules", "token", "--encoders", "average", "--draws", "100")


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Where the run of the second part stays."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def folder(tmp_path_factory, kept):
    """A right and a wrong model, trained and asked through the pipeline, in two parts."""
    path = tmp_path_factory.mktemp("rows")
    command = [str(path), *TINY, "--attentions", "right_95,uniform"]
    main([*command, "--part", "1/2"])
    assert not list(path.rglob("manifest.json"))  # its run is gone
    main([*command, "--part", "2/2", "--keep", str(kept)])
    return path


@pytest.fixture(scope="module")
def trained(folder):
    """Attention → the row of its model."""
    return {row["attention"]: row for row in rows_of([folder])}


def test_a_model_whose_attention_is_right_is_known_and_told_so(trained):
    row = trained["right_95"]
    assert row["truth"] == "right"
    assert row["balanced_accuracy"] > 0.9
    assert row["rightness"] == pytest.approx(0.94, abs=0.02)  # 95 % on one word, of 5 % even ones
    assert row["class_rightness"] == pytest.approx([0.94, 0.94], abs=0.02)
    assert row["chip"] == "With care"  # without a record no yes has a tick


def test_a_model_whose_attention_is_wrong_is_known_and_told_no_yes(trained):
    row = trained["uniform"]
    assert row["truth"] == "wrong"
    assert row["rightness"] == pytest.approx(0, abs=0.01)
    assert row["chip"] not in ("With care", "Read it")


def test_a_row_has_every_tested_claim_of_the_card_and_what_it_cost(trained):
    row = trained["right_95"]
    assert len(row["answers"]) > 1
    (primary,) = [answer for answer in row["answers"] if answer["primary"]]
    assert (primary["level"], primary["answer"]) == ("word", Answer.YES)
    assert primary["low"] < primary["value"] <= primary["high"]
    assert row["training_seconds"] > 0
    assert row["asking_seconds"] > 0
    assert row["passes"] > 0
    assert row["spec"]["kind"] == row["kind"] == "token"


def test_what_is_there_is_not_trained_again_and_its_runs_are_gone(folder, capsys):
    times = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    main([str(folder), *TINY, "--attentions", "right_95,uniform"])
    assert "2 models, 0 of them left" in capsys.readouterr().out
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == times


def test_a_model_that_cannot_be_trained_is_a_row(tmp_path, monkeypatch):
    def diverged(config, sweep):
        raise UserError("the training loss became nan")

    monkeypatch.setattr("research.words.asking.run", diverged)
    main([str(tmp_path), *TINY, "--attentions", "uniform"])
    (row,) = rows_of([tmp_path])
    assert (row["truth"], row["sentence"]) == ("failed", "the training loss became nan")
    assert answers_of(table_of([row]))["answer"].tolist() == ["not asked"]


@pytest.mark.usefixtures("folder")
def test_the_runs_stay_where_they_are_to_be_kept(kept):
    assert list(kept.rglob("manifest.json"))


# What is known


@pytest.mark.parametrize(
    ("rightness", "avoids_reason", "facts", "truth"),
    [
        (0.8, False, {}, "right"),
        (0.79, False, {}, "between"),
        (0.06, False, {}, "between"),
        (0.05, False, {}, "wrong"),
        (0.06, True, {}, "wrong"),
        (0.39, True, {}, "wrong"),
        (0.4, True, {}, "between"),
        (0.9, True, {}, "right"),
        (0.9, False, {"balanced_accuracy": 0.89}, "unsolved"),
        (0.9, False, {"follows": 0.89}, "unsolved"),
        (0.9, False, {"follows": float("nan")}, "right"),
        (float("nan"), False, {}, "wrong"),
    ],
)
def test_an_attention_is_right_or_wrong_by_its_mass_and_by_what_it_is(
    rightness, avoids_reason, facts, truth
):
    known = {
        "accuracy": 1.0,
        "balanced_accuracy": 1.0,
        "follows": 1.0,
        "mass": 0.5,
        "chance": 0.1,
    }
    known |= {"rightness": rightness, "class_rightness": (), "texts": 50}
    assert Facts(**known | facts).truth(avoids_reason=avoids_reason) == truth


# Which models


@pytest.mark.parametrize("attention", OWN_ATTENTIONS)
@pytest.mark.parametrize("mode", ["run", "audit"])
def test_every_attention_is_composed(attention, mode, tmp_path):
    cell = Cell(TOKEN, "lstm", attention, 100, mode)
    config = composed(*cell.command_line(tmp_path))
    assert config.data.source.rule == "token"
    assert config.seed == config.data.source.seed == 100
    assert ("study" in config and config.study is not None) == (mode == "audit")


@pytest.mark.parametrize(("encoder", "products"), [("lstm", "float32"), (None, "bfloat16")])
def test_a_pretrained_model_multiplies_in_bfloat16(encoder, products, tmp_path):
    (tmp_path / "config.json").write_text('{"num_attention_heads": 4}', encoding="utf-8")
    cell = Cell(TOKEN, encoder or str(tmp_path), "early_1", 100, "run")
    config = composed(*cell.command_line(tmp_path))
    assert config.probe.swaps.products == products


@pytest.mark.parametrize(
    ("encoder", "attention", "is_possible"),
    [
        ("average", "first", False),
        ("average", "misled", False),
        ("average", "early_1", True),
        ("lstm", "first", True),
    ],
)
def test_a_model_without_context_has_no_attention_on_places(encoder, attention, is_possible):
    assert Cell(TOKEN, encoder, attention, 0, "run").is_possible is is_possible


def test_unknown_attentions_and_encoders_are_refused():
    with pytest.raises(UserError, match="attention head_0 of lstm: expected one of"):
        Cell(TOKEN, "lstm", "head_0", 0, "run")
    with pytest.raises(UserError, match="encoder gru: expected average, cnn"):
        Cell(TOKEN, "gru", "learned", 0, "run")


def test_parts_share_the_models_and_a_sample_follows_from_its_key():
    cells = list(Grid([TOKEN], list(ENCODERS), [], [0, 1], "run").cells())
    names = [cell.name for cell in cells]
    assert len(names) == len(set(names))
    assert set(LEARNED) <= {cell.attention for cell in cells}
    sample = sample_of(cells, 5, "a1b2")
    assert sample == sample_of(cells, 5, "a1b2") != sample_of(cells, 5, "a1b3")
    assert sample_of(cells, 8, "a1b2")[:5] == sample  # a part is a sample, too
    assert set(sample) < set(cells)


def test_a_misled_attention_is_supervised_on_one_word_that_does_not_decide():
    ids = torch.tensor([[7, 3, 5, 3], [2, 9, 9, 9]])
    silent = torch.tensor([[True, True, True, True], [False, True, True, False]])
    assert wrong_word(ids, silent).tolist() == [[0, 0.5, 0, 0.5], [0, 0.5, 0.5, 0]]
    assert wrong_word(ids, torch.zeros_like(silent)).sum() == 0


# The tables


def invented(number, truth, chip, rightness, mode="run"):
    verdict = {"With care": Verdict.MEETS, "No": Verdict.FAILS}.get(chip, Verdict.CANNOT_DECIDE)
    claim = {
        "claim": "c",
        "criterion": "erasure",
        "level": "word",
        "primary": True,
    }
    row = {
        "rule": f"rule {number % 4}",
        "kind": "token",
        "encoder": "lstm",
        "family": "lstm",
    }
    row |= {"attention": "learned", "standing": "learned", "draw": number, "mode": mode}
    row |= {"truth": truth, "rightness": rightness, "chip": chip, "spec": {}}
    return row | {"answers": [claim | {"verdict": str(verdict)}]}


ROWS = [
    *[invented(number, "right", "With care", 0.95) for number in range(9)],
    invented(9, "right", "Not shown", 0.85),
    *[invented(number, "wrong", "No", 0.0) for number in range(6)],
    invented(6, "wrong", "With care", 0.3),
    invented(7, "between", "With care", 0.7),
    invented(8, "unsolved", "No", 0.7),
]


def test_the_tables_count_every_model():
    tables = tables_of(table_of(ROWS))
    (counts,) = tables["models"].to_dict("records")
    assert {truth: counts[truth] for truth in ("right", "wrong", "between", "unsolved")} == {
        "right": 10,
        "wrong": 7,
        "between": 1,
        "unsolved": 1,
    }
    chip = tables["chip, run"].set_index("truth")
    assert chip.loc["right", ["models", "rules", "yes", "open"]].tolist() == [10, 4, 9, 1]
    assert chip.loc["wrong", ["models", "rules", "yes", "no"]].tolist() == [7, 4, 1, 6]
    assert chip.loc["right", "yes, over models"] == "90 % [55, 100]"
    assert tables["chip, audit"].empty
    (worth,) = tables["old tests"].to_dict("records")
    assert worth["yes on right"].startswith("90 % [")


def test_the_curve_has_every_solved_model_once():
    answers = answers_of(table_of(ROWS))
    curve = curve_table(answers[answers["claim"] == "chip"]).set_index("rightness")
    assert curve["models"].to_dict() == {
        "below 0.05": 6,
        "0.2 to 0.4": 1,
        "0.6 to 0.8": 1,
        "0.8 and more": 10,
    }
    assert curve.loc["0.8 and more", "yes"] == 9


def test_the_number_on_the_line_of_words_is_compared_with_rightness():
    rows = [invented(number, "right", "With care", 0.9) for number in range(3)]
    rows.append(invented(3, "unsolved", "With care", 0.1))
    rows.append(invented(4, "wrong", "No", 0.0))
    for row, value in zip(rows, (0.9, 0.8, 0.5, 0.9, 0.1), strict=True):
        row["answers"][0] |= {"value": value, "low": value - 0.15, "high": value + 0.15}
    (numbers,) = tables_of(table_of(rows))["numbers"].to_dict("records")

    values = np.array([0.9, 0.8, 0.5, 0.1])  # of the solved ones
    rightness = np.array([0.9, 0.9, 0.9, 0.0])
    mean_square = np.mean((values - rightness) ** 2)
    correlation = np.corrcoef(values, rightness)[0, 1]
    assert numbers["models"] == 4
    assert numbers["root mean square"] == f"{np.sqrt(mean_square):.2f}"
    assert numbers["r"] == f"{correlation:.2f}"
    assert numbers["interval holds it"] == "75 %"


def test_rows_come_back_from_the_shipped_file_as_they_were(tmp_path):
    path = tmp_path / "calibration.parquet"
    ship(table_of(ROWS), path)
    table = pq.read_table(path)
    assert table.schema.equals(SCHEMA)
    assert table["rightness"].to_numpy() == pytest.approx([row["rightness"] for row in ROWS])
    assert_frame_equal(answers_of(table), answers_of(table_of(ROWS)))


def test_a_model_that_is_there_twice_is_refused(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.json").write_text("{}")
    with pytest.raises(UserError, match=r"is the model of .*a/model.json again"):
        rows_of([tmp_path / "a", tmp_path / "b"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="empty holds no row"):
        rows_of([tmp_path / "empty"])


# What README and docs say


@pytest.mark.parametrize("page", PAGES)
def test_every_number_of_the_record_on_a_page_is_that_of_the_shipped_file(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    parts = parts_of(pq.read_table(CALIBRATION))
    assert "<!-- record: " in text
    assert with_parts(text, parts) == text


def test_a_part_is_written_between_its_comments():
    page = "a\n<!-- record: headline -->\nold\n<!-- end of record -->\nb\n"
    expected = page.replace("old", "\nnew\n")
    assert with_parts(page, {"headline": "new"}) == expected
    with pytest.raises(UserError, match="record: headline: expected one of curve"):
        with_parts(page, {"curve": ""})


def test_the_shipped_file_is_small_and_its_truth_follows_from_its_facts():
    assert CALIBRATION.stat().st_size < 1_000_000
    models = pq.read_table(CALIBRATION).drop_columns("answers").to_pandas()
    known = models[models["truth"] != "failed"]
    assert not models.duplicated(["rule", "encoder", "attention", "draw", "mode"]).any()
    names = [name for name in Facts.__dataclass_fields__ if name in SCHEMA.names]
    for row in known.itertuples():
        facts = Facts(**{name: getattr(row, name) for name in names})
        avoids_reason = row.standing in ("blind", "avoiding")
        assert facts.truth(avoids_reason=avoids_reason) == row.truth


def test_the_rows_of_minilm_are_those_of_the_sealed_plan_and_are_shipped():
    rows = rows_of([ROOT / "research" / "words" / "minilm"])
    table_of(rows)  # they have every column
    (commit,) = {row["commit"] for row in rows}
    sealed_rules = drawn_rules(commit, 40, "first")[:4]
    assert f"--commit {commit}" in PLAN
    names = [rule.name for rule in sealed_rules]
    asked = {(row["rule"], row["attention"]) for row in rows}
    assert asked <= set(product(names, CHECKPOINT_ATTENTIONS))
    assert len(asked) == len(names) * 15 == 60  # of the twelve heads four are in the plan

    chips = {(row["rule"], row["attention"]): row["chip"] for row in rows}
    shipped = pq.read_table(CALIBRATION, filters=[("encoder", "=", "minilm_l6")]).to_pylist()
    assert {(row["rule"], row["attention"]): row["chip"] for row in shipped} == chips
