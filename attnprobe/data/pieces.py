"""Words and the pieces that a pretrained model's tokenizer cuts them into."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Int, Shaped

from attnprobe.core.errors import UserError
from attnprobe.data.batching import TextSplit
from attnprobe.data.examples import Ragged
from attnprobe.data.passages import Passage, Passages
from attnprobe.data.vocabulary import UNKNOWN

SPECIAL = -1
"""`piece_word` of a special token, a prompt, or the text of a pair that is not attended to."""
TEXT = "{text}"
SECOND = "{text2}"
PLACEHOLDERS = (TEXT, SECOND)
AT_PLACEHOLDERS = re.compile(f"({re.escape(TEXT)}|{re.escape(SECOND)})")
UNLIMITED = 10**9
"""Pieces of the longest text of a model that takes any."""
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

    What the attention is spread over are units: a word, or several words that share a piece.

    Attributes:
        ids: ids of the pieces, special tokens included.
        word: the position in the batch of a piece's unit (units count from 1, after the start
            marker), or `SPECIAL`.
        kind: 1 for the second text of a pair, else 0 (`token_type_ids`).
        first: number of the first word of every unit, from 0. Words without a piece are of no unit:
            those beyond the model's longest text, and those of invisible characters.
        last: number of the last word of every unit.
        words: how many words the text has.
        cut: how many of them are cut off at the model's longest text.
        is_cut: whether the text goes on after that, be it in the middle of a word.
    """

    ids: Int[np.ndarray, " pieces"]
    word: Int[np.ndarray, " pieces"]
    kind: Int[np.ndarray, " pieces"]
    first: Int[np.ndarray, " units"]
    last: Int[np.ndarray, " units"]
    words: int
    cut: int
    is_cut: bool

    @property
    def kept(self) -> Bool[np.ndarray, " words"]:
        """Which words have a piece."""
        kept = np.zeros(self.words, bool)
        for first, last in zip(self.first.tolist(), self.last.tolist(), strict=True):
            kept[first : last + 1] = True
        return kept

    @property
    def units(self) -> Int[np.ndarray, "units 2"]:
        """The first and the last word of every unit."""
        return np.stack([self.first, self.last], -1)

    @property
    def joined(self) -> int:
        """How many units are of several words."""
        return int((self.last > self.first).sum())

    def words_of(self, passages: Passages) -> list[str]:
        """The units, as they are in the text that was read."""
        units = zip(self.first.tolist(), self.last.tolist(), strict=True)
        return [passages.stretch(first, last) for first, last in units]

    def per_unit(
        self, values: Shaped[np.ndarray, " words"], join: np.ufunc
    ) -> Shaped[np.ndarray, " units"]:
        """One value per unit of what there is one of per word.

        Args:
            values: the values of the words.
            join: makes one value of several.
        """
        if not self.joined:
            return values[self.first]
        units = zip(self.first.tolist(), self.last.tolist(), strict=True)
        joined = [join.reduce(values[first : last + 1]) for first, last in units]
        return np.array(joined, values.dtype)


