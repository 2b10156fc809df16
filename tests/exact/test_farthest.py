import itertools
import math

import pytest
import torch
from torch.nn.functional import pad

from attnprobe.core.errors import UserError
from attnprobe.exact import farthest, farthest_attention
from attnprobe.measures import jensen_shannon, total_variation


def texts(count, seq, classes=2, *, seed=0, scale=2.0, markers=False):
    """Random texts, every position content; with markers, the first and last hold attention but are
    no content."""
    generator = torch.Generator().manual_seed(seed)
    attention = (1.5 * torch.randn(count, seq, generator=generator, dtype=torch.float64)).softmax(
        -1
    )
    logits = scale * torch.randn(count, seq, classes, generator=generator, dtype=torch.float64)
    content = torch.ones(count, seq, dtype=torch.bool)
    content[:, [0, -1]] = not markers
    return attention, logits, content


def predict(attention, logits):
    return (attention @ logits).softmax(-1)


def best_of(candidates, attention, logits, epsilon):
    """The largest JSD of those candidates `[samples, seq]` whose prediction stays within ε."""
    tvd = total_variation(predict(candidates, logits), predict(attention, logits))
    return torch.where(tvd <= epsilon, jensen_shannon(candidates, attention), -1.0).amax().item()


def simplex_grid(seq, steps):
    return torch.tensor(
        [c for c in itertools.product(range(steps + 1), repeat=seq) if sum(c) == steps]
    ) / float(steps)


def edges(seq, steps):
    """All attentions on two positions, in that many steps."""
    share = torch.linspace(0, 1, steps + 1, dtype=torch.float64)[:, None]
    one = torch.eye(seq, dtype=torch.float64)
    return torch.cat(
        [share * one[i] + (1 - share) * one[j] for i, j in itertools.combinations(range(seq), 2)]
    )


def check_claims(result, attention, logits, content, epsilon, *, exclusive=True):
    """What must hold of every result, whatever the example."""
    attention = attention.double()
    logits = logits.double()
    assert result.attention.dtype == torch.float64
    assert (result.attention >= 0).all()
    torch.testing.assert_close(
        result.attention.sum(-1), torch.ones(len(attention)).double(), rtol=0, atol=1e-12
    )
    torch.testing.assert_close(result.attention[~content], attention[~content], rtol=0, atol=1e-7)
    torch.testing.assert_close(
        result.jsd, jensen_shannon(attention, result.attention), rtol=0, atol=1e-6
    )
    own, moved = ((a[:, None] @ logits)[:, 0] for a in (attention, result.attention))
    of_labels = (own.sigmoid() - moved.sigmoid()).abs().mean(-1)
    tvd = total_variation(own.softmax(-1), moved.softmax(-1)) if exclusive else of_labels
    torch.testing.assert_close(result.tvd, tvd, rtol=0, atol=1e-6)
    assert (result.tvd <= max(epsilon, 2e-12)).all()
    assert (result.jsd >= 0).all()
    assert (result.upper_bound >= result.jsd).all()
    assert (result.upper_bound <= free_bound(attention, content) + 1e-6).all()


def free_bound(attention, content):
    """The JSD of all weight on the least attended position."""
    least = torch.where(content, attention, 1).amin(-1)
    pair = torch.stack([least, torch.zeros_like(least)], -1)
    return math.log(2) * (1 - least) / 2 + jensen_shannon(pair, torch.tensor([1.0, 0.0]).double())


@pytest.mark.parametrize("epsilon", [0.01, 0.1])
@pytest.mark.parametrize(("seq", "steps"), [(3, 150), (4, 36)])
def test_no_attention_of_a_fine_grid_is_farther_and_the_grid_comes_close(seq, steps, epsilon):
    attention, logits, content = texts(40, seq, seed=seq)
    result = farthest_attention(attention, logits, content, epsilon=epsilon)
    check_claims(result, attention, logits, content, epsilon)
    inside = simplex_grid(seq, steps).double()
    rim = edges(seq, 5000)
    for row in range(len(attention)):
        assert best_of(inside, attention[row], logits[row], epsilon) <= result.jsd[row] + 1e-12
        on_rim = best_of(rim, attention[row], logits[row], epsilon)
        assert result.jsd[row] - 0.01 <= on_rim <= result.jsd[row] + 1e-12
    assert result.is_exact.all()
    assert torch.equal(result.upper_bound, result.jsd)


