import numpy as np
import pytest

from attnprobe.data.batching import TextSplit
from attnprobe.data.examples import Ragged
from attnprobe.data.fingerprint import data_fingerprint

WORDS = ["a", "film", "unseen", "unheard"]


def fingerprint(
    words=WORDS, texts=((0, 1), (2,)), labels=(0, 1), rationale=((True, False), (True,))
):
    split = TextSplit(
        example_id=np.arange(len(texts)),
        words=Ragged.of([np.array(text) for text in texts], np.int32),
        vocabulary_id=np.array([4, 5, 1, 1]),  # two words that the vocabulary lacks
        columns={
            "labels": np.array(labels),
            "rationale": Ragged.of([np.array(row) for row in rationale], np.bool_),
        },
        spelling=words,
    )
    return data_fingerprint({"test": split}, ["a", "film", "no", "yes"])


def test_the_same_data_have_the_same_fingerprint():
    assert fingerprint() == fingerprint()


@pytest.mark.parametrize(
    "change",
    [
        {"texts": ((0, 1), (3,))},  # another word that the vocabulary lacks
        {"texts": ((0,), (1, 2))},
        {"labels": (1, 0)},
        {"rationale": ((False, True), (True,))},
    ],
)
def test_whatever_a_probe_reads_is_in_the_fingerprint(change):
    assert fingerprint(**change) != fingerprint()


def test_words_of_rows_that_were_left_out_change_nothing():
    words = ["film", "a", "x", "unseen"]
    assert fingerprint(words=words, texts=((1, 0), (3,))) == fingerprint()
