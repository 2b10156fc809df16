"""Words and the pieces that a pretrained model's tokenizer cuts them into."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from attnprobe.core.errors import UserError
from attnprobe.data.batching import TextSplit
from attnprobe.data.examples import Ragged

SPECIAL = -1
"""`piece_word` of a special token, a prompt, or the text of a pair that is not attended to."""
TEXT = "{text}"
SECOND = "{text2}"
PLACEHOLDERS = (TEXT, SECOND)
AT_PLACEHOLDERS = re.compile(f"({re.escape(TEXT)}|{re.escape(SECOND)})")
AT_A_TIME = 1024
"""Texts that are given to the tokenizer at a time."""


def foreign(error: BaseException) -> BaseException:
    """Pass an error of another library through, and raise every other one again.

    Args:
        error: what was caught. A panic of Rust is no `Exception`, but counts as one of a library.
    """
    if isinstance(error, Exception) or type(error).__name__ == "PanicException":
        return error
    raise error


class Pieces(NamedTuple):
    """One text as a model reads it.

    Attributes:
        ids: ids of the pieces, special tokens included.
        word: the position in the batch of a piece's word (words count from 1, after the start
            marker), or `SPECIAL`.
        kind: 1 for the second text of a pair, else 0 (`token_type_ids`).
        kept: which words have a piece: not those beyond the model's longest text, nor those of
            invisible characters.
        cut: how many words are beyond the model's longest text.
    """

    ids: Int[np.ndarray, " pieces"]
    word: Int[np.ndarray, " pieces"]
    kind: Int[np.ndarray, " pieces"]
    kept: Bool[np.ndarray, " words"]
    cut: int


@dataclass(frozen=True)
class _Part:
    """One text of the tokenizer's input: its words, joined by spaces.

    Attributes:
        words: the words of the text.
        string: which of the input's strings holds the text, 0 or 1.
        start: the first character of the text in that string.
        first_word: the number of its first word among the words that are attended to; None: the
            text is not attended to.
    """

    words: Sequence[str]
    string: int
    start: int
    first_word: int | None

    @property
    def text(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True)
class _Input:
    """What the tokenizer is given for one text or pair.

    Attributes:
        strings: one string, or two that the tokenizer joins as a pair.
        parts: where the texts stand in these strings; the rest is a prompt.
    """

    strings: list[str]
    parts: list[_Part]


@dataclass(frozen=True)
class PieceReader:
    """Cuts words into pieces.

    The words are joined by spaces and read as one text, as the model's own pipeline reads it.

    Attributes:
        tokenizer: a fast tokenizer of `transformers`.
        longest: pieces of the longest text, special tokens included; what is beyond is cut off.
        vocabulary_size: how many pieces the model knows.
        prompt: what every text is put into, at `TEXT` (and a second text at `SECOND`). Where prompt
            and texts are too long, the texts are cut and never the prompt. A piece that holds
            characters of both belongs to the text.

    Raises:
        UserError: the prompt does not have exactly one place for the text.
    """

    tokenizer: Any
    longest: int
    vocabulary_size: int = 1 << 31
    prompt: str = TEXT

    def __post_init__(self) -> None:
        if self.prompt.count(TEXT) != 1 or self.prompt.count(SECOND) > 1:
            raise UserError(
                f"model.prompt={self.prompt!r}: expected {TEXT} once, in the place of the text, "
                f"such as 'Review: {TEXT}\\nSentiment:' (and {SECOND} in that of a second one, "
                f"data.text2)"
            )

    def read(
        self,
        texts: Sequence[Sequence[str]],
        unattended: Sequence[Sequence[str]] | None = None,
        segments: Sequence[Int[np.ndarray, " words"]] | None = None,
    ) -> list[Pieces]:
        """Cut every text, or pair of texts, into pieces.

        Args:
            texts: the words that are attended to.
            unattended: for each pair the words of the text that is not attended to; None: both
                texts are.
            segments: for every word in `texts` the text of the pair that it belongs to, 0 or 1;
                None: the texts are no pairs.

        Returns:
            The pieces of each text, in the order of `texts`.

        Raises:
            UserError: the prompt does not fit pairs (or texts without a second one), or the
                tokenizer fails or does not belong to the model.
        """
        self._check_prompt(pairs=segments is not None)

        result = []
        for start in range(0, len(texts), AT_A_TIME):
            rows = range(start, min(start + AT_A_TIME, len(texts)))
            inputs = []
            for row in rows:
                segment = None if segments is None else segments[row]
                other_text = None if unattended is None else unattended[row]
                pair = _parts_of(texts[row], segment, other_text)
                inputs.append(self._with_prompt(self._fitting(pair)))

            encoding = self._encode(inputs)
            for number, row in enumerate(rows):
                segment = np.zeros(len(texts[row]), int) if segments is None else segments[row]
                result.append(self._pieces(encoding, number, inputs[number], segment))
        return result

    def unknown(self, words: Sequence[str]) -> set[str]:
        """The words of which the tokenizer knows no piece."""
        unknown_id = self.tokenizer.unk_token_id
        if unknown_id is None or not words:
            return set()
        ids = self.tokenizer(list(words), add_special_tokens=False)["input_ids"]
        return {
            word for word, pieces in zip(words, ids, strict=True) if set(pieces) == {unknown_id}
        }

    def _check_prompt(self, *, pairs: bool) -> None:
        if self.prompt == TEXT or pairs == (SECOND in self.prompt):
            return
        expected = "data.text2, for {text2}"
        if pairs:
            expected = f"{SECOND}, as data.text2 gives a second text"
        raise UserError(f"model.prompt={self.prompt!r}: expected {expected}")

    def _with_prompt(self, parts: list[_Part]) -> _Input:
        """The texts themselves, or the prompt with the texts in their places."""
        if self.prompt == TEXT:
            return _Input([part.text for part in parts], parts)

        string = ""
        placed = list(parts)
        for stretch in AT_PLACEHOLDERS.split(self.prompt):
            if stretch in PLACEHOLDERS:
                number = PLACEHOLDERS.index(stretch)
                placed[number] = replace(parts[number], string=0, start=len(string))
                string += parts[number].text
            else:
                string += stretch
        return _Input([string], placed)

    def _fitting(self, parts: list[_Part]) -> list[_Part]:
        """Cut the longer text until prompt and texts fit the model.

        Without a prompt nothing is cut: the tokenizer truncates plain texts itself.
        """
        parts = list(parts)
        while self.prompt != TEXT and any(part.words for part in parts):
            prompted = self._with_prompt(parts)
            encoding = self.tokenizer(
                prompted.strings[0], return_offsets_mapping=True, verbose=False
            )
            excess = len(encoding["input_ids"]) - self.longest
            if excess <= 0:
                break

            words_of_parts = []  # per text, the word of each of its pieces
            for part in prompted.parts:
                part_alone = _Input(prompted.strings, [replace(part, first_word=0)])
                words = _words_of_pieces(
                    part_alone, encoding["offset_mapping"], encoding.sequence_ids(0)
                )
                words_of_parts.append(words[words >= 0])
            longer = max(range(len(parts)), key=lambda number: len(words_of_parts[number]))

            # drop the words of its last pieces, as many as are too many, and one word at least
            last_words = np.sort(words_of_parts[longer])[::-1][:excess]
            longer_words = parts[longer].words
            first_dropped = last_words.min(initial=len(longer_words) - 1)
            parts[longer] = replace(parts[longer], words=longer_words[:first_dropped])
        return parts

    def _encode(self, inputs: Sequence[_Input]) -> Any:
        """The tokenizer's `BatchEncoding` of these inputs."""
        second_strings = None
        if len(inputs[0].strings) > 1:
            second_strings = [text_input.strings[1] for text_input in inputs]
        try:
            return self.tokenizer(
                [text_input.strings[0] for text_input in inputs],
                second_strings,
                truncation=True,
                max_length=self.longest,
                return_offsets_mapping=True,
                return_token_type_ids=True,
            )
        except BaseException as error:
            raise UserError(
                f"model.path={self.tokenizer.name_or_path}: its tokenizer cannot read a text "
                f"({foreign(error)!r:.200}): take the tokenizer that belongs to the model"
            ) from error

    def _pieces(
        self, encoding: Any, number: int, text_input: _Input, segment: Int[np.ndarray, " words"]
    ) -> Pieces:
        """The pieces of one text of an encoding, whose words belong to the texts in `segment`."""
        ids = np.array(encoding["input_ids"][number], np.int64)
        kind = np.array(encoding["token_type_ids"][number], np.int64)
        largest = ids.max(initial=0)
        if largest >= self.vocabulary_size:
            raise UserError(
                f"model.path={self.tokenizer.name_or_path}: its tokenizer gives the piece "
                f"{largest}, and the model knows {self.vocabulary_size}: take the tokenizer that "
                f"belongs to it"
            )

        word = _words_of_pieces(
            text_input, encoding["offset_mapping"][number], encoding.sequence_ids(number)
        )
        kept = np.isin(np.arange(len(segment)), word)
        # words are numbered from 0; in the batch, kept words count from 1 (SPECIAL picks the last)
        position = np.append(kept.cumsum(), SPECIAL)
        cut = _length_of_tail(kept[segment == 0]) + _length_of_tail(kept[segment == 1])
        return Pieces(ids, position[word], kind, kept, cut)


