import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.randomness import Draws
from attnprobe.importance.base import Importance
from attnprobe.probes.soft_erasure import SoftErasure, places_in_order
from tests.importance.subjects import LENGTHS, subject_of
from tests.probes.tables import values


class Alike(Importance):
    name = title = "fixed"

    def scores(self, subject):
        return subject.batch.content.double()


@pytest.fixture(scope="module")
def subject():
    return subject_of()


@pytest.fixture(scope="module")
def numbers(subject):
    return values(SoftErasure(["attention"], samples=1), subject)


def probability(subject, row, stays):
    """Of the predicted class, with these numbers of the words' vectors, the others 0."""
    inputs = subject.classifier.inputs(subject.batch).detach().clone()
    inputs[row, 1 : LENGTHS[row] + 1] *= stays
    logits = subject.classifier.outputs_from(subject.batch, inputs).logits[row]
    return logits.softmax(-1)[subject.outputs.logits[row].argmax()].item()


def share_of_words(subject, row):
    """(rank − ½) / n by attention, one word per line."""
    length = LENGTHS[row]
    weights = subject.readout.attention[row, 1 : length + 1].tolist()
    lower = [sum(rival < weight for rival in weights) for weight in weights]
    shares = [(below + 0.5) / length for below in lower]
    return torch.tensor(shares, dtype=torch.float64).unsqueeze(-1)


@pytest.mark.parametrize("row", range(len(LENGTHS)))
def test_one_draw_by_a_plain_loop(subject, numbers, row):
    generator = Draws(0, "soft_erasure").generator(int(subject.batch.example_id[row]))
    uniform = torch.rand(LENGTHS[row], 8, generator=generator, dtype=torch.float64)
    share = share_of_words(subject, row)
    p = probability(subject, row, 1)
    fall_without_words = p - probability(subject, row, 0)
    drop_of_nothing = float(numbers["drop_of_nothing"][row])
    assert drop_of_nothing == pytest.approx(fall_without_words, rel=1e-6)
    if fall_without_words > 0:
        fall_with_rest = max(0, p - probability(subject, row, uniform < 1 - share))
        expected = min(1, fall_with_rest / fall_without_words)
        comprehensiveness = float(numbers["soft_comprehensiveness_attention"][row])
        assert comprehensiveness == pytest.approx(expected, rel=1e-6)

        fall_with_words = max(0, p - probability(subject, row, uniform < share))
        expected = 1 - min(1, fall_with_words / fall_without_words)
        sufficiency = float(numbers["soft_sufficiency_attention"][row])
        assert sufficiency == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_scores_that_are_all_alike_say_nothing():
    """Then each number goes as often as it stays, so that the two metrics add up to 1 on
    average."""
    subject = subject_of(importances={"fixed": Alike()})
    numbers = values(SoftErasure(["fixed"], samples=400), subject)
    total = numbers["soft_comprehensiveness_fixed"] + numbers["soft_sufficiency_fixed"]
    defined = total[~total.isnan()]
    assert len(defined)
    assert_close(defined, torch.ones_like(defined), atol=0.15, rtol=0)


def test_places_in_the_order():
    scores = torch.tensor(
        [
            [-1.0, 1.0, 3.0, 9.0],
            [2.0, 2.0, 5.0, 0.0],
            [4.0, torch.nan, 1.0, 1.0],
        ]
    )
    content = torch.tensor(
        [
            [1, 1, 1, 0],
            [1, 1, 0, 0],
            [1, 1, 0, 0],
        ]
    ).bool()
    distinct, equal, undefined = places_in_order(scores, content)
    assert_close(distinct.tolist(), [1 / 6, 3 / 6, 5 / 6, 0.0])
    assert_close(equal.tolist(), [0.5, 0.5, 0.0, 0.0])
    assert undefined[:2].isnan().all()
