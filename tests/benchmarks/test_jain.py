from itertools import permutations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
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
    texts = []
    for ids, mask in zip(batch.ids, batch.mask, strict=True):
        texts.append(ids[mask].tolist())
    classifier = toy_classifier("lstm", spread=4)
    return Sides.on(classifier, texts, [batch])


def padded(values, batch):
    """Numbers of the released code, which has no numbers for what is no content."""
    numbers = torch.tensor(np.asarray(values), dtype=torch.float64)
    return numbers.masked_fill(~batch.content, 0)


PUBLISHED_ONCE = ("permutation", "search", "leave_one_out", "gradient", "tau")


"""Rows whose published way counts: that of `exact` is that of `search` again."""


def test_every_row_is_timed_on_both_sides(sides, monkeypatch):
    monkeypatch.setattr(released, "STEPS", 2)
    rows = dict(timed(sides, list(PARTS), 1))
    published = sum(rows[name].published[0] for name in PUBLISHED_ONCE)
    ours = sum(row.ours[0] for row in rows.values())

    total = summed(rows)

    assert rows["exact"].published is rows["search"].published
    assert total.published == [pytest.approx(published)]
    assert total.ours == [pytest.approx(ours)]


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


NEAR = {"atol": 1e-5, "rtol": 1e-4}


@pytest.fixture(scope="module")
def batch(sides):
    """The three texts as our model reads them."""
    ((batch, _),) = sides.encoded
    return batch


@pytest.fixture(scope="module")
def outputs(sides):
    ((_, outputs),) = sides.encoded
    return outputs


@pytest.fixture(scope="module")
def probability(outputs):
    """Of class 1, which is all that the released model gives: `[texts, 1]`."""
    return outputs.logits.softmax(-1)[:, 1:]


def test_the_released_prediction_is_ours(sides, probability):
    prediction = released.predict(sides.published, sides.texts)
    assert_close(torch.tensor(prediction, dtype=probability.dtype), probability, **NEAR)


def test_the_released_gradients_are_ours(sides, batch):
    (kinds,) = released.gradients(sides.published, sides.texts)
    by_words = padded(kinds[0], batch).abs()
    assert_close(by_words, gradients(sides.ours, batch).embedding, **NEAR)


def test_the_released_leave_one_out_is_ours(sides, batch, outputs, probability):
    (without,) = released.leave_one_out(sides.published, sides.texts)
    change = padded(without, batch) - probability
    distance = change.abs().masked_fill(~batch.content, 0)
    expected = leave_one_out(sides.ours, batch, outputs).distance
    assert_close(distance, expected.nan_to_num(), **NEAR)


def test_the_released_tau_is_ours(sides, batch):
    first, second, _ = sides.scores[0]
    tau, p = kendall_tau_test(first, second, batch.content)
    expected = np.array(released.kendall_tau(*sides.pairs[0]))
    assert_allclose(tau.flatten(), expected[:, 0], rtol=1e-7)
    assert_allclose(p.flatten(), expected[:, 1], rtol=1e-7)


@pytest.fixture(scope="module")
def adversary(sides):
    """The released search's attentions, and the probabilities under each: `[texts, draws, …]`."""
    ((attention, probability),) = released.adversary(sides.published, sides.texts)
    return torch.from_numpy(attention).double(), torch.from_numpy(probability).squeeze(-1)


def test_the_released_adversary_keeps_the_prediction_and_moves_the_attention(
    adversary, outputs, probability
):
    weights, moved = adversary
    is_kept = (moved - probability).abs() < 0.03
    attention = outputs.attention.unsqueeze(1)
    divergence = released.divergence(weights, attention).squeeze(-1)
    assert divergence[is_kept].max() > 0.1


def test_the_released_adversary_stays_on_words(adversary, batch):
    weights, _ = adversary
    is_word = batch.content.unsqueeze(1)
    assert weights.masked_fill(is_word, 0).sum() == 0


def test_the_released_permutations_are_of_the_words_alone(sides, batch, outputs):
    """Of the three words of the first text, whose logits under each of the six orders are known."""
    words = batch.content[0]
    attention = outputs.attention[0, words]
    readout = sides.ours.readout(batch, outputs)
    logits = readout.position_logits[0, words, 1]
    orders = torch.tensor(list(permutations(range(3))))
    expected = (attention[orders] @ logits).sigmoid()

    (of_texts,) = released.permutations(sides.published, sides.texts)

    probabilities = torch.from_numpy(of_texts[0])
    distance = (probabilities.unsqueeze(1) - expected).abs()
    nearest, order = distance.min(1)
    assert nearest.max() < 1e-5
    assert len(order.unique()) == 6