def _parts_of(
    words: Sequence[str],
    segment: Int[np.ndarray, " words"] | None,
    unattended: Sequence[str] | None,
) -> list[_Part]:
    """A text as one part, or a pair (where there is a `segment`) as two."""
    if segment is None:
        return [_Part(words, string=0, start=0, first_word=0)]

    second = int((segment == 0).sum())  # where the words of the second text begin
    parts = [
        _Part(words[:second], string=0, start=0, first_word=0),
        _Part(words[second:], string=1, start=0, first_word=second),
    ]
    if unattended is not None:
        absent = 1 if second else 0
        parts[absent] = _Part(unattended, string=absent, start=0, first_word=None)
    return parts


def _length_of_tail(kept: Bool[np.ndarray, " words"]) -> int:
    """How many words come after the last one that is kept."""
    return int(np.append(kept[::-1], True).argmax())


def _words_of_pieces(
    text_input: _Input, offsets: Sequence[tuple[int, int]], sequence: Sequence[int | None]
) -> Int[np.ndarray, " pieces"]:
    """The number of the word that each piece belongs to, `SPECIAL` where it belongs to none.

    A piece belongs to the word of its first character that is not a space; a piece of a space alone
    belongs to the word after it. What the strings hold besides the parts is a prompt, and a piece
    that holds characters of both belongs to the text.

    Args:
        text_input: the strings, and where the texts stand in them.
        offsets: [start, end) of every piece in its string; some tokenizers count the space before
            a word in.
        sequence: the string that each piece is from; None: a special token.
    """
    result = np.full(len(offsets), SPECIAL)
    for part in text_input.parts:
        if part.first_word is None or not part.words:
            continue
        text = part.text
        text_end = part.start + len(text)
        prompt_follows = len(text_input.strings[part.string]) > text_end
        word_ends = np.cumsum([len(word) + 1 for word in part.words])  # each after its space

        for piece, ((start, end), string) in enumerate(zip(offsets, sequence, strict=True)):
            if string != part.string:
                continue
            precedes_text = part.start > 0 and end <= part.start
            follows_text = prompt_follows and start >= text_end
            if precedes_text or follows_text:
                continue
            first = max(start - part.start, 0)
            stop = min(end - part.start, len(text))
            visible = next((at for at in range(first, stop) if not text[at].isspace()), stop)
            word = int(np.searchsorted(word_ends, visible, side="right"))
            result[piece] = part.first_word + min(word, len(part.words) - 1)
    return result


