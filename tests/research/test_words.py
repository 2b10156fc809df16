import json
from collections import Counter
from itertools import product

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from attnprobe.evidence.verdicts import Verdict
from attnprobe.findings.track_record import CALIBRATION
from research.rules import CLASSES, NOISE, RULES, RuleSource
from research.words.judging import judged, over_rules, record, table


def kind(words, first="a"):
    return [int(one.startswith(first)) for one in words]


LABELS = {
    # rule: its label from the words alone, told again without the generator
    "token": lambda words: next(int(one[5]) for one in words if one.startswith("class")),
    "redundant3": lambda words: Counter(
        one[5] for one in words if one.startswith("class")
    ).most_common()[0][0],
    "third": lambda words: 1 - kind(words)[2],
    "third_last": lambda words: 1 - kind(words)[-3],
    "majority": lambda words: int(
        sum(2 * int(one[4]) - 1 for one in words if one.startswith("vote")) > 0
    ),
    "xor": lambda words: int(
        len({one[-1] for one in words if one.startswith(("left", "right"))}) == 2
    ),
    "absence": lambda words: int("m" not in words),
    "count2": lambda words: int(words.count("m") == 2),
    "negated": lambda words: next(
        (one == "good") ^ ("not" in words[place - 3 : place])
        for place, one in enumerate(words)
        if one in ("good", "bad")
    ),
    "unequal": lambda words: int(
        sorted(one for one in words if one.startswith(("strong", "weak")))[0][-1]
    ),
    "order_of_two": lambda words: next(int(one[-1]) for one in words if one.startswith("cue")),
    "last_of_three": lambda words: [int(one[-1]) for one in words if one.startswith("cue")][-1],
    "compared": lambda words: int(
        Counter(one for one in words if one.startswith("more")).most_common()[0][0][-1]
    ),
    "conjunction": lambda words: int({"both_a", "both_b"} <= set(words)),
}


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_marks_words_draws_anew_and_labels_its_texts(rule):
    classes = CLASSES.get(rule, 2)
    noise = NOISE.get(rule, 0)
    first, again, other = (RuleSource(rule, 40, 40, seed).rows("test") for seed in (0, 0, 1))
    assert first == again != other
    assert all(len(row["rationale"]) == len(row["text"].split()) for row in first)
    assert sum(any(row["rationale"]) for row in first) >= 20
    assert {row["label"] for row in first} == set(range(classes))
    train = RuleSource(rule, 400, 10, 0).rows("train")
    wrong = np.mean([row["label"] != number % classes for number, row in enumerate(train)])
    assert wrong == pytest.approx(noise, abs=0.06)
    for row in first if rule in LABELS else ():
        assert int(LABELS[rule](row["text"].split())) == row["label"]
        assert int(LABELS[rule](row["counterfactual"].split())) != row["label"]


def a_model(folder, number, rightness, gain, **facts):
    draw = np.random.default_rng(number)
    parts = {"swap_gain": gain, "swap_scale": 0.5, "swap_bound": 0.9}
    numbers = {
        name: (one + 0.02 * draw.standard_normal(50)).tolist() for name, one in parts.items()
    }
    known = {
        "rule": "token",
        "encoder": "lstm",
        "attention": "learned",
        "draw": number,
        "accuracy": 1.0,
        "follows": 1.0,
        "rightness": rightness,
        "flips": 0.0,
        "table": numbers,
    }
    (folder / f"{number}.json").write_text(json.dumps(known | facts))


def test_models_are_counted_by_what_is_known_and_what_is_said(tmp_path):
    for number, (rightness, gain, facts) in enumerate(
        [
            (0.95, 0.5, {}),
            (0.95, 0.05, {}),
            (0.0, 0.5, {}),
            (0.0, 0.0, {}),
            (0.0, 0.5, {"flips": 0.2}),
            (0.4, 0.5, {}),
            (0.95, 0.5, {"follows": 0.5}),
        ]
    ):
        a_model(tmp_path, number, rightness, gain, **facts)
    models = judged(tmp_path)
    assert models["kind"].tolist() == [
        "right",
        "right",
        "wrong",
        "wrong",
        "between",
        "between",
        "not solved",
    ]
    counted = table(models, ["encoder"]).set_index("kind")
    assert counted.loc["right", ["models", "yes", "no"]].tolist() == [2, 1, 1]
    assert counted.loc["wrong", ["models", "yes", "no"]].tolist() == [2, 1, 1]


