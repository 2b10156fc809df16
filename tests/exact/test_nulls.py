import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.randomness import Draws
from attnprobe.exact.nulls import (
    each_erased,
    erased,
    even,
    is_top,
    over_ties,
    permuted,
    random_like,
    top_of,
)
from tests.toys import toy_batch, toy_classifier, toy_readout

CONTENT = torch.tensor([[False, True, True, True, True, False, False]])
ATTENTION = torch.tensor([[0.0, 0.1, 0.4, 0.4, 0.1, 0.0, 0.0]], dtype=torch.float64)
WEIGHTS = ATTENTION[0, 1:5]
"""Those of the content."""
IDS = torch.tensor([3])


def draws(samples, kind="uniform"):
    draw = getattr(Draws(0, "x"), kind)
    return draw(samples, CONTENT, IDS)


def test_a_permuted_attention_has_the_same_weights_and_its_top_is_any_position_equally_often():
    noise, ties = draws(8000).split(4000)

    drawn = permuted(ATTENTION, CONTENT, noise, ties)

    sorted_weights = drawn.attention[:, 0, 1:5].sort().values
    assert (sorted_weights == WEIGHTS.sort().values).all()
    top = drawn.top.unsqueeze(-1)
    top_weight = drawn.attention.gather(-1, top)
    assert (top_weight == 0.4).all()
    counts = drawn.top.flatten().bincount(minlength=7)
    outside_content = counts[[0, 5, 6]]
    in_content = counts[1:5]
    assert outside_content.sum() == 0
    assert in_content.min() > 880  # 1,000 expected each, standard deviation 27


@pytest.fixture
def random_weights():
    """4,000 attentions that are as spread out as the text's own."""
    return random_like(ATTENTION, CONTENT, draws(4000, "normal")).attention


def test_random_weights_sum_to_one_over_the_content(random_weights):
    total = random_weights.sum(-1)
    assert_close(total, torch.ones_like(total))
    assert (random_weights[..., [0, 5, 6]] == 0).all()


def test_random_weights_are_as_spread_out_as_the_texts_own(random_weights):
    """Log weights are the scores up to a constant: their variance over the content is the
    scores'."""
    log_weights = random_weights[:, 0, 1:5].log()
    variance = log_weights.var(-1).mean()
    text_variance = WEIGHTS.log().var(correction=0)
    assert_close(variance, text_variance, rtol=0.05, atol=0)


def test_level_positions_share_the_top():
    top = is_top(ATTENTION, CONTENT)
    assert top.tolist() == [[False, False, True, True, False, False, False]]

    values = torch.tensor([[9.0, 1.0, 2.0, 4.0, 8.0, 9.0, 9.0]]).double()
    assert over_ties(values, top).tolist() == [3.0]


def test_of_level_positions_either_is_drawn_as_the_top():
    repeated = ATTENTION.expand(200, -1, -1)
    tops = top_of(repeated, CONTENT, draws(200))
    assert tops.unique().tolist() == [2, 3]


def test_even_attention_has_the_same_weight_on_all_words():
    [weights] = even(CONTENT)
    assert weights.tolist() == [0, 0.25, 0.25, 0.25, 0.25, 0, 0]


TWO_ATTENTIONS = torch.tensor(
    [
        [0.1, 0.2, 0.6, 0.1],
        [0.0, 0.5, 0.5, 0.0],
    ],
    dtype=torch.float64,
)
TWO_CONTENTS = TWO_ATTENTIONS > 0
TWO_IDS = torch.tensor([5, 2])


@pytest.fixture
def noise():
    return Draws(0, "x").normal(3, TWO_CONTENTS, TWO_IDS)


def check_text_alone(row, null, *noises):
    """A null draws for this text of the batch what it draws for the text alone."""
    batch = null(TWO_ATTENTIONS, TWO_CONTENTS, *noises)

    attention = TWO_ATTENTIONS[[row]]
    content = TWO_CONTENTS[[row]]
    text_noises = [noise[:, [row]] for noise in noises]
    single = null(attention, content, *text_noises)

    assert_close(batch.attention[:, [row]], single.attention)
    assert_close(batch.top[:, [row]], single.top)


