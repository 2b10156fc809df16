"""Whether a run directory may be written to: what is there already, and what is asked for."""

import sys
from pathlib import Path
from typing import Any

from attnprobe.core.errors import UserError
from attnprobe.results.directory import CONFIG, PLAYGROUND, TRAINED, examples_file, table_file
from attnprobe.results.files import DamagedRun, damaged, records_of
from attnprobe.results.fingerprint import fingerprint, flattened
from attnprobe.results.writer import OwnRunDirectory
from attnprobe.runs.build import importances_of
from attnprobe.runs.settings import SPLIT, Settings

# files that every measurement writes
EVERY_RUN = (
    CONFIG,
    examples_file(SPLIT),
    PLAYGROUND,
    table_file("training"),
    table_file("performance"),
)


def prepare(directory: Path, settings: Settings, on_finished: str) -> OwnRunDirectory | None:
    """Make the directory ready for this run; None where everything that is asked for is there and
    is to be left as it is. Nothing is changed in one that is refused.

    Raises:
        UserError: the directory holds another run, something else, this run finished with
            `on_finished=error`, or this run trained on inputs that have changed since.
        DamagedRun: what the training left there is not as it was written.
    """
    run = OwnRunDirectory(directory)
    manifest = None
    if on_finished != "replace":
        run.settle()
        manifest = run.read_manifest()
        left = standing(run, manifest, settings)
        if manifest is not None and not left and on_finished != "remeasure":
            if on_finished == "skip":
                return None
            raise UserError(
                f"{directory} already holds this finished run ({', '.join(manifest['tables'])}): look at it with "
                f"attnprobe.read_results('{directory}'), or add on_finished=remeasure to probe it again, "
                f"on_finished=replace to train it again as well, on_finished=skip to leave it, or output=… to put a second "
                f"one elsewhere"
            )
    run.refuse_foreign()
    if on_finished == "replace" or not run.is_trained:
        run.clear()
    run.mark()
    return run


def standing(
    run: OwnRunDirectory, manifest: dict[str, Any] | None, settings: Settings
) -> list[str]:
    """What is left to measure of what these settings ask for, by file name. What the training left
    is compared with its checksums, and its inputs with what they were."""
    asked = [*EVERY_RUN, *(table_file(name) for name in settings.config["probe"])]
    if not run.is_trained:
        if manifest is None:
            return asked
        raise damaged(run / TRAINED, "it is missing")
    trained = run.training()
    if trained.get("training_fingerprint") != fingerprint(settings.training):
        state = "a finished run" if manifest is not None else "a run, not finished,"
        theirs = flattened(trained.get("training", {}))
        ours = flattened(settings.training)
        keys = [key for key in sorted(theirs | ours) if theirs.get(key) != ours.get(key)]
        shown = [f"{key}: {theirs.get(key)} there, {ours.get(key)} here" for key in keys[:3]] + [
            "…"
        ] * (len(keys) > 3)
        raise UserError(
            f"{run.path} already holds {state} with other settings ({'; '.join(shown)}): choose another run_dir, or "
            f"on_finished=replace to lose the old one"
        )
    before = trained.get("inputs", {})
    now = records_of(settings.input_files())
    if changed := sorted(name for name in before if before[name] != now.get(name)):
        raise UserError(
            f"{run.path} was made of other files under the same name: the content of {changed[0]} has changed since. "
            f"Make it again with on_finished=replace, or elsewhere with output=…"
        )
    if manifest is None:
        return asked
    waiting = [name for name in asked if name not in manifest["files"]]
    importances = settings.config["importance"]
    for name, part in settings.config["probe"].items():
        table = manifest["tables"].get(name) or {"settings": part}
        is_alike = table.get("settings") == part
        for told in table.get("importances", {}).values():
            own = str(told.get("name"))
            files = told.get("files")
            is_alike = is_alike and told.get("settings") == importances.get(own)
            if is_alike and files:  # the user's, which may change
                importance = importances_of([own], settings.parts.importance)[own]
                is_alike = files == records_of(importance.files())
        if not is_alike:
            waiting.append(table_file(name))
    for name in (name for name in asked if name not in waiting):
        try:
            run.verify([name])
        except DamagedRun as error:  # it can be measured again
            waiting.append(name)
            print(
                f"attnprobe: {error.args[0].split('. Copy')[0]}. It is measured again",
                file=sys.stderr,
                flush=True,
            )
    return waiting


def is_finished(settings: Settings) -> bool:
    """Whether all that these settings ask for is in their run directory, as it was written, of
    inputs as they were."""
    run = OwnRunDirectory(settings.directory)
    manifest = run.read_manifest()
    return manifest is not None and not standing(run, manifest, settings)
