"""Importances by derivatives: against finite differences, captum's own calls, and by hand on an additive model."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from captum.attr import GradientShap as CaptumGradientShap
from captum.attr import InputXGradient, Saliency
from captum.attr import IntegratedGradients as Direct

from attnprobe.core.errors import UserError
from attnprobe.core.randomness import Draws
from attnprobe.importance.attribution import AT_ONCE, Explained, per_word, seeded, texts_at_once
from attnprobe.importance.gradients import DeepLift, GradientShap, IntegratedGradients, SmoothGrad
from tests.importance.attributions import additive_subject, contextual_subject, words_shares
from tests.importance.subjects import LENGTHS, subject_of


@pytest.mark.parametrize("question", [False, True])
def test_gradient_attention_equals_finite_differences_of_each_weight(question):
    subject = subject_of(question=question)
    model, outputs, batch = subject.classifier, subject.outputs, subject.batch
    chosen = outputs.logits.argmax(-1)

    def p(weights):
        with torch.no_grad():
            return model.decode(outputs.hidden, weights, outputs.query, batch.candidates).softmax(-1)

    for row, length in enumerate(LENGTHS):
        for t in range(1, length + 1):
            step = torch.zeros_like(outputs.attention)
            step[row, t] = 1e-5
            change = (p(outputs.attention + step) - p(outputs.attention - step))[row, chosen[row]] / 2e-5
            expected = float(change * outputs.attention[row, t])
            assert float(subject.scores("gradient_attention")[row, t]) == pytest.approx(expected, rel=1e-4, abs=1e-9)


def test_of_two_exclusive_classes_the_difference_is_attributed():
    """One of two logits may be a constant 0: its gradient would be 0 as well."""
    subject = contextual_subject(classes=2)
    logits = subject.classifier(subject.batch).logits
    assert (logits[:, 0] == 0).all()
    assert (subject.scores("gradient_input").abs().sum(-1) > 0).all()


def test_gradient_input_is_captums_direct_call():
    subject = contextual_subject()
    model, batch = subject.classifier, subject.batch
    predicted = subject.outputs.logits.argmax(-1)
    inputs = model.inputs(batch).detach().requires_grad_()
    direct = InputXGradient(lambda vectors: model.outputs_from(batch, vectors).logits)
    expected = direct.attribute(inputs, target=predicted).sum(-1).masked_fill(~batch.content, 0)
    torch.testing.assert_close(subject.scores("gradient_input"), expected.detach())


def test_saliency_is_captums_direct_call():
    subject = contextual_subject()
    model, batch = subject.classifier, subject.batch
    inputs = model.inputs(batch).detach().requires_grad_()
    direct = Saliency(lambda vectors: model.outputs_from(batch, vectors).logits)
    gradient = direct.attribute(inputs, target=subject.outputs.logits.argmax(-1), abs=False)
    torch.testing.assert_close(subject.scores("saliency"), (gradient.norm(dim=-1) * batch.content).detach())


def test_grad_cam_is_the_weighted_sum_of_the_states_text_by_text():
    subject = contextual_subject()
    model = subject.classifier
    for row in range(len(subject.batch)):
        alone = subject.batch.rows(slice(row, row + 1))
        outputs = model.outputs_from(alone, model.inputs(alone))
        content, target = alone.content[0], outputs.logits[0, outputs.logits[0].argmax()]
        (gradient,) = torch.autograd.grad(target, outputs.hidden)
        weight = gradient[0, content].mean(0)
        expected = torch.stack([torch.dot(weight, state) for state in outputs.hidden[0, content]]).relu()
        torch.testing.assert_close(subject.scores("grad_cam")[row][content], expected.detach())


def test_without_noise_to_speak_of_it_is_gradient_times_input():
    subject = contextual_subject(importances={"smooth_grad": SmoothGrad(noise=1e-9)})
    expected = subject.scores("gradient_input")
    torch.testing.assert_close(subject.scores("smooth_grad"), expected, rtol=1e-5, atol=1e-6)


def test_noise_averages_out_on_an_additive_model():
    """There the gradient is constant: input plus noise, whose mean falls with the number of copies."""

    def off(samples):
        subject = additive_subject(importances={"smooth_grad": SmoothGrad(samples=samples)})
        return float((subject.scores("smooth_grad") - words_shares(subject)).abs().mean())

    assert off(1600) < off(4) / 4  # a twentieth is expected
    assert off(4) > 0


@pytest.mark.parametrize(("target", "first", "second"), [("class 2", 2, None), ("contrast", None, "runner-up")])
def test_the_target_is_a_setting(target, first, second):
    one = IntegratedGradients(target=target)
    subject = additive_subject(importances={"integrated_gradients": one})
    expected = words_shares(subject, first=first, second=second)
    torch.testing.assert_close(subject.scores("integrated_gradients"), expected)


def test_an_unknown_class_is_refused_with_the_nearest_name():
    with pytest.raises(UserError, match=r"target=clas 1: there is no such class; did you mean class 1\?"):
        IntegratedGradients(target="clas 1").named_class(["class 0", "class 1"])


def test_integrated_gradients_are_captums_by_another_quadrature():
    exact = IntegratedGradients(most_steps=511, gap=1e-12)
    subject = contextual_subject(importances={"integrated_gradients": exact})
    model, batch, predicted = subject.classifier, subject.batch, subject.outputs.logits.argmax(-1)
    for row in range(len(batch)):
        alone = batch.rows(slice(row, row + 1))

        def direct(vectors, alone=alone):
            return model.outputs_from(alone.rows(torch.zeros(len(vectors), dtype=torch.long)), vectors).logits

        inputs = model.inputs(alone).detach()
        baseline = inputs.masked_fill(alone.content.unsqueeze(-1), 0)
        found = Direct(direct).attribute(inputs, baseline, target=predicted[row : row + 1], n_steps=256).sum(-1)
        torch.testing.assert_close(subject.scores("integrated_gradients")[row], found[0], atol=1e-8, rtol=0)


class Turning(Explained):
    """A number of the share of the way alone: it turns at 0.3 within about 1 / `steep`; a straight line where that is 0."""

    steep, asked = 100.0, ()

    def __call__(self, inputs, text):
        apart = (self.inputs - self.baseline)[text].flatten(1)
        share = ((inputs - self.baseline[text]).flatten(1) * apart).sum(-1) / (apart * apart).sum(-1)
        if inputs.requires_grad:
            self.asked.append(share.detach())
        return torch.sigmoid(self.steep * (share - 0.3)) if self.steep else share


def of_turning(steep, **settings):
    """Scores, what they are known to be, and where gradients were taken."""
    one = IntegratedGradients(**settings)
    subject = contextual_subject(importances={"integrated_gradients": one})
    explained, asked = subject.cached(one.explained), []
    turning = Turning(**{field.name: getattr(explained, field.name) for field in dataclasses.fields(explained)})
    vars(turning).update(steep=steep, asked=asked)
    subject.cached = {one.explained: turning}.__getitem__
    squares = (turning.inputs - turning.baseline).square()
    rise = 1 / (1 + math.exp(-0.7 * steep)) - 1 / (1 + math.exp(0.3 * steep)) if steep else 1.0
    known = per_word(squares.sum(-1) / squares.sum((1, 2))[:, None], subject) * rise
    return one.scores(subject), known, torch.cat(asked)


def test_points_stand_where_the_prediction_turns():
    found, known, asked = of_turning(100.0)
    torch.testing.assert_close(found, known.double(), atol=1e-3, rtol=0)
    assert len(asked) < 200 * len(found)
    assert ((asked - 0.3).abs() < 0.13).double().mean() > 0.35  # evenly spread points: a quarter
    few, _, _ = of_turning(100.0, steps=12, most_steps=12)
    assert (few - known).abs().max() > 0.01, "without halving they miss the turn"
    straight, known, asked = of_turning(0.0)
    torch.testing.assert_close(straight, known.double(), atol=1e-6, rtol=0)
    assert len(asked) == (2 + 12) * len(straight)  # both ends, and one stretch


def test_the_scores_add_up_to_within_the_gap_or_all_steps_were_taken():
    def gap(**settings):
        one = IntegratedGradients(**settings)
        subject = contextual_subject(importances={"integrated_gradients": one})
        (note,) = one.notes(subject)
        found = (subject.scores("integrated_gradients").sum(-1) - one.total(subject)).abs().max()
        assert note.value == float(found)
        return float(found)

    rough = gap(steps=1, most_steps=1)
    assert rough > 1e-3
    assert gap(steps=1, most_steps=256) <= 1e-3
    assert 1e-4 < gap(steps=1, most_steps=3, gap=1e-12) < rough


def test_the_mean_of_the_text_is_another_baseline():
    one = IntegratedGradients(baseline="mean")
    subject = additive_subject(importances={"integrated_gradients": one})
    content = subject.batch.content
    shares = words_shares(subject)
    centred = shares - shares.sum(-1, keepdim=True) / content.sum(-1, keepdim=True)
    torch.testing.assert_close(subject.scores("integrated_gradients"), centred.masked_fill(~content, 0))
    with pytest.raises(UserError, match="baseline=median: expected zeros or mean"):
        IntegratedGradients(baseline="median")


def test_a_large_network_reads_fewer_texts_at_a_time_whatever_its_vocabulary():
    small = torch.nn.ModuleList([torch.nn.Embedding(30_000, 100), torch.nn.Linear(100, 100)])
    large = torch.nn.ModuleList([*small, torch.nn.Linear(2_000, 4_000, bias=False)])
    assert texts_at_once(small, 32) == AT_ONCE // 32
    assert texts_at_once(large, 32) == AT_ONCE // 4 // 32 - 1  # 8,010,100 parameters: a little less than a quarter
    assert texts_at_once(large, 10**9) == 1


def test_gradient_shap_is_captums_own_on_the_same_draws():
    subject = contextual_subject(importances={"gradient_shap": GradientShap(samples=8, noise=0.1)})
    member, found = subject.importance("gradient_shap"), subject.scores("gradient_shap")
    alone = subject.cached(member.explained).alone(0)
    with seeded(Draws(subject.seed, member.name).generator(int(subject.batch.example_id[0]))):
        spread = 0.1 * float(alone.inputs.max() - alone.inputs.min())
        direct = CaptumGradientShap(
            lambda vectors: alone(vectors, torch.zeros(len(vectors), dtype=torch.long))
        ).attribute(alone.inputs.clone().requires_grad_(), alone.baseline, n_samples=8, stdevs=spread)
    expected = direct.sum(-1)[0, alone.batch.content[0]].detach()
    torch.testing.assert_close(found[0, subject.batch.content[0]], expected)


@pytest.mark.parametrize(
    ("name", "near"), [("gradient_input", 1e-6), ("integrated_gradients", 1e-6), ("gradient_shap", 1e-6)]
)
def test_on_an_additive_model_it_is_what_each_word_adds(name, near):
    subject = additive_subject()
    torch.testing.assert_close(subject.scores(name), words_shares(subject), rtol=near, atol=near)


@pytest.mark.parametrize("name", ["smooth_grad", "gradient_shap"])
def test_the_generators_are_left_as_they_were(name):
    before, others = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = contextual_subject().scores(name)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (np.random.get_state()[1] == others).all()  # noqa: NPY002
    assert torch.equal(contextual_subject().scores(name), first)
    assert not torch.equal(contextual_subject(seed=1).scores(name), first)


@pytest.mark.parametrize(
    ("one", "setting", "value"),
    [
        (SmoothGrad, "noise", 0.0), (GradientShap, "noise", -0.1), (IntegratedGradients, "steps", 0),
        (IntegratedGradients, "steps", 512),
    ],
)  # fmt: skip
def test_settings_in_the_wrong_range_are_refused(one, setting, value):
    with pytest.raises(UserError, match=rf"{one.name}.{setting}={value}: expected"):
        one(**{setting: value})


def test_deep_lift_of_a_linear_model_is_weight_times_difference():
    subject = additive_subject()
    explained = DeepLift().explained(subject)
    inputs = explained.inputs.clone().requires_grad_()
    (weight,) = torch.autograd.grad(explained(inputs).sum(), inputs)
    by_hand = (weight * (explained.inputs - explained.baseline)).sum(-1)
    found = DeepLift().scores(subject)
    content = subject.batch.content
    torch.testing.assert_close(found[content], by_hand.double()[content])
    torch.testing.assert_close(found.sum(-1), DeepLift().total(subject), atol=1e-6, rtol=1e-6)
    assert [note.value for note in DeepLift().notes(subject)] == [0.0]
    wide = DeepLift().scores(additive_subject(padding=3))[:, : content.shape[1]]
    torch.testing.assert_close(wide[content], found[content])


def test_deep_lift_of_a_text_that_is_its_baseline_is_zero():
    """The last text has one word, which is the mean of its words."""
    scores = DeepLift(baseline="mean").scores(additive_subject())
    assert not scores[-1].any()
    assert scores[0].any()


def test_deep_lift_is_refused_where_no_texts_scores_add_up():
    with pytest.raises(UserError, match=r"deep_lift.*miss.*integrated_gradients"):
        DeepLift(gap=1e-6).scores(contextual_subject())
