import pytest
from scipy.spatial.distance import jensenshannon

from attnprobe.probes.teacher import AgainstTeacher
from tests.probes.tables import subject_of, values
from tests.toys import taught_by, toy_batch, toy_classifier


def test_distances_to_the_teacher_are_those_of_scipy():
    batch = taught_by(toy_classifier(seed=4, spread=3), toy_batch([6, 3, 1], padding=2))
    subject = subject_of(toy_classifier(spread=3), batch)
    numbers = values(AgainstTeacher("other"), subject)
    prediction = subject.readout.prediction()
    for row, content in enumerate(batch.content):
        attention = subject.readout.attention[row][content]
        teacher_attention = batch.teacher_attention[row][content]
        probability = batch.teacher_probability[row]
        jsd = jensenshannon(attention, teacher_attention) ** 2
        tvd = float((prediction[row] - probability).abs().sum() / 2)
        expected = {
            "jsd": pytest.approx(jsd, abs=1e-7),
            "tvd": pytest.approx(tvd),
            "same_decision": float(prediction[row].argmax() == probability.argmax()),
            "teacher_max_attention": pytest.approx(float(teacher_attention.max())),
        }
        assert {name: float(numbers[name][row]) for name in expected} == expected


def test_a_run_is_no_distance_from_itself():
    classifier = toy_classifier(spread=3)
    batch = taught_by(classifier, toy_batch([6, 3, 1]))
    numbers = values(AgainstTeacher("other"), subject_of(classifier, batch))
    assert numbers["jsd"].max() < 1e-10
    assert numbers["tvd"].max() < 1e-6
    assert numbers["same_decision"].tolist() == [1, 1, 1]
