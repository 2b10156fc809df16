import itertools

import numpy as np
import pytest
import torch

from attnprobe.core.readout import Readout
from attnprobe.exact import smallest_flipping_set
from attnprobe.exact.erasure import (
    WinningSet,
    decision,
    erase_each,
    erase_in_order,
    overtaken,
    smallest_winning_set,
)
from attnprobe.measures import LN2
from benchmarks import reference
from tests.exact.test_flipping import texts
from tests.toys import rows_of, toy_batch, toy_classifier, toy_readout, undecided


def readout_of(attention, position_logits, content=None, *, linear=True):
    attention = torch.as_tensor(attention, dtype=torch.float64)
    content = torch.ones_like(attention).bool() if content is None else content
    found = Readout(
        attention, content, torch.arange(len(attention)), position_logits=position_logits.double()
    )
    return found if linear else Readout(attention, content, found.example_id, decode=found.logits)


@pytest.mark.parametrize("question", [False, True])
@pytest.mark.parametrize("classes", [2, 4])
def test_single_erasures_equal_the_published_loop(classes, question):
    batch = toy_batch([9, 4, 1, *[2, 3, 5] * 6], padding=2, question=question)
    classifier = undecided(toy_classifier(classes=classes, spread=8, question=question), batch)
    outputs, readout = toy_readout(classifier, batch)
    found = erase_each(readout)
    assert found.flips.nansum() > 0
    for row in range(21):
        query = None if outputs.query is None else outputs.query[[row]]
        of_text = (one[row] for one in (outputs.hidden, readout.attention, batch.content))
        divergence, flips = reference.erase_singly(
            lambda attended, query=query: classifier.decoder(attended[None], query)[0], *of_text
        )
        # the textbook's form of the divergence adds 1e-10 against log 0
        torch.testing.assert_close(
            found.divergence[row], divergence, atol=1e-9, rtol=1e-6, equal_nan=True
        )
        torch.testing.assert_close(found.flips[row], flips, equal_nan=True)
    assert found.divergence[2].isnan().all()  # one word: nothing is left


def test_a_weight_of_nearly_one_costs_no_precision():
    rest = 1e-11
    logits = torch.tensor([[[9.0, 0.0], [0.0, 1.0], [0.0, 2.0]]])
    found = erase_each(readout_of([[1 - 3 * rest, rest, 2 * rest]], logits))
    # without the first: weights 1/3 and 2/3
    expected = torch.tensor([0.0, 5 / 3], dtype=torch.float64).softmax(-1)
    before = torch.tensor([9.0, 0.0], dtype=torch.float64).softmax(-1)
    torch.testing.assert_close(
        found.divergence[0, 0], reference.divergence(before, expected), atol=1e-9, rtol=0
    )
    assert found.flips[0].tolist() == [1, 0, 0]


@pytest.mark.parametrize("linear", [True, False])
def test_of_a_single_erasure_less_than_a_trillionth_of_the_mass_is_nothing_left(linear):
    """Rounding may leave 1e-33 beside a weight of 1: renormalised, it would be a prediction out of
    nothing."""
    logits = torch.tensor([[[1.0, 0.0], [0.0, 3.0]]])
    for rest, undefined in ((0.0, True), (1e-33, True), (0.9e-12, True), (2e-12, False)):
        found = erase_each(readout_of([[1 - rest, rest]], logits, linear=linear))
        assert found.divergence[0].isnan().tolist() == [undefined, False]
        assert found.flips[0].isnan().tolist() == [undefined, False]
        if not undefined:
            assert found.flips[0].tolist() == [1, 0]


def test_a_lead_is_rounding_by_the_largest_logit():
    logits = torch.tensor(
        [[0.0, 1e-9, -1e4], [0.0, 1e-9, -1.0], [0.0, 1e-9, 1.0]], dtype=torch.float64
    )
    assert overtaken(logits, torch.zeros(3, dtype=torch.long)).tolist() == [False, True, True]


def test_divergences_are_never_negative_and_neither_padding_nor_batch_changes_anything():
    batch = toy_batch([20, 30, 9])
    padded = toy_batch([20, 30, 9], padding=7)
    classifier = undecided(toy_classifier(classes=3, spread=4), batch)
    readout, wide = (toy_readout(classifier, one)[1] for one in (batch, padded))
    found = erase_each(readout).divergence
    counts = erase_in_order(readout, readout.attention).count
    assert ((found >= 0) & (found <= LN2)).sum() == 59
    assert (counts > 0).any()
    again = erase_each(wide).divergence[:, : found.shape[1]]
    torch.testing.assert_close(again, found, atol=1e-12, rtol=0, equal_nan=True)
    assert erase_in_order(wide, wide.attention).count.equal(counts)
    for row, length in enumerate((20, 30, 9)):
        alone = toy_readout(classifier, rows_of(batch, [row]))[1]
        one = erase_each(alone).divergence[0]
        torch.testing.assert_close(
            one, found[row, : length + 2], atol=1e-12, rtol=0, equal_nan=True
        )
        assert int(erase_in_order(alone, alone.attention).count) == int(counts[row])


def random_readout(count, seq, classes, *, linear=True):
    attention, logits, content = texts(count, seq, classes, seed=0, grid=False)
    return readout_of(attention, logits, content | (attention > 0), linear=linear)


