"""From a raw text to tokens: named cleaning steps, tokenizers, token rules and sentences.

The order of the steps: raw text is split into sentences, where sentences are wanted; each sentence
(else the whole text) is cleaned; white space is collapsed; the text is tokenised; token rules
change the list of tokens. The paper lowers case *after* tokenising, which changes what spaCy
splits."""

import re
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import unescape
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import regex

from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked, Count
from attnprobe.data.passages import Passage

if TYPE_CHECKING:  # settings are checked without a second for spaCy
    from spacy.tokens import Doc

CONTINUING = regex.compile(
    r"[\p{M}\u200d\U0001f3fb-\U0001f3ff\U0001f1e6-\U0001f1ff\U000e0020-\U000e007f]"
)
"""Parts of a character that consists of several code points: marks, joiners, skin tones, halves of
flags."""


@cache
def blank(language: str) -> Callable[[str], "Doc"]:
    """spaCy's tokenizer for a language.

    Chinese is segmented into words by jieba, and Japanese by SudachiPy.

    Args:
        language: the language's code.

    Raises:
        UserError: spaCy does not have the language, or a library for it is missing.
    """
    import spacy

    settings: dict[str, Any] = {}
    try:
        if language == "zh":
            settings = {"nlp": {"tokenizer": {"segmenter": "jieba"}}}
            _load_jieba()
        with warnings.catch_warnings(
            action="ignore", category=DeprecationWarning
        ):  # within SudachiPy
            tokenizer: Callable[[str], Doc] = spacy.blank(language, config=settings).tokenizer
        return tokenizer
    except ImportError as error:
        if "[E048]" in str(error):  # spaCy's for a code that it does not know
            raise UserError(
                f"data.language={language}: spaCy has no such language; expected a code such as "
                f"en, de, ar, zh, ja, or xx for rules that suit many"
            ) from None
        missing = f"a library ({' '.join(str(error).split())[:160]})"
        if language in ("zh", "ja"):
            missing = "pip install 'attnprobe[languages]'"
        raise UserError(
            f"data.language={language} needs {missing}; or split the texts at spaces yourself and "
            f"set data.tokenizer=whitespace"
        ) from None


def _load_jieba() -> None:
    """Build jieba's dictionary in a private folder.

    By itself jieba loads a dictionary from the machine's shared folder for temporary files, where
    anybody could have put it.
    """
    import jieba

    if jieba.dt.initialized:
        return
    jieba.setLogLevel(60)
    with tempfile.TemporaryDirectory(prefix="attnprobe-") as folder:
        jieba.dt.tmp_dir = folder
        jieba.initialize()


def language_tokens(text: str, language: str) -> list[str]:
    """The tokens of a text by a language's rules.

    What a reader sees as one character is never cut in two.

    >>> language_tokens("I don't, 👨‍👩‍👧 and 👍🏽👍🏽!", "en")
    ['I', 'do', "n't", ',', '👨‍👩‍👧', 'and', '👍🏽', '👍🏽', '!']
    """
    tokens = blank(language)(text)
    if text.isascii() or not CONTINUING.search(text):
        return [token.text for token in tokens]

    character_ends = {match.end() for match in regex.finditer(r"\X", text)}
    whole: list[str] = []
    end = 0  # of the token before
    for token in tokens:
        if whole and token.idx == end and end not in character_ends:
            whole[-1] += token.text
        else:
            whole.append(token.text)
        end = token.idx + len(token.text)
    return whole


PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*|(?:<br\s*/?>\s*)+", re.IGNORECASE)
"""A blank line or HTML's line breaks: no sentence continues after them. A single line end is only
white space."""
OPENING = frozenset("\"'“‘«([{") | {"``"}
END_MARKS = frozenset(".!?")
CLOSING_MARKS = frozenset(")]}”’") | {"''"}


def split_sentences(text: str, language: str = "en") -> list[str]:
    """The sentences of a raw text, in order; joined they are the text again.

    A sentence ends after a run of `.`, `!` and `?` (or another script's such marks) with the marks
    that close it, or with its paragraph. The full stop of an abbreviation that the `language`'s
    tokenizer knows ("Dr.", "U.S.", initials) ends nothing, nor does an ellipsis, which may stand
    anywhere.

    >>> sentences = split_sentences('Dr. No left... "Why?" she said. "Go on!" (He did.)')
    >>> [sentence.strip() for sentence in sentences]
    ['Dr. No left... "Why?"', 'she said.', '"Go on!"', '(He did.)']
    """
    from spacy.pipeline import Sentencizer

    sentences = []
    bounds = sorted({0, len(text), *(match.end() for match in PARAGRAPH.finditer(text))})
    for begin, stop in pairwise(bounds):
        paragraph = text[begin:stop]
        words = Sentencizer()(blank(language)(paragraph.rstrip()))
        starts = [0]
        for span in list(words.sents)[1:]:
            starts.append(words[_with_opening_marks(words, span.start)].idx)
        for start, end in pairwise([*starts, len(paragraph)]):
            if start < end:
                sentences.append(paragraph[start:end])
    return sentences


