"""Every class as a question: beside all subsets, plain loops, and answers that are known."""

import itertools

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.spatial.distance import jensenshannon
from torch.testing import assert_close

from attnprobe.core.readout import Readout
from attnprobe.evidence.claims import put_to_test
from attnprobe.evidence.verdicts import Verdict
from attnprobe.exact import shapley_values
from attnprobe.probes.classes import Classes, class_table
from attnprobe.probes.erasure import Erasure
from attnprobe.readings.registry import readings
from tests.probes.tables import subject_of, table, values
from tests.toys import toy_batch, toy_classifier, toy_readout, undecided

LENGTHS = [6, 4, 2, 5, 3, 6, 6, 5]
CLASSES = 4


def small_texts(classes=CLASSES, seed=0):
    """The readout of short texts between which a model can hardly decide."""
    batch = toy_batch(LENGTHS, padding=1, classes=classes)
    classifier = undecided(toy_classifier(classes=classes, spread=8, seed=seed), batch)
    return toy_readout(classifier, batch)[1]


def of_class(results, kind, row, number):
    return results[f"{kind}_class_{number}"][row].item()


def answer(weights, logits, number, items):
    """Whether a class is the prediction of these items alone."""
    sums = weights[items] @ logits[items]
    return all(sums[number] > sums[rival] for rival in range(len(sums)) if rival != number)


def questions(readout):
    """Every class of every text: the text's row, weights and logits, and the class's number."""
    for row, length in enumerate(LENGTHS):
        content = readout.content[row]
        weights = readout.attention[row, content].numpy()
        logits = readout.position_logits[row, content].numpy()
        assert len(weights) == length
        for number in range(logits.shape[1]):
            yield row, weights, logits, number


def smallest_by_enumeration(weights, logits, number):
    """The fewest items whose erasure turns the answer to a class; None: no set does."""
    items = range(len(weights))
    is_predicted = answer(weights, logits, number, list(items))
    for size in range(1, len(weights)):
        for erased in itertools.combinations(items, size):
            remaining = [item for item in items if item not in erased]
            if answer(weights, logits, number, remaining) != is_predicted:
                return size
    return None


@pytest.mark.parametrize("classes", [2, 4])
def test_the_smallest_set_of_every_class_is_that_of_all_subsets(classes):
    losses = 0
    gains = 0
    unturned = 0
    for seed in range(3):
        readout = small_texts(classes, seed)
        results = values(Classes(), readout)
        for row, weights, logits, number in questions(readout):
            size = smallest_by_enumeration(weights, logits, number)
            assert of_class(results, "turn_proved", row, number) == 1
            assert of_class(results, "never_turns", row, number) == (size is None)
            measured = of_class(results, "turn_size", row, number)
            if size is None:
                unturned += 1
                assert np.isnan(measured)
            else:
                assert measured == size
                share = of_class(results, "turn_share_optimal", row, number)
                assert share == pytest.approx(size / len(weights))
                is_predicted = answer(weights, logits, number, list(range(len(weights))))
                losses += is_predicted
                gains += not is_predicted
    assert min(losses, gains, unturned) > 5


def test_attentions_order_is_followed_one_item_at_a_time():
    readout = small_texts()
    results = values(Classes(), readout)
    turned = 0
    for row, weights, logits, number in questions(readout):
        order = np.argsort(-weights, kind="stable")
        is_predicted = answer(weights, logits, number, order)
        steps = [
            step
            for step in range(1, len(order))
            if answer(weights, logits, number, order[step:]) != is_predicted
        ]
        expected = steps[0] / len(order) if steps else np.nan
        measured = of_class(results, "turn_share_attention", row, number)
        assert measured == pytest.approx(expected, nan_ok=True)
        turned += bool(steps)
    assert turned > 10


def probability(weights, logits, number, items):
    """Of a class, by these items alone."""
    mean = weights[items] @ logits[items] / weights[items].sum()
    return torch.tensor(mean).softmax(-1)[number].item()


def single_erasures(weights, logits, number):
    """What each item's erasure does to a class: how far it moves it, and whether it turns it."""
    items = list(range(len(weights)))
    before = probability(weights, logits, number, items)
    is_predicted = answer(weights, logits, number, items)
    effects = []
    turns = []
    for item in items:
        remaining = items[:item] + items[item + 1 :]
        after = probability(weights, logits, number, remaining)
        effects.append(jensenshannon([before, 1 - before], [after, 1 - after]) ** 2)
        turns.append(float(answer(weights, logits, number, remaining) != is_predicted))
    return {"effect": effects, "turns": turns}


