import pytest
import torch
from torch.testing import assert_close

from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.probes.leave_one_out import LeaveOneOut
from tests.probes.tables import measured, subject_of
from tests.toys import toy_batch, toy_classifier

LENGTHS = [5, 1, 8, 6, 7, 3, 4]


@pytest.fixture(scope="module")
def subject():
    return subject_of(toy_classifier("average", spread=6), toy_batch(LENGTHS))


@pytest.fixture(scope="module")
def measurements(subject):
    return measured(LeaveOneOut(), subject)


@pytest.fixture(scope="module")
def removals(subject):
    return leave_one_out(subject.classifier, subject.batch, subject.outputs)


def test_every_token_has_its_distance(subject, measurements, removals):
    measurement = measurements["leave_one_out"]
    assert_close(measurement.value, removals.distance, equal_nan=True)
    assert torch.equal(~measurement.step.isnan(), subject.batch.content)


@pytest.mark.parametrize("row", [row for row, length in enumerate(LENGTHS) if length > 1])
def test_the_largest_and_the_share_that_decides_are_those_of_the_text(
    subject, measurements, removals, row
):
    content = subject.batch.content[row]
    largest = removals.distance[row][content].max()
    assert measurements["max_leave_one_out"].value[row] == largest
    share = removals.flips[row][content].mean()
    assert measurements["decisive_tokens"].value[row] == share


def test_some_tokens_decide_alone_and_a_text_of_one_word_has_no_number(measurements):
    assert measurements["decisive_tokens"].value[1:].nan_to_num().max() > 0
    assert measurements["max_leave_one_out"].value[1].isnan()
    assert measurements["decisive_tokens"].value[1].isnan()
