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
"""`piece_word` of a special token, of a prompt, or of the other text of a pair."""
TEXT = "{text}"
SECOND = "{text2}"
AT_A_TIME = 1024


def foreign(error: BaseException) -> BaseException:
    """The error, if it is another library's, a panic of Rust included, which is no `Exception`;
    others are raised again."""
    if isinstance(error, Exception) or type(error).__name__ == "PanicException":
        return error
    raise error


class Pieces(NamedTuple):
    """One text as a model reads it.

    Attributes:
        ids: of the pieces, special tokens included.
        word: the position in the batch of a piece's word (words count from 1, after the start
            marker), or `SPECIAL`.
        kind: 1 for the second text of a pair, else 0 (`token_type_ids`).
        kept: which words have a piece: not those beyond the model's longest text, nor those of
            invisible characters.
        cut: how many of the words that have none are beyond it.
    """

    ids: Int[np.ndarray, " pieces"]
    word: Int[np.ndarray, " pieces"]
    kind: Int[np.ndarray, " pieces"]
    kept: Bool[np.ndarray, " words"]
    cut: int


class _Part(NamedTuple):
    """Words that stand together, joined by spaces: in which of the strings that a tokenizer is
    given, from which character on, and the number of the first; None: the words are not attended
    to."""

    words: Sequence[str]
    string: int
    start: int
    first: int | None


