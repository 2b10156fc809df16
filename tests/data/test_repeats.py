import numpy as np
import pytest

from attnprobe.data.data_warnings import SIMILAR, WORDS, first_copies, near_copies
from attnprobe.data.examples import Ragged


def ragged(*texts):
    return Ragged.of([np.array(text, np.int32) for text in texts], np.int32)


def triples(text):
    return {tuple(text[n : n + WORDS]) for n in range(len(text) - WORDS + 1)}


def shared(a, b):
    return len(a & b) / len(a | b) if a and b else 0


def test_copies_name_the_first():
    texts = ragged([1, 2], [3], [1, 2], [1, 2], [2, 1])
    assert first_copies(texts).tolist() == [0, 1, 0, 0, 4]
    questions = ragged([7], [7], [8], [7], [7])
    assert first_copies(texts, questions).tolist() == [0, 1, 2, 0, 4]
    # one text's end is not another's beginning
    assert first_copies(ragged([1, 2], [1]), ragged([3], [2, 3])).tolist() == [0, 1]


@pytest.mark.parametrize("seed", range(5))
def test_near_copies_are_those_of_a_plain_loop(seed, monkeypatch):
    """Every pair compared, with sets of triples; random texts and copies with some words changed."""
    monkeypatch.setattr("attnprobe.data.data_warnings.AT_ONCE", 50 + seed)
    generator = np.random.default_rng(seed)
    among = [generator.integers(0, 400, generator.integers(1, 60)) for _ in range(150)]
    texts = [generator.integers(0, 400, generator.integers(1, 60)) for _ in range(50)]
    for changes in range(4):
        for _ in range(20):
            copy = among[generator.integers(len(among))].copy()
            copy[generator.integers(0, len(copy), changes)] = 500
            texts.append(copy)
    best = [max((shared(triples(a), triples(b)) for b in among), default=0) for a in texts]
    assert (near_copies(ragged(*among), ragged(*texts)) == (np.array(best) >= SIMILAR)).all()
    assert 10 < sum(np.array(best) >= SIMILAR) < len(texts)


def test_without_texts_nothing_is_near():
    nothing = ragged()
    assert near_copies(ragged([1, 2, 3]), nothing).tolist() == []
    assert near_copies(nothing, ragged([1, 2, 3])).tolist() == [False]
    assert near_copies(ragged([1]), ragged([1], [2])).tolist() == [False, False]
