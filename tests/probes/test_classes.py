"""Every class as a question: beside all subsets, plain loops, and answers that are known."""

import itertools
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.spatial.distance import jensenshannon
from scipy.special import softmax
from torch.testing import assert_close

from attnprobe.core.readout import Readout
from attnprobe.evidence.claims import put_to_test
from attnprobe.evidence.verdicts import Verdict
from attnprobe.probes.classes import Classes, class_table
from attnprobe.probes.erasure import Erasure
from attnprobe.readings.registry import readings
from tests.probes.tables import subject_of, table, values
from tests.shapley import shapley_of_means
from tests.toys import toy_batch, toy_classifier, toy_readout, undecided

LENGTHS = [6, 4, 2, 5, 3, 6, 6, 5]
CLASSES = 4


def small_texts(classes=CLASSES, seed=0):
    """The readout of short texts between which a model can hardly decide."""
    batch = toy_batch(LENGTHS, padding=1, classes=classes)
    classifier = toy_classifier(classes=classes, spread=8, seed=seed)
    _, readout = toy_readout(undecided(classifier, batch), batch)
    return readout


def of_class(results, kind, row, number):
    return results[f"{kind}_class_{number}"][row].item()


@dataclass(frozen=True)
class Question:
    """Is a text of this class? Asked of every class of every text.

    Attributes:
        row: the text's number.
        number: the class's.
        weights: the attention to each word.
        logits: what the model says under attention to one word alone, `[words, classes]`.
        unattended: what it says under none, `[classes]`.
    """

    row: int
    number: int
    weights: np.ndarray
    logits: np.ndarray
    unattended: np.ndarray

    @property
    def words(self):
        return list(range(len(self.weights)))

    def is_answer(self, words):
        """Whether the class is the prediction of these words alone."""
        sums = self.weights[words] @ self.logits[words]
        rivals = np.delete(sums, self.number)
        return bool(sums[self.number] > rivals.max())

    def probability(self, words):
        """Of the class, by these words alone."""
        weights = self.weights[words]
        mean = weights @ self.logits[words] / weights.sum()
        return softmax(mean)[self.number]

    @property
    def margin(self):
        """What each word adds to the class over the mean of its rivals."""
        effects = self.logits - self.unattended
        rivals = np.delete(effects, self.number, axis=1)
        return effects[:, self.number] - rivals.mean(1)

    def value(self, results, kind):
        """What the probe says of it."""
        return results[f"{kind}_class_{self.number}"][self.row].item()


def questions(readout):
    """Every class of every text."""
    for row, length in enumerate(LENGTHS):
        content = readout.content[row]
        assert content.sum() == length
        for number in range(readout.position_logits.shape[-1]):
            yield Question(
                row=row,
                number=number,
                weights=readout.attention[row, content].numpy(),
                logits=readout.position_logits[row, content].numpy(),
                unattended=readout.unattended[row].numpy(),
            )


def smallest_by_enumeration(question):
    """The fewest words whose erasure turns the answer; None: no set does."""
    words = question.words
    is_predicted = question.is_answer(words)
    for size in range(1, len(words)):
        for erased in itertools.combinations(words, size):
            remaining = [word for word in words if word not in erased]
            if question.is_answer(remaining) != is_predicted:
                return size
    return None


def answers(classes):
    """Every question to three models, with the probe's results."""
    for seed in range(3):
        readout = small_texts(classes, seed)
        results = values(Classes(), readout)
        for question in questions(readout):
            yield question, results


@pytest.mark.parametrize("classes", [2, 4])
def test_the_smallest_set_of_every_class_is_that_of_all_subsets(classes):
    cases = Counter()
    for question, results in answers(classes):
        size = smallest_by_enumeration(question)
        assert question.value(results, "turn_proved") == 1
        assert question.value(results, "never_turns") == (size is None)
        if size is None:
            assert np.isnan(question.value(results, "turn_size"))
            cases["not turned"] += 1
        else:
            share = size / len(question.words)
            assert question.value(results, "turn_size") == size
            assert question.value(results, "turn_share_optimal") == pytest.approx(share)
            cases["lost" if question.is_answer(question.words) else "gained"] += 1
    assert min(cases["lost"], cases["gained"], cases["not turned"]) > 5


