import math

import numpy as np
import pytest
import torch

from attnprobe.data.columns import packed
from attnprobe.importance.leave_one_out import leave_one_out
from attnprobe.probes.plausibility import PERSON, Plausibility, plausibility_table, points
from attnprobe.results.table import read_results
from attnprobe.runs.run import run
from tests.probes.tables import subject_of, table, values
from tests.probes.texts import Text, numbers_of
from tests.small_runs import small_run
from tests.toys import toy_batch, toy_classifier


def measured(batch):
    subject = subject_of(toy_classifier(spread=4), batch)
    return subject, values(Plausibility(), subject)


@pytest.fixture(scope="module")
def marked():
    """Three texts, of which the first two have a rationale."""
    batch = toy_batch([6, 4, 5])
    batch.rationale = torch.zeros_like(batch.content)
    batch.rationale[0, 2:4] = True
    batch.rationale[1, 1] = True
    return measured(batch)


@pytest.mark.parametrize("name", ["attention", "leave_one_out"])
@pytest.mark.parametrize("row", [0, 1])
def test_each_importance_is_compared_with_the_rationale(marked, name, row):
    subject, numbers = marked
    text = Text(subject, row)
    removals = leave_one_out(subject.classifier, subject.batch, subject.outputs)
    scores = {
        "attention": text.weights,
        "leave_one_out": text.at_words(removals.distance),
    }[name]
    rationale = text.at_words(subject.batch.rationale)
    mass = scores[rationale].sum() / scores.sum()
    result = numbers_of(numbers, row)
    assert result[f"top_in_rationale_{name}"] == rationale[scores.argmax()]
    assert result[f"mass_in_rationale_{name}"] == pytest.approx(mass)


def test_a_text_without_a_rationale_has_no_number(marked):
    _, numbers = marked
    assert numbers["rationale_share"][:2].tolist() == pytest.approx([2 / 6, 1 / 4])
    for metric, value in numbers.items():
        assert value[2].isnan(), metric


def test_data_without_rationales_have_no_rows():
    _, numbers = measured(toy_batch([6, 4]))
    assert numbers == {}


PEOPLE = [
    [True, False, True, False],
    [True, False, False, False],
    [False, True, False, False],
]


"""Which words of a text each of three people marked."""


@pytest.fixture(scope="module")
def annotated():
    """The numbers of a text that three people marked, and of one that nobody did."""
    marks = packed([np.array(person) for person in PEOPLE])
    batch = toy_batch([4, 4])
    batch.rationale = torch.zeros_like(batch.content)
    batch.rationale[0, 1] = True
    batch.annotators = torch.zeros_like(batch.ids)
    batch.annotators[0, batch.content[0]] = torch.from_numpy(marks).long()
    _, numbers = measured(batch)
    return numbers


def test_the_human_ceiling_is_that_of_each_person_against_the_others(annotated):
    """A: half right of two and two; B: its one word of three; C: nothing of what the others
    marked."""
    ceiling, undefined = annotated["human_f1"].tolist()
    f1_of_first = 2 * 1 / 4
    f1_of_second = 2 * 1 / 4
    f1_of_third = 0
    mean = (f1_of_first + f1_of_second + f1_of_third) / 3
    assert ceiling == pytest.approx(mean)
    assert math.isnan(undefined)


def test_the_human_ceiling_stands_beside_each_importance(annotated):
    assert set(annotated) >= {"others_f1_attention", "others_auprc_gradient"}
    results = table("plausibility", annotated)
    row = plausibility_table(results).set_index("importance").loc[PERSON]
    assert row["f1 against the others"] == pytest.approx(1 / 3)
    assert np.isnan(row["f1 above chance"])
    assert len(points(results, None).axes) == 1


GOLD = [1, 3, 5]
"""Of three texts: the first and the last word have a neighbour on one side only."""


@pytest.fixture(scope="module")
def aligned():
    """Texts with a gold link each but the last, and what is measured."""
    batch = toy_batch([6, 4, 5, 5], question=True, classes=3)
    batch.rationale = torch.zeros_like(batch.content)
    batch.rationale[range(3), GOLD] = True
    classifier = toy_classifier(spread=6, question="additive", classes=3)
    subject = subject_of(classifier, batch)
    return subject, values(Plausibility(), subject)


def alignment_error(links, gold):
    """1 − 2 |L ∩ G| / (|L| + |G|) of links L and gold links G."""
    return 1 - 2 * len(links & gold) / (len(links) + len(gold))


@pytest.mark.parametrize(("prefix", "shift"), [("", 0), ("left_", -1), ("right_", 1)])
@pytest.mark.parametrize("row", [0, 1, 2])
def test_alignment_error_and_mass_are_those_of_a_plain_loop_over_links(aligned, prefix, shift, row):
    """The only link is the top word; a gold link that leaves the text is none."""
    subject, numbers = aligned
    weights = Text(subject, row).weights
    words = set(range(len(weights)))
    gold = {GOLD[row] - 1 + shift} & words
    error = alignment_error({int(weights.argmax())}, gold)
    mass = sum(weights[word] for word in gold)
    chance = len(gold) / len(words)

    result = numbers_of(numbers, row)

    assert result[f"{prefix}alignment_error_attention"] == pytest.approx(error)
    assert result[f"{prefix}mass_beyond_chance_attention"] == pytest.approx(mass - chance)


@pytest.mark.parametrize("prefix", ["", "left_", "right_"])
def test_a_text_without_gold_links_has_no_alignment_error(aligned, prefix):
    _, numbers = aligned
    assert numbers[f"{prefix}alignment_error_attention"][3].isnan()


def means_of(tmp_path, attention, *changes):
    """Metric → its mean in a run with this attention imposed."""
    config = small_run(
        tmp_path,
        "task=qa",
        "data=transductions",
        "model/decoder=additive",
        f"model/attention={attention}",
        *changes,
        "data.source.train_size=40",
        "data.source.test_size=40",
        "probe.plausibility.importances=[attention]",
        probes="[plausibility]",
    )
    results = read_results(run(config), probe="plausibility")
    return results.groupby("metric", observed=True)["value"].mean()


def test_equal_weights_are_at_chance(tmp_path):
    mean = means_of(tmp_path, "uniform")
    assert mean["mass_beyond_chance_attention"] == pytest.approx(0, abs=1e-6)
    assert mean["alignment_error_attention"] == pytest.approx(1 - mean["rationale_share"])


def test_imposed_gold_has_no_error(tmp_path):
    mean = means_of(tmp_path, "rationale", "model.attention.mass=1.0")
    share = mean["rationale_share"]
    assert mean["mass_beyond_chance_attention"] == pytest.approx(1 - share, abs=1e-6)
    assert mean["alignment_error_attention"] == pytest.approx(0, abs=1e-6)
    assert mean["left_alignment_error_attention"] == pytest.approx(1, abs=0.1)
    assert mean["right_alignment_error_attention"] == pytest.approx(1, abs=0.1)


def test_gold_imposed_one_place_to_the_right_is_seen_there(tmp_path):
    mean = means_of(tmp_path, "rationale_off", "model.attention.mass=1.0")
    # a copy's last word has no neighbour to the right, and one step in as many as there are words
    # is about it
    expected = mean["rationale_share"]
    assert mean["right_alignment_error_attention"] == pytest.approx(expected, abs=1e-6)
    assert mean["alignment_error_attention"] == pytest.approx(1, abs=0.1)
    assert mean["left_alignment_error_attention"] == pytest.approx(1, abs=0.1)
