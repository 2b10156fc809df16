from dataclasses import replace

import pytest
import torch

from attnprobe.core.errors import UserError
from attnprobe.core.randomness import Draws
from attnprobe.core.readout import Readout
from attnprobe.exact.nulls import permute_attention
from attnprobe.importance.baselines import Contribution
from attnprobe.probes.signs import READING, Signs
from tests.probes.tables import subject_of, values
from tests.probes.texts import Text, numbers_of
from tests.toys import toy_batch, toy_classifier

SIGNS = Signs(["contribution"])


@pytest.mark.parametrize("row", range(3))
def test_every_number_is_the_one_counted_by_hand(row):
    subject = subject_of(toy_classifier(), toy_batch([5, 1, 8]))
    text = Text(subject, row)
    weights = text.weights
    is_opposed = text.scores("contribution") < 0
    result = numbers_of(values(SIGNS, subject), row)
    assert result["against_contribution"] == pytest.approx(weights[is_opposed].sum())
    assert result["chance_contribution"] == pytest.approx(is_opposed.mean())
    assert result["violation_contribution"] == is_opposed[weights.argmax()]


def test_chance_is_the_mean_over_random_orders():
    subject = subject_of(toy_classifier(), toy_batch([6]))
    readout = subject.readout
    is_opposed = subject.scores("contribution") < 0
    noise = Draws(1, "null").uniform(4000, readout.content, readout.example_id)
    orders = permute_attention(readout.attention, readout.content, noise)
    against = (orders * is_opposed).sum(-1)
    numbers = values(SIGNS, subject)
    chance = numbers["chance_contribution"].item()
    assert float(against.mean()) == pytest.approx(chance, abs=0.02)


def test_weights_without_meaning_lie_below_chance_so_that_nothing_is_claimed():
    """They make the decision that the items speak for or against."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(500, 8, generator=generator, dtype=torch.float64)
    logits = torch.randn(500, 8, 2, generator=generator, dtype=torch.float64)
    readout = Readout(
        attention=(3 * scores).softmax(-1),
        content=torch.ones(500, 8, dtype=torch.bool),
        example_id=torch.arange(500),
        position_logits=logits,
    )
    subject = subject_of(toy_classifier(), toy_batch([8] * 500))
    numbers = values(SIGNS, replace(subject, readout=readout))
    below_chance = numbers["chance_contribution"] - numbers["against_contribution"]
    assert below_chance.mean() > 0.1
    assert READING.claims == ()


def test_an_importance_without_a_sign_is_refused():
    assert Contribution.signed
    subject = subject_of(toy_classifier(), toy_batch([5, 1, 8]))
    message = "attention has no sign: expected importances whose score below 0"
    with pytest.raises(UserError, match=message):
        values(Signs(["attention"]), subject)
