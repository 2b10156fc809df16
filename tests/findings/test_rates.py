import itertools
import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from attnprobe.evidence.statistics import clopper_pearson
from attnprobe.findings.track_record import CALIBRATION
from research.calibration.__main__ import made_by
from research.calibration.rates import NAMES, counted, held_out, separations, tables_of
from research.calibration.records import PUBLISHED, RIGHTNESS, SHIPPED, published_answer, shipped


def models(count, *, gap, seed=0, data=("token", "ordered_pair"), encoder="lstm"):
    """A claim's answers about that many right and as many wrong models per data set.

    The numbers of right models are `gap` larger.
    """
    draw = np.random.default_rng(seed)
    tables = []
    for name, label in itertools.product(data, ("right", "wrong")):
        value = draw.normal(gap * (label == "right"), 1, count)
        is_decided = abs(value - 1) > 0.1
        table = pd.DataFrame(
            {
                "value": value,
                "met": np.where(is_decided, value > 1, np.nan),
                "control": np.resize(["learned", "first"], count),
                "run_id": [f"{name}{label}{number}" for number in range(count)],
                "data": name,
                "rightness_label": label,
                "rightness": float(label == "right"),
            }
        )
        tables.append(table)
    return pd.concat(tables, ignore_index=True).assign(
        version="current",
        criterion="erasure",
        level="word",
        claim="top_word",
        primary=True,
        encoder=encoder,
    )


def area(table):
    """The area under the curve of the only claim, with its interval."""
    (row,) = separations(table).to_dict("records")
    return row


def test_separation_is_the_area_under_the_curve():
    table = models(30, gap=0.5, data=("token",)).round({"value": 1})
    expected = roc_auc_score(table["rightness_label"] == "right", table["value"])
    assert area(table)["AUC"] == pytest.approx(expected)


def test_a_missing_number_is_the_lowest():
    table = models(30, gap=0.5, data=("token",)).round({"value": 1})
    table.loc[0, "value"] = np.nan
    expected = roc_auc_score(table["rightness_label"] == "right", table["value"].fillna(-99))
    assert area(table)["AUC"] == pytest.approx(expected)


def test_right_models_alone_are_not_separated():
    table = models(30, gap=0.5, data=("token",))
    assert separations(table[table["rightness_label"] == "right"]).empty


def test_the_bootstrap_covers_the_true_area_about_as_often_as_it_says():
    truth = stats.norm.cdf(1 / np.sqrt(2))
    inside = 0
    for seed in range(40):
        row = area(models(25, gap=1, seed=seed, data=("token",)))
        inside += row["AUC low"] <= truth <= row["AUC high"]
    assert inside >= 33  # of 40; 38 are expected, and 33 or fewer has a probability of 1 %


def test_thresholds_are_chosen_on_other_data_than_they_are_judged_on():
    table = models(200, gap=4)
    # one data set's numbers are larger: a threshold does not transfer
    table.loc[table["data"] == "token", "value"] += 10
    (row,) = held_out(table).to_dict("records")
    wrong = table[table["rightness_label"] == "wrong"].groupby("data")["value"]
    expected = sorted(np.quantile(values, 0.95, method="higher") for _, values in wrong)
    thresholds = sorted(float(threshold) for threshold in row["thresholds"].split(", "))
    assert thresholds == pytest.approx(expected, abs=1e-3)
    assert row["wrong"] == pytest.approx(0.5)  # all of one data set pass, none of the other
    assert row["right"] == pytest.approx(0.5)


def test_a_threshold_transfers_between_data_sets_with_the_same_numbers():
    (row,) = held_out(models(200, gap=4)).to_dict("records")
    assert row["wrong"] < 0.1
    assert row["right"] > 0.95


@pytest.fixture(scope="module")
def shipped_counts():
    """What is shipped of claims about words and states, primary and not, of now and earlier."""
    words = models(10, gap=3)
    states = words.assign(level="state")
    average = states.assign(encoder="average")
    details = words.assign(primary=False)
    earlier = words.assign(version="published")
    return shipped(pd.concat([words, states, average, details, earlier]))


def test_of_states_with_context_only_right_models_are_shipped(shipped_counts):
    """It is not known which states decide where the attention is not on the deciding words."""
    columns = [shipped_counts[name] for name in ("level", "encoder", "rightness")]
    assert set(zip(*columns, strict=True)) == {
        ("word", "lstm", "right"),
        ("word", "lstm", "wrong"),
        ("state", "lstm", "right"),
        ("state", "average", "right"),
        ("state", "average", "wrong"),
    }


def test_what_is_shipped_counts_decided_models_of_primary_claims(shipped_counts):
    is_asked = (shipped_counts["level"] == "word") & (shipped_counts["rightness"] == "right")
    (row,) = shipped_counts[is_asked].to_dict("records")
    words = models(10, gap=3)
    met = words.loc[words["rightness_label"] == "right", "met"]
    assert row["models"] == met.notna().sum()
    assert row["meets"] == met.sum()
    assert row["asked"] == 20


NAN = float("nan")


def test_sooner_than_random_by_hand():
    later = np.array([0.8, NAN, 0.5])
    earlier = np.array([0.2, 0.4, 0.1])
    sooner = PUBLISHED["sooner_than_random"].value(later, earlier, np.array([0, 0, 1]))
    assert sooner.tolist() == pytest.approx([0.6, 0.6, NAN], nan_ok=True)