@dataclass(frozen=True)
class PieceReader:
    """Cuts words into pieces. The words are joined by spaces and read as one text, as the model's
    own pipeline reads it.

    Attributes:
        tokenizer: a fast tokenizer of `transformers`.
        longest: pieces of a text, special tokens included; what is beyond is cut off.
        known: how many pieces the model knows.
        prompt: what every text is put into, in the place of `TEXT` (and a second one in that of
            `SECOND`). What is too long is cut off the texts, never off the prompt; a piece of both
            is the text's.
    """

    tokenizer: Any
    longest: int
    known: int = 1 << 31
    prompt: str = TEXT

    def __post_init__(self) -> None:
        if self.prompt.count(TEXT) != 1 or self.prompt.count(SECOND) > 1:
            raise UserError(
                f"model.prompt={self.prompt!r}: expected {TEXT} once, in the place of the text, such as "
                f"'Review: {TEXT}\\nSentiment:' (and {SECOND} in that of a second one, data.text2)"
            )

    def read(
        self,
        texts: Sequence[Sequence[str]],
        others: Sequence[Sequence[str]] | None = None,
        segments: Sequence[Int[np.ndarray, " words"]] | None = None,
    ) -> list[Pieces]:
        """The pieces of every text, or pair of texts.

        Args:
            texts: the words that are attended to.
            others: of each pair the words of the text that is not attended to; None: there is none
                such.
            segments: of every word in `texts` the text of the pair, 0 or 1; None: the texts are no
                pairs.
        """
        if self.prompt != TEXT and (segments is None) == (SECOND in self.prompt):
            expected = (
                f"{SECOND}, as data.text2 gives a second text"
                if segments is not None
                else "data.text2, for {text2}"
            )
            raise UserError(f"model.prompt={self.prompt!r}: expected {expected}")
        result = []
        for start in range(0, len(texts), AT_A_TIME):
            some = range(start, min(start + AT_A_TIME, len(texts)))
            pairs = []
            for row in some:
                second = len(texts[row]) if segments is None else int((segments[row] == 0).sum())
                pair = [_Part(texts[row][:second], 0, 0, 0)]
                if segments is not None:
                    pair.append(_Part(texts[row][second:], 1, 0, second))
                    if others is not None:
                        absent = 1 if second else 0
                        pair[absent] = _Part(others[row], absent, 0, None)
                pairs.append(pair)
            strings, parts = zip(*(self._strings(self._fitting(one)) for one in pairs), strict=True)
            try:
                encoding = self.tokenizer(
                    [one[0] for one in strings],
                    [one[1] for one in strings] if len(strings[0]) > 1 else None,
                    truncation=True,
                    max_length=self.longest,
                    return_offsets_mapping=True,
                    return_token_type_ids=True,
                )
            except BaseException as error:
                raise UserError(
                    f"model.path={self.tokenizer.name_or_path}: its tokenizer cannot read a text ({foreign(error)!r:.200}): "
                    f"take the tokenizer that belongs to the model"
                ) from error
            for number, row in enumerate(some):
                ids, kind = (
                    np.array(encoding[name][number], np.int64)
                    for name in ("input_ids", "token_type_ids")
                )
                if (most := ids.max(initial=0)) >= self.known:
                    raise UserError(
                        f"model.path={self.tokenizer.name_or_path}: its tokenizer gives the piece {most}, and the model "
                        f"knows {self.known}: take the tokenizer that belongs to it"
                    )
                offsets = encoding["offset_mapping"][number]
                sequence = encoding.sequence_ids(number)
                word = _words_of_pieces(strings[number], parts[number], offsets, sequence)
                # a word is counted from 0 among those that are kept, and from 1 in the batch
                kept = np.isin(np.arange(len(texts[row])), word)
                place = np.append(kept.cumsum(), SPECIAL)
                segment = np.zeros(len(kept), int) if segments is None else segments[row]
                cut = sum(
                    int(np.append(one[::-1], True).argmax())
                    for one in (kept[segment == 0], kept[segment == 1])
                )
                result.append(Pieces(ids, place[word], kind, kept, cut))
        return result

    def _strings(self, pair: list[_Part]) -> tuple[list[str], list[_Part]]:
        """What the tokenizer is given: the texts, or the prompt with them in it; and where they are
        in that."""
        if self.prompt == TEXT:
            return [" ".join(one.words) for one in pair], pair
        string = ""
        parts = list(pair)
        for stretch in re.split(f"({re.escape(TEXT)}|{re.escape(SECOND)})", self.prompt):
            if stretch in (TEXT, SECOND):
                number = (TEXT, SECOND).index(stretch)
                parts[number] = pair[number]._replace(string=0, start=len(string))
                stretch = " ".join(pair[number].words)
            string += stretch
        return [string], parts

    def _fitting(self, pair: list[_Part]) -> list[_Part]:
        """Of the words those that fit into the prompt, the longer text being cut; all, where there
        is none, as the tokenizer cuts texts itself."""
        while self.prompt != TEXT and any(one.words for one in pair):
            strings, parts = self._strings(pair)
            read = self.tokenizer(strings[0], return_offsets_mapping=True, verbose=False)
            too_many = len(read["input_ids"]) - self.longest
            if too_many <= 0:
                break
            within = [
                _words_of_pieces(
                    strings, [one._replace(first=0)], read["offset_mapping"], read.sequence_ids(0)
                )
                for one in parts
            ]
            longer = max(range(len(pair)), key=lambda number: (within[number] >= 0).sum())
            last = np.sort(within[longer][within[longer] >= 0])[::-1][:too_many]
            words = pair[longer].words[: last.min(initial=len(pair[longer].words) - 1)]
            pair = [
                one._replace(words=words) if number == longer else one
                for number, one in enumerate(pair)
            ]
        return pair

    def unknown(self, words: Sequence[str]) -> set[str]:
        """Those words of which the tokenizer knows no piece."""
        if self.tokenizer.unk_token_id is None or not words:
            return set()
        pieces = self.tokenizer(list(words), add_special_tokens=False)["input_ids"]
        return {
            word
            for word, own in zip(words, pieces, strict=True)
            if {*own} == {self.tokenizer.unk_token_id}
        }


