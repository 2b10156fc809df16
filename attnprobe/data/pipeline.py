"""Everything between new text and a batch: saved with a run, and rebuilt without its data set."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from attnprobe.core.batch import Batch, Task
from attnprobe.core.errors import UserError
from attnprobe.data.batching import character_columns, collate
from attnprobe.data.characters import Characters
from attnprobe.data.columns import paired, question_words
from attnprobe.data.passages import Passage, Passages
from attnprobe.data.pieces import JOINED, PieceReader, Pieces
from attnprobe.data.text import TextRules, matching
from attnprobe.data.vocabulary import UNKNOWN, Vocabulary
from attnprobe.results.directory import PIPELINE, VOCABULARY
from attnprobe.results.files import read_json, write_json

SAVED = (
    "rules",
    "classes",
    "task",
    "max_tokens",
    "question",
    "question_kind",
    "candidates_pattern",
    "attend_to",
    "tags",
)


@dataclass
class _Row:
    """A new text on its way into a batch.

    Attributes:
        words: its words; of a pair those that are attended to.
        sentence: the sentence of each word, where there are sentences.
        question: the words of its question, or of the text of a pair that is not attended to.
        segment: the text of a pair, 0 or 1, that each word belongs to.
        asked: 1 at the word that is asked about, where every word has a class.
        passages: the text or the pair as it was given, for a model that reads pieces.
        pieces: the pieces that a pretrained model reads.
    """

    words: Sequence[str]
    sentence: list[int] | None = None
    question: Sequence[str] | None = None
    segment: np.ndarray | None = None
    asked: np.ndarray | None = None
    passages: Passages | None = None
    pieces: Pieces | None = None

    def pair_with(self, second: Sequence[str], passage: Passage, attend_to: str) -> None:
        """Make it the first text of a pair.

        Args:
            second: the words of the second text.
            passage: the second text.
            attend_to: see `attnprobe.data.columns.Columns`.
        """
        self.words, self.question, self.segment = paired(self.words, second, attend_to)
        if self.passages is not None:
            self.passages = Passages.paired(self.passages.texts[0], passage, attend_to)
        self.sentence = None

    def cut(self, limit: int | None) -> None:
        """Leave out the words beyond the limit."""
        self.words = self.words[:limit]
        if self.sentence is not None:
            self.sentence = self.sentence[:limit]
        if self.segment is not None:
            self.segment = self.segment[:limit]
        if self.passages is not None:
            self.passages = self.passages.cut(limit)

    def take_pieces(self, pieces: Pieces) -> None:
        """Leave out the words that have no piece, and make one of words that share a piece."""
        assert self.passages is not None
        self.pieces = pieces
        self.words = pieces.words_of(self.passages)
        if self.sentence is not None:
            self.sentence = [self.sentence[first] for first in pieces.first]
        if self.segment is not None:
            self.segment = self.segment[pieces.first]
        if self.asked is not None:
            self.asked = pieces.per_unit(self.asked, JOINED["asked"])


@dataclass(frozen=True)
class TextPipeline:
    """Everything between new text and a `Batch`; saved with a run and rebuilt without its data set.

    Attributes:
        rules: how a text becomes words.
        vocabulary: word ↔ id.
        classes: the classes' names, in the order of the logits.
        task: single- or multi-label.
        max_tokens: longer texts are cut to that many words.
        question: every text comes with a question.
        question_kind: `text`, or `label`: the question is the name of a label.
        attend_to: every text comes with a second one (`attnprobe.data.columns.Columns`); None: it
            comes alone.
        candidates_pattern: words of the text that match it in full are the classes it may be
            answered with.
        pieces: cuts words into the pieces that a pretrained model reads; not saved, the model has
            it.
        tags: every word has a class, and one of them is asked about.
    """

    rules: TextRules
    vocabulary: Vocabulary
    classes: Sequence[str]
    task: Task = Task.SINGLE_LABEL
    max_tokens: int | None = None
    question: bool = False
    question_kind: Literal["text", "label"] = "text"
    candidates_pattern: str | None = None
    attend_to: Literal["both", "first", "second"] | None = None
    pieces: PieceReader | None = None
    tags: bool = False

    def tokens(self, text: str | Sequence[str], second: str | None = None) -> list[str]:
        """The words at the content positions of a text (or pair), as they are in the text.

        Args:
            text: a raw text, or a list of its words (or sentences, as in `batch_of`).
            second: the second text of a pair.
        """
        tokens = self.rules.tokens(text)
        row = _Row(tokens, passages=Passages((self.rules.passage(text, tokens),)))
        if self.attend_to is not None and second is not None:
            words = self.rules.tokens(second)
            row.pair_with(words, self.rules.passage(second, words), self.attend_to)
        row.cut(self.max_tokens)
        if self.pieces is not None:
            row.take_pieces(self._pieces_of([row])[0])
        return list(row.words)

    def batch_of(
        self,
        texts: Sequence[str | Sequence[str]],
        questions: Sequence[str] | None = None,
        candidates: Sequence[Sequence[str]] | None = None,
    ) -> Batch:
        """One batch of new texts, in this order.

        Args:
            texts: raw texts; or lists of their words, which are taken as they are; where the run
                was trained with `data.sentences=column`, lists of sentences.
            questions: one per text, where the run was trained with questions; its second texts,
                where it reads pairs; the number of the word that is asked about, from 0, where
                every word has a class.
            candidates: names of the classes that each text may be answered with; None: all of them,
                or those that the run's `data.candidates_pattern` finds in the text.

        Returns:
            The batch; `example_id` counts from 0, and the labels are all 0.

        Raises:
            UserError: there is no text, or a text or question without any word; questions are
                missing, too many or not asked for; or candidates are not classes.
        """
        check_texts(texts, of_words=self.rules.sentences != "column")
        rows = [self._row(number, text) for number, text in enumerate(texts)]
        question_words = self._questions(len(texts), questions)
        if self.tags:
            self._mark(rows, questions)
        if question_words is not None:
            second_texts = zip(rows, questions or (), question_words, strict=True)
            for row, question, words in second_texts:
                if self.attend_to is None:
                    row.question = words
                else:
                    passage = self.rules.passage(question, words)
                    row.pair_with(words, passage, self.attend_to)

        if self.pieces is None:
            allowed = self._candidates([row.words for row in rows], candidates)
            for row in rows:
                row.cut(self.max_tokens)
        else:
            for row in rows:
                row.cut(self.max_tokens)
            for number, pieces in enumerate(self._pieces_of(rows)):
                if not len(pieces.first):
                    raise UserError(
                        f"text {number} ({texts[number]!r}) has no piece that the model reads: "
                        f"leave it out"
                    )
                rows[number].take_pieces(pieces)
            allowed = self._candidates([row.words for row in rows], candidates)
        return collate(self._columns(rows, allowed), len(self.classes))

    def _row(self, number: int, text: str | Sequence[str]) -> "_Row":
        words, sentence = self.rules.read(text)
        if not words:
            raise UserError(
                f"text {number} ({text!r}) has no word left after cleaning: leave it out"
            )
        return _Row(words, sentence, passages=Passages((self.rules.passage(text, words),)))

    def _questions(self, size: int, questions: Sequence[str] | None) -> list[list[str]] | None:
        """The words of the questions, or second texts, of `size` texts; None: nothing is asked."""
        if not self.question and self.attend_to is None:
            if questions is not None and not self.tags:
                raise UserError(
                    "questions=…: this run was trained on texts without a question; leave them out"
                )
            return None

        is_list = isinstance(questions, list | tuple) and len(questions) == size
        if not is_list or not all(isinstance(question, str) for question in questions or ()):
            received = "no questions" if questions is None else repr(questions)[:60]
            raise UserError(
                f"this run reads every text with a question (or a second text): expected "
                f"questions=[…], a list of {size}, one per text (attnprobe explain: --text2 TEXT "
                f"for each), but got {received}"
            )
        words_of_questions = []
        for number, question in enumerate(questions or ()):
            words = question_words(question, self.question_kind, self.rules)
            if not words:
                raise UserError(
                    f"question {number} ({question!r}) has no word left after cleaning: ask one"
                )
            if self.question_kind == "label" and self.vocabulary.encode(words) == [UNKNOWN]:
                raise UserError(
                    f"question {number} ({question!r}): no such label was asked for in the "
                    f"training; expected the name of one, as the training rows have it"
                )
            words_of_questions.append(words)
        return words_of_questions

    def _mark(self, rows: Sequence["_Row"], places: Sequence[str] | None) -> None:
        """Mark the word of each text that is asked about."""
        is_list = isinstance(places, list | tuple) and len(places) == len(rows)
        if not is_list or not all(str(place).isdecimal() for place in places or ()):
            received = "none" if places is None else repr(places)[:60]
            raise UserError(
                f"this run's model gives a class to every word: expected questions=[…], for each "
                f"of {len(rows)} texts the number of the word that is asked about, from 0 "
                f"(attnprobe explain: --text2 2 for each), but got {received}"
            )
        for number, (row, place) in enumerate(zip(rows, places or (), strict=True)):
            length = len(row.words[: self.max_tokens])
            if int(place) >= length:
                raise UserError(
                    f"question {number} ({place}): expected a number of text {number}, 0 to "
                    f"{length - 1}"
                )
            row.asked = (np.arange(length) == int(place)).astype(float)

    def _pieces_of(self, rows: Sequence["_Row"]) -> list[Pieces]:
        """The pieces of every text; all texts are pairs, or none is."""
        assert self.pieces is not None
        return self.pieces.read([row.passages for row in rows if row.passages is not None])

    def _candidates(
        self, texts: Sequence[Sequence[str]], candidates: Sequence[Sequence[str]] | None
    ) -> list[np.ndarray] | None:
        """Numbers of the classes that each text may be answered with; None: of all."""
        if candidates is None:
            if self.candidates_pattern is None:
                return None
            candidates = [self._matching_classes(words) for words in texts]
        elif not isinstance(candidates, list | tuple) or len(candidates) != len(texts):
            raise UserError(
                f"candidates={candidates!r:.60}: expected {len(texts)} lists of classes, one per "
                f"text"
            )

        known_classes = ", ".join(self.classes[:20])
        for name in chain.from_iterable(candidates):
            if name not in self.classes:
                raise UserError(
                    f"candidates: {name!r} is not a class of this run ({known_classes})"
                )
        numbers = []
        for text, names in enumerate(candidates):
            if not names:
                raise UserError(
                    f"text {text} has no candidate that the classifier knows: give it some with "
                    f"candidates=[[…], …], of {known_classes}"
                )
            numbers.append(np.array([self.classes.index(name) for name in names]))
        return numbers

    def _matching_classes(self, words: Sequence[str]) -> list[str]:
        assert self.candidates_pattern is not None
        return [name for name in matching(words, self.candidates_pattern) if name in self.classes]

    def _columns(
        self, rows: Sequence["_Row"], candidates: list[np.ndarray] | None
    ) -> dict[str, Any]:
        """The columns of a batch of these texts."""
        labels = np.zeros(len(rows), np.int64)
        if self.task is Task.MULTI_LABEL:
            labels = np.zeros((len(rows), len(self.classes)), np.float32)
        columns: dict[str, Any] = {
            "ids": [np.array(self.vocabulary.encode(row.words)) for row in rows],
            "labels": labels,
            "example_id": np.arange(len(rows)),
        }
        if candidates is not None:
            columns["candidates"] = candidates

        # of these either all texts have one, or none has
        optional: dict[str, list[Any]] = defaultdict(list)
        for row in rows:
            if row.sentence is not None:
                optional["sentence"].append(np.array(row.sentence))
            if row.segment is not None:
                optional["segment"].append(row.segment)
            if row.asked is not None:
                optional["asked"].append(row.asked)
            if row.question is not None:
                optional["question"].append(np.array(self.vocabulary.encode(row.question)))
            if row.pieces is not None:
                optional["pieces"].append(row.pieces.ids)
                optional["piece_word"].append(row.pieces.word)
                optional["piece_kind"].append(row.pieces.kind)
        return columns | optional | self._characters(rows)

    def _characters(self, rows: Sequence["_Row"]) -> dict[str, Any]:
        """The columns of characters, for a model that reads texts again without some words."""
        if self.pieces is None or not self.pieces.keeps_characters:
            return {}
        texts = []
        for row in rows:
            assert row.passages is not None
            assert row.pieces is not None
            texts.append(Characters.of(row.passages, *row.pieces.units.T))
        return character_columns(texts)

    def save(self, directory: Path) -> None:
        """Write the vocabulary and pipeline.json into a run's directory."""
        write_json(self.vocabulary.ids, Path(directory) / VOCABULARY)
        content = {name: getattr(self, name) for name in SAVED}
        content |= {
            "rules": asdict(self.rules),
            "classes": list(self.classes),
            "task": self.task.value,
        }
        write_json(content, Path(directory) / PIPELINE)

    @classmethod
    def load(cls, directory: Path) -> "TextPipeline":
        """Read what `save` wrote.

        Raises:
            UserError: the files are missing, or are not those of a run.
        """
        path = Path(directory) / PIPELINE
        try:
            saved = read_json(path)
            content: dict[str, Any] = {name: saved[name] for name in SAVED if name in saved}
            content["rules"] = TextRules(**content["rules"])
            content["task"] = Task(content["task"])
            return cls(vocabulary=Vocabulary.load(Path(directory) / VOCABULARY), **content)
        except FileNotFoundError:
            raise UserError(
                f"{path} does not exist: expected the directory of a finished run"
            ) from None
        except UserError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path} is not the pipeline.json of a run: {error!r}") from None


