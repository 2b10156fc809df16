"""Studies carried out: experiments of several runs that refer to each other, finished parts reused.

Without `launcher=` on the command line the members run one after another in this process; with it
each is a job, as in a sweep (`attnprobe.runs.launching`). To add a study: a file in
attnprobe/findings/studies/ and an experiment in conf/."""

import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from omegaconf import OmegaConf
from pydantic import TypeAdapter, ValidationError

from attnprobe.core.errors import UserError, answering_disk
from attnprobe.core.processes import IS_JOB, MEMBER
from attnprobe.core.sanitise import duration, quoted
from attnprobe.findings.studies.base import STUDY, Compose, Done, Plan, Study, settings_fingerprint
from attnprobe.results.directory import RunDirectory
from attnprobe.results.files import DamagedRun, read_json, records_of, write_json, write_sealed
from attnprobe.results.fingerprint import fingerprint
from attnprobe.runs.forecasts import measured_costs
from attnprobe.runs.launching import Cluster, Job, Machine, Outcome, conclude, launch, places_of
from attnprobe.runs.prepare import is_finished
from attnprobe.runs.run import run
from attnprobe.runs.settings import Settings, check_references
from attnprobe.runs.validation import built_study

PLAN = "plan.json"
OWN = ("experiment", "study", "run_dir", "on_finished", "teacher", "probe")
"""Settings of the study itself, which its members do not inherit from the command line."""


