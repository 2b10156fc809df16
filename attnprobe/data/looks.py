"""One thing that was looked at in a data set: its number, the threshold from which it warns, and a sentence."""

from dataclasses import asdict, dataclass
from typing import Any

MOST_NAMES = 8
"""Classes that a sentence names."""


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: such as `texts in training and test`.
        value: what was measured, in the unit of `threshold`.
        threshold: from which value on, or below which, `warns`; None: nothing is wrong at any.
        warns: whether somebody should look at it.
        sentence: what was found, and where it warns what follows and what to do.
    """

    name: str
    value: float
    threshold: float | None
    warns: bool
    sentence: str

    def as_data(self) -> dict[str, Any]:
        """For the manifest."""
        return asdict(self)


def fact(name: str, value: float, sentence: str) -> Check:
    """A number of which none is wrong."""
    return Check(name, value, None, False, sentence)


def from_on(name: str, value: float, threshold: float, sentence: str, follows: str) -> Check:
    """A number that warns from a threshold on, and what then follows."""
    warns = bool(value >= threshold)
    return Check(name, value, threshold, warns, f"{sentence}: {follows}" if warns else sentence)


def below(name: str, value: float, threshold: float, sentence: str, follows: str) -> Check:
    """A number that warns below a threshold, and what then follows."""
    warns = bool(value < threshold)
    return Check(name, value, threshold, warns, f"{sentence}: {follows}" if warns else sentence)


def and_more(number: int) -> str:
    """How many names are not shown."""
    return f" and {number - MOST_NAMES:,} more" if number > MOST_NAMES else ""


def percent(share: float) -> str:
    """A share as people write it.

    >>> percent(0.5), percent(0.004), percent(0.0004), percent(0.0)
    ('50 %', '0.4 %', 'less than 0.1 %', '0 %')
    """
    if 0 < share < 0.001:
        return "less than 0.1 %"
    return f"{100 * share:.1f} %" if 0 < share < 0.01 else f"{100 * share:.0f} %"
