import pytest
import torch

from attnprobe.measures import jensen_shannon, kendall_tau, spearman, top_overlap, total_variation
from tests.measures.examples import distributions

MEASURES = [jensen_shannon, total_variation, kendall_tau, spearman]
ALL = torch.ones(6).bool()


@pytest.mark.parametrize("measure", [*MEASURES, lambda a, b: top_overlap(a, b, torch.tensor(2), ALL)])
def test_rows_are_independent_and_leading_axes_broadcast(measure):
    a, b = distributions(3, 4, 6, seed=1), distributions(4, 6, seed=2)
    loop = torch.stack([torch.stack([measure(a[i, j], b[j]) for j in range(4)]) for i in range(3)])
    torch.testing.assert_close(measure(a, b), loop)
    assert measure(a, b).shape == (3, 4)


@pytest.mark.parametrize("measure", MEASURES)
def test_mixed_precision_gives_the_wider_one(measure):
    a, b = distributions(3, 6, seed=1, dtype=torch.float32), distributions(3, 6, seed=2)
    assert measure(a, b).dtype == torch.float64


def test_rows_of_different_length_are_refused():
    with pytest.raises(ValueError, match="rows of 3 and 1 entries: expected two rows of the same length"):
        jensen_shannon.__wrapped__(torch.ones(3) / 3, torch.ones(1))


def test_the_arguments_stay_as_they_were():
    a, b, mask = (
        distributions(4, 5, seed=1),
        distributions(4, 5, seed=2),
        torch.rand(4, 5, generator=torch.Generator().manual_seed(3)) > 0.5,
    )
    before = [x.clone() for x in (a, b, mask)]
    jensen_shannon(a, b, mask), kendall_tau(a, b, mask), spearman(a, b, mask), top_overlap(a, b, torch.tensor(2), mask)
    assert all(torch.equal(x, y) for x, y in zip(before, (a, b, mask), strict=True))
