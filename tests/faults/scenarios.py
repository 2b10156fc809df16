"""The commands that are disturbed, and what follows them."""

from dataclasses import dataclass

TINY = (
    "data.source.train_size=40",
    "data.source.validation_size=12",
    "data.source.test_size=10",
    "data.embedding_size=6",
    "training.epochs=1",
    "trainer.accelerator=cpu",
    "figures=false",
    "model=average",
    "probe.permutation.samples=3",
)


@dataclass(frozen=True)
class Command:
    """`python -m module arguments…`; without `pictures` their files stay empty."""

    arguments: tuple[str, ...]
    module: str = "attnprobe"
    pictures: bool = True


def tiny(*arguments: str, probes: str = "permutation") -> Command:
    return Command((*TINY, f"probe=[{probes}]", *arguments))


@dataclass(frozen=True)
class Scenario:
    """One command to be disturbed.

    Attributes:
        before: commands that prepare the folder.
        disturbed: the command at whose operations the faults happen.
        after: commands each of which may follow, and must then end as it does where nothing was disturbed.
        reads: a finished run that can be read at every moment.
    """

    name: str
    before: tuple[Command, ...]
    disturbed: Command
    after: tuple[Command, ...]
    reads: str = ""


def repeated(
    name: str, disturbed: Command, *before: Command, or_else: tuple[Command, ...] = (), reads: str = ""
) -> Scenario:
    """The same command again; or another one instead."""
    return Scenario(name, before, disturbed, (disturbed, *or_else), reads)


FIGURES = tuple("figures=true" if one == "figures=false" else one for one in TINY)
MORE_SAMPLES = (*(one for one in TINY if "samples" not in one), "probe.permutation.samples=4")
STUDY = (*TINY, "probe.adversarial.steps=3", "probe.adversarial.restarts=1", "+experiment=audit", "study.seeds=[]",
         "study.probes=[permutation,adversarial]")  # fmt: skip

SCENARIOS = (
    repeated("run", tiny()),
    repeated("add a probe", tiny(probes="permutation,single_weight"), tiny(), or_else=(tiny("on_finished=skip"),)),
    repeated(
        "add with figures",
        Command(("run=runs/one", "probe=[permutation,single_weight]", "figures=true")),
        tiny("run_dir=runs/one"),
        reads="runs/one",
    ),
    repeated(
        "remeasure",
        Command((*MORE_SAMPLES, "probe=[permutation]", "on_finished=remeasure")),
        tiny(),
        # the first settings again: done only if the table is theirs
        or_else=(tiny("on_finished=skip"),),
    ),
    repeated("replace", tiny("on_finished=replace"), tiny(), or_else=(tiny("on_finished=skip"),)),
    repeated("study", Command(STUDY, pictures=False)),
    repeated(
        "report", Command(("runs",), "attnprobe.report"), tiny(), Command((*FIGURES, "probe=[permutation]", "seed=1"))
    ),
)