@answering_disk()
def carry_out_study(
    overrides: Sequence[str],
    compose: Compose,
    *,
    options: Sequence[str] = (),
    on_plan: Callable[[Plan], None] = lambda plan: None,
) -> Path:
    """Carry out all members of a study, or what is left of them; returns its directory, whose
    study.json lists the members. `compose` makes a configuration of the command line; `options`
    (`launching.options_of`) is what else stands there, for members that are jobs.

    Raises:
        UserError: a setting cannot be used, or a member failed; finished members are kept for the
            next try.
    """
    config = compose(overrides)
    check_references(OmegaConf.to_container(config))
    study: Study = built_study(OmegaConf.to_container(config.study, resolve=True))
    settings = OmegaConf.to_container(config.study, resolve=True)
    own = Settings.of(compose(changed(overrides, [])))
    directory = (
        Path(config.output)
        / str(config.data.name)
        / f"{study.name}-{fingerprint([settings, own.training])}"
    )
    logs = Path(config.output) / "logs" / directory.name
    places: Machine | Cluster | None = None
    if any(key(one).split(".")[0] == "launcher" for one in overrides) and IS_JOB not in os.environ:
        if config.launcher.name == "ray":
            raise UserError(
                "launcher=ray runs the jobs of a sweep (-m): for a study expected local, submitit or inline"
            )
        if config.launcher.name != "inline":
            places = places_of(
                config.launcher, on_gpu=config.trainer.accelerator not in ("cpu", "mps"), logs=logs
            )
            places = None if isinstance(places, Machine) and places.count == 1 else places
    path = directory / PLAN
    if path.exists():  # what was decided by this machine's speed stays decided
        try:
            plan = TypeAdapter(Plan).validate_python(read_json(path))
        except (ValidationError, DamagedRun):
            raise UserError(
                f"{path} is not a study's plan: remove it, and the study plans again"
            ) from None
    else:
        plan = study.plan(lambda changes: compose(changed(overrides, changes)), measured_costs)
        write_json({"rows": dict(plan.rows), "words": plan.words}, path)
    if plan.words:
        print(f"{study.name}: {plan.words}", flush=True)
    on_plan(plan)
    # the study's own choice, which an experiment's file may have made: members know nothing of the
    # experiment
    limits = ", ".join(f"{split}: {count}" for split, count in plan.rows.items())
    shared = [
        f"figures={str(bool(config.figures)).lower()}",
        *([f"data.most={{{limits}}}"] if limits else []),
    ]
    done: list[Done] = []
    outcomes: list[Outcome] = []
    for number, stage in enumerate(
        study.stages(int(config.seed), str(config.model.name), done), start=1
    ):
        title = f"{study.name}, stage {number}"
        began = time.monotonic()
        jobs = []
        for place, member in enumerate(stage, start=1):
            line = changed(overrides, [f"seed={member.seed}", *shared, *member.overrides])
            part = compose(line)
            part.experiment = f"{study.name}_{member.role}"
            if places is None:
                left = (time.monotonic() - began) / max(1, place - 1) * (len(stage) - place + 1)
                time_left = f" (about {duration(left)} left of this stage)" if place > 1 else ""
                print(f"{title}, run {place} of {len(stage)}: {member}{time_left}", flush=True)
                done.append(Done(member, run(part, sweep=True)))
                continue
            its = Settings.of(part)
            log = f"{number}-{place}-" + re.sub(r"[^\w.+-]+", "_", str(member))
            named = [*line, f"hydra.job.name={MEMBER}{part.experiment}"]
            known = {"done": is_finished(its)}
            jobs.append(
                Job.of(
                    str(member),
                    named,
                    options,
                    logs / f"{log}.log",
                    directory=its.directory,
                    **known,
                )
            )
        if places is None:
            continue
        outcomes += launch(jobs, places, logs=logs, title=f"{title}: ")
        done += [
            Done(member, job.directory)
            for member, job in zip(stage, jobs, strict=True)
            if job.directory
        ]
        if failed := [outcome for outcome in outcomes if not outcome.succeeded]:
            conclude(outcomes, Path(config.output))
            first = f"first {failed[0].job.name}: {failed[0].error}"
            raise UserError(f"{len(failed)} of the {len(jobs)} runs of {title} failed, {first}")
    if outcomes:
        conclude(outcomes, Path(config.output))
    manifests = [RunDirectory(one.directory).manifest() for one in done]
    tables = [table for run in manifests for table in run["tables"].values()]
    # scores in a file of the user's may change, so that every member has to be asked again
    scored = any(
        one.get("files") for table in tables for one in table.get("importances", {}).values()
    )
    content = {
        "study": study.name,
        "data": config.data.name,
        "model": config.model.name,
        "settings": settings,
        "plan": plan.words,
        "asked": "" if scored else settings_fingerprint(config),
        "inputs": records_of({str(path): path for path in own.input_files().values()}),
        "members": [
            {name: getattr(one.member, name) for name in ("role", "seed", "parameter")}
            | {
                "run_id": manifest["run_id"],
                # relative to the study's, so that both can move
                "directory": Path(
                    os.path.relpath(one.directory.resolve(), directory.resolve())
                ).as_posix(),
            }
            for one, manifest in zip(done, manifests, strict=True)
        ],
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    write_sealed(content, directory / STUDY)
    return directory


def changed(overrides: Iterable[str], changes: Sequence[str]) -> list[str]:
    """A command line with some of its settings replaced, and without those of the study itself. A
    replaced choice takes the choices below it along, and a probe's settings stay where the changes
    have that probe.

    >>> changed(["+experiment=wiegreffe", "data=sst", "model/attention=dot", "seed=1"], ["seed=2", "model=average"])
    ['data=sst', 'seed=2', 'model=average']
    >>> changed(["probe.adversarial.steps=9", "probe.permutation.samples=9"], ["probe=[adversarial]"])
    ['probe.adversarial.steps=9', 'probe=[adversarial]']
    """
    replaced = [key(change) for change in changes]
    probes = {
        name
        for change in changes
        if key(change) == "probe"
        for name in re.findall(r"\w+", change.split("=")[1])
    }
    kept = []
    for override in overrides:
        name = key(override)
        parts = re.split(r"[./]", name)
        own = parts[0] in OWN and not (
            parts[0] == "probe" and len(parts) > 1 and parts[1] in probes
        )
        if not own and not any(name == other or name.startswith(f"{other}/") for other in replaced):
            kept.append(override)
    return kept + list(changes)


def key(override: str) -> str:
    """The setting that a command-line argument changes.

    >>> key("+experiment=jain"), key("model/attention@model=dot"), key("~probe.permutation")
    ('experiment', 'model/attention', 'probe.permutation')
    """
    return override.lstrip("+~").split("=")[0].split("@")[0]


def with_teacher(overrides: Sequence[str], compose: Compose) -> list[str]:
    """The command line with `teacher=auto` replaced by the directory of the teacher, which is found
    finished or trained: it has this run's data, model and seed, but for `teacher_overrides`."""
    config = compose(overrides)
    if config.teacher != "auto":
        return list(overrides)
    teacher = compose(changed(overrides, config.teacher_overrides))
    teacher.experiment = "teacher"
    if OmegaConf.to_container(teacher.data, resolve=True) != OmegaConf.to_container(
        config.data, resolve=True
    ):
        raise UserError(
            "teacher_overrides change the data: a teacher has to see the same examples as its student"
        )
    directory = run(teacher, sweep=True)
    print(f"teacher: {directory}", flush=True)
    return [override for override in overrides if key(override) != "teacher"] + [
        f"teacher={quoted(str(directory))}"
    ]
