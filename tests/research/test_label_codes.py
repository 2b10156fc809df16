"""The record of models of planted codes: its grid, its answers, and what is shipped of it."""

from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from attnprobe.evidence.deciding_words import ShareOfClass, ShareOfLabel
from attnprobe.evidence.evidence import Evidence
from attnprobe.findings.track_record import (
    ANSWER_OF_VERDICT,
    LABEL,
    LABEL_CALIBRATION,
    UNASKED,
    answers_of,
    answers_to,
    calibration,
)
from attnprobe.runs.composition import composed, composing
from research.labels.codes import ATTENTIONS, RULES, Model, answer_about, models
from research.labels.plain import MODELS
from research.labels.record import PAGE, with_record


@pytest.mark.parametrize("encoder", MODELS)
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_every_model_of_planted_codes_can_be_composed(tmp_path, encoder, attention):
    model = Model("negated signs", encoder, attention, draw=3)
    with composing():
        config = composed(model.overrides(tmp_path))
    assert config.data.source.negated == RULES["negated signs"].negated
    assert (config.seed, config.data.source.seed) == (3, 3)
    assert config.model.attention.get("column", "") == ATTENTIONS[attention].column


def test_models_come_rule_by_rule_in_whole_draws():
    draws = [0, 1]
    order = list(models(MODELS, draws))
    size_of_draw = len(MODELS) * len(ATTENTIONS)
    assert len(order) == len(RULES) * len(draws) * size_of_draw
    assert len({model.name for model in order}) == len(order)

    first_rule = order[: len(draws) * size_of_draw]
    assert {model.rule for model in first_rule} == {next(iter(RULES))}
    assert [model.draw for model in first_rule] == [0] * size_of_draw + [1] * size_of_draw


def share_of(answer):
    """A label whose share gets this answer."""
    shares = {
        "yes": Evidence(0.8, 0.7, 0.9, 30),
        "no": Evidence(0.1, 0.0, 0.2, 30),
        "open": Evidence(0.4, 0.3, 0.5, 30),
        UNASKED: Evidence(0.8, 0.7, 0.9, 30),
    }
    weight = Evidence(0.1 if answer == UNASKED else 0.9, 0, 1, 30)
    return ShareOfLabel("code0", ShareOfClass(0, 30.0, weight, shares[answer]))


@pytest.mark.parametrize("answer", ["yes", "no", "open", UNASKED])
def test_the_answer_about_a_label_is_counted_as_that_of_a_claim(answer):
    row = answer_about(share_of(answer))
    assert row["claim"] == LABEL
    answers = {str(verdict): word for verdict, word in ANSWER_OF_VERDICT.items()}
    assert answers[row["verdict"]] == answer
    weak = replace(share_of("no").part, texts=3.0)  # too few for an answer
    assert answers[answer_about(ShareOfLabel("code0", weak))["verdict"]] == UNASKED


@pytest.fixture(scope="module")
def shipped():
    return pq.read_table(LABEL_CALIBRATION)


def test_the_page_says_what_the_shipped_rows_say(shipped):
    page = PAGE.read_text(encoding="utf-8")
    assert with_record(page, shipped) == page


def test_every_model_is_there_once(shipped):
    rows = shipped.to_pandas()
    assert not rows[["kind", "encoder", "attention", "draw"]].duplicated().any()
    assert set(rows["kind"]) <= set(RULES)
    draws = rows.groupby(["kind", "encoder"])["draw"].nunique()
    first_rule = next(iter(RULES))
    assert draws[first_rule].min() == 5


def test_right_and_wrong_attentions_are_so_by_the_facts_of_their_model(shipped):
    rows = shipped.to_pandas().set_index("truth")
    solved = rows.loc[["right", "wrong"]]
    assert (solved["balanced_accuracy"] >= 0.9).all()
    assert (rows.loc["right", "rightness"] >= 0.8).all()
    assert (rows.loc["wrong", "rightness"] < 0.4).all()


def test_verdicts_read_the_shipped_rows(shipped):
    expected = answers_of(shipped)
    record = calibration()
    answers = record[record["family"].isin(expected["family"].unique())]
    assert len(answers) == len(expected)
    trained = [truth for truth in shipped["truth"].to_pylist() if truth != "failed"]
    assert len(answers_to(LABEL, answers)) == 4 * len(trained)  # labels of a model
