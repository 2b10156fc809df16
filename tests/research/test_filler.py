import numpy as np
import pandas as pd
import pytest
import torch

from attnprobe.data.vocabulary import UNKNOWN
from research.filler import attentions_of, fillers, summary
from tests.probes.test_swaps import split_of

SPLIT = split_of([[4, 5, 6, 7], [14, 15, 16], [4, 4, 4, 4, 4, 4]])


def drawn(kind, text):
    """The ids that stand in the place of the words of a text, in 300 draws."""
    batch = SPLIT[[text]]
    words = int(batch.content.sum())
    filler = fillers(SPLIT, mask_piece=None)[kind](batch)
    numbers = filler.draw(np.zeros(words, np.int64), 300, torch.Generator().manual_seed(0))
    return filler.columns["ids"][numbers]


def test_another_text_keeps_its_order_and_begins_anew_where_it_is_short():
    texts = {tuple(row) for row in drawn("texts", 0).tolist()}
    assert texts == {(4, 5, 6, 7), (14, 15, 16, 14), (4, 4, 4, 4)}


def test_words_of_the_bag_are_drawn_by_themselves():
    assert set(drawn("bag", 1).flatten().tolist()) == {4, 5, 6, 7, 14, 15, 16}
    assert len({tuple(row) for row in drawn("bag", 1).tolist()}) > 20


def test_common_words_are_replaced_by_common_ones_and_rare_by_rare_ones():
    of_first_text = drawn("frequency", 0)
    assert set(of_first_text[:, 0].tolist()) == {4}  # seven times in all texts
    assert set(of_first_text[:, 1:].flatten().tolist()) == {5, 6, 7, 14, 15, 16}  # once each


def test_the_mask_is_the_unknown_word_where_there_is_no_mask_token():
    assert set(drawn("mask", 0).flatten().tolist()) == {UNKNOWN}


def test_attentions_made_up_have_their_weight_where_their_name_says():
    attentions = attentions_of(words=8, deciding=3)
    assert all(float(weights.sum()) == pytest.approx(1) for weights in attentions.values())
    assert float(attentions["deciding word, 60 %"][3]) == pytest.approx(0.6)
    assert float(attentions["the word after it"][4]) == pytest.approx(0.95)


def test_the_summary_tells_the_largest_error_on_the_word_and_elsewhere():
    rows = pd.DataFrame(
        {
            "data": "sst",
            "model": "lstm",
            "filler": "bag",
            "attention": ["deciding word, 95 %", "deciding word, 60 %", "first other word"],
            "mass beyond chance": [0.9, 0.6, -0.1],
            "share": [0.8, 0.65, 0.1],
            "strongest word decides": 1.0,
            "strength": 0.1,
            "reliability": 0.99,
            "texts": 60,
        }
    )
    (line,) = summary(rows).to_dict("records")
    assert line["error, on the word that decides"] == pytest.approx(0.1)
    assert line["error, elsewhere"] == pytest.approx(0.2)