def _with_opening_marks(words: "Doc", start: int) -> int:
    """Where a sentence starts, if the marks that open it belong to it.

    spaCy leaves all punctuation to the sentence before. An opening mark that is glued to the word
    on its right, and not to the one on its left, opens the next sentence.
    """
    while start >= 2:
        mark = words[start - 1]
        left = words[start - 2]
        is_opening = mark.text in OPENING and not mark.whitespace_
        is_glued_to_the_left = not left.whitespace_ and left.text not in OPENING
        if not is_opening or is_glued_to_the_left:
            break
        start -= 1
    return start


def sentence_numbers(tokens: Sequence[str]) -> list[int]:
    """The sentence of every token, from 0.

    A sentence ends after a run of `.`, `!` and `?` and the marks that close it.

    >>> sentence_numbers("she ran . ( why ? ) nobody knows".split())
    [0, 0, 0, 1, 1, 1, 1, 2, 2]
    """
    numbers = []
    number = 0
    ended = False
    for token in tokens:
        if token in END_MARKS:
            ended = True
        elif ended and token not in CLOSING_MARKS:
            number += 1
            ended = False
        numbers.append(number)
    return numbers


def numbered(sentences: Iterable[Sequence[str]]) -> tuple[list[str], list[int]]:
    """The tokens of all sentences one after the other, and the sentence of each.

    Sentences without tokens do not count.

    >>> numbered([["a", "."], [], ["b"]])
    (['a', '.', 'b'], [0, 0, 1])
    """
    tokens: list[str] = []
    numbers: list[int] = []
    for sentence in sentences:
        if sentence:
            number = numbers[-1] + 1 if numbers else 0
            numbers += [number] * len(sentence)
            tokens += sentence
    return tokens, numbers


NUMBER = "qqq"
DEIDENTIFIED = "<DE>"
_KERAS_MARKS = str.maketrans(dict.fromkeys('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n', " "))


def _without_treebank_brackets(text: str) -> str:
    """Without the Penn Treebank's brackets, as the paper's code removes them.

    The opening bracket is deleted, and a space replaces the closing one.
    """
    without_opening = re.sub("-LRB-", "", text, flags=re.I)
    return re.sub("-RRB-", " ", without_opening, flags=re.I)


def _with_usual_marks(text: str) -> str:
    """The Penn Treebank's brackets and quotation marks in the usual spelling."""
    text = text.replace("-LRB-", "(").replace("-RRB-", ")")
    return text.replace("``", '"').replace("''", '"')


CLEANING: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    # every character that is not a letter, digit or underscore becomes a space
    "nonword": lambda text: re.sub(r"\W", " ", text),
    "html": lambda text: unescape(re.sub(r"<[^<>]*>", " ", text)),
    "treebank_brackets": _without_treebank_brackets,
    "treebank_marks": _with_usual_marks,
    # what Keras' text tokenizer replaces (it keeps apostrophes): it was applied to the paper's IMDB
    "keras_marks": lambda text: text.translate(_KERAS_MARKS),
}


def _rejoined(pattern: str, replacement: str, tokens: list[str]) -> list[str]:
    """The tokens after a replacement in all of them, joined by spaces."""
    return re.sub(pattern, replacement, " ".join(tokens)).split()


def _has_digit(token: str) -> bool:
    return any(character.isdigit() for character in token)


TOKEN_RULES: dict[str, Callable[[list[str]], list[str]]] = {
    "lower": lambda tokens: [token.lower() for token in tokens],
    # any token with a digit in it
    "digits": lambda tokens: [NUMBER if _has_digit(token) else token for token in tokens],
    # bAbI's questions go without their mark in the paper's vocabulary
    "no_question_mark": lambda tokens: [token for token in tokens if token != "?"],
    # Of each run of punctuation and spaces only the last character stays: free-standing marks
    # vanish, except at the very end, and marks inside a token stand alone ("n't" → "n ' t"). That
    # is what the paper's newsgroups code does.
    "free_punctuation": lambda tokens: _rejoined(r"(\W)+", r" \1 ", tokens),
    # MIMIC's placeholders [** … **]
    "deidentified": lambda tokens: _rejoined(
        r"\[\s*\*\s*\*(.*?)\*\s*\*\s*\]", f" {DEIDENTIFIED} ", tokens
    ),
    # "_ _ _ _" → "_": the rulers of clinical notes
    "repeated_marks": lambda tokens: _rejoined(r"([^a-zA-Z0-9\s])(?:\s*\1)+", r"\1 ", tokens),
}


TOKENIZERS: dict[str, Callable[[str, str], list[str]]] = {
    "spacy": language_tokens,
    "whitespace": lambda text, language: text.split(),
}


SENTENCES = ("spacy", "rule", "column")