def test_a_plain_loop_over_all_vertices_agrees():
    epsilon = 0.05
    attention, logits, content = texts(30, 9, seed=3, markers=True)
    result = farthest_attention(attention, logits, content, epsilon=epsilon)
    check_claims(result, attention, logits, content, epsilon)
    for row in range(len(attention)):
        own = attention[row]
        s = logits[row, :, 1] - logits[row, :, 0]
        mass = own[1:-1].sum()
        fixed = own[0] * s[0] + own[-1] * s[-1]
        p = (own @ s).sigmoid()
        best = 0.0
        for i, j in itertools.product(range(1, 8), repeat=2):
            for limit in ((p - epsilon).logit(), (p + epsilon).logit()):  # NaN: out of reach
                share = mass if i == j else (limit - fixed - mass * s[j]) / (s[i] - s[j])
                if not 0 <= share <= mass:
                    continue
                candidate = torch.where(content[row], 0, own)
                candidate[i] += share
                candidate[j] += mass - share
                if ((candidate @ s).sigmoid() - p).abs() <= epsilon + 1e-12:
                    best = max(best, jensen_shannon(own, candidate).item())
        assert result.jsd[row].item() == pytest.approx(best, abs=1e-9)


def test_corner_cases_have_the_answers_found_by_hand():
    def solve(attention, margin, epsilon, content=None):
        attention = torch.tensor([attention]).double()
        margin = torch.tensor([margin]).double()
        content = (
            torch.ones_like(attention, dtype=torch.bool)
            if content is None
            else torch.tensor([content])
        )
        logits = torch.stack([torch.zeros_like(margin), margin], -1)
        result = farthest_attention(attention, logits, content, epsilon=epsilon)
        check_claims(result, attention, logits, content, epsilon)
        return result.attention[0].round(decimals=6).tolist()

    assert solve([1.0], [3.0], 0.01) == [1.0]  # nothing to move
    assert solve([0.6, 0.3, 0.1], [2.0, 2.0, 2.0], 0.0) == [0, 0, 1]  # equal margins: anything goes
    assert solve([0.6, 0.3, 0.1], [2.0, -9.0, -9.0], 1.0) == [0, 0, 1]  # everything is allowed
    assert solve([0.6, 0.3, 0.1], [900.0, -900.0, -900.0], 5.0) == [0, 0, 1]
    assert solve([0.6, 0.3, 0.1], [80.0, 70.0, 60.0], 0.01) == [0, 0, 1]  # p = 1 to the last digit
    assert solve([0.6, 0.3, 0.1], [800.0, 700.0, -800.0], 0.01) == [0, 1, 0]
    assert solve([0.5, 0.5], [1.0, -1.0], 0.0) == [0.5, 0.5]  # only the model's own attention
    assert solve([0.5, 0.0, 0.5], [1.0, 0.0, -1.0], 0.0) == [0, 1, 0]  # a position with weight 0
    assert solve([0.2, 0.5, 0.3], [1.0, 5.0, 1.0], 0.0, [True, False, True]) == [
        0.5,
        0.5,
        0,
    ]  # fixed weight stays
    assert solve([0.0, 1.0, 0.0], [1.0, 5.0, 1.0], 0.1, [True, False, True]) == [
        0,
        1,
        0,
    ]  # no content has weight
    assert solve([1.0, 0.0], [-3.0, -3.0], 0.01) == [0, 1]
    assert solve([0.3, 0.3, 0.4], [0.0, 0.0, 0.0], 0.01) == [1, 0, 0]  # ties: the first


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0, 1000.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-13, 1e-9, 0.01, 0.5, 0.999, 1.0, 3.0])
def test_claims_hold_at_every_scale(scale, epsilon, classes):
    for markers in (False, True):
        arguments = texts(6, 7, classes, seed=2, scale=scale, markers=markers)
        check_claims(farthest_attention(*arguments, epsilon=epsilon, effort=4), *arguments, epsilon)


