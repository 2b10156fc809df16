import numpy as np
import pytest

from attnprobe.data.examples import Ragged
from attnprobe.data.repeats import SIMILAR, WORDS, near_copies


def ragged(*texts):
    return Ragged.of([np.array(text, np.int32) for text in texts], np.int32)


def triples(text):
    return {tuple(text[n : n + WORDS]) for n in range(len(text) - WORDS + 1)}


def shared(a, b):
    return len(a & b) / len(a | b) if a and b else 0


@pytest.mark.parametrize("seed", range(5))
def test_near_copies_are_those_of_a_plain_loop(seed, monkeypatch):
    """Every pair compared, with sets of triples; random texts and copies with some words
    changed."""
    monkeypatch.setattr("attnprobe.data.repeats.AT_ONCE", 20 + seed)
    generator = np.random.default_rng(seed)
    among = [generator.integers(0, 400, generator.integers(1, 60)) for _ in range(150)]
    texts = [generator.integers(0, 400, generator.integers(1, 60)) for _ in range(50)]
    for changes in range(4):
        for _ in range(20):
            copy = among[generator.integers(len(among))].copy()
            copy[generator.integers(0, len(copy), changes)] = 500
            texts.append(copy)
    known = [triples(one) for one in among]
    best = [max(shared(triples(one), other) for other in known) for one in texts]
    assert (near_copies(ragged(*among), ragged(*texts)) == (np.array(best) >= SIMILAR)).all()
    assert 10 < sum(np.array(best) >= SIMILAR) < len(texts)


def test_without_texts_nothing_is_near():
    nothing = ragged()
    assert near_copies(ragged([1, 2, 3]), nothing).tolist() == []
    assert near_copies(nothing, ragged([1, 2, 3])).tolist() == [False]
    assert near_copies(ragged([1]), ragged([1], [2])).tolist() == [False, False]
