import gzip

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal

from attnprobe.core.errors import UserError
from attnprobe.data.vocabulary import Vocabulary, load_vectors, random_vectors

VOCABULARY = Vocabulary(["good", "bad", ". . .", "a\u2028b"])
GLOVE = "the 0 0\ngood 1 2\nbad 3.5 -4e-1\n. . . 5 6\na\u2028b 7 8\ngood 9 9\n<SOS> 1 1\n"
EXPECTED = {
    "good": [1, 2],
    "bad": [3.5, -0.4],
    ". . .": [5, 6],
    "a\u2028b": [7, 8],
}


@pytest.mark.parametrize("header", ["", "7 2\n"])
@pytest.mark.parametrize("end", ["\n", " \n", "\r\n"])
@pytest.mark.parametrize("packed", [False, True])
def test_glove_and_fasttext(tmp_path, header, end, packed):
    content = (header + GLOVE).replace("\n", end).encode()
    path = tmp_path / ("vectors.txt.gz" if packed else "vectors.vec")
    path.write_bytes(gzip.compress(content) if packed else content)
    matrix, words = load_vectors(path, VOCABULARY)
    assert words == 4
    assert matrix.dtype == np.float32
    assert not matrix[:4].any()
    for word, vector in EXPECTED.items():
        assert_allclose(matrix[VOCABULARY.id_of(word)], vector, rtol=1e-6)


GOOD = VOCABULARY.id_of("good")
BAD = VOCABULARY.id_of("bad")


@pytest.fixture
def without_bad(tmp_path):
    """A file that has a vector for "good" alone."""
    path = tmp_path / "vectors.txt"
    path.write_text("good 1 2\n")
    return path


def test_a_word_without_a_vector_gets_zeros(without_bad):
    matrix, _ = load_vectors(without_bad, VOCABULARY)
    assert not matrix[BAD].any()


def test_a_word_without_a_vector_may_get_a_random_one(without_bad):
    def load(seed):
        generator = torch.Generator().manual_seed(seed)
        return load_vectors(without_bad, VOCABULARY, missing="normal", generator=generator)[0]

    first = load(seed=0)
    other_seed = load(seed=1)
    assert_array_equal(first, load(seed=0))
    assert (first[BAD] != other_seed[BAD]).all()
    assert_array_equal(other_seed[GOOD], [1, 2])
    assert not first[0].any()


def test_random_vectors_are_standard_normal():
    assert abs(random_vectors(2000, 50, torch.Generator().manual_seed(0)).std() - 1) < 0.01


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("good 1 2\nbad 3\n", r"line 2 has 1 values, expected 2"),
        ("good 1 2\nbad 3.0 4.0 5.0\n", r"line 2 has 3 values, expected 2"),
        ("good 1 2\nbad 3 x\n", r"line 2 has a value that is no finite number"),
        ("these are words\n", r"line 1 is not `word value value …`: 'these are words'"),
        ("", r"line 1 is not"),
    ],
)
def test_damaged_files(tmp_path, content, message):
    path = tmp_path / "vectors.txt"
    path.write_text(content)
    with pytest.raises(UserError, match=message):
        load_vectors(path, VOCABULARY)
