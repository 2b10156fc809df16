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
from tests.toys import toy_batch, toy_classifier

SIGNS = Signs(["contribution"])


def test_every_number_is_the_one_counted_by_hand():
    subject = subject_of(toy_classifier(), toy_batch([5, 1, 8]))
    numbers = values(SIGNS, subject)
    scores = subject.scores("contribution")
    attention = subject.readout.attention
    for row, content in enumerate(subject.readout.content):
        weights = attention[row, content].tolist()
        is_opposed = (scores[row, content] < 0).tolist()
        opposed = [weight for weight, against in zip(weights, is_opposed, strict=True) if against]
        top_is_opposed = is_opposed[weights.index(max(weights))]
        assert numbers["against_contribution"][row] == pytest.approx(sum(opposed))
        assert numbers["chance_contribution"][row] == pytest.approx(len(opposed) / len(weights))
        assert numbers["violation_contribution"][row] == float(top_is_opposed)


def test_chance_is_the_mean_over_random_orders():
    subject = subject_of(toy_classifier(), toy_batch([6]))
    readout = subject.readout
    noise = Draws(1, "null").uniform(4000, readout.content, readout.example_id)
    orders = permute_attention(readout.attention, readout.content, noise)
    against = (orders * (subject.scores("contribution") < 0)).sum(-1)
    chance = float(values(SIGNS, subject)["chance_contribution"])
    assert float(against.mean()) == pytest.approx(chance, abs=0.02)


def test_weights_without_meaning_lie_below_chance_so_that_nothing_is_claimed():
    """They make the decision that the items speak for or against."""
    generator = torch.Generator().manual_seed(0)
    attention = (3 * torch.randn(500, 8, generator=generator, dtype=torch.float64)).softmax(-1)
    logits = torch.randn(500, 8, 2, generator=generator, dtype=torch.float64)
    number = torch.arange(500)
    readout = Readout(attention, torch.ones_like(attention).bool(), number, position_logits=logits)
    subject = subject_of(toy_classifier(), toy_batch([8] * 500))
    numbers = values(SIGNS, replace(subject, readout=readout))
    assert (numbers["chance_contribution"] - numbers["against_contribution"]).mean() > 0.1
    assert READING.claims == ()


def test_an_importance_without_a_sign_is_refused():
    assert Contribution.signed
    with pytest.raises(
        UserError, match="attention has no sign: expected importances whose score below 0"
    ):
        values(Signs(["attention"]), subject_of(toy_classifier(), toy_batch([5, 1, 8])))
