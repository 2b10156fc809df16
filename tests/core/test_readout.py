import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.batch import Task, probabilities
from attnprobe.core.readout import MOST_NUMBERS, Readout
from tests.toys import toy_batch, toy_classifier, toy_readout


def parts(task=Task.SINGLE_LABEL, *, question=False, classes=3):
    classifier = toy_classifier(classes=classes, task=task, question=question, spread=3)
    batch = toy_batch([5, 2, 7], classes=classes, question=question)
    return classifier, batch, *toy_readout(classifier, batch)


@pytest.mark.parametrize(
    ("task", "question"),
    [
        (Task.SINGLE_LABEL, False),
        (Task.MULTI_LABEL, False),
        (Task.SINGLE_LABEL, True),
    ],
)
def test_the_gradient_is_that_of_finite_differences_of_the_decoder(task, question):
    classifier, batch, outputs, readout = parts(task, question=question)
    predicted = probabilities(outputs.logits, task).argmax(-1)

    def predict(weights):
        with torch.no_grad():
            logits = classifier.decoder.decode(outputs.hidden, weights, outputs.query)
        return probabilities(logits, task).gather(-1, predicted[:, None]).squeeze(-1)

    gradient = readout.gradient()
    for position in range(batch.ids.shape[1]):
        step = torch.zeros_like(readout.attention)
        step[:, position] = 1e-6
        difference = (predict(readout.attention + step) - predict(readout.attention - step)) / 2e-6
        expected = torch.where(batch.content[:, position], difference, 0)
        assert_close(gradient[:, position], expected, atol=1e-8, rtol=0)
    assert gradient.abs().max() > 1e-3


@pytest.mark.parametrize("question", [False, True])
def test_unattended_is_what_the_decoder_makes_of_nothing(question):
    classifier, _, outputs, readout = parts(question=question)
    nothing = classifier.decoder.decode(
        outputs.hidden, torch.zeros_like(outputs.attention), outputs.query
    )
    assert_close(readout.unattended, nothing)


def test_a_gradient_that_needs_the_bias_says_so():
    attention = torch.full((1, 2), 0.5).double()
    readout = Readout(
        attention, attention > 0, torch.tensor([0]), position_logits=torch.randn(1, 2, 2).double()
    )
    with pytest.raises(ValueError, match="unattended"):
        readout.gradient()


def test_many_attentions_are_decoded_a_few_at_a_time_with_the_same_result():
    _, _, _, readout = parts(question=True)
    assert readout.decode is not None
    seen = []

    def decode(attention):
        seen.append(attention.shape[0] if attention.ndim == 3 else 1)
        return readout.decode(attention)

    many = torch.rand(2, 5, *readout.attention.shape).double()
    small = Readout(
        readout.attention,
        readout.content,
        readout.example_id,
        decode=decode,
        activations=MOST_NUMBERS // 3,
    )
    assert_close(small.logits(many), readout.logits(many))
    assert seen == [3, 3, 3, 1]
    assert small.logits(many).shape == (2, 5, 3, 3)
