import pytest
import torch
from scipy.spatial.distance import jensenshannon

from attnprobe.probes.teacher import AgainstTeacher
from tests.probes.tables import subject_of, values
from tests.toys import toy_batch, toy_classifier


def test_distances_to_the_teacher_are_those_of_scipy():
    batch = toy_batch([6, 3, 1], padding=2)
    with torch.no_grad():
        teacher = toy_classifier(seed=4, spread=3)(batch)
    batch.teacher_attention = teacher.attention
    batch.teacher_probability = teacher.logits.softmax(-1)
    subject = subject_of(toy_classifier(spread=3), batch)
    numbers = values(AgainstTeacher("other"), subject)
    prediction = subject.readout.prediction()
    for row, content in enumerate(batch.content):
        attention = subject.readout.attention[row][content]
        taught_attention = teacher.attention[row][content]
        jsd = jensenshannon(attention, taught_attention) ** 2
        assert float(numbers["jsd"][row]) == pytest.approx(jsd, abs=1e-7)

        probability = batch.teacher_probability[row]
        tvd = float((prediction[row] - probability).abs().sum() / 2)
        assert float(numbers["tvd"][row]) == pytest.approx(tvd)
        is_same = int(prediction[row].argmax()) == int(probability.argmax())
        assert float(numbers["same_decision"][row]) == is_same

        largest = float(numbers["teacher_max_attention"][row])
        assert largest == pytest.approx(float(taught_attention.max()))


def test_a_run_is_no_distance_from_itself():
    batch = toy_batch([6, 3, 1])
    classifier = toy_classifier(spread=3)
    with torch.no_grad():
        outputs = classifier(batch)
    batch.teacher_attention = outputs.attention
    batch.teacher_probability = outputs.logits.softmax(-1)
    numbers = values(AgainstTeacher("other"), subject_of(classifier, batch))
    assert numbers["jsd"].max() < 1e-10
    assert numbers["tvd"].max() < 1e-6
    assert numbers["same_decision"].tolist() == [1, 1, 1]
