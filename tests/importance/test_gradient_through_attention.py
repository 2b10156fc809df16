import pytest
import torch

from tests.importance.subjects import LENGTHS, subject_of


def test_equals_finite_differences_along_each_word_vector():
    """|x · ∂p/∂x| is how fast p₁ changes as one word's vector is stretched, the attention reacting."""
    subject = subject_of(classes=2)
    model, batch = subject.classifier, subject.batch
    vectors = model.embed(batch.ids).detach()

    def p(vectors):
        with torch.no_grad():
            hidden = model.encode(batch, vectors)
            _, attention = model.attend(hidden, subject.outputs.content)
            return model.decode(hidden, attention).softmax(-1)[:, 1]

    for row, length in enumerate(LENGTHS):
        for t in range(1, length + 1):
            longer, shorter = vectors.clone(), vectors.clone()
            longer[row, t] *= 1 + 1e-5
            shorter[row, t] *= 1 - 1e-5
            expected = abs(float((p(longer) - p(shorter))[row] / 2e-5))
            scores = subject.scores("gradient_through_attention")
            assert float(scores[row, t]) == pytest.approx(expected, rel=1e-3, abs=1e-8)
