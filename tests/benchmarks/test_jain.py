from itertools import permutations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from attnprobe.importance.gradients import gradients
from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.measures import kendall_tau_test
from benchmarks import released
from benchmarks.__main__ import progress, summed, timed
from benchmarks.jain import PARTS, Sides
from benchmarks.timing import Compared
from tests.toys import toy_batch, toy_classifier


@pytest.fixture(scope="module")
def sides():
    batch = toy_batch([3, 5, 9])
    texts = [ids[mask].tolist() for ids, mask in zip(batch.ids, batch.mask, strict=True)]
    return Sides.on(toy_classifier("lstm", spread=4), texts, [batch])


def padded(values, batch):
    """Numbers of the released code, which has no numbers for what is no content."""
    return torch.from_numpy(np.asarray(values)).double().masked_fill(~batch.content, 0)


def test_every_row_is_timed_on_both_sides(sides, monkeypatch):
    monkeypatch.setattr(released, "STEPS", 2)
    rows = dict(timed(sides, list(PARTS), 1))
    assert rows["exact"].published is rows["search"].published
    expected = sum(
        rows[name].published[0]
        for name in ("permutation", "search", "leave_one_out", "gradient", "tau")
    )
    assert summed(rows).published == [pytest.approx(expected)]
    assert summed(rows).ours == [pytest.approx(sum(row.ours[0] for row in rows.values()))]


def test_a_row_is_there_before_the_next_is_measured(sides, monkeypatch):
    def unmeasured(*_):
        raise AssertionError

    monkeypatch.setattr(released, "gradients", unmeasured)
    rows = timed(sides, ["gradient", "encoding"], 1)
    assert next(rows)[0] == "encoding"
    with pytest.raises(AssertionError):
        next(rows)


def test_a_finished_row_is_one_line():
    row = Compared("erasure", [4.0, 6.0], [2.0, 2.0])
    assert progress(row) == "erasure: 5 s as released, 2 s here, 2.5 times faster (2 to 3)"


def test_the_released_way_finds_the_same_numbers(sides):
    batch, outputs = sides.encoded[0]
    near = {"atol": 1e-5, "rtol": 1e-4}
    probability = outputs.logits.softmax(-1)[:, 1:]
    assert_close(
        torch.from_numpy(released.predict(sides.published, sides.texts)).double(),
        probability,
        **near,
    )
    kinds = released.gradients(sides.published, sides.texts)[0]
    assert_close(padded(kinds[0], batch).abs(), gradients(sides.ours, batch).embedding, **near)
    without = padded(released.leave_one_out(sides.published, sides.texts)[0], batch)
    moved = (without - probability).abs().masked_fill(~batch.content, 0)
    assert_close(moved, leave_one_out(sides.ours, batch, outputs).distance.nan_to_num(), **near)
    first, second, _ = sides.scores[0]
    tau, p = kendall_tau_test(first, second, batch.content)
    expected = torch.tensor(released.kendall_tau(*sides.pairs[0]), dtype=torch.float64)
    assert_close(torch.stack([tau, p], -1).flatten(0, 1), expected)


def test_the_released_adversary_keeps_the_prediction_and_moves_the_attention(sides):
    batch, outputs = sides.encoded[0]
    attention, probability = released.adversary(sides.published, sides.texts)[0]
    original = outputs.logits.softmax(-1)[:, 1:].numpy()
    keeps_prediction = torch.from_numpy(np.abs(probability[..., 0] - original) < 0.03)
    weights = torch.from_numpy(attention).double()
    divergence = released.divergence(weights, outputs.attention.unsqueeze(1)).squeeze(-1)
    assert float(divergence[keeps_prediction].max()) > 0.1
    outside_words = weights.masked_fill(batch.content.unsqueeze(1), 0)
    assert float(outside_words.sum()) == 0


def test_the_released_permutations_are_of_the_words_alone(sides):
    """Of the three words of the first text, whose logits under each of the six orders are known."""
    batch, outputs = sides.encoded[0]
    words = batch.content[0]
    attention = outputs.attention[0, words]
    logits = sides.ours.readout(batch, outputs).position_logits[0, words, 1]
    expected = torch.stack(
        [(attention[list(order)] * logits).sum() for order in permutations(range(3))]
    ).sigmoid()
    probabilities = torch.from_numpy(released.permutations(sides.published, sides.texts)[0][0])
    distance = (probabilities.unsqueeze(1) - expected).abs()
    assert float(distance.amin(1).max()) < 1e-5
    assert len(distance.argmin(1).unique()) == 6
