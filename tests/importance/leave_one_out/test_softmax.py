import pytest
import torch

from attnprobe.importance.leave_one_out.changed_states import SoftmaxAccumulator, WeightedMean, merge, prefix_means

GENERATOR = torch.Generator().manual_seed(0)
SCORES = torch.randn(3, 9, generator=GENERATOR, dtype=torch.float64) * 400  # exp of the largest overflows
VALUES = torch.randn(3, 9, 2, generator=GENERATOR, dtype=torch.float64)


def direct(scores, values):
    return (scores.softmax(-1).unsqueeze(-1) * values).sum(-2)


@pytest.mark.parametrize("reverse", [False, True])
def test_prefix_means_are_those_of_the_positions_before_or_from_each_on(reverse):
    found = prefix_means(SCORES, VALUES, reverse=reverse)
    for end in range(10):
        part = slice(end, None) if reverse else slice(0, end)
        if SCORES[:, part].shape[1]:
            torch.testing.assert_close(found.mean[:, end], direct(SCORES[:, part], VALUES[:, part]))
            torch.testing.assert_close(found.weight[:, end], SCORES[:, part].logsumexp(-1))
        else:
            assert found.weight[:, end].isneginf().all()


def test_merged_means_are_those_of_both_sets():
    whole = prefix_means(SCORES, VALUES)
    rest = prefix_means(SCORES, VALUES, reverse=True)
    for cut in range(10):
        found = merge(*(WeightedMean(side.weight[:, cut], side.mean[:, cut]) for side in (whole, rest)))
        torch.testing.assert_close(found.mean, direct(SCORES, VALUES))


@pytest.mark.parametrize("limit", [1, 7, 10**6])
def test_positions_may_come_in_any_order_and_any_number_at_a_time(limit, monkeypatch):
    monkeypatch.setattr(SoftmaxAccumulator, "LIMIT", limit)
    accumulator = SoftmaxAccumulator(SCORES[:, 0].clone(), 2)
    for position in torch.randperm(9, generator=GENERATOR).tolist():
        text = torch.randperm(3, generator=GENERATOR)
        accumulator.add(text, SCORES[text, position], VALUES[text, position])
    accumulator.add(torch.tensor([1]), torch.tensor([-torch.inf]).double(), torch.ones(1, 2).double())
    torch.testing.assert_close(accumulator.means().mean, direct(SCORES, VALUES))