@pytest.mark.parametrize("classes", [2, 4])
def test_padding_and_batch_change_nothing(classes):
    arguments = texts(12, 12, classes, seed=8, markers=True)
    whole = farthest_attention(*arguments, epsilon=0.02, effort=6)
    attention, logits, content = arguments
    wide = pad(attention, (0, 7)), pad(logits, (0, 0, 0, 7), value=3.0), pad(content, (0, 7))
    padded = farthest_attention(*wide, epsilon=0.02, effort=6)
    torch.testing.assert_close(
        padded.attention[:, 12:], torch.zeros(12, 7).double(), rtol=0, atol=0
    )
    torch.testing.assert_close(padded.attention[:, :12], whole.attention, rtol=0, atol=1e-11)
    single = [
        farthest_attention(*(x[row : row + 1] for x in wide), epsilon=0.02, effort=6)
        for row in range(12)
    ]
    for name in ("jsd", "tvd", "upper_bound", "is_exact"):
        value = getattr(whole, name)
        torch.testing.assert_close(getattr(padded, name), value, rtol=0, atol=1e-12)
        torch.testing.assert_close(
            torch.cat([getattr(one, name) for one in single]), value, rtol=0, atol=1e-12
        )


def test_repeated_words_give_the_same_answer_in_any_batch():
    """Equal positions tie exactly; which of them is taken must not depend on where the example lies
    in memory."""
    attention, logits, content = texts(9, 5, seed=1)
    attention = attention.repeat(1, 4) / 4
    logits = logits.repeat(1, 4, 1)
    content = content.repeat(1, 4)
    whole = farthest_attention(attention, logits, content, epsilon=0.01).attention
    for row in range(9):
        for extra in range(4):
            wide = (
                pad(one[[row]], (0, 0) * (one.ndim - 2) + (0, extra))
                for one in (attention, logits, content)
            )
            found = farthest_attention(*wide, epsilon=0.01).attention[0]
            assert torch.equal(found > 0, pad(whole[row], (0, extra)) > 0)


@pytest.mark.parametrize(("few", "at_once"), [(0, 1 << 18), (10**9, 1 << 18), (0, 7), (10**9, 7)])
def test_shortcuts_and_slices_lose_nothing(monkeypatch, few, at_once):
    arguments = texts(20, 40, seed=6)
    expected = farthest_attention(*arguments, epsilon=0.01)
    monkeypatch.setattr(farthest, "FEW_PAIRS", few)
    monkeypatch.setattr(farthest, "PAIRS_AT_ONCE", at_once)
    monkeypatch.setattr(farthest, "SEEDS", 1)  # a poor first pair: the rest has to find the optimum
    result = farthest_attention(*arguments, epsilon=0.01)
    torch.testing.assert_close(result.jsd, expected.jsd, rtol=0, atol=1e-11)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_text_of_4000_positions(classes):
    arguments = texts(1, 4000, classes, scale=3.0)
    check_claims(farthest_attention(*arguments, epsilon=0.01, effort=1), *arguments, 0.01)


@pytest.mark.parametrize(("epsilon", "effort"), [(-0.01, 1), (math.nan, 1), (0.01, -1)])
def test_impossible_settings_are_refused(epsilon, effort):
    with pytest.raises(UserError, match=r"(epsilon is (-0.01|nan)|effort is -1): expected"):
        farthest_attention(*texts(1, 3), epsilon=epsilon, effort=effort)
