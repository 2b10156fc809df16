import itertools
import math
from functools import partial

import pytest
import torch
from torch.nn.functional import pad
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.exact import farthest, farthest_attention
from attnprobe.measures import jensen_shannon, total_variation


def texts(count, seq, classes=2, *, seed=0, scale=2.0, markers=False):
    """Random texts, every position content; with markers, the first and last hold attention but are
    no content."""
    generator = torch.Generator().manual_seed(seed)
    normal = partial(torch.randn, generator=generator, dtype=torch.float64)
    attention = (1.5 * normal(count, seq)).softmax(-1)
    logits = scale * normal(count, seq, classes)
    content = torch.ones(count, seq, dtype=torch.bool)
    content[:, [0, -1]] = not markers
    return attention, logits, content


def predict(attention, logits):
    return (attention @ logits).softmax(-1)


def best_of(candidates, attention, logits, epsilon):
    """The largest JSD of those candidates `[samples, seq]` whose prediction stays within ε."""
    before = predict(attention, logits)
    after = predict(candidates, logits)
    is_allowed = total_variation(after, before) <= epsilon
    jsd = jensen_shannon(candidates, attention)
    allowed = jsd[is_allowed]
    return allowed.amax().item()


def simplex_grid(seq, steps):
    """All attentions whose weights are multiples of 1 / steps."""
    grid = []
    for counts in itertools.product(range(steps + 1), repeat=seq):
        if sum(counts) == steps:
            grid.append(counts)
    return torch.tensor(grid, dtype=torch.float64) / steps


def edges(seq, steps):
    """All attentions on two positions, in that many steps."""
    share = torch.linspace(0, 1, steps + 1, dtype=torch.float64)
    share = share.unsqueeze(-1)
    corners = torch.eye(seq, dtype=torch.float64)
    attentions = []
    for first, second in itertools.combinations(corners, 2):
        edge = share * first + (1 - share) * second
        attentions.append(edge)
    return torch.cat(attentions)


def check_claims(result, attention, logits, content, epsilon, *, exclusive=True):
    """What must hold of every result, whatever the example."""
    attention = attention.double()
    logits = logits.double()
    farthest = result.attention
    assert farthest.dtype == torch.float64
    assert (farthest >= 0).all()
    unit_sum = torch.ones(len(attention), dtype=torch.float64)
    assert_close(farthest.sum(-1), unit_sum, rtol=0, atol=1e-12)
    fixed = ~content
    assert_close(farthest[fixed], attention[fixed], rtol=0, atol=1e-7)

    before = torch.einsum("bt,btc->bc", attention, logits)
    after = torch.einsum("bt,btc->bc", farthest, logits)
    if exclusive:
        prediction = before.softmax(-1)
        new_prediction = after.softmax(-1)
        tvd = total_variation(prediction, new_prediction)
    else:
        change = after.sigmoid() - before.sigmoid()
        tvd = change.abs().mean(-1)
    assert_close(result.tvd, tvd, rtol=0, atol=1e-6)
    largest_change = max(epsilon, 2e-12)
    assert (result.tvd <= largest_change).all()

    jsd = jensen_shannon(attention, farthest)
    assert_close(result.jsd, jsd, rtol=0, atol=1e-6)
    assert (result.jsd >= 0).all()
    assert (result.upper_bound >= result.jsd).all()

    loosest_bound = free_bound(attention, content)
    assert (result.upper_bound <= loosest_bound + 1e-6).all()


def free_bound(attention, content):
    """The JSD of all weight on the least attended position."""
    least = torch.where(content, attention, 1).amin(-1)
    nothing = torch.zeros_like(least)
    pair = torch.stack([least, nothing], -1)
    all_weight = torch.tensor([1.0, 0.0]).double()
    of_pair = jensen_shannon(pair, all_weight)
    of_rest = math.log(2) * (1 - least) / 2
    return of_rest + of_pair


@pytest.mark.whole
@pytest.mark.parametrize("epsilon", [0.01, 0.1])
@pytest.mark.parametrize(("seq", "steps"), [(3, 150), (4, 36)])
def test_no_attention_of_a_fine_grid_is_farther_and_the_grid_comes_close(seq, steps, epsilon):
    attention, logits, content = texts(40, seq, seed=seq)
    result = farthest_attention(attention, logits, content, epsilon=epsilon)
    check_claims(result, attention, logits, content, epsilon)
    assert result.is_exact.all()
    assert torch.equal(result.upper_bound, result.jsd)

    inside = simplex_grid(seq, steps)
    rim = edges(seq, 5000)
    for weights, text_logits, jsd in zip(attention, logits, result.jsd, strict=True):
        best_inside = best_of(inside, weights, text_logits, epsilon)
        best_on_rim = best_of(rim, weights, text_logits, epsilon)
        assert best_inside <= jsd + 1e-12
        assert best_on_rim <= jsd + 1e-12
        assert best_on_rim >= jsd - 0.01


