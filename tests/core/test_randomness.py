import torch

from attnprobe.core.randomness import Draws


def test_numbers_belong_to_the_example_and_not_to_its_batch():
    draws = Draws(seed=3, probe="permutation")
    content = torch.tensor([[False, True, True, False], [True, True, True, True]])
    ids = torch.tensor([7, 9])
    both = draws.normal(5, content, ids)
    assert (both[:, 0, [0, 3]] == 0).all()
    turned = draws.normal(5, content.flip(0), ids.flip(0))
    assert torch.equal(turned.flip(1), both)
    padded = draws.normal(5, torch.nn.functional.pad(content[:1], (0, 6)), ids[:1])
    assert torch.equal(padded[:, 0, :4], both[:, 0])


def test_seed_probe_and_example_each_change_the_numbers():
    content = torch.ones(1, 4).bool()
    ids = torch.tensor([1])
    base = Draws(0, "a").uniform(1, content, ids)
    assert torch.equal(base, Draws(0, "a").uniform(1, content, ids))
    for other in (Draws(1, "a").uniform(1, content, ids), Draws(0, "b").uniform(1, content, ids)):
        assert not torch.equal(base, other)
    assert not torch.equal(base, Draws(0, "a").uniform(1, content, ids + 1))


def test_the_global_generator_is_left_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    Draws(0, "a").normal(2, torch.ones(1, 4).bool(), torch.tensor([1]))
    assert torch.equal(torch.rand(1), expected)
