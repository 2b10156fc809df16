import numpy as np
import pytest

from research.rules import CLASSES, RULES, RuleSource

LABELS = {
    "token": lambda words: next(int(word[5]) for word in words if word.startswith("class")),
    "twins": lambda words: next(int(word[5]) for word in words if word.startswith("class")),
    "majority5": lambda words: int(
        sum(2 * int(word[4]) - 1 for word in words if word.startswith("vote")) > 0
    ),
    "order_marked": lambda words: next(int(word[-1]) for word in words if word.startswith("cue")),
    "negated": lambda words: next(
        (word == "good") ^ ("not" in words[place - 3 : place])
        for place, word in enumerate(words)
        if word in ("good", "bad")
    ),
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


@pytest.mark.parametrize("rule", LABELS)
def test_a_rule_labels_its_texts_and_their_counterfactuals(rule):
    for row in RuleSource(rule, 40, 40, 0).rows("test"):
        assert int(LABELS[rule](row["text"].split())) == row["label"]
        assert int(LABELS[rule](row["counterfactual"].split())) != row["label"]


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
