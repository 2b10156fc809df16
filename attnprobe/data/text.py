"""From a raw text to tokens and ids: named cleaning steps, tokenizers, and the pipeline that a run keeps.

Order: sentences, where raw text is split into them; cleaning steps on each (else on the whole text); white space
collapsed; tokenizer; token rules on the list of tokens; truncation to `max_tokens`. The paper lowers case *after*
tokenising, which changes what spaCy splits.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import unescape

from attnprobe.data.sentences import numbered, sentence_numbers, split_sentences
from attnprobe.data.tokenizers import blank, language_tokens
from attnprobe.errors import UserError

NUMBER = "qqq"
DEIDENTIFIED = "<DE>"
_KERAS_MARKS = str.maketrans(dict.fromkeys('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n', " "))

CLEANING: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    # every character that is not a letter, digit or underscore becomes a space
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
