import math

import numpy as np
import pytest
import torch
import yaml

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
    # without the first word the margin is −0.6: one word flips the first text, and no erasure the
    # second
    assert values(audit.run, "erasure", "removed_count_optimal") == pytest.approx(
        [1, math.nan], nan_ok=True
    )
    assert values(audit.run, "erasure", "never_flips") == [0, 1]
    # all the weight on one word leaves the second text's prediction as it is: ½ ln 2 · ½ + ½ [f(½,
    # 1)], f as in the docs
    apart = 0.5 * (0.5 * math.log(2)) + 0.5 * (0.5 * math.log(0.5 / 0.75) + math.log(1 / 0.75))
    assert values(audit.run, "adversarial", "optimum_jsd")[1] == pytest.approx(apart)
    rows = attnprobe.read_examples(audit.run)
    assert [row.tolist() for row in rows["attention"]] == [pytest.approx(row) for row in ATTENTION]
    np.testing.assert_allclose(rows["probability"][1], [1 / (1 + math.e), math.e / (1 + math.e)])
    for row, margins, weights in zip(
        read_playground(RunDirectory(audit.run)), MARGINS, ATTENTION, strict=True
    ):
        assert row["attention"] == pytest.approx(weights)
        assert row["position_logits"][1::2] == pytest.approx(margins)
    assert [row["flipping"] for row in read_playground(RunDirectory(audit.run))] == [
        [True, False, False],
        [False] * 2,
    ]


def test_position_logits_say_the_same_as_states_and_decoder(audit, tmp_path):
    logits = [torch.tensor([[0.0, value] for value in row]) for row in MARGINS]
    other = audit_tensors(ATTENTION, logits, labels=[1, 0], output=tmp_path / "made", page=False)
    for probe, metric in {
        "permutation": "median_tvd",
        "adversarial": "optimum_jsd",
        "single_weight": "effect_js",
    }.items():
        np.testing.assert_allclose(
            values(other.run, probe, metric), values(audit.run, probe, metric), atol=1e-9
        )
    assert attnprobe.read_examples(other.run)["tokens"][1].tolist() == ["1", "2"]
    # again in the same place: what was there is replaced
    audit_tensors(ATTENTION, logits, labels=[0, 1], output=tmp_path / "made", page=False)
    assert attnprobe.read_examples(tmp_path / "made" / "run")["label"].tolist() == [0, 1]


LOGITS = [[[0.0, value] for value in row] for row in MARGINS]


@pytest.mark.parametrize(
    ("changed", "says"),
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
        ({"labels": [0, 2]}, r"labels from 0 to 2: expected class numbers from 0 to 1"),
        ({"classes": ["one"]}, r"classes has 1 names: expected 2"),
        ({"tokens": [["a", "b"], ["c", "d"]]}, r"tokens of text 0: expected 3 words"),
        ({"probes": [Gradient()]}, r"only tensors are known"),
    ],
)
def test_what_cannot_be_examined_is_refused_and_leaves_nothing(changed, says, tmp_path):
    given = {"attention": ATTENTION, "position_logits": LOGITS, "labels": [1, 0]} | changed
    with pytest.raises(UserError, match=says):
        audit_tensors(**given, output=tmp_path / "made", page=False)
    assert not (tmp_path / "made" / "run").exists()


def test_an_audit_that_fails_leaves_the_earlier_one_as_it_was_and_names_of_any_kind_are_written_as_they_are(
    tmp_path,
):
    class Failing(Permutation):
        def measure(self, readout, draws):
            raise RuntimeError("no memory left")

    name = '${it\'s "quoted": {x}\n# no comment \x07'
    made = audit_tensors(ATTENTION, LOGITS, labels=[1, 0], data=name, output=tmp_path, page=False)
    assert (
        yaml.safe_load((made.run / "config.yaml").read_text(encoding="utf-8"))["data"]["name"]
        == name
    )
    told = RunDirectory(made.run).manifest()["tables"]["permutation"]["metrics"]["median_tvd"]
    assert (told["low"], told["high"]) == (0, 1)
    before = {path: path.read_bytes() for path in made.run.rglob("*") if path.is_file()}
    with pytest.raises(RuntimeError, match="no memory left"):
        audit_tensors(
            ATTENTION, LOGITS, labels=[0, 1], probes=[Failing()], output=tmp_path, page=False
        )
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_folder_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="not a run of attnprobe"):
        audit_tensors(ATTENTION, LOGITS, labels=[1, 0], output=tmp_path, page=False)
    assert (tmp_path / "run" / "thesis.txt").read_text() == "mine"
