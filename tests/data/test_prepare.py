import numpy as np
import pytest

from attnprobe.core.errors import UserError
from attnprobe.data.reader import Reader
from tests.data.toys import TRAIN, ready

FILTERED = {"filters": {"kind": "x"}, "min_length": 1, "max_length": 5}
SIX_ROWS = {
    "text": ["one more", None, "  ", "two words", "three words here", "four words are too many"],
    "label": ["a", "a", "a", "b", None, "a"],
    "kind": ["x", "x", "x", "x", "x", "x"],
}
FOUR_ROWS = {
    "text": ["w w", "w", "w w w", "w w"],
    "label": ["a", "b", "a", "a"],
    "kind": ["x", "x", "y", "x"],
}


def test_every_row_that_is_left_out_is_counted_and_example_ids_stay():
    data = ready(SIX_ROWS, FOUR_ROWS, FOUR_ROWS, **FILTERED)
    assert data.counts["train"]["dropped"] == {
        "filter kind": 0,
        "text is null": 1,
        "label is null": 1,
        "text is empty": 1,
        "label is unseen": 0,
        "too short": 0,
        "too long": 1,
    }
    assert data.splits["train"].example_id.tolist() == [0, 3]
    assert data.splits["test"].example_id.tolist() == [0, 3]
    assert data.counts["test"]["dropped"]["filter kind"] == 1
    assert data.counts["test"]["kept"] == 2


def test_a_class_that_the_length_limits_leave_alone_is_refused():
    train = SIX_ROWS | {"text": ["one", *SIX_ROWS["text"][1:]]}
    with pytest.raises(UserError, match="one class only"):
        ready(train, FOUR_ROWS, FOUR_ROWS, **FILTERED)


@pytest.mark.parametrize(
    ("limits", "lengths"),
    [
        ({"min_length": 1, "max_length": 5}, [2, 2, 3, 4]),
        ({"min_length": 2, "drop_extremes": True}, [3, 4]),
    ],
)
def test_length_limits_are_strict_and_extremes_may_go(limits, lengths):
    texts = ["w " * length for length in (1, 2, 2, 3, 4, 5, 5)]
    part = {"text": texts, "label": [0, 1, 0, 1, 0, 1, 0]}
    test = ready(part, part, part, **limits).splits["test"]
    assert test.words.lengths.tolist() == lengths


HUNDRED = {
    "text": [f"word{n % 7} x" for n in range(100)],
    "label": ["a"] * 80 + ["b"] * 20,
}
SHARES = {"test_share": 0.2, "validation_share": 0.25}


def test_missing_splits_have_the_same_share_of_every_class():
    data = ready(HUNDRED, None, None, **SHARES)
    assert data.counts["train"]["per class"] == {"a": 48, "b": 12}
    assert data.counts["validation"]["per class"] == {"a": 16, "b": 4}
    assert data.counts["test"]["per class"] == {"a": 16, "b": 4}
    assert set(data.counts) == {"train", "validation", "test"}


def test_missing_splits_hold_every_row_once_under_its_number():
    splits = ready(HUNDRED, None, None, **SHARES).splits
    ids = np.concatenate([part.example_id for part in splits.values()])
    assert sorted(ids) == list(range(100))
    first = int(splits["test"].example_id[0])
    assert splits["test"].tokens(first) == HUNDRED["text"][first].split()


def test_missing_splits_depend_on_the_split_seed_alone():
    data = ready(HUNDRED, None, None, **SHARES)
    assert ready(HUNDRED, None, None, **SHARES, seed=5).fingerprint == data.fingerprint
    moved = ready(HUNDRED, None, None, split_seed=1).splits["test"].example_id
    assert moved.tolist() != data.splits["test"].example_id.tolist()


