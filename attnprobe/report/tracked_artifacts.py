"""What a finished run leaves on W&B as files: the checkpoint, and the results that come from it."""

import hashlib
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import wandb

from attnprobe.errors import UserError
from attnprobe.report.tracked_examples import WORDS
from attnprobe.results.directory import MANIFEST, read_manifest
from attnprobe.results.files import write_json, write_table

WEIGHTS = "model.safetensors"
WORDLESS = (WEIGHTS, "config.yaml", "training.json")
WITH_WORDS = ("vocabulary.json", "pipeline.json")
"""The vocabulary; and the names of the classes, which for a question are words of the text."""


def model_artifact(run_dir: Path, *, log_text: bool) -> wandb.Artifact:
    """The checkpoint with its settings, and with all that new text needs (`attnprobe.load_run`) if words may be sent.

    The weights are uploaded from where they are and must stay there until then; W&B keeps its own copy of the rest.
    """
    manifest = known(run_dir)
    artifact = wandb.Artifact(name("model", manifest), "model", metadata=facts(run_dir, manifest))
    for file in WORDLESS + (WITH_WORDS if log_text else ()):
        if (run_dir / file).exists():
            policy: Any = "immutable" if file == WEIGHTS else "mutable"
            artifact.add_file(str(run_dir / file), policy=policy, skip_cache=True)
    return artifact


def results_artifact(run_dir: Path, folder: Path, *, log_text: bool) -> wandb.Artifact:
    """The long tables, the examples and the manifest; with `model_artifact`'s files in one folder, a run directory.

    Args:
        run_dir: the finished run.
        folder: an empty one, for what is sent without its words; W&B has its copies when this returns.
        log_text: False leaves out words, the names of the classes and the counts per class.
    """
    manifest = known(run_dir)
    artifact = wandb.Artifact(
        name("results", manifest),
        "results",
        metadata=facts(run_dir, manifest) | {"model_artifact": name("model", manifest)},
    )
    for entry in manifest["tables"].values():
        artifact.add_file(str(run_dir / entry["file"]), entry["file"], skip_cache=True)
    sent = manifest if log_text else {key: manifest[key] for key in manifest if key not in ("classes", "counts")}
    write_json(sent, folder / MANIFEST)
    artifact.add_file(str(folder / MANIFEST), skip_cache=True)
    for path in sorted(run_dir.glob("examples/*.parquet")):
        if not log_text:
            table = pq.read_table(path)
            table = table.drop_columns([column for column in WORDS if column in table.column_names])
            path = folder / path.name
            # pandas describes the columns that it knew, by name only
            write_table(table.replace_schema_metadata(None), path)
        artifact.add_file(str(path), f"examples/{path.name}", skip_cache=True)
    return artifact


def facts(run_dir: Path, manifest: dict[str, Any]) -> dict[str, Any]:
    """What says where an artifact comes from, the checkpoint's SHA-256 above all; the same for every logging."""
    named = ("run_id", "experiment", "data", "model", "seed", "chosen_epoch", "training_fingerprint", "versions")
    found = {key: manifest[key] for key in named if key in manifest}
    weights = run_dir / WEIGHTS
    if weights.exists():
        with weights.open("rb") as file:
            found["checkpoint_sha256"] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def known(run_dir: Path) -> dict[str, Any]:
    """The manifest."""
    manifest = read_manifest(run_dir)
    if manifest is None:
        raise UserError(f"{run_dir} holds no finished run (no {MANIFEST}): log it once it is done")
    return manifest


def name(kind: str, manifest: dict[str, Any]) -> str:
    """An artifact's name, in the characters and the length (128) that W&B allows; the run id's end tells runs apart.

    >>> name("model", {"run_id": "sst/lstm-seed0-0123456789"})
    'model-sst-lstm-seed0-0123456789'
    """
    return f"{kind}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', manifest['run_id'])[-110:]}"
