"""Does each label have an attention of its own? Beside plain loops and all subsets."""

import itertools
from collections import Counter
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from torch.testing import assert_close

from attnprobe.core.errors import UserError
from attnprobe.core.randomness import Draws
from attnprobe.data.batching import TextSplit
from attnprobe.data.examples import Ragged
from attnprobe.importance.base import Subject
from attnprobe.models.attention import LabelAttention
from attnprobe.models.decoders import LabelDecoder
from attnprobe.models.encoders import LabelVector
from attnprobe.probes.base import Measurement
from attnprobe.probes.labels import Labels
from attnprobe.probes.swaps import Swaps
from tests.probes.texts import numbers_of
from tests.shapley import shapley_of_means
from tests.toys import VOCABULARY, toy_classifier, toy_readout

LENGTHS = [5, 3, 1, 6]
ASKED = [3, 2, 1, 4]
"""Labels that each text is asked for."""


def rows_asked():
    """Text and label of each row."""
    for text, count in enumerate(ASKED):
        for label in range(count):
            yield text, label


def split_of(*, same_label=False):
    """Texts that are asked for so many labels each; on request always for the same vector."""
    draw = np.random.default_rng(0)
    words = [draw.integers(4, VOCABULARY, length) for length in LENGTHS]
    texts = []
    names = []
    for text, label in rows_asked():
        texts.append(text)
        names.append(np.array([4 if same_label else 4 + label]))
    return TextSplit(
        example_id=np.arange(len(texts)),
        words=Ragged.of([words[text] for text in texts], np.int32),
        vocabulary_id=np.arange(VOCABULARY),
        columns={
            "labels": np.arange(len(texts)) % 2,
            "question": Ragged.of(names, np.int32),
            "text_number": np.array(texts),
        },
    )


def model(attention=LabelAttention, seed=0):
    return toy_classifier(
        "lstm",
        attention,
        decoder=LabelDecoder,
        question=True,
        question_encoder=LabelVector,
        spread=3,
        seed=seed,
    )


def measured(classifier, split, rows=None, **settings):
    """What the probe yields of some rows by metric, and their readout."""
    batch = split[list(range(len(split))) if rows is None else rows]
    outputs, readout = toy_readout(classifier, batch)
    subject = Subject(classifier, batch, outputs, readout)
    probe = Labels(**settings)
    probe.prepare({"test": split})
    results = probe.examine(subject, Draws(0, "labels"))
    return {result.metric: result for result in results}, readout


def other_label_jsd(classifier, split, rows=None, **settings):
    results, _ = measured(classifier, split, rows, **settings)
    return results["other_label_jsd"].value


OF_LAST_TEXT = [6, 7, 8, 9]


"""Rows of the text that is asked for four labels, so that each has three others."""


def test_more_others_than_a_text_has_are_all_others():
    split = split_of()
    classifier = model()
    by_default = other_label_jsd(classifier, split)
    of_all = other_label_jsd(classifier, split, others=3)
    assert_close(of_all, by_default, rtol=0, atol=0, equal_nan=True)