@dataclass(frozen=True)
class _Part:
    """One text of the tokenizer's input.

    Attributes:
        passage: the text.
        string: which of the input's strings holds the text, 0 or 1.
        start: the first character of the text in that string.
        first_word: the number of its first word among the words that are attended to; None: the
            text is not attended to.
    """

    passage: Passage
    string: int
    start: int
    first_word: int | None


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
    """Cuts texts into pieces, and says which piece belongs to which word.

    A text is read as it stands in its cell, as the model's own pipeline reads it.

    Attributes:
        tokenizer: a fast tokenizer of `transformers`.
        longest: pieces of the longest text, special tokens included; what is beyond is cut off.
        vocabulary_size: how many pieces the model knows.
        prompt: what every text is put into, at `TEXT` (and a second text at `SECOND`). Where prompt
            and texts are too long, the texts are cut and never the prompt. A piece that holds
            characters of both belongs to the text.
        special_tokens: what becomes of a special token that is spelled out in a text (`</s>`): it
            is `read` as one, as the library does by itself, or as its `characters`.
        adds_special_tokens: the tokenizer puts its own around a text; not where the prompt, a chat
            template, has them already.
        spaces_are_words: a piece of spaces alone belongs to the word after it; not where a word's
            class is read from its first piece.
        keeps_characters: batches get the characters of their texts, which are read again where
            words are removed.

    Raises:
        UserError: the prompt does not have exactly one place for the text.
    """

    tokenizer: Any
    longest: int
    vocabulary_size: int = 1 << 31
    prompt: str = TEXT
    special_tokens: Literal["read", "characters"] = "read"
    adds_special_tokens: bool = True
    spaces_are_words: bool = True
    keeps_characters: bool = False

    def __post_init__(self) -> None:
        if self.prompt.count(TEXT) != 1 or self.prompt.count(SECOND) > 1:
            raise UserError(
                f"model.prompt={self.prompt!r}: expected {TEXT} once, in the place of the text, "
                f"such as 'Review: {TEXT}\\nSentiment:' (and {SECOND} in that of a second one, "
                f"data.text2)"
            )

    def read(self, texts: Sequence[Passages]) -> list[Pieces]:
        """Cut every text, or pair of texts, into pieces.

        Args:
            texts: the texts; all are pairs, or none is.

        Returns:
            The pieces of each text, in the order of `texts`.

        Raises:
            UserError: the prompt does not fit pairs (or texts without a second one), or the
                tokenizer fails or does not belong to the model.
        """
        if texts:
            self._check_prompt(pairs=len(texts[0].texts) > 1)

        result = []
        for start in range(0, len(texts), AT_A_TIME):
            rows = texts[start : start + AT_A_TIME]
            inputs = [self._with_prompt(self._fitting(_parts_of(text))) for text in rows]
            encoding = self._encode(inputs)
            for number, text in enumerate(rows):
                result.append(self._pieces(encoding, number, inputs[number], text))
        return result

    @property
    def settings(self) -> dict[str, Any]:
        """How the tokenizer is called for each string."""
        return {
            "split_special_tokens": self.special_tokens == "characters",
            "add_special_tokens": self.adds_special_tokens,
        }

    def strings(self, text: Passages) -> list[str]:
        """What the tokenizer is given for a text or pair: one string, or two."""
        return self._with_prompt(self._fitting(_parts_of(text))).strings

    def prompted(self, cells: Sequence[str]) -> list[str]:
        """The cells of a text or pair, or the prompt with all of them in their places."""
        wordless = np.zeros((0, 2), np.int32)
        passages = Passages(tuple(Passage(cell, wordless) for cell in cells))
        return self._with_prompt(_parts_of(passages)).strings

    @property
    def control_tokens(self) -> dict[int, str]:
        """The special tokens by their ids, but the one of unknown words."""
        ids = {*self.tokenizer.all_special_ids} - {self.tokenizer.unk_token_id}
        return {number: str(self.tokenizer.convert_ids_to_tokens(number)) for number in ids}

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
            return _Input([part.passage.string for part in parts], parts)

        string = ""
        placed = list(parts)
        for stretch in AT_PLACEHOLDERS.split(self.prompt):
            if stretch in PLACEHOLDERS:
                number = PLACEHOLDERS.index(stretch)
                placed[number] = replace(parts[number], string=0, start=len(string))
                string += parts[number].passage.string
            else:
                string += stretch
        return _Input([string], placed)

    def _fitting(self, parts: list[_Part]) -> list[_Part]:
        """Cut the longer text until prompt and texts fit the model.

        Without a prompt nothing is cut: the tokenizer truncates plain texts itself.
        """
        parts = list(parts)
        while self.prompt != TEXT and any(len(part.passage) for part in parts):
            prompted = self._with_prompt(parts)
            encoding = self.tokenizer(
                prompted.strings[0],
                return_offsets_mapping=True,
                verbose=False,
                **self.settings,
            )
            excess = len(encoding["input_ids"]) - self.longest
            if excess <= 0:
                break

            words_of_parts = []  # per text, the word of each of its pieces
            for part in prompted.parts:
                part_alone = _Input(prompted.strings, [replace(part, first_word=0)])
                words, _ = _words_of_pieces(
                    part_alone, encoding["offset_mapping"], encoding.sequence_ids(0)
                )
                words_of_parts.append(words[words >= 0])
            longer = max(range(len(parts)), key=lambda number: len(words_of_parts[number]))

            # drop the words of its last pieces, as many as are too many, and one word at least
            last_words = np.sort(words_of_parts[longer])[::-1][:excess]
            passage = parts[longer].passage
            first_dropped = int(last_words.min(initial=len(passage) - 1))
            shorter = passage.cut(first_dropped)
            if not len(shorter):  # a word alone is too long
                size = len(words_of_parts[longer])
                shorter = passage.up_to(len(passage.string) * max(0, size - excess) // size)
            parts[longer] = replace(parts[longer], passage=shorter)
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
                **self.settings,
                return_offsets_mapping=True,
                return_token_type_ids=True,
            )
        except BaseException as error:
            raise UserError(
                f"model.path={self.tokenizer.name_or_path}: its tokenizer cannot read a text "
                f"({foreign(error)!r:.200}): take the tokenizer that belongs to the model"
            ) from error

    def _pieces(self, encoding: Any, number: int, text_input: _Input, text: Passages) -> Pieces:
        """The pieces of one text of an encoding."""
        ids = np.array(encoding["input_ids"][number], np.int64)
        kind = np.array(encoding["token_type_ids"][number], np.int64)
        largest = ids.max(initial=0)
        if largest >= self.vocabulary_size:
            raise UserError(
                f"model.path={self.tokenizer.name_or_path}: its tokenizer gives the piece "
                f"{largest}, and the model knows {self.vocabulary_size}: take the tokenizer that "
                f"belongs to it"
            )

        first_word, last_word = _words_of_pieces(
            text_input, encoding["offset_mapping"][number], encoding.sequence_ids(number)
        )
        if not self.spaces_are_words:
            is_space = first_word > last_word
            first_word[is_space] = SPECIAL
            last_word[is_space] = SPECIAL
        words = len(text)
        has_piece = np.zeros(words, bool)
        has_piece[first_word[first_word >= 0]] = True
        follows = np.zeros(words + 1, bool)  # words of one unit with the one before
        for piece in np.flatnonzero(last_word > first_word):
            has_piece[first_word[piece] : last_word[piece] + 1] = True
            follows[first_word[piece] + 1 : last_word[piece] + 1] = True
        is_first = has_piece & ~follows[:-1]
        is_cut = bool(encoding.encodings[number].overflowing)
        for part, passage in zip(text_input.parts, text.texts, strict=True):
            is_cut |= len(part.passage.string) < len(passage.string)
        # a unit's number is its position in the batch; SPECIAL picks the last entry
        position = np.append(is_first.cumsum(), SPECIAL)
        return Pieces(
            ids=ids,
            word=position[first_word],
            kind=kind,
            first=np.flatnonzero(is_first),
            last=np.flatnonzero(has_piece & ~follows[1:]),
            words=words,
            cut=self._count_cut_words(text, has_piece) if is_cut else 0,
            is_cut=is_cut,
        )

    def _count_cut_words(self, text: Passages, has_piece: Bool[np.ndarray, " words"]) -> int:
        """How many words are cut off, at the end or at the start of each text."""
        left = self.prompt == TEXT and self.tokenizer.truncation_side == "left"
        cut = 0
        for source, first_word in text.first_words().items():
            kept = has_piece[first_word : first_word + len(text.texts[source])]
            cut += _words_before_the_first(kept if left else kept[::-1])
        return cut


