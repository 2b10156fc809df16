"""Sentences on standard output, on lines that fit a terminal of 80 columns."""

import os
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

WIDTH = 80
"""Columns of a line, whatever the terminal has: a log is read elsewhere."""


def tell(sentence: str) -> None:
    """Print a sentence at once, folded where it is longer than a line."""
    print(folded(sentence), flush=True)


def folded(sentence: str) -> str:
    """A sentence on lines of at most `WIDTH` columns, all but the first indented.

    A word that is longer than that, such as a path, stays whole, so that it can be copied.

    >>> print(folded("audit: " + "time was up after 3:34; left out: " * 3))
    audit: time was up after 3:34; left out: time was up after 3:34; left out: time
      was up after 3:34; left out:
    """
    return textwrap.fill(
        sentence,
        WIDTH,
        subsequent_indent="  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


@contextmanager
def ending_with_reader() -> Iterator[None]:
    """A command whose output nobody reads any more, as after `| head`, ends with status 1."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()  # here rather than at the interpreter's end, which would complain
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
