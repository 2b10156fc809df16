import numpy as np
import pytest
import torch
from scipy import stats

from attnprobe.probes.novelty import KnownTexts, Novelty, novelty_table
from tests.importance.subjects import subject_of
from tests.probes import tables
from tests.probes.tables import NAN, table, values
from tests.toys import toy_batch


def normal(count, seed, shift=0.0):
    """As many texts, of four numbers each."""
    generator = torch.Generator().manual_seed(seed)
    return shift + torch.randn(count, 4, generator=generator, dtype=torch.float64)


def test_p_values_of_texts_like_the_held_out_ones_are_even():
    held_out = KnownTexts.of(normal(400, 0))
    p = held_out.p_values(normal(400, 1))
    assert stats.kstest(p.numpy(), "uniform").pvalue > 0.01


def test_p_values_of_unlike_texts_are_the_least():
    held_out = KnownTexts.of(normal(400, 0))
    p = held_out.p_values(normal(20, 2, shift=40))
    assert (p == 1 / 401).all()


def distance_to_nearest(text, neighbours, scale):
    """The least distance in units of each number's deviation."""
    distances = [np.linalg.norm((text - neighbour) / scale) for neighbour in neighbours]
    return min(distances)


def test_p_values_are_those_of_a_plain_loop():
    """p = (1 + how many held-out texts are as far from their nearest) / (1 + their number)."""
    held_out = normal(7, 3)
    texts = normal(5, 4)
    held_out[:, 3] = 1.0  # of no deviation
    texts[:, 3] = 1.0
    scale = held_out.std(0)
    scale[3] = 1.0
    null = []
    for row, text in enumerate(held_out):
        neighbours = torch.cat([held_out[:row], held_out[row + 1 :]])
        null.append(distance_to_nearest(text, neighbours, scale))
    expected = []
    for text in texts:
        distance = distance_to_nearest(text, held_out, scale)
        as_far = sum(nearest >= distance for nearest in null)
        expected.append((1 + as_far) / 8)

    p = KnownTexts.of(held_out).p_values(texts)

    assert p.tolist() == pytest.approx(expected)


class Split:
    """Texts of a toy's own vocabulary."""

    def __len__(self):
        return 30

    def __getitem__(self, rows):
        lengths = [3 + row % 5 for row in range(30)]
        return toy_batch(lengths, seed=7).rows(torch.tensor(rows))


@pytest.fixture(scope="module")
def probe():
    """The probe that has held out some texts of a toy's own vocabulary."""
    probe = Novelty(importances=["attention"], operators=["delete", "zeros"])
    probe._held_out = Split()
    return probe


def test_texts_without_words_and_whole_ones(probe):
    numbers = values(probe, subject_of(lengths=[5, 7, 1]))
    assert (numbers["novelty_p"] > 0).all()
    assert (numbers["novelty_p"] <= 1).all()
    without = numbers["novelty_p_without_attention_by_delete"]
    assert without.isnan().tolist() == [False, False, True]  # no word would be left


def test_nothing_is_less_novel_than_a_held_out_text_itself(probe):
    classifier = subject_of(lengths=[5]).classifier
    subject = tables.subject_of(classifier, Split()[range(4)])
    numbers = values(probe, subject)
    assert numbers["novelty_p"].tolist() == [1, 1, 1, 1]


def test_shares_of_unlike_texts():
    metrics = {
        "novelty_p": [0.01, 0.5, 0.9, 0.04],
        "novelty_p_without_attention_by_mask": [0.01, 0.02, 0.6, NAN],
        "novelty_p_alone_attention_by_mask": [0.2, 0.3, 0.4, 0.5],
    }
    (line,) = novelty_table(table("novelty", metrics)).to_dict("records")
    assert line["importance"] == "attention"
    assert line["operator"] == "mask"
    assert line["n"] == 4
    assert line["unlike, whole texts"] == 0.5
    assert line["unlike, without them"] == pytest.approx(2 / 3)
    assert line["unlike, alone"] == 0
    assert line["p, alone"] == pytest.approx(0.35)


def test_whole_texts_alone_have_no_table():
    results = table("novelty", {"novelty_p": [0.5]})
    assert novelty_table(results).empty