def _parts_of(text: Passages) -> list[_Part]:
    """A text as one part, or a pair as two."""
    first_words = text.first_words()
    return [
        _Part(passage, string=number, start=0, first_word=first_words.get(number))
        for number, passage in enumerate(text.texts)
    ]


def _words_before_the_first(kept: Bool[np.ndarray, " words"]) -> int:
    """How many words come before the first one that is kept."""
    return int(np.append(kept, True).argmax())


def _words_of_pieces(
    text_input: _Input, offsets: Sequence[tuple[int, int]], sequence: Sequence[int | None]
) -> tuple[Int[np.ndarray, " pieces"], Int[np.ndarray, " pieces"]]:
    """The numbers of the first and the last word of which each piece has a character.

    Both are `SPECIAL` where a piece belongs to no word. Of a piece of spaces alone the first is the
    word after it, and the last the word before. What the strings hold besides the parts is a
    prompt, and a piece that holds characters of both belongs to the text.

    Args:
        text_input: the strings, and where the texts stand in them.
        offsets: [start, end) of every piece in its string; some tokenizers count the space before
            a word in.
        sequence: the string that each piece is from; None: a special token.
    """
    starts, ends = np.array(offsets, np.int64).reshape(-1, 2).T
    string = np.array([SPECIAL if number is None else number for number in sequence], np.int64)
    first_word = np.full(len(starts), SPECIAL)
    last_word = np.full(len(starts), SPECIAL)
    for part in text_input.parts:
        if part.first_word is None or not len(part.passage):
            continue
        text_end = part.start + len(part.passage.string)
        is_part = string == part.string
        if part.start > 0:
            is_part &= ends > part.start
        if len(text_input.strings[part.string]) > text_end:  # a prompt follows
            is_part &= starts < text_end

        word_starts, word_ends = part.passage.spans.T
        start = (starts[is_part] - part.start).clip(min=0)
        end = (ends[is_part] - part.start).clip(max=len(part.passage.string))
        # the first word that ends after the piece starts, and the last that starts before it ends
        first = np.searchsorted(word_ends, start, side="right").clip(max=len(part.passage) - 1)
        last = np.searchsorted(word_starts, end, side="left") - 1
        first_word[is_part] = part.first_word + first
        last_word[is_part] = part.first_word + last
    return first_word, last_word


