import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal

from attnprobe.core.errors import UserError
from attnprobe.data.teacher import Teacher
from attnprobe.results.directory import examples_file
from attnprobe.results.files import write_table
from tests.small_runs import seal

TEXTS = [["a", "film"], ["good"], ["bad", "bad", "film"]]
CLASSES = ["no", "yes"]
IDS = np.array([10, 20, 30])
EXAMPLES = {
    "example_id": [10, 20, 30],
    "tokens": TEXTS,
    "attention": [[0.25, 0.75], [1.0], [0.5, 0.5, 0.0]],
    "probability": [[0.1, 0.9], [0.4, 0.6], [0.7, 0.3]],
}


def teacher(directory, classes=CLASSES, **changed):
    (directory / "examples").mkdir(exist_ok=True)
    columns = EXAMPLES | changed
    attention = pa.array(columns["attention"], pa.list_(pa.float32()))
    write_table(pa.table(columns | {"attention": attention}), directory / examples_file("train"))
    seal(directory, run_id="x", classes=classes)
    return Teacher.open(directory, ["train"])


def test_the_same_examples_in_the_same_words_fit(tmp_path):
    outputs = teacher(tmp_path).outputs("train", CLASSES, IDS, iter(TEXTS))
    assert [outputs.attention[row].tolist() for row in range(3)] == EXAMPLES["attention"]
    assert_array_equal(outputs.probability, np.float32(EXAMPLES["probability"]))
    assert outputs.attention.flat.dtype == outputs.probability.dtype == np.float32
    assert outputs.attention.flat.flags.writeable  # else torch warns of it in every training


OTHER_WORDS = [TEXTS[0], ["very", "good"], TEXTS[2]]
CAPITAL = [["A", "film"], *TEXTS[1:]]


@pytest.mark.parametrize(
    ("classes", "ids", "texts", "message"),
    [
        (["bad", "good"], IDS, TEXTS, "its classes are no, yes, here they are bad, good"),
        (
            CLASSES,
            [10, 30],
            TEXTS[::2],
            "3 examples in train there, 2 here; example 20 is there and not here",
        ),
        (CLASSES, [10, 20, 30, 40], [*TEXTS, ["more"]], "example 40 is here and not there"),
        (
            CLASSES,
            IDS,
            OTHER_WORDS,
            "example 20 of train has 1 tokens there and 2 here.* starts 'very good'",
        ),
        (
            CLASSES,
            IDS,
            CAPITAL,
            "example 10 of train has 2 tokens there and 2 here, or other words",
        ),
    ],
)
def test_the_first_difference_is_named(tmp_path, classes, ids, texts, message):
    with pytest.raises(UserError, match=message):
        teacher(tmp_path).outputs("train", classes, np.array(ids), texts)


def test_attention_over_sentences_cannot_teach_words(tmp_path):
    sentences = [[text] for text in TEXTS[:2]] + [[["bad", "bad"], ["film"]]]
    tokens = [[" ".join(words) for words in text] for text in sentences]
    hierarchical = teacher(
        tmp_path, tokens=tokens, words=sentences, attention=[[1.0], [1.0], [0.5, 0.5]]
    )
    expected = "attends to 1 positions of example 10 in train, which has 2 words: a hierarchical"
    with pytest.raises(UserError, match=expected):
        hierarchical.outputs("train", CLASSES, IDS, TEXTS)


def test_a_teacher_that_does_not_exist_is_refused(tmp_path):
    with pytest.raises(UserError, match="does not exist: expected the directory of a finished run"):
        Teacher.open(tmp_path / "nowhere", ["train"])


def test_an_unfinished_teacher_is_refused(tmp_path):
    with pytest.raises(UserError, match="is not finished"):
        Teacher.open(tmp_path, ["train"])


def test_a_teacher_without_examples_of_a_split_is_refused(tmp_path):
    assert teacher(tmp_path).manifest["run_id"] == "x"
    with pytest.raises(UserError, match=r"has no examples/test\.parquet: .* on_finished=replace"):
        Teacher.open(tmp_path, ["train", "test"])
