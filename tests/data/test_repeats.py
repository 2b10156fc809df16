import numpy as np
import pytest

from attnprobe.data.ragged import Ragged
from attnprobe.data.repeats import SIMILAR, WORDS, first_copies, jaccard, near_copies, runs, signatures


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


def test_runs_are_numbered_alike_only_where_the_words_are():
    texts = ragged([1, 2, 3, 4], [2, 3], [9, 2, 3, 4], [3, 2, 1])
    found = runs(texts)
    assert found.lengths.tolist() == [2, 0, 2, 1]
    assert found[0][1] == found[2][1]
    assert len({*found[0].tolist(), *found[2].tolist(), *found[3].tolist()}) == 4


@pytest.mark.parametrize("seed", range(5))
def test_near_copies_are_those_of_a_plain_loop(seed, monkeypatch):
    """Every pair compared, with sets of triples; random texts and copies with some words changed."""
    monkeypatch.setattr("attnprobe.data.repeats.AT_ONCE", 50 + seed)
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


def test_equal_hashes_estimate_the_index():
    generator = np.random.default_rng(0)
    a = generator.integers(0, 10**6, 2000)
    b = np.concatenate([a[:1000], generator.integers(10**6, 2 * 10**6, 500)])
    one, other = runs(ragged(a)), runs(ragged(b))
    agreeing = (signatures(one) == signatures(other)).mean()
    assert abs(agreeing - jaccard(one[0], other[0])) < 0.25  # four standard deviations of 64 hashes


def test_without_texts_nothing_is_near():
    nothing = ragged()
    assert near_copies(ragged([1, 2, 3]), nothing).tolist() == []
    assert near_copies(nothing, ragged([1, 2, 3])).tolist() == [False]
    assert near_copies(ragged([1]), ragged([1], [2])).tolist() == [False, False]