@dataclass(frozen=True)
class TextRules(metaclass=Checked):
    """How a raw text becomes tokens, and tokens become sentences.

    Attributes:
        clean: cleaning steps on the text, in order.
        tokenizer: `spacy` (by the language's rules) or `whitespace`.
        language: a code whose rules spaCy has: `en`, `de`, `ar`, `zh`, `ja`, `xx` for rules that
            suit many.
        token_rules: changes of the list of tokens, in order.
        sentences: where sentences come from: None (they are not needed), `spacy` (rules on the raw
            text), `rule` (rules on the tokens, for text that is tokenised already), `column` (each
            text is a list of sentences; a new text that is none is split by spaCy's rules), or a
            number: windows of so many tokens stand for sentences.

    Note:
        Where raw text is split into sentences, each is cleaned and tokenised by itself: the token
        rule `free_punctuation`, which keeps the last mark of a text, then keeps that of every
        sentence.

    >>> rules = TextRules(tokenizer="spacy", token_rules=("lower", "digits"))
    >>> rules.tokens("I don't  own 2 of them.")
    ['i', 'do', "n't", 'own', 'qqq', 'of', 'them', '.']
    >>> TextRules(sentences="spacy").read("It rains. I stay in.")
    (['it', 'rains', '.', 'i', 'stay', 'in', '.'], [0, 0, 0, 1, 1, 1, 1])
    >>> TextRules(sentences=3).read("It rains. I stay in.")
    (['it', 'rains', '.', 'i', 'stay', 'in', '.'], [0, 0, 0, 1, 1, 1, 2])
    """

    settings_place: ClassVar[str] = "data"

    clean: Sequence[Literal[tuple(CLEANING)]] = ()
    tokenizer: Literal[tuple(TOKENIZERS)] = "spacy"
    language: str = "en"
    token_rules: Sequence[Literal[tuple(TOKEN_RULES)]] = ("lower",)
    sentences: Literal[SENTENCES] | Count | None = None

    def __post_init__(self) -> None:
        if self.tokenizer == "spacy":
            blank(self.language)  # a language that is missing is refused now, not after training

    def words(self, text: str) -> list[str]:
        """The tokens of one piece of text, without a split into sentences."""
        text = self.cleaned(text)
        tokens = TOKENIZERS[self.tokenizer](" ".join(text.split()), self.language)
        for rule in self.token_rules:
            tokens = TOKEN_RULES[rule](tokens)
        return tokens

    def cleaned(self, text: str) -> str:
        """The text after the cleaning steps; its white space is as it was."""
        for step in self.clean:
            text = CLEANING[step](text)
        return text

    def passage(self, text: str | Sequence[str], tokens: Sequence[str]) -> Passage:
        """A text for a model that reads the text itself, and where its tokens are in it.

        Args:
            text: as for `read`.
            tokens: what `read` made of it.

        Returns:
            The text after the cleaning steps. Where the tokens are not what stands there (a token
            rule has changed them, the text is a list), they are joined by spaces instead.
        """
        if not isinstance(text, str):
            return Passage.of_words(tokens)
        string = self.cleaned(text)
        cell = None if string == text else text
        if "".join(string.split()) == "".join("".join(tokens).split()):
            return Passage.of_tokens(string, tokens, cell)
        return Passage.of_words(tokens, text)

    def read(self, text: str | Sequence[str]) -> tuple[list[str], list[int] | None]:
        """The tokens of a text, and the sentence of each.

        Args:
            text: the text as it is; or a list of its sentences where `sentences` is `column`, else
                a list of its words, which are taken as they are.

        Returns:
            The tokens, none for an empty text; and their sentences, numbered from 0, or None where
            `sentences` is None.
        """
        if self.sentences == "column" and not isinstance(text, str):
            return numbered(self.words(sentence) for sentence in text)
        if self.sentences in ("spacy", "column") and isinstance(text, str):
            return numbered(
                self.words(sentence) for sentence in split_sentences(text, self.language)
            )
        tokens = self.words(text) if isinstance(text, str) else list(text)
        if isinstance(self.sentences, int):
            return tokens, [place // self.sentences for place in range(len(tokens))]
        return tokens, None if self.sentences is None else sentence_numbers(tokens)

    def tokens(self, text: str | Sequence[str]) -> list[str]:
        """The tokens of a text; none for an empty text."""
        return self.read(text)[0]


LONGEST = 200
"""Characters of a word that a pattern is tried on; longer words match nothing."""
PATIENCE = 1.0
"""Seconds that a pattern may take for one word."""


def matching(words: Iterable[str], pattern: str) -> list[str]:
    """The distinct words that match a pattern in full, in the order in which they come.

    Raises:
        UserError: the pattern takes too long.

    >>> matching(["@entity2", "met", "@entity10", "and", "@entity2"], r"@entity\\d+")
    ['@entity2', '@entity10']
    """
    matches = []
    for word in dict.fromkeys(words):
        try:
            if len(word) <= LONGEST and regex.fullmatch(pattern, word, timeout=PATIENCE):
                matches.append(word)
        except TimeoutError:
            raise UserError(
                f"data.candidates_pattern={pattern} takes more than {PATIENCE:g} s for the word "
                f"{word[:40]!r}: characters that repeat together go into one class, such as "
                f"[\\w-]+ for \\w+(-\\w+)*"
            ) from None
    return matches