def check_texts(texts: object, *, of_words: bool = False) -> None:
    """Refuse what is no list of texts.

    Args:
        texts: what a user gave for a list of texts.
        of_words: a text may be a list of its words; else it may be a list of its sentences.

    Raises:
        UserError: names the first text that is wrong.
    """
    expected = "expected a list of one or more texts, such as ['a fine film']"
    if isinstance(texts, str | bytes) or not isinstance(texts, Sequence | np.ndarray | pd.Series):
        raise UserError(f"texts={texts!r:.60}: {expected}")
    if not len(texts):
        raise UserError(f"texts={texts!r:.60}: {expected}")
    for number, text in enumerate(texts):
        parts = text if isinstance(text, list | tuple) else [text]
        if not all(isinstance(part, str) for part in parts):
            raise UserError(f"text {number} is {text!r:.60}: {expected}")
        no_words = [part for part in parts if part.split() != [part]]
        if of_words and parts is text and no_words:
            raise UserError(
                f"text {number} is a list with {no_words[0]!r:.60}, which is no word: give a text "
                f"as it is, or a list of words"
            )
        if any(_has_surrogate(part) for part in parts):
            raise UserError(
                f"text {number} ({text!r:.60}) holds half a character (a lone surrogate): expected "
                f"Unicode text"
            )


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)
