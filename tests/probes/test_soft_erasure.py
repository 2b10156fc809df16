import pytest
import torch

from attnprobe.core.randomness import Draws
from attnprobe.importance.base import Importance
from attnprobe.probes.soft_erasure import SoftErasure, places_in_order
from tests.importance.subjects import LENGTHS, subject_of
from tests.probes.tables import values


class Alike(Importance):
    name = title = "fixed"

    def scores(self, subject):
        return subject.batch.content.double()


def test_one_draw_by_a_plain_loop():
    subject = subject_of()
    found = values(SoftErasure(["attention"], samples=1), subject)
    model = subject.classifier
    batch = subject.batch

    def predicted(row, kept):
        inputs = model.inputs(batch).detach().clone()
        inputs[row, 1 : LENGTHS[row] + 1] *= kept
        return model.outputs_from(batch, inputs).logits[row].softmax(-1)

    for row, length in enumerate(LENGTHS):
        drawn = torch.rand(
            length,
            8,
            generator=Draws(0, "soft_erasure").generator(int(batch.example_id[row])),
            dtype=torch.float64,
        )
        weights = subject.readout.attention[row, 1 : length + 1].tolist()
        lower = [sum(other < one for other in weights) for one in weights]
        share = torch.tensor([(below + 0.5) / length for below in lower], dtype=torch.float64)
        keeps = (1, 0, drawn < (1 - share).unsqueeze(-1), drawn < share.unsqueeze(-1))
        number = int(subject.outputs.logits[row].argmax())
        p, empty, gone, left = (predicted(row, kept)[number].item() for kept in keeps)
        assert float(found["drop_of_nothing"][row]) == pytest.approx(p - empty, rel=1e-6)
        if p > empty:
            comprehensiveness, kept = (
                min(1, max(0, p - one) / (p - empty)) for one in (gone, left)
            )
            assert float(found["soft_comprehensiveness_attention"][row]) == pytest.approx(
                comprehensiveness, rel=1e-6
            )
            assert float(found["soft_sufficiency_attention"][row]) == pytest.approx(
                1 - kept, rel=1e-6, abs=1e-9
            )


def test_scores_that_are_all_alike_say_nothing():
    """Then each number goes as often as it stays, so that the two metrics add up to 1 on
    average."""
    subject = subject_of(importances={"fixed": Alike()})
    found = values(SoftErasure(["fixed"], samples=400), subject)
    both = found["soft_comprehensiveness_fixed"] + found["soft_sufficiency_fixed"]
    defined = ~both.isnan()
    assert defined.any()
    torch.testing.assert_close(both[defined], torch.ones_like(both[defined]), atol=0.15, rtol=0)


def test_places_in_the_order():
    scores = torch.tensor([[-1.0, 1.0, 3.0, 9.0], [2.0, 2.0, 5.0, 0.0], [4.0, torch.nan, 1.0, 1.0]])
    content = torch.tensor([[1, 1, 1, 0], [1, 1, 0, 0], [1, 1, 0, 0]]).bool()
    places = places_in_order(scores, content)
    torch.testing.assert_close(
        places[:2].tolist(), [[1 / 6, 3 / 6, 5 / 6, 0.0], [0.5, 0.5, 0.0, 0.0]]
    )
    assert places[2, :2].isnan().all()
