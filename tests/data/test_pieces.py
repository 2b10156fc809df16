import numpy as np
import pytest

from attnprobe.data.pieces import PieceReader, left_out
from tests.models.pretrained.families import tokenizer

pytest.importorskip("transformers")
ODD = [
    "\u200b",
    "a\u00a0b",
    "e\u0301",
    "\U0001f600",
    "漢字",
    "don't",
    "x" * 120,
    "##ing",
    "[SEP]",
    "\u00ad",
    "…",
    "#",
]


def byte_level():
    """A tokenizer of bytes, like GPT-2's and RoBERTa's: a space belongs to the word after it."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=400)


@pytest.mark.parametrize("made", [tokenizer, byte_level])
def test_no_word_is_lost_or_doubled(made):
    reader = PieceReader(made(), 400)
    texts = [["the", word, "film", word] for word in ODD] + [["fine"], ["unable", "seeing"]]
    for words, found in zip(texts, reader.read(texts), strict=True):
        of_words = found.word[found.word > 0]
        assert len(found.ids) == len(found.word) == len(found.kind)
        # each kept word has one unbroken run of pieces, in order
        runs = [
            place
            for number, place in enumerate(of_words)
            if number == 0 or of_words[number - 1] != place
        ]
        assert runs == list(range(1, int(found.kept.sum()) + 1))
        invisible = {"\u200b", "\u00ad"}
        assert all(kept or word in invisible for word, kept in zip(words, found.kept, strict=True))


def test_pieces_of_a_text_and_of_a_pair():
    reader = PieceReader(tokenizer(), 48)
    (alone,) = reader.read([["unable", "to", "see"]])
    assert reader.tokenizer.convert_ids_to_tokens(alone.ids) == [
        "[CLS]",
        "un",
        "##able",
        "to",
        "see",
        "[SEP]",
    ]
    assert alone.word.tolist() == [-1, 1, 1, 2, 3, -1]
    (pair,) = reader.read(
        [["unable"]], [["the", "film"]], [np.zeros(1, int)]
    )  # the first one is attended to
    assert pair.word.tolist() == [-1, 1, 1, -1, -1, -1, -1]
    assert pair.kind.tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_words_beyond_the_longest_text_are_not_kept():
    reader = PieceReader(tokenizer(), 6)
    (found,) = reader.read([["the", "film", "was", "fine", "and", "long"]])
    assert found.kept.tolist() == [True] * 4 + [False] * 2
    assert len(found.ids) == 6
    read = [found, *reader.read([["\u200b", "fine"], ["\u200b"], ["film"]])]
    assert left_out(read) == {
        "cut at the model's longest text": 1,
        "words after the cut": 2,
        "words without a piece": 2,
        "texts without a piece": 1,
        "words": 6,
        "words of unknown pieces": 0,
    }
    (odd,) = reader.read([["the", "☃", "fine"]])
    assert left_out([odd], reader.tokenizer.unk_token_id)["words of unknown pieces"] == 1
    assert left_out([odd])["words of unknown pieces"] == 0  # a tokenizer of bytes knows all
