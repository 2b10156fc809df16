"""A time that passes when a test says so."""

from dataclasses import dataclass


@dataclass
class InventedTime:
    """A clock's `now`.

    Attributes:
        seconds: that it is.
    """

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds

    def passes(self, seconds: float) -> None:
        self.seconds += seconds