JOINED: dict[str, np.ufunc] = {
    "rationale": np.logical_or,
    "annotators": np.bitwise_or,
    "asked": np.maximum,
    "sentence": np.minimum,
    "segment": np.minimum,
}
"""What becomes of the columns over the words where words are one unit; other numbers are added."""


def with_pieces(part: TextSplit, reader: PieceReader) -> tuple[TextSplit, dict[str, Any]]:
    """A split whose batches have the pieces of their texts.

    Words of one piece become one. Words without a piece are left out, and with them the texts that
    have no other words, and the texts whose word that is asked about is cut off.

    Args:
        part: the split.
        reader: cuts its texts.

    Returns:
        The split with the columns `pieces`, `piece_word` and `piece_kind`, and the counts of
        `left_out`.

    Raises:
        UserError: the texts were not kept as they stand in their cells.
    """
    if part.passages is None:
        raise UserError(
            "data.verbatim=false: this model reads texts as they stand in their cells, and they "
            "were not kept: expected data.verbatim=true"
        )
    pieces_of_texts = reader.read(part.passages)
    part = _with_words_of_units(part, pieces_of_texts)
    columns = dict(part.columns)
    for name, values in part.columns.items():
        if isinstance(values, Ragged) and name not in ("question", "candidates"):
            columns[name] = _per_unit(name, values, pieces_of_texts)
    columns["pieces"] = Ragged.of([pieces.ids for pieces in pieces_of_texts], np.int64)
    columns["piece_word"] = Ragged.of([pieces.word for pieces in pieces_of_texts], np.int64)
    columns["piece_kind"] = Ragged.of([pieces.kind for pieces in pieces_of_texts], np.int64)

    readable = np.array([len(pieces.first) > 0 for pieces in pieces_of_texts], bool)
    asked_about = columns.get("asked")
    if isinstance(asked_about, Ragged):
        readable &= np.array([marks.any() for marks in asked_about], bool)
    units = [pieces.units for pieces in pieces_of_texts] if reader.keeps_characters else None
    part = replace(part, columns=columns, units=units).select(np.flatnonzero(readable))
    return part, left_out(pieces_of_texts, reader.tokenizer.unk_token_id, reader.control_tokens)