@pytest.mark.parametrize("row", [0, 1])
def test_each_text_of_a_batch_has_its_own_random_weights(row, noise):
    check_text_alone(row, random_like, noise)


@pytest.mark.parametrize("row", [0, 1])
def test_each_text_of_a_batch_has_its_own_permutation(row, noise):
    uniform = Draws(0, "x").uniform(3, TWO_CONTENTS, TWO_IDS)
    check_text_alone(row, permuted, uniform, noise)


def test_equal_weights_stay_equal(noise):
    drawn = random_like(TWO_ATTENTIONS, TWO_CONTENTS, noise)
    weights = drawn.attention[:, 1, 1:3]
    assert_close(weights, torch.full_like(weights, 0.5))


def erased_by_hand(readout, weights, row, item):
    """The decision's loss and whether it flips, one text and one item."""
    attention = readout.attention.clone()
    attention[row] = weights
    before = readout.predict(attention)[row]

    attention[row, item] = 0
    attention[row] /= attention[row].sum()
    after = readout.predict(attention)[row]

    decision = before.argmax()
    loss = before[decision] - after[decision]
    flips = after.argmax() != decision
    return loss.item(), flips.item()


def assert_erasure(erasures, row, item, expected):
    """Its loss and whether it flips are those of the loop."""
    expected_drop, expected_flip = expected
    drop = erasures.drop[row, item].item()
    assert drop == pytest.approx(expected_drop, abs=1e-12)
    assert erasures.flip[row, item] == expected_flip


def readout_and_top(question):
    classifier = toy_classifier(spread=4, question=question, classes=3)
    batch = toy_batch([6, 3], question=question)
    _, readout = toy_readout(classifier, batch)
    ties = torch.rand(1, *readout.content.shape)
    [top] = top_of(readout.attention[None], readout.content, ties)
    return readout, top


@pytest.mark.parametrize("question", [False, True])
def test_every_erasure_agrees_with_a_loop(question):
    readout, _ = readout_and_top(question)
    erasures = each_erased(readout, readout.attention)
    for row, item in readout.content.nonzero().tolist():
        weights = readout.attention[row]
        expected = erased_by_hand(readout, weights, row, item)
        assert_erasure(erasures, row, item, expected)
    outside_content = erasures.drop[~readout.content]
    assert outside_content.isnan().all()


@pytest.mark.parametrize("question", [False, True])
def test_every_exchange_agrees_with_a_loop(question):
    readout, top = readout_and_top(question)
    exchanges = each_erased(readout, readout.attention, top)
    for row, item in readout.content.nonzero().tolist():
        leader = top[row].item()
        weights = readout.attention[row].clone()
        weights[item] = readout.attention[row, leader]
        weights[leader] = readout.attention[row, item]
        expected = erased_by_hand(readout, weights, row, item)
        assert_erasure(exchanges, row, item, expected)


@pytest.mark.parametrize("question", [False, True])
def test_the_top_exchanged_with_itself_is_a_plain_erasure(question):
    readout, top = readout_and_top(question)
    erasures = each_erased(readout, readout.attention)
    exchanges = each_erased(readout, readout.attention, top)
    tops = (torch.arange(2), top)
    assert torch.equal(exchanges.drop[tops], erasures.drop[tops])
    leads = is_top(readout.attention, readout.content)
    assert leads[tops].all()


def test_an_item_with_all_of_the_attention_cannot_be_erased():
    _, readout = toy_readout(toy_classifier(), toy_batch([3]))
    one_hot = torch.zeros(1, 1, 5, dtype=torch.float64)
    one_hot[..., 2] = 1
    only_item = erased(readout, one_hot, torch.tensor([[2]]))
    item_without_weight = erased(readout, one_hot, torch.tensor([[1]]))
    assert only_item.drop.isnan().all()
    assert (item_without_weight.drop == 0).all()
