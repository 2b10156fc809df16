import pytest
import torch
from lightning import Trainer

from attnprobe.core.randomness import Draws
from attnprobe.importance.leave_one_out import Check, Removals, leave_one_out
from attnprobe.importance.leave_one_out.removal import LeaveOneOut as Removal
from attnprobe.probes.base import Measurement, ProbeRunner, Subject
from attnprobe.probes.correlation import Correlation
from attnprobe.probes.leave_one_out import LeaveOneOut
from attnprobe.probes.plausibility import Plausibility
from tests.toys import toy_batch, toy_classifier, toy_readout


def test_yields_every_token_its_largest_and_the_share_that_decides():
    classifier, batch = toy_classifier("average", spread=6), toy_batch([5, 1, 8, 6, 7, 3, 4])
    outputs, readout = toy_readout(classifier, batch)
    subject = Subject(classifier, batch, outputs, readout)
    yielded = LeaveOneOut().measure(subject, Draws(0, "leave_one_out"))
    found = {m.metric: m for m in yielded if isinstance(m, Measurement)}
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


@pytest.mark.parametrize("probe", [LeaveOneOut, Correlation, Plausibility])
def test_notes_say_how_exact_the_table_is(probe, monkeypatch):
    """Those of two batches: counts are added, errors are the largest; what never happened is not noted."""
    classifier, batch = toy_classifier(), toy_batch([4, 6])
    batch.rationale = batch.content.clone()
    checks = [Check(8, 2e-7, None, False), Check(64, 3e-9, 0.25, False), Check(0, 0.0, 0.5, True)]
    outputs, _ = toy_readout(classifier, batch)
    measured = leave_one_out(classifier, batch, outputs)
    runner = ProbeRunner([probe()], seed=0)
    noted = []
    for check in checks:
        found = Removals(measured.distance, measured.flips, check)
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
