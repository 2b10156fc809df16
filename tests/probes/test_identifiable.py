import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.optimize import linprog

from attnprobe.core.errors import UserError
from attnprobe.core.randomness import Draws
from attnprobe.importance.base import Note
from attnprobe.probes.base import Measurement
from attnprobe.probes.identifiable import READ_METRICS, Identifiable, lengths_table, ranges_of_mean
from attnprobe.results.pivot import ASKED
from tests.probes.tables import subject_of, table
from tests.probes.texts import Text, numbers_of
from tests.toys import toy_batch, toy_classifier


def measured(model, batch, words=None):
    """What the probe measures by metric, and what it notes by name."""
    subject = subject_of(model, batch)
    measurements = {}
    notes = {}
    for result in Identifiable(words).examine(subject, Draws(0, "i")):
        if isinstance(result, Note):
            notes[result.name] = result.value
        if isinstance(result, Measurement):
            measurements[result.metric] = result.value
    return measurements, notes


def one_programme(weights, values, word, chosen):
    """The range of a word's mean weight by one linear programme over all rows together.

    The unknowns are the weights of all rows. Each row sums to 1, and its weighted sum of values is
    what it was.
    """
    rows, pieces, size = values.shape
    unknowns = rows * pieces
    equations = []
    for row in range(rows):
        columns = slice(row * pieces, (row + 1) * pieces)
        of_row = np.zeros((1 + size, unknowns))
        of_row[0, columns] = 1
        of_row[1:, columns] = values[row].T
        equations.append(of_row)
    equations = np.vstack(equations)
    sums = equations @ weights.flatten().numpy()
    cost = np.tile((word == chosen) / rows, rows)
    least = linprog(cost, A_eq=equations, b_eq=sums)
    most = linprog(-cost, A_eq=equations, b_eq=sums)
    return least.fun, -most.fun


def pieces():
    """Weights, values and words of nine pieces in three rows with values of four numbers."""
    generator = torch.Generator().manual_seed(5)
    scores = torch.randn(3, 9, generator=generator, dtype=torch.float64)
    values = torch.randn(3, 9, 4, generator=generator, dtype=torch.float64)
    word = torch.tensor([-1, 1, 1, 2, 3, 3, 3, 4, -1])
    return scores.softmax(-1), values, word


LENGTHS = [2, 5, 9, 1]
CHOSEN = torch.tensor([1, 3, 4])


@pytest.mark.parametrize("chosen", CHOSEN.tolist())
def test_words_of_several_pieces_in_several_heads_are_what_one_large_programme_says(chosen):
    weights, values, word = pieces()

    ranges = ranges_of_mean(weights, values, word, CHOSEN)

    low, high = one_programme(weights, values, word, chosen)
    assert_allclose(ranges.low[chosen], low, atol=1e-7)
    assert_allclose(ranges.high[chosen], high, atol=1e-7)
    # the attention at that end has this weight there, and is one
    lowest = ranges.lowest[chosen]
    assert_allclose(lowest[chosen], low, atol=1e-7)
    assert 0 < lowest[:5].sum() <= 1 + 1e-9


def test_a_word_that_is_not_chosen_has_no_range_and_free_directions_add_up_over_rows():
    weights, values, word = pieces()
    ranges = ranges_of_mean(weights, values, word, CHOSEN)
    assert ranges.low[2].isnan()
    assert not ranges.unique
    assert ranges.freedom == 3 * (9 - 1 - 4)


@pytest.fixture(scope="module")
def two_classes():
    """A linear decoder of two classes: the subject, what is measured of it, and the notes."""
    model = toy_classifier().double().eval()
    batch = toy_batch(LENGTHS)
    numbers, notes = measured(model, batch)
    return subject_of(model, batch), numbers, notes


