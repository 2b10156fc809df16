"""Every fault at every operation of every scenario, and what came of it."""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.faults.operations import Fault
from tests.faults.processes import Ending, perform

Command = tuple[str, ...]
"""A module and its arguments."""


class Scenario(NamedTuple):
    """One command to be disturbed.

    Attributes:
        disturbed: the command at whose operations the faults happen; given again, it must end as if
            nothing had.
        before: commands that prepare the folder.
        otherwise: commands that may follow instead, and must then end as they do where nothing was
            disturbed.
        reads: a finished run that can be read at every moment.
    """

    disturbed: Command
    before: tuple[Command, ...] = ()
    otherwise: tuple[Command, ...] = ()
    reads: str = ""


def tiny(
    *arguments: str, probes: str = "[permutation]", samples: int = 3, figures: str = "false"
) -> Command:
    """One run that takes about a second."""
    return (
        "attnprobe",
        "data.source.train_size=40",
        "data.source.validation_size=12",
        "data.source.test_size=10",
        "data.embedding_size=6",
        "training.epochs=1",
        "trainer.accelerator=cpu",
        "model=average",
        f"figures={figures}",
        f"probe.permutation.samples={samples}",
        *([f"probe={probes}"] if probes else []),
        *arguments,
    )


BOTH = "[permutation,single_weight]"
SKIP = (tiny("on_finished=skip"),)
"""The first settings again: done only if the table is theirs."""
SCENARIOS = {
    "run": Scenario(tiny()),
    "add a probe": Scenario(tiny(probes=BOTH), (tiny(),), SKIP),
    "add with figures": Scenario(
        ("attnprobe", "run=runs/one", f"probe={BOTH}", "figures=true"),
        (tiny("run_dir=runs/one"),),
        reads="runs/one",
    ),
    "remeasure": Scenario(tiny("on_finished=remeasure", samples=4), (tiny(),), SKIP),
    "replace": Scenario(tiny("on_finished=replace"), (tiny(),), SKIP),
    "study": Scenario(
        tiny(
            "probe.adversarial.steps=3",
            "probe.adversarial.restarts=1",
            "+experiment=audit",
            "study.seeds=[]",
            "study.probes=[permutation,adversarial]",
            probes="",
        )
    ),
    "report": Scenario(("attnprobe.report", "runs"), (tiny(), tiny("seed=1", figures="true"))),
}

STATUS = {
    "kill": -9,
    "interrupt": 130,
    "interrupt_twice": 130,
    "terminate": 143,
    "full": 2,
    "remove": 2,
    "error": 1,
}
HYDRAS = "os.mkdir ."
"""The operation that Hydra does before the program's own first one."""

TIMES = ("seconds", "finished", "plan", "words", "checksum")
"""Keys of JSON files that hold times, words about times, or a checksum of these."""
TOLD = re.compile(
    rb"\d{4}-\d\d-\d\d \d\d:\d\d UTC|: about [\w .]+ on this machine|This test took [^<]*"
)
"""When a page was made, as it says itself; how long its study was going to take, and how long its
tests took."""
NUMBER = re.compile(r"\.\d+\.partial$")
NO_MATTER = re.compile(r"mine\.txt|findings\.parquet|\.findings\.parquet\.\d+\.partial|.*\.lock")
"""A file of the user's, of which there is one in every folder that the commands find; what is made
of the tables by whoever reads them; a lock, which says nothing if nobody holds it, whether it was
removed or not."""


def carried_out(
    name: str, kinds: Sequence[str], points: int | None, part: int, parts: int, place: Path
) -> Iterator[dict[str, Any]]:
    """What comes of every kind of fault at every operation of a scenario, or at `points` of them;
    of these every `parts`-th. Works in `place`."""
    scenario = SCENARIOS[name]
    ready = Prepared(scenario, place)
    faults = []
    count = len(ready.operations)
    step = max(1, count / (points or count))
    for number, kind in enumerate(kinds):
        if (
            kind != "remove" or not scenario.before
        ):  # else the same command would find nothing of what it goes by
            shift = number / len(kinds) if step > 1 else 0  # the kinds at different places
            faults += [
                Fault(kind, int((at + shift) * step)) for at in range(min(points or count, count))
            ]
    for fault in faults[part::parts]:
        wrong, short = ready.disturbed(fault)
        yield {
            "scenario": name,
            "kind": fault.kind,
            "at": fault.at,
            "operation": ready.operations[fault.at],
            "wrong": wrong,
            "unclear": short,
        }


