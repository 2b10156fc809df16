"""The command line: python -m attnprobe +experiment=jain_adversarial [data=…] [model=…] [probe=[…]]
[-m]"""

import os
import sys
import time
import traceback
from contextlib import suppress
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException, InstantiationException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attnprobe import __version__
from attnprobe.core.errors import UserError
from attnprobe.core.processes import MEMBER, answering_signals, end_with_pool, wait_briefly
from attnprobe.core.sanitise import visible
from attnprobe.runs.answers import answer, readable
from attnprobe.runs.composition import CONFIGURATION, composed, with_importances

FULL_ERROR = "HYDRA_FULL_ERROR"
CATCHES = "ATTNPROBE_CATCHES"
"""The first is 1 where a user wants to see tracebacks; or where this program set both, so that
Hydra hands on what it would print itself; jobs inherit them."""
RESULTS: list[Path] = []
"""Directories of the studies and runs that this process carried out, for commands that go on with
them."""
TYPED: dict[str, str] = {}
"""How a setting begins → how a command that was given options calls it, in what is said of a
mistake."""


def main() -> None:
    """The command line; a mistake in it is answered with one line, before anything heavy is
    imported."""
    if "--version" in sys.argv[1:]:  # Hydra would say its own
        return print(f"attnprobe {__version__}")
    if wants_traceback():
        return task()
    os.environ |= {FULL_ERROR: "1", CATCHES: "1"}
    try:
        os.getcwd()
    except FileNotFoundError:
        stop(
            "the working directory has been removed: change to one that exists and give the same command again"
        )
    sys.argv[1:] = [readable(argument) for argument in sys.argv[1:]]
    said = [one for one in sys.argv[1:] if one.lstrip("+").startswith("hydra.output_subdir=")]
    if kept := [
        one for one in said if not one.endswith("=null")
    ]:  # Lightning gives null to a run's other processes
        stop(
            f"{kept[0]}: Hydra would write over files of that folder: leave it out; each run keeps its own settings"
        )
    try:
        return task()
    except BrokenPipeError:  # its reader has seen enough, as head has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None
    except Exception as error:
        if isinstance(error, CompactHydraException) and str(error).startswith(
            "attnprobe: "
        ):  # of a job of a sweep
            print(visible(str(error)), file=sys.stderr)
            raise SystemExit(
                2 if isinstance(error.__cause__, UserError) else 1
            ) from None  # 2: none was started
        if HydraConfig.initialized() and not isinstance(error, OmegaConfBaseException):
            raise  # no mistake in the settings
        stop(answer(error, [one for one in sys.argv[1:] if not one.startswith("-")]))


def wants_traceback() -> bool:
    """Whether the user, and not this program, set HYDRA_FULL_ERROR=1."""
    return os.environ.get(FULL_ERROR) == "1" and CATCHES not in os.environ


def stop(message: str) -> None:
    """End with one line and status 2."""
    for setting, typed in TYPED.items():
        message = message.replace(setting, typed)
    print(f"attnprobe: {visible(message)}", file=sys.stderr)
    raise SystemExit(2) from None


@answering_signals()
@hydra.main(config_path=str(CONFIGURATION), config_name="config", version_base="1.3")
def task(config: DictConfig) -> float | None:
    """Run one experiment; returns in a sweep the number that a search for settings optimises."""
    end_with_pool()
    wait_briefly()
    sweep = HydraConfig.get().mode == RunMode.MULTIRUN
    # as they were written: one that holds `${…}` stays as it is
    overrides = [
        str(one)
        for one in OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False) or ()
    ]
    try:
        config = with_importances(config, overrides)
        if (name := HydraConfig.get().job.name).startswith(MEMBER):
            config.experiment = name.removeprefix(MEMBER)
        return carried_out(config, overrides, sweep=sweep)
    except (UserError, InstantiationException, OmegaConfBaseException) as raised:
        error = raised if isinstance(raised, UserError) else raised.__cause__
        if wants_traceback() and error is not None and error.__cause__ is not None:
            raise
        if sweep:  # Hydra's own launchers go on with the next job
            raise CompactHydraException(f"attnprobe: {answer(raised, overrides)}") from None
        stop(answer(raised, overrides))
    except Exception:
        if sweep or wants_traceback():
            raise
        # said here: what Hydra hands on no longer tells whether the settings or the program was
        # wrong
        traceback.print_exc()
        raise SystemExit(1) from None
    return None


def carried_out(config: DictConfig, overrides: list[str], *, sweep: bool) -> float | None:
    """Train and examine, or carry out a study, and say what came of it."""
    began = time.perf_counter()
    if config.study is not None and not sweep:
        from attnprobe.findings.studies.base import already_answered
        from attnprobe.report.publish import publish_study

        with suppress(UserError):  # of one that is damaged, what is missing is made again
            if (finished := already_answered(config)) is not None:
                publish_study(finished, verbose=config.verbose)
                RESULTS.append(finished)
                return None
    # importing torch takes seconds that --help need not wait for, and the report more that a
    # mistake need not
    from attnprobe.runs.settings import Settings, constructible, refuse_several_devices

    settings = constructible(config, overrides)
    from attnprobe.findings.groups import read_run
    from attnprobe.findings.headlines import compare
    from attnprobe.findings.stored import card_of_run
    from attnprobe.report.terminal import answer_lines, data_notes, notes_of_tests, print_summary
    from attnprobe.runs.launching import objective, options_of
    from attnprobe.runs.run import examine
    from attnprobe.runs.studies import Plan, carry_out_study, with_teacher

    if sweep or config.study is not None:
        refuse_several_devices(config.trainer)
    if config.study is not None:
        plans: list[Plan] = []
        options = options_of(HydraConfig.get())
        RESULTS.append(carry_out_study(overrides, composed, options=options, on_plan=plans.append))
        publish_study(RESULTS[-1], verbose=config.verbose)
        for line in filter(None, (plan.beside(time.perf_counter() - began) for plan in plans)):
            print(line)
        return None
    if settings.config["teacher"] == "auto":
        settings = Settings.of(composed(with_teacher(overrides, composed)))
    directory = examine(settings, sweep=sweep)
    RESULTS.append(directory)
    read = read_run(directory)
    lines = answer_lines(card_of_run(read), read.quality, read.attention_on)
    if config.verbose:
        print_summary(compare(read.numbers), classes=read.manifest.get("classes", []))
        tables = read.manifest.get("tables", {})
        counts = read.manifest.get("counts", {})
        lines = [*data_notes(counts), *notes_of_tests([tables]), *lines]
    for line in lines:
        print(line)
    # a path on a line of its own, unbroken, to be copied
    print(visible(f"results: {directory}"))
    print("" if config.verbose else "all numbers: the same command with verbose=true")
    return objective(directory) if sweep else None


if __name__ == "__main__":
    main()
