import torch
from scipy.optimize import minimize

from attnprobe.models.pretrained.rows import Lifting, masses, membership, shown


def site(rows=3, *, seed=0):
    """Rows over: special, word 1, word 1, word 2, word 3, special, padding."""
    generator = torch.Generator().manual_seed(seed)
    word = torch.tensor([[-1, 1, 1, 2, 3, -1, -2]])
    content = torch.tensor([[False, True, True, True, False]])
    raw = torch.rand(1, rows, 7, generator=generator).double() * (word != -2).unsqueeze(1)
    return raw / raw.sum(-1, keepdim=True), membership(word, content), torch.ones(1, rows, dtype=torch.bool)


def test_what_is_shown_is_the_mean_mass_of_each_words_pieces():
    rows, member, valid = site()
    attention, share = shown(masses(rows, member), valid)
    by_hand = torch.stack([rows[0, :, 1:3].sum(), rows[0, :, 3].sum(), rows[0, :, 4].sum()])
    torch.testing.assert_close(attention[0, 1:4], by_hand / by_hand.sum())
    torch.testing.assert_close(share[0], by_hand.sum() / 3)


def test_the_recorded_explanation_gives_back_the_recorded_rows():
    rows, member, valid = site()
    attention, _ = shown(masses(rows, member), valid)
    torch.testing.assert_close(Lifting(rows, member, valid)(attention), rows, atol=1e-15, rtol=0)


def test_the_lift_shows_what_is_asked_and_keeps_what_it_must():
    rows, member, valid = site()
    wanted = torch.tensor([[[0, 0.7, 0.1, 0.2, 0]], [[0, 0.0, 1.0, 0.0, 0]]], dtype=torch.float64)
    found = Lifting(rows, member, valid)(wanted)
    for sample in range(2):
        attention, share = shown(masses(found[sample], member), valid)
        torch.testing.assert_close(attention, wanted[sample], atol=1e-11, rtol=0)
        torch.testing.assert_close(share, shown(masses(rows, member), valid)[1])
    torch.testing.assert_close(found.sum(-1), torch.ones(2, 1, 3).double())
    torch.testing.assert_close(found[..., [0, 5, 6]], rows[..., [0, 5, 6]].expand(2, -1, -1, -1))
    torch.testing.assert_close(found[0, ..., 1] / found[0, ..., 2], rows[..., 1] / rows[..., 2])


def test_no_other_rows_that_show_it_are_nearer():
    """Against scipy's constrained minimum of Σ KL over two rows and three words."""
    rows, member, valid = site(rows=2, seed=3)
    wanted = torch.tensor([[0, 0.6, 0.3, 0.1, 0]], dtype=torch.float64)
    mass = masses(rows, member)[0, :, 1:4].numpy()
    target = wanted[0, 1:4].numpy() * mass.sum()
    found = masses(Lifting(rows, member, valid)(wanted), member)[0, :, 1:4].numpy()

    def divergence(flat):
        x = flat.reshape(2, 3)
        return (x * torch.tensor(x / mass).log().numpy()).sum()

    best = minimize(
        divergence, found.ravel() * 0 + mass.mean(), bounds=[(1e-9, 1)] * 6, method="SLSQP",
        constraints=[
            {"type": "eq", "fun": lambda flat: flat.reshape(2, 3).sum(0) - target},
            {"type": "eq", "fun": lambda flat: flat.reshape(2, 3).sum(1)[:1] - mass.sum(1)[:1]},
        ],
        options={"maxiter": 500, "ftol": 1e-14},
    )  # fmt: skip
    assert best.success
    assert divergence(found.ravel()) <= best.fun + 1e-9
    assert abs(found - best.x.reshape(2, 3)).max() < 1e-4


def test_a_word_that_underflowed_can_be_attended_to():
    rows, member, valid = site()
    rows[..., 3] = 0
    found = Lifting(rows, member, valid)(torch.tensor([[0, 0, 1.0, 0, 0]]).double())
    torch.testing.assert_close(shown(masses(found, member), valid)[0][0, 2], torch.tensor(1.0).double())
