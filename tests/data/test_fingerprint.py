import numpy as np

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


def test_whatever_a_probe_reads_is_in_the_fingerprint():
    same = fingerprint()
    assert fingerprint() == same
    assert fingerprint(texts=((0, 1), (3,))) != same  # another word that the vocabulary lacks
    assert fingerprint(texts=((0,), (1, 2))) != same
    assert fingerprint(labels=(1, 0)) != same
    assert fingerprint(rationale=((False, True), (True,))) != same
    # words of rows that were left out change nothing
    assert fingerprint(words=["film", "a", "x", "unseen"], texts=((1, 0), (3,))) == same
