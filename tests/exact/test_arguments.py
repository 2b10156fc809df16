from functools import partial

import pytest
import torch

from attnprobe.core.errors import UserError
from attnprobe.exact import (
    attention_shapley,
    farthest_attention,
    smallest_flipping_set,
    smallest_overtaking_sets,
)

SOLVERS = [
    smallest_flipping_set,
    smallest_overtaking_sets,
    partial(farthest_attention, epsilon=0.01),
    attention_shapley,
]


def arguments():
    return [
        torch.full((2, 4), 0.25),
        torch.randn(2, 4, 3),
        torch.ones(2, 4, dtype=torch.bool),
    ]


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize(
    ("place", "change", "message"),
    [
        (
            0,
            lambda x: x[:, :3],
            r"attention \(2, 3\), position_logits \(2, 4, 3\).*must be the same",
        ),
        (2, lambda x: x[:, 1:], r"content \(2, 3\).*must be the same"),
        (
            1,
            lambda x: x[..., 0],
            r"expected \[batch, seq\], \[batch, seq, classes\], \[batch, seq\]",
        ),
        (
            1,
            lambda x: x[..., :1],
            r"2 or more classes; give a binary model's single logit s as \[0, s\]",
        ),
        (
            0,
            lambda x: x * torch.tensor([[1.0], [0.5]]),
            r"attention row 1 sums to 0.5, .* sum to 1",
        ),
        (
            0,
            lambda x: x + torch.tensor([0.5, -0.5, 0, 0]),
            r"smallest weight -0.25: expected weights of 0 or more",
        ),
        (0, lambda x: x * torch.nan, r"attention row 0 sums to nan"),
        (
            1,
            lambda x: x.index_fill(0, torch.tensor([1]), torch.nan),
            r"position_logits are not finite in row 1",
        ),
        (2, lambda x: x & torch.tensor([[True], [False]]), r"content is False everywhere in row 1"),
    ],
)
def test_mistakes_name_what_came_and_what_was_expected(solve, place, change, message):
    tensors = arguments()
    tensors[place] = change(tensors[place])
    with pytest.raises(UserError, match=message):
        solve(*tensors)


@pytest.mark.parametrize("solve", SOLVERS)
def test_what_stands_in_the_padding_never_matters(solve):
    attention, logits, content = arguments()
    attention = attention * torch.tensor([0.0, 2, 2, 0])
    content = content & torch.tensor([False, True, True, False])
    broken = logits.clone()
    broken[:, 3] = torch.nan
    broken[:, 0] = torch.inf
    expected = vars(solve(attention, logits, content))
    result = vars(solve(attention, broken, content))
    torch.testing.assert_close(result, expected, rtol=0, atol=0)


@pytest.mark.parametrize("solve", SOLVERS)
def test_the_callers_tensors_stay_as_they_were(solve):
    before = arguments()
    tensors = [tensor.clone() for tensor in before]
    tensors[0].requires_grad_()

    result = vars(solve(*tensors))

    assert not any(value.requires_grad for value in result.values())
    assert all(torch.equal(old, new) for old, new in zip(before, tensors, strict=True))


@pytest.mark.parametrize("solve", SOLVERS)
def test_an_empty_batch_gives_empty_results(solve):
    empty = [tensor[:0] for tensor in arguments()]
    assert all(len(value) == 0 for value in vars(solve(*empty)).values())
