import pytest
import torch

from attnprobe.erasure import erase_each, erase_in_order
from attnprobe.erasure.ranked import erasing_order
from attnprobe.erasure.single import decision
from attnprobe.exact import smallest_flipping_set
from attnprobe.readout import Readout
from benchmarks import reference
from tests.erasure.toys import undecided
from tests.exact.test_flipping import texts
from tests.toys import rows_of, toy_batch, toy_classifier, toy_readout


def random_readout(count, seq, classes, *, seed=0, grid=False):
    attention, logits, content = texts(count, seq, classes, seed=seed, grid=grid)
    # weights stay 64ths on the grid, so that all sums are exact
    return Readout(attention, content | (attention > 0), torch.arange(len(attention)), position_logits=logits)


def by_stepping(readout, scores):
    """One erasure at a time, with the kept sums compared as they are (renormalising changes no sign)."""
    counts = []
    for row, chosen in enumerate(decision(readout).tolist()):
        order = [t for t in scores[row].argsort(descending=True, stable=True).tolist() if readout.content[row, t]]
        weights, count = readout.attention[row].clone(), -1
        for number, position in enumerate(order[:-1], start=1):
            weights[position] = 0
            logits = (
                weights.unsqueeze(-1) * (readout.position_logits[row] - readout.position_logits[row][:, [chosen]])
            ).sum(0)
            if (logits > 0).any():
                count = number
                break
        counts.append(count)
    return counts


@pytest.mark.parametrize("grid", [True, False])
@pytest.mark.parametrize(("seq", "classes"), [(3, 2), (7, 2), (9, 4), (25, 10)])
def test_equals_stepping_and_never_beats_the_optimum(seq, classes, grid):
    readout = random_readout(150, seq, classes, seed=seq, grid=grid)
    best = smallest_flipping_set(readout.attention, readout.position_logits, readout.content).size
    generator = torch.Generator().manual_seed(1)
    noise = torch.rand(readout.attention.shape, generator=generator, dtype=torch.float64)
    for scores in (readout.attention, -readout.attention, noise, noise.round()):  # the last one: almost all tied
        found = erase_in_order(readout, scores)
        assert found.count.tolist() == by_stepping(readout, scores)
        flips = found.count > 0
        assert (best[flips] > 0).all()
        assert (found.count[flips] >= best[flips]).all()
        assert found.mass.isnan().equal(~flips)


@pytest.mark.parametrize("classes", [2, 4])
def test_equals_the_published_loop_on_hidden_states(classes):
    batch = toy_batch([12, 7, 1, 2, 9, 15], padding=1)
    classifier = undecided(toy_classifier(classes=classes, spread=4), batch)
    outputs, readout = toy_readout(classifier, batch)
    found = erase_in_order(readout, readout.attention)
    assert (found.count > 0).any()
    for row in range(6):
        order = readout.attention[row].argsort(descending=True)[: int(batch.content[row].sum())].tolist()
        count = reference.erase_until_flip(classifier.decoder, outputs.hidden[row], readout.attention[row], order)
        assert int(found.count[row]) == count
        if count > 0:
            assert float(found.mass[row]) == pytest.approx(float(readout.attention[row, order[:count]].sum()))


def test_any_decoder_gives_the_same_as_a_linear_one():
    readout = random_readout(80, 9, 3)
    asked = Readout(readout.attention, readout.content, readout.example_id, decode=readout.logits)
    for scores in (readout.attention, -readout.attention):
        expected, found = erase_in_order(readout, scores), erase_in_order(asked, scores)
        assert (expected.count > 0).any()
        assert found.count.equal(expected.count)
        torch.testing.assert_close(found.mass, expected.mass, equal_nan=True)


def test_the_best_order_for_two_classes_is_the_optimum():
    readout = random_readout(200, 12, 2)
    margin = readout.position_logits[..., 0] - readout.position_logits[..., 1]
    sign = torch.where(decision(readout) == 0, 1, -1).unsqueeze(-1)
    found = erase_in_order(readout, sign * readout.attention * margin)
    best = smallest_flipping_set(readout.attention, readout.position_logits, readout.content)
    assert found.count.equal(best.size)
    torch.testing.assert_close(found.mass.nan_to_num(), torch.where(best.members, readout.attention, 0).sum(-1))