def with_pieces(part: TextSplit, reader: PieceReader) -> tuple[TextSplit, dict[str, int]]:
    """A split whose batches have the pieces of their texts.

    Words without a piece are left out, and with them the texts that have no other words, and the
    texts whose word that is asked about is cut off.

    Args:
        part: the split.
        reader: cuts its texts.

    Returns:
        The split with the columns `pieces`, `piece_word` and `piece_kind`, and the counts of
        `left_out`.
    """
    pieces_of_texts = _read_split(part, reader)
    columns = dict(part.columns)
    for name, values in part.columns.items():
        if isinstance(values, Ragged) and name not in ("question", "candidates"):
            columns[name] = _of_kept_words(values, pieces_of_texts)
    columns["pieces"] = Ragged.of([pieces.ids for pieces in pieces_of_texts], np.int64)
    columns["piece_word"] = Ragged.of([pieces.word for pieces in pieces_of_texts], np.int64)
    columns["piece_kind"] = Ragged.of([pieces.kind for pieces in pieces_of_texts], np.int64)

    readable = np.array([pieces.kept.any() for pieces in pieces_of_texts], bool)
    asked_about = columns.get("asked")
    if isinstance(asked_about, Ragged):
        readable &= np.array([marks.any() for marks in asked_about], bool)
    rows = np.flatnonzero(readable)
    for name, values in columns.items():
        columns[name] = values.select(rows) if isinstance(values, Ragged) else values[rows]
    words = _of_kept_words(part.words, pieces_of_texts).select(rows)
    changed = replace(part, example_id=part.example_id[rows], words=words, columns=columns)
    return changed, left_out(pieces_of_texts, reader.tokenizer.unk_token_id)


