import itertools

import pytest
import torch
from torch.testing import assert_close

from attnprobe.core.batch import Task
from attnprobe.importance.leave_one_out import leave_one_out
from benchmarks import reference
from tests.importance.leave_one_out.loops import each_alone, one_by_one, subject
from tests.toys import ATTENTIONS, ENCODERS, REENCODED, rows_of, toy_batch

QUESTIONS = [False, True, "additive"]


def triples():
    """Every encoder with every attention and every question.

    By default the attentions take turns, so that each is there and each encoder has each question;
    the others are slow.
    """
    turns = itertools.cycle(ATTENTIONS)
    for encoder, question in itertools.product(ENCODERS, QUESTIONS):
        turn = next(turns)
        for attention in ATTENTIONS:
            marks = () if attention == turn else pytest.mark.slow
            yield pytest.param(encoder, attention, question, marks=marks)


def equal(distance, expected, near):
    assert_close(distance, expected, atol=near, rtol=0, equal_nan=True)


@pytest.mark.parametrize(("encoder", "attention", "question"), [*triples()])
def test_every_way_equals_each_shortened_text_alone(encoder, attention, question):
    classifier, batch, outputs = subject(encoder, attention, question=question, padding=2)
    if question:
        batch.candidates = torch.ones(5, 3, dtype=torch.bool)
        batch.candidates[0, 2] = False
        batch.candidates[4, 0] = False
        outputs = classifier(batch)
    quick = leave_one_out(classifier, batch, outputs, tolerance=0.0)
    slow = leave_one_out(classifier, batch, outputs, shortcut=False)
    assert quick.reencoded == (encoder in REENCODED)
    assert slow.reencoded

    expected = each_alone(classifier, batch, outputs)
    assert expected.nan_to_num().max() > 1e-3
    equal(quick.distance, expected, 1e-10)
    equal(slow.distance, expected, 1e-10)

    decision = outputs.logits.argmax(-1)
    for row, position in expected.isfinite().nonzero().tolist():
        shortened = one_by_one(classifier, batch, row, position)[0]
        flips = shortened.argmax() != decision[row]
        assert quick.flips[row, position] == flips
        assert slow.flips[row, position] == flips

    is_removable = batch.content.clone()
    is_removable[1] = False  # the only word of the second text
    for removals in (quick, slow):
        assert removals.distance.isfinite().equal(is_removable)
        assert removals.flips[1].isnan().all()


def test_multi_label_tasks_take_the_mean_over_the_labels():
    classifier, batch, outputs = subject(classes=3, task=Task.MULTI_LABEL)
    removals = leave_one_out(classifier, batch, outputs)
    original = outputs.logits[2].sigmoid()
    shortened = one_by_one(classifier, batch, 2, 4)[0]
    distance = (shortened - original).abs().mean()
    assert_close(removals.distance[2, 4], distance, atol=1e-6, rtol=0)

    has_label = original > 0.5
    has_label_when_shortened = shortened > 0.5
    label_flips = has_label_when_shortened != has_label
    assert removals.flips[2, 4] == label_flips.any()


def test_agrees_with_the_published_loop():
    classifier, batch, outputs = subject(lengths=[7, 5, 9])
    expected = reference.leave_one_out(reference.packed(classifier), batch)
    distance = leave_one_out(classifier, batch, outputs, tolerance=0.0).distance
    content = batch.content
    assert_close(distance[content], expected[content], atol=1e-10, rtol=0)


MIXED_LENGTHS = [30, 3, 17, 5]


PRECISIONS = pytest.mark.parametrize(
    ("tolerance", "near"),
    [
        pytest.param(1e-7, 1e-10, id="float64"),
        pytest.param(1e-6, 1e-6, id="float32"),
    ],
)


@PRECISIONS
@pytest.mark.parametrize("encoder", ENCODERS)
def test_padding_changes_no_number(encoder, tolerance, near):
    classifier, batch, outputs = subject(encoder, lengths=MIXED_LENGTHS)
    expected = leave_one_out(classifier, batch, outputs, tolerance=tolerance).distance
    _, padded, padded_outputs = subject(encoder, lengths=MIXED_LENGTHS, padding=4)
    removals = leave_one_out(classifier, padded, padded_outputs, tolerance=tolerance)
    equal(removals.distance[:, :32], expected, near)


@pytest.mark.whole
@PRECISIONS
@pytest.mark.parametrize("shortcut", [True, False])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_chunks_change_no_number(encoder, shortcut, tolerance, near):
    classifier, batch, outputs = subject(encoder, lengths=MIXED_LENGTHS)
    expected = leave_one_out(classifier, batch, outputs, tolerance=tolerance).distance
    removals = leave_one_out(
        classifier, batch, outputs, tolerance=tolerance, chunk=7, shortcut=shortcut
    )
    equal(removals.distance, expected, max(near, 1e-7))


