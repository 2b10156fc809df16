from itertools import compress, groupby

import numpy as np
import pytest

from attnprobe.data.batching import TextSplit
from attnprobe.data.examples import Ragged
from attnprobe.data.passages import Passage, Passages
from attnprobe.data.pieces import PieceReader, left_out, with_pieces
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


def of_words(*texts):
    """Texts of these words, each as a reader takes it."""
    return [Passages((Passage.of_words(words),)) for words in texts]


def byte_level():
    """A tokenizer of bytes, like GPT-2's and RoBERTa's: a space belongs to the word after it."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    inner = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return PreTrainedTokenizerFast(tokenizer_object=inner, model_max_length=400)


INVISIBLE = {"\u200b", "\u00ad"}
TEXTS = [["the", word, "film", word] for word in ODD] + [["fine"], ["unable", "seeing"]]


@pytest.fixture(scope="module", params=[tokenizer, byte_level])
def pieces_of_texts(request):
    return PieceReader(request.param(), 400).read(of_words(*TEXTS))


@pytest.mark.parametrize("number", range(len(TEXTS)))
def test_no_word_is_lost_or_doubled(pieces_of_texts, number):
    pieces = pieces_of_texts[number]
    assert len(pieces.ids) == len(pieces.word) == len(pieces.kind)
    # each kept word has one unbroken run of pieces, in order
    runs = [position for position, _ in groupby(pieces.word[pieces.word > 0])]
    assert runs == list(range(1, int(pieces.kept.sum()) + 1))
    assert set(compress(TEXTS[number], ~pieces.kept)) <= INVISIBLE


def test_pieces_of_a_text():
    reader = PieceReader(tokenizer(), 48)
    (pieces,) = reader.read(of_words(["unable", "to", "see"]))
    spelling = reader.tokenizer.convert_ids_to_tokens(pieces.ids)
    assert spelling == ["[CLS]", "un", "##able", "to", "see", "[SEP]"]
    assert pieces.word.tolist() == [-1, 1, 1, 2, 3, -1]


def test_pieces_of_a_pair_whose_first_text_is_attended_to():
    reader = PieceReader(tokenizer(), 48)
    first, second = (Passage.of_words(words) for words in (["unable"], ["the", "film"]))
    (pair,) = reader.read([Passages.paired(first, second, "first")])
    assert pair.word.tolist() == [-1, 1, 1, -1, -1, -1, -1]
    assert pair.kind.tolist() == [0, 0, 0, 0, 1, 1, 1]


LONG = ["the", "film", "was", "fine", "and", "long"]


def test_words_beyond_the_longest_text_are_not_kept():
    (pieces,) = PieceReader(tokenizer(), 6).read(of_words(LONG))
    assert pieces.kept.tolist() == [True] * 4 + [False] * 2
    assert len(pieces.ids) == 6


def test_what_is_left_out_is_counted():
    reader = PieceReader(tokenizer(), 6)
    pieces_of_texts = reader.read(of_words(LONG, ["\u200b", "fine"], ["\u200b"], ["film"]))
    assert left_out(pieces_of_texts) == {
        "cut at the model's longest text": 1,
        "words after the cut": 2,
        "words without a piece": 2,
        "texts without a piece": 1,
        "words": 6,
        "words of unknown pieces": 0,
        "units of several words": 0,
        "texts with a special token": {},
    }


def test_unknown_words_are_counted_where_the_tokenizer_has_a_piece_for_them():
    reader = PieceReader(tokenizer(), 6)
    pieces_of_texts = reader.read(of_words(["the", "☃", "fine"]))
    unknown = reader.tokenizer.unk_token_id
    assert left_out(pieces_of_texts, unknown)["words of unknown pieces"] == 1
    assert left_out(pieces_of_texts)["words of unknown pieces"] == 0  # as for a tokenizer of bytes


def test_a_text_without_a_piece_takes_its_slice_along():
    texts = (["fine"], ["\u200b"], ["film"])
    part = TextSplit(
        example_id=np.arange(3),
        words=Ragged.of([np.array([number]) for number in range(3)], np.int32),
        vocabulary_id=np.arange(3),
        columns={"labels": np.array([0, 1, 1])},
        spelling=[word for (word,) in texts],
        passages=of_words(*texts),
        slices=["north", "south", "west"],
    )
    changed, counts = with_pieces(part, PieceReader(tokenizer(), 6))
    assert counts["texts without a piece"] == 1
    assert changed.example_id.tolist() == [0, 2]
    assert changed.slices == ["north", "west"]
