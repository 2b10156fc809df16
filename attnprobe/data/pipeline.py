"""Everything between new text and a batch: saved with a run, and rebuilt without its data set."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import compress
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from attnprobe.core.batch import Batch, Task
from attnprobe.core.errors import UserError
from attnprobe.data.batching import collate
from attnprobe.data.columns import paired
from attnprobe.data.pieces import PieceReader
from attnprobe.data.text import TextRules, matching
from attnprobe.data.vocabulary import Vocabulary
from attnprobe.results.directory import PIPELINE, VOCABULARY
from attnprobe.results.files import read_json, write_json

SAVED = (
    "rules",
    "classes",
    "task",
    "max_tokens",
    "question",
    "candidates_pattern",
    "attend_to",
    "tags",
)


@dataclass(frozen=True)
class TextPipeline:
    """Everything between new text and a `Batch`; saved with a run and rebuilt without its data set.

    Attributes:
        question: every text comes with a question.
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
    candidates_pattern: str | None = None
    attend_to: Literal["both", "first", "second"] | None = None
    pieces: PieceReader | None = None
    tags: bool = False

    def tokens(self, text: str | Sequence[str], second: str | None = None) -> list[str]:
        """The words at the content positions of this text (or pair), out-of-vocabulary words as
        they are."""
        words = self.rules.tokens(text)
        other = None
        segment = None
        if self.attend_to is not None and second is not None:
            words, other, segment = paired(words, self.rules.tokens(second), self.attend_to)
            segment = segment[: self.max_tokens]
        words = words[: self.max_tokens]
        if self.pieces is None:
            return words
        (read,) = self.pieces.read(
            [words], None if other is None else [other], None if segment is None else [segment]
        )
        return list(compress(words, read.kept))

    def batch_of(
        self,
        texts: Sequence[str | Sequence[str]],
        questions: Sequence[str] | None = None,
        candidates: Sequence[Sequence[str]] | None = None,
    ) -> Batch:
        """One batch of new texts, in this order; `example_id` counts from 0 and the labels are all
        0.

        Args:
            texts: raw texts; or lists of their words, which are taken as they are; where the run
                was trained with `data.sentences=column`, lists of sentences.
            questions: one per text, where the run was trained with questions; its second texts,
                where it reads pairs; the number of the word that is asked about, from 0, where
                every word has a class.
            candidates: names of the classes that each text may be answered with; None: all of them,
                or those that the run's `data.candidates_pattern` finds in the text.

        Raises:
            UserError: no text, a text or question without any word, questions that are missing, too
                many or not asked for, or candidates that are not classes.
        """
        check_texts(texts, of_words=self.rules.sentences != "column")
        read = [self.rules.read(text) for text in texts]
        if empty := [number for number, (words, _) in enumerate(read) if not words]:
            raise UserError(
                f"text {empty[0]} ({texts[empty[0]]!r}) has no word left after cleaning: leave it out"
            )
        multi = self.task is Task.MULTI_LABEL
        labels = (
            np.zeros((len(texts), len(self.classes)), np.float32)
            if multi
            else np.zeros(len(texts), np.int64)
        )
        limit = self.max_tokens
        asked: list[Any] | None = self._questions(texts, questions)
        marks = self._marks([words[:limit] for words, _ in read], questions) if self.tags else None
        pieces = None
        segments = None
        if self.attend_to is not None and asked is not None:
            pairs = [
                paired(words, other, self.attend_to)
                for (words, _), other in zip(read, asked, strict=True)
            ]
            read = [(words, None) for words, _, _ in pairs]
            asked = None if self.attend_to == "both" else [other for _, other, _ in pairs]
            segments = [segment[:limit] for _, _, segment in pairs]
        if self.pieces is not None:
            pieces = self.pieces.read([words[:limit] for words, _ in read], asked, segments)
            if none := [number for number, one in enumerate(pieces) if not one.kept.any()]:
                raise UserError(
                    f"text {none[0]} ({texts[none[0]]!r}) has no piece that the model reads: leave it out"
                )
            read = [
                (
                    list(compress(words[:limit], one.kept)),
                    None if of is None else list(compress(of[:limit], one.kept)),
                )
                for (words, of), one in zip(read, pieces, strict=True)
            ]
            segments = segments and [
                one[read.kept] for one, read in zip(segments, pieces, strict=True)
            ]
            marks = marks and [one[read.kept] for one, read in zip(marks, pieces, strict=True)]
        columns: dict[str, Any] = {
            "ids": [np.array(self.vocabulary.encode(words[:limit])) for words, _ in read],
            "labels": labels,
            "example_id": np.arange(len(texts)),
        }
        if self.rules.sentences is not None:
            columns["sentence"] = [
                np.array(numbers[:limit]) for _, numbers in read if numbers is not None
            ]
        if segments is not None:
            columns["segment"] = segments
        if marks is not None:
            columns["asked"] = marks
        if asked is not None:
            columns["question"] = [np.array(self.vocabulary.encode(words)) for words in asked]
        if (allowed := self._candidates([words for words, _ in read], candidates)) is not None:
            columns["candidates"] = allowed
        if pieces is not None:
            columns |= {
                "pieces": [one.ids for one in pieces],
                "piece_word": [one.word for one in pieces],
            }
            columns["piece_kind"] = [one.kind for one in pieces]
        return collate(columns, len(self.classes))

    def _questions(
        self, texts: Sequence[object], questions: Sequence[str] | None
    ) -> list[list[str]] | None:
        if not self.question and self.attend_to is None:
            if questions is not None and not self.tags:
                raise UserError(
                    "questions=…: this run was trained on texts without a question; leave them out"
                )
            return None
        given = questions if isinstance(questions, list | tuple) else []
        if len(given) != len(texts) or not all(isinstance(question, str) for question in given):
            raise UserError(
                f"this run reads every text with a question (or a second text): expected questions=[…], a list of "
                f"{len(texts)}, one per text (attnprobe explain: --text2 TEXT for each), but got "
                f"{'no questions' if questions is None else repr(questions)[:60]}"
            )
        words = [self.rules.words(question) for question in given]
        if empty := [number for number, question in enumerate(words) if not question]:
            raise UserError(
                f"question {empty[0]} ({given[empty[0]]!r}) has no word left after cleaning: ask one"
            )
        return words

    def _marks(
        self, texts: Sequence[Sequence[str]], questions: Sequence[str] | None
    ) -> list[np.ndarray]:
        """1 at the word of each text that is asked about, 0 at the others."""
        given = questions if isinstance(questions, list | tuple) else []
        if len(given) != len(texts) or not all(str(one).isdecimal() for one in given):
            raise UserError(
                f"this run's model gives a class to every word: expected questions=[…], for each of {len(texts)} texts the "
                f"number of the word that is asked about, from 0 (attnprobe explain: --text2 2 for each), "
                f"but got {'none' if questions is None else repr(questions)[:60]}"
            )
        for number, (words, one) in enumerate(zip(texts, given, strict=True)):
            if int(one) >= len(words):
                raise UserError(
                    f"question {number} ({one}): expected a number of text {number}, 0 to {len(words) - 1}"
                )
        return [
            (np.arange(len(words)) == int(one)).astype(float)
            for words, one in zip(texts, given, strict=True)
        ]

    def _candidates(
        self, texts: list[list[str]], candidates: Sequence[Sequence[str]] | None
    ) -> list[np.ndarray] | None:
        """Numbers of the classes that each text may be answered with."""
        if candidates is None:
            if self.candidates_pattern is None:
                return None
            found = [matching(words, self.candidates_pattern) for words in texts]
            candidates = [[name for name in names if name in self.classes] for names in found]
        elif not isinstance(candidates, list | tuple) or len(candidates) != len(texts):
            raise UserError(
                f"candidates={candidates!r:.60}: expected {len(texts)} lists of classes, one per text"
            )
        if unknown := [name for names in candidates for name in names if name not in self.classes]:
            raise UserError(
                f"candidates: {unknown[0]!r} is not a class of this run ({', '.join(self.classes[:20])})"
            )
        if none := [number for number, names in enumerate(candidates) if not names]:
            raise UserError(
                f"text {none[0]} has no candidate that the classifier knows: give it some with candidates=[[…], …], "
                f"of {', '.join(self.classes[:20])}"
            )
        return [np.array([self.classes.index(name) for name in names]) for names in candidates]

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
        """Read what `save` wrote; a `UserError` where the files are missing or not of this
        layout."""
        path = Path(directory) / PIPELINE
        try:
            content: dict[str, Any] = {
                name: value for name, value in read_json(path).items() if name in SAVED
            }
            changed = {"rules": TextRules(**content["rules"]), "task": Task(content["task"])}
            return cls(
                vocabulary=Vocabulary.load(Path(directory) / VOCABULARY), **content | changed
            )
        except FileNotFoundError:
            raise UserError(
                f"{path} does not exist: expected the directory of a finished run"
            ) from None
        except UserError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path} is not the pipeline.json of a run: {error!r}") from None


def check_texts(texts: object, *, of_words: bool = False) -> None:
    """Refuse, by a `UserError` that names the first text that is wrong, what is no list of texts,
    or of lists of words (else: of sentences)."""
    expected = "expected a list of one or more texts, such as ['a fine film']"
    if (
        not isinstance(texts, Sequence | np.ndarray | pd.Series)
        or isinstance(texts, str | bytes)
        or not len(texts)
    ):
        raise UserError(f"texts={texts!r:.60}: {expected}")
    for number, text in enumerate(texts):
        parts = text if isinstance(text, list | tuple) else [text]
        if not all(isinstance(part, str) for part in parts):
            raise UserError(f"text {number} is {text!r:.60}: {expected}")
        if (
            of_words
            and parts is text
            and (wrong := [part for part in parts if part.split() != [part]])
        ):
            raise UserError(
                f"text {number} is a list with {wrong[0]!r:.60}, which is no word: give a text as it is, or a list of words"
            )
        if any("\ud800" <= one <= "\udfff" for part in parts for one in part):
            raise UserError(
                f"text {number} ({text!r:.60}) holds half a character (a lone surrogate): expected Unicode text"
            )