def _words_of_pieces(
    strings: Sequence[str],
    parts: Sequence[_Part],
    offsets: Sequence[tuple[int, int]],
    sequence: Sequence[int | None],
) -> Int[np.ndarray, " pieces"]:
    """The number of the word that each piece belongs to, −1 where it is of none: the word of its
    first character that is not a space; for a piece of a space alone the word after it. `offsets`
    are [start, end) of every piece in its string (some tokenizers count the space before a word
    in), `sequence` the string that it is of (None: a special token); what is in the strings besides
    the parts is a prompt's, but for pieces of both."""
    result = np.full(len(offsets), SPECIAL)
    for part in parts:
        if part.first is None or not part.words:
            continue
        ends = np.cumsum([len(word) + 1 for word in part.words])  # each after its space
        text = " ".join(part.words)
        at = part.start
        after = len(strings[part.string]) > at + len(text)
        for piece, ((start, end), of) in enumerate(zip(offsets, sequence, strict=True)):
            of_prompt = (at and end <= at) or (after and start >= at + len(text))
            if of == part.string and not of_prompt:
                start = max(start - at, 0)
                end = min(end - at, len(text))
                found = next(
                    (place for place in range(start, end) if not text[place].isspace()), end
                )
                result[piece] = part.first + min(
                    int(np.searchsorted(ends, found, side="right")), len(part.words) - 1
                )
    return result


def with_pieces(part: TextSplit, reader: PieceReader) -> tuple[TextSplit, dict[str, int]]:
    """A split whose batches have the pieces of their texts, without the words that have none, and
    what was left out."""
    texts = [part.tokens(number) for number in part.example_id.tolist()]
    others = None
    segments = None
    if isinstance(asked := part.columns.get("question"), Ragged):
        others = [
            [part.spelling[number] for number in asked[row].tolist()] for row in range(len(part))
        ]
    if isinstance(of_pair := part.columns.get("segment"), Ragged):
        segments = [of_pair[row] for row in range(len(part))]
    read = reader.read(texts, others, segments)

    def cut(values: Ragged) -> Ragged:
        rows = [(values[row], one.kept) for row, one in enumerate(read)]
        return Ragged.of(
            [row[kept] if len(row) == len(kept) else row for row, kept in rows],
            values.flat.dtype.type,
        )

    columns: dict[str, Ragged | np.ndarray] = {
        name: cut(values)
        if isinstance(values, Ragged) and name not in ("question", "candidates")
        else values
        for name, values in part.columns.items()
    }
    for name, pieces in {"pieces": "ids", "piece_word": "word", "piece_kind": "kind"}.items():
        columns[name] = Ragged.of([getattr(one, pieces) for one in read], np.int64)
    there = np.flatnonzero([one.kept.any() for one in read])
    if isinstance(
        marks := columns.get("asked"), Ragged
    ):  # a word that is cut off is not asked about
        there = there[[bool(marks[row].any()) for row in there.tolist()]]
    kept = {
        name: values.select(there) if isinstance(values, Ragged) else values[there]
        for name, values in columns.items()
    }
    part = replace(
        part, example_id=part.example_id[there], words=cut(part.words).select(there), columns=kept
    )
    return part, left_out(read, reader.tokenizer.unk_token_id)


def left_out(read: Sequence[Pieces], unknown: int | None = None) -> dict[str, int]:
    """Counts of texts and words that were cut or have no piece; `unknown`: the piece of words that
    the tokenizer lacks."""
    cut = [one for one in read if one.kept.any() and one.cut]
    after = sum(one.cut for one in cut)
    return {
        "cut at the model's longest text": len(cut),
        "words after the cut": after,
        "words without a piece": int(sum((~one.kept).sum() for one in read)) - after,
        "texts without a piece": sum(not one.kept.any() for one in read),
        "words": sum(int(one.kept.sum()) for one in read),
        "words of unknown pieces": sum(
            int(one.kept.sum()) - len(np.unique(one.word[(one.word >= 0) & (one.ids != unknown)]))
            for one in read
        ),
    }
