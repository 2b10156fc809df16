"""Settings as Hydra's command line reads them."""

import re

PLAIN = re.compile(r"[A-Za-z/][\w./-]*", re.ASCII)
WORDS = ("true", "false", "null", "nan", "inf")
"""What Hydra's grammar reads as something else than text."""


def quoted(value: str) -> str:
    r"""A value as Hydra's grammar reads it, whatever characters are in it.

    >>> print(quoted("review"), quoted("umsatz=2024.csv"), quoted("it's (free)"), quoted("123"))
    review 'umsatz=2024.csv' 'it\'s (free)' '123'
    """
    if PLAIN.fullmatch(value) and value.lower() not in WORDS:
        return value
    # within quotes a backslash means something only before a quote, the closing one included
    body = re.sub(r"(\\*)'", lambda match: f"{match[1] * 2}{chr(92)}'", value)
    body = re.sub(r"(\\+)$", lambda match: match[1] * 2, body)
    return f"'{body}'"
