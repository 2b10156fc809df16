import json
import os
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from attnprobe.data.ragged import Ragged
from attnprobe.data.teaching import Teacher, TeacherOutputs, check_teacher_outputs, text_number, write_teacher_outputs
from attnprobe.errors import UserError
from tests.runs import seal

MEMORY = Path("/proc/self/statm")
TEXTS = [["a", "film"], ["good"], ["bad", "bad", "film"]]
CLASSES = ["no", "yes"]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "examples" / "train.safetensors"
    weights = [np.array([0.25, 0.75]), np.array([1.0]), np.array([0.5, 0.5, 0.0])]
    probability = np.array([[0.1, 0.9], [0.4, 0.6], [0.7, 0.3]])
    order = [2, 0, 1]  # rows may come in any order
    write_teacher_outputs(
        path, np.array([10, 20, 30])[order], np.array([text_number(words) for words in TEXTS])[order],
        Ragged.of([weights[row] for row in order], np.float32), probability[order], CLASSES,
    )  # fmt: skip
    return path


def test_a_file_gives_back_what_was_written(path):
    outputs = TeacherOutputs(path)
    assert len(outputs) == 3
    assert outputs.example_id.tolist() == [10, 20, 30]
    assert [outputs.attention(row).tolist() for row in range(3)] == [[0.25, 0.75], [1.0], [0.5, 0.5, 0.0]]
    np.testing.assert_allclose(outputs.probability([2, 0]), [[0.7, 0.3], [0.1, 0.9]], rtol=1e-6)
    assert outputs.attention(0).dtype == np.float32


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"offsets": np.array([0, 2, 3, 60])}, "offsets do not divide"),
        ({"offsets": np.array([0, 3, 2, 6])}, "offsets do not divide"),
        ({"offsets": np.array([0, 2, 6])}, r"offsets has the shape \[3\], expected \[4\]"),
        ({"example_id": np.array([10, 30, 20])}, "example_id does not ascend"),
        ({"probability": np.zeros((3, 3), np.float32)}, r"probability has the shape \[3, 3\], expected \[3, 2\]"),
        ({"classes": json.dumps(7)}, "its classes are no list of names"),
        ({"classes": "[" * 100_000}, "recursion"),
    ],
)
def test_parts_that_do_not_belong_together_are_named(path, change, message):
    parts = load_file(path) | {"classes": json.dumps(CLASSES)} | change
    save_file({name: part for name, part in parts.items() if name != "classes"}, path, {"classes": parts["classes"]})
    with pytest.raises(UserError, match=message):
        TeacherOutputs(path)


def refusal(path, classes=CLASSES, ids=(10, 20, 30), texts=TEXTS):
    with pytest.raises(UserError) as error:
        check_teacher_outputs(TeacherOutputs(path), "train", "runs/base", classes, np.array(ids), texts)
    return str(error.value)


def test_the_same_examples_in_the_same_words_fit(path):
    check_teacher_outputs(TeacherOutputs(path), "train", "runs/base", CLASSES, np.array([10, 20, 30]), TEXTS)


def test_the_first_difference_is_named(path):
    assert "its classes are no, yes, here they are bad, good" in refusal(path, classes=["bad", "good"])
    assert "3 examples in train there, 2 here; example 20 is there and not here" in refusal(path, ids=(10, 30))
    assert "example 40 is here and not there" in refusal(path, ids=(10, 20, 30, 40))
    message = refusal(path, texts=[TEXTS[0], ["very", "good"], TEXTS[2]])
    assert "another tokenisation: example 20 of train has 1 tokens there and 2 here" in message
    assert "starts 'very good'" in message
    assert "example 10 of train has 2 tokens there and 2 here, or other words" in refusal(
        path, texts=[["A", "film"], *TEXTS[1:]]
    )


def test_attention_over_sentences_cannot_teach_words(tmp_path):
    path = tmp_path / "train.safetensors"
    write_teacher_outputs(
        path,
        np.array([1]),
        np.array([text_number(TEXTS[2])]),
        Ragged.of([np.array([1.0])], np.float32),
        np.ones((1, 2)),
        CLASSES,
    )
    assert "attends to sentences" in refusal(path, ids=(1,), texts=[TEXTS[2]])


def test_a_missing_unfinished_or_older_teacher_is_refused(path, tmp_path):
    with pytest.raises(UserError, match="does not exist: expected the directory of a finished run"):
        Teacher.open(tmp_path / "nowhere", ["train"])
    with pytest.raises(UserError, match="is not finished"):
        Teacher.open(tmp_path, ["train"])
    seal(tmp_path, run_id="x")
    assert Teacher.open(tmp_path, ["train"]).manifest["run_id"] == "x"
    with pytest.raises(UserError, match=r"has no examples/test\.safetensors: .* on_finished=replace"):
        Teacher.open(tmp_path, ["train", "test"])


def resident():
    """Bytes of this process that are in memory."""
    return int(MEMORY.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_only_what_is_asked_for_is_read(tmp_path):
    """A file far larger than what is fetched must not come into memory."""
    if not MEMORY.exists():
        pytest.skip("needs Linux's /proc to measure memory")
    path, rows = tmp_path / "train.safetensors", 20_000
    weights = [np.full(2000, 1 / 2000, np.float32)] * rows  # 160 MB
    write_teacher_outputs(
        path, np.arange(rows), np.zeros(rows, np.int64), Ragged.of(weights, np.float32), np.ones((rows, 2)), CLASSES
    )
    del weights
    before = resident()
    outputs = TeacherOutputs(path)
    assert outputs.attention(rows - 1).sum() == pytest.approx(1, abs=1e-4)
    after = resident()
    assert after - before < 20e6
