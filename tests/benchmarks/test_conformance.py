import os
from pathlib import Path

import pytest
import torch

from attnprobe.importance.plausibility import iou_f1
from benchmarks import conformance
from benchmarks.conformance import erasure_metrics, plausibility_metrics

PAGE = (Path(__file__).parents[2] / "docs" / "results" / "conformance.md").read_text(
    encoding="utf-8"
)


def test_erasers_metrics_are_ours_or_the_reason_is_given():
    plausible = plausibility_metrics(conformance.random_scores())
    for row in [*plausible, *erasure_metrics(conformance.small_model())]:
        assert row.same == row.numbers or row.reason, row
        assert f"| {row.metric} | {row.numbers} | {row.same} |" in PAGE
    assert [row.same < row.numbers for row in plausible].count(True) == 2


def test_spans_by_hand():
    content = torch.ones(1, 8, dtype=torch.bool)
    truth = torch.tensor([[1, 1, 0, 0, 1, 1, 0, 0]]).bool()
    # {0, 1, 2} meets {0, 1} by 2/3; {7} meets nothing
    scores = torch.tensor([[9.0, 8, 7, 0, 0, 0, 0, 6]])
    assert iou_f1(scores, truth, content).item() == pytest.approx(0.5)
    assert iou_f1(scores, torch.zeros_like(truth), content).isnan().item()


@pytest.mark.real_data
@pytest.mark.parametrize("model", conformance.MODELS)
def test_limits_that_differ_are_named(model):
    folder = Path(os.environ.get("ATTNPROBE_DATA_DIR", "")) / "naopc"
    if not folder.is_dir():
        pytest.skip("no naopc below ATTNPROBE_DATA_DIR")
    table = conformance.limits_of(folder, model)
    differing = table[(table["upper"] - table["their_upper"]).abs() > conformance.CLOSE]
    assert all(f"| {model} | {text} | " in PAGE for text in differing["text"])
    assert (table["lower"] - table["their_lower"]).abs().max() <= conformance.CLOSE
