"""Attention from a lexicon: by hand from the training texts' counts."""

import math

import pytest
import torch

from attnprobe.errors import UserError
from attnprobe.models.lexicon import LexiconAttention
from tests.importance.trained import batch_of, small_data


def strength_by_hand(train, word, classes):
    total = 0.0
    for number in range(classes):
        there, absent = [0, 0], [0, 0]
        for row, label in enumerate(train.labels.tolist()):
            holds = word in train.vocabulary_id[train.words[row]].tolist()
            (there if holds else absent)[label == number] += 1
        odds = [(there[of] + 0.5) / (absent[of] + 0.5) for of in (0, 1)]
        total += abs(math.log(odds[1] / odds[0]))
    return total / classes


def test_it_is_the_softmax_of_log_odds_counted_by_hand():
    data = small_data()
    attention, batch = LexiconAttention(4, scale=2.0), batch_of(data)
    attention.read_training_texts(data)
    attention = attention.double()
    place = batch.content[0].nonzero()[:, 0].tolist()
    expected = [
        math.exp(2 * strength_by_hand(data.splits["train"], int(batch.ids[0, t]), len(data.classes))) for t in place
    ]
    found = attention.given(batch)
    assert found[0, place].tolist() == pytest.approx([one / sum(expected) for one in expected], rel=1e-5)
    assert not found[0][~batch.content[0]].any()


def test_a_scale_of_nothing_is_uniform_and_one_below_is_refused():
    batch = batch_of(small_data())
    found = LexiconAttention(4, scale=0.0).given(batch)
    torch.testing.assert_close(found, batch.content / batch.content.sum(-1, keepdim=True))
    with pytest.raises(UserError, match=r"model.attention.scale=-1.0: expected 0"):
        LexiconAttention(4, scale=-1.0)