def test_attentions_order_is_followed_one_item_at_a_time():
    readout = small_texts()
    results = values(Classes(), readout)
    turned = 0
    for question in questions(readout):
        order = np.argsort(-question.weights, kind="stable")
        is_predicted = question.is_answer(order)
        expected = np.nan
        for step in range(1, len(order)):
            if question.is_answer(order[step:]) != is_predicted:
                expected = step / len(order)
                turned += 1
                break
        share = question.value(results, "turn_share_attention")
        assert share == pytest.approx(expected, nan_ok=True)
    assert turned > 10


def single_erasures(question):
    """What each word's erasure does to a class: how far it moves it, and whether it turns it."""
    words = question.words
    before = question.probability(words)
    is_predicted = question.is_answer(words)
    effects = []
    turns = []
    for word in words:
        remaining = [rest for rest in words if rest != word]
        after = question.probability(remaining)
        effects.append(jensenshannon([before, 1 - before], [after, 1 - after]) ** 2)
        turns.append(float(question.is_answer(remaining) != is_predicted))
    return {"effect": effects, "turns": turns}


def test_single_erasures_are_those_of_a_plain_loop():
    readout = small_texts()
    results = values(Classes(), readout)
    for question in questions(readout):
        top = int(question.weights.argmax())
        for kind, numbers in single_erasures(question).items():
            mean_of_others = np.mean(np.delete(numbers, top))
            top_value = question.value(results, f"top_{kind}")
            other_value = question.value(results, f"other_{kind}")
            assert top_value == pytest.approx(numbers[top], abs=1e-12)
            assert other_value == pytest.approx(mean_of_others, abs=1e-12)


def test_what_an_item_says_for_a_class_is_its_shapley_value_over_all_subsets():
    readout = small_texts()
    results = values(Classes(), readout)
    signs = set()
    for question in questions(readout):
        expected = shapley_of_means(question.weights, question.margin)
        content = readout.content[question.row]
        shapley = results[f"class_value_class_{question.number}"][question.row, content]
        assert_close(shapley, expected)
        signs |= set(expected.sign().tolist())

        against = question.weights[question.margin < 0].sum()
        assert question.value(results, "against_mass") == pytest.approx(against)
    assert signs >= {-1.0, 1.0}


def test_of_two_classes_each_says_what_erasure_says_of_the_decision():
    """The null: where there are only two answers, asking for every class changes nothing."""
    batch = toy_batch(LENGTHS, padding=1, classes=2)
    classifier = undecided(toy_classifier(classes=2, spread=8), batch)
    subject = subject_of(classifier, batch)
    results = values(Classes(), subject.readout)
    erasure = values(Erasure(importances=["attention"]), subject)
    same = {
        "turn_size": "removed_count_optimal",
        "turn_share_optimal": "removed_fraction_optimal",
        "turn_share_attention": "removed_fraction_attention",
        "never_turns": "never_flips",
    }
    for number in range(2):
        for kind, published in same.items():
            result = results[f"{kind}_class_{number}"]
            assert_close(result, erasure[published].double(), equal_nan=True)
    assert_close(results["class_value_class_0"], -results["class_value_class_1"])


def test_a_text_whose_words_stand_for_a_class_each():
    """The word of class 0 hides that of class 1, both that of class 2; nothing is for class 3."""
    readout = Readout(
        attention=torch.tensor([[0.5, 0.3, 0.15, 0.05]], dtype=torch.float64),
        content=torch.ones(1, 4, dtype=torch.bool),
        example_id=torch.tensor([0]),
        position_logits=torch.diag(torch.tensor([9.0, 9.0, 9.0, 0.0])).double()[None],
        unattended=torch.zeros(1, 4, dtype=torch.float64),
    )
    results = values(Classes(), readout)

    def of_classes(kind):
        return [of_class(results, kind, 0, number) for number in range(4)]

    assert of_classes("turn_size") == pytest.approx([1, 1, 2, np.nan], nan_ok=True)
    assert of_classes("never_turns") == [0, 0, 0, 1]
    assert of_classes("against_mass") == pytest.approx([0.45, 0.65, 0.8, 0.95])
    # erasing the top word takes the prediction from class 0 and brings it to class 1 alone
    assert of_classes("top_turns") == [1, 1, 0, 0]


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
    lowest = evidence_of("attention_beats_random_in_every_class", results)
    middle = evidence_of("attention_closer_to_optimal_than_to_random_in_every_class", results)
    assert mean.value == pytest.approx((0.4 - 0.1 + 0.2) / 3)
    assert mean.n == TEXTS
    assert mean.low > 0
    assert lowest.part == "class_1"
    assert lowest.value == pytest.approx(-0.1)
    assert middle.value == pytest.approx(0.35 - 0.7)


