"""Untrusted names and texts, made safe to show: on a terminal, and in a spreadsheet."""

import re
import unicodedata

FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a cell begins with that a spreadsheet would run."""
KEYWORDS = ("true", "false", "null", "nan", "inf")
"""What Hydra's grammar reads as something else than text."""


def visible(text: str) -> str:
    r"""Escape what moves the cursor, reorders the line or breaks it.

    Control and format characters, lone surrogates and line separators.

    >>> print(visible("a\x1b[31mb\u202ec\u2028d\n"))
    a\x1b[31mb\u202ec\u2028d\n
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    """An escape in place of a character that is not for display, else the character."""
    is_joiner = character in "\u200c\u200d"  # format characters that scripts need
    if is_joiner or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Zl", "Zp"):
        return character
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def spreadsheet_cell(value: object) -> object:
    """A table's cell for a CSV file.

    Text has its hidden characters escaped, and an apostrophe before what a spreadsheet would run;
    anything else, numbers above all, stays as it is.

    >>> spreadsheet_cell("=1+1"), spreadsheet_cell(-0.5), spreadsheet_cell("sst")
    ("'=1+1", -0.5, 'sst')
    """
    if not isinstance(value, str):
        return value
    return ("'" if value.startswith(FORMULA) else "") + visible(value)


def duration(seconds: float) -> str:
    """A time in words.

    >>> duration(40), duration(200), duration(9000)
    ('1 minute', '3 minutes', '2.5 hours')
    """
    if seconds >= 5400:
        return f"{seconds / 3600:.1f} hours"
    minutes = max(1, round(seconds / 60))
    return f"{minutes} minute{'s' if minutes > 1 else ''}"


def percent(share: float) -> str:
    """A share in percent, never rounded to all or nothing.

    >>> percent(0.5), percent(0.9996), percent(1.0), percent(0.004), percent(0.0004)
    ('50 %', 'more than 99 %', '100 %', '0.4 %', 'less than 0.1 %')
    """
    if 0.995 <= share < 1:
        return "more than 99 %"
    if 0 < share < 0.001:
        return "less than 0.1 %"
    return f"{100 * share:.1f} %" if 0 < share < 0.01 else f"{100 * share:z.0f} %"


def percent_ends(low: float, high: float) -> str:
    """The ends of an interval of a share, in percent; 0 has no sign.

    >>> percent_ends(0.953, 0.999), percent_ends(-0.004, 0.2)
    ('[95, 100]', '[0, 20]')
    """
    return f"[{100 * low:z.0f}, {100 * high:z.0f}]"


def quoted(value: str) -> str:
    r"""A value as Hydra's grammar reads it, whatever characters are in it.

    >>> print(quoted("review"), quoted("umsatz=2024.csv"), quoted("it's (free)"), quoted("123"))
    review 'umsatz=2024.csv' 'it\'s (free)' '123'
    """
    if re.fullmatch(r"[A-Za-z/][\w./-]*", value, re.ASCII) and value.lower() not in KEYWORDS:
        return value
    # within quotes a backslash means something only before a quote, the closing one included
    body = re.sub(r"(\\*)'", r"\1\1\\'", value)
    return "'" + re.sub(r"(\\+)$", r"\1\1", body) + "'"
