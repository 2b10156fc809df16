"""Whether a run directory may be written to: what is there already, and what is asked for."""

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from attnprobe.errors import UserError
from attnprobe.results.directory import MANIFEST, read_manifest
from attnprobe.results.files import write_atomically
from attnprobe.results.fingerprint import fingerprint, flattened
from attnprobe.running.settings import Settings

TRAINED = "training.json"
"""Written after training: from here on the run may be taken up again without training."""

POLICIES = ("error", "skip", "remeasure", "replace")
"""What to do where the same run is finished: refuse, leave it, probe it anew and keep the model and all other tables, or
remove everything and train anew."""


def claim(directory: Path, settings: Settings, policy: str) -> bool:
    """Make the directory ready for this run.

    Returns:
        True where everything asked for is finished already and shall be left as it is.

    Raises:
        UserError: the directory holds another run, something else, or this run finished with policy "error".
    """
    if policy not in POLICIES:
        raise UserError(f"on_finished={policy}: expected {', '.join(POLICIES[:-1])} or {POLICIES[-1]}")
    manifest = read_manifest(directory)
    if manifest is not None and policy != "replace":
        if manifest["training_fingerprint"] != fingerprint(settings.training):
            raise UserError(
                f"{directory} already holds a finished run with other settings ({differing(manifest, settings)}): "
                f"choose another run_dir, or on_finished=replace to lose the old one"
            )
        if policy != "remeasure" and has_tables(manifest, settings):
            if policy == "skip":
                return True
            raise UserError(
                f"{directory} already holds this finished run ({', '.join(manifest['tables'])}): look at it with "
                f"attnprobe.read_results('{directory}'), or add on_finished=remeasure to probe it anew, on_finished=replace "
                f"to train it anew as well, on_finished=skip to leave it, or output=… to put a second one elsewhere"
            )
    try:
        foreign = directory.exists() and any(directory.iterdir()) and not (directory / "config.yaml").exists()
        if foreign:
            raise UserError(f"{directory} is not empty and no run of attnprobe: choose a new directory for run_dir")
        if policy == "replace" or (manifest is None and not (directory / TRAINED).exists()):
            discard(directory)
        directory.mkdir(parents=True, exist_ok=True)
        for path in directory.rglob(".*.partial"):  # a killed process was writing them
            path.unlink()
        write_atomically(
            directory / "config.yaml",
            lambda path: path.write_text(OmegaConf.to_yaml(settings.config), encoding="utf-8"),
        )
    except OSError as error:
        raise UserError(
            f"cannot write to {directory}: {error.strerror}. Choose a writable place with output=… or run_dir=…"
        ) from error
    return False


def is_finished(settings: Settings) -> bool:
    """Whether everything that these settings ask for is in their run directory; changes nothing.

    Raises:
        UserError: the settings cannot be used as they are.
    """
    manifest = read_manifest(settings.directory)
    if manifest is None or manifest["training_fingerprint"] != fingerprint(settings.training):
        return False
    return has_tables(manifest, settings)


def discard(directory: Path) -> None:
    """Remove what a run writes, and the directory itself if nothing else is in it. The manifest goes first, so that a
    kill in between leaves no run that looks finished."""
    for name in (MANIFEST, TRAINED, "model.safetensors", "vocabulary.json", "pipeline.json", "config.yaml"):
        (directory / name).unlink(missing_ok=True)
    for name in ("tables", "examples", "figures", "checkpoints", "training", "wandb"):
        shutil.rmtree(directory / name, ignore_errors=True)
    with suppress(OSError):
        directory.rmdir()


def has_tables(manifest: dict[str, Any], settings: Settings) -> bool:
    """Whether a manifest lists the tables of all the probes asked for, with these very settings."""
    tables = manifest["tables"]
    return all(name in tables and tables[name]["settings"] == part for name, part in settings.config["probe"].items())


def differing(manifest: dict[str, Any], settings: Settings) -> str:
    """The first few settings in which a finished run differs, as `key: theirs → ours`."""
    theirs, ours = flattened(manifest["training"]), flattened(settings.training)
    keys = [key for key in sorted(theirs | ours) if theirs.get(key) != ours.get(key)]
    shown = [f"{key}: {theirs.get(key)} there, {ours.get(key)} here" for key in keys[:3]]
    return "; ".join(shown + (["…"] if len(keys) > 3 else []))
