import pytest
import torch

from attnprobe.core.batch import Task
from attnprobe.importance.leave_one_out import leave_one_out
from benchmarks import reference
from tests.importance.leave_one_out.loops import each_alone, one_by_one, subject
from tests.toys import ATTENTIONS, ENCODERS, REENCODED, rows_of, toy_batch

PAIRS = [
    (encoder, [*ATTENTIONS][(place + number) % len(ATTENTIONS)], question)
    for number, question in enumerate([False, True, "additive"])
    for place, encoder in enumerate(ENCODERS)
]
"""Every encoder with every question and with every attention, and those two with each other."""


@pytest.mark.parametrize(("encoder", "attention", "question"), PAIRS)
def test_every_way_equals_each_shortened_text_alone(encoder, attention, question):
    classifier, batch, outputs = subject(encoder, attention, question=question, padding=2)
    if question:
        batch.candidates = torch.ones(5, 3, dtype=torch.bool)
        batch.candidates[0, 2] = False
        batch.candidates[4, 0] = False
        outputs = classifier(batch)
    quick = leave_one_out(classifier, batch, outputs, tolerance=0.0)
    slow = leave_one_out(classifier, batch, outputs, shortcut=False)
    original = outputs.logits.detach().softmax(-1)
    expected = each_alone(classifier, batch, outputs)
    for removals in (quick, slow):
        torch.testing.assert_close(removals.distance, expected, atol=1e-10, rtol=0, equal_nan=True)
    for row, position in expected.isfinite().nonzero().tolist():
        shortened = one_by_one(classifier, batch, row, position)[0]
        flips = shortened.argmax() != original[row].argmax()
        assert quick.flips[row, position] == slow.flips[row, position] == flips
    assert (quick.reencoded, slow.reencoded) == (encoder in REENCODED, True)
    assert quick.distance.nan_to_num().max() > 1e-3
    for removals in (quick, slow):
        assert removals.distance[~batch.content].isnan().all()
        # the only word of the second text
        assert removals.distance[1].isnan().all()
        assert removals.flips[1].isnan().all()
        longer = [0, 2, 3, 4]
        removable = batch.content[longer]
        assert not removals.distance[longer][removable].isnan().any()


def test_multi_label_tasks_take_the_mean_over_the_labels():
    classifier, batch, outputs = subject(classes=3, task=Task.MULTI_LABEL)
    removals = leave_one_out(classifier, batch, outputs)
    single_prediction = one_by_one(classifier, batch, 2, 4)[0]
    original = outputs.logits[2].sigmoid()
    torch.testing.assert_close(
        removals.distance[2, 4], (single_prediction - original).abs().mean(), atol=1e-6, rtol=0
    )
    assert removals.flips[2, 4] == ((single_prediction > 0.5) != (original > 0.5)).any()


def test_agrees_with_the_published_loop():
    classifier, batch, outputs = subject(lengths=[7, 5, 9])
    expected = reference.leave_one_out(reference.packed(classifier), batch)
    distance = leave_one_out(classifier, batch, outputs, tolerance=0.0).distance
    torch.testing.assert_close(distance[batch.content], expected[batch.content], atol=1e-10, rtol=0)


@pytest.mark.parametrize(("tolerance", "digits"), [(1e-7, 1e-10), (1e-6, 1e-6)])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_batch_padding_and_chunks_change_no_number(encoder, tolerance, digits):
    classifier, batch, outputs = subject(encoder, lengths=[30, 3, 17, 5])

    def measured(batch, outputs, **settings):
        return leave_one_out(classifier, batch, outputs, tolerance=tolerance, **settings).distance

    def equal(distance, expected, atol=digits):
        torch.testing.assert_close(distance, expected, atol=atol, rtol=0, equal_nan=True)

    expected = measured(batch, outputs)
    _, padded, wide = subject(encoder, lengths=[30, 3, 17, 5], padding=4)
    equal(measured(padded, wide)[:, :32], expected)
    for shortcut in (True, False):
        equal(measured(batch, outputs, chunk=7, shortcut=shortcut), expected, max(digits, 1e-7))
    for row in range(4):
        single = rows_of(batch, [row])
        distance = measured(single, classifier(single))[0]
        equal(distance, expected[row, : len(distance)])


