import os
from pathlib import Path

import pytest
import torch

from attnprobe.importance.plausibility import iou_f1
from benchmarks import conformance
from benchmarks.conformance import erasure_metrics, plausibility_metrics

FOLDER = Path(__file__).parents[2] / "docs" / "results"


PAGE = (FOLDER / "conformance.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def plausible():
    return plausibility_metrics(conformance.random_scores())


def test_erasers_metrics_are_ours_or_the_reason_is_given(plausible):
    erasures = erasure_metrics(conformance.small_model())
    for row in [*plausible, *erasures]:
        assert row.same == row.numbers or row.reason, row
        assert f"| {row.metric} | {row.numbers} | {row.same} |" in PAGE


def test_two_of_erasers_metrics_of_plausibility_are_not_ours(plausible):
    differing = [row for row in plausible if row.same < row.numbers]
    assert len(differing) == 2


def test_spans_by_hand():
    """{0, 1, 2} meets {0, 1} by 2/3; {7} meets nothing."""
    scores = torch.tensor([[9.0, 8, 7, 0, 0, 0, 0, 6]])
    content = torch.ones(1, 8, dtype=torch.bool)
    truth = torch.zeros(1, 8, dtype=torch.bool)
    undefined = iou_f1(scores, truth, content)
    truth[:, [0, 1, 4, 5]] = True
    assert iou_f1(scores, truth, content).item() == pytest.approx(0.5)
    assert undefined.isnan().all()


@pytest.fixture(params=conformance.MODELS)
def limits(request):
    """A model, and its limits beside the published ones."""
    folder = Path(os.environ.get("ATTNPROBE_DATA_DIR", "")) / "naopc"
    if not folder.is_dir():
        pytest.skip("no naopc below ATTNPROBE_DATA_DIR")
    return request.param, conformance.limits_of(folder, request.param)


@pytest.mark.real_data
def test_upper_limits_that_differ_are_named(limits):
    model, table = limits
    difference = (table["upper"] - table["their_upper"]).abs()
    for text in table.loc[difference > conformance.CLOSE, "text"]:
        assert f"| {model} | {text} | " in PAGE


@pytest.mark.real_data
def test_lower_limits_are_the_published_ones(limits):
    _, table = limits
    difference = (table["lower"] - table["their_lower"]).abs()
    assert difference.max() <= conformance.CLOSE
