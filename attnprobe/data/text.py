"""From a raw text to tokens and ids: named cleaning steps, tokenizers, and the pipeline that a run keeps.

Order: cleaning steps on the whole text; white space collapsed; tokenizer; token rules on the list of tokens;
truncation to `max_tokens`. The paper lowers case *after* tokenising, which changes what spaCy splits.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from html import unescape
from pathlib import Path

import numpy as np
import spacy
import torch

from attnprobe.batch import Batch, Task
from attnprobe.data.batching import collate
from attnprobe.data.vocabulary import Vocabulary
from attnprobe.errors import UserError
from attnprobe.results import write_json

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
    # what Keras' text tokenizer replaces (it keeps apostrophes): the IMDB of the paper went through it
    "keras_marks": lambda text: text.translate(_KERAS_MARKS),
}


def _rejoined(pattern: str, replacement: str, tokens: list[str]) -> list[str]:
    return re.sub(pattern, replacement, " ".join(tokens)).split()


TOKEN_RULES: dict[str, Callable[[list[str]], list[str]]] = {
    "lower": lambda tokens: [token.lower() for token in tokens],
    # any token with a digit in it
    "digits": lambda tokens: [NUMBER if any(c.isdigit() for c in token) else token for token in tokens],
    # Of each run of punctuation and spaces only the last character stays: free-standing marks vanish, except at the
    # very end, and marks inside a token stand alone ("n't" → "n ' t"). That is what the paper's newsgroups code does.
    "free_punctuation": lambda tokens: _rejoined(r"(\W)+", r" \1 ", tokens),
    # MIMIC's placeholders [** … **]
    "deidentified": lambda tokens: _rejoined(r"\[\s*\*\s*\*(.*?)\*\s*\*\s*\]", f" {DEIDENTIFIED} ", tokens),
    # "_ _ _ _" → "_": the rulers of clinical notes
    "repeated_marks": lambda tokens: _rejoined(r"([^a-zA-Z0-9\s])(?:\s*\1)+", r"\1 ", tokens),
}


@cache
def _spacy_tokenizer() -> spacy.tokenizer.Tokenizer:
    return spacy.blank("en").tokenizer


TOKENIZERS: dict[str, Callable[[str], list[str]]] = {
    "spacy": lambda text: [token.text for token in _spacy_tokenizer()(text)],
    "whitespace": str.split,
}


def _known(setting: str, names: Iterable[str], table: dict) -> None:
    for name in names:
        if name not in table:
            raise UserError(f"{setting}: there is no step {name!r}. Choose from {', '.join(sorted(table))}")


@dataclass(frozen=True)
class TextRules:
    """How a raw text becomes tokens.

    >>> TextRules(tokenizer="spacy", token_rules=("lower", "digits")).tokens("I don't  own 2 of them.")
    ['i', 'do', "n't", 'own', 'qqq', 'of', 'them', '.']
    """

    clean: Sequence[str] = ()
    tokenizer: str = "spacy"
    token_rules: Sequence[str] = ("lower",)

    def __post_init__(self) -> None:
        _known("data.clean", self.clean, CLEANING)
        _known("data.tokenizer", [self.tokenizer], TOKENIZERS)
        _known("data.token_rules", self.token_rules, TOKEN_RULES)

    def tokens(self, text: str) -> list[str]:
        """The tokens of one text; none for an empty text."""
        for step in self.clean:
            text = CLEANING[step](text)
        tokens = TOKENIZERS[self.tokenizer](" ".join(text.split()))
        for rule in self.token_rules:
            tokens = TOKEN_RULES[rule](tokens)
        return tokens


@dataclass(frozen=True)
class TextPipeline:
    """Everything between new text and a `Batch`; saved with a run and rebuilt without its data set."""

    rules: TextRules
    vocabulary: Vocabulary
    classes: Sequence[str]
    task: Task = Task.SINGLE_LABEL
    max_tokens: int | None = None

    def tokens(self, text: str) -> list[str]:
        """The words at the content positions of this text, out-of-vocabulary words as they are."""
        return self.rules.tokens(text)[: self.max_tokens]

    def batch_of(self, texts: Sequence[str]) -> Batch:
        """One batch of new texts, in this order; `example_id` counts from 0 and the labels are all 0.

        Raises:
            UserError: no text, or a text without any word.
        """
        if isinstance(texts, str) or not len(texts):
            raise UserError(f"texts={texts!r}: expected a list of one or more texts, such as ['a fine film']")
        tokens = [self.tokens(text) for text in texts]
        if empty := [number for number, words in enumerate(tokens) if not words]:
            raise UserError(f"text {empty[0]} ({texts[empty[0]]!r}) has no word left after cleaning: leave it out")
        multi = self.task is Task.MULTI_LABEL
        labels = torch.zeros(len(texts), len(self.classes)) if multi else torch.zeros(len(texts), dtype=torch.long)
        ids = [np.array(self.vocabulary.encode(words)) for words in tokens]
        return collate(ids, labels, torch.arange(len(texts)))

    def save(self, directory: Path) -> None:
        """Write `vocabulary.json` and `pipeline.json` into the directory."""
        self.vocabulary.save(Path(directory) / "vocabulary.json")
        rest = {"classes": list(self.classes), "task": self.task.value, "max_tokens": self.max_tokens}
        write_json({"rules": asdict(self.rules), **rest}, Path(directory) / "pipeline.json")

    @classmethod
    def load(cls, directory: Path) -> "TextPipeline":
        """Read what `save` wrote.

        Raises:
            UserError: the files are missing or not of this layout.
        """
        path = Path(directory) / "pipeline.json"
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            return cls(
                rules=TextRules(**content["rules"]),
                vocabulary=Vocabulary.load(Path(directory) / "vocabulary.json"),
                classes=content["classes"],
                task=Task(content["task"]),
                max_tokens=content["max_tokens"],
            )
        except FileNotFoundError:
            raise UserError(f"{path} does not exist: expected the directory of a finished run") from None
        except (KeyError, TypeError) as error:
            raise UserError(f"{path} is not the pipeline.json of a run: {error!r}") from None
