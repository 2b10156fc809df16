import numpy as np
import pytest
import torch
from captum.attr import GradientShap as CaptumGradientShap
from captum.attr import InputXGradient, Saliency
from captum.attr import IntegratedGradients as Direct

from attnprobe.core.errors import UserError
from attnprobe.core.randomness import Draws
from attnprobe.importance.attribution import seeded
from attnprobe.importance.gradients import DeepLift, GradientShap, IntegratedGradients, SmoothGrad
from tests.importance.attributions import additive_subject, contextual_subject, words_shares


def test_of_two_exclusive_classes_the_difference_is_attributed():
    """One of two logits may be a constant 0: its gradient would be 0 as well."""
    subject = contextual_subject(classes=2)
    assert (subject.outputs.logits[:, 0] == 0).all()
    assert (subject.scores("gradient_input").abs().sum(-1) > 0).all()


def test_gradient_input_and_saliency_are_captums_direct_calls():
    subject = contextual_subject()
    model = subject.classifier
    batch = subject.batch
    target = subject.outputs.logits.argmax(-1)
    inputs = model.inputs(batch).detach().requires_grad_()
    content = batch.content.unsqueeze(-1)
    methods = [
        kind(lambda vectors: model.outputs_from(batch, vectors).logits)
        for kind in (InputXGradient, Saliency)
    ]
    products = methods[0].attribute(inputs, target=target) * content
    torch.testing.assert_close(subject.scores("gradient_input"), products.sum(-1).detach())
    slopes = methods[1].attribute(inputs, target=target, abs=False) * content
    torch.testing.assert_close(subject.scores("saliency"), slopes.norm(dim=-1).detach())
    # the gradient itself by finite differences: tests/core/test_readout.py
    weighted = subject.readout.gradient() * subject.readout.attention
    torch.testing.assert_close(subject.scores("gradient_attention"), weighted)


def test_grad_cam_is_the_weighted_sum_of_the_states_text_by_text():
    subject = contextual_subject()
    model = subject.classifier
    for row in range(len(subject.batch)):
        text = subject.batch.rows(slice(row, row + 1))
        outputs = model.outputs_from(text, model.inputs(text))
        content = text.content[0]
        target = outputs.logits[0, outputs.logits[0].argmax()]
        (gradient,) = torch.autograd.grad(target, outputs.hidden)
        weight = gradient[0, content].mean(0)
        expected = torch.stack(
            [torch.dot(weight, state) for state in outputs.hidden[0, content]]
        ).relu()
        torch.testing.assert_close(subject.scores("grad_cam")[row][content], expected.detach())


def test_without_noise_to_speak_of_it_is_gradient_times_input():
    subject = contextual_subject(importances={"smooth_grad": SmoothGrad(noise=1e-9)})
    expected = subject.scores("gradient_input")
    torch.testing.assert_close(subject.scores("smooth_grad"), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("target", "first", "second"), [("class 2", 2, None), ("contrast", None, 1)]
)
def test_the_target_is_a_setting(target, first, second):
    importance = IntegratedGradients(target=target)
    subject = additive_subject(importances={"integrated_gradients": importance})
    expected = words_shares(subject, first=first, second=second)
    torch.testing.assert_close(subject.scores("integrated_gradients"), expected)
    content = subject.batch.content  # against the mean of the text
    centred = (
        expected - expected.sum(-1, keepdim=True) / content.sum(-1, keepdim=True)
    ).masked_fill(~content, 0)
    torch.testing.assert_close(
        IntegratedGradients(target=target, baseline="mean").scores(subject), centred
    )


def test_what_cannot_be_is_refused_with_the_nearest_name():
    with pytest.raises(
        UserError, match=r"target=clas 1: there is no such class; did you mean class 1\?"
    ):
        IntegratedGradients(target="clas 1").named_class(["class 0", "class 1"])
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
    for row in range(len(batch)):
        text = batch.rows(slice(row, row + 1))

        def direct(vectors, text=text):
            return model.outputs_from(
                text.rows(torch.zeros(len(vectors), dtype=torch.long)), vectors
            ).logits

        inputs = model.inputs(text).detach()
        baseline = inputs.masked_fill(text.content.unsqueeze(-1), 0)
        scores = (
            Direct(direct)
            .attribute(inputs, baseline, target=predicted[row : row + 1], n_steps=256)
            .sum(-1)
        )
        torch.testing.assert_close(
            subject.scores("integrated_gradients")[row], scores[0], atol=1e-8, rtol=0
        )


def test_the_scores_add_up_to_within_the_gap_or_all_steps_were_taken():
    def gap(**settings):
        importance = IntegratedGradients(**settings)
        subject = contextual_subject(importances={"integrated_gradients": importance})
        (note,) = importance.notes(subject)
        scores = (
            (subject.scores("integrated_gradients").sum(-1) - importance.total(subject)).abs().max()
        )
        assert note.value == float(scores)
        return float(scores)

    rough = gap(steps=1, most_steps=1)
    assert rough > 1e-3
    assert gap(steps=1, most_steps=256) <= 1e-3
    assert 1e-4 < gap(steps=1, most_steps=3, gap=1e-12) < rough


def test_gradient_shap_is_captums_own_on_the_same_draws():
    subject = contextual_subject(importances={"gradient_shap": GradientShap(samples=8, noise=0.1)})
    member = subject.importance("gradient_shap")
    scores = subject.scores("gradient_shap")
    text = subject.cached(member.explained).alone(0)
    with seeded(Draws(subject.seed, member.name).generator(int(subject.batch.example_id[0]))):
        spread = 0.1 * float(text.inputs.max() - text.inputs.min())
        method = CaptumGradientShap(
            lambda vectors: text(vectors, torch.zeros(len(vectors), dtype=torch.long))
        )
        inputs = text.inputs.clone().requires_grad_()
        direct = method.attribute(inputs, text.baseline, n_samples=8, stdevs=spread)
    expected = direct.sum(-1)[0, text.batch.content[0]].detach()
    torch.testing.assert_close(scores[0, subject.batch.content[0]], expected)


@pytest.mark.parametrize("name", ["gradient_input", "integrated_gradients", "gradient_shap"])
def test_on_an_additive_model_it_is_what_each_word_adds(name):
    subject = additive_subject()
    torch.testing.assert_close(subject.scores(name), words_shares(subject), rtol=1e-6, atol=1e-6)


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
    torch.testing.assert_close(scores[content], expected[content])


def test_deep_lift_of_a_linear_model_adds_up_without_a_gap(additive):
    importance = DeepLift()
    score_sum = importance.scores(additive).sum(-1)
    torch.testing.assert_close(score_sum, importance.total(additive), atol=1e-6, rtol=1e-6)
    (gap,) = importance.notes(additive)
    assert gap.value == 0.0


def test_padding_changes_no_score_of_deep_lift(additive):
    content = additive.batch.content
    scores = DeepLift().scores(additive)
    padded_scores = DeepLift().scores(additive_subject(padding=3))
    unpadded_scores = padded_scores[:, : content.shape[1]]
    torch.testing.assert_close(unpadded_scores[content], scores[content])


def test_deep_lift_from_the_mean_word_says_nothing_of_a_text_of_one_word(additive):
    scores = DeepLift(baseline="mean").scores(additive)
    assert scores.any(-1).tolist() == [True, True, True, False]


def test_deep_lift_is_refused_where_no_texts_scores_add_up():
    with pytest.raises(UserError, match=r"deep_lift.*miss.*integrated_gradients"):
        DeepLift(gap=1e-6).scores(contextual_subject())
