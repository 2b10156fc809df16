"""A run directory's settings read as plain data: no reference in them is followed, and no class looked up."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attnprobe.core.errors import UserError
from attnprobe.results.directory import CONFIG, PIPELINE, RunDirectory
from attnprobe.results.files import (
    LARGEST_JSON,
    MAX_YAML,
    is_signed,
    read_bytes,
    read_json,
    read_sealed,
    read_yaml,
)
from attnprobe.results.manifest import SavedPipeline, SavedStudy, check_types

_FAMILIES = {
    "baselines": "ascending attention contribution idf log_odds position random",
    "gradients": "attention_gradient grad_cam gradient gradient_attention gradient_input gradient_shap "
    "gradient_through_attention integrated_gradients saliency smooth_grad",
    "layers": "alti attention_flow decompx rollout value_norm value_zeroing vector_norm vector_norm_normalised "
    "vector_norm_residual",
    "leave_one_out.removal": "leave_one_out.member",
    "perturbation": "kernel_shap lime occlusion shapley_sampling sufficient_subset",
}
MOVED = {
    **{f"attnprobe.importance.{one}": f"attnprobe.importance.{family}"
       for family, several in _FAMILIES.items() for one in several.split()},
    "attnprobe.models.classifier.Recipe": "attnprobe.models.trained.Recipe",
    "attnprobe.models.lexicon": "attnprobe.models.controls",
    "attnprobe.models.sparse": "attnprobe.models.attention",
}  # fmt: skip
"""Modules, and a class, that the settings of older runs name → where these are now."""


def read_pipeline(directory: Path) -> SavedPipeline:
    """A run directory's pipeline.json, every entry of its type.

    Raises:
        FileNotFoundError, NotADirectoryError: there is none.
        UserError: it is damaged, or an entry is of another type.
    """
    path = Path(directory) / PIPELINE
    content = read_json(path, limit=LARGEST_JSON)
    check_types(SavedPipeline, content, path)
    return content  # type: ignore[return-value]


def read_members(path: Path) -> dict[str, Any]:
    """A study.json, every entry that is read of its type.

    Raises:
        DamagedRun: it is missing or changed, or an entry is of another type.
    """
    content = read_sealed(path)
    check_types(SavedStudy, content, path)
    return content


def read_settings(directory: Path) -> dict[str, Any]:
    """A run directory's config.yaml as plain data, compared with the manifest where the run is finished: nothing in it is
    resolved, and nothing constructed.

    Raises:
        FileNotFoundError, NotADirectoryError: there is none.
        UserError: it is damaged, or refers to other values or to the environment (`${…}`).
    """
    run = RunDirectory(directory)
    path = run.file(CONFIG) if run.is_finished else run / CONFIG
    content = read_yaml(path)
    refuse_references(content, path)
    _name_as_today(content)
    return content


def _name_as_today(content: Any) -> None:
    for key, value in entries(content):
        if key == "_target_" and isinstance(value, str):
            module, _, name = value.rpartition(".")
            content[key] = MOVED.get(value, f"{MOVED.get(module, module)}.{name}")
        else:
            _name_as_today(value)


def check_unfinished(directory: Path) -> None:
    """Whether the settings of a run that has no manifest yet are as they were written.

    Raises:
        UserError: they were changed since.
    """
    path = RunDirectory(directory) / CONFIG
    if not RunDirectory(directory).is_finished and not is_signed(read_bytes(path, limit=MAX_YAML)):
        raise UserError(
            f"{path} has changed since the run wrote it, or is of an older version, and the run is not finished: give the "
            f"run's own command again, which writes it again; settings are changed on the command line"
        )


def refuse_references(content: Any, path: Path, place: tuple[str, ...] = ()) -> None:
    """Raise a `UserError` that names the first setting whose key or value holds `${`."""
    for key, value in entries(content):
        here = (*place, str(key))
        if "${" in str(key) or (isinstance(value, str) and "${" in value):
            raise UserError(
                f"{path}: {shown(here)} holds ${{…}}. A run writes values, never references, so that this one was "
                f"changed; what such a reference asks for (a variable of the environment, say) is not looked up"
            )
        refuse_references(value, path, here)


def entries(content: Any) -> list[tuple[Any, Any]]:
    """What is directly within a mapping or a list, with its key or number."""
    if isinstance(content, Mapping):
        return list(content.items())
    return list(enumerate(content)) if isinstance(content, (list, tuple)) else []


def shown(place: tuple[str, ...]) -> str:
    """A place in the settings as text, without anything that a terminal would obey."""
    return ascii(".".join(place)[:200])[1:-1]
