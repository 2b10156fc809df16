"""Studies: experiments of several runs that refer to each other, carried out in order, finished parts reused.

A study names its members in stages; a stage may look at the runs of the stages before it. Every member is an ordinary
run in its ordinary directory, so that a study that was killed goes on where it was, and another study, or the user, may
use the same runs. To add a study: a file here, an experiment in conf/, a reading in attnprobe/report/studies/.
"""

import os
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from attnprobe.data.once import read_once
from attnprobe.data.sources import SPLITS
from attnprobe.errors import UserError, answering_disk
from attnprobe.overrides import quoted
from attnprobe.report.studies import STUDY
from attnprobe.results.checksums import SEAL, sealed
from attnprobe.results.directory import RunDirectory
from attnprobe.results.files import write_sealed
from attnprobe.results.fingerprint import fingerprint
from attnprobe.results.untrusted import MAX_JSON, read_bytes, read_json
from attnprobe.running.run import run
from attnprobe.running.settings import Settings, check_references
from attnprobe.shown import duration

PLAN = "plan.json"
"""Written before a study begins."""

MAX_ROWS = 10**9
"""No plan takes more rows of a split."""

OWN = ("experiment", "study", "run_dir", "on_finished", "teacher", "probe")
"""Settings of the study itself, which its members do not inherit from the command line."""

Compose = Callable[[Sequence[str]], DictConfig]
"""Command-line arguments → the configuration that they give."""


@dataclass(frozen=True)
class Member:
    """One run of a study.

    Attributes:
        role: what it is in the study, such as `base`; its tables are filed under the experiment `<study>_<role>`.
        seed: the run's seed.
        overrides: how it differs from the user's command line.
        parameter: the number that tells the members of one role apart, such as λ.
    """

    role: str
    seed: int
    overrides: tuple[str, ...] = ()
    parameter: float | None = None


@dataclass(frozen=True)
class Done:
    """A member and its finished run's directory."""

    member: Member
    directory: Path


@dataclass(frozen=True)
class Plan:
    """What a study decides before it begins: how many rows its members take, and a sentence that says so.

    Attributes:
        rows: split → at most that many of its rows (`data.most`), for all members; empty: as the command line says.
        words: the sentence.
        seconds: what the whole study is expected to take, its page included; None where nobody measured, or not now.
    """

    rows: Mapping[str, int] = field(default_factory=dict)
    words: str = ""
    seconds: float | None = None

    @property
    def overrides(self) -> list[str]:
        """The same as the members' command line says it."""
        limits = ", ".join(f"{split}: {count}" for split, count in self.rows.items())
        return [f"data.most={{{limits}}}"] if limits else []

    @classmethod
    def read(cls, path: Path) -> "Plan":
        """The plan in a file, which may say this and nothing else.

        Raises:
            FileNotFoundError: there is none.
            UserError: the file is damaged or changed, or says anything else.
        """
        content = read_json(path)
        rows, words = content.get("rows"), content.get("words")
        good = set(content) - {SEAL} == {"rows", "words"} and isinstance(rows, dict) and set(rows) <= set(SPLITS)
        counts = rows.values() if isinstance(rows, dict) else ()
        good = good and all(type(count) is int and 0 < count <= MAX_ROWS for count in counts)
        if not (
            isinstance(rows, dict) and good and isinstance(words, str) and len(words) <= 2000 and words.isprintable()
        ):
            raise UserError(
                f"{path} is not a study's plan: expected rows per split (1 to {MAX_ROWS:,}) and a line of text, and "
                f"nothing else. Remove it, and the study plans again; or choose another output=…"
            )
        if sealed(content).encode() != read_bytes(path, limit=MAX_JSON):
            raise UserError(
                f"{path} has changed since the study wrote it, or is of an older version: a study keeps its plan, or its "
                f"runs would differ in their rows. Remove it, and the study plans again; or choose another output=…"
            )
        return cls(rows, words)


class Study(ABC):
    """An experiment of several runs. Subclasses are dataclasses with their settings as fields."""

    name: ClassVar[str]

    def plan(self, compose: Compose) -> Plan:
        """Decide once what all members share; a resumed study keeps its plan.

        Args:
            compose: changes to the command line → the configuration that it then gives.
        """
        return Plan()

    @abstractmethod
    def stages(self, seed: int, model: str, done: list[Done]) -> Iterator[list[Member]]:
        """Yield lists of members; `done` grows while they are carried out, and later stages may read it.

        Args:
            seed: the seed of the command line.
            model: name of the model that the command line describes.
        """


