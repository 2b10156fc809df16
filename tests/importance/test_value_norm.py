import math

import pytest

from tests.importance.subjects import LENGTHS, subject_of


def test_equals_a_plain_loop():
    subject = subject_of(question=True)
    scores = subject.scores("value_norm")
    for row, length in enumerate(LENGTHS):
        for t in range(1, length + 1):
            norm = math.sqrt(sum(float(x) ** 2 for x in subject.outputs.hidden[row, t]))
            assert float(scores[row, t]) == pytest.approx(float(subject.outputs.attention[row, t]) * norm)