def test_a_plain_loop_over_all_vertices_agrees():
    attention, logits, content = texts(30, 9, seed=3, markers=True)
    result = farthest_attention(attention, logits, content, epsilon=0.05)
    check_claims(result, attention, logits, content, 0.05)
    class_0, class_1 = logits.unbind(-1)
    margins = class_1 - class_0
    best = []
    for weights, margin in zip(attention, margins, strict=True):
        jsd = best_vertex(weights, margin, epsilon=0.05)
        best.append(jsd)
    assert result.jsd.tolist() == pytest.approx(best, abs=1e-9)


def best_vertex(attention, margin, epsilon):
    """The largest JSD of an attention that leaves the first and the last weight as they are and has
    the rest on two positions, as far as the prediction allows.

    With share s of the mass m on position i and m − s on j, the text's margin is that of the
    markers plus s d_i + (m − s) d_j. It meets a limit where s = (limit − markers − m d_j) / (d_i −
    d_j).
    """
    markers = attention.clone()
    markers[1:-1] = 0
    mass = attention[1:-1].sum()
    probability = (attention @ margin).sigmoid()
    lowest_margin = (probability - epsilon).logit()
    highest_margin = (probability + epsilon).logit()
    limits = (lowest_margin, highest_margin)
    positions = range(1, 8)
    best = 0.0
    for i, j, limit in itertools.product(positions, positions, limits):
        share = mass
        if i != j:
            margin_without_share = markers @ margin + mass * margin[j]
            gain = margin[i] - margin[j]
            share = (limit - margin_without_share) / gain
        if not 0 <= share <= mass:  # a limit out of reach is NaN
            continue
        candidate = markers.clone()
        candidate[i] += share
        candidate[j] += mass - share
        change = (candidate @ margin).sigmoid() - probability
        if change.abs() <= epsilon + 1e-12:
            divergence = jensen_shannon(attention, candidate)
            best = max(best, divergence.item())
    return best


def farthest_of_two_classes(attention, margin, epsilon, content=None):
    """The farthest attention of one text to six decimals, where class 1 leads by `margin`."""
    attention = torch.tensor([attention], dtype=torch.float64)
    margin = torch.tensor([margin], dtype=torch.float64)
    if content is None:
        content = [True] * attention.numel()
    content = torch.tensor([content])
    no_lead = torch.zeros_like(margin)
    logits = torch.stack([no_lead, margin], -1)
    result = farthest_attention(attention, logits, content, epsilon=epsilon)
    check_claims(result, attention, logits, content, epsilon)
    return result.attention[0].round(decimals=6).tolist()


def test_of_a_single_position_nothing_moves():
    assert farthest_of_two_classes([1.0], [3.0], epsilon=0.01) == [1]


@pytest.mark.parametrize(
    ("margin", "epsilon"),
    [
        pytest.param([2.0, 2.0, 2.0], 0.0, id="equal margins"),
        pytest.param([2.0, -9.0, -9.0], 1.0, id="every prediction is allowed"),
        pytest.param([900.0, -900.0, -900.0], 5.0, id="epsilon is above 1"),
        pytest.param([80.0, 70.0, 60.0], 0.01, id="p = 1 to the last digit"),
    ],
)
def test_where_anything_goes_the_least_attended_position_gets_all(margin, epsilon):
    assert farthest_of_two_classes([0.6, 0.3, 0.1], margin, epsilon) == [0, 0, 1]


def test_a_position_that_would_change_the_prediction_gets_nothing():
    weights = [0.6, 0.3, 0.1]
    margin = [800.0, 700.0, -800.0]
    assert farthest_of_two_classes(weights, margin, epsilon=0.01) == [0, 1, 0]


def test_only_the_models_own_attention_keeps_the_margin_of_two_positions():
    weights = [0.5, 0.5]
    margin = [1.0, -1.0]
    assert farthest_of_two_classes(weights, margin, epsilon=0.0) == weights


@pytest.mark.parametrize(
    ("weights", "margin", "epsilon", "farthest"),
    [
        pytest.param([1.0, 0.0], [-3.0, -3.0], 0.01, [0, 1], id="equal margins"),
        pytest.param([0.5, 0.0, 0.5], [1.0, 0.0, -1.0], 0.0, [0, 1, 0], id="the mean margin"),
    ],
)
def test_a_position_without_weight_may_get_all_of_it(weights, margin, epsilon, farthest):
    assert farthest_of_two_classes(weights, margin, epsilon) == farthest


def test_of_equally_attended_positions_the_first_gets_all():
    weights = [0.3, 0.3, 0.4]
    margin = [0.0, 0.0, 0.0]
    assert farthest_of_two_classes(weights, margin, epsilon=0.01) == [1, 0, 0]