def test_single_erasures_are_those_of_a_plain_loop():
    readout = small_texts()
    results = values(Classes(), readout)
    for row, weights, logits, number in questions(readout):
        top = int(weights.argmax())
        for kind, numbers in single_erasures(weights, logits, number).items():
            measured = of_class(results, f"top_{kind}", row, number)
            assert measured == pytest.approx(numbers[top], abs=1e-12)
            measured = of_class(results, f"other_{kind}", row, number)
            assert measured == pytest.approx(np.mean(np.delete(numbers, top)), abs=1e-12)


def test_what_an_item_says_for_a_class_is_its_shapley_value_over_all_subsets():
    readout = small_texts()
    results = values(Classes(), readout)
    signs = set()
    for row, weights, logits, number in questions(readout):
        effect = logits - readout.unattended[row].numpy()
        rivals = [rival for rival in range(CLASSES) if rival != number]
        margin = effect[:, number] - effect[:, rivals].mean(1)

        subsets = np.arange(2 ** len(weights))[:, None] >> np.arange(len(weights)) & 1
        members = subsets * weights
        game = (members @ margin) / np.maximum(members.sum(-1), 1e-300)
        expected = shapley_values(torch.tensor(game)[None])[0]
        measured = results[f"class_value_class_{number}"][row, readout.content[row]]
        assert_close(measured, expected)
        signs |= set(expected.sign().tolist())
        against = weights[margin < 0].sum()
        assert of_class(results, "against_mass", row, number) == pytest.approx(against)
    assert signs >= {-1.0, 1.0}


def test_of_two_classes_each_says_what_erasure_says_of_the_decision():
    """The null: where there are only two answers, asking for every class changes nothing."""
    batch = toy_batch(LENGTHS, padding=1, classes=2)
    classifier = undecided(toy_classifier(classes=2, spread=8), batch)
    subject = subject_of(classifier, batch)
    readout = subject.readout
    results = values(Classes(), readout)
    erasure = values(Erasure(importances=["attention"]), subject)
    for number in range(2):
        same = {
            f"turn_size_class_{number}": "removed_count_optimal",
            f"turn_share_optimal_class_{number}": "removed_fraction_optimal",
            f"turn_share_attention_class_{number}": "removed_fraction_attention",
            f"never_turns_class_{number}": "never_flips",
        }
        for metric, published in same.items():
            assert_close(results[metric], erasure[published].double(), equal_nan=True)
    assert_close(results["class_value_class_0"], -results["class_value_class_1"])


def results_of(attention, logits):
    """The probe's numbers of one text."""
    readout = Readout(
        torch.tensor([attention], dtype=torch.float64),
        torch.ones(1, len(attention), dtype=torch.bool),
        torch.zeros(1, dtype=torch.int64),
        position_logits=torch.tensor([logits], dtype=torch.float64),
        unattended=torch.zeros(1, len(logits[0]), dtype=torch.float64),
    )
    return values(Classes(), readout)


def test_a_text_whose_words_stand_for_a_class_each():
    """The word of class 0 hides that of class 1, both that of class 2; nothing is for class 3."""
    results = results_of(
        [0.5, 0.3, 0.15, 0.05],
        [[9.0, 0, 0, 0], [0, 9.0, 0, 0], [0, 0, 9.0, 0], [0, 0, 0, 0]],
    )
    sizes = [of_class(results, "turn_size", 0, number) for number in range(4)]
    assert sizes[:3] == [1, 1, 2]
    assert np.isnan(sizes[3])
    assert [of_class(results, "never_turns", 0, number) for number in range(4)] == [0, 0, 0, 1]
    assert [of_class(results, "against_mass", 0, number) for number in range(4)] == pytest.approx(
        [0.45, 0.65, 0.8, 0.95]
    )
    # erasing the top word takes the prediction from class 0 and brings it to class 1 alone
    assert [of_class(results, "top_turns", 0, number) for number in range(4)] == [1, 1, 0, 0]


# The claims and the table

TEXTS = 40


