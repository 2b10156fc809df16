import pytest
import torch
from lightning import Trainer

from attnprobe.importance.leave_one_out import Check, Removals, leave_one_out
from attnprobe.importance.leave_one_out.removal import LeaveOneOut as Removal
from attnprobe.probes.base import ProbeRunner
from attnprobe.probes.correlation import Correlation
from attnprobe.probes.leave_one_out import LeaveOneOut
from attnprobe.probes.plausibility import Plausibility
from tests.probes.tables import measured, subject_of
from tests.toys import toy_batch, toy_classifier, toy_readout


def test_yields_every_token_its_largest_and_the_share_that_decides():
    classifier, batch = toy_classifier("average", spread=6), toy_batch([5, 1, 8, 6, 7, 3, 4])
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


@pytest.mark.parametrize("probe", [LeaveOneOut, Correlation, Plausibility])
def test_notes_say_how_exact_the_table_is(probe, monkeypatch):
    """Those of two batches: counts are added, errors are the largest; what never happened is not noted."""
    classifier, batch = toy_classifier(), toy_batch([4, 6])
    batch.rationale = batch.content.clone()
    checks = [Check(8, 2e-7, None, False), Check(64, 3e-9, 0.25, False), Check(0, 0.0, 0.5, True)]
    outputs, _ = toy_readout(classifier, batch)
    removed = leave_one_out(classifier, batch, outputs)
    runner = ProbeRunner([probe()], seed=0)
    noted = []
    for check in checks:
        found = Removals(removed.distance, removed.flips, check)
        monkeypatch.setattr(Removal, "removals", lambda self, subject, found=found: found)
        runner.on_test_batch_end(Trainer.__new__(Trainer), classifier, {"outputs": outputs}, batch, 0)
        noted.append(dict(runner.notes[probe.name]))
    assert noted[0] == {
        "removals_checked": 8, "largest_error": 2e-7, "texts_remeasured": 0, "texts_reencoded": 0,
    }  # fmt: skip
    assert noted[2] == {
        "removals_checked": 72, "largest_error": 2e-7, "largest_error_before": 0.5,
        "texts_remeasured": 4, "texts_reencoded": 2,
    }  # fmt: skip
