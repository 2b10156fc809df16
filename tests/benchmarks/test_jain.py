"""The benchmark's two sides do the same work."""

import pytest
import torch

from attnprobe.importance.gradient import gradients
from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.measures import kendall_tau_test
from benchmarks import reference
from benchmarks.jain import PAIRS, PARTS, Sides
from benchmarks.timing import Compared, interleaved, together
from tests.toys import toy_batch, toy_classifier


@pytest.fixture(scope="module")
def sides():
    published = toy_classifier("lstm", spread=4)
    ours, batch = toy_classifier("lstm", spread=4).double(), toy_batch([5, 9, 3])
    theirs = reference.packed(published)
    with torch.no_grad():
        parts = [(batch, theirs(batch))], [(batch, ours(batch))]
    scores = [(*torch.rand(2, PAIRS, *batch.ids.shape, dtype=torch.float64), batch.content)]
    return Sides(3, theirs, ours, *parts, scores)


@pytest.mark.parametrize("name", PARTS)
def test_every_row_runs_on_both_sides(name, sides):
    PARTS[name].published(sides)
    PARTS[name].ours(sides)


def test_the_published_way_finds_the_same_numbers(sides):
    (batch, _), (_, outputs) = sides.theirs[0], sides.own[0]
    near = {"atol": 1e-5, "rtol": 1e-4}
    torch.testing.assert_close(
        reference.gradient(sides.published, batch).double(), gradients(sides.ours, batch).embedding, **near
    )
    removals = leave_one_out(sides.ours, batch, outputs).distance.nan_to_num()
    torch.testing.assert_close(reference.leave_one_out(sides.published, batch).double(), removals, **near)
    left, right, content = sides.scores[0]
    tau, p = kendall_tau_test(left[0], right[0], content)
    expected = torch.tensor(reference.kendall_tau(left[0], right[0], content), dtype=torch.float64)
    torch.testing.assert_close(torch.stack([tau, p], -1), expected)


def test_the_published_way_of_training_learns():
    classifier, batch = toy_classifier("lstm", spread=4), toy_batch([5, 9, 3])
    packed = reference.packed(classifier)
    before = torch.nn.functional.cross_entropy(packed(batch).logits, batch.labels).item()
    reference.train(packed, [batch], [batch], epochs=5)
    assert torch.nn.functional.cross_entropy(packed(batch).logits, batch.labels).item() < before


def test_a_ratio_is_that_of_one_repeat_and_a_sum_charges_for_everything():
    one, two = Compared("a", [8.0, 9.0], [2.0, 1.0], share=2), Compared("b", [1.0, 1.0], [2.0, 2.0])
    assert one.ratios == [8.0, 18.0]
    assert together("both", [one, two]).ratios == [9 / 4, 10 / 3]


def test_the_sides_are_timed_in_turn():
    calls = []
    seconds = interleaved({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 2)
    assert calls == ["a", "b", "a", "b"]
    assert {side: len(times) for side, times in seconds.items()} == {"a": 2, "b": 2}