def test_texts_of_few_labels_are_compared_with_all_others():
    split = split_of()
    classifier = model()
    of_two = other_label_jsd(classifier, split, others=2)[:6]
    of_all = other_label_jsd(classifier, split)[:6]
    assert_close(of_two, of_all, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("row", OF_LAST_TEXT)
def test_of_many_other_labels_a_few_are_drawn_for_each_row_by_itself(row):
    """The number is the mean of two of the divergences from the three others, by scipy."""
    split = split_of()
    classifier = model()
    outputs, _ = toy_readout(classifier, split[OF_LAST_TEXT])
    attention, *others = np.roll(outputs.attention, OF_LAST_TEXT[0] - row, axis=0)
    divergences = [jensenshannon(attention, other) ** 2 for other in others]
    means = [np.mean(pair) for pair in itertools.combinations(divergences, 2)]

    of_two = other_label_jsd(classifier, split, others=2)[row].item()

    assert min(abs(of_two - mean) for mean in means) < 1e-9
    alone = other_label_jsd(classifier, split, rows=[row], others=2)
    assert alone.item() == pytest.approx(of_two)


def test_other_labels_are_those_of_the_same_text_one_pair_at_a_time():
    split = split_of()
    results, readout = measured(model(), split)
    predictions = readout.prediction()
    for row, text in enumerate(split.text_number):
        divergences = []
        distances = []
        for other in np.flatnonzero(split.text_number == text):
            if other != row:
                attention = readout.attention[other]
                divergence = jensenshannon(readout.attention[row], attention) ** 2
                prediction = (attention @ readout.position_logits[row]).softmax(-1)
                distance = (prediction - predictions[row]).abs().sum() / 2
                divergences.append(divergence)
                distances.append(distance)
        jsd = np.mean(divergences) if divergences else np.nan
        tvd = np.mean(distances) if distances else np.nan
        measured_jsd = results["other_label_jsd"].value[row].item()
        measured_tvd = results["other_label_tvd"].value[row].item()
        assert measured_jsd == pytest.approx(jsd, nan_ok=True)
        assert measured_tvd == pytest.approx(tvd, nan_ok=True)


@pytest.mark.parametrize("metric", ["other_label_jsd", "other_label_tvd"])
def test_labels_that_attend_alike_are_found_out(metric):
    results, _ = measured(model(), split_of(same_label=True))
    has_others = torch.tensor([ASKED[text] > 1 for text, _ in rows_asked()])
    values = results[metric].value
    assert values[has_others].abs().max() < 1e-12
    assert values[~has_others].isnan().all()


@pytest.mark.parametrize("rows", [[1], [9, 0], [5, 4, 7]])
def test_what_a_row_is_compared_with_does_not_depend_on_its_batch(rows):
    split = split_of()
    classifier = model()
    together, _ = measured(classifier, split)
    apart, _ = measured(classifier, split, rows)
    for metric in ("other_label_jsd", "other_label_tvd", "against_mass", "yes_to_no"):
        expected = together[metric].value[rows]
        assert_close(apart[metric].value, expected, equal_nan=True)


def smallest(weights, margins):
    """The fewest words whose erasure turns the sign of the mean margin, of all subsets."""
    says_yes = weights @ margins > 0
    for size in range(1, len(weights)):
        for erased in itertools.combinations(range(len(weights)), size):
            kept = [word for word in range(len(weights)) if word not in erased]
            if (weights[kept] @ margins[kept] > 0) != says_yes:
                return size
    return None


@dataclass(frozen=True)
class Row:
    """A text and one of its labels, and what is measured of it.

    Attributes:
        numbers: metric → the row's number.
        word_values: what the probe says of each word.
        weights: the attention to each word.
        margins: by how much the label is right rather than wrong under attention to one word alone.
        bias: the same under no attention.
    """

    numbers: dict[str, float]
    word_values: torch.Tensor
    weights: np.ndarray
    margins: np.ndarray
    bias: float


def in_small_cases():
    """The rows of four models."""
    for seed in range(4):
        attention = partial(LabelAttention, inner_size=5)
        results, readout = measured(model(attention, seed), split_of())
        values = {metric: result.value for metric, result in results.items()}
        margins = readout.position_logits[..., 1] - readout.position_logits[..., 0]
        bias = readout.unattended[:, 1] - readout.unattended[:, 0]
        for row, content in enumerate(readout.content):
            is_word = ~results["label_value"].step[row].isnan()
            yield Row(
                numbers=numbers_of(values, row),
                word_values=values["label_value"][row, is_word],
                weights=readout.attention[row, content].numpy(),
                margins=margins[row, content].numpy(),
                bias=bias[row].item(),
            )


def test_the_smallest_set_is_that_of_all_subsets_in_both_directions():
    turned = set()
    for row in in_small_cases():
        says_yes = row.weights @ row.margins > 0
        turn = "yes_to_no" if says_yes else "no_to_yes"
        opposite_turn = "no_to_yes" if says_yes else "yes_to_no"
        size = smallest(row.weights, row.margins)
        assert row.numbers["says_yes"] == says_yes
        assert row.numbers["never_turns"] == (size is None)
        assert np.isnan(row.numbers[opposite_turn])
        if size is None:
            assert np.isnan(row.numbers[turn])
        else:
            assert row.numbers[turn] == size
            turned.add(turn)
    assert turned == {"yes_to_no", "no_to_yes"}


def test_what_a_word_says_for_a_label_or_against_it_is_its_shapley_value_by_all_subsets():
    signs = set()
    for row in in_small_cases():
        payoffs = row.margins - row.bias
        expected = shapley_of_means(row.weights, payoffs)
        against = row.weights[payoffs < 0].sum()
        assert_close(row.word_values, expected)
        assert row.numbers["against_mass"] == pytest.approx(against)
        signs |= set(expected.sign().tolist())
    assert signs >= {-1.0, 1.0}


def test_data_without_labels_are_refused():
    split = split_of()
    columns = dict(split.columns)
    del columns["text_number"]
    unlabelled = TextSplit(split.example_id, split.words, split.vocabulary_id, columns)
    with pytest.raises(UserError, match=r"probe labels .*leave it out of probe=.*task=labels"):
        Labels().prepare({"test": unlabelled})


def test_swaps_examine_texts_with_all_their_labels():
    """Every second row would be every second label."""
    probe = Swaps(texts=20)
    number = np.repeat(np.arange(40), 4)
    split = TextSplit(
        example_id=np.arange(160),
        words=Ragged.of([np.array([4, 5, 6])] * 160, np.int32),
        vocabulary_id=np.arange(VOCABULARY),
        columns={"labels": number % 2, "text_number": number},
    )
    probe.prepare({"test": split})
    rows_of_text = Counter(number[probe._is_examined])
    assert list(rows_of_text.values()) == [4] * 5


def test_a_text_is_read_once_for_all_its_labels_though_its_rows_come_in_several_batches():
    split = split_of()
    classifier = model().double()
    expected = other_label_jsd(classifier, split)
    probe = Labels()
    probe.prepare({"test": split})
    texts_read = []

    def count_texts(encoder, arguments):
        texts_read.append(len(arguments[0]))

    classifier.encoder.register_forward_pre_hook(count_texts)

    values = []
    # how many texts each batch is the first to ask for
    batches = [
        ([0, 1], 1),
        ([2], 0),
        ([3, 4, 5, 6, 7], 3),
        ([8, 9], 0),
    ]
    for rows, texts in batches:
        batch = split[rows]
        outputs, readout = toy_readout(classifier, batch)
        subject = Subject(classifier, batch, outputs, readout)
        texts_read.clear()
        results = {
            result.metric: result.value
            for result in probe.examine(subject, Draws(0, "labels"))
            if isinstance(result, Measurement)
        }
        values.append(results["other_label_jsd"])
        assert sum(texts_read) == texts
    assert_close(torch.cat(values), expected, equal_nan=True)
