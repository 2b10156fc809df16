"""Every fault at every operation of every scenario, and what came of it."""

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.operations import Fault
from tests.faults.processes import Ending, perform
from tests.faults.scenarios import Command, Scenario
from tests.faults.states import counted, leave_mine, mine, state

STATUS = {"kill": -9, "interrupt": 130, "interrupt_twice": 130, "terminate": 143, "full": 2, "remove": 2, "error": 1}
HYDRAS = "os.mkdir ."
"""The operation that Hydra does before the program's own first one."""
LINE_EXPECTED = ("full", "remove", "interrupt", "interrupt_twice", "terminate")


@dataclass(frozen=True)
class Finding:
    """What one fault led to.

    Attributes:
        operation: what was about to be done.
        wrong: why the tables are wrong, or are no longer there; empty: they are right.
        unclear: how the disturbed command's last words fell short; empty: they did not.
    """

    scenario: str
    fault: Fault
    operation: str
    wrong: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()


@dataclass
class Prepared:
    """A scenario's folder before the disturbed command, and what an undisturbed one makes of it.

    Attributes:
        expected: for all commands that may follow, the states of the folder in which they may end.
        legitimate: the tables that may count (`states.counted`).
    """

    scenario: Scenario
    folder: Path
    operations: list[str]
    expected: list[list[dict[str, str]]]
    legitimate: set[tuple[str, str, str]]
    judged: dict[str, tuple[str, ...]] = field(default_factory=dict)


def prepared(scenario: Scenario, place: Path) -> Prepared:
    start, work = place / "start", place / "work"
    shutil.rmtree(place, ignore_errors=True)
    start.mkdir(parents=True)
    for one in scenario.before:
        succeed(one, start)
    leave_mine(start)
    shutil.copytree(start, work)
    ending = succeed(scenario.disturbed, work)
    expected, legitimate = [], counted(start) | counted(work)
    for following in scenario.after:
        # the same command ends where it ended; another one may find what it did, or nothing of it
        states = [] if following != scenario.disturbed else [state(work)]
        for before in (start, work) if following != scenario.disturbed else ():
            folder = place / "after"
            shutil.copytree(before, folder)
            succeed(following, folder)
            states.append(measured(state(folder)))
            legitimate |= counted(folder)
            shutil.rmtree(folder)
        expected.append(states)
    return Prepared(scenario, start, ending.operations, expected, legitimate)


def succeed(one: Command, folder: Path) -> Ending:
    ending = perform(one, folder)
    if ending.status != 0:
        raise RuntimeError(f"{one} ended with status {ending.status} undisturbed:\n{ending.output}")
    return ending


def faults(ready: Prepared, kinds: Sequence[str], points: int | None) -> Iterator[Fault]:
    places = range(len(ready.operations))
    for number, kind in enumerate(kinds):
        if kind == "remove" and ready.scenario.before:
            continue  # the same command would find nothing of what it goes by
        chosen: Sequence[int] = places
        if points is not None and points < len(places):
            step = len(places) / points
            shift = number / len(kinds)  # the kinds at different places
            chosen = [places[int((i + shift) * step)] for i in range(points)]
        yield from (Fault(kind, at) for at in chosen)


def tried(ready: Prepared, fault: Fault, place: Path) -> Finding:
    folder = place / "work"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ready.folder, folder)
    ending = perform(ready.scenario.disturbed, folder, fault)
    lost = mine(ready.folder) - mine(folder) if fault.kind != "remove" else set()
    wrong = [f"deleted the user's {name}" for name in sorted(lost)]
    wrong += uncounted(ready, folder)
    there = json.dumps(state(folder, ()), sort_keys=True)
    if there not in ready.judged:
        ready.judged[there] = tuple(followed(ready, folder, place / "after"))
    operation = ready.operations[fault.at]
    return Finding(
        ready.scenario.name,
        fault,
        operation,
        tuple(wrong) + ready.judged[there],
        tuple(unclear(ending, fault, operation)),
    )


def uncounted(ready: Prepared, folder: Path) -> Iterator[str]:
    """What counts as measured, and is not what was measured with these settings."""
    try:
        for name, settings, _ in sorted(counted(folder) - ready.legitimate):
            yield f"counts, and is not right: {name} {settings}"
    except ValueError as error:
        yield f"a manifest is damaged: {error}"


def measured(there: dict[str, str]) -> dict[str, str]:
    """The tables, the examples and the weights of a state: what another command may not change."""
    return {name: digest for name, digest in there.items() if name.endswith((".parquet", ".safetensors"))}


def followed(ready: Prepared, left: Path, folder: Path) -> Iterator[str]:
    """What is wrong with what can be read, and after the commands that follow."""
    if ready.scenario.reads:
        ending = perform(Command((ready.scenario.reads,), "tests.faults.reading"), left)
        if ending.status != 0:
            yield f"cannot be read: {last_line(ending)}"
    for one, expected in zip(ready.scenario.after, ready.expected, strict=True):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(left, folder)
        ending = perform(one, folder)
        there = state(folder)
        if one != ready.scenario.disturbed:
            there = measured(there)
            yield from uncounted(ready, folder)
        if there in expected:
            if ending.status not in (0, 2) or "Traceback" in ending.output:
                yield f"again: right, but status {ending.status}: {last_line(ending)}"
            continue
        wanted = expected[0]
        names = sorted(name for name in there.keys() | wanted.keys() if there.get(name) != wanted.get(name))
        kinds = [("-" if name not in there else "+" if name not in wanted else "≠") + name for name in names]
        shown = f"{', '.join(kinds[:4])}{' …' if len(kinds) > 4 else ''}"
        yield f"{' '.join(one.arguments[-2:])}: status {ending.status}, {shown}: {last_line(ending)}"


def unclear(ending: Ending, fault: Fault, operation: str = "") -> Iterator[str]:
    """How the last words of a disturbed command fell short."""
    if fault.kind == "error" and operation == HYDRAS and ending.status == 2:
        return  # where settings are still composed, every exception is taken for a mistake in them
    if ending.status == 0 and fault.kind in ("full", "error", "remove"):
        return  # what could not be done was not needed
    if ending.status != STATUS[fault.kind]:
        yield f"status {ending.status}, expected {STATUS[fault.kind]}"
    if fault.kind in LINE_EXPECTED:
        if "Traceback" in ending.output:
            yield f"a traceback: {last_line(ending)}"
        elif "attnprobe" not in last_line(ending):
            yield f"no last word: {last_line(ending)}"


def last_line(ending: Ending) -> str:
    lines = [line for line in ending.output.replace("\r", "\n").splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("Set the environment variable HYDRA_FULL_ERROR")]
    return lines[-1][:200] if lines else ""


def carried_out(
    scenario: Scenario, kinds: Sequence[str], points: int | None, part: int = 0, parts: int = 1
) -> Iterator[tuple[Prepared, Finding]]:
    """All faults of one scenario, or every `parts`-th."""
    with tempfile.TemporaryDirectory(prefix="attnprobe-faults-") as name:
        ready = prepared(scenario, Path(name).resolve())
        for number, fault in enumerate(faults(ready, kinds, points)):
            if number % parts == part:
                yield ready, tried(ready, fault, Path(name).resolve())
