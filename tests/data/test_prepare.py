import numpy as np
import pytest

from attnprobe.core.errors import UserError
from tests.data.toys import TRAIN, ready


def test_every_row_that_is_left_out_is_counted_and_example_ids_stay():
    train = {
        "text": ["one", None, "  ", "two words", "three words here", "four words are too many"],
        "label": ["a", "a", "a", "b", None, "a"],
        "kind": ["x", "x", "x", "x", "x", "x"],
    }
    other = {"text": ["w w", "w", "w w w"], "label": ["a", "b", "a"], "kind": ["x", "x", "y"]}
    other = {name: values + values[:1] for name, values in other.items()}
    with pytest.raises(UserError, match="one class only"):
        ready(train, other, other, filters={"kind": "x"}, min_length=1, max_length=5)
    train["text"][0] = "one more"
    data = ready(train, other, other, filters={"kind": "x"}, min_length=1, max_length=5)
    dropped = data.counts["train"]["dropped"]
    assert dropped == {
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


def test_length_limits_are_strict_and_extremes_may_go():
    texts = ["w " * length for length in (1, 2, 2, 3, 4, 5, 5)]
    part = {"text": texts, "label": [0, 1, 0, 1, 0, 1, 0]}
    kept = ready(part, part, part, min_length=1, max_length=5).splits["test"].words.lengths
    assert kept.tolist() == [2, 2, 3, 4]
    kept = ready(part, part, part, min_length=2, drop_extremes=True).splits["test"].words.lengths
    assert kept.tolist() == [3, 4]


def test_missing_splits_are_drawn_stratified_and_apart_from_the_seed():
    train = {"text": [f"word{n % 7} x" for n in range(100)], "label": ["a"] * 80 + ["b"] * 20}
    data = ready(train, None, None, test_share=0.2, validation_share=0.25)
    counts = {split: data.counts[split]["per class"] for split in data.counts}
    assert counts == {
        "train": {"a": 48, "b": 12},
        "validation": {"a": 16, "b": 4},
        "test": {"a": 16, "b": 4},
    }
    ids = [data.splits[split].example_id for split in ("train", "validation", "test")]
    assert sorted(np.concatenate(ids)) == list(range(100))
    assert data.splits["test"].tokens(int(ids[2][0])) == train["text"][ids[2][0]].split()
    assert (
        ready(train, None, None, test_share=0.2, validation_share=0.25, seed=5).fingerprint
        == data.fingerprint
    )
    moved = ready(train, None, None, split_seed=1).splits["test"].example_id
    assert moved.tolist() != ids[2].tolist()
    with pytest.raises(
        UserError, match=r"4 rows are too few to draw a test split from \(data.test_share=0.1\)"
    ):
        ready(TRAIN, None, None, test_share=0.1)


def test_every_row_is_a_test_row_where_nothing_is_trained():
    train = {"text": [f"word{n % 7} x" for n in range(100)], "label": ["a"] * 80 + ["b"] * 20}
    whole = ready(train, None, None, test_share=1.0)
    assert whole.sizes == {"test": 100}
    assert whole.splits["test"].example_id.tolist() == list(range(100))
    assert whole.counts["test"]["loaded"] == 100
    assert (
        ready(None, None, train, test_share=1.0).fingerprint == whole.fingerprint
    )  # a file called test.csv
    sample = ready(train, None, None, test_share=1.0, most={"train": 3, "test": 30})
    assert sample.sizes == {"test": 30}
    assert sample.counts["test"]["dropped"]["over data.most"] == 70
    assert sample.fingerprint != whole.fingerprint
    few = {"text": ["x y", "y z", "z x"], "label": ["b", "c", "b"]}
    assert ready(few, None, None, test_share=1.0, labels=["a", "b", "c"]).classes == ["a", "b", "c"]
    # a test split of the source's own is what is tested; the rows beside it stay what they are
    beside = ready(train, None, {"text": ["y y", "x"], "label": ["c", "a"]}, test_share=1.0)
    assert beside.sizes == {"train": 100, "test": 2}
    assert beside.classes == [
        "a",
        "b",
        "c",
    ]  # of all of them: what the model knows is not learnt here
    with pytest.raises(UserError, match=r"no training file among the splits test: .*training=none"):
        ready(None, None, train)
    with pytest.raises(UserError, match="no training file"):
        ready(None, train, None, test_share=1.0)


def test_pool_puts_all_splits_together():
    part = {"text": ["x y"] * 10, "label": ["a", "b"] * 5, "title": [None] * 10}
    data = ready(
        part, part, {**part, "title": [3] * 10}, pool=True, test_share=0.2, validation_share=0.25
    )
    assert data.sizes == {"train": 18, "validation": 6, "test": 6}
    assert data.counts["train"]["loaded"] == 30


def test_unseen_labels():
    test = {"text": ["x", "y", "z"], "label": ["2", "7", "1"]}
    train = {"text": ["x", "y"], "label": [2, 1]}
    with pytest.raises(
        UserError, match=r"test split was not seen in training: 7 \(1 ×\).*data\.unseen_labels=drop"
    ):
        ready(train, train, test)
    data = ready(train, train, test, unseen_labels="drop")
    assert data.counts["test"]["dropped"]["label is unseen"] == 1
    assert data.classes == ["1", "2"]
    with pytest.raises(UserError, match="every label of the test split was not seen"):
        ready(train, train, {"text": ["x"], "label": [9]}, unseen_labels="drop")
    with pytest.raises(UserError, match=r"train split is not in data\.labels: 3"):
        ready({"text": ["x", "y", "z"], "label": [1, 2, 3]}, train, train, labels=[1, 2])


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
        ({"min_length": 9}, r"no row .* more than data\.min_length=9 .*the texts have 1 to 3"),
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
        ({"labels": ["neg", "pos"]}, r"fewer than 2 classes among data\.labels \(neg, pos\)"),
        ({"test_share": 20}, r"data\.test_share=20: expected .* at most 1"),
        ({"class_weight": [1.0]}, r"expected 2 numbers above 0"),
        ({"vectors": "no.vec"}, r"no\.vec does not exist"),
    ],
)
def test_what_a_user_can_get_wrong(change, message):
    with pytest.raises(UserError, match=message):
        ready(**change).embeddings()