def test_nearer_to_the_optimum_by_hand():
    attention = np.array([0.3, NAN])
    random = np.array([0.9, NAN])
    best = np.array([0.1, 0.2])
    nearer = PUBLISHED["nearer_to_optimum"].value(attention, random, best, np.zeros(2))
    assert nearer.tolist() == pytest.approx([0.2, -0.4])


MOVES = pd.DataFrame(
    {
        "run_id": "a",
        "experiment": "x",
        "data": "d",
        "model": "m",
        "seed": 0,
        "split": "test",
        "probe": "permutation",
        "metric": "median_tvd",
        "example_id": np.arange(50),
        "step": NAN,
        "value": np.linspace(0.1, 0.3, 50),
    }
)


def test_permutation_moves_by_hand():
    answer = published_answer("permutation_moves", MOVES)
    assert answer.met == 1
    assert answer.value == pytest.approx(0.2 - 0.05)


def test_permutation_hardly_moves_by_hand():
    answer = published_answer("permutation_moves", MOVES.assign(value=0.01 * MOVES["value"]))
    assert answer.met == 0


def test_permutation_that_was_not_measured_says_nothing():
    answer = published_answer("permutation_moves", MOVES.assign(metric="other"))
    assert np.isnan(answer.met)


def test_the_shipped_counts_fit_each_other():
    table = pd.read_parquet(CALIBRATION)
    assert table.columns.tolist() == SHIPPED
    assert not table.duplicated(["criterion", "level", "encoder", "rightness", "claim"]).any()
    assert ((table["meets"] <= table["models"]) & (table["models"] <= table["asked"])).all()
    assert set(table["rightness"]) <= set(RIGHTNESS)


def test_the_shipped_table_says_of_what_it_is_and_by_which_command_it_was_made():
    table = pd.read_parquet(CALIBRATION)
    facts = json.loads(pq.read_schema(CALIBRATION).metadata[b"attnprobe"])
    assert "+experiment=calibration" in facts["made_by"]
    # the models of the rules are counted for agreement as well
    is_counted = table["claim"] != "agrees_with_leave_one_out"
    models = table[is_counted].groupby(["criterion", "level"])["asked"].sum()
    assert int(facts["models"]) == models.max()


def test_the_commands_that_are_shipped_train_these_models_and_no_others():
    trained = [
        ("token", "lstm", "first", 1),
        ("token", "lstm", "first", 0),
        ("token", "lstm", "learned", 0),
        ("token", "lstm", "learned", 1),
        ("token", "lstm", "uniform", 1),
        ("pair", "cnn", "first", 1),
    ]
    models = pd.DataFrame(trained, columns=["data", "encoder", "control", "seed"])
    start = "python -m attnprobe +experiment=calibration"
    assert made_by(models).split("; ") == [
        f"{start} study.data=[pair] study.encoders=[cnn] study.controls=[first] study.seeds=[1]",
        f"{start} study.data=[token] study.encoders=[lstm] study.controls=[first,learned] "
        "study.seeds=[0,1]",
        f"{start} study.data=[token] study.encoders=[lstm] study.controls=[uniform] "
        "study.seeds=[1]",
    ]


CLAIM = "weights_follow_words"


@pytest.fixture(scope="module")
def answers():
    """A claim's answers about models of two encoders."""
    cnn = models(20, gap=3, encoder="cnn", seed=0)
    lstm = models(20, gap=3, encoder="lstm", seed=1)
    table = pd.concat([cnn, lstm], ignore_index=True).assign(claim=CLAIM)
    table["run_id"] += table["encoder"]
    return table


@pytest.fixture(scope="module")
def tables(answers):
    """The tables of the page."""
    return tables_of(answers.drop_duplicates("run_id"), answers)


def test_the_table_of_models_counts_them(tables):
    rows = tables["Models"]
    assert rows["right"].tolist() == [20, 20, 20, 20, 80]
    assert rows["data"].tolist() == ["ordered pair", "ordered pair", "token", "token", "all"]


def test_the_table_of_answers_names_the_test(tables):
    (row,) = tables["Yes, of all models asked"].to_dict("records")
    assert row["test"] == f"**{NAMES['current', CLAIM].strip('* ')}** *"
    assert row["criterion, level"] == "erasure, word"
    assert row["meaningless: yes"] == "–"


@pytest.mark.parametrize("kind", ["right", "wrong"])
def test_the_table_of_answers_counts_every_yes(answers, tables, kind):
    (row,) = tables["Yes, of all models asked"].to_dict("records")
    yes = int((answers.loc[answers["rightness_label"] == kind, "met"] == 1).sum())
    _, low, high = clopper_pearson(yes, 80)
    assert row[f"{kind}: yes"] == f"{yes} of 80 [{100 * low:.0f}, {100 * high:.0f}]"


def test_an_undecided_model_was_asked():
    assert counted(pd.Series([1.0, 0.0, np.nan]), decided=True).startswith("1 of 2 ")


@pytest.mark.parametrize(("key", "cells"), [("encoder", 2), ("data and encoder", 4)])
def test_what_the_cells_hold_adds_up_to_all_models_of_the_kind(tables, key, cells):
    counts = tables[f"Primary claims by {key}"]["right: yes, of all"]
    assert len(counts) == cells
    assert sum(int(count.split(" ")[2]) for count in counts) == 80


def test_the_table_of_areas_has_those_of_each_encoder(answers, tables):
    (row,) = tables["Area under the curve"].to_dict("records")
    expected = area(answers[answers["encoder"] == "lstm"])["AUC"]
    assert row["lstm"] == f"{expected:.2f}"
