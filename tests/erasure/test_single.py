import pytest
import torch

from attnprobe.erasure import erase_each
from attnprobe.erasure.single import overtaken, without
from attnprobe.measures import LN2
from attnprobe.readout import Readout
from benchmarks import reference
from tests.erasure.toys import undecided
from tests.toys import rows_of, toy_batch, toy_classifier, toy_readout


def readout_of(attention, position_logits, content=None):
    attention = torch.as_tensor(attention, dtype=torch.float64)
    content = torch.ones_like(attention).bool() if content is None else content
    return Readout(attention, content, torch.arange(len(attention)), position_logits=position_logits.double())


@pytest.mark.parametrize("question", [False, True])
@pytest.mark.parametrize("classes", [2, 4])
def test_equals_the_published_loop(classes, question):
    batch = toy_batch([9, 4, 1, *[2, 3, 5] * 6], padding=2, question=question)
    classifier = undecided(toy_classifier(classes=classes, spread=8, question=question), batch)
    outputs, readout = toy_readout(classifier, batch)
    found = erase_each(readout)
    assert found.flips.nansum() > 0
    for row in range(21):
        query = None if outputs.query is None else outputs.query[[row]]
        divergence, flips = reference.erase_singly(
            lambda attended, query=query: classifier.decoder(attended[None], query)[0],
            outputs.hidden[row],
            readout.attention[row],
            batch.content[row],
        )
        # the textbook's form of the divergence adds 1e-10 against log 0
        torch.testing.assert_close(found.divergence[row], divergence, atol=1e-9, rtol=1e-6, equal_nan=True)
        torch.testing.assert_close(found.flips[row], flips, equal_nan=True)
    assert found.divergence[2].isnan().all()  # one word: nothing is left


def test_any_decoder_gives_the_same_as_a_linear_one():
    _, readout = toy_readout(toy_classifier(classes=3, spread=4), toy_batch([9, 4, 1]))
    asked = Readout(readout.attention, readout.content, readout.example_id, decode=readout.logits)
    expected, found = erase_each(readout), erase_each(asked)
    torch.testing.assert_close(found.divergence, expected.divergence, equal_nan=True)
    torch.testing.assert_close(found.flips, expected.flips, equal_nan=True)


def test_a_weight_of_one_and_weights_of_zero():
    logits = torch.tensor([[[1.0, 0.0], [0.0, 3.0], [0.0, 1.0]]])
    found = erase_each(readout_of([[1.0, 0.0, 0.0]], logits))
    assert found.divergence[0].isnan().tolist() == [True, False, False]
    assert found.divergence[0, 1:].tolist() == pytest.approx([0, 0], abs=1e-30)
    assert found.flips[0, 1:].tolist() == [0, 0]


def test_a_weight_of_nearly_one_costs_no_precision():
    rest = 1e-11
    logits = torch.tensor([[[9.0, 0.0], [0.0, 1.0], [0.0, 2.0]]])
    found = erase_each(readout_of([[1 - 3 * rest, rest, 2 * rest]], logits))
    # without the first: weights 1/3 and 2/3
    expected = torch.tensor([0.0, 5 / 3], dtype=torch.float64).softmax(-1)
    before = torch.tensor([9.0, 0.0], dtype=torch.float64).softmax(-1)
    torch.testing.assert_close(found.divergence[0, 0], reference.divergence(before, expected), atol=1e-9, rtol=0)
    assert found.flips[0].tolist() == [1, 0, 0]


@pytest.mark.parametrize("linear", [True, False])
def test_less_than_a_trillionth_of_the_mass_is_nothing_left(linear):
    """Rounding may leave 1e-33 beside a weight of 1: renormalised, it would be a prediction out of nothing."""
    logits = torch.tensor([[[1.0, 0.0], [0.0, 3.0]]])
    for rest, undefined in ((0.0, True), (1e-33, True), (0.9e-12, True), (2e-12, False)):
        readout = readout_of([[1 - rest, rest]], logits)
        if not linear:
            readout = Readout(readout.attention, readout.content, readout.example_id, decode=readout.logits)
        found = erase_each(readout)
        assert found.divergence[0].isnan().tolist() == [undefined, False]
        assert found.flips[0].isnan().tolist() == [undefined, False]
        if not undefined:
            assert found.flips[0].tolist() == [1, 0]


@pytest.mark.parametrize("linear", [True, False])
def test_a_tie_up_to_rounding_is_no_flip(linear):
    """0.1 + 0.2 − 0.3 is 5.6e-17 in float64: without the first item both classes are level."""
    weights = torch.tensor([[0.4, 0.1, 0.2, 0.3]], dtype=torch.float64)
    for class_ahead in (0, 1):
        logits = torch.zeros(1, 4, 2)
        logits[0, 0, 0] = 1
        logits[0, 1:3, 1 - class_ahead] = 1
        logits[0, 3, class_ahead] = 1
        readout = readout_of(weights, logits)
        if not linear:
            readout = Readout(readout.attention, readout.content, readout.example_id, decode=readout.logits)
        assert erase_each(readout).flips[0, 0] == 0


def test_a_tie_is_no_flip():
    found = erase_each(readout_of([[0.5, 0.25, 0.25]], torch.tensor([[[2.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])))
    assert found.flips.tolist() == [[0, 0, 0]]


def test_a_lead_is_rounding_by_the_largest_logit():
    logits = torch.tensor([[0.0, 1e-9, -1e4], [0.0, 1e-9, -1.0], [0.0, 1e-9, 1.0]], dtype=torch.float64)
    assert overtaken(logits, torch.zeros(3, dtype=torch.long)).tolist() == [False, True, True]


def test_divergences_are_never_negative_and_padding_changes_none():
    classifier = toy_classifier(classes=3, spread=1)
    batch, padded = toy_batch([20, 30]), toy_batch([20, 30], padding=7)
    found = erase_each(toy_readout(classifier, batch)[1]).divergence
    assert ((found >= 0) & (found <= LN2)).sum() == 50
    wide = erase_each(toy_readout(classifier, padded)[1]).divergence
    torch.testing.assert_close(wide[:, : found.shape[1]], found, atol=1e-12, rtol=0, equal_nan=True)
    alone = erase_each(toy_readout(classifier, rows_of(batch, [0]))[1]).divergence
    torch.testing.assert_close(alone[0], found[0, :22], atol=1e-12, rtol=0, equal_nan=True)


def test_sums_without_each_by_subtraction():
    values = torch.randn(4, 3, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(without(values), values.sum(-1, keepdim=True) - values)