@pytest.mark.parametrize("classes", [2, 4])
def test_erasures_in_order_equal_the_published_loop_on_hidden_states(classes):
    batch = toy_batch([12, 7, 1, 2, 9, 15], padding=1)
    classifier = undecided(toy_classifier(classes=classes, spread=4), batch)
    outputs, readout = toy_readout(classifier, batch)
    found = erase_in_order(readout, readout.attention)
    assert (found.count > 0).any()
    for row in range(6):
        order = (
            readout.attention[row]
            .argsort(descending=True)[: int(batch.content[row].sum())]
            .tolist()
        )
        count = reference.erase_until_flip(
            classifier.decoder, outputs.hidden[row], readout.attention[row], order
        )
        assert int(found.count[row]) == count
        if count > 0:
            assert float(found.mass[row]) == pytest.approx(
                float(readout.attention[row, order[:count]].sum())
            )


def test_any_decoder_gives_the_same_as_a_linear_one():
    readout, asked = (random_readout(80, 9, 3, linear=linear) for linear in (True, False))
    for scores in (readout.attention, -readout.attention):
        expected = erase_in_order(readout, scores)
        found = erase_in_order(asked, scores)
        assert (expected.count > 0).any()
        assert found.count.equal(expected.count)
        torch.testing.assert_close(found.mass, expected.mass, equal_nan=True)
    expected = erase_each(readout)
    found = erase_each(asked)
    torch.testing.assert_close(found.divergence, expected.divergence, equal_nan=True)
    torch.testing.assert_close(found.flips, expected.flips, equal_nan=True)


def test_the_best_order_for_two_classes_is_the_optimum():
    readout = random_readout(200, 12, 2)
    margin = readout.position_logits[..., 0] - readout.position_logits[..., 1]
    sign = torch.where(decision(readout) == 0, 1, -1).unsqueeze(-1)
    found = erase_in_order(readout, sign * readout.attention * margin)
    best = smallest_flipping_set(readout.attention, readout.position_logits, readout.content)
    assert found.count.equal(best.size)
    torch.testing.assert_close(
        found.mass.nan_to_num(), torch.where(best.members, readout.attention, 0).sum(-1)
    )


@pytest.mark.parametrize("linear", [True, False])
def test_next_to_no_mass_and_ties_up_to_rounding_are_no_flip(linear):
    def count(weights, margins):
        logits = torch.stack([torch.zeros(1, len(weights)), torch.tensor([margins])], -1)
        readout = readout_of([weights], logits, linear=linear)
        return int(erase_in_order(readout, torch.arange(len(weights), 0, -1.0)[None]).count)

    assert count([1.0, 1e-33], [-1.0, 3.0]) == -1
    assert count([1.0, 0.9e-12], [-1.0, 1.0]) == -1
    assert count([1.0, 2e-12], [-1.0, 1.0]) == 1
    # 0.1 + 0.2 − 0.3 is 5.6e-17 in float64: a tie; the next step leaves 0.2 − 0.3, and the last 0.3
    # against
    assert count([0.4, 0.1, 0.2, 0.3], [-1.0, 1.0, 1.0, -1.0]) == -1
    assert count([0.4, 0.3, 0.2, 0.1], [-1.0, -1.0, 1.0, 1.0]) == 2


def by_brute_force(margins):
    count = margins.shape[1]
    for size in range(count):
        for erased in itertools.combinations(range(count), size):
            if (np.delete(margins, erased, axis=1).sum(1) > 0).all():
                return size
    return -1


@pytest.mark.parametrize(("rivals", "count"), [(1, 6), (2, 7), (3, 8), (4, 9), (9, 8)])
@pytest.mark.parametrize("whole", [False, True])
def test_winning_sets_equal_brute_force_over_all_sets(rivals, count, whole):
    draw = np.random.default_rng([rivals, count, whole])
    sizes = []
    for _ in range(60):
        weight = draw.dirichlet(np.full(count, 0.5))
        margins = draw.normal(0.2, 1, (rivals, count)) * weight
        if whole:  # ties and zeros, exact in binary
            margins = draw.integers(-3, 5, (rivals, count)).astype(float)
        found = smallest_winning_set(margins)
        truth = by_brute_force(margins)
        # sums of exactly 0 satisfy the solver and not us: there the bounds may stay apart
        assert found.size == found.bound or whole
        assert found.size == truth or (found.size == -1 != found.bound)
        assert found.bound <= truth or truth == -1
        sorting = smallest_winning_set(margins, nodes=0)  # without a search the bounds hold
        assert sorting.bound <= truth or truth == -1
        assert truth <= sorting.size or sorting.size == -1
        sizes.append(found.size)
    assert len(set(sizes)) > 2


def test_the_smallest_winning_sets_of_small_problems_are_those_found_by_hand():
    # alone, either rival is beaten by erasing one position; both together only by erasing two
    assert smallest_winning_set(np.array([[-3.0, 1.0, 1.0], [1.0, -3.0, 1.0]])) == WinningSet(2, 2)
    # sums that have to be above a bound of their own: 3 is not above 3
    assert smallest_winning_set(np.ones((2, 3)), least=np.array([0.0, 3.0])) == WinningSet(-1, -1)
    # 0.1 + 0.2 − 0.3 is 5.6e-17 in float64: a tie, which erasing the last position breaks
    tie = np.array([[0.1, 0.2, -0.3]])
    assert smallest_winning_set(tie, least=1e-12) == WinningSet(1, 1)
    assert smallest_winning_set(tie) == WinningSet(0, 0)
    # each rival can be beaten, but never by the same position
    assert smallest_winning_set(np.array([[1.0, -2.0], [-2.0, 1.0]])) == WinningSet(-1, -1)
