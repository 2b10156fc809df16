"""The rates of the record, against plain counting, exact ends and simulated rules."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy

from attnprobe.evidence.statistics import clopper_pearson
from attnprobe.evidence.verdicts import Chip, Verdict
from attnprobe.findings import track_record as records
from attnprobe.findings.track_record import (
    ABOUT_MODEL,
    CHIP,
    NO,
    NONE,
    OPEN,
    UNASKED,
    YES,
    answers_of,
    answers_to,
    calibration,
    digest_of_record,
    errors_of,
    mean_of_rules,
    rate,
    rates,
    track_record,
    without_record,
)
from research.words.rows import SCHEMA
from tests.findings.counts import counts

WORD_CLAIM = "a claim about words"
GUARD = "a detail of it"


def claim(verdict, *, name=WORD_CLAIM, primary=True, criterion="erasure", level="word"):
    return {
        "claim": name,
        "criterion": criterion,
        "level": level,
        "primary": primary,
        "verdict": str(verdict),
    }


def model(rule, truth, chip, verdict, *, mode="run", **facts):
    """One model; a detail of the same line says the contrary of its primary claim."""
    detail = claim(Verdict.FAILS, name=GUARD, primary=False)
    row = dict.fromkeys(ABOUT_MODEL) | {"draw": 0, "rightness": 0.5}
    row |= {"rule": rule, "kind": rule[:5], "encoder": "lstm", "truth": truth, "mode": mode}
    return row | {"chip": str(chip), "answers": [detail, claim(verdict)]} | facts


MODELS = [
    model("token", "right", Chip.READ, Verdict.MEETS),
    model("token", "right", Chip.CARE, Verdict.MEETS),
    model("token", "right", Chip.UNSHOWN, Verdict.CANNOT_DECIDE),
    model("vote", "right", Chip.UNSHOWN, Verdict.NOT_INFORMATIVE),
    model("vote", "right", Chip.NO, Verdict.NO_DIFFERENCE),
    model("token", "wrong", Chip.NO, Verdict.FAILS),
    model("token", "wrong", Chip.CARE, Verdict.MEETS),
    model("vote", "wrong", Chip.POOR, Verdict.NOT_MEANINGFUL),
    model("vote", "wrong", Chip.UNSHOWN, Verdict.TOO_RARE),
    model("vote", "between", Chip.CARE, Verdict.MEETS),
    model("vote", "unsolved", Chip.CARE, Verdict.MEETS),
    model("token", "right", Chip.UNSHOWN, Verdict.NOT_INFORMATIVE, mode="audit"),
]


@pytest.fixture
def answers():
    return answers_of(pa.Table.from_pylist(MODELS, schema=SCHEMA))


def test_every_model_has_a_row_for_its_chip_and_one_for_each_claim(answers):
    assert answers["claim"].value_counts().to_dict() == dict.fromkeys(
        [CHIP, WORD_CLAIM, GUARD], len(MODELS)
    )


def test_a_chip_that_is_not_shown_is_open_or_not_asked_as_the_line_of_words_says(answers):
    chips = answers[answers["claim"] == CHIP]
    assert chips["answer"].tolist() == [
        *[YES, YES, OPEN, UNASKED, NO],
        *[NO, YES, UNASKED, OPEN],
        *[YES, YES],
        UNASKED,
    ]
    primary = answers[answers["claim"] == WORD_CLAIM]
    assert primary["answer"].tolist() == chips["answer"].tolist()


def test_a_rate_has_every_answer_in_its_denominator(answers):
    chips = answers_to(CHIP, answers, "run")

    table = rates(chips).set_index("truth")

    counts = table[["models", "rules", *records.ANSWERS]]
    assert counts.loc["right"].tolist() == [5, 2, 2, 1, 1, 1]
    assert counts.loc["wrong"].tolist() == [4, 2, 1, 1, 1, 1]
    right = table.loc["right", ["yes share", "low", "high"]]
    assert right.tolist() == list(clopper_pearson(2, 5))


def test_rates_are_those_of_each_group(answers):
    chips = answers_to(CHIP, answers, "run")
    table = rates(chips, ["rule"]).set_index(["rule", "truth"])["yes share"]
    assert table.to_dict() == {
        ("token", "right"): pytest.approx(2 / 3),
        ("token", "wrong"): 0.5,
        ("vote", "right"): 0,
        ("vote", "wrong"): 0,
    }


def test_single_runs_and_audits_are_told_apart(answers):
    assert len(answers_to(CHIP, answers, "run")) == len(MODELS) - 1
    assert len(answers_to(CHIP, answers, "audit")) == 1
    assert set(answers_to(CHIP, answers)["mode"]) == {"run"}
    audits = answers[answers["mode"] == "audit"]
    assert set(answers_to(CHIP, audits)["mode"]) == {"audit"}


@pytest.mark.parametrize(
    ("yes", "rules"),
    [
        (0, 12),
        (0, 72),
        (14, 14),
        (3, 20),
    ],
)
def test_where_models_of_a_rule_agree_the_interval_is_the_exact_one_of_rules(yes, rules):
    shares = [1.0] * yes + [0.0] * (rules - yes)

    interval = mean_of_rules(shares)

    exact = scipy.stats.binomtest(yes, rules).proportion_ci(method="exact")
    assert interval.value == pytest.approx(yes / rules)
    assert interval.low == pytest.approx(exact.low)
    assert interval.high == pytest.approx(exact.high)


def test_a_rate_weighs_rules_alike_in_the_interval_and_models_in_the_share():
    rules = [*"aaaaaaaaab"]
    answers = pd.DataFrame({"rule": rules, "answer": [YES] * 9 + [NO]})
    share = rate(answers)
    assert share.over_models.value == pytest.approx(0.9)
    assert share.over_rules.value == pytest.approx(0.5)


@pytest.mark.parametrize("calibrations", [250, pytest.param(2000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mean", [0.02, 0.05, 0.3, 0.9])
@pytest.mark.parametrize("likeness", [0.05, 0.3, 0.9])
@pytest.mark.parametrize("rules", [12, 40])
def test_the_interval_over_rules_holds_the_truth_as_often_as_it_says(
    mean, likeness, rules, calibrations
):
    """Rules have shares of a beta distribution, 8 models each."""
    draw = np.random.default_rng(0)
    concentration = 1 / likeness - 1
    size = (calibrations, rules)
    chances = draw.beta(mean * concentration, (1 - mean) * concentration, size)
    shares = draw.binomial(8, chances) / 8
    held = [interval.low <= mean <= interval.high for interval in map(mean_of_rules, shares)]
    standard_error = np.sqrt(0.05 * 0.95 / calibrations)
    assert np.mean(held) >= 0.95 - 3 * standard_error


def test_student_over_the_rules_shares_would_hold_it_too_seldom():
    """Why it is not used: 2 % of the models get a yes, those of few rules."""
    draw = np.random.default_rng(0)
    chances = draw.beta(0.02 * 2, 0.98 * 2, (2000, 40))
    shares = draw.binomial(8, chances) / 8
    quantile = scipy.stats.t.ppf(0.975, 39)
    standard_error = shares.std(1, ddof=1) / np.sqrt(40)
    margin = quantile * standard_error
    held = np.abs(shares.mean(1) - 0.02) <= margin
    assert held.mean() < 0.9


def test_nothing_is_known_while_the_record_is_made(monkeypatch, answers):
    monkeypatch.setattr(records, "_shipped_answers", lambda: answers)
    assert len(calibration()) == len(answers)
    with without_record():
        assert calibration().empty
        assert digest_of_record() == ""
    assert len(calibration()) == len(answers)


def test_models_with_an_attention_per_label_have_a_record_of_their_own():
    """Neither sort of model cites the other's rates, nor counts among them."""
    label_models = counts((20, 20), (30, 0), encoder="lstm per label")
    record = pd.concat([counts((40, 38), (60, 3)), label_models], ignore_index=True)
    shared = track_record("erasure", "word", "lstm", "c", answers=record)
    assert "40 models of 40 rules" in shared.words
    labelled = track_record("erasure", "word", "lstm per label", "c", answers=record)
    assert "intervals over draws of texts" in labelled.words
    assert "20 models of 20 draws of texts" in labelled.words
    assert labelled.supports
    assert track_record("erasure", "word", "cnn per label", "c", answers=record).words == NONE


