"""Two models: one trained on labels by a coin, and the one that is examined, its weights made random part by part."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from attnprobe.overrides import quoted
from attnprobe.studies.base import Done, Member, Study


@dataclass(frozen=True)
class SanityChecks(Study):
    """Trains the command line's model on labels by a coin, then on its own, and puts the second to both tests of Adebayo et
    al. 2018: random weights (section 3.1) and random labels (section 3.4).

    Attributes:
        importances: the methods.
        probes: of the second run, in addition to `sanity`.
    """

    name: ClassVar[str] = "sanity"
    importances: Sequence[str] = ()
    probes: Sequence[str] = ()

    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """The twin, then the run that is compared with it."""
        yield [Member("twin", seed, ("training=coin_flips", "probe=[]"))]
        probes = ",".join(["sanity", *self.probes])
        names = f"importances=[{','.join(self.importances)}]"
        yield [
            Member("base", seed, (f"probe=[{probes}]", names, f"probe.sanity.twin={quoted(str(done[0].directory))}"))
        ]