def numbers_by_class(**kinds):
    """A table in which every text has nearly the same numbers: of each kind one per class."""
    jitter = np.linspace(-0.01, 0.01, TEXTS)
    fixed = ("never_turns", "turn_share_random")
    metrics = {"predicted_class": np.arange(TEXTS) % 2.0}
    for kind, numbers in kinds.items():
        for number, value in enumerate(numbers):
            spread = 0 * jitter if kind in fixed else jitter
            metrics[f"{kind}_class_{number}"] = value + spread
    return table("classes", metrics)


def finding_of(name, results):
    claims = {claim.name: claim for claim in readings()["classes"].claims}
    (finding,) = put_to_test((claims[name],), results)
    return finding


def evidence_of(name, results):
    return finding_of(name, results).evidence


def test_every_class_counts_and_the_class_where_it_holds_least_is_named():
    results = numbers_by_class(
        turn_share_attention=[0.2, 0.7, 0.4],
        turn_share_random=[0.6, 0.6, 0.6],
        turn_share_optimal=[0.1, 0.1, 0.1],
        never_turns=[0, 0, 0],
    )
    mean = evidence_of("attention_beats_random_over_classes", results)
    assert mean.value == pytest.approx((0.4 - 0.1 + 0.2) / 3)
    assert mean.n == TEXTS
    assert mean.low > 0
    lowest = evidence_of("attention_beats_random_in_every_class", results)
    assert (lowest.part, lowest.value) == ("class_1", pytest.approx(-0.1))
    middle = evidence_of("attention_closer_to_optimal_than_to_random_in_every_class", results)
    assert middle.value == pytest.approx(0.35 - 0.7)


def test_in_every_class_is_no_yes_where_one_class_is_not_shown():
    """The class with the smallest number is; the next larger number varies too much."""
    draw = np.random.default_rng(0)
    wide = draw.normal(size=TEXTS)
    wide = (wide - wide.mean()) * 0.6 / wide.std()
    gains = {0: 0.1 + np.linspace(-0.01, 0.01, TEXTS), 1: 0.15 + wide}
    verdicts = []
    for classes in ([0], [1], [0, 1]):
        metrics = {}
        for number in classes:
            metrics[f"turn_share_random_class_{number}"] = gains[number]
            metrics[f"turn_share_attention_class_{number}"] = np.zeros(TEXTS)
            metrics[f"never_turns_class_{number}"] = np.zeros(TEXTS)
        finding = finding_of("attention_beats_random_in_every_class", table("classes", metrics))
        verdicts.append(finding.verdict)
    assert verdicts == [Verdict.MEETS, Verdict.CANNOT_DECIDE, Verdict.CANNOT_DECIDE]
    assert finding.evidence.part == "class_0"
    assert finding.evidence.no_yes == "it is not shown of class_1"


def test_a_class_that_nothing_turns_has_no_order():
    results = numbers_by_class(
        turn_share_attention=[0.2, np.nan],
        turn_share_random=[0.6, np.nan],
        never_turns=[0, 1],
    )
    for name in ("over_classes", "in_every_class"):
        assert evidence_of(f"attention_beats_random_{name}", results).value == pytest.approx(0.4)


def test_an_order_that_turns_no_class_needs_every_item():
    results = numbers_by_class(
        turn_share_attention=[np.nan], turn_share_random=[0.6], never_turns=[0]
    )
    assert evidence_of("attention_beats_random_over_classes", results).value == pytest.approx(-0.4)


def test_the_table_tells_taking_from_bringing():
    results = numbers_by_class(
        class_probability=[0.6, 0.3], turn_size=[1.0, 4.0], top_effect=[0.3, 0.2]
    )
    built = class_table(results)
    assert built["class"].tolist() == ["class 0", "class 0", "class 1", "class 1"]
    assert built["the prediction is"].tolist() == ["taken from it", "brought to it"] * 2
    assert built["texts"].tolist() == [TEXTS // 2] * 4

    sizes = built["smallest set that turns it"].tolist()
    assert sizes == pytest.approx([1, 1, 4, 4], abs=0.01)


def test_a_second_seed_adds_no_texts_to_the_table():
    results = numbers_by_class(class_probability=[0.6, 0.3], turn_size=[1.0, 4.0])
    again = results.assign(seed=1, run_id="again")
    (once, twice) = (class_table(part) for part in (results, pd.concat([results, again])))
    assert twice["texts"].tolist() == once["texts"].tolist()
    ends = [name for name in once if name.endswith((", low", ", high"))]
    assert ends
    assert_allclose(twice[ends], once[ends])