@pytest.mark.parametrize(
    ("attention", "epsilon", "farthest"),
    [
        pytest.param([0.2, 0.5, 0.3], 0.0, [0.5, 0.5, 0], id="fixed weight stays"),
        pytest.param([0.0, 1.0, 0.0], 0.1, [0, 1, 0], id="no content has weight"),
    ],
)
def test_a_middle_position_without_content_keeps_its_weight(attention, epsilon, farthest):
    content = [True, False, True]
    margin = [1.0, 5.0, 1.0]
    assert farthest_of_two_classes(attention, margin, epsilon, content) == farthest


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 50.0, 1000.0])
@pytest.mark.parametrize("epsilon", [0.0, 1e-13, 1e-9, 0.01, 0.5, 0.999, 1.0, 3.0])
@pytest.mark.parametrize("markers", [False, True])
def test_claims_hold_at_every_scale(scale, epsilon, classes, markers):
    arguments = texts(6, 7, classes, seed=2, scale=scale, markers=markers)
    result = farthest_attention(*arguments, epsilon=epsilon, effort=4)
    check_claims(result, *arguments, epsilon)


def padded_by_seven(attention, logits, content):
    """The same texts with seven more positions, whose logits are not 0."""
    wide_attention = pad(attention, (0, 7))
    wide_logits = pad(logits, (0, 0, 0, 7), value=3.0)
    wide_content = pad(content, (0, 7))
    return wide_attention, wide_logits, wide_content


def assert_same_numbers(result, expected, rows=slice(None)):
    """The same interval as those rows of another batch."""
    for name in ("jsd", "tvd", "upper_bound", "is_exact"):
        value = getattr(result, name)
        expected_value = getattr(expected, name)[rows]
        assert_close(value, expected_value, rtol=0, atol=1e-12)


@pytest.mark.parametrize("classes", [2, 4])
def test_padding_changes_nothing(classes):
    arguments = texts(12, 12, classes, seed=8, markers=True)
    expected = farthest_attention(*arguments, epsilon=0.02, effort=6)
    wide = padded_by_seven(*arguments)
    padded = farthest_attention(*wide, epsilon=0.02, effort=6)
    assert_same_numbers(padded, expected)
    text = padded.attention[:, :12]
    padding = padded.attention[:, 12:]
    assert_close(text, expected.attention, rtol=0, atol=1e-11)
    assert (padding == 0).all()


@pytest.mark.parametrize("classes", [2, 4])
def test_a_padded_text_alone_has_the_numbers_that_it_has_in_its_batch(classes):
    arguments = texts(12, 12, classes, seed=8, markers=True)
    batch = farthest_attention(*arguments, epsilon=0.02, effort=6)
    padded = padded_by_seven(*arguments)
    for row in range(12):
        text = [column[[row]] for column in padded]
        single = farthest_attention(*text, epsilon=0.02, effort=6)
        assert_same_numbers(single, batch, [row])


@pytest.mark.parametrize("extra", range(4))
def test_repeated_words_give_the_same_answer_in_any_batch(extra):
    """Equal positions tie exactly; which of them is taken must not depend on where the example lies
    in memory."""
    attention, logits, content = texts(9, 5, seed=1)
    attention = attention.repeat(1, 4) / 4
    logits = logits.repeat(1, 4, 1)
    content = content.repeat(1, 4)
    whole = farthest_attention(attention, logits, content, epsilon=0.01)
    has_weight = whole.attention > 0
    support = pad(has_weight, (0, extra))

    wide = [
        pad(attention, (0, extra)),
        pad(logits, (0, 0, 0, extra)),
        pad(content, (0, extra)),
    ]
    for row in range(9):
        text = [column[[row]] for column in wide]
        single = farthest_attention(*text, epsilon=0.01)
        single_support = single.attention[0] > 0
        assert torch.equal(single_support, support[row])


@pytest.mark.parametrize("few_pairs", [0, 10**9], ids=["never few", "always few"])
@pytest.mark.parametrize("pairs_at_once", [7, 1 << 18])
def test_shortcuts_and_slices_lose_nothing(monkeypatch, few_pairs, pairs_at_once):
    arguments = texts(20, 40, seed=6)
    expected = farthest_attention(*arguments, epsilon=0.01)
    monkeypatch.setattr(farthest, "FEW_PAIRS", few_pairs)
    monkeypatch.setattr(farthest, "PAIRS_AT_ONCE", pairs_at_once)
    monkeypatch.setattr(farthest, "SEEDS", 1)  # a poor first pair: the rest has to find the optimum
    result = farthest_attention(*arguments, epsilon=0.01)
    assert_close(result.jsd, expected.jsd, rtol=0, atol=1e-11)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_text_of_4000_positions(classes):
    arguments = texts(1, 4000, classes, scale=3.0)
    result = farthest_attention(*arguments, epsilon=0.01, effort=1)
    check_claims(result, *arguments, 0.01)


@pytest.mark.parametrize("epsilon", [-0.01, math.nan])
def test_an_impossible_epsilon_is_refused(epsilon):
    arguments = texts(1, 3)
    with pytest.raises(UserError, match=f"epsilon is {epsilon}: expected"):
        farthest_attention(*arguments, epsilon=epsilon, effort=1)


def test_a_negative_effort_is_refused():
    arguments = texts(1, 3)
    with pytest.raises(UserError, match="effort is -1: expected"):
        farthest_attention(*arguments, epsilon=0.01, effort=-1)