def test_two_classes_leave_nearly_every_attention_of_a_linear_decoder_free(two_classes):
    """Only the margin has to stay: in a text of n words n − 2 directions are free.

    The attention to two words is unique.
    """
    _, numbers, notes = two_classes
    assert LENGTHS == [2, 5, 9, 1]
    assert numbers["freedom"].tolist() == [0, 3, 7, 0]
    assert numbers["unique"].tolist() == [1, 0, 0, 1]
    assert notes["largest_change_of_output"] < 1e-7


@pytest.mark.parametrize("row", range(len(LENGTHS)))
def test_the_least_weight_with_two_classes_is_that_of_a_programme_with_two_equations(
    two_classes, row
):
    """The weights sum to one, and the margin stays what it is."""
    subject, numbers, _ = two_classes
    text = Text(subject, row)
    margins = text.logits[:, 1] - text.logits[:, 0]
    equations = np.stack([np.ones_like(margins), margins])
    sums = equations @ text.weights
    cost = np.zeros_like(margins)
    cost[text.weights.argmax()] = 1
    least = linprog(cost, A_eq=equations, b_eq=sums).fun

    result = numbers_of(numbers, row)

    assert result["top_low"] == pytest.approx(least, abs=1e-7)
    assert result["top_can_vanish"] == (least <= 1e-6)


def test_a_transformers_short_texts_have_one_attention_and_long_ones_many():
    pytest.importorskip("transformers")
    from tests.models.pretrained.families import WORDS, batch_of, classifier

    model = classifier("bert")  # heads of 6
    texts = ["fine", "the film was fine", " ".join(WORDS[:12])]
    batch = batch_of(model, texts)
    model.prepare(batch)

    numbers, _ = measured(model, batch, words=2)

    assert numbers["parts"].tolist() == [3, 6, 14]
    assert numbers["unique"].tolist() == [1, 1, 0]
    assert numbers["low"][2].isfinite().sum() == 2
    short = numbers_of(numbers, 1)
    long = numbers_of(numbers, 2)
    assert long["freedom"] == 4 * (14 - 1 - 6)
    assert long["top_low"] < long["top_weight"] < long["top_high"]
    assert short["farthest_jsd"] < 1e-12 < long["farthest_jsd"]


def test_a_model_whose_attention_may_enter_in_other_ways_is_refused():
    pytest.importorskip("transformers")
    from tests.models.pretrained.families import classifier

    model = classifier("bert")
    model.is_summed = False
    with pytest.raises(UserError, match="enters the prediction through one sum alone"):
        Identifiable().refuse(model)


def test_attentions_that_are_unique_by_length():
    metrics = {name: [0.1, 0.2, 0.3, 0.4] for name in READ_METRICS}
    metrics["parts"] = [16, 17, 32, 600]
    metrics["unique"] = [1, 1, 0, 0]
    metrics["top_low"] = [0.1, 0.2, 0.4, 0.0]
    results = table("identifiable", metrics)

    lengths = lengths_table(results).set_index("parts")

    assert list(lengths.index) == ["1 to 16", "17 to 32", "over 512", "all"]
    assert lengths["n"].tolist() == [1, 2, 1, 4]
    assert lengths["unique"].tolist() == [1, 0.5, 0, 0.5]
    assert lengths["its least weight"].tolist() == pytest.approx([0.1, 0.3, 0.0, 0.175])


def test_a_text_of_several_questions_counts_once_in_every_mean():
    """Rows 0 and 1 are one text's: its mean 0.1 and the other's 0.5 have the mean 0.3."""
    metrics = {metric: [0.0, 0.2, 0.5] for metric in READ_METRICS}
    results = table("identifiable", metrics | {"parts": [7, 7, 7], "unique": [1, 1, 1]})
    results.attrs[ASKED] = {"hanconv": {"1": 0}}
    line = lengths_table(results).set_index("parts").loc["all"]
    assert line["n"] == 2
    assert line["top word"] == pytest.approx(0.3)
    assert line["free directions"] == pytest.approx(0.3)
