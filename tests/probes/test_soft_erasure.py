import numpy as np
import pytest
import torch
from scipy import stats
from torch.testing import assert_close

from attnprobe.core.randomness import Draws
from attnprobe.importance.base import Importance
from attnprobe.probes.soft_erasure import SoftErasure, places_in_order
from tests.importance.subjects import LENGTHS, subject_of
from tests.probes.tables import values
from tests.probes.texts import Text, numbers_of


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
    decision = subject.outputs.logits[row].argmax()
    return logits.softmax(-1)[decision].item()


def share_of_words(subject, row):
    """(rank − ½) / n by attention, one word per line."""
    weights = Text(subject, row).weights
    shares = (stats.rankdata(weights) - 0.5) / len(weights)
    return torch.from_numpy(shares).unsqueeze(-1)


@pytest.mark.parametrize("row", range(len(LENGTHS)))
def test_one_draw_by_a_plain_loop(subject, numbers, row):
    """How far p falls by what goes, as a share of its fall without any word, 0 to 1."""
    generator = Draws(0, "soft_erasure").generator(int(subject.batch.example_id[row]))
    uniform = torch.rand(LENGTHS[row], 8, generator=generator, dtype=torch.float64)
    share = share_of_words(subject, row)
    whole = probability(subject, row, 1)
    without_words = probability(subject, row, 0)
    without_top = probability(subject, row, uniform < 1 - share)
    top_alone = probability(subject, row, uniform < share)
    possible_fall = whole - without_words

    result = numbers_of(numbers, row)

    assert result["drop_of_nothing"] == pytest.approx(possible_fall, rel=1e-6)
    if possible_fall > 0:
        fall = np.clip((whole - without_top) / possible_fall, 0, 1)
        comprehensiveness = result["soft_comprehensiveness_attention"]
        assert comprehensiveness == pytest.approx(fall, rel=1e-6)

        fall = np.clip((whole - top_alone) / possible_fall, 0, 1)
        sufficiency = result["soft_sufficiency_attention"]
        assert sufficiency == pytest.approx(1 - fall, rel=1e-6, abs=1e-9)


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
