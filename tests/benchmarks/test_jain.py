"""The benchmark's two sides do the same work."""

from itertools import permutations

import numpy as np
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg

from attnprobe.importance.gradients import gradients
from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.measures import kendall_tau_test
from benchmarks import released
from benchmarks.__main__ import drawn, summed, timed
from benchmarks.jain import PARTS, Sides
from benchmarks.timing import Compared, interleaved, together
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
    found = timed(sides, list(PARTS), 1)
    assert found["exact"].published is found["search"].published
    expected = sum(found[name].published[0] for name in ("permutation", "search", "leave_one_out", "gradient", "tau"))
    assert summed(found).published == [pytest.approx(expected)]
    assert summed(found).ours == [pytest.approx(sum(each.ours[0] for each in found.values()))]


def test_the_released_way_finds_the_same_numbers(sides):
    batch, outputs = sides.own[0]
    near = {"atol": 1e-5, "rtol": 1e-4}
    probability = outputs.logits.softmax(-1)[:, 1:]
    torch.testing.assert_close(
        torch.from_numpy(released.predict(sides.published, sides.texts)).double(), probability, **near
    )
    kinds = released.gradients(sides.published, sides.texts)[0]
    torch.testing.assert_close(padded(kinds[0], batch).abs(), gradients(sides.ours, batch).embedding, **near)
    without = padded(released.leave_one_out(sides.published, sides.texts)[0], batch)
    moved = (without - probability).abs().masked_fill(~batch.content, 0)
    torch.testing.assert_close(moved, leave_one_out(sides.ours, batch, outputs).distance.nan_to_num(), **near)
    left, right, _ = sides.scores[0]
    tau, p = kendall_tau_test(left, right, batch.content)
    expected = torch.tensor(released.kendall_tau(*sides.pairs[0]), dtype=torch.float64)
    torch.testing.assert_close(torch.stack([tau, p], -1).flatten(0, 1), expected)


def test_the_released_adversary_keeps_the_prediction_and_moves_the_attention(sides):
    batch, outputs = sides.own[0]
    attention, probability = released.adversary(sides.published, sides.texts)[0]
    moved = np.abs(probability[..., 0] - outputs.logits.softmax(-1)[:, 1:].numpy())
    other = torch.from_numpy(attention).double()
    away = released.divergence(other, outputs.attention.unsqueeze(1)).squeeze(-1)
    assert float(away[torch.from_numpy(moved < 0.03)].max()) > 0.1
    assert float(other.masked_fill(batch.content.unsqueeze(1), 0).sum()) == 0


def test_the_released_permutations_are_of_the_words_alone(sides):
    """Of the three words of the first text, whose logits under each of the six orders are known."""
    batch, outputs = sides.own[0]
    words = batch.content[0]
    attention, logits = outputs.attention[0, words], sides.ours.readout(batch, outputs).position_logits[0, words, 1]
    expected = torch.stack([(attention[list(order)] * logits).sum() for order in permutations(range(3))]).sigmoid()
    found = torch.from_numpy(released.permutations(sides.published, sides.texts)[0][0])
    apart = (found.unsqueeze(1) - expected).abs()
    assert float(apart.amin(1).max()) < 1e-5
    assert len(apart.argmin(1).unique()) == 6


def test_the_released_training_learns():
    classifier, batch = toy_classifier("lstm", spread=4), toy_batch([3, 5, 9])
    texts = [ids[mask].tolist() for ids, mask in zip(batch.ids, batch.mask, strict=True)]
    model, labels = released.Released.of(classifier), torch.tensor([0, 1, 0])

    def loss():
        return torch.nn.functional.binary_cross_entropy(
            torch.from_numpy(released.predict(model, texts)), labels.unsqueeze(-1).float()
        )

    before = loss()
    released.train(model, texts, labels.tolist(), texts, epochs=5)
    assert loss() < before


def test_a_ratio_is_that_of_one_repeat_and_a_sum_charges_for_everything():
    one, two = Compared("a", [8.0, 9.0], [2.0, 1.0], share=2), Compared("b", [1.0, 1.0], [2.0, 2.0])
    assert one.ratios == [8.0, 18.0]
    assert together("both", [one, two]).ratios == [9 / 4, 10 / 3]


def test_the_sides_are_timed_in_turn():
    calls = []
    seconds = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2)
    assert calls == ["a", "b", "a", "b"]
    assert {side: len(times) for side, times in seconds.items()} == {"a": 2, "b": 2}


def test_the_figure_has_a_row_and_a_range_for_each_ratio():
    rows = [Compared("slow", [1.0, 1.2], [2.0, 2.0]), Compared("fast", [50.0, 60.0, 20.0], [0.5, 0.5, 0.5])]
    (axes,) = drawn(rows).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["slow", "fast"]
    assert [text.get_text() for text in axes.texts] == ["0.55 ×", "100 ×"]
    ranges = [line.get_xdata() for line in axes.lines if len(line.get_xdata()) == 2][:2]
    np.testing.assert_allclose(ranges, [[0.5, 0.6], [40, 120]])


def test_nothing_of_the_figure_is_cut():
    named = [PARTS[name].title for name in PARTS]
    figure = drawn([Compared(name, [0.5 * 10**place], [1.0]) for place, name in enumerate(named[:4])])
    FigureCanvasAgg(figure).draw()
    renderer, (axes,) = figure.canvas.get_renderer(), figure.axes
    for text in (*figure.texts, *axes.texts, *axes.get_yticklabels(), axes.xaxis.label):
        there = text.get_window_extent(renderer)
        assert there.x0 >= 0, text
        assert there.x1 <= figure.bbox.x1, text
    assert all(axes.bbox.x0 <= number.get_window_extent(renderer).x0 for number in axes.texts)