def test_three_seeds_of_four_texts_are_too_few_texts_for_a_class_to_hold_least():
    runs = []
    for seed in range(3):
        run = numbers_by_class(
            turn_share_attention=[0.2, 0.7], turn_share_random=[0.6, 0.6], never_turns=[0, 0]
        )
        is_rare = (run["example_id"] >= 4) & run["metric"].str.endswith("_class_1")
        run.loc[is_rare, "value"] = np.nan
        runs.append(run.assign(run_id=f"r{seed}", seed=seed))
    lowest = evidence_of("attention_beats_random_in_every_class", pd.concat(runs))
    assert lowest.part == "class_0"


@pytest.fixture
def gains():
    """Class → how much sooner attention turns each text's answer than random order does.

    Of class 0 the gain is small and certain; of class 1 it is larger, and varies too much.
    """
    noise = np.random.default_rng(0).normal(size=TEXTS)
    standardised = (noise - noise.mean()) / noise.std()
    return {
        0: 0.1 + np.linspace(-0.01, 0.01, TEXTS),
        1: 0.15 + 0.6 * standardised,
    }


@pytest.mark.parametrize(
    ("classes", "verdict"),
    [
        ([0], Verdict.MEETS),
        ([1], Verdict.CANNOT_DECIDE),
        ([0, 1], Verdict.CANNOT_DECIDE),
    ],
)
def test_in_every_class_is_no_yes_where_one_class_is_not_shown(gains, classes, verdict):
    metrics = {}
    for number in classes:
        metrics[f"turn_share_random_class_{number}"] = gains[number]
        metrics[f"turn_share_attention_class_{number}"] = np.zeros(TEXTS)
        metrics[f"never_turns_class_{number}"] = np.zeros(TEXTS)
    finding = finding_of("attention_beats_random_in_every_class", table("classes", metrics))
    assert finding.verdict == verdict
    if len(classes) == 2:
        assert finding.evidence.part == "class_0"
        assert finding.evidence.no_yes == "it is not shown of class_1"


@pytest.mark.parametrize("name", ["over_classes", "in_every_class"])
def test_a_class_that_nothing_turns_has_no_order(name):
    results = numbers_by_class(
        turn_share_attention=[0.2, np.nan],
        turn_share_random=[0.6, np.nan],
        never_turns=[0, 1],
    )
    evidence = evidence_of(f"attention_beats_random_{name}", results)
    assert evidence.value == pytest.approx(0.4)


def test_an_order_that_turns_no_class_needs_every_item():
    results = numbers_by_class(
        turn_share_attention=[np.nan],
        turn_share_random=[0.6],
        never_turns=[0],
    )
    evidence = evidence_of("attention_beats_random_over_classes", results)
    assert evidence.value == pytest.approx(-0.4)


def test_the_table_tells_taking_from_bringing():
    results = numbers_by_class(
        class_probability=[0.6, 0.3],
        turn_size=[1.0, 4.0],
        top_effect=[0.3, 0.2],
    )
    lines = class_table(results)
    assert lines["class"].tolist() == ["class 0", "class 0", "class 1", "class 1"]
    assert lines["the prediction is"].tolist() == [
        "taken from it",
        "brought to it",
        "taken from it",
        "brought to it",
    ]
    assert lines["texts"].tolist() == [TEXTS // 2] * 4
    sizes = lines["smallest set that turns it"].tolist()
    assert sizes == pytest.approx([1, 1, 4, 4], abs=0.01)


def test_a_second_seed_adds_no_texts_to_the_table():
    results = numbers_by_class(class_probability=[0.6, 0.3], turn_size=[1.0, 4.0])
    second_run = results.assign(seed=1, run_id="again")
    lines = class_table(results)
    lines_of_both = class_table(pd.concat([results, second_run]))
    assert lines_of_both["texts"].tolist() == lines["texts"].tolist()
    ends = [name for name in lines if name.endswith((", low", ", high"))]
    assert ends
    assert_allclose(lines_of_both[ends], lines[ends])
