from functools import partial

import pytest
import torch
from torch.testing import assert_close

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


GOOD = {
    "attention": torch.full((2, 4), 0.25),
    "position_logits": torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(0)),
    "content": torch.ones(2, 4, dtype=torch.bool),
}
"""Arguments of a solver for two texts of four positions."""


@pytest.mark.parametrize("solve", SOLVERS)
@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"attention": GOOD["attention"][:, :3]},
            r"attention \(2, 3\), position_logits \(2, 4, 3\).*must be the same",
        ),
        (
            {"content": GOOD["content"][:, 1:]},
            r"content \(2, 3\).*must be the same",
        ),
        (
            {"position_logits": GOOD["position_logits"][..., 0]},
            r"expected \[batch, seq\], \[batch, seq, classes\], \[batch, seq\]",
        ),
        (
            {"position_logits": GOOD["position_logits"][..., :1]},
            r"2 or more classes; give a binary model's single logit s as \[0, s\]",
        ),
        (
            {"attention": GOOD["attention"] * torch.tensor([[1.0], [0.5]])},
            r"attention row 1 sums to 0.5, .* sum to 1",
        ),
        (
            {"attention": GOOD["attention"] + torch.tensor([0.5, -0.5, 0, 0])},
            r"smallest weight -0.25: expected weights of 0 or more",
        ),
        (
            {"attention": GOOD["attention"] * torch.nan},
            r"attention row 0 sums to nan",
        ),
        (
            {"position_logits": GOOD["position_logits"] * torch.tensor([[[1]], [[torch.nan]]])},
            r"position_logits are not finite in row 1",
        ),
        (
            {"content": GOOD["content"] & torch.tensor([[True], [False]])},
            r"content is False everywhere in row 1",
        ),
    ],
)
def test_mistakes_name_what_came_and_what_was_expected(solve, changed, message):
    with pytest.raises(UserError, match=message):
        solve(**(GOOD | changed))


@pytest.mark.parametrize("solve", SOLVERS)
def test_what_stands_in_the_padding_never_matters(solve):
    logits = GOOD["position_logits"]
    attention = torch.tensor([[0, 0.5, 0.5, 0]]).repeat(2, 1)
    content = attention > 0
    broken = logits.clone()
    broken[:, 3] = torch.nan
    broken[:, 0] = torch.inf
    expected = vars(solve(attention, logits, content))
    result = vars(solve(attention, broken, content))
    assert_close(result, expected, rtol=0, atol=0)


@pytest.mark.parametrize("solve", SOLVERS)
def test_the_callers_tensors_stay_as_they_were(solve):
    tensors = {name: tensor.clone() for name, tensor in GOOD.items()}
    tensors["attention"].requires_grad_()

    result = vars(solve(**tensors))

    for name, before in GOOD.items():
        assert torch.equal(tensors[name], before)
    for value in result.values():
        assert not value.requires_grad


@pytest.mark.parametrize("solve", SOLVERS)
def test_an_empty_batch_gives_empty_results(solve):
    empty = {name: tensor[:0] for name, tensor in GOOD.items()}
    result = vars(solve(**empty))
    for value in result.values():
        assert len(value) == 0