def test_of_many_small_classes_it_is_said_how_small_they_are():
    """Of two rows of each class a tenth is none, however many rows there are."""
    rows = {"text": [f"text {row}" for row in range(60)], "label": [row // 2 for row in range(60)]}
    with pytest.raises(UserError, match=r"60 rows are too few .* of each of 30 classes.* 2 rows"):
        ready(rows, None, None, test_share=0.1)


def test_too_few_rows_to_draw_a_split_from_are_refused():
    with pytest.raises(
        UserError, match=r"4 rows are too few to draw a test split from \(data.test_share=0.1\)"
    ):
        ready(TRAIN, None, None, test_share=0.1)


def test_every_row_is_a_test_row_where_nothing_is_trained():
    data = ready(HUNDRED, None, None, test_share=1.0)
    assert data.sizes == {"test": 100}
    assert data.splits["test"].example_id.tolist() == list(range(100))
    assert data.counts["test"]["loaded"] == 100
    from_a_test_file = ready(None, None, HUNDRED, test_share=1.0)
    assert from_a_test_file.fingerprint == data.fingerprint


def test_a_sample_of_the_test_rows_may_be_drawn_where_nothing_is_trained():
    data = ready(HUNDRED, None, None, test_share=1.0)
    sample = ready(HUNDRED, None, None, test_share=1.0, most={"train": 3, "test": 30})
    assert sample.sizes == {"test": 30}
    assert sample.counts["test"]["dropped"]["over data.most"] == 70
    assert sample.fingerprint != data.fingerprint


def test_classes_without_rows_may_be_named_where_nothing_is_trained():
    rows = {"text": ["x y", "y z", "z x"], "label": ["b", "c", "b"]}
    data = ready(rows, None, None, test_share=1.0, labels=["a", "b", "c"])
    assert data.classes == ["a", "b", "c"]


def test_a_test_split_of_the_source_is_tested_and_the_rows_beside_it_stay():
    test = {"text": ["y y", "x"], "label": ["c", "a"]}
    data = ready(HUNDRED, None, test, test_share=1.0)
    assert data.sizes == {"train": 100, "test": 2}
    # the classes of all rows: what the model knows is not learnt here
    assert data.classes == ["a", "b", "c"]


def test_a_source_without_training_rows_is_refused():
    with pytest.raises(UserError, match=r"no training file among the splits test: .*training=none"):
        ready(None, None, HUNDRED)


def test_a_source_without_test_rows_is_refused_where_nothing_is_trained():
    with pytest.raises(UserError, match="no training file"):
        ready(None, HUNDRED, None, test_share=1.0)


def test_pool_puts_all_splits_together():
    part = {
        "text": ["x y"] * 10,
        "label": ["a", "b"] * 5,
        "title": [None] * 10,
    }
    test = {**part, "title": [3] * 10}
    data = ready(part, part, test, pool=True, **SHARES)
    assert data.sizes == {"train": 18, "validation": 6, "test": 6}
    assert data.counts["train"]["loaded"] == 30


TWO_CLASSES = {"text": ["x", "y"], "label": [2, 1]}
WITH_UNSEEN = {"text": ["x", "y", "z"], "label": ["2", "7", "1"]}


def test_rows_of_unseen_labels_are_dropped_and_counted():
    data = ready(TWO_CLASSES, TWO_CLASSES, WITH_UNSEEN, unseen_labels="drop")
    assert data.counts["test"]["dropped"]["label is unseen"] == 1
    assert data.classes == ["1", "2"]


@pytest.mark.parametrize(
    ("train", "test", "settings", "message"),
    [
        (
            TWO_CLASSES,
            WITH_UNSEEN,
            {},
            r"test split was not seen in training: 7 \(1 ×\).*data\.unseen_labels=drop",
        ),
        (
            TWO_CLASSES,
            {"text": ["x"], "label": [9]},
            {"unseen_labels": "drop"},
            "every label of the test split was not seen",
        ),
        (
            {"text": ["x", "y", "z"], "label": [1, 2, 3]},
            TWO_CLASSES,
            {"labels": [1, 2]},
            r"train split is not in data\.labels: 3",
        ),
    ],
)
def test_unseen_labels_are_named(train, test, settings, message):
    with pytest.raises(UserError, match=message):
        ready(train, TWO_CLASSES, test, **settings)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"text": "review"},
            r"data\.text=review: there is no such column. The columns are text, label",
        ),
        ({"rationale": "why"}, r"data\.rationale=why: there is no such column"),
        ({"filters": {"kind": "x"}}, r"data\.filters column=kind: there is no such column"),
        (
            {"filters": {"label": [3, 4]}},
            r"no row of the train split is left after label=\[3, 4\].*1 \(2 ×\)",
        ),
        (
            {"min_length": 9},
            r"no row of the train split has more than data\.min_length=9 tokens; .* have 1 to 3",
        ),
        (
            {"max_length": 1},
            r"no row of the train split has fewer than data\.max_length=1 tokens; .* have 1 to 3",
        ),
        (
            {"min_length": 1, "max_length": 2},
            r"has more than data\.min_length=1 and fewer than data\.max_length=2 tokens",
        ),
        ({"min_df": 9}, r"data\.min_df=9 leaves no word"),
        ({"train": {"text": ["a", "b"], "label": [1, 1]}}, r"fewer than 2 classes .*\(1: 2\)"),
        (
            {"train": {"text": [" ", None], "label": [1, 0]}},
            r"can be used \(text is null: 1, text is empty: 1\)",
        ),
        (
            {"train": {"text": [["a"], ["b"]], "label": [0, 1]}},
            r"data\.text=text: expected text, row 0 of train",
        ),
        ({"labels": {0: "bad", 1: "good", 2: "fine"}}, r"no training row has the class fine"),
        (
            {"labels": ["neg", "pos"], "test_share": 1},
            r"the rows have no class among data\.labels \(neg, pos\)",
        ),
        ({"labels": ["neg", "pos"]}, r"fewer than 2 classes among data\.labels \(neg, pos\)"),
        ({"test_share": 20}, r"data\.test_share=20: expected .* at most 1"),
        ({"class_weight": [1.0]}, r"expected 2 numbers above 0"),
        ({"vectors": "no.vec"}, r"no\.vec does not exist"),
    ],
)
def test_what_a_user_can_get_wrong(change, message):
    with pytest.raises(UserError, match=message):
        ready(**change).embeddings()


