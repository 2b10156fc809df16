"""Which words of a vocabulary carry content."""

from collections.abc import Sequence
from functools import cache

import torch
from jaxtyping import Bool
from spacy.lang.en.stop_words import STOP_WORDS
from torch import Tensor


def is_function_word(words: Sequence[str], function_words: Sequence[str] | None = None) -> Bool[Tensor, "vocabulary"]:
    """Whether each word is a function word or holds neither a letter nor a digit.

    Args:
        words: the vocabulary in the order of its ids.
        function_words: lower case; None: spaCy's English stop words (326, "not" and "n't" among them).
    """
    return _marked(tuple(words), None if function_words is None else tuple(function_words))


@cache
def _marked(words: tuple[str, ...], function_words: tuple[str, ...] | None) -> Bool[Tensor, "vocabulary"]:
    excluded = STOP_WORDS if function_words is None else set(function_words)
    return torch.tensor(
        [word.lower() in excluded or not any(letter.isalnum() for letter in word) for word in words], dtype=torch.bool
    )