def _with_words_of_units(part: TextSplit, pieces_of_texts: Sequence[Pieces]) -> TextSplit:
    """The split with a word per unit; several words are spelled as they stand in the text."""
    assert part.passages is not None
    spelling = list(part.spelling)
    number_of_stretch: dict[str, int] = {}
    rows = []
    for words, pieces, passages in zip(part.words, pieces_of_texts, part.passages, strict=True):
        units = words[pieces.first]
        for unit in np.flatnonzero(pieces.last > pieces.first):
            stretch = passages.stretch(int(pieces.first[unit]), int(pieces.last[unit]))
            if stretch not in number_of_stretch:
                number_of_stretch[stretch] = len(spelling)
                spelling.append(stretch)
            units[unit] = number_of_stretch[stretch]
        rows.append(units)
    vocabulary_id = part.vocabulary_id
    if number_of_stretch:
        unknown = np.full(len(number_of_stretch), UNKNOWN, vocabulary_id.dtype)
        vocabulary_id = np.append(vocabulary_id, unknown)
    words_of_units = Ragged.of(rows, part.words.flat.dtype.type)
    return replace(part, words=words_of_units, spelling=spelling, vocabulary_id=vocabulary_id)


def _per_unit(name: str, values: Ragged, pieces_of_texts: Sequence[Pieces]) -> Ragged:
    """The entries of the units, for a column with an entry per word."""
    rows = []
    for row, pieces in zip(values, pieces_of_texts, strict=True):
        if len(row) != pieces.words:  # this text has no such entries
            rows.append(row)
        elif name == "counterfactual" and pieces.joined:  # word for word it is known no longer
            rows.append(row[:0])
        else:
            rows.append(pieces.per_unit(row, JOINED.get(name, np.add)))
    return Ragged.of(rows, values.flat.dtype.type)


def left_out(
    pieces_of_texts: Sequence[Pieces],
    unknown: int | None = None,
    control_tokens: Mapping[int, str] | None = None,
) -> dict[str, Any]:
    """Count the texts and words that were cut, have no piece, are unknown, or are one unit.

    Args:
        pieces_of_texts: the pieces of every text.
        unknown: the id of the piece that stands for what the tokenizer lacks; None: it has none.
        control_tokens: the special tokens by their ids.

    Returns:
        The counts, and how many texts hold each special token spelled out.
    """
    counts: dict[str, Any] = {
        "cut at the model's longest text": 0,
        "words after the cut": 0,
        "words without a piece": 0,
        "texts without a piece": 0,
        "words": 0,
        "words of unknown pieces": 0,
        "units of several words": 0,
    }
    control_tokens = control_tokens or {}
    texts_of_special_token = Counter[str]()
    special_ids = np.array(sorted(control_tokens), np.int64)
    for pieces in pieces_of_texts:
        units = len(pieces.first)
        cut = pieces.cut if units else 0
        spelled = pieces.word[(pieces.word >= 0) & (pieces.ids != unknown)]
        counts["cut at the model's longest text"] += pieces.is_cut and units > 0
        counts["words after the cut"] += cut
        counts["words without a piece"] += pieces.words - int(pieces.kept.sum()) - cut
        counts["texts without a piece"] += units == 0
        counts["words"] += units
        counts["words of unknown pieces"] += units - len(np.unique(spelled))
        counts["units of several words"] += pieces.joined
        in_text = np.intersect1d(pieces.ids[pieces.word >= 0], special_ids)
        texts_of_special_token.update(control_tokens[number] for number in in_text.tolist())
    counts["texts with a special token"] = dict(sorted(texts_of_special_token.items()))
    return counts
