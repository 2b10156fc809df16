"""Where sentences end: spaCy's rule-based sentencizer on raw text, or a rule on tokens. No model, no download."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from spacy.pipeline import Sentencizer
from spacy.tokens import Doc

from attnprobe.data.tokenizers import blank

PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*|(?:<br\s*/?>\s*)+", re.IGNORECASE)
"""A blank line or HTML's line breaks: no sentence continues after them. A single line end is only white space."""
OPENING = frozenset("\"'“‘«([{") | {"``"}
END_MARKS = frozenset(".!?")
CLOSING_MARKS = frozenset(")]}”’") | {"''"}


def split_sentences(text: str, language: str = "en") -> list[str]:
    """The sentences of a raw text, in order; joined they are the text again.

    A sentence ends after a run of `.`, `!` and `?` (or another script's such marks) with the marks that close it, or with
    its paragraph. The `language`'s tokenizer (`attnprobe.data.tokenizers`) knows its abbreviations, in English "Dr.",
    "U.S.", "e.g." and initials, whose full stop ends nothing. An ellipsis ("...", "…") ends nothing either: it may stand
    anywhere.

    Note:
        An abbreviation that spaCy does not know, such as "no. 5", is taken for the end.

    >>> [sentence.strip() for sentence in split_sentences('Dr. No left... "Why?" she said. "Go on!" (He did.)')]
    ['Dr. No left... "Why?"', 'she said.', '"Go on!"', '(He did.)']
    """
    ends = [match.end() for match in PARAGRAPH.finditer(text)]
    bounds = sorted({0, len(text), *ends})
    return [sentence for start, end in pairwise(bounds) for sentence in _of_paragraph(text[start:end], language)]


def _of_paragraph(text: str, language: str) -> list[str]:
    words = Sentencizer()(blank(language)(text.rstrip()))
    bounds = [0, *(words[_with_opening_marks(words, span.start)].idx for span in list(words.sents)[1:]), len(text)]
    return [text[start:end] for start, end in pairwise(bounds) if text[start:end]]


def _with_opening_marks(words: Doc, start: int) -> int:
    """spaCy leaves all punctuation to the sentence before; a mark that is glued to its right opens the next one."""
    while start >= 2 and _opens(words, start - 1):
        start -= 1
    return start


def _opens(words: Doc, position: int) -> bool:
    mark, before = words[position], words[position - 1]
    return mark.text in OPENING and not mark.whitespace_ and (before.whitespace_ != "" or before.text in OPENING)


def sentence_numbers(tokens: Sequence[str]) -> list[int]:
    """The sentence of every token, from 0, for text that is tokenised already.

    A sentence ends after a run of `.`, `!` and `?` and the marks that close it.

    >>> sentence_numbers("she ran . ( why ? ) nobody knows".split())
    [0, 0, 0, 1, 1, 1, 1, 2, 2]
    """
    numbers, number, ended = [], 0, False
    for token in tokens:
        if token in END_MARKS:
            ended = True
        elif ended and token not in CLOSING_MARKS:
            number, ended = number + 1, False
        numbers.append(number)
    return numbers


def numbered(sentences: Iterable[Sequence[str]]) -> tuple[list[str], list[int]]:
    """The tokens of all sentences one after the other, and the sentence of each; sentences without tokens do not count.

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