def test_flips_of_one_are_the_single_erasures():
    readout = random_readout(100, 6, 3, grid=True)
    best = smallest_flipping_set(readout.attention, readout.position_logits, readout.content).size
    single = (erase_each(readout).flips == 1).any(-1)
    assert single.equal(best == 1)


def test_erasing_everything_or_all_weight_is_no_flip():
    logits = torch.tensor([[[1.0, 0.0], [0.0, 5.0], [0.0, 1.0]]], dtype=torch.float64)
    content = torch.ones(1, 3).bool()
    one = Readout(torch.tensor([[1.0, 0.0, 0.0]]).double(), content, torch.tensor([0]), position_logits=logits)
    assert erase_in_order(one, one.attention).count.tolist() == [-1]
    half = Readout(torch.tensor([[0.9, 0.1, 0.0]]).double(), content, torch.tensor([0]), position_logits=logits)
    assert erase_in_order(half, half.attention).count.tolist() == [1]
    assert erase_in_order(half, -half.attention).count.tolist() == [-1]


@pytest.mark.parametrize("linear", [True, False])
def test_next_to_no_mass_and_ties_up_to_rounding_are_no_flip(linear):
    def count(weights, margins):
        logits = torch.stack([torch.zeros(1, len(weights)), torch.tensor([margins])], -1).double()
        attention = torch.tensor([weights], dtype=torch.float64)
        readout = Readout(attention, attention >= 0, torch.tensor([0]), position_logits=logits)
        if not linear:
            readout = Readout(attention, attention >= 0, torch.tensor([0]), decode=readout.logits)
        return int(erase_in_order(readout, torch.arange(len(weights), 0, -1.0)[None]).count)

    assert count([1.0, 1e-33], [-1.0, 3.0]) == -1
    assert count([1.0, 0.9e-12], [-1.0, 1.0]) == -1
    assert count([1.0, 2e-12], [-1.0, 1.0]) == 1
    # 0.1 + 0.2 − 0.3 is 5.6e-17 in float64: a tie; the next step leaves 0.2 − 0.3, and the last 0.3 against
    assert count([0.4, 0.1, 0.2, 0.3], [-1.0, 1.0, 1.0, -1.0]) == -1
    assert count([0.4, 0.3, 0.2, 0.1], [-1.0, -1.0, 1.0, 1.0]) == 2


def test_padding_and_batch_change_no_count():
    batch, padded = toy_batch([9, 4, 6]), toy_batch([9, 4, 6], padding=6)
    classifier = undecided(toy_classifier(classes=3, spread=4), batch)
    readout = toy_readout(classifier, batch)[1]
    expected = erase_in_order(readout, readout.attention)
    assert (expected.count > 0).any()
    wide = toy_readout(classifier, padded)[1]
    found = erase_in_order(wide, wide.attention)
    assert found.count.equal(expected.count)
    for row in range(3):
        alone = toy_readout(classifier, rows_of(batch, [row]))[1]
        assert int(erase_in_order(alone, alone.attention).count) == int(expected.count[row])


def test_a_batch_of_one_item_texts_never_flips():
    one = torch.ones(3, 1, dtype=torch.float64)
    logits = torch.randn(3, 1, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    readout = Readout(one, one.bool(), torch.arange(3), position_logits=logits)
    assert (erase_in_order(readout, torch.stack([one, -one])).count == -1).all()


def test_the_order_is_that_of_a_stable_sort():
    """Scores that differ in their last bits only, ties, zeros of both signs, nothing defined, and positions left out."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(40, 300, generator=generator, dtype=torch.float64) - 0.5
    content = torch.rand(40, 300, generator=generator) > 0.2
    content[0] = False
    undefined = noise.masked_fill(noise > 0.4, torch.nan)
    infinite = noise.masked_fill(noise > 0.4, torch.inf).masked_fill(noise < -0.4, -torch.inf)
    scores = torch.stack(
        [noise, 1 + noise * 1e-14, (4 * noise).round(), 0 * noise, noise * 1e-310, undefined, infinite]
    )
    assert (scores[3] == 0).all()
    assert scores[3].signbit().any()
    masked = scores.masked_fill(~content, -torch.inf)
    assert erasing_order(scores, content).equal(masked.sort(dim=-1, descending=True, stable=True).indices)
    small = scores[:1].float()
    assert erasing_order(small, content).equal(erasing_order(small.double(), content))
