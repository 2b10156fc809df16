import pytest
import torch

from tests.importance.subjects import LENGTHS, subject_of


@pytest.mark.parametrize("question", [False, True])
def test_equals_finite_differences_of_each_weight(question):
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
