import pytest
import torch

from attnprobe.core.randomness import Draws


def test_numbers_belong_to_the_example_and_not_to_its_batch():
    draws = Draws(seed=3, probe="permutation")
    content = torch.tensor([[False, True, True, False], [True, True, True, True]])
    ids = torch.tensor([7, 9])
    batch = draws.normal(5, content, ids)
    assert (batch[:, 0, [0, 3]] == 0).all()
    turned = draws.normal(5, content.flip(0), ids.flip(0))
    assert torch.equal(turned.flip(1), batch)
    padded_content = torch.nn.functional.pad(content[:1], (0, 6))
    padded = draws.normal(5, padded_content, ids[:1])
    assert torch.equal(padded[:, 0, :4], batch[:, 0])


@pytest.mark.parametrize(
    ("seed", "probe", "example"),
    [(1, "a", 1), (0, "b", 1), (0, "a", 2)],
    ids=["seed", "probe", "id"],
)
def test_seed_probe_and_example_each_change_the_numbers(seed, probe, example):
    content = torch.ones(1, 4).bool()
    base = Draws(0, "a").uniform(1, content, torch.tensor([1]))
    changed = Draws(seed, probe).uniform(1, content, torch.tensor([example]))
    assert not torch.equal(base, changed)


def test_the_same_seed_probe_and_example_give_the_same_numbers():
    content = torch.ones(1, 4).bool()
    ids = torch.tensor([1])
    first = Draws(0, "a").uniform(1, content, ids)
    assert torch.equal(first, Draws(0, "a").uniform(1, content, ids))


def test_the_global_generator_is_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    Draws(0, "a").normal(2, torch.ones(1, 4).bool(), torch.tensor([1]))
    assert torch.equal(torch.rand(1), expected)
