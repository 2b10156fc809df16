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
from research.calibration.records import PUBLISHED, RIGHTNESS, SHIPPED, published, shipped


def models(count, *, gap, seed=0, data=("token", "ordered_pair"), encoder="lstm"):
    """A claim's answers about that many right and as many wrong models per data set; right numbers
    are `gap` larger."""
    draw = np.random.default_rng(seed)
    rows = []
    for name, label in itertools.product(data, ("right", "wrong")):
        value = draw.normal(gap * (label == "right"), 1, count)
        own = pd.DataFrame(
            {"value": value, "met": np.where(abs(value - 1) > 0.1, value > 1, np.nan)}
        )
        own["control"] = np.resize(["learned", "first"], count)
        own["run_id"] = [f"{name}{label}{number}" for number in range(count)]
        rows.append(own.assign(data=name, rightness_label=label, rightness=float(label == "right")))
    claim = {
        "version": "current",
        "criterion": "erasure",
        "level": "word",
        "claim": "top_word",
        "primary": True,
    }
    return pd.concat(rows, ignore_index=True).assign(**claim, encoder=encoder)


def test_separation_is_the_area_under_the_curve():
    table = models(30, gap=0.5, data=("token",)).round({"value": 1})
    (row,) = separations(table).to_dict("records")
    assert row["AUC"] == pytest.approx(
        roc_auc_score(table["rightness_label"] == "right", table["value"])
    )
    table.loc[0, "value"] = np.nan  # what is missing is lowest
    (row,) = separations(table).to_dict("records")
    assert row["AUC"] == pytest.approx(
        roc_auc_score(table["rightness_label"] == "right", table["value"].fillna(-99))
    )
    assert separations(table[table["rightness_label"] == "right"]).empty


def test_the_bootstrap_covers_the_true_area_about_as_often_as_it_says():
    truth = stats.norm.cdf(1 / np.sqrt(2))
    inside = 0
    for seed in range(40):
        (row,) = separations(models(25, gap=1, seed=seed, data=("token",))).to_dict("records")
        inside += row["AUC low"] <= truth <= row["AUC high"]
    assert inside >= 33  # of 40; 38 are expected, and 33 or fewer has a probability of 1 %


def test_thresholds_are_chosen_on_other_data_than_they_are_judged_on():
    table = models(200, gap=4)
    # one data set's numbers are larger: a threshold does not transfer
    table.loc[table["data"] == "token", "value"] += 10
    (row,) = held_out(table).to_dict("records")
    wrong = table[table["rightness_label"] == "wrong"].groupby("data")["value"]
    chosen = sorted(float(one) for one in row["thresholds"].split(", "))
    assert chosen == pytest.approx(
        sorted(np.quantile(one, 0.95, method="higher") for _, one in wrong), abs=1e-3
    )
    assert row["wrong"] == pytest.approx(0.5)  # all of one data set pass, none of the other
    assert row["right"] == pytest.approx(0.5)
    (same,) = held_out(models(200, gap=4)).to_dict("records")
    assert same["wrong"] < 0.1
    assert same["right"] > 0.95


def test_what_is_shipped_counts_decided_models_of_primary_claims_about_words():
    table = models(10, gap=3)
    states = models(10, gap=3).assign(level="state")
    other = models(10, gap=3).assign(primary=False)
    average = states.assign(encoder="average")
    earlier = table.assign(version="published")
    found = shipped(pd.concat([table, states, average, other, earlier]))
    kinds = set(zip(found["level"], found["encoder"], found["rightness"], strict=True))
    # of states with context it is not known which decide where the attention is not on the deciding
    # words
    assert kinds == {
        ("word", "lstm", "right"),
        ("word", "lstm", "wrong"),
        ("state", "lstm", "right"),
        ("state", "average", "right"),
        ("state", "average", "wrong"),
    }
    row = found[(found["level"] == "word") & (found["rightness"] == "right")].iloc[0]
    right = table[table["rightness_label"] == "right"]
    assert (row["models"], row["meets"], row["asked"]) == (
        right["met"].notna().sum(),
        right["met"].sum(),
        20,
    )


