import numpy as np
import pytest
import torch
from captum.attr import GradientShap as CaptumGradientShap
from captum.attr import InputXGradient, Saliency
from captum.attr import IntegratedGradients as Direct
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.core.randomness import Draws
from attnprobe.importance.attribution import seeded
from attnprobe.importance.gradients import DeepLift, GradientShap, IntegratedGradients, SmoothGrad
from tests.importance.attributions import additive_subject, contextual_subject, words_shares


def test_of_two_exclusive_classes_the_difference_is_attributed():
    """One of two logits may be a constant 0: its gradient would be 0 as well."""
    subject = contextual_subject(classes=2)
    assert (subject.outputs.logits[:, 0] == 0).all()
    scores = subject.scores("gradient_input")
    assert scores.any(-1).all()


@pytest.fixture
def logits_of_vectors():
    """The subject, its model as a function of the word vectors, and these."""
    subject = contextual_subject()
    model = subject.classifier

    def logits(vectors):
        return model.outputs_from(subject.batch, vectors).logits

    inputs = model.inputs(subject.batch).detach().requires_grad_()
    return subject, logits, inputs


def test_gradient_input_is_captums_direct_call(logits_of_vectors):
    subject, logits, inputs = logits_of_vectors
    target = subject.outputs.logits.argmax(-1)
    products = InputXGradient(logits).attribute(inputs, target=target).detach()
    expected = products.sum(-1) * subject.batch.content
    assert_close(subject.scores("gradient_input"), expected)


def test_saliency_is_the_length_of_captums_slopes(logits_of_vectors):
    subject, logits, inputs = logits_of_vectors
    target = subject.outputs.logits.argmax(-1)
    slopes = Saliency(logits).attribute(inputs, target=target, abs=False).detach()
    expected = slopes.norm(dim=-1) * subject.batch.content
    assert_close(subject.scores("saliency"), expected)


def test_gradient_attention_is_weight_times_gradient():
    """The gradient itself by finite differences: tests/core/test_readout.py."""
    subject = contextual_subject()
    expected = subject.readout.gradient() * subject.readout.attention
    assert_close(subject.scores("gradient_attention"), expected)


def test_grad_cam_is_the_weighted_sum_of_the_states_text_by_text():
    subject = contextual_subject()
    model = subject.classifier
    scores = subject.scores("grad_cam")
    for row in range(len(subject.batch)):
        text = subject.batch.rows(slice(row, row + 1))
        outputs = model.outputs_from(text, model.inputs(text))
        [content] = text.content
        highest_logit = outputs.logits.max()
        (gradient,) = torch.autograd.grad(highest_logit, outputs.hidden)
        weight = gradient[0, content].mean(0)
        states = outputs.hidden[0, content].detach()
        expected = (states @ weight).relu()
        assert_close(scores[row, content], expected)


def test_without_noise_to_speak_of_it_is_gradient_times_input():
    subject = contextual_subject(importances={"smooth_grad": SmoothGrad(noise=1e-9)})
    expected = subject.scores("gradient_input")
    assert_close(subject.scores("smooth_grad"), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("target", "first", "second"),
    [
        ("class 2", 2, None),
        ("contrast", None, 1),
    ],
)
def test_the_target_is_a_setting(target, first, second):
    importance = IntegratedGradients(target=target)
    subject = additive_subject(importances={"integrated_gradients": importance})
    expected = words_shares(subject, first=first, second=second)
    assert_close(subject.scores("integrated_gradients"), expected)


@pytest.mark.parametrize(
    ("target", "first", "second"),
    [
        ("class 2", 2, None),
        ("contrast", None, 1),
    ],
)
def test_against_the_mean_of_the_text_the_scores_are_centred(target, first, second):
    subject = additive_subject()
    content = subject.batch.content
    shares = words_shares(subject, first=first, second=second)
    words = content.sum(-1, keepdim=True)
    mean = shares.sum(-1, keepdim=True) / words
    expected = torch.where(content, shares - mean, 0)
    scores = IntegratedGradients(target=target, baseline="mean").scores(subject)
    assert_close(scores, expected)


def test_an_unknown_class_is_refused_with_the_nearest_name():
    importance = IntegratedGradients(target="clas 1")
    message = r"target=clas 1: there is no such class; did you mean class 1\?"
    with pytest.raises(UserError, match=message):
        importance.named_class(["class 0", "class 1"])


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(UserError, match="baseline=median: expected zeros or mean"):
        IntegratedGradients(baseline="median")
    with pytest.raises(UserError, match="steps=512: expected no more than most_steps=255"):
        IntegratedGradients(steps=512)