@answering_disk()
@read_once()
def carry_out_study(
    overrides: Sequence[str], compose: Compose, *, on_plan: Callable[[Plan], None] = lambda plan: None
) -> Path:
    """Carry out all members of a study, or what is left of them.

    Args:
        overrides: the user's command line.
        compose: makes a configuration of it.
        on_plan: is given the plan.

    Returns:
        the study's directory, `<output>/<data>/<study>-<fingerprint>`; its study.json lists the members.

    Raises:
        UserError: a setting cannot be used, or a member failed; finished members are kept for the next try.
    """
    config = compose(overrides)
    check_references(OmegaConf.to_container(config))
    study: Study = instantiate(config.study)
    settings = OmegaConf.to_container(config.study, resolve=True)
    own = Settings.of(compose(changed(overrides, [])))
    directory = Path(config.output) / str(config.data.name) / f"{study.name}-{fingerprint([settings, own.training])}"
    plan = planned(study, lambda changes: compose(changed(overrides, changes)), directory)
    on_plan(plan)
    # the study's own choice, which an experiment's file may have made: members know nothing of the experiment
    figures = f"figures={str(bool(config.figures)).lower()}"
    done: list[Done] = []
    for number, stage in enumerate(study.stages(int(config.seed), str(config.model.name), done), start=1):
        began = time.monotonic()
        for place, member in enumerate(stage, start=1):
            left = (time.monotonic() - began) / max(1, place - 1) * (len(stage) - place + 1)
            time_left = f" (about {duration(left)} left of this stage)" if place > 1 else ""
            print(
                f"{study.name}, stage {number}, run {place} of {len(stage)}: {described(member)}{time_left}", flush=True
            )
            part = compose(changed(overrides, [f"seed={member.seed}", figures, *plan.overrides, *member.overrides]))
            part.experiment = f"{study.name}_{member.role}"
            done.append(Done(member, run(part, sweep=True)))
    write_sealed(
        {
            "study": study.name,
            "data": config.data.name,
            "model": config.model.name,
            "settings": settings,
            "plan": plan.words,
            "members": [listed(one, directory) for one in done],
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        },
        directory / STUDY,
    )
    return directory


def planned(study: Study, compose: Compose, directory: Path) -> Plan:
    """The study's plan, from plan.json where there is one: what was decided by this machine's speed stays decided."""
    path = directory / PLAN
    try:
        plan = Plan.read(path)
    except (FileNotFoundError, NotADirectoryError):
        plan = study.plan(compose)
        write_sealed({"rows": dict(plan.rows), "words": plan.words}, path)
    if plan.words:
        print(f"{study.name}: {plan.words}", flush=True)
    return plan


def said_and_taken(plan: Plan, seconds: float) -> str:
    """The estimate beside what it took, as a line; empty where nothing was estimated.

    >>> said_and_taken(Plan(seconds=180), 192)
    'took 3.2 minutes; 3.0 were expected'
    """
    return "" if plan.seconds is None else f"took {seconds / 60:.1f} minutes; {plan.seconds / 60:.1f} were expected"


def described(member: Member) -> str:
    """The member in a few words.

    >>> described(Member("adversary", 3, parameter=0.01))
    'adversary 0.01, seed 3'
    """
    return f"{member.role}{'' if member.parameter is None else f' {member.parameter:g}'}, seed {member.seed}"


def listed(one: Done, directory: Path) -> dict[str, Any]:
    """A finished member as study.json lists it; its directory relative to the study's, so that both can move."""
    manifest = RunDirectory(one.directory).manifest()
    return {
        "role": one.member.role,
        "seed": one.member.seed,
        "parameter": one.member.parameter,
        "run_id": manifest["run_id"],
        "directory": Path(os.path.relpath(one.directory.resolve(), directory.resolve())).as_posix(),
    }


def changed(overrides: Iterable[str], changes: Sequence[str]) -> list[str]:
    """A command line with some of its settings replaced, and without those of the study itself.

    A replaced choice takes the choices below it along: `model=average` replaces `model/attention=dot` as well. A probe's
    settings stay where the changes have that probe.

    >>> changed(["+experiment=wiegreffe", "data=sst", "model/attention=dot", "seed=1"], ["seed=2", "model=average"])
    ['data=sst', 'seed=2', 'model=average']
    >>> changed(["probe.adversarial.steps=9", "probe.permutation.samples=9"], ["probe=[adversarial]"])
    ['probe.adversarial.steps=9', 'probe=[adversarial]']
    """
    replaced = [key(change) for change in changes]
    probes = {name for change in changes if key(change) == "probe" for name in re.findall(r"\w+", change.split("=")[1])}
    kept = []
    for override in overrides:
        name = key(override)
        parts = re.split(r"[./]", name)
        own = parts[0] in OWN and not (parts[0] == "probe" and len(parts) > 1 and parts[1] in probes)
        if not own and not any(name == other or name.startswith(f"{other}/") for other in replaced):
            kept.append(override)
    return kept + list(changes)


def without_learned_attention(model_class: str | None) -> str:
    """How a member differs that attends to everything alike.

    Args:
        model_class: of a whole model, which has no stage to exchange: the layer that is examined is made even; None: of one
            of three stages.
    """
    return "model/attention=uniform" if model_class is None else "model.uniform=last"


def key(override: str) -> str:
    """The setting that a command-line argument changes.

    >>> key("+experiment=jain"), key("model/attention@model=dot"), key("~probe.permutation")
    ('experiment', 'model/attention', 'probe.permutation')
    """
    return override.lstrip("+~").split("=")[0].split("@")[0]


def with_teacher(overrides: Sequence[str], compose: Compose) -> list[str]:
    """The command line with `teacher=auto` replaced by the directory of the teacher, which is found finished or trained.

    The teacher has this run's data, model and seed, but for `teacher_overrides`.
    """
    config = compose(overrides)
    if config.teacher != "auto":
        return list(overrides)
    teacher = compose(changed(overrides, config.teacher_overrides))
    teacher.experiment = "teacher"
    if OmegaConf.to_container(teacher.data, resolve=True) != OmegaConf.to_container(config.data, resolve=True):
        raise UserError("teacher_overrides change the data: a teacher has to see the same examples as its student")
    directory = run(teacher, sweep=True)
    print(f"teacher: {directory}", flush=True)
    return [override for override in overrides if key(override) != "teacher"] + [f"teacher={quoted(str(directory))}"]
