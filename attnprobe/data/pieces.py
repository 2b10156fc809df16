"""Words and the pieces that a pretrained model's tokenizer cuts them into."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from attnprobe.data.batching import TextSplit
from attnprobe.data.ragged import Ragged

SPECIAL = -1
"""`piece_word` of a special token, or of the other text of a pair."""
AT_A_TIME = 1024
"""Texts that the tokenizer is given at a time."""


class Pieces(NamedTuple):
    """One text as a model reads it.

    Attributes:
        ids: of the pieces, special tokens included.
        word: the position in the batch of the word that a piece belongs to (words count from 1, after the start marker),
            or `SPECIAL`.
        kind: 1 for the second text of a pair, else 0 (`token_type_ids`).
        kept: which words have a piece: not those beyond the model's longest text, nor those of invisible characters.
    """

    ids: Int[np.ndarray, " pieces"]
    word: Int[np.ndarray, " pieces"]
    kind: Int[np.ndarray, " pieces"]
    kept: Bool[np.ndarray, " words"]


@dataclass(frozen=True)
class PieceReader:
    """Cuts words into pieces. The words are joined by spaces and read as one text, as the model's own pipeline reads it.

    Attributes:
        tokenizer: a fast tokenizer of `transformers`.
        longest: pieces of a text, special tokens included; what is beyond is cut off.
    """

    tokenizer: Any
    longest: int

    def read(self, texts: Sequence[Sequence[str]], questions: Sequence[Sequence[str]] | None = None) -> list[Pieces]:
        """The pieces of every text; with questions those of the pairs, the words being those of the text."""
        result = []
        for start in range(0, len(texts), AT_A_TIME):
            some = texts[start : start + AT_A_TIME]
            pair = None if questions is None else [" ".join(one) for one in questions[start : start + AT_A_TIME]]
            encoding = self.tokenizer(
                [" ".join(words) for words in some],
                pair,
                truncation="only_first" if pair else True,
                max_length=self.longest,
                return_offsets_mapping=True,
                return_token_type_ids=True,
            )
            for number, words in enumerate(some):
                offsets, sequence = encoding["offset_mapping"][number], encoding.sequence_ids(number)
                word = words_of_pieces(words, offsets, [one == 0 for one in sequence])
                # a word is counted from 0 among those that are kept, and from 1 in the batch
                kept = np.isin(np.arange(len(words)), word)
                place = np.append(kept.cumsum(), SPECIAL)
                result.append(
                    Pieces(
                        np.array(encoding["input_ids"][number], np.int64),
                        place[word],
                        np.array(encoding["token_type_ids"][number], np.int64),
                        kept,
                    )
                )
        return result


def words_of_pieces(
    words: Sequence[str], offsets: Sequence[tuple[int, int]], of_text: Sequence[bool]
) -> Int[np.ndarray, " pieces"]:
    """The number of the word that each piece of a text belongs to, −1 where it is not of the text.

    A piece belongs to the word of its first character that is not a space; one of a space alone to the word after it.

    Args:
        words: the text is these, joined by single spaces.
        offsets: [start, end) of every piece in that text; some tokenizers count the space before a word in, some do not.
        of_text: whether a piece is of the text at all.

    >>> words_of_pieces(["un", "able"], [(0, 0), (0, 2), (2, 5), (5, 7), (0, 0)], [False, True, True, True, False])
    array([-1,  0,  1,  1, -1])
    """
    ends = np.cumsum([len(word) + 1 for word in words])  # each after its space
    starts = np.append(0, ends)[: len(words)]
    text = " ".join(words)
    result = np.full(len(offsets), SPECIAL)
    for piece, ((start, end), inside) in enumerate(zip(offsets, of_text, strict=True)):
        if not inside or not words:
            continue
        at = next((place for place in range(start, end) if not text[place].isspace()), end)
        number = int(np.searchsorted(ends, at, side="right"))
        number = min(number, len(words) - 1)
        assert starts[number] <= max(at, starts[number])
        result[piece] = number
    return result


def with_pieces(part: TextSplit, reader: PieceReader) -> tuple[TextSplit, dict[str, Any]]:
    """A split whose batches have the pieces of their texts, without the words that have none, and what was left out."""
    texts = [part.tokens_at(row) for row in range(len(part))]
    questions = None
    if "question" in part.columns:
        asked = part.columns["question"]
        questions = [[part.spelling[number] for number in asked[row].tolist()] for row in range(len(part))]
    read = reader.read(texts, questions)
    there = np.array([bool(one.kept.any()) for one in read])
    columns: dict[str, Ragged | np.ndarray] = {}
    for name, values in part.columns.items():
        if isinstance(values, Ragged) and name not in ("question", "candidates"):
            values = Ragged.of(
                [row[one.kept] if len(row) == len(one.kept) else row for row, one in zip_rows(values, read)],
                values.flat.dtype.type,
            )
        columns[name] = values
    words = Ragged.of([row[one.kept] for row, one in zip_rows(part.words, read)], part.words.flat.dtype.type)
    columns |= {
        "pieces": Ragged.of([one.ids for one in read], np.int64),
        "piece_word": Ragged.of([one.word for one in read], np.int64),
        "piece_kind": Ragged.of([one.kind for one in read], np.int64),
    }
    return selected(replace(part, words=words, columns=columns), np.flatnonzero(there)), left_out(read)


def left_out(read: Sequence[Pieces]) -> dict[str, int]:
    """How many texts were cut, the words after the cuts, other words that have no piece, and texts of nothing else."""
    cut = [one for one in read if one.kept.any() and not one.kept[-1]]
    after = sum(int(one.kept[::-1].argmax()) for one in cut)
    return {
        "cut at the model's longest text": len(cut),
        "words after the cut": after,
        "words without a piece": int(sum((~one.kept).sum() for one in read)) - after,
        "texts without a piece": sum(not one.kept.any() for one in read),
    }


def zip_rows(values: Ragged, read: Sequence[Pieces]) -> list[tuple[np.ndarray, Pieces]]:
    """The rows of a column beside their pieces."""
    return [(values[row], one) for row, one in enumerate(read)]


def selected(part: TextSplit, rows: Int[np.ndarray, " chosen"]) -> TextSplit:
    """The chosen rows of a split."""
    if len(rows) == len(part):
        return part
    columns: Mapping[str, Ragged | np.ndarray] = {
        name: values.select(rows) if isinstance(values, Ragged) else values[rows]
        for name, values in part.columns.items()
    }
    return replace(part, example_id=part.example_id[rows], words=part.words.select(rows), columns=columns)
