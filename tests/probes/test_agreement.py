import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.randomness import Draws
from attnprobe.exact.erasure import erase_each
from attnprobe.importance.base import Subject
from attnprobe.importance.gradients import gradients
from attnprobe.importance.nulls import aligned, gradients_under, removals_under
from attnprobe.measures import kendall_tau
from attnprobe.probes.agreement import Agreement
from tests.probes.tables import values
from tests.toys import toy_batch, toy_classifier, toy_readout


@pytest.mark.parametrize("classes", [2, 3])
def test_the_gradient_under_the_models_own_attention_is_its_gradient(classes):
    classifier = toy_classifier(spread=4, classes=classes)
    batch = toy_batch([6, 4], classes=classes)
    _, readout = toy_readout(classifier, batch)
    attentions = torch.stack([readout.attention, readout.attention.flip(0)])
    gradient, flipped_gradient = gradients_under(classifier, batch, attentions)
    expected = gradients(classifier, batch).embedding
    assert_close(gradient, expected, rtol=1e-9, atol=1e-12)
    assert not torch.equal(flipped_gradient, gradient)


def test_without_context_removing_a_word_under_an_attention_is_erasing_its_weight():
    classifier = toy_classifier("average", spread=4)
    batch = toy_batch([6, 4, 1])
    _, readout = toy_readout(classifier, batch)
    attentions = readout.attention.unsqueeze(0)
    (numbers,) = removals_under(classifier, batch, readout, attentions, chunk=16)
    for row, item in batch.content.nonzero().tolist():
        rest = readout.attention.clone()
        rest[row, item] = 0
        if rest[row].sum() == 0:
            assert numbers[row, item].isnan()
            continue
        rest[row] /= rest[row].sum()
        distance = readout.distance(readout.predict(rest), readout.prediction())[row]
        assert float(numbers[row, item]) == pytest.approx(float(distance), abs=1e-9)
    assert (numbers.isnan() == erase_each(readout).divergence.isnan()).all()


def test_with_context_the_shortened_text_is_encoded():
    classifier = toy_classifier(spread=4)
    batch = toy_batch([5])
    _, readout = toy_readout(classifier, batch)
    numbers = removals_under(classifier, batch, readout, readout.attention.unsqueeze(0))[0, 0]
    text = classifier.without(batch, torch.tensor([0]), torch.tensor([3]))
    weights = readout.attention[:, [0, 1, 2, 4, 5, 6]]
    weights = weights / weights.sum(-1, keepdim=True)
    shortened = classifier.outputs_from(text, classifier.inputs(text), weights).logits.softmax(-1)
    expected = (shortened - readout.prediction()).abs().sum() / 2
    assert float(numbers[3]) == pytest.approx(float(expected.detach()), abs=1e-12)


def test_no_order_of_the_weights_agrees_better_than_the_aligned_one():
    content = torch.tensor([[False, True, True, True, True, False]])
    attention = torch.tensor([[0.0, 0.1, 0.4, 0.4, 0.1, 0.0]])
    scores = torch.tensor([[9.0, 3.0, 1.0, 2.0, 4.0, 9.0]])
    best = aligned(attention, scores, content)
    assert best.tolist() == [
        [0.0, pytest.approx(0.4), pytest.approx(0.1), pytest.approx(0.1), pytest.approx(0.4), 0.0]
    ]
    highest = kendall_tau(best, scores, content)
    for _ in range(50):
        order = torch.randperm(4)
        permuted = attention.clone()
        permuted[0, 1:5] = attention[0, 1:5][order]
        assert kendall_tau(permuted, scores, content) <= highest + 1e-6


def test_a_meaningless_attention_agrees_with_its_own_gradient_and_its_null_says_so():
    """The skill of a random attention is about 0, though its τ with the gradient is far above 0.

    Without context the gradient has the attention as a factor, and so has the null's.
    """
    classifier = toy_classifier("average", spread=0.01)
    batch = toy_batch([20] * 60)
    noise = Draws(3, "x").normal(1, batch.content, batch.example_id)[0]
    attention = (2 * noise.masked_fill(~batch.content, -torch.inf)).softmax(-1)
    outputs, _ = toy_readout(classifier, batch)
    meaningless = type(outputs)(**{**vars(outputs), "attention": attention})
    subject = Subject(classifier, batch, meaningless, classifier.readout(batch, meaningless))

    numbers = values(Agreement(share=1.0, removals=False), subject)
    means = {name: value.double().mean() for name, value in numbers.items()}
    tau = means["tau_gradient_own"]
    null = means["tau_gradient_null"]
    assert tau > 0.4
    assert abs((tau - null) / (means["tau_gradient_best"] - null)) < 0.1
    assert abs(means["tau_free_gradient"]) < 0.1
