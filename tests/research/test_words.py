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


def kind(words):
    return [int(word.startswith("a")) for word in words]


LABELS = {
    "token": lambda words: next(int(word[5]) for word in words if word.startswith("class")),
    "redundant3": lambda words: Counter(
        word[5] for word in words if word.startswith("class")
    ).most_common()[0][0],
    "third": lambda words: 1 - kind(words)[2],
    "third_last": lambda words: 1 - kind(words)[-3],
    "majority": lambda words: int(
        sum(2 * int(word[4]) - 1 for word in words if word.startswith("vote")) > 0
    ),
    "xor": lambda words: int(
        len({word[-1] for word in words if word.startswith(("left", "right"))}) == 2
    ),
    "absence": lambda words: int("m" not in words),
    "count2": lambda words: int(words.count("m") == 2),
    "negated": lambda words: next(
        (word == "good") ^ ("not" in words[place - 3 : place])
        for place, word in enumerate(words)
        if word in ("good", "bad")
    ),
    "unequal": lambda words: int(
        sorted(word for word in words if word.startswith(("strong", "weak")))[0][-1]
    ),
    "order_of_two": lambda words: next(int(word[-1]) for word in words if word.startswith("cue")),
    "last_of_three": lambda words: [int(word[-1]) for word in words if word.startswith("cue")][-1],
    "compared": lambda words: int(
        Counter(word for word in words if word.startswith("more")).most_common()[0][0][-1]
    ),
    "conjunction": lambda words: int({"both_a", "both_b"} <= set(words)),
}
"""Rule → its label from the words alone, told again without the generator."""


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_draws_anew_and_marks_words(rule):
    rows = RuleSource(rule, 40, 40, 0).rows("test")
    assert rows == RuleSource(rule, 40, 40, 0).rows("test")
    assert rows != RuleSource(rule, 40, 40, 1).rows("test")
    assert all(len(row["rationale"]) == len(row["text"].split()) for row in rows)
    assert sum(any(row["rationale"]) for row in rows) >= 20
    assert {row["label"] for row in rows} == set(range(CLASSES.get(rule, 2)))


@pytest.mark.parametrize("rule", RULES)
def test_only_the_training_labels_of_noisy_rules_are_wrong(rule):
    classes = CLASSES.get(rule, 2)
    rows = RuleSource(rule, 400, 10, 0).rows("train")
    wrong = np.mean([row["label"] != number % classes for number, row in enumerate(rows)])
    assert wrong == pytest.approx(NOISE.get(rule, 0), abs=0.06)


@pytest.mark.parametrize("rule", LABELS)
def test_a_rule_labels_its_texts_and_their_counterfactuals(rule):
    for row in RuleSource(rule, 40, 40, 0).rows("test"):
        assert int(LABELS[rule](row["text"].split())) == row["label"]
        assert int(LABELS[rule](row["counterfactual"].split())) != row["label"]


def write_model(folder, number, rightness, gain, **facts):
    draw = np.random.default_rng(number)
    means = {"swap_excess": gain, "swap_room": 0.5, "swap_strength": 0.2}
    numbers = {
        metric: (mean + 0.02 * draw.standard_normal(50)).tolist() for metric, mean in means.items()
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


MODELS = [
    # rightness, gain of the swap, further facts, kind
    (0.95, 0.5, {}, "right"),
    (0.95, 0.05, {}, "right"),
    (0.0, 0.5, {}, "wrong"),
    (0.0, 0.0, {}, "wrong"),
    (0.0, 0.5, {"flips": 0.2}, "between"),
    (0.4, 0.5, {}, "between"),
    (0.95, 0.5, {"follows": 0.5}, "not solved"),
]


def test_models_are_counted_by_what_is_known_and_what_is_said(tmp_path):
    for number, (rightness, gain, facts, _) in enumerate(MODELS):
        write_model(tmp_path, number, rightness, gain, **facts)
    models = judged(tmp_path)
    assert models["kind"].tolist() == [kind for *_, kind in MODELS]
    counts = table(models, ["encoder"]).set_index("kind")
    assert counts.loc["right", ["models", "yes", "no"]].tolist() == [2, 1, 1]
    assert counts.loc["wrong", ["models", "yes", "no"]].tolist() == [2, 1, 1]


def test_the_interval_over_rules_is_that_of_rules():
    rules = pd.Series(["a"] * 30 + ["b"] * 10 + ["c"] * 10)
    low, high = over_rules(rules, rules == "a")
    # all bootstrap samples of three rules are alike likely
    samples = [Counter(sample) for sample in product("abc", repeat=3)]
    shares = sorted(
        100 * 30 * counts["a"] / (30 * counts["a"] + 10 * (counts["b"] + counts["c"]))
        for counts in samples
    )
    assert (low, high) == (shares[0], shares[-1]) == (0, 100)
    assert over_rules(rules, rules == "d") == (0, 0)
    half = pd.Series([True, False] * 25)  # alike in every rule: models differ, rules do not
    assert over_rules(rules, half) == (50, 50)


def test_layers_of_own_transformers_are_one_kind_and_a_checkpoint_is_its_family(tmp_path):
    for number, encoder in enumerate(("transformer_1", "transformer_4", "minilm_l6")):
        write_model(tmp_path, number, 0.95, 0.5, encoder=encoder, off_text=0.1)
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


def deciding_words(row):
    return [
        word for word, decides in zip(row["text"].split(), row["rationale"], strict=True) if decides
    ]


def test_texts_are_made_longer_around_the_words_that_decide():
    short = RuleSource("twins", 30, 10, seed=3, longer=1).rows("train")
    long = RuleSource("twins", 30, 10, seed=3, longer=4).rows("train")
    for short_row, long_row in zip(short, long, strict=True):
        words = short_row["text"].split()
        more_words = long_row["text"].split()
        assert len(more_words) == 4 * len(words)
        assert deciding_words(long_row) == deciding_words(short_row)
        iterator = iter(more_words)
        assert all(word in iterator for word in words)  # in their order


def test_recall_asks_for_one_of_several_keys():
    for row in RuleSource("recall4", 40, 10, seed=0).rows("train"):
        values = dict(word.split("_") for word in row["text"].split() if word.startswith("key"))
        assert sorted(values.values()) == ["0", "1", "2", "3"]
        assert values[row["question"]] == str(row["label"])


def test_four_attentions_are_built_as_said():
    for row in RuleSource("order_marked", 40, 10, seed=0).rows("train"):
        words = row["text"].split()
        first, second = (place for place, decides in enumerate(row["rationale"]) if decides)
        assert first > 0  # the first word tells nothing
        assert (row["right_leak"][first], row["right_leak"][second]) == (0.7, 0.25)
        assert row["right_none"][first] == row["right_none"][second] == 0.475
        assert words[int(np.argmax(row["wrong_leak"]))] == (".", "the")[row["label"]]
        assert sum(row["wrong_none"]) == pytest.approx(1)
        assert sum(row["right_leak"]) == pytest.approx(1)
