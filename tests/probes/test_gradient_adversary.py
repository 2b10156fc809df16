from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.randomness import Draws
from attnprobe.core.readout import Readout
from attnprobe.measures import jensen_shannon
from attnprobe.probes.adversarial import OUTSIDE, objective_gradient, search_adversary
from benchmarks import reference
from tests.toys import rows_of, toy_batch, toy_classifier, toy_readout


def start_for(readout, restarts=5):
    return 3 * Draws(0, "adversarial").normal(restarts, readout.content, readout.example_id)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("epsilon", [0.01, 0.2])
def test_takes_the_same_path_as_autograd_on_the_published_objective(classes, epsilon):
    classifier = toy_classifier(classes=classes, spread=4)
    batch = toy_batch([6, 9, 4])
    outputs, readout = toy_readout(classifier, batch)
    start = start_for(readout)
    adversary = search_adversary(readout, start, epsilon=epsilon, steps=120)
    attention, tvd = reference.adversary(
        classifier,
        outputs.hidden,
        readout.attention,
        batch.content,
        epsilon=epsilon,
        steps=120,
        start=start.transpose(0, 1),
    )
    jsd = reference.divergence(attention, readout.attention.unsqueeze(1)).masked_fill(
        tvd > epsilon, 0
    )
    assert_close(adversary.jsd, jsd.amax(1), atol=1e-6, rtol=0)
    assert_close(adversary.feasible, (tvd <= epsilon).double().mean(1))
    assert (adversary.tvd <= epsilon).all()


@pytest.mark.parametrize("classes", [2, 3])
def test_a_decoder_that_is_not_linear_is_differentiated_by_autograd_to_the_same_gradient(classes):
    classifier = toy_classifier(classes=classes, spread=4)
    batch = toy_batch([6, 4])
    outputs, linear = toy_readout(classifier, batch)
    generic = Readout(
        linear.attention,
        linear.content,
        linear.example_id,
        decode=lambda attention: classifier.decoder.decode(outputs.hidden, attention),
    )
    logits = start_for(linear).masked_fill(~linear.content, OUTSIDE)

    def gradient(readout, penalty):
        return objective_gradient(
            logits, readout, linear.prediction(), epsilon=0.001, penalty=penalty, diversity=1.0
        )

    derived = gradient(linear, penalty=500.0)
    without = gradient(linear, penalty=0.0)
    assert_close(derived, gradient(generic, penalty=500.0))
    assert (derived - without).abs().sum() > 0


@pytest.mark.parametrize("restarts", [1, 2, 5, 40])
@pytest.mark.parametrize("precision", [torch.float64, torch.float32])
def test_any_number_of_restarts_follows_the_objective_gradient_the_objective_as_it_is_written(
    restarts, precision
):
    """40 restarts: more factors than one logarithm holds. Peaked starts: weights down to 1e-12
    among them."""
    _, readout = toy_readout(toy_classifier(classes=3, spread=4), toy_batch([6, 9]))
    readout = replace(
        readout,
        attention=readout.attention.to(precision),
        position_logits=readout.position_logits.to(precision),
    )
    start = (3 * start_for(readout, restarts)).to(precision)
    logits = start.masked_fill(~readout.content, OUTSIDE).contiguous()
    gradient = objective_gradient(
        logits, readout, readout.prediction(), epsilon=0.01, penalty=500.0, diversity=1.0
    )

    free = start.double().requires_grad_()
    doubled = replace(
        readout,
        attention=readout.attention.double(),
        position_logits=readout.position_logits.double(),
    )
    attention = free.masked_fill(~doubled.content, -torch.inf).softmax(-1)
    away = jensen_shannon(attention, doubled.attention).sum()
    pairs = jensen_shannon(attention.unsqueeze(0), attention.unsqueeze(1)).sum() / restarts**2
    excess = (
        (doubled.distance(doubled.predict(attention), doubled.prediction()) - 0.01).relu().sum()
    )
    (expected,) = torch.autograd.grad(-away - pairs + 500 * excess, free)
    tolerance = (
        {"atol": 1e-12, "rtol": 1e-9}
        if precision == torch.float64
        else {"atol": 2e-3, "rtol": 1e-3}
    )
    assert_close(gradient.double(), expected, **tolerance)


def test_batch_and_padding_change_no_number_after_500_steps():
    classifier = toy_classifier(spread=4)
    batch = toy_batch([5, 9, 2])
    padded = toy_batch([5, 9, 2], padding=4)

    def search(texts):
        readout = toy_readout(classifier, texts)[1]
        return search_adversary(readout, start_for(readout), epsilon=0.01)

    expected = search(batch)
    padded_result = search(padded)
    assert_close(padded_result.jsd, expected.jsd, atol=1e-6, rtol=0)
    assert_close(padded_result.attention[:, :11], expected.attention, atol=1e-6, rtol=0)
    for row in range(3):
        [jsd] = search(rows_of(batch, [row])).jsd
        assert_close(jsd, expected.jsd[row], atol=1e-6, rtol=0)


def test_no_feasible_restart_leaves_the_original():
    classifier = toy_classifier(spread=30)
    batch = toy_batch([6, 8])
    _, readout = toy_readout(classifier, batch)
    adversary = search_adversary(readout, start_for(readout), epsilon=0.0, steps=0)
    assert (adversary.feasible == 0).all()
    assert torch.equal(adversary.attention, readout.attention)
    assert (adversary.jsd == 0).all()
