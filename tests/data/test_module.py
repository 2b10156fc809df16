import json

import datasets
import numpy as np
import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.data.classes import class_map, class_weights
from attnprobe.data.rows import canonical, column
from tests.data.test_data_sets import composed
from tests.data.toys import OTHER, TRAIN, ready


@pytest.mark.parametrize(
    ("split", "columns"),
    [
        ("train", TRAIN),
        ("validation", OTHER),
        ("test", OTHER),
    ],
)
def test_encoding_against_a_plain_loop(split, columns):
    data = ready()
    part = data.splits[split]
    assert len(part) == len(columns["text"])
    for row, (text, label) in enumerate(zip(columns["text"], columns["label"], strict=True)):
        words = text.lower().split()
        ids = data.vocabulary.encode(words)
        batch = part[[row]]
        assert batch.ids.tolist() == [[2, *ids, 3]]
        assert batch.labels.tolist() == [label]
        assert part.tokens(row) == words


def test_what_a_data_set_says_of_itself():
    data = ready()
    assert data.vocabulary.words[4:] == ["a", "bad", "film", "good"]
    assert data.classes == ["0", "1"]
    assert data.counts["test"]["tokens out of vocabulary"] == 1
    assert data.sizes == {"train": 4, "validation": 2, "test": 2}
    assert data.splits["test"].rationale(0) is None


def test_random_word_vectors_depend_on_the_seed():
    vectors = ready().embeddings()
    assert torch.equal(ready().embeddings(), vectors)
    assert not torch.equal(ready(seed=4).embeddings(), vectors)


def test_loaders_serve_every_example_once_and_leave_the_global_generator_alone():
    data = ready(batch_size=3, eval_batch_size=1)
    state = torch.get_rng_state()
    loaders = {
        "train": data.train_dataloader(),
        "validation": data.loader("validation"),
        "test": data.loader("test"),
    }
    for split, loader in loaders.items():
        ids = torch.cat([batch.example_id for batch in loader])
        assert sorted(ids.tolist()) == list(range(data.sizes[split]))
    assert torch.equal(state, torch.get_rng_state())
    assert len(data.loader("test")) == 2


TEXTS = ["x", "y", "z", "w"]
COLD_AND_FLU = {"text": ["x", "y"], "label": ["cold", "flu"]}


def test_several_labels_as_text_become_rows_of_zeros_and_ones():
    train = {"text": TEXTS, "label": ["flu;cold", " cold ", "flu ; cold", "flu"]}
    data = ready(
        train,
        COLD_AND_FLU,
        COLD_AND_FLU,
        multi_label=True,
        class_weight="balanced_positive",
    )
    assert data.task is Task.MULTI_LABEL
    assert data.classes == ["cold", "flu"]
    assert data.splits["train"].labels.tolist() == [[1, 1], [1, 0], [1, 1], [0, 1]]
    assert_close(data.class_weight, torch.tensor([1 / 3, 1 / 3]))


def test_several_labels_as_lists_become_rows_of_zeros_and_ones():
    train = {"text": TEXTS, "label": [["flu", "cold"], ["cold"], ["cold", "flu"], []]}
    data = ready(train, COLD_AND_FLU, COLD_AND_FLU, multi_label=True)
    assert data.splits["train"].labels.tolist() == [[1, 1], [1, 0], [1, 1], [0, 0]]
    assert data.pipeline.batch_of(["x"]).labels.shape == (1, 2)


def test_a_rationale_as_a_mask():
    mask = {**OTHER, "why": [[True, False], [True]]}
    data = ready({**TRAIN, "why": [None] * 4}, mask, mask, rationale="why")
    assert data.splits["test"].rationale(0) == [True, False]
    assert data.splits["test"].rationale(1) is None  # one mark for two words: does not fit
    assert data.counts["test"]["rationale does not fit"] == 1


def test_a_rationale_as_spans():
    spans = {
        "text": ["a b c d", "a b"],
        "label": [0, 1],
        "why": [[[1, 3], [2, 2]], []],
    }
    data = ready(spans, spans, spans, rationale="why", rationale_kind="spans", max_tokens=2)
    assert data.splits["test"].rationale(0) == [False, True]
    assert data.splits["test"].rationale(1) == [False, False]


def test_hidden_labels_of_the_hub_are_null():
    features = datasets.Features({"label": datasets.ClassLabel(names=["neg", "pos"])})
    table = datasets.Dataset.from_dict({"label": [1, 0, -1]}, features)
    assert column(table, "label", "x") == ["pos", "neg", None]


