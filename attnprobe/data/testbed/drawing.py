"""Random choices that stay the same between versions of Python, and checks that the generators share.

Row i depends on (seed, i) alone: each row has its own generator, seeded by the two. Only its `random()` is used,
whose sequence Python keeps across versions.
"""

from collections.abc import Callable, Sequence
from random import Random

from attnprobe.core.errors import UserError

Draw = Callable[[], float]


def pick(draw: Draw, options: Sequence[str]) -> str:
    """One of the options, all equally likely."""
    return options[int(draw() * len(options))]


def stream(seed: int, kind: str, index: int) -> Draw:
    """The random numbers of one row."""
    return Random(f"{kind}:{seed}:{index}").random


def check_rows(count: int, start: int) -> None:
    """Refuse a number of rows, or a first row, that makes no sense."""
    if count < 1 or start < 0:
        raise UserError(f"{count} rows from row {start}: the testbed needs count ≥ 1 and start ≥ 0; try count=1000")


def check_share(**shares: float) -> None:
    """Refuse what is not a probability."""
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise UserError(f"{name}={share} is not a probability; give a number from 0 to 1, such as {name}=0.4")


def shuffled(draw: Draw, options: Sequence[str]) -> list[str]:
    """All options in random order."""
    # Fisher-Yates, because Random.shuffle is not promised to stay the same between versions of Python
    result = list(options)
    for i in range(len(result) - 1, 0, -1):
        j = int(draw() * (i + 1))
        result[i], result[j] = result[j], result[i]
    return result