@pytest.mark.parametrize("question", [False, True])
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("encoder", ENCODERS)
def test_states_in_float32_agree_with_all_in_float64(encoder, attention, question):
    classifier, batch, outputs = subject(encoder, attention, question=question, lengths=[80, 30, 3])
    exact = leave_one_out(classifier, batch, outputs, tolerance=0.0).distance
    distance = leave_one_out(classifier, batch, outputs).distance
    torch.testing.assert_close(distance, exact, atol=2e-6, rtol=0, equal_nan=True)
    # else nothing was computed in float32, and this tested nothing
    assert torch.equal(distance.nan_to_num(), exact.nan_to_num()) == (
        encoder in {"average", "none", *REENCODED}
    )


def test_float32_products_that_may_be_rounded_are_not_used():
    classifier, batch, outputs = subject(lengths=[12])  # too short for any other approximation
    exact = leave_one_out(classifier, batch, outputs, tolerance=1e-7).distance
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        distance = leave_one_out(classifier, batch, outputs).distance
    finally:
        torch.set_float32_matmul_precision(before)
    torch.testing.assert_close(distance, exact, atol=1e-12, rtol=0, equal_nan=True)


@pytest.mark.parametrize("shortcut", [True, False])
def test_equal_neighbours_are_tied_to_the_last_digit(shortcut):
    classifier, batch, _ = subject(lengths=[12, 5, 9])
    first, second, third = batch.ids
    first[3:7] = 9
    first[8:10] = 9
    third[8:10] = 7
    # a marker's number in the text: the marker stays when the word goes
    second[1] = second[0]
    outputs = classifier(batch)
    removals = leave_one_out(classifier, batch, outputs, shortcut=shortcut)
    for values in removals.distance, removals.flips:
        assert values[0, 3:7].unique().numel() == 1
        assert values[0, 8] == values[0, 9]
        assert values[2, 8] == values[2, 9]
        assert values[1, 0].isnan()
    distance = removals.distance[0]
    assert distance[7] != distance[6]
    original = outputs.logits[0].softmax(-1)
    shortened = one_by_one(classifier, batch, 0, 4)[0]
    expected = (shortened - original).abs().sum() / 2
    torch.testing.assert_close(distance[4], expected, atol=1e-6, rtol=0)


def test_scores_beyond_what_exp_can_hold():
    classifier, batch, _ = subject("average", lengths=[5])
    with torch.no_grad():
        classifier.attention.score.weight.mul_(3000)
    outputs = classifier(batch)
    assert outputs.attention.max() > 0.999
    quick = leave_one_out(classifier, batch, outputs).distance
    slow = leave_one_out(classifier, batch, outputs, shortcut=False).distance
    torch.testing.assert_close(quick, slow, atol=1e-10, rtol=0, equal_nan=True)
    assert not quick[batch.content].isnan().any()


def test_a_shortened_text_keeps_its_markers_and_loses_one_column_of_everything_over_its_tokens():
    batch = toy_batch([6, 4, 1], padding=3)
    batch.sentence = torch.where(batch.content, 0, -1)
    batch.rationale = batch.content.clone()
    batch.teacher_attention = batch.content / batch.content.sum(-1, keepdim=True)
    example = torch.tensor([0, 1, 0])
    removed = torch.tensor([2, 1, 5])
    text = batch.without(example, removed)
    for row, (whole, place) in enumerate(zip(example.tolist(), removed.tolist(), strict=True)):
        for name in ("ids", "mask", "content", "rationale", "sentence"):
            values = getattr(batch, name)[whole].tolist()
            assert getattr(text, name)[row].tolist() == values[:place] + values[place + 1 :]
    assert text.teacher_attention is None  # a teacher never saw the shortened text
    assert text.example_id.tolist() == [100, 101, 100]
