import numpy as np
import pytest

from attnprobe.data.examples import Ragged
from attnprobe.data.repeats import SIMILAR, WORDS, near_copies


def ragged(*texts):
    return Ragged.of([np.array(text, np.int32) for text in texts], np.int32)


def triples(text):
    """All runs of three words."""
    runs = set()
    for start in range(len(text) - WORDS + 1):
        run = text[start : start + WORDS]
        runs.add(tuple(run))
    return runs


def jaccard(a, b):
    if not a or not b:
        return 0
    return len(a & b) / len(a | b)


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
    found = near_copies(ragged(*among), ragged(*texts))
    assert found.tolist() == expected
    assert 10 < sum(expected) < len(texts)


def test_without_texts_nothing_is_near():
    nothing = ragged()
    text = ragged([1, 2, 3])
    assert near_copies(text, nothing).tolist() == []
    assert near_copies(nothing, text).tolist() == [False]


def test_texts_of_less_than_three_words_are_near_to_none():
    among = ragged([1])
    texts = ragged([1], [2])
    assert near_copies(among, texts).tolist() == [False, False]
