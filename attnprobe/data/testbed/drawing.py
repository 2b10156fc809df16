"""Random choices that stay the same between versions of Python.

Row i depends on (seed, i) alone: each row has its own generator, seeded by the two. Only its
`random()` is used, whose sequence Python keeps across versions."""

from collections.abc import Callable, Sequence
from random import Random

Draw = Callable[[], float]


def pick(draw: Draw, options: Sequence[str]) -> str:
    """One of the options, all equally likely."""
    return options[int(draw() * len(options))]


def stream(seed: int, kind: str, index: int) -> Draw:
    """The random numbers of one row."""
    return Random(f"{kind}:{seed}:{index}").random


def shuffled(draw: Draw, options: Sequence[str]) -> list[str]:
    """All options in random order."""
    # Fisher-Yates, because Random.shuffle is not promised to stay the same between versions of
    # Python
    result = list(options)
    for i in range(len(result) - 1, 0, -1):
        j = int(draw() * (i + 1))
        result[i], result[j] = result[j], result[i]
    return result
