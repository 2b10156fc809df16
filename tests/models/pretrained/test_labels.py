"""Tables of labels that are wrong, labels that are mixed up, and checkpoints that are refused."""

import json
import shlex

import numpy as np
import pytest
from numpy.testing import assert_allclose

from attnprobe.core.errors import UserError
from attnprobe.models.pretrained.label_check import mixed_up
from tests.models.pretrained.whole_words import ROWS, library_says, network, opened, tokenizer

# checkpoints are saved, loaded and asked
pytestmark = pytest.mark.whole

pytest.importorskip("transformers")


def stored(folder, **changes):
    """A BERT whose config.json has these entries."""
    reader = tokenizer(folder)
    plain = network(folder, "Bert", vocab_size=len(reader))
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return reader, plain


NAMED = {"0": "no", "1": "yes"}
FAULTS = {
    "contradict": (
        NAMED,
        {"no": 1, "yes": 0},
        r"contradict each other: id2label is \{0: no, 1: yes\}, label2id \{0: yes, 1: no\}",
    ),
    "from one": (
        {"1": "no", "2": "yes"},
        {"no": 1, "yes": 2},
        r"name the outputs \{1: no, 2: yes\}, and its head has 0, 1",
    ),
    "a gap": (
        {"0": "no", "2": "yes"},
        {"no": 0, "yes": 2},
        r"name the outputs \{0: no, 2: yes\}, and its head has 0, 1",
    ),
    "no second table": ({"1": "no", "2": "yes"}, "none", r"name the outputs \{1: no, 2: yes\}"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_tables_of_labels_that_are_wrong_are_shown(tmp_path, fault):
    id2label, label2id, message = FAULTS[fault]
    stored(tmp_path / "model", id2label=id2label, label2id=label2id)
    with pytest.raises(UserError, match=message + r".*data.labels=\[no, yes\]"):
        opened(tmp_path / "model", ROWS[:12], tmp_path)


@pytest.mark.parametrize("fault", FAULTS)
def test_an_order_that_is_given_is_taken_in_their_place(tmp_path, fault):
    id2label, label2id, _ = FAULTS[fault]
    reader, plain = stored(tmp_path / "model", id2label=id2label, label2id=label2id)
    result = opened(tmp_path / "model", ROWS[:12], tmp_path, "data.labels=[yes, no]")
    assert result.model.class_names == ["yes", "no"]
    expected = library_says(plain, reader, ROWS[0][0]).double()
    assert_allclose(result.logits()[0], expected, atol=1e-5)


def test_the_order_that_a_refusal_names_is_one_word_of_a_shell(tmp_path):
    id2label, label2id, _ = FAULTS["from one"]
    stored(tmp_path / "model", id2label=id2label, label2id=label2id)
    with pytest.raises(UserError) as refusal:
        opened(tmp_path / "model", ROWS[:12], tmp_path)
    words = shlex.split(str(refusal.value))
    (setting,) = [word.rstrip(",") for word in words if word.startswith("data.labels=")]
    typed = tmp_path / "typed"
    typed.mkdir()
    result = opened(tmp_path / "model", ROWS[:12], typed, setting)
    assert result.model.class_names == ["no", "yes"]


def test_names_that_stand_in_one_table_alone_are_taken(tmp_path):
    stored(
        tmp_path / "model",
        id2label={"0": "LABEL_0", "1": "LABEL_1"},
        label2id={"no": 1, "yes": 0},
    )
    result = opened(tmp_path / "model", ROWS[:12], tmp_path)
    assert "by name: no, yes" in result.model.matched
    assert result.model.order == [1, 0]


def test_two_tables_that_differ_in_case_alone_do_not_contradict_each_other(tmp_path):
    stored(tmp_path / "model", id2label={"0": "NO", "1": "YES"}, label2id={"no": 0, "yes": 1})
    model = opened(tmp_path / "model", ROWS[:12], tmp_path).model
    assert model.order == [0, 1]
    assert model.class_names == ["no", "yes"]
    swapped = {"id2label": {"0": "NO", "1": "YES"}, "label2id": {"no": 1, "yes": 0}}
    stored(tmp_path / "other", **swapped)
    (tmp_path / "b").mkdir()
    with pytest.raises(UserError, match="contradict each other"):
        opened(tmp_path / "other", ROWS[:12], tmp_path / "b")


def test_of_two_names_equal_but_for_case_the_very_name_is_taken(tmp_path):
    stored(tmp_path / "model", id2label={"0": "no", "1": "No"}, label2id={"no": 0, "No": 1})
    rows = [(text, "no") for text, _ in ROWS[:12]]
    other_rows = [(text, "NO") for text, _ in ROWS[:12]]
    other = tmp_path / "other"
    other.mkdir()
    result = opened(tmp_path / "model", rows, tmp_path)
    assert result.model.order == [0, 1]
    with pytest.raises(UserError, match="its labels are no, No, those of the data NO"):
        opened(tmp_path / "model", other_rows, other)


def test_a_regression_of_two_outputs_gives_no_classes(tmp_path):
    stored(tmp_path / "model", problem_type="regression")
    message = r"gives 2 numbers and no classes \(problem_type=regression\).*correct problem_type"
    with pytest.raises(UserError, match=message):
        opened(tmp_path / "model", ROWS[:12], tmp_path)


def test_labels_that_are_mixed_up_are_said_with_the_mapping_that_would_be_right(tmp_path):
    reader = tokenizer(tmp_path / "model")
    plain = network(tmp_path / "model", "Bert", vocab_size=len(reader), initializer_range=0.8)
    decided = []
    for text, _ in ROWS:
        logits = library_says(plain, reader, text)
        label = "yes" if logits.argmax() == 0 else "no"
        decided.append((text, label))
    (tmp_path / "a").mkdir()
    assert {label for _, label in decided} == {"yes", "no"}
    message = r"right on 0 of 120 texts.*on 120 if the classes are \{no: yes, yes: no\}"
    with pytest.raises(UserError, match=message + r".*data.labels='\{no: yes, yes: no\}'"):
        opened(tmp_path / "model", decided, tmp_path / "a")

    (tmp_path / "b").mkdir()
    result = opened(tmp_path / "model", decided, tmp_path / "b", "data.labels={no: yes, yes: no}")
    labels = result.data.splits["test"].labels
    assert (result.logits().argmax(-1).numpy() == labels).all()

    (tmp_path / "c").mkdir()
    result = opened(tmp_path / "model", decided, tmp_path / "c", "data.labels=[no, yes]")
    sentence, warns = result.check("labels")
    assert warns
    assert "labels of the data and of the checkpoint are mixed up" in sentence


def predicted(draw, confusion, texts):
    """Labels and predictions of a classifier of this confusion (rows sum to 1)."""
    labels = draw.integers(len(confusion), size=texts)
    classes = len(confusion)
    predictions = np.array([draw.choice(classes, p=confusion[label]) for label in labels])
    return labels, predictions


def test_of_three_classes_that_are_turned_the_mapping_is_found():
    draw = np.random.default_rng(0)
    turned = np.roll(np.eye(3), 1, axis=1)
    confusion = 0.8 * turned + 0.2 / 3
    confusion /= confusion.sum(1, keepdims=True)
    result = mixed_up(*predicted(draw, confusion, 200), ["a", "b", "c"])
    assert result.class_of_label == {"a": "b", "b": "c", "c": "a"}
    assert result.right < result.guessed < result.right_then


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_guesses_are_no_mixed_up_labels(classes):
    draw = np.random.default_rng(1)
    even = np.full((classes, classes), 1 / classes)
    names = [str(number) for number in range(classes)]
    for _ in range(300):
        assert mixed_up(*predicted(draw, even, 120), names) is None


def test_a_single_predicted_class_is_no_mixed_up_label():
    labels = np.repeat([0, 1], [5, 95])
    assert mixed_up(labels, np.zeros(100, int), ["a", "b"]) is None


PROMPT = ['model.prompt="{text} is"', 'model.labels={no: " bad", yes: " good"}']


@pytest.mark.parametrize(
    ("head", "message"),
    [
        ("MaskedLM", r"it is a BertForMaskedLM, which does not say what comes after a prompt"),
        ("SequenceClassification", r"this one without model.prompt.*it is a classifier already"),
    ],
)
def test_a_prompt_for_what_is_no_language_model_is_refused(tmp_path, head, message):
    reader = tokenizer(tmp_path / "model")
    network(tmp_path / "model", "Bert", head, vocab_size=len(reader))
    with pytest.raises(UserError, match=message):
        opened(tmp_path / "model", ROWS[:12], tmp_path, *PROMPT)


def test_labels_of_a_prompt_that_miss_a_class_are_shown_beside_the_datas(tmp_path):
    reader = tokenizer(tmp_path / "model", post="[CLS] $A")
    network(tmp_path / "model", "Llama", "CausalLM", vocab_size=len(reader))
    prompt = [PROMPT[0], 'model.labels={bad: " bad", good: " good"}']
    with pytest.raises(UserError, match=r"names the classes bad, good, the data have no, yes:"):
        opened(tmp_path / "model", ROWS[:12], tmp_path, *prompt)


@pytest.mark.parametrize("prompt", [[], PROMPT])
def test_a_network_without_attention_is_refused(tmp_path, prompt):
    reader = tokenizer(tmp_path / "model", post="[CLS] $A")
    network(tmp_path / "model", "Mamba", "CausalLM", vocab_size=len(reader))
    with pytest.raises(UserError, match=r"mamba has no attention.*expected a transformer"):
        opened(tmp_path / "model", ROWS[:12], tmp_path, *prompt)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("XLNet", r"alone it is the same.*change with the padding behind a text"),
        ("Funnel", r"has rows for \d places, and the text has \d+: it joins neighbouring"),
    ],
)
def test_a_family_that_cannot_be_examined_is_refused_with_its_true_reason(tmp_path, kind, message):
    reader = tokenizer(tmp_path / "model", post="$A [SEP] [CLS]", padding_side="left")
    network(tmp_path / "model", kind, vocab_size=len(reader))
    with pytest.raises(UserError, match=f"(?i){message}"):
        opened(tmp_path / "model", ROWS[:24], tmp_path)
