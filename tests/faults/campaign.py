"""Every fault at every operation of every scenario, and what came of it."""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
PREPARED = ".attnprobe.new"
"""A folder of what is prepared, and not true."""
HYDRAS = "os.mkdir ."
"""The operation that Hydra does before the program's own first one."""

TIMES = ("seconds", "finished", "plan", "words", "checksum")
"""Keys of JSON files that hold times, words about times, or a checksum of these."""
TOLD_TIMES = re.compile(
    rb"\d{4}-\d\d-\d\d \d\d:\d\d UTC|: about [\w .]+ on this machine|This test took [^<]*"
)
"""When a page was made, as it says itself; how long its study was going to take, and how long its
tests took."""
NUMBER = re.compile(r"\.\d+\.partial$")
NO_MATTER = re.compile(r"mine\.txt|findings\.parquet|\.findings\.parquet\.\d+\.partial|.*\.lock")
"""A file of the user's, of which there is one in every folder that the commands find; what is made
of the tables by whoever reads them; a lock, which says nothing if nobody holds it, whether it was
removed or not."""


@dataclass(frozen=True)
class Outcome:
    """What came of a fault.

    Attributes:
        at: number of the operation.
        wrong: what is wrong with the files, and with what follows.
        unclear: how the command's last words fell short.
    """

    scenario: str
    kind: str
    at: int
    operation: str
    wrong: list[str]
    unclear: list[str]


def outcomes_of(
    name: str, kinds: Sequence[str], points: int | None, *, part: int, parts: int, place: Path
) -> Iterator[Outcome]:
    """What comes of every kind of fault at every operation of a scenario.

    Args:
        points: at this many operations, evenly spread; None: at every one.
        part: of the faults every `parts`-th, beginning here.
        place: a folder to work in.
    """
    scenario = SCENARIOS[name]
    prepared = Prepared(scenario, place)
    count = len(prepared.operations)
    step = max(1, count / (points or count))
    faults = []
    for number, kind in enumerate(kinds):
        if kind == "remove" and scenario.before:
            continue  # the same command would find nothing of what it goes by
        shift = number / len(kinds) if step > 1 else 0  # the kinds at different places
        places = range(min(points or count, count))
        faults += [Fault(kind, int((place_number + shift) * step)) for place_number in places]
    for fault in faults[part::parts]:
        wrong, unclear_words = prepared.disturbed(fault)
        operation = prepared.operations[fault.at]
        yield Outcome(name, fault.kind, fault.at, operation, wrong, unclear_words)


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
        for command in scenario.before:
            undisturbed(command, self.start)
        folders = [path for path in self.start.rglob("*") if path.is_dir()]
        for folder in [self.start, *folders]:
            (folder / "mine.txt").write_text("mine")

        copied(self.start, self.work)
        self.operations = undisturbed(scenario.disturbed, self.work).operations
        self.expected = {scenario.disturbed: [state(self.work)]}
        self.legitimate = counted(self.start) | counted(self.work)
        for command in scenario.otherwise:
            self.expected[command] = []
            # it may find what the disturbed command did, or nothing of it
            for before in (self.start, self.work):
                undisturbed(command, copied(before, self.after))
                self.expected[command].append(measured(self.after))
                self.legitimate |= counted(self.after)

    def disturbed(self, fault: Fault) -> tuple[list[str], list[str]]:
        """Disturb the command.

        Returns:
            What is wrong with the files and with what follows, and how the command's last words
            fell short.
        """
        copied(self.start, self.work)
        ending = perform(self.scenario.disturbed, self.work, fault)
        wrong = []
        if fault.kind != "remove":
            wrong += self.deleted()
        wrong += self.uncounted(self.work)
        files = json.dumps(state(self.work, logs=True), sort_keys=True)
        if files not in self.judged:
            self.judged[files] = list(self.follow())
        return wrong + self.judged[files], list(unclear(ending, fault, self.operations[fault.at]))

    def deleted(self) -> Iterator[str]:
        """The user's files that are gone."""
        for path in self.start.rglob("mine.txt"):
            name = path.relative_to(self.start)
            if not (self.work / name).exists():
                yield f"deleted the user's {name}"

    def follow(self) -> Iterator[str]:
        """What is wrong with what can be read, and after the commands that follow."""
        if self.scenario.reads:
            ending = perform(("tests.faults.reading", self.scenario.reads), self.work)
            if ending.status != 0:
                yield f"cannot be read: {ending.last_line}"
        for command, expected in self.expected.items():
            ending = perform(command, copied(self.work, self.after))
            if command == self.scenario.disturbed:
                files = state(self.after)
            else:
                files = measured(self.after)
                yield from self.uncounted(self.after)
            if files not in expected:
                names = files.keys() | expected[0]
                differ = sorted(name for name in names if files.get(name) != expected[0].get(name))
                words = f"{' '.join(command[-2:])}: status {ending.status}"
                yield f"{words}, not the files expected: {differ}: {ending.last_line}"
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


def undisturbed(command: Command, folder: Path) -> Ending:
    """Run a command that nothing disturbs."""
    ending = perform(command, folder)
    if ending.status != 0:
        raise RuntimeError(
            f"{command} ended with status {ending.status} undisturbed:\n{ending.output}"
        )
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
    digests = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if not path.is_file() or NO_MATTER.fullmatch(path.name):
            continue
        if name.startswith("runs/logs/") and not logs:
            continue
        content = path.read_bytes()
        if path.suffix == ".json":
            content = without_times(content)
        elif path.suffix == ".html":
            content = TOLD_TIMES.sub(b"", content)
        digests[NUMBER.sub(".N.partial", name)] = digest_of(content)
    return digests


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def measured(folder: Path) -> dict[str, str]:
    """The state of the tables, the examples and the weights: what another command may not
    change."""
    kinds = (".parquet", ".safetensors")
    return {name: digest for name, digest in state(folder).items() if name.endswith(kinds)}


def without_times(content: bytes) -> bytes:
    """A JSON file without them; a damaged one as it is."""

    def timeless(entries: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in entries.items() if key not in TIMES}

    try:
        return json.dumps(json.loads(content, object_hook=timeless), sort_keys=True).encode()
    except ValueError:
        return content


def counted(folder: Path) -> set[tuple[str, str, str]]:
    """What counts as measured: (table, its settings, digest of its file) of every table that a
    manifest lists."""
    tables = set()
    for manifest in folder.rglob("manifest.json"):
        if manifest.parent.name == PREPARED:  # not true yet
            continue
        content = json.loads(manifest.read_bytes())
        for name, entry in content["tables"].items():
            path = manifest.parent / entry.get("file", f"tables/{name}.parquet")
            listed = content.get("files", {}).get(f"tables/{name}.parquet", {}).get("sha256")
            settings = json.dumps(entry["settings"], sort_keys=True)
            digest = counted_digest(manifest.parent, path, listed)
            tables.add((str(path.relative_to(folder)), settings, digest))
    return tables


def counted_digest(run: Path, path: Path, listed: str | None) -> str:
    """The digest of a table's file that the manifest lists: in place, or not moved there yet."""
    prepared = run / PREPARED / path.relative_to(run)
    digests = [digest_of(file.read_bytes()) for file in (path, prepared) if file.is_file()]
    if listed is not None and listed in digests:
        return listed
    return digests[0] if digests else "missing"