class Prepared:
    """A scenario's folder before the disturbed command, and what an undisturbed one makes of it.

    Attributes:
        operations: those of the command.
        expected: of every command that may follow, the states of the folder in which it may end.
        legitimate: the tables that may count (`counted`).
    """

    def __init__(self, scenario: Scenario, place: Path) -> None:
        self.scenario = scenario
        self.start = place / "start"
        self.work = place / "work"
        self.after = place / "after"
        self.judged: dict[str, list[str]] = {}
        self.start.mkdir(parents=True)
        for one in scenario.before:
            undisturbed(one, self.start)
        for folder in [self.start, *(one for one in self.start.rglob("*") if one.is_dir())]:
            (folder / "mine.txt").write_text("mine")
        copied(self.start, self.work)
        self.operations = undisturbed(scenario.disturbed, self.work).operations
        self.expected = {scenario.disturbed: [state(self.work)]}
        self.legitimate = counted(self.start) | counted(self.work)
        for (
            one
        ) in scenario.otherwise:  # it may find what the disturbed command did, or nothing of it
            self.expected[one] = []
            for before in (self.start, self.work):
                undisturbed(one, copied(before, self.after))
                self.expected[one].append(measured(self.after))
                self.legitimate |= counted(self.after)

    def disturbed(self, fault: Fault) -> tuple[list[str], list[str]]:
        """Disturb the command: what is wrong with what is there and with what follows, and how its
        last words fell short."""
        copied(self.start, self.work)
        ending = perform(self.scenario.disturbed, self.work, fault)
        mine = [
            path.relative_to(self.start)
            for path in self.start.rglob("mine.txt")
            if fault.kind != "remove"
        ]
        wrong = [f"deleted the user's {name}" for name in mine if not (self.work / name).exists()]
        wrong += self.uncounted(self.work)
        there = json.dumps(state(self.work, logs=True), sort_keys=True)
        if there not in self.judged:
            self.judged[there] = list(self.follow())
        return wrong + self.judged[there], list(unclear(ending, fault, self.operations[fault.at]))

    def follow(self) -> Iterator[str]:
        """What is wrong with what can be read, and after the commands that follow."""
        if self.scenario.reads:
            ending = perform(("tests.faults.reading", self.scenario.reads), self.work)
            if ending.status != 0:
                yield f"cannot be read: {ending.last_line}"
        for one, expected in self.expected.items():
            ending = perform(one, copied(self.work, self.after))
            there = state(self.after) if one == self.scenario.disturbed else measured(self.after)
            if one != self.scenario.disturbed:
                yield from self.uncounted(self.after)
            if there not in expected:
                differ = sorted(
                    name
                    for name in there.keys() | expected[0]
                    if there.get(name) != expected[0].get(name)
                )
                yield f"{' '.join(one[-2:])}: status {ending.status}, not the files expected: {differ}: {ending.last_line}"
            elif ending.status not in (0, 2) or "Traceback" in ending.output:
                yield f"again: right, but status {ending.status}: {ending.last_line}"

    def uncounted(self, folder: Path) -> Iterator[str]:
        """What counts as measured, and is not what was measured with these settings."""
        try:
            for name, settings, _ in sorted(counted(folder) - self.legitimate):
                yield f"counts, and is not right: {name} {settings}"
        except ValueError as error:
            yield f"a manifest is damaged: {error}"


def copied(source: Path, target: Path) -> Path:
    """A copy of a folder, in place of what is there."""
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))


def undisturbed(one: Command, folder: Path) -> Ending:
    """Run a command that nothing disturbs."""
    ending = perform(one, folder)
    if ending.status != 0:
        raise RuntimeError(f"{one} ended with status {ending.status} undisturbed:\n{ending.output}")
    return ending


def unclear(ending: Ending, fault: Fault, operation: str = "") -> Iterator[str]:
    """How the last words of a disturbed command fell short."""
    if fault.kind == "error" and operation == HYDRAS and ending.status == 2:
        return  # where settings are still composed, every exception is taken for a mistake in them
    if ending.status == 0 and fault.kind in ("full", "error", "remove"):
        return  # what could not be done was not needed
    if ending.status != STATUS[fault.kind]:
        yield f"status {ending.status}, expected {STATUS[fault.kind]}"
    if fault.kind not in ("kill", "error"):
        if "Traceback" in ending.output:
            yield f"a traceback: {ending.last_line}"
        elif "attnprobe" not in ending.last_line:
            yield f"no last word: {ending.last_line}"


def state(folder: Path, logs: bool = False) -> dict[str, str]:
    """Digest of every file, by name: two folders with the same state have the same tables, byte for
    byte. Numbers of processes in names are left out, and times in manifests."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if (
            not path.is_file()
            or NO_MATTER.fullmatch(path.name)
            or (name.startswith("runs/logs/") and not logs)
        ):
            continue
        content = path.read_bytes()
        if path.suffix == ".json":
            content = without_times(content)
        elif path.suffix == ".html":
            content = TOLD.sub(b"", content)
        found[NUMBER.sub(".N.partial", name)] = hashlib.sha256(content).hexdigest()
    return found


def measured(folder: Path) -> dict[str, str]:
    """The state of the tables, the examples and the weights: what another command may not
    change."""
    there = state(folder)
    return {
        name: digest
        for name, digest in there.items()
        if name.endswith((".parquet", ".safetensors"))
    }


def without_times(content: bytes) -> bytes:
    """A JSON file without them; a damaged one as it is."""
    try:
        timeless = json.loads(
            content, object_hook=lambda one: {key: one[key] for key in one if key not in TIMES}
        )
        return json.dumps(timeless, sort_keys=True).encode()
    except ValueError:
        return content


def counted(folder: Path) -> set[tuple[str, str, str]]:
    """What counts as measured: (table, its settings, digest of its file) of every table that a
    manifest lists."""
    found = set()
    for manifest in folder.rglob("manifest.json"):
        if manifest.parent.name == ".attnprobe.new":  # prepared, and not true
            continue
        content = json.loads(manifest.read_bytes())
        for name, entry in content["tables"].items():
            path = manifest.parent / entry.get("file", f"tables/{name}.parquet")
            prepared = (
                manifest.parent / ".attnprobe.new" / path.relative_to(manifest.parent)
            )  # true, and not moved yet
            digests = [
                hashlib.sha256(one.read_bytes()).hexdigest()
                for one in (path, prepared)
                if one.is_file()
            ]
            listed = content.get("files", {}).get(f"tables/{name}.parquet", {}).get("sha256")
            digest = listed if listed in digests else (digests or ["missing"])[0]
            found.add(
                (
                    str(path.relative_to(folder)),
                    json.dumps(entry["settings"], sort_keys=True),
                    digest,
                )
            )
    return found
