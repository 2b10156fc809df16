import pytest
import torch
from torch.testing import assert_close

from attnprobe import audit_tensors, read_results
from attnprobe.exact import shapley_values
from attnprobe.importance.attention_shapley import AttentionShapley
from attnprobe.probes.agreement_matrix import AgreementMatrix
from attnprobe.probes.erasure import Erasure
from tests.importance.subjects import LENGTHS, subject_of


def logits_of_subsets(readout, row):
    """What the model's own read-out says under each set's renormalised weights, less its bias.

    By the bit mask of the content positions kept; 0 for the empty set.
    """
    content = readout.content[row]
    count = int(content.sum())
    masks = torch.arange(2**count)
    keeps = (masks[:, None] >> torch.arange(count)) & 1
    weights = torch.zeros(len(masks), *readout.attention.shape, dtype=torch.float64)
    weights[:, row, content] = keeps * readout.attention[row, content]
    weights = weights / weights.sum(-1, keepdim=True)
    value = readout.logits(weights)[:, row] - readout.unattended[row]
    value[0] = 0
    return value


def explained_game(value, logits, target):
    """What each set is worth: the logit that the target names, less its rival's where it has one.

    Args:
        value: `[sets, classes]`, from `logits_of_subsets`.
        logits: of the whole text.
        target: predicted, contrast or class 1.
    """
    decision, runner_up = logits.argsort(descending=True)[:2].tolist()
    explained = 1 if target == "class 1" else decision
    is_binary = len(logits) == 2
    if is_binary:
        return value[:, explained] - value[:, 1 - explained]
    if target == "contrast":
        return value[:, explained] - value[:, runner_up]
    return value[:, explained]


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("target", ["predicted", "contrast", "class 1"])
def test_scores_are_the_shapley_values_of_erasing_and_renormalising(classes, target):
    importance = AttentionShapley(target=target)
    subject = subject_of(classes=classes, importances={importance.name: importance})
    subject.classes = [f"class {number}" for number in range(classes)]
    scores = subject.scores(importance.name)
    total = importance.total(subject)
    for row in range(len(LENGTHS)):
        value = logits_of_subsets(subject.readout, row)
        game = explained_game(value, subject.outputs.logits[row], target)
        content = subject.outputs.content[row]
        expected = shapley_values(game[None])[0]
        assert_close(scores[row, content], expected, atol=1e-12, rtol=0)
        assert (scores[row, ~content] == 0).all()
        # efficiency: the whole text's value
        assert_close(total[row], game[-1], atol=1e-12, rtol=0)
        assert_close(scores[row].sum(), total[row], atol=1e-12, rtol=0)


def test_it_is_undefined_where_the_decoder_is_not_linear():
    nonlinear = subject_of(question=True)
    assert not nonlinear.importance("attention_shapley").is_defined(nonlinear)


def test_the_manifest_is_told_how_large_the_error_can_be():
    subject = subject_of()
    (note,) = subject.importance("attention_shapley").notes(subject)
    assert note.name == "largest_error_attention_shapley"
    assert 0 < note.value < 1e-10


def test_tensors_from_outside_get_it_in_every_comparison(tmp_path):
    attention = [[0.75, 0.25], [0.5, 0.5]]
    audit = audit_tensors(
        attention,
        # 1 is the bias of class 1 over class 0, and 4, −2, −3, −3 what positions say without it
        [[[0.0, 4.0 + 1], [0.0, -2.0 + 1]], [[0.0, -3.0 + 1], [0.0, -3.0 + 1]]],
        bias=[0.0, 1.0],
        labels=[1, 0],
        probes=[
            Erasure(importances=["attention", "attention_shapley"]),
            AgreementMatrix(importances=["attention", "attention_shapley"]),
        ],
        output=tmp_path / "made",
        page=False,
    )
    results = read_results(audit.run)
    numbers = results.pivot_table(index="metric", columns="example_id", values="value")
    # v(1) = 4, v(2) = −2, v(12) = 2.5: φ = 4.25 and −1.75, so the first goes first, and flips
    assert numbers.loc["removed_count_attention_shapley", 0] == 1
    assert numbers.loc["tau_attention_and_attention_shapley", 0] == 1
