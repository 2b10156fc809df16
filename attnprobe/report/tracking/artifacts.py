"""What a finished run leaves on W&B as files: the checkpoint, and the results that come from it."""

import re
from pathlib import Path
from typing import Any

import wandb

from attnprobe.report.tracking.examples import WORDS
from attnprobe.results.checksums import record_of
from attnprobe.results.directory import (
    CONFIG,
    MANIFEST,
    PIPELINE,
    TRAINED,
    UNTESTED,
    VOCABULARY,
    WEIGHTS,
    RunDirectory,
    examples_file,
    table_file,
)
from attnprobe.results.files import write_sealed, write_table

WORDLESS = (WEIGHTS, CONFIG, TRAINED)
WORDS_OF_MANIFEST = ("classes", "counts", "data_section")
"""What the manifest says in the data's own words: names of classes, above all."""
WITH_WORDS = (VOCABULARY, PIPELINE)
"""The vocabulary; and the names of the classes, which for a question are words of the text."""


def model_artifact(run_dir: Path, *, log_text: bool) -> wandb.Artifact:
    """The checkpoint with its settings, and with all that new text needs (`attnprobe.load_run`) if words may be sent.

    The weights are uploaded from where they are and must stay there until then; W&B keeps its own copy of the rest.
    """
    run = RunDirectory(run_dir)
    manifest = run.verify()
    artifact = wandb.Artifact(name("model", manifest), "model", metadata=facts(manifest))
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
        log_text: False leaves out words, the names of the classes, the counts per class and what was found in the data.
    """
    run = RunDirectory(run_dir)
    manifest = run.verify()
    artifact = wandb.Artifact(
        name("results", manifest),
        "results",
        metadata=facts(manifest) | {"model_artifact": name("model", manifest)},
    )
    sent = manifest if log_text else {key: manifest[key] for key in manifest if key not in WORDS_OF_MANIFEST}
    in_model = WORDLESS + (WITH_WORDS if log_text else ())
    files = {name: record for name, record in manifest["files"].items() if name in in_model}
    for one in map(table_file, manifest["tables"]):
        artifact.add_file(str(run / one), one, skip_cache=True)
        files[one] = manifest["files"][one]
    for split in (split for split in run.splits() if split not in UNTESTED):
        one = examples_file(split)
        path = run / one
        if not log_text:
            table = run.examples(split)
            table = table.drop_columns([column for column in WORDS if column in table.column_names])
            path = folder / path.name
            # pandas describes the columns that it knew, by name only
            write_table(table.replace_schema_metadata(None), path)
        artifact.add_file(str(path), one, skip_cache=True)
        files[one] = record_of(path)
    write_sealed(sent | {"files": files}, folder / MANIFEST)
    artifact.add_file(str(folder / MANIFEST), skip_cache=True)
    return artifact


def facts(manifest: dict[str, Any]) -> dict[str, Any]:
    """What says where an artifact comes from, the checkpoint's SHA-256 above all; the same for every logging."""
    named = ("run_id", "experiment", "data", "model", "seed", "chosen_epoch", "training_fingerprint", "versions")
    known = {key: manifest[key] for key in named if key in manifest}
    if WEIGHTS in manifest["files"]:
        known["checkpoint_sha256"] = manifest["files"][WEIGHTS]["sha256"]
    return known


def name(kind: str, manifest: dict[str, Any]) -> str:
    """An artifact's name, in the characters and the length (128) that W&B allows; the run id's end tells runs apart.

    >>> name("model", {"run_id": "sst/lstm-seed0-0123456789"})
    'model-sst-lstm-seed0-0123456789'
    """
    return f"{kind}-{re.sub(r'[^A-Za-z0-9_.-]+', '-', manifest['run_id'])[-110:]}"
