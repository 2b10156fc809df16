import json

import numpy as np
import pytest

from attnprobe.core.errors import UserError
from attnprobe.data.examples import Ragged
from attnprobe.data.vocabulary import Vocabulary, build_vocabulary, document_frequency
from attnprobe.results.files import write_json


def test_markers_come_first_then_the_words_in_order():
    vocabulary = Vocabulary(["pear", "apple", "pear", "<EOS>"])
    assert vocabulary.ids == {"<PAD>": 0, "<UNK>": 1, "<SOS>": 2, "<EOS>": 3, "apple": 4, "pear": 5}
    assert len(vocabulary) == 6
    assert vocabulary.encode(["pear", "fig", "<EOS>", "<PAD>"]) == [5, 1, 1, 1]
    assert vocabulary.decode([2, 5, 1, 3]) == ["<SOS>", "pear", "<UNK>", "<EOS>"]


def test_what_was_saved_is_loaded(tmp_path):
    path = tmp_path / "vocabulary.json"
    vocabulary = Vocabulary(["é", "\u2028", "a"])
    write_json(vocabulary.ids, path)
    assert Vocabulary.load(path).words == vocabulary.words


def test_a_missing_vocabulary_is_named(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        Vocabulary.load(tmp_path / "vocabulary.json")


@pytest.mark.parametrize(
    "content", ["no json", json.dumps({"a": 0}), json.dumps(["a"]), json.dumps(3)]
)
def test_nothing_but_a_vocabulary_is_loaded(tmp_path, content):
    path = tmp_path / "vocabulary.json"
    path.write_text(content)
    with pytest.raises(UserError, match="is not a vocabulary"):
        Vocabulary.load(path)


@pytest.mark.parametrize("documents", [0, 1, 9])
def test_document_frequency_equals_counting_by_hand(documents):
    generator = np.random.default_rng(documents)
    texts = [generator.integers(0, 7, generator.integers(0, 9)) for _ in range(documents)]
    ragged = Ragged.of(texts, np.int32)
    expected = [sum(word in text for text in texts) for word in range(7)]
    assert document_frequency(ragged.flat, ragged.offsets, 7).tolist() == expected


SPELLING = ["d", "c", "b", "a"]
FREQUENCY = np.array([1, 2, 5, 2])


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({}, ["a", "b", "c", "d"]),
        ({"min_df": 2}, ["a", "b", "c"]),
        ({"max_vocabulary": 2}, ["a", "b"]),  # b is the most frequent, a comes before c
    ],
)
def test_rare_words_and_those_beyond_the_largest_size_are_left_out(limits, words):
    assert build_vocabulary(SPELLING, FREQUENCY, **limits).words[4:] == words


def test_a_vocabulary_without_words_is_refused():
    with pytest.raises(UserError, match=r"data\.min_df=6 leaves no word .* in 5 training texts"):
        build_vocabulary(SPELLING, FREQUENCY, min_df=6)
