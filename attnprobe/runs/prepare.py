"""Whether a run directory may be written to: what is there already, and what is asked for."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from attnprobe.core.errors import UserError
from attnprobe.results.directory import CONFIG, PLAYGROUND, TRAINED, examples_file, table_file
from attnprobe.results.files import DamagedRun, damaged, records_of
from attnprobe.results.fingerprint import fingerprint, flattened
from attnprobe.results.manifest import Manifest
from attnprobe.results.writer import OwnRunDirectory
from attnprobe.runs.build import importances_of
from attnprobe.runs.settings import SPLIT, Settings

EVERY_RUN = (
    CONFIG,
    examples_file(SPLIT),
    PLAYGROUND,
    table_file("training"),
    table_file("performance"),
)
"""Files that every measurement writes."""


@dataclass(frozen=True)
class Place:
    """Where a run is to be written, and what it has to be examined with.

    Attributes:
        directory: ready to be written to.
        probes: names of those whose tables are missing, damaged or of other settings; all of them
            where the run is to be measured again.
    """

    directory: OwnRunDirectory
    probes: frozenset[str]


def prepare(directory: Path, settings: Settings, on_finished: str) -> Place | None:
    """Make the directory ready for this run; one that is refused stays as it is.

    Args:
        directory: of the run.
        settings: of the run.
        on_finished: what to do with this run where it is finished: `error`, `skip`, `remeasure`
            or `replace`.

    Returns:
        the place to write to; None where everything the settings ask for is there and
        `on_finished` is `skip`.

    Raises:
        UserError: if the directory holds another run, something else, this run finished with
            `on_finished=error`, or this run trained on inputs that have changed since.
        DamagedRun: if what the training left there is not as it was written.
    """
    run = OwnRunDirectory(directory)
    probes = frozenset(settings.config["probe"])
    if on_finished != "replace":
        run.settle()
        manifest = run.read_manifest()
        missing = missing_files(run, manifest, settings)
        if manifest is not None and not missing and on_finished != "remeasure":
            if on_finished == "skip":
                return None
            raise UserError(
                f"{directory} already holds this finished run ({', '.join(manifest['tables'])}): "
                f"look at it with attnprobe.read_results('{directory}'), "
                f"or add on_finished=remeasure to probe it again, "
                f"on_finished=replace to train it again as well, on_finished=skip to leave it, "
                f"or output=… to put a second one elsewhere"
            )
        if manifest is not None and on_finished != "remeasure":
            probes = frozenset(name for name in probes if table_file(name) in missing)

    run.refuse_foreign()
    if on_finished == "replace":
        run.replace()
    elif not run.is_trained:
        run.clear()
    run.mark()
    return Place(run, probes)


def is_finished(settings: Settings) -> bool:
    """Whether a run directory holds all that its settings ask for, undamaged, of current inputs."""
    run = OwnRunDirectory(settings.directory)
    manifest = run.read_manifest()
    return manifest is not None and not missing_files(run, manifest, settings)


def missing_files(run: OwnRunDirectory, manifest: Manifest | None, settings: Settings) -> list[str]:
    """Files that are still to be measured.

    Args:
        run: the directory of the run.
        manifest: its manifest; None where it has none.
        settings: what is asked for.

    Raises:
        UserError: if the directory holds a training with other settings, or its inputs have
            changed since.
        DamagedRun: if what the training left is not as it was written.
    """
    requested = [*EVERY_RUN, *(table_file(name) for name in settings.config["probe"])]
    if not run.is_trained:
        if manifest is None:
            return requested
        raise damaged(run / TRAINED, "it is missing")

    trained = run.training()
    _refuse_other_settings(run, trained, settings, is_finished=manifest is not None)
    _refuse_changed_inputs(run, trained, settings)
    if manifest is None:
        return requested

    missing = [name for name in requested if name not in manifest["files"]]
    for probe in settings.config["probe"]:
        if not _is_current(probe, manifest, settings):
            missing.append(table_file(probe))
    for name in requested:
        if name not in missing and not _is_sound(run, name):
            missing.append(name)
    return missing


def _is_sound(run: OwnRunDirectory, name: str) -> bool:
    """Whether a file is as it was written; else the user is told that it is measured again."""
    try:
        run.verify([name])
    except DamagedRun as error:
        print(f"attnprobe: {error.problem}. It is measured again", file=sys.stderr, flush=True)
        return False
    return True


def _refuse_other_settings(
    run: OwnRunDirectory, trained: dict[str, Any], settings: Settings, *, is_finished: bool
) -> None:
    """Refuse a directory whose classifier was trained with other settings."""
    if trained.get("training_fingerprint") == fingerprint(settings.training):
        return
    theirs = flattened(trained.get("training", {}))
    ours = flattened(settings.training)
    keys = [key for key in sorted(theirs | ours) if theirs.get(key) != ours.get(key)]
    differences = [f"{key}: {theirs.get(key)} there, {ours.get(key)} here" for key in keys[:3]]
    if len(keys) > 3:
        differences.append("…")
    state = "a finished run" if is_finished else "a run, not finished,"
    raise UserError(
        f"{run.path} already holds {state} with other settings ({'; '.join(differences)}): "
        f"choose another run_dir, or on_finished=replace to lose the old one"
    )


def _refuse_changed_inputs(
    run: OwnRunDirectory, trained: dict[str, Any], settings: Settings
) -> None:
    """Refuse a directory whose classifier was trained on files that have changed since."""
    records = trained.get("inputs", {})
    current_records = records_of(settings.input_files())
    changed = sorted(name for name in records if records[name] != current_records.get(name))
    if changed:
        raise UserError(
            f"{run.path} was made of other files under the same name: the content of {changed[0]} "
            f"has changed since. Put the old content back, or train again: the command that made "
            f"the run, with on_finished=replace, or with output=… for a place elsewhere"
        )


def _is_current(probe: str, manifest: Manifest, settings: Settings) -> bool:
    """Whether a table was made with these settings of its probe and importances, files included.

    A probe without a table is current as well: its file is missing, which counts already.
    """
    table = manifest["tables"].get(probe)
    if not table:
        return True
    if table.get("settings") != settings.config["probe"][probe]:
        return False
    for facts in table.get("importances", {}).values():
        name = str(facts.get("name"))
        if facts.get("settings") != settings.config["importance"].get(name):
            return False
        files = facts.get("files")
        if files:  # the user's, which may change
            importance = importances_of([name], settings.parts.importance)[name]
            if files != records_of(importance.files()):
                return False
    return True
