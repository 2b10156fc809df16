import numpy as np
import pytest

from attnprobe.data.examples import Ragged
from attnprobe.data.repeats import SIMILAR, WORDS, near_copies


def ragged(*texts):
    return Ragged.of([np.array(text, np.int32) for text in texts], np.int32)


def triples(text):
    return {tuple(text[n : n + WORDS]) for n in range(len(text) - WORDS + 1)}


def jaccard(a, b):
    return len(a & b) / len(a | b) if a and b else 0


def random_text(generator):
    return generator.integers(0, 400, generator.integers(1, 60))


@pytest.mark.parametrize("seed", range(5))
def test_near_copies_are_those_of_a_plain_loop(seed, monkeypatch):
    """Every pair is compared, with sets of triples: random texts, and copies with changed words."""
    monkeypatch.setattr("attnprobe.data.repeats.AT_ONCE", 20 + seed)
    generator = np.random.default_rng(seed)
    among = [random_text(generator) for _ in range(150)]
    texts = [random_text(generator) for _ in range(50)]
    for changes in np.repeat(range(4), 20):
        copy = among[generator.integers(len(among))].copy()
        copy[generator.integers(0, len(copy), changes)] = 500
        texts.append(copy)

    triples_among = [triples(text) for text in among]
    expected = []
    for text in texts:
        words = triples(text)
        similarity = max(jaccard(words, partner) for partner in triples_among)
        expected.append(similarity >= SIMILAR)
    assert near_copies(ragged(*among), ragged(*texts)).tolist() == expected
    assert 10 < sum(expected) < len(texts)


def test_without_texts_nothing_is_near():
    nothing = ragged()
    assert near_copies(ragged([1, 2, 3]), nothing).tolist() == []
    assert near_copies(nothing, ragged([1, 2, 3])).tolist() == [False]
    assert near_copies(ragged([1]), ragged([1], [2])).tolist() == [False, False]