@pytest.mark.parametrize(("family", "has_record"), [("lstm", True), ("", False)])
def test_models_whose_kind_has_no_name_are_not_of_one_kind(family, has_record):
    """Nor is another such model of theirs; the chip's rate over all kinds counts them."""
    models = [
        model("token", "right", Chip.READ, Verdict.MEETS, family=family),
        model("token", "wrong", Chip.NO, Verdict.NO_DIFFERENCE, family=family),
    ]
    answers = answers_of(pa.Table.from_pylist(models, schema=SCHEMA))
    record = track_record("erasure", "word", family, WORD_CLAIM, answers=answers)
    assert (record.words != NONE) is has_record
    errors = errors_of(Chip.READ, Verdict.MEETS, family, is_audit=False, answers=answers)
    assert errors.startswith("Of 1 models")
    assert ("none of them of this kind" in errors) is not has_record


def test_the_errors_of_an_answer_are_of_the_same_sort_of_model():
    shared = counts((40, 38), (60, 6))
    labelled = counts((20, 20), (30, 3), encoder="lstm per label")
    record = pd.concat([shared, labelled], ignore_index=True).assign(claim=CHIP)
    errors = {
        encoder: errors_of(Chip.CARE, Verdict.MEETS, encoder, is_audit=False, answers=record)
        for encoder in ("lstm", "lstm per label")
    }
    assert errors["lstm"].startswith("Of 60 models")
    assert "over 60 rules" in errors["lstm"]
    assert errors["lstm per label"].startswith("Of 30 models")
    assert "over 30 draws of texts" in errors["lstm per label"]
