"""From one piece of text to its tokens: spaCy's rules of a language, without a model, or the white space in it."""

import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import regex
import spacy
from spacy.tokens import Doc

from attnprobe.errors import UserError

EXTRAS = {"zh": "jieba", "ja": "sudachipy sudachidict-core"}
"""Languages without spaces whose segmenter is an extra, and what it consists of."""
OF_SEVERAL = regex.compile(r"[\p{M}\u200d\U0001f3fb-\U0001f3ff\U0001f1e6-\U0001f1ff\U000e0020-\U000e007f]")
"""What only occurs within or after another character: marks, joiners, skin tones, halves of flags."""


@cache
def blank(language: str) -> Callable[[str], Doc]:
    """spaCy's tokenizer of a language, by its code.

    Chinese is segmented by jieba and Japanese by SudachiPy, into words.

    Raises:
        UserError: spaCy knows no such language, or needs a library for it that is not installed.
    """
    settings: dict[str, Any] = {}
    try:
        if language == "zh":
            settings = {"nlp": {"tokenizer": {"segmenter": "jieba"}}}
            quiet_jieba()
        with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # within SudachiPy
            tokenizer: Callable[[str], Doc] = spacy.blank(language, config=settings).tokenizer
        return tokenizer
    except ImportError as error:
        if "[E048]" in str(error):  # spaCy's for a code that it does not know
            raise UserError(
                f"data.language={language}: spaCy has no such language; expected a code such as en, de, ar, zh, ja, or xx "
                f"for rules that suit many"
            ) from None
        needs = EXTRAS.get(language)
        what = "pip install 'attnprobe[languages]'" if needs else f"a library ({' '.join(str(error).split())[:160]})"
        raise UserError(
            f"data.language={language} needs {what}; or split the texts at spaces yourself and set data.tokenizer=whitespace"
        ) from None


def quiet_jieba() -> None:
    """Let jieba build its dictionary again, in a folder of our own: it would load a cache from the machine's shared
    folder for temporary files, where anybody could have put it."""
    import jieba

    if not jieba.dt.initialized:
        jieba.setLogLevel(60)
        with tempfile.TemporaryDirectory(prefix="attnprobe-") as folder:
            jieba.dt.tmp_dir = folder
            jieba.initialize()


def language_tokens(text: str, language: str) -> list[str]:
    """The tokens of a text by a language's rules; what a reader sees as one character is never cut in two.

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
