"""The command line: `python -m attnprobe +experiment=jain [data=…] [model=…] [probe=[…]] [-m]`."""

import os
import sys
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException, InstantiationException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attnprobe import __version__
from attnprobe.core.clock import CLOCK
from attnprobe.core.errors import UserError, answering_permissions, as_typed
from attnprobe.core.launchers import is_worker, leave_other_launchers
from attnprobe.core.printing import ending_with_reader, tell
from attnprobe.core.processes import MEMBER, answering_signals, end_with_pool, wait_briefly
from attnprobe.core.references import check_references
from attnprobe.core.sanitise import visible
from attnprobe.runs.answers import answer, readable
from attnprobe.runs.composition import CONFIGURATION, composed, with_importances
from attnprobe.runs.plain_settings import check_plain_settings, refuse_page_of_several

if TYPE_CHECKING:
    from attnprobe.runs.settings import Settings

FULL_ERROR = "HYDRA_FULL_ERROR"
"""Variable of the environment: 1 where a user wants to see tracebacks, or beside `CATCHES`."""
CATCHES = "ATTNPROBE_CATCHES"
"""Variable by which this program marks that it set `FULL_ERROR` itself.

Hydra then hands on what it would print; jobs inherit both."""
RESULTS: list[Path] = []
"""Directories of this process's finished studies and runs, for commands that go on with them."""
DRY_RUN: list[bool] = []
"""Not empty: everything that can be refused before work begins is refused, and no work begins."""
TYPED: dict[str, str] = {}
"""How a setting begins → what a command calls it that has an option for it, for messages."""


def main() -> None:
    """The command line; a mistake ends in one line, before anything heavy is imported."""
    if "--version" in sys.argv[1:]:  # Hydra would print its own
        return print(f"attnprobe {__version__}")
    HydraConfig.instance().cfg = None  # that of another command in this process
    try:
        leave_other_launchers()
    except UserError as error:
        stop(str(error))
    if wants_traceback():
        with CLOCK.showing(), CLOCK.command():
            return task()
    os.environ |= {FULL_ERROR: "1", CATCHES: "1"}
    try:
        os.getcwd()
    except FileNotFoundError:
        stop(
            "the working directory has been removed: change to one that exists and give the same "
            "command again"
        )
    sys.argv[1:] = _multirun_first([readable(argument) for argument in sys.argv[1:]])
    _refuse_hydra_files(sys.argv[1:])
    try:
        with ending_with_reader(), CLOCK.showing(), CLOCK.command():
            return task()
    except Exception as error:
        is_message = isinstance(error, CompactHydraException) and str(error).startswith(
            "attnprobe: "
        )
        if is_message:  # of a job of a sweep
            print(visible(str(error)), file=sys.stderr)
            none_started = isinstance(error.__cause__, UserError)
            raise SystemExit(2 if none_started else 1) from None
        if HydraConfig.initialized() and not isinstance(error, OmegaConfBaseException):
            raise  # no mistake in the settings
        stop(answer(error, [word for word in sys.argv[1:] if not word.startswith("-")]))


def _multirun_first(arguments: list[str]) -> list[str]:
    """The arguments with -m before all settings: between two, Hydra takes no further setting."""
    return sorted(arguments, key=lambda argument: argument not in ("-m", "--multirun"))


def _refuse_hydra_files(arguments: list[str]) -> None:
    """Refuse a folder for Hydra's own files.

    null, which Lightning gives to a run's other processes, writes none.
    """
    for argument in arguments:
        is_folder = argument.lstrip("+").startswith("hydra.output_subdir=")
        if is_folder and not argument.endswith("=null"):
            stop(
                f"{argument}: Hydra would write over files of that folder: leave it out; each run "
                f"keeps its own settings"
            )


def wants_traceback() -> bool:
    """Whether the user, and not this program, set HYDRA_FULL_ERROR=1."""
    return os.environ.get(FULL_ERROR) == "1" and CATCHES not in os.environ


def stop(message: str) -> None:
    """End with one line and status 2."""
    print(f"attnprobe: {visible(as_typed(message, TYPED))}", file=sys.stderr)
    raise SystemExit(2) from None


@answering_signals()
@hydra.main(config_path=str(CONFIGURATION), config_name="config", version_base="1.3")
def task(config: DictConfig) -> float | None:
    """Run one experiment; returns in a sweep the number that a search for settings optimises."""
    end_with_pool()
    wait_briefly()
    sweep = HydraConfig.get().mode == RunMode.MULTIRUN
    # as they were written: one that holds `${…}` stays as it is
    written = OmegaConf.to_container(HydraConfig.get().overrides.task, resolve=False)
    overrides = [str(override) for override in written or ()]
    try:
        check_references(OmegaConf.to_container(config))  # before anything asks for a value
        config = with_importances(config, overrides)
        job = HydraConfig.get().job.name
        if job.startswith(MEMBER):
            config.experiment = job.removeprefix(MEMBER)
        with answering_permissions():
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
        # printed here: what Hydra hands on no longer tells whether the settings or the program was
        # wrong
        traceback.print_exc()
        raise SystemExit(1) from None
    return None


