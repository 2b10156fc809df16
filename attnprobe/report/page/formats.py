"""Numbers and words as the page shows them."""

from typing import Any

import numpy as np

MINUS = "−"
NO_BREAK = "\N{NO-BREAK SPACE}"


def number(value: float, digits: int = 3) -> str:
    """Three digits after the point.

    >>> number(-0.12345), number(float("nan"))
    ('−0.123', 'undefined')
    """
    return "undefined" if np.isnan(value) else f"{value:.{digits}f}".replace("-", MINUS)


def signed(value: float) -> str:
    """With its sign.

    >>> signed(0.5), signed(-0.5)
    ('+0.500', '−0.500')
    """
    return f"{value:+.3f}".replace("-", MINUS)


def short(value: float) -> str:
    """No more digits than needed.

    >>> short(0.05), short(0.0)
    ('0.05', '0')
    """
    return f"{value:g}".replace("-", MINUS)


def count(value: int) -> str:
    """With commas.

    >>> count(25000)
    '25,000'
    """
    return f"{value:,}"


def p_value(value: float) -> str:
    """Two digits, and no more zeros than can be meant.

    >>> p_value(0.0312), p_value(2e-9)
    ('p = 0.031', 'p < 0.001')
    """
    return "p < 0.001" if value < 0.001 else f"p = {value:.2g}"


def capital(text: str) -> str:
    """The first letter large, the others as they are; a Greek one is a symbol and stays.

    >>> capital("does Jain's rank agree?"), capital("τ of two measures")
    ("Does Jain's rank agree?", 'τ of two measures')
    """
    return text[:1].upper() + text[1:] if text[:1].isascii() else text


def cell(value: Any) -> tuple[str, bool]:
    """A cell's text, and whether it is a number.

    >>> cell(0.25), cell(7), cell("sst"), cell(float("nan"))
    (('0.250', True), ('7', True), ('sst', False), ('', True))
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number)):
        return str(value), False
    if np.isnan(float(value)):
        return "", True
    return (f"{value:,}" if isinstance(value, (int, np.integer)) else number(float(value))), True


def unbroken(text: str) -> str:
    """A sentence whose numbers stay on one line with their percent sign.

    >>> unbroken("right on 51 % of 300 texts") == f"right on 51{NO_BREAK}% of 300 texts"
    True
    """
    return text.replace(" %", f"{NO_BREAK}%")
