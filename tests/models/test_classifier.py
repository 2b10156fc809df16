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
    noise = torch.rand(3, 2, *batch.content.shape, dtype=torch.float64)
    mass = noise * batch.content
    attention = mass / mass.sum(-1, keepdim=True)
    decoded = classifier.decoder.decode(outputs.hidden, attention)
    assert_close(readout.predict(attention), decoded.softmax(-1))
    assert_close(readout.prediction(), outputs.logits.softmax(-1))
    assert readout.position_logits.shape == (3, 7, classes)


def test_position_logits_of_two_classes_are_those_of_the_second_against_the_first():
    _, readout = toy_readout(toy_classifier(classes=2, spread=3), toy_batch([5, 2, 1]))
    first, second = readout.position_logits.unbind(-1)
    assert (first == 0).all()
    assert second.any()


@pytest.fixture
def questioned():
    """Texts with a question each, that may be answered with two classes of three."""
    classifier = toy_classifier(classes=3, question=True, spread=3)
    batch = toy_batch([5, 2], question=True)
    batch.candidates = torch.tensor(
        [
            [True, True, False],
            [True, False, True],
        ]
    )
    outputs, readout = toy_readout(classifier, batch)
    return classifier, batch, outputs, readout


def test_readout_of_a_question_model_runs_its_decoder(questioned):
    _, batch, outputs, readout = questioned
    prediction = readout.prediction()
    assert readout.position_logits is None
    assert_close(prediction, outputs.logits.softmax(-1))
    assert (prediction[~batch.candidates] == 0).all()


def test_readout_of_a_question_model_leaves_its_decoder_alone(questioned):
    classifier, _, _, readout = questioned
    attention = readout.attention.clone().requires_grad_()
    readout.predict(attention)[:, 0].sum().backward()
    assert attention.grad.any()
    for parameter in classifier.parameters():
        assert parameter.grad is None


def test_two_class_loss_is_binary_cross_entropy_with_a_positive_weight():
    batch = toy_batch([3] * 6)
    batch.labels = torch.tensor([0, 1, 1, 0, 1, 0])
    classifier = toy_classifier(class_weight=torch.tensor([1.0, 1.7]))
    logit = torch.randn(6)
    outputs = classifier(batch)
    outputs.logits = torch.stack([torch.zeros(6), logit], -1)
    losses = classifier.losses(outputs, batch)
    expected = F.binary_cross_entropy_with_logits(
        logit,
        batch.labels.float(),
        pos_weight=torch.tensor(1.7),
        reduction="none",
    )
    assert_close(losses["loss"], expected)


@pytest.fixture
def several_labels():
    """Two texts with two labels each, of which both have the first."""
    classifier = toy_classifier(classes=2, task=Task.MULTI_LABEL)
    batch = toy_batch([4, 3])
    batch.labels = torch.tensor([[1.0, 0.0], [1.0, 1.0]])
    return classifier, batch


def test_multi_label_predictions_are_one_sigmoid_per_label(several_labels):
    classifier, batch = several_labels
    logits = classifier(batch).logits
    assert logits.shape == (2, 2)
    assert logits[:, 0].abs().min() > 0  # no label's logit is pinned to 0
    assert_close(predict(classifier, batch), logits.sigmoid())


def test_the_loss_of_several_labels_is_their_mean(several_labels):
    classifier, batch = several_labels
    outputs = classifier(batch)
    of_labels = F.binary_cross_entropy_with_logits(outputs.logits, batch.labels, reduction="none")
    losses = classifier.losses(outputs, batch)
    assert_close(losses["loss"], of_labels.mean(-1))


def test_attention_parameters_have_no_weight_decay_and_every_parameter_is_in_one_group():
    classifier = toy_classifier()
    classifier.recipe = recipe(attention_weight_decay=0.0)
    decaying, decayless = classifier.configure_optimizers().param_groups
    attention = list(classifier.attention.parameters())
    assert {*map(id, decayless["params"])} == {*map(id, attention)}
    assert decayless["weight_decay"] == 0
    count = len(decaying["params"]) + len(decayless["params"])
    assert count == len(list(classifier.parameters()))


def test_a_single_class_is_refused():
    with pytest.raises(UserError, match="at least 2 classes, got 1"):
        toy_classifier(classes=1)


def test_a_model_that_reads_questions_needs_data_with_questions():
    with pytest.raises(UserError, match=r"set data\.question"):
        toy_classifier(question=True)(toy_batch([3]))