def _read_split(part: TextSplit, reader: PieceReader) -> list[Pieces]:
    texts = [part.tokens(number) for number in part.example_id.tolist()]
    unattended = None
    question = part.columns.get("question")
    if isinstance(question, Ragged):
        unattended = [part.spelled(numbers) for numbers in question]
    segments = None
    segment = part.columns.get("segment")
    if isinstance(segment, Ragged):
        segments = list(segment)
    return reader.read(texts, unattended, segments)


def _of_kept_words(values: Ragged, pieces_of_texts: Sequence[Pieces]) -> Ragged:
    """The entries of the words that have a piece, for a column with an entry per word."""
    rows = []
    for row, pieces in zip(values, pieces_of_texts, strict=True):
        is_empty = len(row) != len(pieces.kept)  # this text has no such entries
        rows.append(row if is_empty else row[pieces.kept])
    return Ragged.of(rows, values.flat.dtype.type)


def left_out(pieces_of_texts: Sequence[Pieces], unknown: int | None = None) -> dict[str, int]:
    """Count the texts and words that were cut, have no piece, or are unknown.

    Args:
        pieces_of_texts: the pieces of every text.
        unknown: the id of the piece that stands for what the tokenizer lacks; None: it has none.
    """
    counts = {
        "cut at the model's longest text": 0,
        "words after the cut": 0,
        "words without a piece": 0,
        "texts without a piece": 0,
        "words": 0,
        "words of unknown pieces": 0,
    }
    for pieces in pieces_of_texts:
        words = int(pieces.kept.sum())
        after_the_cut = pieces.cut if words else 0
        spelled = pieces.word[(pieces.word >= 0) & (pieces.ids != unknown)]
        counts["cut at the model's longest text"] += after_the_cut > 0
        counts["words after the cut"] += after_the_cut
        counts["words without a piece"] += len(pieces.kept) - words - after_the_cut
        counts["texts without a piece"] += words == 0
        counts["words"] += words
        counts["words of unknown pieces"] += words - len(np.unique(spelled))
    return counts