def test_rows_are_drawn_at_random_and_counted():
    train = {"text": [f"word{n} film" for n in range(40)], "label": [0, 1] * 20}
    data = ready(train, most={"train": 10})
    kept = data.splits["train"].example_id.tolist()
    assert len(kept) == 10
    assert kept == sorted(kept)
    assert kept != list(range(10))
    assert data.counts["train"]["dropped"]["over data.most"] == 30
    assert data.sizes["test"] == 2
    assert (
        len([word for word in data.vocabulary.words if word.startswith("word")]) == 10
    )  # of the kept rows alone
    assert ready(train, most={"train": 10}, seed=5).splits["train"].example_id.tolist() == kept
    assert (
        ready(train, most={"train": 10}, split_seed=1).splits["train"].example_id.tolist() != kept
    )
    assert ready(train, most={"train": 100}).sizes["train"] == 40
    with pytest.raises(
        UserError, match=r"data\.most=.*tests.*expected .*train, validation or test"
    ):
        ready(most={"tests": 3})


def test_rows_of_one_group_stay_in_one_split():
    rows = {
        "text": [f"w{n} x" for n in range(60)],
        "label": ["a", "b"] * 30,
        "pair": [n // 2 for n in range(60)],
    }
    data = ready(rows, None, None, group="pair", test_share=0.3, validation_share=0.25)
    pairs = {
        split: {number // 2 for number in part.example_id.tolist()}
        for split, part in data.splits.items()
    }
    assert len(pairs["test"]) == 9
    assert sum(map(len, pairs.values())) == 30
    assert all(len(part) == 2 * len(pairs[split]) for split, part in data.splits.items())
    with pytest.raises(
        UserError, match=r"data\.group=family: there is no such column.*data\.group=null"
    ):
        ready(rows, None, None, group="family")
