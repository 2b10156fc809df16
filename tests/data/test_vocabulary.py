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


def test_what_was_saved_is_loaded_and_nothing_else(tmp_path):
    path = tmp_path / "vocabulary.json"
    vocabulary = Vocabulary(["é", "\u2028", "a"])
    with pytest.raises(UserError, match="does not exist"):
        Vocabulary.load(path)
    write_json(vocabulary.ids, path)
    assert Vocabulary.load(path).words == vocabulary.words
    for content in ("no json", json.dumps({"a": 0}), json.dumps(["a"]), json.dumps(3)):
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


def test_rare_words_and_the_largest_size():
    words = ["d", "c", "b", "a"]
    frequency = np.array([1, 2, 5, 2])
    assert build_vocabulary(words, frequency).words[4:] == ["a", "b", "c", "d"]
    assert build_vocabulary(words, frequency, min_df=2).words[4:] == ["a", "b", "c"]
    assert build_vocabulary(words, frequency, max_vocabulary=2).words[4:] == ["a", "b"]
    with pytest.raises(UserError, match=r"data\.min_df=6 leaves no word .* in 5 training texts"):
        build_vocabulary(words, frequency, min_df=6)