def carried_out(config: DictConfig, overrides: list[str], *, sweep: bool) -> float | None:
    """Train and examine, or carry out a study, and print the answer.

    Importing torch takes seconds that --help need not wait for, and the report more that a mistake
    need not: each is imported where it is needed.

    Args:
        config: composed.
        overrides: the command line's settings.
        sweep: this is one job of several.

    Returns:
        in a sweep the number that a search for settings optimises.
    """
    with CLOCK.step("read the settings"):
        check_plain_settings(config)
        if config.study is not None:
            refuse_page_of_several(config)
        files_checked = _check_files(config)
    is_new = DRY_RUN or sweep or config.study is None
    if not is_new and _published_before(config):
        return None
    with CLOCK.step("load the libraries"):
        from attnprobe.runs.settings import Settings, constructible, refuse_several_devices

        settings = constructible(config, overrides, files_checked=files_checked)
        if sweep or config.study is not None:
            refuse_several_devices(config.trainer)
    if DRY_RUN:
        return None
    if config.study is not None:
        _carry_out_study(settings, overrides)
        return None
    from attnprobe.results.writer import own_target
    from attnprobe.runs.launching import objective
    from attnprobe.runs.run import PHASES, examine
    from attnprobe.runs.studies import with_teacher

    if settings.config["teacher"] == "auto":
        settings = Settings.of(composed(with_teacher(overrides, composed)))
    page = None if config.page is None or is_worker() else Path(config.page)
    if page is not None:
        own_target(page)  # refused before the work rather than after it
    CLOCK.announce(PHASES + (page is not None))
    directory = examine(settings, sweep=sweep)
    RESULTS.append(directory)
    _print_answer(directory, verbose=config.verbose)
    if page is not None:
        _write_page(directory, page)
    return objective(directory) if sweep else None


def _write_page(directory: Path, page: Path) -> None:
    """Write the page of a run, as `attnprobe report` does."""
    from attnprobe.report.page.build import write_report

    with CLOCK.step("write the page"):
        write_report([directory], page)
    print(visible(f"page: {page}"))


def _check_files(config: DictConfig) -> bool:
    """Whether the data's files were read; refused before a model's libraries are imported.

    With `run=PATH` it is the run that has to be there.
    """
    if config.run is not None:
        from attnprobe.results.saved_settings import saved_run

        saved_run(Path(str(config.run)))
        return False
    from attnprobe.data.file_checks import check_configured_files, check_data_settings

    try:
        data = OmegaConf.to_container(config.data, resolve=True)
    except OmegaConfBaseException:  # is answered where all settings are
        return False
    assert isinstance(data, dict)
    named = {str(name): value for name, value in data.items()}
    check_data_settings(named)
    return check_configured_files(named)


def _published_before(config: DictConfig) -> bool:
    """Show a study that was carried out before; False where there is none, or it is damaged."""
    from attnprobe.findings.studies.base import already_answered

    with suppress(UserError):  # of one that is damaged, what is missing is made again
        finished = already_answered(config)
        if finished is not None:
            from attnprobe.report.publish import publish_study

            publish_study(finished, verbose=config.verbose)
            RESULTS.append(finished)
            return True
    return False


def _carry_out_study(settings: "Settings", overrides: list[str]) -> None:
    """Carry out a study and show it."""
    from attnprobe.report.publish import publish_study
    from attnprobe.runs.launching import options_of
    from attnprobe.runs.studies import Plan, carry_out_study

    plans: list[Plan] = []
    options = options_of(HydraConfig.get())
    directory = carry_out_study(
        overrides, composed, settings=settings, options=options, on_plan=plans.append
    )
    RESULTS.append(directory)
    with CLOCK.step("write the page"):
        publish_study(directory, verbose=settings.config["verbose"])
    for plan in plans:
        line = plan.beside(CLOCK.elapsed)
        if line:
            print(line)


def _print_answer(directory: Path, *, verbose: bool) -> None:
    """Print what came of a run, its directory, and how to see more."""
    from attnprobe.findings.groups import grouped, read_run
    from attnprobe.findings.headlines import compare
    from attnprobe.findings.sheet import sheet_of
    from attnprobe.findings.stored import card_of_run
    from attnprobe.report.terminal import answer_lines, data_notes, notes_of_tests, print_summary

    run = read_run(directory)
    (group,) = grouped([run])
    lines = answer_lines(sheet_of(group, card_of_run(run)))
    if verbose:
        print_summary(compare(run.numbers), classes=run.manifest.get("classes", []))
        tables = run.manifest.get("tables", {})
        counts = run.manifest.get("counts", {})
        for note in (*data_notes(counts), *notes_of_tests([tables])):
            tell(note)
    for line in lines:
        print(line)
    # a path on a line of its own, unbroken, to be copied
    print(visible(f"results: {directory}"))
    print("" if verbose else "For all numbers, repeat the command with verbose=true")


if __name__ == "__main__":
    CLOCK.begin_with_process()
    main()
