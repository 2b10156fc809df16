import numpy as np
import pytest

from research.rules import CLASSES, RULES, RuleSource


def label_of_class(words):
    """The digit of the first `class` word."""
    return next(int(word[5]) for word in words if word.startswith("class"))


def label_of_votes(words):
    """Whether more votes are for 1 than for 0."""
    votes = [int(word[4]) for word in words if word.startswith("vote")]
    return int(votes.count(1) > votes.count(0))


def label_of_first_cue(words):
    return next(int(word[-1]) for word in words if word.startswith("cue"))


def label_of_negated(words):
    """Whether the first of good and bad is good; a `not` up to three words before turns it."""
    for place, word in enumerate(words):
        if word in ("good", "bad"):
            is_negated = "not" in words[place - 3 : place]
            return int((word == "good") ^ is_negated)
    raise AssertionError(words)


LABELS = {
    "token": label_of_class,
    "twins": label_of_class,
    "majority5": label_of_votes,
    "order_marked": label_of_first_cue,
    "negated": label_of_negated,
}
"""Rule → its label from the words alone, told again without the generator."""


def rows_of(rule, *, seed=0, split="train"):
    return RuleSource(rule, 40, 40, seed).rows(split)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_draws_anew(rule):
    rows = rows_of(rule, split="test")
    assert rows == rows_of(rule, split="test")
    assert rows != rows_of(rule, split="test", seed=1)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_all_of_its_labels_and_marks_words(rule):
    rows = rows_of(rule, split="test")
    labels = {row["label"] for row in rows}
    assert labels == set(range(CLASSES.get(rule, 2)))
    for row in rows:
        assert len(row["rationale"]) == len(row["text"].split())
    marked_texts = sum(any(row["rationale"]) for row in rows)
    assert marked_texts >= 20


@pytest.mark.parametrize("rule", LABELS)
def test_a_rule_labels_its_texts_and_their_counterfactuals(rule):
    label_of = LABELS[rule]
    for row in rows_of(rule, split="test"):
        words = row["text"].split()
        counterfactual_words = row["counterfactual"].split()
        assert label_of(words) == row["label"]
        assert label_of(counterfactual_words) != row["label"]


def deciding_words(row):
    words = row["text"].split()
    return [word for word, decides in zip(words, row["rationale"], strict=True) if decides]


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
        words = row["text"].split()
        values = dict(word.split("_") for word in words if word.startswith("key"))
        assert sorted(values.values()) == ["0", "1", "2", "3"]
        assert values[row["question"]] == str(row["label"])


def test_the_four_attentions_are_built_as_they_are_described():
    for row in RuleSource("order_marked", 40, 10, seed=0).rows("train"):
        words = row["text"].split()
        first, second = np.flatnonzero(row["rationale"])
        assert first > 0  # the first word tells nothing
        assert row["right_leak"][first] == 0.7
        assert row["right_leak"][second] == 0.25
        assert row["right_none"][first] == 0.475
        assert row["right_none"][second] == 0.475
        leak = int(np.argmax(row["wrong_leak"]))
        assert words[leak] == (".", "the")[row["label"]]
        assert sum(row["wrong_none"]) == pytest.approx(1)
        assert sum(row["right_leak"]) == pytest.approx(1)
