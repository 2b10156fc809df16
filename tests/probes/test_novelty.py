import pytest
import torch
from scipy import stats

from attnprobe.probes.novelty import KnownTexts, Novelty, novelty_table
from tests.importance.subjects import subject_of
from tests.probes import tables
from tests.probes.tables import NAN, table, values
from tests.toys import toy_batch


def normal(count, seed, shift=0.0):
    return shift + torch.randn(
        count, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )


def test_p_values_of_texts_like_the_held_out_ones_are_even_and_of_unlike_ones_are_the_least():
    held_out = KnownTexts.of(normal(400, 0))
    p = held_out.p_values(normal(400, 1))
    assert stats.kstest(p.numpy(), "uniform").pvalue > 0.01
    assert (held_out.p_values(normal(20, 2, shift=40)) == 1 / 401).all()


def test_p_values_are_those_of_a_plain_loop():
    held_out = normal(7, 3)
    texts = normal(5, 4)
    held_out[:, 3] = 1.0  # of no deviation
    texts[:, 3] = 1.0
    scale = [float(column.std()) or 1.0 for column in held_out.T]

    def nearest(text, neighbours):
        distances = []
        for neighbour in neighbours:
            steps = zip(text.tolist(), neighbour.tolist(), scale, strict=True)
            distances.append(sum(((a - b) / unit) ** 2 for a, b, unit in steps) ** 0.5)
        return min(distances)

    neighbour_distances = [
        nearest(held_out[row], torch.cat([held_out[:row], held_out[row + 1 :]]))
        for row in range(len(held_out))
    ]
    p = KnownTexts.of(held_out).p_values(texts).tolist()
    for text, value in zip(texts, p, strict=True):
        distance = nearest(text, held_out)
        as_far = sum(neighbour >= distance for neighbour in neighbour_distances)
        assert value == pytest.approx((1 + as_far) / 8)


class Split:
    """Texts of a toy's own vocabulary."""

    def __len__(self):
        return 30

    def __getitem__(self, rows):
        return toy_batch([3 + row % 5 for row in range(30)], seed=7).rows(torch.tensor(rows))


def test_texts_without_words_and_whole_ones():
    probe = Novelty(importances=["attention"], operators=["delete", "zeros"])
    probe._held_out = Split()
    subject = subject_of(lengths=[5, 7, 1])
    numbers = values(probe, subject)
    assert ((numbers["novelty_p"] > 0) & (numbers["novelty_p"] <= 1)).all()
    without = numbers["novelty_p_without_attention_by_delete"]
    assert without.isnan().tolist() == [False, False, True]  # no word would be left
    # a held-out text is its own nearest: nothing is less novel
    held_out = tables.subject_of(subject.classifier, Split()[list(range(4))])
    assert values(probe, held_out)["novelty_p"].tolist() == [1.0] * 4


def test_shares_of_unlike_texts():
    metrics = {
        "novelty_p": [0.01, 0.5, 0.9, 0.04],
        "novelty_p_without_attention_by_mask": [0.01, 0.02, 0.6, NAN],
        "novelty_p_alone_attention_by_mask": [0.2, 0.3, 0.4, 0.5],
    }
    (line,) = novelty_table(table("novelty", metrics)).to_dict("records")
    assert (line["importance"], line["operator"], line["n"]) == ("attention", "mask", 4)
    assert line["unlike, whole texts"] == 0.5
    assert line["unlike, without them"] == pytest.approx(2 / 3)
    assert line["unlike, alone"] == 0
    assert line["p, alone"] == pytest.approx(0.35)
    assert novelty_table(table("novelty", {"novelty_p": [0.5]})).empty