@PRECISIONS
@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_text_alone_has_the_numbers_that_it_has_in_its_batch(encoder, tolerance, near):
    classifier, batch, outputs = subject(encoder, lengths=MIXED_LENGTHS)
    expected = leave_one_out(classifier, batch, outputs, tolerance=tolerance).distance
    for row in range(4):
        text = rows_of(batch, [row])
        outputs_alone = classifier(text)
        removals = leave_one_out(classifier, text, outputs_alone, tolerance=tolerance)
        [distance] = removals.distance
        length = len(distance)
        equal(distance, expected[row, :length], near)


@pytest.mark.parametrize("question", [False, True])
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_states_in_float32_agree_with_all_in_float64(encoder, attention, question):
    lengths = [80, 30, 3]
    classifier, batch, outputs = subject(encoder, attention, question=question, lengths=lengths)
    exact = leave_one_out(classifier, batch, outputs, tolerance=0.0).distance
    distance = leave_one_out(classifier, batch, outputs).distance
    equal(distance, exact, 2e-6)
    # else nothing was computed in float32, and this tested nothing
    is_computed_alike = torch.equal(distance.nan_to_num(), exact.nan_to_num())
    assert is_computed_alike == (encoder in {"average", "none", *REENCODED})


def test_float32_products_that_may_be_rounded_are_not_used():
    classifier, batch, outputs = subject(lengths=[12])  # too short for any other approximation
    exact = leave_one_out(classifier, batch, outputs, tolerance=1e-7).distance
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        distance = leave_one_out(classifier, batch, outputs).distance
    finally:
        torch.set_float32_matmul_precision(before)
    assert_close(distance, exact, atol=1e-12, rtol=0, equal_nan=True)


@pytest.fixture
def repetitive():
    """A classifier and three texts: runs of equal words, and one that begins with a marker's id."""
    classifier, batch, _ = subject(lengths=[12, 5, 9])
    first, second, third = batch.ids
    first[3:7] = 9
    first[8:10] = 9
    third[8:10] = 7
    # a marker's number in the text: the marker stays when the word goes
    second[1] = second[0]
    return classifier, batch, classifier(batch)


@pytest.mark.parametrize("shortcut", [True, False])
def test_equal_neighbours_are_tied_to_the_last_digit(repetitive, shortcut):
    removals = leave_one_out(*repetitive, shortcut=shortcut)
    for first, second, third in (removals.distance, removals.flips):
        long_run = first[3:7]
        assert long_run.unique().numel() == 1
        assert first[8] == first[9]
        assert third[8] == third[9]
        assert second[0].isnan()

    distance_of_first = removals.distance[0]
    assert distance_of_first[7] != distance_of_first[6]


def test_scores_beyond_what_exp_can_hold():
    classifier, batch, _ = subject("average", lengths=[5])
    with torch.no_grad():
        classifier.attention.score.weight.mul_(3000)
    outputs = classifier(batch)
    assert outputs.attention.max() > 0.999
    quick = leave_one_out(classifier, batch, outputs).distance
    slow = leave_one_out(classifier, batch, outputs, shortcut=False).distance
    assert_close(quick, slow, atol=1e-10, rtol=0, equal_nan=True)
    assert not quick[batch.content].isnan().any()


@pytest.mark.parametrize("shortcut", [True, False])
def test_one_of_equal_neighbours_has_the_distance_of_the_shortened_text(repetitive, shortcut):
    classifier, batch, outputs = repetitive
    removals = leave_one_out(classifier, batch, outputs, shortcut=shortcut)
    original = outputs.logits[0].softmax(-1)
    shortened = one_by_one(classifier, batch, 0, 4)[0]
    expected = (shortened - original).abs().sum() / 2
    assert_close(removals.distance[0, 4], expected, atol=1e-6, rtol=0)


def test_a_shortened_text_keeps_its_markers_and_loses_one_column_of_everything_over_its_tokens():
    batch = toy_batch([6, 4, 1], padding=3)
    batch.sentence = torch.where(batch.content, 0, -1)
    batch.rationale = batch.content.clone()
    lengths = batch.content.sum(-1, keepdim=True)
    batch.teacher_attention = batch.content / lengths
    texts = torch.tensor([0, 1, 0])
    places = torch.tensor([2, 1, 5])

    shortened = batch.without(texts, places)

    for name in ("ids", "mask", "content", "rationale", "sentence"):
        column = getattr(batch, name)
        shorter_column = getattr(shortened, name)
        for text, place, shorter in zip(texts, places, shorter_column, strict=True):
            expected = column[text].tolist()
            del expected[place]
            assert shorter.tolist() == expected
    assert shortened.teacher_attention is None  # a teacher never saw the shortened text
    assert shortened.example_id.tolist() == [100, 101, 100]