def test_integrated_gradients_are_captums_by_another_quadrature():
    exact = IntegratedGradients(most_steps=511, gap=1e-12)
    subject = contextual_subject(importances={"integrated_gradients": exact})
    model = subject.classifier
    batch = subject.batch
    predicted = subject.outputs.logits.argmax(-1)
    scores = subject.scores("integrated_gradients")
    for row in range(len(batch)):
        text = batch.rows(slice(row, row + 1))

        def logits(vectors, text=text):
            same_text = torch.zeros(len(vectors), dtype=torch.long)
            return model.outputs_from(text.rows(same_text), vectors).logits

        inputs = model.inputs(text).detach()
        baseline = inputs.masked_fill(text.content.unsqueeze(-1), 0)
        [parts] = Direct(logits).attribute(
            inputs,
            baseline,
            target=predicted[[row]],
            n_steps=256,
        )
        assert_close(scores[row], parts.sum(-1), atol=1e-8, rtol=0)


def largest_gap(**settings):
    """How far the scores of a text are from adding up, at most; the note says the same."""
    importance = IntegratedGradients(**settings)
    subject = contextual_subject(importances={"integrated_gradients": importance})
    score_sum = subject.scores("integrated_gradients").sum(-1)
    gap = (score_sum - importance.total(subject)).abs().max().item()
    (note,) = importance.notes(subject)
    assert note.value == gap
    return gap


def test_the_scores_add_up_to_within_the_gap_or_all_steps_were_taken():
    after_one_step = largest_gap(steps=1, most_steps=1)
    after_three_steps = largest_gap(steps=1, most_steps=3, gap=1e-12)
    assert after_one_step > 1e-3
    assert largest_gap(steps=1, most_steps=256) <= 1e-3
    assert 1e-4 < after_three_steps < after_one_step


def test_gradient_shap_is_captums_own_on_the_same_draws():
    importance = GradientShap(samples=8, noise=0.1)
    subject = contextual_subject(importances={"gradient_shap": importance})
    [scores, *_] = subject.scores("gradient_shap")
    text = subject.cached(importance.explained).alone(0)

    def explained(vectors):
        same_text = torch.zeros(len(vectors), dtype=torch.long)
        return text(vectors, same_text)

    spread = 0.1 * float(text.inputs.max() - text.inputs.min())
    inputs = text.inputs.clone().requires_grad_()
    example = int(subject.batch.example_id[0])
    with seeded(Draws(subject.seed, importance.name).generator(example)):
        [parts] = CaptumGradientShap(explained).attribute(
            inputs,
            text.baseline,
            n_samples=8,
            stdevs=spread,
        )
    expected = parts.sum(-1).detach()
    assert_close(
        scores[subject.batch.content[0]],
        expected[text.batch.content[0]],
    )


@pytest.mark.parametrize("name", ["gradient_input", "integrated_gradients", "gradient_shap"])
def test_on_an_additive_model_it_is_what_each_word_adds(name):
    subject = additive_subject()
    assert_close(subject.scores(name), words_shares(subject), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", ["smooth_grad", "gradient_shap"])
def test_the_generators_are_left_as_they_were(name):
    before = torch.random.get_rng_state()
    numpy_before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = contextual_subject().scores(name)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (np.random.get_state()[1] == numpy_before).all()  # noqa: NPY002
    assert torch.equal(contextual_subject().scores(name), first)
    assert not torch.equal(contextual_subject(seed=1).scores(name), first)


@pytest.fixture
def additive():
    return additive_subject()


def test_deep_lift_of_a_linear_model_is_weight_times_difference(additive):
    explained = DeepLift().explained(additive)
    inputs = explained.inputs.clone().requires_grad_()
    (weight,) = torch.autograd.grad(explained(inputs).sum(), inputs)
    difference = explained.inputs - explained.baseline
    expected = (weight * difference).sum(-1).double()
    scores = DeepLift().scores(additive)
    content = additive.batch.content
    assert_close(scores[content], expected[content])


def test_deep_lift_of_a_linear_model_adds_up_without_a_gap(additive):
    importance = DeepLift()
    score_sum = importance.scores(additive).sum(-1)
    assert_close(score_sum, importance.total(additive), atol=1e-6, rtol=1e-6)
    (gap,) = importance.notes(additive)
    assert gap.value == 0.0


def test_padding_changes_no_score_of_deep_lift(additive):
    content = additive.batch.content
    scores = DeepLift().scores(additive)
    padded_scores = DeepLift().scores(additive_subject(padding=3))
    unpadded_scores = padded_scores[:, : content.shape[1]]
    assert_close(unpadded_scores[content], scores[content])


def test_deep_lift_from_the_mean_word_says_nothing_of_a_text_of_one_word(additive):
    scores = DeepLift(baseline="mean").scores(additive)
    assert scores.any(-1).tolist() == [True, True, True, False]


def test_deep_lift_is_refused_where_no_texts_scores_add_up():
    with pytest.raises(UserError, match=r"deep_lift.*miss.*integrated_gradients"):
        DeepLift(gap=1e-6).scores(contextual_subject())