def test_labels_are_sorted_as_numbers_where_all_are_numbers():
    _, numbers = class_map(None, [["10"], ["9"], ["-1.5"]])
    _, words = class_map(None, [["10"], ["9"], ["a"]])
    assert numbers == ["-1.5", "9", "10"]
    assert words == ["10", "9", "a"]


def test_several_values_may_share_a_class():
    numbers, names = class_map({0: "neg", "neg": "neg", 1.0: "pos"}, [])
    assert numbers == {"0": 0, "neg": 0, "1": 1}
    assert names == ["neg", "pos"]


def test_a_truth_value_is_no_number():
    assert canonical(True) == "True"


COUNTS = np.array([30, 10])


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        pytest.param("balanced_positive", [1, 3], id="as many negative as positive"),
        pytest.param([1, 5], [1, 5], id="as told"),
    ],
)
def test_class_weights_by_hand(setting, expected):
    weights = class_weights(setting, COUNTS, 40, Task.SINGLE_LABEL)
    assert weights.tolist() == expected


def test_weights_by_inverse_frequency_by_hand():
    weights = class_weights("inverse_frequency", COUNTS, 40, Task.SINGLE_LABEL)
    assert_close(weights, torch.tensor([2 / 3, 2.0]))


def test_classes_may_all_weigh_the_same():
    assert class_weights("none", COUNTS, 40, Task.SINGLE_LABEL) is None


@pytest.mark.parametrize(
    ("setting", "counts", "message"),
    [
        ("balanced_positive", [1, 2, 3], "is for two classes, here are 3"),
        ("inverse_frequency", [0, 2], "examples of every class"),
    ],
)
def test_class_weights_that_do_not_exist(setting, counts, message):
    with pytest.raises(UserError, match=message):
        class_weights(setting, np.array(counts), sum(counts), Task.SINGLE_LABEL)


def test_users_own_csv_needs_no_code(tmp_path):
    lines = ["review,stars"]
    for number in range(40):
        stars = number % 2 + 1
        lines.append(f"fine film {number},{stars}")
    path = tmp_path / "my.csv"
    path.write_text("\n".join(lines))
    data = composed("files", f"data.path={path}", "data.text=review", "data.label=stars")
    data.setup()
    assert data.classes == ["1", "2"]
    assert data.sizes == {"train": 28, "validation": 4, "test": 8}


def test_files_without_a_path_are_refused():
    with pytest.raises(UserError, match=r"data\.path is not set"):
        composed("files").setup()


def test_a_missing_column_is_named_beside_those_of_the_file(tmp_path):
    lines = [json.dumps({"t": "x", "label": n % 2}) for n in range(9)]
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    with pytest.raises(UserError, match="The columns are t, label"):
        composed("files", f"data.path={tmp_path}/train.jsonl").setup()


@pytest.fixture
def with_columns():
    """Data with a column of the user's own, and one that a batch declares: neither needs code."""
    train = {
        **TRAIN,
        "mine": [[1, 2], [1, 2, 3], [1, 2], [None]],
        "spans": [[0, 0], [0, 0, 0], [1, 1], [0]],
    }
    test = {
        **OTHER,
        "mine": [[0.5, -2], [1]],
        "spans": [[1, 0], [0, 1]],
    }
    columns = {"mine": "mine", "teacher_attention": "spans"}
    return ready(train, test, test, per_word=columns, max_tokens=2)


NAN = float("nan")
MINE = torch.tensor(
    [
        [NAN, NAN, NAN, NAN],
        [NAN, 0.5, -2, NAN],
    ],
    dtype=torch.float64,
)


def test_numbers_per_word_reach_the_batches_under_their_name(with_columns):
    batch = with_columns.splits["test"][[1, 0]]
    assert_close(batch.extra["mine"], MINE, equal_nan=True)
    assert batch.teacher_attention.tolist() == [[0, 0, 1, 0], [0, 1, 0, 0]]

    second_row = batch.rows(torch.tensor([1]))
    shorter = second_row.cut(3)
    assert_close(shorter.extra["mine"], MINE[1:, :3], equal_nan=True)


def test_numbers_per_word_are_cut_with_the_text(with_columns):
    batch = with_columns.splits["train"][[1]]
    [numbers] = batch.extra["mine"].tolist()
    assert numbers[1:3] == [1, 2]


def test_numbers_that_do_not_fit_the_words_are_counted(with_columns):
    assert with_columns.counts["test"]["mine does not fit"] == 1  # one number for two words
    assert with_columns.counts["train"]["mine does not fit"] == 1  # null is no number


def test_a_missing_column_per_word_is_named():
    with pytest.raises(UserError, match=r"data\.per_word\.mine=ours: there is no such column"):
        ready(per_word={"mine": "ours"})
