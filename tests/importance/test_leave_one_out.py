import pytest
import torch

from attnprobe.core.errors import UserError
from attnprobe.importance.leave_one_out.removal import LeaveOneOut
from tests.importance.subjects import subject_of
from tests.toys import rows_of


def test_equals_each_shorter_text_by_itself():
    subject = subject_of(lengths=[6])
    scores = subject.scores("leave_one_out")
    whole = subject.classifier.predict(subject.batch)[0]
    for t in range(1, 7):
        shorter = rows_of(subject.batch, [0])
        keep = [place for place in range(8) if place != t]
        shorter.ids, shorter.mask, shorter.content = (
            values[:, keep] for values in (shorter.ids, shorter.mask, shorter.content)
        )
        with torch.no_grad():
            expected = (subject.classifier.predict(shorter)[0] - whole).abs().sum() / 2
        assert float(scores[0, t]) == pytest.approx(float(expected), abs=1e-6)


def test_computed_once_for_all_that_ask():
    subject = subject_of()
    assert subject.scores("leave_one_out") is subject.scores("leave_one_out")
    removal = subject.importance("leave_one_out")
    assert subject.cached(removal.removals) is subject.cached(removal.removals)


def test_its_settings_are_the_runs():
    exact = LeaveOneOut(tolerance=0.0, chunk=1)
    assert subject_of(importances={"leave_one_out": exact}).importance("leave_one_out") is exact


@pytest.mark.parametrize(("settings", "message"), [
    ({"tolerance": -1.0}, r"importance\.leave_one_out\.tolerance=-1\.0: expected .* at least 0"),
    ({"chunk": 0}, r"importance\.leave_one_out\.chunk=0: expected"),
])  # fmt: skip
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        LeaveOneOut(**settings)
