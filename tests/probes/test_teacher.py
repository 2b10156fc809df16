import pytest
from scipy.spatial.distance import jensenshannon

from attnprobe.probes.teacher import AgainstTeacher
from tests.probes.tables import subject_of, values
from tests.probes.texts import Text, numbers_of
from tests.toys import taught_by, toy_batch, toy_classifier


@pytest.mark.parametrize("row", range(3))
def test_distances_to_the_teacher_are_those_of_scipy(row):
    teacher = toy_classifier(seed=4, spread=3)
    batch = taught_by(teacher, toy_batch([6, 3, 1], padding=2))
    subject = subject_of(toy_classifier(spread=3), batch)
    numbers = values(AgainstTeacher("other"), subject)

    text = Text(subject, row)
    teacher_weights = text.at_words(batch.teacher_attention)
    prediction = subject.readout.prediction()[row]
    teacher_prediction = batch.teacher_probability[row]
    jsd = jensenshannon(text.weights, teacher_weights) ** 2
    tvd = (prediction - teacher_prediction).abs().sum().item() / 2
    is_same = prediction.argmax() == teacher_prediction.argmax()

    result = numbers_of(numbers, row)
    assert result["jsd"] == pytest.approx(jsd, abs=1e-7)
    assert result["tvd"] == pytest.approx(tvd)
    assert result["same_decision"] == is_same
    assert result["teacher_max_attention"] == pytest.approx(teacher_weights.max())


def test_a_run_is_no_distance_from_itself():
    classifier = toy_classifier(spread=3)
    batch = taught_by(classifier, toy_batch([6, 3, 1]))
    numbers = values(AgainstTeacher("other"), subject_of(classifier, batch))
    assert numbers["jsd"].max() < 1e-10
    assert numbers["tvd"].max() < 1e-6
    assert numbers["same_decision"].tolist() == [1, 1, 1]
