"""A run directory's settings as plain data: no reference is followed, and no class looked up."""

from pathlib import Path
from typing import Any

from attnprobe.core.errors import UserError
from attnprobe.core.references import entries, references
from attnprobe.results.directory import CONFIG, TRAINED, RunDirectory
from attnprobe.results.files import read_yaml

FAMILIES = {
    "baselines": (
        "ascending",
        "attention",
        "contribution",
        "idf",
        "log_odds",
        "position",
        "random",
    ),
    "gradients": (
        "attention_gradient",
        "grad_cam",
        "gradient",
        "gradient_attention",
        "gradient_input",
        "gradient_shap",
        "gradient_through_attention",
        "integrated_gradients",
        "saliency",
        "smooth_grad",
    ),
    "layers": (
        "alti",
        "attention_flow",
        "decompx",
        "rollout",
        "value_norm",
        "value_zeroing",
        "vector_norm",
        "vector_norm_normalised",
        "vector_norm_residual",
    ),
    "leave_one_out.removal": ("leave_one_out.member",),
    "perturbation": (
        "kernel_shap",
        "lime",
        "occlusion",
        "shapley_sampling",
        "sufficient_subset",
    ),
}
"""Module of `attnprobe.importance` → the modules of older versions whose classes it holds."""
MOVED = {
    "attnprobe.models.classifier.Recipe": "attnprobe.models.recipe.Recipe",
    "attnprobe.models.lexicon": "attnprobe.models.controls",
    "attnprobe.models.sparse": "attnprobe.models.attention",
}
"""Modules, and a class, that the settings of older runs name → where these are now."""
for family, modules in FAMILIES.items():
    for module in modules:
        MOVED[f"attnprobe.importance.{module}"] = f"attnprobe.importance.{family}"

PRETRAINED = "attnprobe.models.pretrained.model.PretrainedClassifier"


def read_settings(directory: Path) -> dict[str, Any]:
    """A run directory's config.yaml as plain data; nothing is resolved or constructed.

    It is compared with the manifest where the run is finished.

    Raises:
        FileNotFoundError: there is none.
        NotADirectoryError: there is no such directory.
        UserError: it is damaged, or refers to other values or to the environment (`${…}`).
    """
    run = RunDirectory(directory)
    path = run.file(CONFIG) if run.is_finished else run / CONFIG
    if run.is_trained and not run.is_finished:
        path = run.located(CONFIG, run.read_listing(TRAINED)["files"][CONFIG])
    content = read_yaml(path)
    for place, _ in references(content):
        raise UserError(
            f"{path}: {place} holds ${{…}}. A run writes values, never references, so that this "
            f"one was changed; what such a reference asks for (a variable of the environment, "
            f"say) is not looked up"
        )
    _name_as_today(content)
    return content


def saved_run(path: Path) -> dict[str, Any]:
    """The settings of the run that `run=PATH` names.

    Raises:
        UserError: there is none.
    """
    try:
        return read_settings(path)
    except OSError:
        raise UserError(
            f"run={path}: no run of attnprobe there (no config.yaml); expected a run directory "
            f"such as runs/testbed/lstm_additive-seed0-…"
        ) from None


def _name_as_today(content: Any) -> None:
    """Replace the names of older versions in settings, in place."""
    for key, value in entries(content):
        if key == "uniform" and content.get("_target_") == PRETRAINED:
            del content[key]
            content["given"] = None if value is None else "uniform"
            content["given_at"] = value or "last"
        elif key == "_target_" and isinstance(value, str):
            module, _, name = value.rpartition(".")
            content[key] = MOVED.get(value, f"{MOVED.get(module, module)}.{name}")
        else:
            _name_as_today(value)
