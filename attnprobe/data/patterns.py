"""Regular expressions from settings, which may have come with somebody else's run: no word takes one long to match.

Python's matcher tries the ways in which a pattern can lie on a text one after the other, and `(a+)+` has 2^n of them. So
the ways are counted before a pattern is used.
"""

import re
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from attnprobe.errors import UserError

LONGEST = 200
"""Characters of a pattern, and of a word that it is tried on: no longer word matches."""
MOST_WAYS = 100_000
"""Ways in which a pattern may lie on a word of that length. Two parts of any length have 40,000."""
_parse = import_module("re._parser").parse


def matching(words: Iterable[str], pattern: str) -> list[str]:
    """The distinct words that match the pattern in full, in the order in which they come.

    >>> matching(["@entity2", "met", "@entity10", "and", "@entity2"], r"@entity\\d+")
    ['@entity2', '@entity10']
    """
    return [word for word in dict.fromkeys(words) if len(word) <= LONGEST and re.fullmatch(pattern, word)]


def check_pattern(pattern: str, setting: str) -> None:
    """Refuse what is not a regular expression, or one that may take long to match.

    Args:
        setting: its name, for the message.

    Raises:
        UserError: see above.
    """
    if len(pattern) > LONGEST:
        raise UserError(f"{setting}={pattern[:40]}…: expected a regular expression of at most {LONGEST} characters")
    try:
        re.compile(pattern)
        count = ways(_parse(pattern))
    except (re.error, OverflowError, RecursionError) as error:
        raise UserError(f"{setting}={pattern} is not a regular expression: {error}") from None
    if count > MOST_WAYS:
        raise UserError(
            f"{setting}={pattern} could take very long on some words: expected no more than two parts of any length (* or "
            f"+), and none within another. Characters that repeat together go into one class: [\\w-]+ for \\w+(-\\w+)*"
        )


def ways(parts: Iterable[tuple[Any, Any]]) -> int:
    """In how many ways a parsed pattern can lie on a word of `LONGEST` characters, at most; from `MOST_WAYS` + 1 on not
    counted further.

    >>> ways(_parse(r"@entity\\d+")), ways(_parse(r"(ent|per)\\d{1,3}")), ways(_parse("(a|b|cd)*")) > MOST_WAYS
    (200, 6, True)
    """
    total = 1
    for operation, argument in parts:
        total = min(total * _ways_of(str(operation), argument), MOST_WAYS + 1)
    return total


def _ways_of(operation: str, argument: Any) -> int:
    if operation in ("LITERAL", "NOT_LITERAL", "IN", "ANY", "AT", "CATEGORY", "GROUPREF"):
        return 1
    if operation == "BRANCH":
        return sum(ways(one) for one in argument[1])
    if operation in ("SUBPATTERN", "ASSERT", "ASSERT_NOT"):
        return ways(argument[-1])
    if operation == "ATOMIC_GROUP":
        return ways(argument)
    if operation in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        least, most, part = argument
        most = min(most, LONGEST)
        if least > LONGEST:  # of nothing, or it fits no word
            return MOST_WAYS + 1
        inner = ways(part)
        # a fixed number of repeats is one way, and so much work
        return max(most, sum(min(inner**count, MOST_WAYS + 1) for count in range(least, most + 1)))
    return MOST_WAYS + 1
