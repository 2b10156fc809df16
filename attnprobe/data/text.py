"""From a raw text to tokens and ids: named cleaning steps, tokenizers, and the pipeline that a run
keeps.

Order: sentences, where raw text is split into them; cleaning steps on each (else on the whole
text); white space collapsed; tokenizer; token rules on the list of tokens; truncation to
`max_tokens`. The paper lowers case *after* tokenising, which changes what spaCy splits."""

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
from attnprobe.core.settings import Checked

if TYPE_CHECKING:  # settings are checked without a second for spaCy
    from spacy.tokens import Doc

OF_SEVERAL = regex.compile(
    r"[\p{M}\u200d\U0001f3fb-\U0001f3ff\U0001f1e6-\U0001f1ff\U000e0020-\U000e007f]"
)
"""What only occurs within or after another character: marks, joiners, skin tones, halves of
flags."""


@cache
def blank(language: str) -> Callable[[str], "Doc"]:
    """spaCy's tokenizer of a language, by its code; Chinese is segmented by jieba and Japanese by
    SudachiPy, into words."""
    import spacy

    settings: dict[str, Any] = {}
    try:
        if language == "zh":
            settings = {"nlp": {"tokenizer": {"segmenter": "jieba"}}}
            import jieba

            # jieba would load its dictionary from the machine's shared folder for temporary files,
            # where anybody could have put it: it is built again in a folder of our own
            if not jieba.dt.initialized:
                jieba.setLogLevel(60)
                with tempfile.TemporaryDirectory(prefix="attnprobe-") as folder:
                    jieba.dt.tmp_dir = folder
                    jieba.initialize()
        with warnings.catch_warnings(
            action="ignore", category=DeprecationWarning
        ):  # within SudachiPy
            tokenizer: Callable[[str], Doc] = spacy.blank(language, config=settings).tokenizer
        return tokenizer
    except ImportError as error:
        if "[E048]" in str(error):  # spaCy's for a code that it does not know
            raise UserError(
                f"data.language={language}: spaCy has no such language; expected a code such as en, de, ar, zh, ja, or xx "
                f"for rules that suit many"
            ) from None
        what = f"a library ({' '.join(str(error).split())[:160]})"
        what = "pip install 'attnprobe[languages]'" if language in ("zh", "ja") else what
        raise UserError(
            f"data.language={language} needs {what}; or split the texts at spaces yourself and set data.tokenizer=whitespace"
        ) from None


def language_tokens(text: str, language: str) -> list[str]:
    """The tokens of a text by a language's rules; what a reader sees as one character is never cut
    in two.

    >>> language_tokens("I don't, 👨‍👩‍👧 and 👍🏽👍🏽!", "en")
    ['I', 'do', "n't", ',', '👨‍👩‍👧', 'and', '👍🏽', '👍🏽', '!']
    """
    tokens = blank(language)(text)
    if text.isascii() or not OF_SEVERAL.search(text):
        return [token.text for token in tokens]
    ends = {match.end() for match in regex.finditer(r"\X", text)}
    whole: list[str] = []
    end = 0
    for token in tokens:
        if whole and token.idx == end and end not in ends:
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

    >>> [sentence.strip() for sentence in split_sentences('Dr. No left... "Why?" she said. "Go on!" (He did.)')]
    ['Dr. No left... "Why?"', 'she said.', '"Go on!"', '(He did.)']
    """
    from spacy.pipeline import Sentencizer

    sentences = []
    bounds = sorted({0, len(text), *(match.end() for match in PARAGRAPH.finditer(text))})
    for paragraph in (text[start:end] for start, end in pairwise(bounds)):
        words = Sentencizer()(blank(language)(paragraph.rstrip()))
        starts = [0]
        for span in list(words.sents)[1:]:
            # spaCy leaves all punctuation to the sentence before; a mark that is glued to its right
            # opens the next one
            start = span.start
            while (
                start >= 2 and words[start - 1].text in OPENING and not words[start - 1].whitespace_
            ):
                if not (words[start - 2].whitespace_ or words[start - 2].text in OPENING):
                    break
                start -= 1
            starts.append(words[start].idx)
        sentences += [
            paragraph[start:end]
            for start, end in pairwise([*starts, len(paragraph)])
            if start < end
        ]
    return sentences


def sentence_numbers(tokens: Sequence[str]) -> list[int]:
    """The sentence of every token, from 0: one ends after a run of `.`, `!` and `?` and the marks
    that close it.

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
            number = number + 1
            ended = False
        numbers.append(number)
    return numbers


def numbered(sentences: Iterable[Sequence[str]]) -> tuple[list[str], list[int]]:
    """The tokens of all sentences one after the other, and the sentence of each; sentences without
    tokens do not count.

    >>> numbered([["a", "."], [], ["b"]])
    (['a', '.', 'b'], [0, 0, 1])
    """
    tokens: list[str] = []
    numbers: list[int] = []
    for sentence in sentences:
        if sentence:
            numbers += [numbers[-1] + 1 if numbers else 0] * len(sentence)
            tokens += sentence
    return tokens, numbers


NUMBER = "qqq"
DEIDENTIFIED = "<DE>"
_KERAS_MARKS = str.maketrans(dict.fromkeys('!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~\t\n', " "))

