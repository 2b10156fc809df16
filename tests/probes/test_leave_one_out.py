import torch

from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.probes.leave_one_out import LeaveOneOut
from tests.probes.tables import measured, subject_of
from tests.toys import toy_batch, toy_classifier


def test_yields_every_token_its_largest_and_the_share_that_decides():
    classifier = toy_classifier("average", spread=6)
    batch = toy_batch([5, 1, 8, 6, 7, 3, 4])
    subject = subject_of(classifier, batch)
    found = measured(LeaveOneOut(), subject)
    expected = leave_one_out(classifier, batch, subject.outputs)
    torch.testing.assert_close(found["leave_one_out"].value, expected.distance, equal_nan=True)
    assert torch.equal(~found["leave_one_out"].step.isnan(), batch.content)
    for row in (0, 2, 3, 4, 5, 6):
        content = batch.content[row]
        assert found["max_leave_one_out"].value[row] == expected.distance[row][content].max()
        assert found["decisive_tokens"].value[row] == expected.flips[row][content].mean()
    assert found["decisive_tokens"].value[1:].nan_to_num().max() > 0
    assert found["max_leave_one_out"].value[1].isnan()
    assert found["decisive_tokens"].value[1].isnan()