FORTY = {"text": [f"word{n} film" for n in range(40)], "label": [0, 1] * 20}


def sample(**settings):
    data = ready(FORTY, most={"train": 10}, **settings)
    return data.splits["train"].example_id.tolist()


def test_rows_are_drawn_at_random_and_counted():
    data = ready(FORTY, most={"train": 10})
    rows = data.splits["train"].example_id.tolist()
    assert len(rows) == 10
    assert rows == sorted(rows)
    assert rows != list(range(10))
    assert data.counts["train"]["dropped"]["over data.most"] == 30
    assert data.sizes["test"] == 2


def test_no_text_is_tokenised_of_a_row_that_was_not_drawn(monkeypatch):
    texts = []
    example = Reader.example
    monkeypatch.setattr(
        Reader, "example", lambda self, cells, *rest: texts.append(0) or example(self, cells, *rest)
    )
    data = ready(FORTY, most={"train": 10})
    assert len(texts) == sum(data.sizes.values())


def test_the_sample_is_one_of_the_rows_that_can_be_used():
    rows = FORTY | {"label": [0, 1, 2, 1] * 10}
    settings = {"labels": [0, 1], "unseen_labels": "drop"}
    everything = ready(rows, FORTY, FORTY, **settings)
    some = ready(rows, FORTY, FORTY, most={"train": 7}, **settings)
    numbers = some.splits["train"].example_id.tolist()
    assert len(numbers) == 7
    assert some.counts["train"]["dropped"]["label is unseen"] == 10
    assert some.counts["train"]["dropped"]["over data.most"] == 23
    for number in numbers:
        assert some.splits["train"].tokens(number) == everything.splits["train"].tokens(number)


def test_texts_that_cleaning_leaves_empty_are_counted_and_an_empty_split_is_refused():
    rows = {"text": ["<b>", "x y", "y z", "z x"], "label": ["a", "b", "a", "b"]}
    data = ready(rows, rows, rows, clean=["html"])
    assert data.counts["train"]["dropped"]["text is empty"] == 1
    assert data.splits["train"].example_id.tolist() == [1, 2, 3]
    with pytest.raises(UserError, match=r"no row of the test split can be used \(text is empty: 1"):
        ready(rows, rows, {"text": ["<b>"], "label": ["a"]}, clean=["html"])


def test_the_vocabulary_comes_from_the_rows_that_were_drawn():
    words = ready(FORTY, most={"train": 10}).vocabulary.words
    assert sum(word.startswith("word") for word in words) == 10


def test_the_rows_that_are_drawn_depend_on_the_split_seed_alone():
    assert sample(seed=5) == sample()
    assert sample(split_seed=1) != sample()


def test_a_split_that_is_small_enough_stays_whole():
    assert ready(FORTY, most={"train": 100}).sizes["train"] == 40


def test_a_sample_of_an_unknown_split_is_refused():
    with pytest.raises(
        UserError, match=r"data\.most=.*tests.*expected .*train, validation or test"
    ):
        ready(most={"tests": 3})


PAIRS = {
    "text": [f"w{n} x" for n in range(60)],
    "label": ["a", "b"] * 30,
    "pair": [n // 2 for n in range(60)],
}


def test_rows_of_one_group_stay_in_one_split():
    data = ready(PAIRS, None, None, group="pair", test_share=0.3, validation_share=0.25)
    pairs = {split: set(part.example_id // 2) for split, part in data.splits.items()}
    assert len(pairs["test"]) == 9
    assert sum(map(len, pairs.values())) == 30
    for split, part in data.splits.items():
        assert len(part) == 2 * len(pairs[split])


def test_a_missing_column_of_groups_is_named():
    with pytest.raises(
        UserError, match=r"data\.group=family: there is no such column.*data\.group=null"
    ):
        ready(PAIRS, None, None, group="family")
