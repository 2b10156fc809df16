"""Studies carried out: experiments of several runs that refer to each other, finished parts reused.

Without `launcher=` on the command line the members run one after another in this process; with it
each is a job, as in a sweep (`attnprobe.runs.launching`). To add a study: a file in
attnprobe/findings/studies/ and an experiment in conf/."""

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from pydantic import TypeAdapter, ValidationError

from attnprobe.core.clock import CLOCK, TimeIsUp, clock_time
from attnprobe.core.errors import UserError, answering_disk
from attnprobe.core.printing import tell
from attnprobe.core.processes import IS_JOB, MEMBER
from attnprobe.core.sanitise import quoted
from attnprobe.findings.studies.base import (
    STUDY,
    Compose,
    Done,
    Member,
    Plan,
    Study,
    settings_fingerprint,
)
from attnprobe.results.directory import RunDirectory
from attnprobe.results.files import DamagedRun, read_json, records_of, write_json, write_sealed
from attnprobe.results.fingerprint import fingerprint
from attnprobe.results.writer import own_sealed
from attnprobe.runs.answers import answer
from attnprobe.runs.forecasts import measured_costs
from attnprobe.runs.launching import Cluster, Job, Machine, Outcome, conclude, launch, places_of
from attnprobe.runs.prepare import is_finished
from attnprobe.runs.run import PHASES, run
from attnprobe.runs.settings import Settings, constructible

PLAN = "plan.json"
NOT_INHERITED = ("experiment", "study", "run_dir", "on_finished", "teacher", "probe")
"""Settings of the study itself, which its members do not inherit from the command line."""


