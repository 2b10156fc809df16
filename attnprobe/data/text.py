"""From a raw text to tokens and ids: named cleaning steps, tokenizers, and the pipeline that a run keeps.

Order: sentences, where raw text is split into them; cleaning steps on each (else on the whole text); white space
collapsed; tokenizer; token rules on the list of tokens; truncation to `max_tokens`. The paper lowers case *after*
tokenising, which changes what spaCy splits.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np

from attnprobe.batch import Batch, Task
from attnprobe.data.batching import collate
from attnprobe.data.patterns import check_pattern, matching
from attnprobe.data.pieces import PieceReader, Pieces
from attnprobe.data.sentences import numbered, sentence_numbers, split_sentences
from attnprobe.data.tokenizers import blank, language_tokens
from attnprobe.data.vocabulary import Vocabulary
from attnprobe.errors import UserError
from attnprobe.results.directory import PIPELINE, VOCABULARY
from attnprobe.results.files import write_json
from attnprobe.results.saved import read_pipeline

NUMBER = "qqq"
DEIDENTIFIED = "<DE>"
_KERAS_MARKS = str.maketrans(dict.fromkeys('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n', " "))

CLEANING: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    # every character that is no letter, digit or underscore becomes a space
    "nonword": lambda text: re.sub(r"\W", " ", text),
    "html": lambda text: unescape(re.sub(r"<[^<>]*>", " ", text)),
    # the brackets of the Penn Treebank; the paper deletes the opening one and puts a space for the closing one
    "treebank_brackets": lambda text: re.sub("-RRB-", " ", re.sub("-LRB-", "", text, flags=re.I), flags=re.I),
    # the Penn Treebank's way of writing brackets and quotation marks, back to the usual one
    "treebank_marks": lambda text: re.sub("``|''", '"', re.sub("-RRB-", ")", re.sub("-LRB-", "(", text))),
    # what Keras' text tokenizer replaces (it keeps apostrophes): the IMDB of the paper went through it
    "keras_marks": lambda text: text.translate(_KERAS_MARKS),
}


def _rejoined(pattern: str, replacement: str, tokens: list[str]) -> list[str]:
    return re.sub(pattern, replacement, " ".join(tokens)).split()


TOKEN_RULES: dict[str, Callable[[list[str]], list[str]]] = {
    "lower": lambda tokens: [token.lower() for token in tokens],
    # any token with a digit in it
    "digits": lambda tokens: [NUMBER if any(c.isdigit() for c in token) else token for token in tokens],
    # bAbI's questions go without their mark in the paper's vocabulary
    "no_question_mark": lambda tokens: [token for token in tokens if token != "?"],
    # Of each run of punctuation and spaces only the last character stays: free-standing marks vanish, except at the
    # very end, and marks inside a token stand alone ("n't" → "n ' t"). That is what the paper's newsgroups code does.
    "free_punctuation": lambda tokens: _rejoined(r"(\W)+", r" \1 ", tokens),
    # MIMIC's placeholders [** … **]
    "deidentified": lambda tokens: _rejoined(r"\[\s*\*\s*\*(.*?)\*\s*\*\s*\]", f" {DEIDENTIFIED} ", tokens),
    # "_ _ _ _" → "_": the rulers of clinical notes
    "repeated_marks": lambda tokens: _rejoined(r"([^a-zA-Z0-9\s])(?:\s*\1)+", r"\1 ", tokens),
}


TOKENIZERS: dict[str, Callable[[str, str], list[str]]] = {
    "spacy": language_tokens,
    "whitespace": lambda text, language: text.split(),
}
"""From a text and its language to tokens."""


def _known(setting: str, names: Iterable[str], table: dict) -> None:
    for name in names:
        if name not in table:
            raise UserError(f"{setting}: there is no step {name!r}. Choose from {', '.join(sorted(table))}")


SENTENCES = ("spacy", "rule", "column")


@dataclass(frozen=True)
class TextRules:
    """How a raw text becomes tokens, and these sentences.

    `language` is a code whose rules spaCy has: `en`, `de`, `ar`, `zh`, `ja`, `xx` for rules that suit many.
    `sentences` says where sentences come from: None (nobody asks), `spacy` (rules on the raw text), `rule` (rules on
    the tokens, for text that is tokenised already) or `column` (each text is a list of sentences; a new text that is
    not is split by spaCy's rules).

    Note:
        Where raw text is split into sentences, each is cleaned and tokenised on its own: the token rule
        `free_punctuation`, which keeps the last mark of a text, then keeps that of every sentence.

    >>> TextRules(tokenizer="spacy", token_rules=("lower", "digits")).tokens("I don't  own 2 of them.")
    ['i', 'do', "n't", 'own', 'qqq', 'of', 'them', '.']
    >>> TextRules(sentences="spacy").read("It rains. I stay in.")
    (['it', 'rains', '.', 'i', 'stay', 'in', '.'], [0, 0, 0, 1, 1, 1, 1])
    """

    clean: Sequence[str] = ()
    tokenizer: str = "spacy"
    language: str = "en"
    token_rules: Sequence[str] = ("lower",)
    sentences: str | None = None

    def __post_init__(self) -> None:
        _known("data.clean", self.clean, CLEANING)
        _known("data.tokenizer", [self.tokenizer], TOKENIZERS)
        _known("data.token_rules", self.token_rules, TOKEN_RULES)
        if self.tokenizer == "spacy":
            blank(self.language)  # refused now, not after the training
        if self.sentences not in (None, *SENTENCES):
            raise UserError(f"data.sentences={self.sentences}: expected {', '.join(SENTENCES)} or null")

    def words(self, text: str) -> list[str]:
        """The tokens of one piece of text, whatever sentences it has: a question, a sentence, an answer."""
        for step in self.clean:
            text = CLEANING[step](text)
        tokens = TOKENIZERS[self.tokenizer](" ".join(text.split()), self.language)
        for rule in self.token_rules:
            tokens = TOKEN_RULES[rule](tokens)
        return tokens

    def read(self, text: str | Sequence[str]) -> tuple[list[str], list[int] | None]:
        """The tokens of a text, and the sentence of each from 0 (None where nobody asks); none for an empty text."""
        if not isinstance(text, str):
            return numbered(self.words(sentence) for sentence in text)
        if self.sentences in ("spacy", "column"):
            return numbered(self.words(sentence) for sentence in split_sentences(text, self.language))
        tokens = self.words(text)
        return tokens, sentence_numbers(tokens) if self.sentences == "rule" else None

    def tokens(self, text: str | Sequence[str]) -> list[str]:
        """The tokens of a text; none for an empty text."""
        return self.read(text)[0]


@dataclass(frozen=True)
class TextPipeline:
    """Everything between new text and a `Batch`; saved with a run and rebuilt without its data set.

    Attributes:
        rules: how texts and questions become tokens.
        vocabulary: word ↔ id.
        classes: names of the classes.
        task: one class per text, or any subset of the labels.
        max_tokens: longer texts are cut.
        question: every text comes with a question.
        candidates_pattern: words of the text that match it in full are the classes it may be answered with.
        pieces: cuts words into the pieces that a pretrained model reads; not saved, the model has it.
    """

    rules: TextRules
    vocabulary: Vocabulary
    classes: Sequence[str]
    task: Task = Task.SINGLE_LABEL
    max_tokens: int | None = None
    question: bool = False
    candidates_pattern: str | None = None
    pieces: PieceReader | None = None

    def tokens(self, text: str | Sequence[str]) -> list[str]:
        """The words at the content positions of this text, out-of-vocabulary words as they are."""
        words = self.rules.tokens(text)[: self.max_tokens]
        return words if self.pieces is None else with_a_piece(words, self.pieces.read([words])[0])

    def batch_of(
        self,
        texts: Sequence[str | Sequence[str]],
        questions: Sequence[str] | None = None,
        candidates: Sequence[Sequence[str]] | None = None,
    ) -> Batch:
        """One batch of new texts, in this order; `example_id` counts from 0 and the labels are all 0.

        Args:
            texts: raw texts; where the run was trained with `data.sentences=column` also lists of sentences.
            questions: one per text, where the run was trained with questions.
            candidates: names of the classes that each text may be answered with; None: all of them, or those that the
                run's `data.candidates_pattern` finds in the text.

        Raises:
            UserError: no text, a text or question without any word, questions that are missing, too many or not
                asked for, or candidates that are no class.
        """
        check_texts(texts)
        read = [self.rules.read(text) for text in texts]
        if empty := [number for number, (words, _) in enumerate(read) if not words]:
            raise UserError(f"text {empty[0]} ({texts[empty[0]]!r}) has no word left after cleaning: leave it out")
        multi = self.task is Task.MULTI_LABEL
        labels = np.zeros((len(texts), len(self.classes)), np.float32) if multi else np.zeros(len(texts), np.int64)
        limit = self.max_tokens
        asked = self._questions(texts, questions)
        pieces = None
        if self.pieces is not None:
            pieces = self.pieces.read([words[:limit] for words, _ in read], asked)
            if none := [number for number, one in enumerate(pieces) if not one.kept.any()]:
                raise UserError(f"text {none[0]} ({texts[none[0]]!r}) has no piece that the model reads: leave it out")
            read = [
                (with_a_piece(words[:limit], one), None if of is None else with_a_piece(of[:limit], one))
                for (words, of), one in zip(read, pieces, strict=True)
            ]
        columns: dict[str, Any] = {
            "ids": [np.array(self.vocabulary.encode(words[:limit])) for words, _ in read],
            "labels": labels,
            "example_id": np.arange(len(texts)),
        }
        if self.rules.sentences is not None:
            columns["sentence"] = [np.array(numbers[:limit]) for _, numbers in read if numbers is not None]
        if asked is not None:
            columns["question"] = [np.array(self.vocabulary.encode(words)) for words in asked]
        if (allowed := self._candidates([words for words, _ in read], candidates)) is not None:
            columns["candidates"] = allowed
        if pieces is not None:
            columns |= {"pieces": [one.ids for one in pieces], "piece_word": [one.word for one in pieces]}
            columns["piece_kind"] = [one.kind for one in pieces]
        return collate(columns, len(self.classes))

    def _questions(self, texts: Sequence[object], questions: Sequence[str] | None) -> list[list[str]] | None:
        if not self.question:
            if questions is not None:
                raise UserError("questions=…: this run was trained on texts without a question; leave them out")
            return None
        if (
            not isinstance(questions, list | tuple)
            or len(questions) != len(texts)
            or not all(isinstance(question, str) for question in questions)
        ):
            given = "no questions" if questions is None else repr(questions)[:60]
            raise UserError(
                f"this run was trained to answer questions: expected questions=[…], a list of {len(texts)}, one per "
                f"text, but got {given}"
            )
        words = [self.rules.words(question) for question in questions]
        if empty := [number for number, found in enumerate(words) if not found]:
            raise UserError(f"question {empty[0]} ({questions[empty[0]]!r}) has no word left after cleaning: ask one")
        return words

    def _candidates(
        self, texts: list[list[str]], candidates: Sequence[Sequence[str]] | None
    ) -> list[np.ndarray] | None:
        """Numbers of the classes that each text may be answered with."""
        if candidates is None:
            if self.candidates_pattern is None:
                return None
            candidates = [matching(words, self.candidates_pattern) for words in texts]
            known = [[name for name in names if name in self.classes] for names in candidates]
        else:
            if not isinstance(candidates, list | tuple) or not all(
                isinstance(names, list | tuple | set | frozenset) for names in candidates
            ):
                raise UserError(
                    f"candidates={candidates!r:.60}: expected a list of lists of classes, one per text, such as "
                    f"[{list(self.classes[:2])}]"
                )
            known = [list(names) for names in candidates]
            if len(known) != len(texts):
                raise UserError(f"candidates=…: expected {len(texts)} lists, one per text, but got {len(known)}")
            if unknown := [name for names in known for name in names if name not in self.classes]:
                raise UserError(f"candidates: {unknown[0]!r} is no class of this run ({', '.join(self.classes[:20])})")
        if none := [number for number, names in enumerate(known) if not names]:
            raise UserError(
                f"text {none[0]} has no candidate that the classifier knows: give it some with candidates=[[…], …], "
                f"of {', '.join(self.classes[:20])}"
            )
        return [np.array([self.classes.index(name) for name in names]) for names in known]

    def save(self, directory: Path) -> None:
        """Write the vocabulary, and the rest of the pipeline, into a run's directory."""
        self.vocabulary.save(Path(directory) / VOCABULARY)
        content = {
            "rules": asdict(self.rules),
            "classes": list(self.classes),
            "task": self.task.value,
            "max_tokens": self.max_tokens,
            "question": self.question,
            "candidates_pattern": self.candidates_pattern,
        }
        write_json(content, Path(directory) / PIPELINE)

    @classmethod
    def load(cls, directory: Path) -> "TextPipeline":
        """Read what `save` wrote.

        Raises:
            UserError: the files are missing or not of this layout.
        """
        path = Path(directory) / PIPELINE
        try:
            content = read_pipeline(directory)
            if (pattern := content.get("candidates_pattern")) is not None:
                check_pattern(pattern, f"{path}: candidates_pattern")
            return cls(
                rules=TextRules(**content["rules"]),
                vocabulary=Vocabulary.load(Path(directory) / VOCABULARY),
                classes=content["classes"],
                task=Task(content["task"]),
                max_tokens=content["max_tokens"],
                question=content.get("question", False),
                candidates_pattern=pattern,
            )
        except FileNotFoundError:
            raise UserError(f"{path} does not exist: expected the directory of a finished run") from None
        except UserError:
            raise
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{path} is not the pipeline.json of a run: {error!r}") from None


def with_a_piece(values: Sequence[Any], pieces: Pieces) -> list[Any]:
    """What belongs to the words that have a piece."""
    return [value for value, kept in zip(values, pieces.kept, strict=True) if kept]


def check_texts(texts: object) -> None:
    """Texts for a classifier: a list of texts, or of lists of sentences.

    Raises:
        UserError: it is something else; names the first text that is none.
    """
    expected = "expected a list of one or more texts, such as ['a fine film']"
    if (
        isinstance(texts, str | bytes | dict | set)
        or not hasattr(texts, "__len__")
        or not hasattr(texts, "__getitem__")
    ):
        raise UserError(f"texts={texts!r:.60}: {expected}")
    if not len(texts):
        raise UserError(f"texts={texts!r:.60}: {expected}")
    for number, text in enumerate(texts):  # type: ignore[arg-type,var-annotated]
        parts = text if isinstance(text, list | tuple) else [text]
        if not all(isinstance(part, str) for part in parts):
            raise UserError(f"text {number} is {text!r:.60}: {expected}")
        if any("\ud800" <= one <= "\udfff" for part in parts for one in part):
            raise UserError(
                f"text {number} ({text!r:.60}) holds half a character (a lone surrogate): expected Unicode text"
            )
