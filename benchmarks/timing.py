"""Two ways of doing one thing, timed in turn in one process."""

import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter

import torch


@dataclass(frozen=True)
class Compared:
    """Seconds of both sides, one number per repeat.

    The n-th of both were measured one after the other.

    Attributes:
        share: how many times the published side's work one repeat of our side did, such as 4 kinds
            of gradients against 3.
    """

    name: str
    published: list[float]
    ours: list[float]
    share: float = 1

    @property
    def ratios(self) -> list[float]:
        """How many times faster ours is for the same work, per repeat, the smallest first."""
        repeats = zip(self.published, self.ours, strict=True)
        return sorted(self.share * published / ours for published, ours in repeats)

    def cells(self) -> tuple[str, str, str, str, str]:
        """Name, both medians, the median ratio and its range."""
        ratios = self.ratios
        spread = f"{ratios[0]:.3g} to {ratios[-1]:.3g}"
        return (
            self.name,
            f"{median(self.published):.3g}",
            f"{median(self.ours):.3g}",
            f"{median(ratios):.3g}",
            spread,
        )


def together(name: str, parts: list[Compared]) -> Compared:
    """The sum of several, repeat by repeat.

    A side that does more work than the other is charged for all of it.
    """
    published = [sum(times) for times in zip(*(part.published for part in parts), strict=True)]
    ours = [sum(times) for times in zip(*(part.ours for part in parts), strict=True)]
    return Compared(name, published, ours)


def interleaved(sides: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Wall-clock seconds of each side.

    In turn, so that whatever else the machine does meets all of them.
    """
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, job in sides.items():
            start = perf_counter()
            job()
            seconds[name].append(perf_counter() - start)
    return seconds


def processor() -> str:
    """Its name, and the vector unit that PyTorch uses."""
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text(encoding="utf-8").splitlines() if facts.exists() else []
    name = next(
        (line.split(":")[1].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )
    return f"{name}, {torch.backends.cpu.get_cpu_capability()}"