def test_published_criteria_by_hand():
    nan = np.nan
    later = np.array([0.8, nan, 0.5])
    earlier = np.array([0.2, 0.4, 0.1])
    sooner = PUBLISHED["sooner_than_random"][3](later, earlier, np.array([0, 0, 1]))
    assert sooner.tolist() == pytest.approx([0.6, 0.6, nan], nan_ok=True)
    own = np.array([0.3, nan])
    random = np.array([0.9, nan])
    best = np.array([0.1, 0.2])
    assert PUBLISHED["nearer_to_optimum"][3](
        own, random, best, np.zeros(2)
    ).tolist() == pytest.approx([0.2, -0.4])
    table = pd.DataFrame(
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
            "step": nan,
            "value": np.linspace(0.1, 0.3, 50),
        }
    )
    answer = published("permutation_moves", table)
    assert answer["met"] == 1
    assert answer["value"] == pytest.approx(0.2 - 0.05)
    assert published("permutation_moves", table.assign(value=0.01 * table["value"]))["met"] == 0
    assert np.isnan(published("permutation_moves", table.assign(metric="other"))["met"])


def test_the_shipped_table_says_of_what_it_is_and_by_which_command_it_was_made():
    table = pd.read_parquet(CALIBRATION)
    assert table.columns.tolist() == SHIPPED
    assert not table.duplicated(["criterion", "level", "encoder", "rightness", "claim"]).any()
    assert ((table["meets"] <= table["models"]) & (table["models"] <= table["asked"])).all()
    assert set(table["rightness"]) <= set(RIGHTNESS)
    facts = json.loads(pq.read_schema(CALIBRATION).metadata[b"attnprobe"])
    assert "+experiment=calibration" in facts["made_by"]
    of_words = table["claim"] == "weight_is_on_deciding_words"
    assert (
        facts["words"] == f"python -m research.words: {table.loc[of_words, 'asked'].sum()} models"
    )
    of_words |= (
        table["claim"] == "agrees_with_leave_one_out"
    )  # of which the rules' models are counted as well
    assert (
        int(facts["models"])
        == table[~of_words].groupby(["criterion", "level"])["asked"].sum().max()
    )


def test_the_commands_that_are_shipped_train_these_models_and_no_others():
    told = [
        ("token", "lstm", "first", 1),
        ("token", "lstm", "first", 0),
        ("token", "lstm", "learned", 0),
        ("token", "lstm", "learned", 1),
        ("token", "lstm", "uniform", 1),
        ("pair", "cnn", "first", 1),
    ]
    models = pd.DataFrame(told, columns=["data", "encoder", "control", "seed"])
    start = "python -m attnprobe +experiment=calibration"
    assert made_by(models).split("; ") == [
        f"{start} study.data=[pair] study.encoders=[cnn] study.controls=[first] study.seeds=[1]",
        f"{start} study.data=[token] study.encoders=[lstm] study.controls=[first,learned] study.seeds=[0,1]",
        f"{start} study.data=[token] study.encoders=[lstm] study.controls=[uniform] study.seeds=[1]",
    ]


def test_every_count_of_the_tables_is_that_of_the_models():
    claim = "weights_follow_words"
    parts = [
        models(20, gap=3, encoder=encoder, seed=seed)
        for seed, encoder in enumerate(("cnn", "lstm"))
    ]
    answered = pd.concat(parts, ignore_index=True).assign(claim=claim)
    answered["run_id"] += answered["encoder"]
    tables = tables_of(answered.drop_duplicates("run_id"), answered)
    assert tables["Models"]["right"].tolist() == [20, 20, 20, 20, 80]
    assert tables["Models"]["data"].tolist() == [
        "ordered pair",
        "ordered pair",
        "token",
        "token",
        "all",
    ]
    (row,) = tables["Yes, of all models asked"].to_dict("records")
    assert (row["test"], row["criterion, level"]) == (
        f"**{NAMES['current', claim].strip('* ')}** *",
        "erasure, word",
    )
    for kind in ("right", "wrong"):
        yes = int((answered.loc[answered["rightness_label"] == kind, "met"] == 1).sum())
        _, low, high = clopper_pearson(yes, 80)
        assert row[f"{kind}: yes"] == f"{yes} of 80 [{100 * low:.0f}, {100 * high:.0f}]"
    assert row["meaningless: yes"] == "–"
    assert counted(pd.Series([1.0, 0.0, np.nan]), decided=True).startswith(
        "1 of 2 "
    )  # undecided ones are asked
    for by, cells in (("encoder", 2), ("data and encoder", 4)):
        counts = tables[f"Primary claims by {by}"]["right: yes, of all"]
        # what the cells hold adds up to all models of the kind
        assert [len(counts), sum(int(one.split(" ")[2]) for one in counts)] == [cells, 80]
    (area,) = tables["Area under the curve"].to_dict("records")
    (lstm,) = separations(answered[answered["encoder"] == "lstm"]).to_dict("records")
    assert area["lstm"] == f"{lstm['AUC']:.2f}"
