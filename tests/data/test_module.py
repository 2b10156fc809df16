import json

import datasets
import numpy as np
import pytest
import torch

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.data.classes import class_map, class_weights
from attnprobe.data.rows import canonical, column
from tests.data.toys import OTHER, TRAIN, ready
from tests.data.test_data_sets import composed


def test_encoding_against_a_plain_loop():
    data = ready()
    assert data.vocabulary.words[4:] == ["a", "bad", "film", "good"]
    assert data.classes == ["0", "1"]
    for split, columns in {"train": TRAIN, "validation": OTHER, "test": OTHER}.items():
        for row, text in enumerate(columns["text"]):
            batch = data.splits[split][[row]]
            assert batch.ids.tolist() == [[2, *data.vocabulary.encode(text.lower().split()), 3]]
            assert batch.labels.tolist() == [columns["label"][row]]
            assert data.splits[split].tokens(row) == text.lower().split()
    assert data.counts["test"]["tokens out of vocabulary"] == 1
    assert data.sizes == {"train": 4, "validation": 2, "test": 2}
    assert data.splits["test"].rationale(0) is None
    assert torch.equal(data.embeddings(), ready().embeddings())
    assert not torch.equal(data.embeddings(), ready(seed=4).embeddings())


def test_loaders_serve_every_example_once_and_leave_the_global_generator_alone():
    data = ready(batch_size=3, eval_batch_size=1)
    state = torch.get_rng_state()
    for loader in (data.train_dataloader(), data.loader("validation"), data.loader("test")):
        ids = [number for batch in loader for number in batch.example_id.tolist()]
        assert sorted(ids) == list(range(len(ids)))
    assert torch.equal(state, torch.get_rng_state())
    assert len(data.loader("test")) == 2


def test_several_labels_become_rows_of_zeros_and_ones():
    train = {"text": ["x", "y", "z", "w"], "label": ["flu;cold", " cold ", "flu ; cold", "flu"]}
    other = {"text": ["x", "y"], "label": ["cold", "flu"]}
    data = ready(train, other, other, multi_label=True, class_weight="balanced_positive")
    assert data.task is Task.MULTI_LABEL
    assert data.classes == ["cold", "flu"]
    assert data.splits["train"].labels.tolist() == [[1, 1], [1, 0], [1, 1], [0, 1]]
    torch.testing.assert_close(data.class_weight, torch.tensor([1 / 3, 1 / 3]))
    lists = {"text": train["text"], "label": [["flu", "cold"], ["cold"], ["cold", "flu"], []]}
    data = ready(lists, other, other, multi_label=True)
    assert data.splits["train"].labels.tolist() == [[1, 1], [1, 0], [1, 1], [0, 0]]
    assert data.pipeline.batch_of(["x"]).labels.shape == (1, 2)


def test_rationale_as_mask_and_as_spans():
    mask = {**OTHER, "why": [[True, False], [True]]}
    data = ready(test=mask, train={**TRAIN, "why": [None] * 4}, validation=mask, rationale="why")
    assert data.splits["test"].rationale(0) == [True, False]
    assert data.splits["test"].rationale(1) is None  # one mark for two words: does not fit
    assert data.counts["test"]["rationale does not fit"] == 1
    spans = {"text": ["a b c d", "a b"], "label": [0, 1], "why": [[[1, 3], [2, 2]], []]}
    data = ready(spans, spans, spans, rationale="why", rationale_kind="spans", max_tokens=2)
    assert data.splits["test"].rationale(0) == [False, True]
    assert data.splits["test"].rationale(1) == [False, False]


def test_labels_are_numbers_before_they_are_text_and_hidden_labels_of_the_hub_null():
    features = datasets.Features({"label": datasets.ClassLabel(names=["neg", "pos"])})
    assert column(datasets.Dataset.from_dict({"label": [1, 0, -1]}, features), "label", "x") == [
        "pos",
        "neg",
        None,
    ]
    assert class_map(None, [["10"], ["9"], ["-1.5"]])[1] == ["-1.5", "9", "10"]
    assert class_map(None, [["10"], ["9"], ["a"]])[1] == ["10", "9", "a"]
    assert class_map({0: "neg", "neg": "neg", 1.0: "pos"}, []) == (
        {"0": 0, "neg": 0, "1": 1},
        ["neg", "pos"],
    )
    assert canonical(True) == "True"


def test_class_weights_by_hand():
    counts = np.array([30, 10])
    single = Task.SINGLE_LABEL
    assert class_weights("none", counts, 40, single) is None
    assert class_weights("balanced_positive", counts, 40, single).tolist() == [1, 3]
    torch.testing.assert_close(
        class_weights("inverse_frequency", counts, 40, single), torch.tensor([2 / 3, 2.0])
    )
    assert class_weights([1, 5], counts, 40, single).tolist() == [1, 5]
    with pytest.raises(UserError, match="is for two classes, here are 3"):
        class_weights("balanced_positive", np.array([1, 2, 3]), 6, single)
    with pytest.raises(UserError, match="examples of every class"):
        class_weights("inverse_frequency", np.array([0, 2]), 2, single)


def test_users_own_csv_needs_no_code(tmp_path):
    lines = [f"fine film {n},{n % 2 + 1}" for n in range(40)]
    (tmp_path / "my.csv").write_text("\n".join(["review,stars", *lines]))
    data = composed("files", f"data.path={tmp_path}/my.csv", "data.text=review", "data.label=stars")
    data.setup()
    assert data.classes == ["1", "2"]
    assert data.sizes == {"train": 28, "validation": 4, "test": 8}
    with pytest.raises(UserError, match=r"data\.path is not set"):
        composed("files").setup()
    (tmp_path / "train.jsonl").write_text(
        "\n".join(json.dumps({"t": "x", "label": n % 2}) for n in range(9))
    )
    with pytest.raises(UserError, match="The columns are t, label"):
        composed("files", f"data.path={tmp_path}/train.jsonl").setup()


def test_numbers_per_word_reach_the_batches_under_their_name():
    """A column of the user's own, and one that a batch declares: neither costs an edit of the
    data's code."""
    scores = {**OTHER, "mine": [[0.5, -2], [1]], "spans": [[1, 0], [0, 1]]}
    data = ready(
        {
            **TRAIN,
            "mine": [[1, 2], [1, 2, 3], [1, 2], [None]],
            "spans": [[0, 0], [0, 0, 0], [1, 1], [0]],
        },
        scores,
        scores,
        per_word={"mine": "mine", "teacher_attention": "spans"},
        max_tokens=2,
    )
    batch = data.splits["test"][[1, 0]]
    nan = float("nan")
    expected = torch.tensor([[nan, nan, nan, nan], [nan, 0.5, -2, nan]], dtype=torch.float64)
    torch.testing.assert_close(batch.extra["mine"], expected, equal_nan=True)
    assert batch.teacher_attention.tolist() == [[0, 0, 1, 0], [0, 1, 0, 0]]
    assert data.counts["test"]["mine does not fit"] == 1  # one number for two words
    assert data.counts["train"]["mine does not fit"] == 1  # null is no number
    assert data.splits["train"][[1]].extra["mine"].tolist()[0][1:3] == [1, 2]  # cut with the text
    cut = batch.rows(torch.tensor([1])).cut(3)
    torch.testing.assert_close(cut.extra["mine"], expected[1:, :3], equal_nan=True)
    with pytest.raises(UserError, match=r"data\.per_word\.mine=ours: there is no such column"):
        ready(per_word={"mine": "ours"})