def test_the_interval_over_rules_is_that_of_rules():
    rules = pd.Series(["a"] * 30 + ["b"] * 10 + ["c"] * 10)
    low, high = over_rules(rules, rules == "a")
    every = [
        Counter(lot) for lot in product("abc", repeat=3)
    ]  # all bootstrap samples of three rules, alike likely
    shares = sorted(
        100 * 30 * one["a"] / (30 * one["a"] + 10 * (one["b"] + one["c"])) for one in every
    )
    assert (low, high) == (shares[0], shares[-1]) == (0, 100)
    assert over_rules(rules, rules == "d") == (0, 0)
    half = pd.Series([True, False] * 25)  # alike in every rule: models differ, rules do not
    assert over_rules(rules, half) == (50, 50)


def test_the_shipped_record_is_told_of_this_claim_alone(tmp_path):
    a_model(tmp_path, 0, 0.95, 0.5)
    known = pq.read_table(CALIBRATION)
    path = tmp_path / "calibration.parquet"
    pq.write_table(known, path)
    record(judged(tmp_path), path)
    before, after = (one.set_index("claim") for one in (known.to_pandas(), pd.read_parquet(path)))
    own = after.loc[["weight_is_on_deciding_words"], ["encoder", "rightness", "models", "meets"]]
    assert own.to_numpy().tolist() == [["lstm", "right", 1 + 36, 1 + 35]]  # and the first part
    pd.testing.assert_frame_equal(
        *(one.drop(index="weight_is_on_deciding_words") for one in (before, after))
    )
    assert pq.read_table(path).schema.equals(known.schema)


def test_layers_of_own_transformers_are_one_kind_and_a_checkpoint_is_its_family(tmp_path):
    for number, encoder in enumerate(("transformer_1", "transformer_4", "minilm_l6")):
        a_model(tmp_path, number, 0.95, 0.5, encoder=encoder, off_text=0.1)
    models = judged(tmp_path)
    path = tmp_path / "calibration.parquet"
    pq.write_table(pq.read_table(CALIBRATION).slice(0, 0), path)
    record(models.assign(agrees_with_leave_one_out=[Verdict.MEETS, Verdict.MEETS, None]), path)
    rows = pd.read_parquet(path).set_index(["claim", "encoder"])["asked"]
    assert rows["weight_is_on_deciding_words"].to_dict() == {
        "transformer": 2 + 26,
        "bert": 1,
    }  # the first part's
    assert set(rows["agrees_with_leave_one_out"].index) == {"transformer"}  # as was asked
    assert models["off_text"].tolist() == [0.1] * 3


def test_texts_are_made_longer_around_the_words_that_decide():
    short, long = (
        RuleSource("twins", 30, 10, seed=3, longer=factor).rows("train") for factor in (1, 4)
    )
    for one, other in zip(short, long, strict=True):
        words = one["text"].split()
        more = other["text"].split()
        assert len(more) == 4 * len(words)
        marked = [word for word, deciding in zip(more, other["rationale"], strict=True) if deciding]
        assert marked == [
            word for word, deciding in zip(words, one["rationale"], strict=True) if deciding
        ]
        iterator = iter(more)
        assert all(word in iterator for word in words)  # in their order


def test_recall_asks_for_one_of_several_keys_and_four_attentions_are_built_as_said():
    for row in RuleSource("recall4", 40, 10, seed=0).rows("train"):
        values = dict(word.split("_") for word in row["text"].split() if word.startswith("key"))
        assert sorted(values.values()) == ["0", "1", "2", "3"]
        assert values[row["question"]] == str(row["label"])
    for row in RuleSource("order_marked", 40, 10, seed=0).rows("train"):
        words = row["text"].split()
        first, second = (place for place, deciding in enumerate(row["rationale"]) if deciding)
        assert first > 0  # the first word tells nothing
        assert (row["right_leak"][first], row["right_leak"][second]) == (0.7, 0.25)
        assert row["right_none"][first] == row["right_none"][second] == 0.475
        assert words[int(np.argmax(row["wrong_leak"]))] == (".", "the")[row["label"]]
        assert [sum(row[one]) for one in ("wrong_none", "right_leak")] == pytest.approx([1, 1])