@answering_disk()
def carry_out_study(
    overrides: Sequence[str],
    compose: Compose,
    *,
    settings: Settings | None = None,
    options: Sequence[str] = (),
    on_plan: Callable[[Plan], None] = lambda plan: None,
) -> Path:
    """Carry out all members of a study, or what is left of them.

    Args:
        overrides: the study's command line.
        compose: makes a configuration of a command line.
        settings: that command line's, where they are constructed already.
        options: Hydra's own options there (`launching.options_of`), for members that are jobs.
        on_plan: is called with the plan before the first member begins.

    Returns:
        the study's directory, whose study.json lists the members.

    Raises:
        UserError: if a setting or a file cannot be used, or a member failed; finished members are
            kept for the next try.
    """
    config = compose(overrides)
    if settings is None:
        settings = constructible(config, overrides)
    study = settings.parts.study
    if not isinstance(study, Study):
        raise UserError(
            f"experiment={config.experiment} is no study of several runs: expected such as "
            f"+experiment=audit, or attnprobe.runs.run.run for a single run"
        )
    base = Settings.of(compose(changed(overrides, [])))
    name = f"{study.name}-{fingerprint([settings.config['study'], base.training])}"
    directory = Path(config.output) / str(config.data.name) / name
    logs = Path(config.output) / "logs" / name
    places = _places(config, overrides, logs)

    with CLOCK.command():
        with CLOCK.step("plan"):
            plan = _plan(study, directory / PLAN, overrides, compose)
        if plan.words:
            tell(f"{study.name}: {plan.words}")
        on_plan(plan)
        if plan.members:
            CLOCK.plan([*plan.members, plan.page])

        composer = _MemberComposer(study.name, overrides, _shared_overrides(config, plan), compose)
        if places is None:
            carried_out = _carry_out_here(study, config, composer, plan)
        else:
            carried_out = _carry_out_as_jobs(study, config, composer, options, places, logs)
        if plan.members:
            CLOCK.plan([plan.page])  # members that are left out take no time
        if carried_out.left_out:
            left_out = "; ".join(carried_out.left_out.values())
            tell(
                f"{study.name}: time was up after {clock_time(CLOCK.elapsed)}; left out: "
                f"{left_out}. The same command again goes on with them"
            )

    members, asks_again = _members_content(carried_out.done, directory)
    asks_again = asks_again or bool(carried_out.left_out)
    content = {
        "study": study.name,
        "data": config.data.name,
        "model": config.model.name,
        "settings": settings.config["study"],
        "plan": plan.words,
        "left_out": list(carried_out.left_out.values()),
        "asked": "" if asks_again else settings_fingerprint(config),
        "inputs": records_of({str(path): path for path in base.input_files().values()}),
        "members": members,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    write_sealed(content, own_sealed(directory / STUDY))
    return directory


def _places(config: DictConfig, overrides: Sequence[str], logs: Path) -> Machine | Cluster | None:
    """Where the members run as jobs; None: one after another in this process.

    Raises:
        UserError: if the launcher cannot run a study.
    """
    has_launcher = any(key(override).split(".")[0] == "launcher" for override in overrides)
    if not has_launcher or IS_JOB in os.environ or config.launcher.name == "inline":
        return None
    if config.launcher.name == "ray":
        raise UserError(
            "launcher=ray runs the jobs of a sweep (-m): "
            "for a study expected local, submitit or inline"
        )
    on_gpu = config.trainer.accelerator not in ("cpu", "mps")
    places = places_of(config.launcher, on_gpu=on_gpu, logs=logs)
    is_single = isinstance(places, Machine) and places.count == 1
    return None if is_single else places


def _plan(study: Study, path: Path, overrides: Sequence[str], compose: Compose) -> Plan:
    """The plan at `path`; made and written there where there is none.

    What was decided by this machine's speed stays decided.

    Raises:
        UserError: if the file is no plan.
    """
    if path.exists():
        try:
            return TypeAdapter(Plan).validate_python(read_json(path))
        except (ValidationError, DamagedRun):
            raise UserError(
                f"{path} is not a study's plan: remove it, and the study plans again"
            ) from None

    def compose_changed(changes: Sequence[str]) -> DictConfig:
        command_line = changed(overrides, changes)
        try:
            return compose(command_line)
        except HydraException as error:
            raise UserError(answer(error, command_line)) from None

    plan = study.plan(compose_changed, measured_costs)
    kept = {"rows": dict(plan.rows), "words": plan.words}
    write_json(kept | {"members": list(plan.members), "page": plan.page}, path)
    return plan


def _shared_overrides(config: DictConfig, plan: Plan) -> list[str]:
    """Settings that all members share.

    They are the study's own choice, which its experiment's file may have made: members know nothing
    of the experiment.
    """
    shared = [f"figures={str(bool(config.figures)).lower()}"]
    if plan.rows:
        limits = ", ".join(f"{split}: {count}" for split, count in plan.rows.items())
        shared.append(f"data.most={{{limits}}}")
    return shared


@dataclass(frozen=True)
class _MemberComposer:
    """From a member to its command line and its configuration.

    Attributes:
        study: name of the study.
        overrides: the study's command line.
        shared: see `_shared_overrides`.
        compose: makes a configuration of a command line.
    """

    study: str
    overrides: Sequence[str]
    shared: Sequence[str]
    compose: Compose

    def command_line(self, member: Member) -> list[str]:
        """The settings of a member, as on a command line."""
        changes = [f"seed={member.seed}", *self.shared, *member.overrides]
        return changed(self.overrides, changes)

    def configuration(self, member: Member) -> DictConfig:
        """The configuration of a member, whose tables are filed under its own experiment."""
        config = self.compose(self.command_line(member))
        config.experiment = f"{self.study}_{member.role}"
        return config


@dataclass(frozen=True)
class CarriedOut:
    """What came of a study's members.

    Attributes:
        done: the finished ones, each run once.
        left_out: member → what of it the time did not suffice for, in words.
    """

    done: list[Done] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    def add(self, member: Member, directory: Path) -> None:
        """Add a finished member; a run that was only added to is there already."""
        self.left_out.pop(str(member), None)  # further tests of a run include those before them
        if all(entry.directory != directory for entry in self.done):
            self.done.append(Done(member, directory))


def _carry_out_here(
    study: Study, config: DictConfig, composer: _MemberComposer, plan: Plan
) -> CarriedOut:
    """Run all members one after another in this process, as far as the study's time allows.

    A member that is expected to take longer than the time that is left is not begun.

    Raises:
        UserError: if the time is up before the first member is finished.
    """
    carried_out = CarriedOut()  # its members grow between the stages, which read them
    stages = study.stages(int(config.seed), str(config.model.name), carried_out.done)
    expected = iter(plan.members)
    time_for_members = None
    if study.limit is not None:
        time_for_members = max(0.0, study.limit - plan.page)
    with CLOCK.limited(time_for_members):
        for number, stage in enumerate(stages, start=1):
            for position, member in enumerate(stage, start=1):
                title = f"{study.name}, stage {number}, run {position} of {len(stage)}"
                tell(f"{title}: {member}")
                _carry_out_member(member, composer, carried_out, next(expected, 0.0))
    return carried_out


def _carry_out_member(
    member: Member, composer: _MemberComposer, carried_out: CarriedOut, expected: float
) -> None:
    """Run one member; `expected`: seconds that it takes on the machine as it was when planned.

    Raises:
        UserError: if the time is up, and no member is finished.
    """
    config = composer.configuration(member)
    is_first = not carried_out.done
    try:
        if not is_first and expected * CLOCK.slower > CLOCK.remaining:
            raise TimeIsUp(f"{member} would take too long")
        with CLOCK.phases(str(member), PHASES):
            carried_out.add(member, run(config, sweep=True))
    except TimeIsUp as error:
        if is_first:
            raise UserError(
                f"{error}. Nothing can be answered yet: a training that is finished is kept, and "
                f"the same command again goes on with it; study.minutes=… allows more time, fewer "
                f"training.epochs take less"
            ) from None
        carried_out.left_out[str(member)] = _left_out(member, config, carried_out.done)


def _left_out(member: Member, config: DictConfig, done: Sequence[Done]) -> str:
    """What is missing of a member: all of it, or tests of a run that is there."""
    directory = Settings.of(config).directory
    if all(entry.directory != directory for entry in done):
        return str(member)
    tables = RunDirectory(directory).manifest()["tables"]
    return f"tests of {member}: {', '.join(name for name in config.probe if name not in tables)}"


def _carry_out_as_jobs(
    study: Study,
    config: DictConfig,
    composer: _MemberComposer,
    options: Sequence[str],
    places: Machine | Cluster,
    logs: Path,
) -> CarriedOut:
    """Run the members of each stage at the same time.

    Raises:
        UserError: if a member failed.
    """
    carried_out = CarriedOut()  # its members grow between the stages, which read them
    outcomes: list[Outcome] = []
    stages = study.stages(int(config.seed), str(config.model.name), carried_out.done)
    for number, stage in enumerate(stages, start=1):
        title = f"{study.name}, stage {number}"
        jobs = []
        for position, member in enumerate(stage, start=1):
            stem = f"{number}-{position}-" + re.sub(r"[^\w.+-]+", "_", str(member))
            jobs.append(_job_of(member, composer, options, logs / f"{stem}.log"))

        outcomes += launch(jobs, places, logs=logs, title=f"{title}: ")
        for member, job in zip(stage, jobs, strict=True):
            if job.directory:
                carried_out.add(member, job.directory)
        failed = [outcome for outcome in outcomes if not outcome.succeeded]
        if failed:
            conclude(outcomes, Path(config.output))
            first = f"first {failed[0].job.name}: {failed[0].error}"
            raise UserError(f"{len(failed)} of the {len(jobs)} runs of {title} failed, {first}")
    if outcomes:
        conclude(outcomes, Path(config.output))
    return carried_out


def _job_of(member: Member, composer: _MemberComposer, options: Sequence[str], log: Path) -> Job:
    config = composer.configuration(member)
    settings = Settings.of(config)
    return Job.of(
        str(member),
        [*composer.command_line(member), f"hydra.job.name={MEMBER}{config.experiment}"],
        options,
        log,
        directory=settings.directory,
        done=is_finished(settings),
    )


def _members_content(done: Sequence[Done], directory: Path) -> tuple[list[dict[str, Any]], bool]:
    """What study.json says about the members.

    Returns:
        the members, and whether each has to be asked again: scores in a file of the user's may
        change.
    """
    members = []
    asks_again = False
    for entry in done:
        manifest = RunDirectory(entry.directory).manifest()
        for table in manifest["tables"].values():
            importances = table.get("importances", {}).values()
            asks_again = asks_again or any(facts.get("files") for facts in importances)
        # relative to the study's, so that both can move
        path = Path(os.path.relpath(entry.directory.resolve(), directory.resolve()))
        members.append(
            {
                "role": entry.member.role,
                "seed": entry.member.seed,
                "parameter": entry.member.parameter,
                "run_id": manifest["run_id"],
                "directory": path.as_posix(),
            }
        )
    return members, asks_again


def changed(overrides: Iterable[str], changes: Sequence[str]) -> list[str]:
    """A command line with some of its settings replaced, and without those of the study itself.

    A replaced choice takes the choices below it along, and that of a part of the model also its
    settings. A probe's settings stay where the changes have that probe.

    Args:
        overrides: the command line.
        changes: the new settings, which come last.

    >>> line = ["+experiment=wiegreffe", "data=sst", "model/attention=dot", "seed=1"]
    >>> changed(line, ["seed=2", "model=average"])
    ['data=sst', 'seed=2', 'model=average']
    >>> line = ["model/attention=rationale", "model.attention.mass=0.7", "model.width=32"]
    >>> changed(line, ["model/attention=uniform"])
    ['model.width=32', 'model/attention=uniform']
    >>> line = ["probe.adversarial.steps=9", "probe.permutation.samples=9"]
    >>> changed(line, ["probe=[adversarial]"])
    ['probe.adversarial.steps=9', 'probe=[adversarial]']
    """
    replaced = [key(change) for change in changes]
    probes = set()
    for change in changes:
        if key(change) == "probe":
            probes.update(re.findall(r"\w+", change.split("=")[1]))

    inherited = []
    for override in overrides:
        name = key(override)
        parts = re.split(r"[./]", name)
        is_kept_probe = parts[0] == "probe" and len(parts) > 1 and parts[1] in probes
        if parts[0] in NOT_INHERITED and not is_kept_probe:
            continue
        if any(_is_within(name, setting) for setting in replaced):
            continue
        inherited.append(override)
    return inherited + list(changes)


def _is_within(name: str, setting: str) -> bool:
    """Whether one setting is replaced with another: it is the same one, or a part of it."""
    if name == setting or name.startswith(f"{setting}/"):
        return True
    return "/" in setting and name.startswith(f"{setting.replace('/', '.')}.")


def key(override: str) -> str:
    """The setting that a command-line argument changes.

    >>> key("+experiment=jain"), key("model/attention@model=dot"), key("~probe.permutation")
    ('experiment', 'model/attention', 'probe.permutation')
    """
    return override.lstrip("+~").split("=")[0].split("@")[0]


def with_teacher(overrides: Sequence[str], compose: Compose) -> list[str]:
    """The command line with `teacher=auto` replaced by a teacher's directory.

    The teacher has this run's data, model and seed, except for `teacher_overrides`. It is trained
    where it is not finished yet.

    Args:
        overrides: the command line.
        compose: makes a configuration of a command line.

    Raises:
        UserError: if the teacher would see other data than its student, or cannot be trained.
    """
    config = compose(overrides)
    if config.teacher != "auto":
        return list(overrides)

    teacher = compose(changed(overrides, config.teacher_overrides))
    teacher.experiment = "teacher"
    teacher_data = OmegaConf.to_container(teacher.data, resolve=True)
    if teacher_data != OmegaConf.to_container(config.data, resolve=True):
        raise UserError(
            "teacher_overrides change the data: "
            "a teacher has to see the same examples as its student"
        )
    directory = run(teacher, sweep=True)
    print(f"teacher: {directory}", flush=True)
    rest = [override for override in overrides if key(override) != "teacher"]
    return [*rest, f"teacher={quoted(str(directory))}"]
