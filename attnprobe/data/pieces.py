"""Words and the pieces that a pretrained model's tokenizer cuts them into."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from attnprobe.core.errors import UserError
from attnprobe.data.batching import TextSplit
from attnprobe.data.examples import Ragged, selected

SPECIAL = -1
"""`piece_word` of a special token, of a prompt, or of the other text of a pair."""
TEXT = "{text}"
"""Where a prompt has the text."""
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
        known: how many pieces the model knows.
        prompt: what every text is put into, in the place of `TEXT`. What is too long is cut off the text, never off the
            prompt; a piece of both is the text's.
    """

    tokenizer: Any
    longest: int
    known: int = 1 << 31
    prompt: str = TEXT

    def __post_init__(self) -> None:
        if self.prompt.count(TEXT) != 1:
            raise UserError(
                f"model.prompt={self.prompt!r}: expected {TEXT} once, in the place of the text, such as "
                f"'Review: {TEXT}\\nSentiment:'"
            )

    def read(self, texts: Sequence[Sequence[str]], questions: Sequence[Sequence[str]] | None = None) -> list[Pieces]:
        """The pieces of every text; with questions those of the pairs, the words being those of the text.

        Raises:
            UserError: the tokenizer gives a piece that the model does not know.
        """
        result = []
        for start in range(0, len(texts), AT_A_TIME):
            some = texts[start : start + AT_A_TIME]
            pair = None if questions is None else [" ".join(one) for one in questions[start : start + AT_A_TIME]]
            before, _, after = self.prompt.partition(TEXT)
            fitting = [self._fitting(words) for words in some]
            encoding = self.tokenizer(
                [f"{before}{' '.join(words)}{after}" for words in fitting],
                pair,
                truncation="only_first" if pair else True,
                max_length=self.longest,
                return_offsets_mapping=True,
                return_token_type_ids=True,
            )
            for number, words in enumerate(some):
                offsets, sequence = encoding["offset_mapping"][number], encoding.sequence_ids(number)
                word = _words_of_pieces(fitting[number], offsets, [one == 0 for one in sequence], before, after)
                # a word is counted from 0 among those that are kept, and from 1 in the batch
                kept = np.isin(np.arange(len(words)), word)
                place = np.append(kept.cumsum(), SPECIAL)
                if (most := max(encoding["input_ids"][number], default=0)) >= self.known:
                    raise UserError(
                        f"model.path={self.tokenizer.name_or_path}: its tokenizer gives the piece {most}, and the model "
                        f"knows {self.known}: take the tokenizer that belongs to it"
                    )
                result.append(
                    Pieces(
                        np.array(encoding["input_ids"][number], np.int64),
                        place[word],
                        np.array(encoding["token_type_ids"][number], np.int64),
                        kept,
                    )
                )
        return result

    def _fitting(self, words: Sequence[str]) -> Sequence[str]:
        """Of the words those that fit into the prompt: all, where there is none, as the tokenizer cuts a text itself."""
        while self.prompt != TEXT and words:
            before, _, after = self.prompt.partition(TEXT)
            one = self.tokenizer(
                f"{before}{' '.join(words)}{after}",
                return_offsets_mapping=True,
                return_token_type_ids=False,
                verbose=False,
            )
            too_many = len(one["input_ids"]) - self.longest
            if too_many <= 0:
                break
            of_text = [sequence == 0 for sequence in one.sequence_ids(0)]
            place = _words_of_pieces(words, one["offset_mapping"], of_text, before, after)
            words = words[: np.sort(place[place >= 0])[::-1][:too_many].min(initial=len(words) - 1)]
        return words

    def unknown(self, words: Sequence[str]) -> set[str]:
        """Those words of which the tokenizer knows no piece."""
        if self.tokenizer.unk_token_id is None or not words:
            return set()
        pieces = self.tokenizer(list(words), add_special_tokens=False)["input_ids"]
        return {word for word, own in zip(words, pieces, strict=True) if {*own} == {self.tokenizer.unk_token_id}}


def _words_of_pieces(
    words: Sequence[str], offsets: Sequence[tuple[int, int]], of_text: Sequence[bool], before: str = "", after: str = ""
) -> Int[np.ndarray, " pieces"]:
    """The number of the word that each piece of a text belongs to, −1 where it is not of the text: the word of its first
    character that is not a space; for a piece of a space alone the word after it.

    Args:
        words: the text is these, joined by single spaces.
        offsets: [start, end) of every piece in what is read; some tokenizers count the space before a word in, some do not.
        of_text: whether a piece is of what is read at all.
        before, after: what is read before and after the text; a piece of both is the text's.
    """
    ends = np.cumsum([len(word) + 1 for word in words])  # each after its space
    text, at = " ".join(words), len(before)
    result = np.full(len(offsets), SPECIAL)
    for piece, ((start, end), inside) in enumerate(zip(offsets, of_text, strict=True)):
        of_prompt = (before and end <= at) or (after and start >= at + len(text))
        if inside and words and not of_prompt:
            start, end = max(start - at, 0), min(end - at, len(text))
            found = next((place for place in range(start, end) if not text[place].isspace()), end)
            result[piece] = min(int(np.searchsorted(ends, found, side="right")), len(words) - 1)
    return result


def with_pieces(part: TextSplit, reader: PieceReader) -> tuple[TextSplit, dict[str, int]]:
    """A split whose batches have the pieces of their texts, without the words that have none, and what was left out."""
    texts = [part.tokens_at(row) for row in range(len(part))]
    questions = None
    if isinstance(asked := part.columns.get("question"), Ragged):
        questions = [[part.spelling[number] for number in asked[row].tolist()] for row in range(len(part))]
    read = reader.read(texts, questions)

    def cut(values: Ragged) -> Ragged:
        rows = [(values[row], one.kept) for row, one in enumerate(read)]
        return Ragged.of([row[kept] if len(row) == len(kept) else row for row, kept in rows], values.flat.dtype.type)

    columns: dict[str, Ragged | np.ndarray] = {
        name: cut(values) if isinstance(values, Ragged) and name not in ("question", "candidates") else values
        for name, values in part.columns.items()
    }
    for name, pieces in {"pieces": "ids", "piece_word": "word", "piece_kind": "kind"}.items():
        columns[name] = Ragged.of([getattr(one, pieces) for one in read], np.int64)
    there = np.flatnonzero([one.kept.any() for one in read])
    rows = selected({"example_id": part.example_id, "words": cut(part.words), "columns": columns}, there)
    return replace(part, **rows), left_out(read, reader.tokenizer.unk_token_id)


def left_out(read: Sequence[Pieces], unknown: int | None = None) -> dict[str, int]:
    """How many texts were cut, the words after the cuts, other words that have no piece, texts of nothing else, words that
    have one, and those that have none but `unknown`."""
    cut = [one for one in read if one.kept.any() and not one.kept[-1]]
    after = sum(int(one.kept[::-1].argmax()) for one in cut)
    return {
        "cut at the model's longest text": len(cut),
        "words after the cut": after,
        "words without a piece": int(sum((~one.kept).sum() for one in read)) - after,
        "texts without a piece": sum(not one.kept.any() for one in read),
        "words": sum(int(one.kept.sum()) for one in read),
        "words of unknown pieces": sum(
            int(one.kept.sum()) - len(np.unique(one.word[(one.word >= 0) & (one.ids != unknown)])) for one in read
        ),
    }
