import math
import shutil

import pytest
import torch
import yaml
from numpy.testing import assert_allclose

import attnprobe
from attnprobe import UserError, audit_tensors
from attnprobe.probes.gradient import Gradient
from attnprobe.probes.permutation import Permutation
from attnprobe.results.directory import RunDirectory
from attnprobe.results.playground import read_playground

ATTENTION = [[0.6, 0.3, 0.1], [0.5, 0.5]]
MARGINS = [[2.0, -1.0, -3.0], [1.0, 1.0]]
"""Of class 1 over class 0."""


def values(run, probe, metric):
    table = attnprobe.read_results(run, probe=probe)
    return table[table["metric"] == metric].set_index("example_id")["value"].sort_index().tolist()


@pytest.fixture(scope="module")
def audit(tmp_path_factory):
    """Two texts whose answers are known, as states of one feature and a decoder of one logit."""
    hidden = [[[value] for value in row] for row in MARGINS]
    return audit_tensors(
        ATTENTION,
        hidden=hidden,
        weight=[[1.0]],
        bias=[0.0],
        labels=[1, 0],
        tokens=[["a", "b", "c"], ["d", "e"]],
        output=tmp_path_factory.mktemp("audit") / "made",
        page=False,
    )


def test_the_tables_hold_the_known_answers(audit):
    assert values(audit.run, "performance", "accuracy") == [0.5]
    assert values(audit.run, "permutation", "predicted_class") == [1, 1]


def test_the_known_erasure_flips_the_first_text_and_none_the_second(audit):
    """Without its first word the first text's margin is −0.6."""
    removed = values(audit.run, "erasure", "removed_count_optimal")
    assert removed == pytest.approx([1, math.nan], nan_ok=True)
    assert values(audit.run, "erasure", "never_flips") == [0, 1]


def test_the_farthest_attention_is_the_known_one(audit):
    """All the weight on one word leaves the second text's prediction as it is."""
    _, distance = values(audit.run, "adversarial", "optimum_jsd")

    # of (½, ½) and (1, 0): half of each one's divergence from their mean (¾, ¼)
    of_even = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
    of_single = math.log(1 / 0.75)
    assert distance == pytest.approx(0.5 * of_even + 0.5 * of_single)


def test_the_examples_hold_the_known_answers(audit):
    examples = attnprobe.read_examples(audit.run)
    for weights, expected in zip(examples["attention"], ATTENTION, strict=True):
        assert weights.tolist() == pytest.approx(expected)
    probability = [1 / (1 + math.e), math.e / (1 + math.e)]
    assert_allclose(examples["probability"][1], probability)


@pytest.mark.parametrize(("text", "flipping"), [(0, [True, False, False]), (1, [False, False])])
def test_the_playground_holds_the_known_answers(audit, text, flipping):
    rows = list(read_playground(RunDirectory(audit.run)))
    assert len(rows) == 2
    assert rows[text]["attention"] == pytest.approx(ATTENTION[text])
    assert rows[text]["position_logits"][1::2] == pytest.approx(MARGINS[text])
    assert rows[text]["flipping"] == flipping


LOGITS = [[[0.0, value] for value in row] for row in MARGINS]


ODD_NAME = '${it\'s "quoted": {x}\n# no comment \x07'


@pytest.fixture(scope="module")
def audit_of_logits(tmp_path_factory):
    """The same two texts, by what each position says for each class."""
    return audit_tensors(
        ATTENTION,
        [torch.tensor(row) for row in LOGITS],
        labels=[1, 0],
        data=ODD_NAME,
        output=tmp_path_factory.mktemp("logits"),
        page=False,
    )


@pytest.mark.parametrize(
    ("probe", "metric"),
    [
        ("permutation", "median_tvd"),
        ("adversarial", "optimum_jsd"),
        ("single_weight", "effect_js"),
    ],
)
def test_position_logits_say_the_same_as_states_and_decoder(audit, audit_of_logits, probe, metric):
    assert_allclose(
        values(audit_of_logits.run, probe, metric), values(audit.run, probe, metric), atol=1e-9
    )


