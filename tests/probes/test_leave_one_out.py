import pytest
import torch

from attnprobe.errors import UserError
from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.probes.base import Subject
from attnprobe.probes.leave_one_out import LeaveOneOut
from attnprobe.probes.randomness import Draws
from tests.toys import toy_batch, toy_classifier, toy_readout


def test_yields_every_token_its_largest_and_the_share_that_decides():
    classifier, batch = toy_classifier("average", spread=6), toy_batch([5, 1, 8, 6, 7, 3, 4])
    outputs, readout = toy_readout(classifier, batch)
    subject = Subject(classifier, batch, outputs, readout)
    found = {m.metric: m for m in LeaveOneOut().measure(subject, Draws(0, "leave_one_out"))}
    expected = leave_one_out(classifier, batch, outputs)
    torch.testing.assert_close(found["leave_one_out"].value, expected.distance, equal_nan=True)
    assert torch.equal(~found["leave_one_out"].step.isnan(), batch.content)
    for row in (0, 2, 3, 4, 5, 6):
        content = batch.content[row]
        assert found["max_leave_one_out"].value[row] == expected.distance[row][content].max()
        assert found["decisive_tokens"].value[row] == expected.flips[row][content].mean()
    assert found["decisive_tokens"].value[1:].nan_to_num().max() > 0
    assert found["max_leave_one_out"].value[1].isnan()
    assert found["decisive_tokens"].value[1].isnan()
    assert found["content_length"].value.tolist() == [5, 1, 8, 6, 7, 3, 4]


def test_computed_once_for_all_probes_of_the_same_settings():
    classifier, batch = toy_classifier(), toy_batch([4])
    subject = Subject(classifier, batch, *toy_readout(classifier, batch))
    same, again, other = (LeaveOneOut(tolerance, 10) for tolerance in (0.0, 0.0, 1e-3))
    assert same.removals(subject) is again.removals(subject)
    assert same.removals(subject) is not other.removals(subject)


@pytest.mark.parametrize(("settings", "message"), [
    ({"tolerance": -1.0}, r"probe\.leave_one_out\.tolerance=-1\.0: expected .* for example 1e-6"),
    ({"chunk": 0}, r"probe\.leave_one_out\.chunk=0: expected how many"),
])  # fmt: skip
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(UserError, match=message):
        LeaveOneOut(**settings)
