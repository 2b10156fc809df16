import pytest
import torch
from scipy.spatial.distance import jensenshannon

from attnprobe.probes.teacher import AgainstTeacher
from tests.probes.tables import subject_of, values
from tests.toys import toy_batch, toy_classifier


def test_distances_to_the_teacher_are_those_of_scipy():
    batch = toy_batch([6, 3, 1], padding=2)
    with torch.no_grad():
        other = toy_classifier(seed=4, spread=3)(batch)
    batch.teacher_attention = other.attention
    batch.teacher_probability = other.logits.softmax(-1)
    subject = subject_of(toy_classifier(spread=3), batch)
    found = values(AgainstTeacher("other"), subject)
    prediction = subject.readout.prediction()
    for row, content in enumerate(batch.content):
        ours = subject.readout.attention[row][content]
        theirs = other.attention[row][content]
        assert float(found["jsd"][row]) == pytest.approx(jensenshannon(ours, theirs) ** 2, abs=1e-7)
        tvd = float((prediction[row] - batch.teacher_probability[row]).abs().sum() / 2)
        assert float(found["tvd"][row]) == pytest.approx(tvd)
        same = int(prediction[row].argmax()) == int(batch.teacher_probability[row].argmax())
        assert float(found["same_decision"][row]) == same
        assert float(found["teacher_max_attention"][row]) == pytest.approx(float(theirs.max()))


def test_a_run_is_no_distance_from_itself():
    batch = toy_batch([6, 3, 1])
    classifier = toy_classifier(spread=3)
    with torch.no_grad():
        own = classifier(batch)
    batch.teacher_attention = own.attention
    batch.teacher_probability = own.logits.softmax(-1)
    found = values(AgainstTeacher("other"), subject_of(classifier, batch))
    assert found["jsd"].max() < 1e-10
    assert found["tvd"].max() < 1e-6
    assert found["same_decision"].tolist() == [1, 1, 1]
