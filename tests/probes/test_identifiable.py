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
from tests.probes.tables import subject_of, table
from tests.toys import toy_batch, toy_classifier, toy_readout


def measured(model, batch, words=None):
    results = list(Identifiable(words).examine(subject_of(model, batch), Draws(0, "i")))
    notes = {result.name: result.value for result in results if isinstance(result, Note)}
    measurements = {result.metric: result for result in results if isinstance(result, Measurement)}
    return measurements, notes


def one_programme(weights, values, word, chosen):
    """The range of a word's mean weight by one linear programme over all rows together."""
    rows, parts, size = values.shape
    equations = [np.kron(np.eye(rows), np.ones(parts))]
    for row in range(rows):
        sums = np.zeros((size, rows * parts))
        sums[:, row * parts : (row + 1) * parts] = values[row].numpy().T
        equations.append(sums)
    equations = np.vstack(equations)
    limits = equations @ weights.numpy().ravel()
    cost = np.tile((word == chosen).numpy() / rows, rows)
    least = linprog(cost, A_eq=equations, b_eq=limits).fun
    most = -linprog(-cost, A_eq=equations, b_eq=limits).fun
    return least, most


def pieces():
    """Weights, values and words of nine pieces in three rows with values of four numbers."""
    generator = torch.Generator().manual_seed(5)
    weights = torch.randn(3, 9, generator=generator, dtype=torch.float64).softmax(-1)
    values = torch.randn(3, 9, 4, generator=generator, dtype=torch.float64)
    return weights, values, torch.tensor([-1, 1, 1, 2, 3, 3, 3, 4, -1])


@pytest.mark.parametrize("chosen", [1, 3, 4])
def test_words_of_several_pieces_in_several_heads_are_what_one_large_programme_says(chosen):
    weights, values, word = pieces()

    ranges = ranges_of_mean(weights, values, word, torch.tensor([1, 3, 4]))

    low, high = one_programme(weights, values, word, chosen)
    assert_allclose(ranges.low[chosen], low, atol=1e-7)
    assert_allclose(ranges.high[chosen], high, atol=1e-7)
    # the attention at that end has this weight there, and is one
    lowest = ranges.lowest[chosen]
    assert_allclose(lowest[chosen], low, atol=1e-7)
    assert 0 < lowest[:5].sum() <= 1 + 1e-9


def test_a_word_that_is_not_chosen_has_no_range_and_free_directions_add_up_over_rows():
    weights, values, word = pieces()
    ranges = ranges_of_mean(weights, values, word, torch.tensor([1, 3, 4]))
    assert ranges.low[2].isnan()
    assert not ranges.unique
    assert ranges.freedom == 3 * (9 - 1 - 4)


LENGTHS = [2, 5, 9, 1]


def test_two_classes_leave_nearly_every_attention_of_a_linear_decoder_free():
    """Only the margin has to stay: in a text of n words n − 2 directions are free.

    The attention to two words is unique.
    """
    batch = toy_batch(LENGTHS)
    numbers, notes = measured(toy_classifier().double().eval(), batch)
    length = batch.content.sum(-1)
    assert numbers["freedom"].value.tolist() == (length - 2).clamp_min(0).tolist()
    assert numbers["unique"].value.bool().tolist() == (length <= 2).tolist()
    assert notes["largest_change_of_output"] < 1e-7


@pytest.mark.parametrize("text", range(len(LENGTHS)))
def test_the_least_weight_with_two_classes_is_that_of_a_programme_with_two_equations(text):
    model = toy_classifier().double().eval()
    batch = toy_batch(LENGTHS)

    numbers, _ = measured(model, batch)

    _, readout = toy_readout(model, batch)
    content = batch.content[text]
    logits = readout.position_logits[text][content].numpy()
    attention = readout.attention[text][content].numpy()
    # the weights sum to one, and the margin stays what it is
    margins = logits[:, 1] - logits[:, 0]
    equations = np.stack([np.ones(len(logits)), margins])
    cost = np.zeros(len(logits))
    cost[attention.argmax()] = 1
    least = linprog(cost, A_eq=equations, b_eq=equations @ attention).fun
    assert_allclose(numbers["top_low"].value[text], least, atol=1e-7)
    assert bool(numbers["top_can_vanish"].value[text]) == (least <= 1e-6)


def test_a_transformers_short_texts_have_one_attention_and_long_ones_many():
    pytest.importorskip("transformers")
    from tests.models.pretrained.families import WORDS, batch_of, classifier

    model = classifier("bert")  # heads of 6
    batch = batch_of(model, ["fine", "the film was fine", " ".join(WORDS[:12])])
    model.prepare(batch)
    numbers, _ = measured(model, batch, words=2)
    assert numbers["parts"].value.tolist() == [3, 6, 14]
    assert numbers["unique"].value.tolist() == [1, 1, 0]
    assert numbers["freedom"].value[2] == 4 * (14 - 1 - 6)
    assert (
        numbers["top_low"].value[2] < numbers["top_weight"].value[2] < numbers["top_high"].value[2]
    )
    assert numbers["low"].value[2].isfinite().sum() == 2
    assert numbers["farthest_jsd"].value[1] < 1e-12 < numbers["farthest_jsd"].value[2]


def test_a_model_whose_attention_may_enter_in_other_ways_is_refused():
    pytest.importorskip("transformers")
    from tests.models.pretrained.families import classifier

    model = classifier("bert")
    model.is_summed = False
    with pytest.raises(UserError, match="enters the prediction through one sum alone"):
        Identifiable().refuse(model)


def test_attentions_that_are_unique_by_length():
    metrics = {name: [0.1, 0.2, 0.3, 0.4] for name in READ_METRICS}
    metrics |= {"parts": [16, 17, 32, 600], "unique": [1, 1, 0, 0], "top_low": [0.1, 0.2, 0.4, 0.0]}
    numbers = lengths_table(table("identifiable", metrics)).set_index("parts")
    assert list(numbers.index) == ["1 to 16", "17 to 32", "over 512", "all"]
    assert numbers["n"].tolist() == [1, 2, 1, 4]
    assert numbers["unique"].tolist() == [1, 0.5, 0, 0.5]
    assert numbers["its least weight"].tolist() == pytest.approx([0.1, 0.3, 0.0, 0.175])
