import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from attnprobe.core.errors import UserError
from attnprobe.core.randomness import Draws
from attnprobe.importance.base import Note
from attnprobe.probes.base import Measurement
from attnprobe.probes.identifiable import READ_METRICS, Identifiable, lengths_table, ranges_of_mean
from tests.probes.tables import subject_of, table
from tests.toys import toy_batch, toy_classifier, toy_readout


def measured(model, batch, words=None):
    found = list(Identifiable(words).examine(subject_of(model, batch), Draws(0, "i")))
    notes = {one.name: one.value for one in found if isinstance(one, Note)}
    return {one.metric: one for one in found if isinstance(one, Measurement)}, notes


def test_words_of_several_pieces_in_several_heads_are_what_one_large_programme_says():
    generator = torch.Generator().manual_seed(5)
    rows = 3
    parts = 9
    size = 4
    weights = torch.randn(rows, parts, generator=generator, dtype=torch.float64).softmax(-1)
    values = torch.randn(rows, parts, size, generator=generator, dtype=torch.float64)
    word = torch.tensor([-1, 1, 1, 2, 3, 3, 3, 4, -1])
    found = ranges_of_mean(weights, values, word, torch.tensor([1, 3, 4]))
    equations = [np.kron(np.eye(rows), np.ones(parts))]
    for row in range(rows):
        of_row = np.zeros((size, rows * parts))
        of_row[:, row * parts : (row + 1) * parts] = values[row].numpy().T
        equations.append(of_row)
    equations = np.vstack(equations)
    limits = equations @ weights.numpy().ravel()
    for one in (1, 3, 4):
        cost = np.tile((word == one).numpy() / rows, rows)
        least, most = (linprog(sign * cost, A_eq=equations, b_eq=limits) for sign in (1, -1))
        np.testing.assert_allclose(
            [found.low[one], found.high[one]], [least.fun, -most.fun], atol=1e-7
        )
        # the attention at that end has this weight there, and is one
        np.testing.assert_allclose(found.lowest[one, one], found.low[one], atol=1e-7)
        assert 0 < found.lowest[one, :5].sum() <= 1 + 1e-9
    assert found.low[2].isnan()
    assert not found.unique
    assert found.freedom == rows * (parts - 1 - size)


def test_two_classes_leave_nearly_every_attention_of_a_linear_decoder_free():
    """Only the margin has to stay: of a text of n words n − 2 directions are free, and one of two
    words is unique."""
    model = toy_classifier().double().eval()
    batch = toy_batch([2, 5, 9, 1])
    found, notes = measured(model, batch)
    length = batch.content.sum(-1)
    assert found["freedom"].value.tolist() == (length - 2).clamp_min(0).tolist()
    assert found["unique"].value.bool().tolist() == (length <= 2).tolist()
    assert notes["largest_change_of_output"] < 1e-7
    _, readout = toy_readout(model, batch)
    margins = readout.position_logits[..., 1] - readout.position_logits[..., 0]
    for text in range(len(batch)):
        content = batch.content[text]
        attention = readout.attention[text][content].numpy()
        margin = margins[text][content].numpy()
        top = int(attention.argmax())
        rows = np.stack([np.ones_like(margin), margin])
        least = linprog(np.eye(len(margin))[top], A_eq=rows, b_eq=rows @ attention).fun
        np.testing.assert_allclose(found["top_low"].value[text], least, atol=1e-7)
        assert bool(found["top_can_vanish"].value[text]) == (least <= 1e-6)


def test_a_transformers_short_texts_have_one_attention_and_long_ones_many():
    pytest.importorskip("transformers")
    from tests.models.pretrained.families import WORDS, batch_of, classifier

    model = classifier("bert")  # heads of 6
    batch = batch_of(model, ["fine", "the film was fine", " ".join(WORDS[:12])])
    model.prepare(batch)
    found, _ = measured(model, batch, words=2)
    pieces = found["parts"].value
    assert pieces.tolist() == [3, 6, 14]
    assert found["unique"].value.tolist() == [1, 1, 0]
    assert found["freedom"].value[2] == 4 * (14 - 1 - 6)
    assert found["top_low"].value[2] < found["top_weight"].value[2] < found["top_high"].value[2]
    assert found["low"].value[2].isfinite().sum() == 2
    assert found["farthest_jsd"].value[1] < 1e-12 < found["farthest_jsd"].value[2]
    model.is_summed = False
    with pytest.raises(UserError, match="enters the prediction through one sum alone"):
        Identifiable().refuse(model)


def test_attentions_that_are_unique_by_length():
    metrics = {name: [0.1, 0.2, 0.3, 0.4] for name in READ_METRICS}
    metrics |= {"parts": [16, 17, 32, 600], "unique": [1, 1, 0, 0], "top_low": [0.1, 0.2, 0.4, 0.0]}
    found = lengths_table(table("identifiable", metrics)).set_index("parts")
    assert list(found.index) == ["1 to 16", "17 to 32", "over 512", "all"]
    assert found["n"].tolist() == [1, 2, 1, 4]
    assert found["unique"].tolist() == [1, 0.5, 0, 0.5]
    assert found["its least weight"].tolist() == pytest.approx([0.1, 0.3, 0.0, 0.175])
