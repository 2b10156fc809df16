"""The page on labels runs as it stands, and what it audits is the plain model."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

import attnprobe
from attnprobe.outside.audit import audit_model
from attnprobe.outside.tensors import label_tensors
from attnprobe.probes.erasure import Erasure
from tests.models.test_labels import CAML, labelled

PAGE = (Path(__file__).parents[2] / "docs" / "labels.md").read_text(encoding="utf-8")
NAMES = ["fever", "cough", "fracture"]
# its model is trained, and two audits are whole ones
pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def defined(tmp_path_factory):
    """What the page's code defines, run in order; the report is left out."""
    folder = tmp_path_factory.mktemp("labels")
    names = {"__name__": "labels"}
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.M | re.S))
    code = re.sub(r'output="(\w+)"', rf'output="{folder}/\1", page=False', code)
    code = code.replace('"caml.pt"', f'"{folder}/caml.pt"')
    exec(compile(code, "docs/labels.md", "exec"), names)
    return names


def test_every_label_of_every_text_is_a_row_with_the_plain_models_numbers(defined):
    examples = attnprobe.read_examples(defined["audit"].run)
    assert len(examples) == 3 * len(defined["TEXTS"])
    for row, example in examples.iterrows():
        text, label = divmod(row, 3)
        attention, _, logits = defined["outputs"][text]
        probability = logits[label].sigmoid().item()
        assert_allclose(example["attention"], attention[label], atol=1e-6)
        assert example["probability"][1] == pytest.approx(probability, abs=1e-6)
        assert example["label"] == defined["LABELS"][text][label]
        assert list(example["tokens"]) == defined["TEXTS"][text]


def test_the_labels_have_their_names(defined):
    results = attnprobe.read_results(defined["audit"].run)
    (run_id,) = results["run_id"].unique()
    assert set(results.attrs["asked_labels"][run_id].values()) == set(NAMES)


def test_the_plain_model_is_always_right(defined):
    results = attnprobe.read_results(defined["audit"].run, probe="performance")
    performance = results.set_index("metric")["value"]
    assert performance["accuracy"] == 1.0
    assert performance["label_f1_macro"] == 1.0


def test_a_yes_is_turned_by_the_states_that_see_the_cue(defined):
    """A convolution of three words leaves a cue in three states at most."""
    results = attnprobe.read_results(defined["audit"].run, probe="labels")
    by_metric = results[results["step"].isna()].pivot_table(
        index="example_id", columns="metric", values="value", observed=True
    )
    said_yes = by_metric[by_metric["says_yes"] == 1]
    assert (said_yes["yes_to_no"].dropna() <= 3).mean() > 0.9
    assert by_metric["other_label_tvd"].mean() > 0.05


def test_position_logits_say_the_same_as_states_and_decoder(defined, tmp_path):
    weight = defined["model"].final.weight.detach()
    bias = defined["model"].final.bias.detach()
    attentions = []
    position_logits = []
    for attention, states, _ in defined["outputs"]:
        logits = weight @ states.T + bias[:, None]
        attentions.append(attention.numpy())
        position_logits.append(logits.numpy())
    audit = attnprobe.audit_tensors(
        attentions,
        position_logits,
        labels=defined["LABELS"],
        label_names=NAMES,
        tokens=defined["TEXTS"],
        output=tmp_path / "audit",
        probes=[Erasure(importances=["attention"])],
        page=False,
    )
    columns = []
    for run in (audit.run, defined["audit"].run):
        table = attnprobe.read_results(run, probe="erasure")
        optimal = table[table["metric"] == "removed_count_optimal"]
        columns.append(optimal.set_index("example_id")["value"].sort_index())
    assert_array_equal(*columns)


def test_tensors_of_a_network_are_read_as_numbers():
    attention = torch.tensor([[0.5, 0.5], [0.25, 0.75]], dtype=torch.bfloat16, requires_grad=True)
    logits = torch.tensor([[1.0, -1.0], [2.0, 0.5]], dtype=torch.bfloat16)

    rows = label_tensors(
        attention=[attention],
        position_logits=[logits],
        hidden=None,
        weight=None,
        bias=None,
        names=["a", "b"],
    )

    first_label, second_label = rows.attention
    assert first_label.tolist() == [0.5, 0.5]
    assert second_label.tolist() == [0.25, 0.75]
    first_label, second_label = rows.position_logits
    assert first_label.tolist() == [[1.0], [-1.0]]
    assert second_label.tolist() == [[2.0], [0.5]]


def audited(**changes):
    """An audit of two texts with two labels, with one thing changed."""
    attention = [[[0.5, 0.5], [0.25, 0.75]], [[1.0], [1.0]]]
    logits = [[[1.0, -1.0], [2.0, 0.5]], [[0.5], [-0.5]]]
    arguments = {
        "attention": attention,
        "position_logits": logits,
        "labels": [[1, 0], [0, 0]],
        "label_names": ["a", "b"],
        "output": "never",
    }
    return attnprobe.audit_tensors(**arguments | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label_names": ["a"]}, r"attention has 2 labels and label_names has 1"),
        ({"label_names": ["a", "a"]}, r"label_names=\['a', 'a'\]: expected .* each once"),
        ({"labels": [[1, 0], [0]]}, r"labels of text 1 .*expected 0 or 1 for each of the 2"),
        ({"labels": [[1, 2], [0, 0]]}, r"labels of text 0 .*expected 0 or 1"),
        ({"labels": [[1, 0]]}, "1 lists of labels for 2 texts"),
        ({"position_logits": None}, "expected position_logits, or hidden"),
        ({"weight": [[1.0], [1.0]]}, "expected position_logits, or hidden"),
        ({"position_logits": [[[1.0, -1.0]], [[0.5]]]}, "position logits are of 1 labels"),
        (
            {"attention": [[[0.5, 0.5], [0.25, 0.75]], [[1.0], [0.5]]]},
            "attention of text 1 for label b sums to 0.5",
        ),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(attnprobe.UserError, match=message):
        audited(**changes)


def test_a_described_model_is_asked_for_one_label_a_row(tmp_path):
    classifier, texts, batch = labelled(CAML)
    words = []
    for row, is_word in zip(texts.ids, texts.content, strict=True):
        words.append([f"w{number}" for number in row[is_word].tolist()])
    vocabulary = {f"w{number}": number for number in range(4, 30)}
    names = [f"w{number}" for number in range(4, 9)]
    audit = audit_model(
        classifier,
        words,
        [[0, 1, 0, 1, 0]] * 4,
        vocabulary=vocabulary,
        label_names=names,
        probes=[],
        output=tmp_path / "audit",
        page=False,
    )
    examples = attnprobe.read_examples(audit.run)
    expected = classifier.double()(batch).logits.softmax(-1)
    assert_allclose(np.stack(examples["probability"]), expected.detach().numpy(), atol=1e-6)