CLEANING: dict[str, Callable[[str], str]] = {
    "lower": str.lower,
    # every character that is not a letter, digit or underscore becomes a space
    "nonword": lambda text: re.sub(r"\W", " ", text),
    "html": lambda text: unescape(re.sub(r"<[^<>]*>", " ", text)),
    # the brackets of the Penn Treebank; the paper deletes the opening one and puts a space for the
    # closing one
    "treebank_brackets": lambda text: re.sub(
        "-RRB-", " ", re.sub("-LRB-", "", text, flags=re.I), flags=re.I
    ),
    # the Penn Treebank's way of writing brackets and quotation marks, back to the usual one
    "treebank_marks": lambda text: re.sub(
        "``|''", '"', re.sub("-RRB-", ")", re.sub("-LRB-", "(", text))
    ),
    # what Keras' text tokenizer replaces (it keeps apostrophes): the IMDB of the paper went through
    # it
    "keras_marks": lambda text: text.translate(_KERAS_MARKS),
}


def _rejoined(pattern: str, replacement: str, tokens: list[str]) -> list[str]:
    return re.sub(pattern, replacement, " ".join(tokens)).split()


TOKEN_RULES: dict[str, Callable[[list[str]], list[str]]] = {
    "lower": lambda tokens: [token.lower() for token in tokens],
    # any token with a digit in it
    "digits": lambda tokens: [
        NUMBER if any(c.isdigit() for c in token) else token for token in tokens
    ],
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
    """How a raw text becomes tokens, and these sentences.

    `language` is a code whose rules spaCy has: `en`, `de`, `ar`, `zh`, `ja`, `xx` for rules that
    suit many. `sentences` says where sentences come from: None (nobody asks), `spacy` (rules on the
    raw text), `rule` (rules on the tokens, for text that is tokenised already) or `column` (each
    text is a list of sentences; a new text that is not is split by spaCy's rules).

    Note:
        Where raw text is split into sentences, each is cleaned and tokenised on its own: the token
        rule `free_punctuation`, which keeps the last mark of a text, then keeps that of every
        sentence.

    >>> TextRules(tokenizer="spacy", token_rules=("lower", "digits")).tokens("I don't  own 2 of them.")
    ['i', 'do', "n't", 'own', 'qqq', 'of', 'them', '.']
    >>> TextRules(sentences="spacy").read("It rains. I stay in.")
    (['it', 'rains', '.', 'i', 'stay', 'in', '.'], [0, 0, 0, 1, 1, 1, 1])
    """

    settings_place: ClassVar[str] = "data"

    clean: Sequence[Literal[tuple(CLEANING)]] = ()
    tokenizer: Literal[tuple(TOKENIZERS)] = "spacy"
    language: str = "en"
    token_rules: Sequence[Literal[tuple(TOKEN_RULES)]] = ("lower",)
    sentences: Literal[SENTENCES] | None = None

    def __post_init__(self) -> None:
        if self.tokenizer == "spacy":
            blank(self.language)  # refused now, not after the training

    def words(self, text: str) -> list[str]:
        """The tokens of one piece of text, whatever sentences it has: a question, a sentence, an
        answer."""
        for step in self.clean:
            text = CLEANING[step](text)
        tokens = TOKENIZERS[self.tokenizer](" ".join(text.split()), self.language)
        for rule in self.token_rules:
            tokens = TOKEN_RULES[rule](tokens)
        return tokens

    def read(self, text: str | Sequence[str]) -> tuple[list[str], list[int] | None]:
        """The tokens of a text, and the sentence of each from 0 (None where nobody asks); none for
        an empty text.

        Args:
            text: as it is; or a list: of its sentences where `sentences` is `column`, else of its
                words, taken as they are.
        """
        if self.sentences == "column" and not isinstance(text, str):
            return numbered(self.words(sentence) for sentence in text)
        if self.sentences in ("spacy", "column") and isinstance(text, str):
            return numbered(
                self.words(sentence) for sentence in split_sentences(text, self.language)
            )
        tokens = self.words(text) if isinstance(text, str) else list(text)
        return tokens, None if self.sentences is None else sentence_numbers(tokens)

    def tokens(self, text: str | Sequence[str]) -> list[str]:
        """The tokens of a text; none for an empty text."""
        return self.read(text)[0]


LONGEST = 200
"""Characters of a word that a pattern is tried on: no longer word matches."""
PATIENCE = 1.0
"""Seconds for one word."""


def matching(words: Iterable[str], pattern: str) -> list[str]:
    """The distinct words that match the pattern in full, in the order in which they come.

    >>> matching(["@entity2", "met", "@entity10", "and", "@entity2"], r"@entity\\d+")
    ['@entity2', '@entity10']
    """
    found = []
    for word in dict.fromkeys(words):
        try:
            if len(word) <= LONGEST and regex.fullmatch(pattern, word, timeout=PATIENCE):
                found.append(word)
        except TimeoutError:
            raise UserError(
                f"data.candidates_pattern={pattern} takes more than {PATIENCE:g} s for the word {word[:40]!r}: characters "
                f"that repeat together go into one class, such as [\\w-]+ for \\w+(-\\w+)*"
            ) from None
    return found
