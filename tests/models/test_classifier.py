import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from tests.toys import (
    ATTENTIONS,
    ENCODERS,
    assert_same_alone,
    predict,
    recipe,
    toy_batch,
    toy_classifier,
    toy_readout,
)


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("question", [False, True])
def test_padding_and_batch_size_change_no_prediction_and_attention_is_a_distribution(
    encoder,
    attention,
    question,
):
    classifier = toy_classifier(encoder, attention, question=question, classes=3).double()
    batch = toy_batch([5, 2, 1], padding=3, question=question)
    assert_same_alone(classifier, batch)
    outputs = classifier(batch)
    assert_close(outputs.attention.sum(-1), torch.ones(3).double())
    assert torch.equal(outputs.attention > 0, batch.content)
    assert torch.equal(outputs.scores == -torch.inf, ~batch.content)


@pytest.mark.parametrize("classes", [2, 4])
def test_readout_agrees_with_the_decoder_for_any_attention(classes):
    classifier = toy_classifier(classes=classes, spread=3)
    batch = toy_batch([5, 2, 1])
    outputs, readout = toy_readout(classifier, batch)
    weights = torch.rand(3, 2, *batch.content.shape, dtype=torch.float64) * batch.content
    attention = weights / weights.sum(-1, keepdim=True)
    expected = classifier.decoder.decode(outputs.hidden, attention).softmax(-1)
    assert_close(readout.predict(attention), expected)
    assert_close(readout.prediction(), outputs.logits.softmax(-1))
    assert readout.position_logits.shape == (3, 7, classes)
    if classes == 2:
        assert (readout.position_logits[..., 0] == 0).all()


def test_readout_of_a_question_model_runs_its_decoder_and_leaves_it_alone():
    classifier = toy_classifier(classes=3, question=True, spread=3)
    batch = toy_batch([5, 2], question=True)
    batch.candidates = torch.tensor([[True, True, False], [True, False, True]])
    outputs, readout = toy_readout(classifier, batch)
    assert readout.position_logits is None
    assert_close(readout.prediction(), outputs.logits.softmax(-1))
    assert (readout.prediction()[~batch.candidates] == 0).all()

    free = readout.attention.clone().requires_grad_()
    readout.predict(free)[:, 0].sum().backward()
    assert free.grad.abs().sum() > 0
    assert all(parameter.grad is None for parameter in classifier.parameters())


def test_two_class_loss_is_binary_cross_entropy_with_a_positive_weight():
    labels = torch.tensor([0, 1, 1, 0, 1, 0])
    batch = toy_batch([3] * 6)
    batch.labels = labels
    classifier = toy_classifier(class_weight=torch.tensor([1.0, 1.7]))
    logit = torch.randn(6)
    outputs = classifier(batch)
    outputs.logits = F.pad(logit[:, None], (1, 0))
    expected = F.binary_cross_entropy_with_logits(
        logit,
        labels.float(),
        pos_weight=torch.tensor(1.7),
        reduction="none",
    )
    assert_close(classifier.losses(outputs, batch)["loss"], expected)


def test_multi_label_predictions_are_one_sigmoid_per_label():
    classifier = toy_classifier(classes=2, task=Task.MULTI_LABEL)
    batch = toy_batch([4, 3])
    outputs = classifier(batch)
    logits = outputs.logits
    assert logits.shape == (2, 2)
    assert logits[:, 0].abs().min() > 0  # no label's logit is pinned to 0
    assert_close(predict(classifier, batch), logits.sigmoid())

    batch.labels = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    losses = F.binary_cross_entropy_with_logits(logits, batch.labels, reduction="none")
    assert_close(classifier.losses(outputs, batch)["loss"], losses.mean(-1))


def test_attention_parameters_have_no_weight_decay_and_every_parameter_is_in_one_group():
    classifier = toy_classifier()
    classifier.recipe = recipe(attention_weight_decay=0.0)
    groups = classifier.configure_optimizers().param_groups
    decayless = {id(p) for p in groups[1]["params"]}
    assert decayless == {id(p) for p in classifier.attention.parameters()}
    assert groups[1]["weight_decay"] == 0
    assert sum(len(group["params"]) for group in groups) == len(list(classifier.parameters()))


def test_a_single_class_is_refused():
    with pytest.raises(UserError, match="at least 2 classes, got 1"):
        toy_classifier(classes=1)


def test_a_model_that_reads_questions_needs_data_with_questions():
    with pytest.raises(UserError, match=r"set data\.question"):
        toy_classifier(question=True)(toy_batch([3]))
