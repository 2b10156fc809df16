"""Adebayo et al.'s sanity checks: does an importance depend on what the model has learnt?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from attnprobe.core.sanitise import quoted
from attnprobe.findings.studies.base import Done, Member, Study, StudyReading


@dataclass(frozen=True)
class SanityChecks(Study):
    """Trains the command line's model on labels by a coin, then on its own.

    The second is put to both tests of Adebayo et al. 2018: weights made random part by part
    (section 3.1), and random labels (section 3.4).

    Attributes:
        probes: of the second run, beside `sanity`.
    """

    name: ClassVar[str] = "sanity"
    importances: Sequence[str] = ()
    probes: Sequence[str] = ()

    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """The twin, then the run that is compared with it."""
        yield [Member("twin", seed, ("training=coin_flips", "probe=[]"))]
        overrides = (
            f"probe=[{','.join(['sanity', *self.probes])}]",
            f"importances=[{','.join(self.importances)}]",
            f"probe.sanity.twin={quoted(str(done[0].directory))}",
        )
        yield [Member("base", seed, overrides)]


def read(directory: Path, content: dict[str, Any]) -> StudyReading:
    """What was done; the numbers are in the examined run's tables.

    Args:
        directory: of the study.
        content: of its study.json.
    """
    data = str(content["data"])
    model = str(content["model"])
    return StudyReading(
        title=f"Sanity checks on {data}, {model}: does an importance depend on what the model has "
        "learnt?",
        about="The model was trained twice, on its labels and on labels by a coin. Every "
        "importance of the first is compared with itself in the second, and in the first with "
        "weights made random from the output down (Adebayo et al. 2018).",
        data=data,
        model=model,
        directory=directory,
        runs=[
            directory / member["directory"]
            for member in content["members"]
            if member["role"] == "base"
        ],
    )