def test_words_without_names_are_numbered(audit_of_logits):
    tokens = attnprobe.read_examples(audit_of_logits.run)["tokens"]
    assert tokens[1].tolist() == ["1", "2"]


def test_a_second_audit_in_the_same_place_replaces_the_first(tmp_path):
    for labels in ([1, 0], [0, 1]):
        audit_tensors(ATTENTION, LOGITS, labels=labels, output=tmp_path / "made", page=False)
    assert attnprobe.read_examples(tmp_path / "made" / "run")["label"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"attention": [[0.6, 0.3, 0.3], [0.5, 0.5]]}, r"attention of text 0 sums to 1.2"),
        ({"attention": [[1.2, -0.2, 0.0], [0.5, 0.5]]}, r"its least weight is -0.2"),
        (
            {"attention": [[0.6, 0.4], [0.5, 0.5]]},
            r"position_logits: expected as many texts as in attention",
        ),
        (
            {"attention": [[0.6, 0.3, math.nan], [0.5, 0.5]]},
            r"attention of text 0 has a number that is not finite",
        ),
        ({"position_logits": None}, r"expected position_logits, or hidden with weight"),
        ({"hidden": LOGITS, "weight": [[1.0, 0.0]]}, r"and not both"),
        (
            {"position_logits": None, "hidden": LOGITS, "weight": [[1.0]]},
            r"expected \[classes, 2\]",
        ),
        ({"bias": [0.0, 0.0, 0.0]}, r"bias has 3 numbers, and there are 2 classes"),
        ({"labels": [0]}, r"1 labels for 2 texts"),
        ({"labels": [0.0, 0.9]}, r"label 0\.9 of text 1: expected a class number, from 0 to 1"),
        ({"labels": [0, float("nan")]}, r"label nan of text 1"),
        ({"labels": ["no", "yes"]}, r"label no of text 0: expected a class number.*classes="),
        ({"tokens": ["abc", ["d", "e"]]}, r"text 0 is the string 'abc': expected its words"),
        ({"labels": [0, 2]}, r"labels from 0 to 2: expected class numbers from 0 to 1"),
        ({"classes": ["one"]}, r"classes has 1 names: expected 2"),
        ({"tokens": [["a", "b"], ["c", "d"]]}, r"tokens of text 0: expected 3 words"),
        ({"probes": [Gradient()]}, r"only tensors are known"),
    ],
)
def test_what_cannot_be_examined_is_refused_and_leaves_nothing(changed, message, tmp_path):
    arguments = {"attention": ATTENTION, "position_logits": LOGITS, "labels": [1, 0]} | changed
    with pytest.raises(UserError, match=message):
        audit_tensors(**arguments, output=tmp_path / "made", page=False)
    assert not (tmp_path / "made" / "run").exists()


def test_a_name_of_any_kind_is_written_as_it_is(audit_of_logits):
    text = (audit_of_logits.run / "config.yaml").read_text(encoding="utf-8")
    assert yaml.safe_load(text)["data"]["name"] == ODD_NAME


def test_the_manifest_has_a_metrics_range(audit_of_logits):
    manifest = RunDirectory(audit_of_logits.run).manifest()
    metric = manifest["tables"]["permutation"]["metrics"]["median_tvd"]
    assert metric["low"] == 0
    assert metric["high"] == 1


class Failing(Permutation):
    def measure(self, readout, draws):
        raise RuntimeError("no memory left")


def file_contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_audit_that_fails_leaves_the_earlier_one_as_it_was(audit_of_logits, tmp_path):
    shutil.copytree(audit_of_logits.run, tmp_path / "run")
    before = file_contents(tmp_path)
    with pytest.raises(RuntimeError, match="no memory left"):
        audit_tensors(
            ATTENTION,
            LOGITS,
            labels=[0, 1],
            probes=[Failing()],
            output=tmp_path,
            page=False,
        )
    assert file_contents(tmp_path) == before


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="not a run of attnprobe"):
        audit_tensors(ATTENTION, LOGITS, labels=[1, 0], output=tmp_path, page=False)
    assert (tmp_path / "run" / "thesis.txt").read_text() == "mine"
