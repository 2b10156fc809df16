"""A run directory's settings read as plain data: no reference in them is followed, and no class
looked up."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from attnprobe.core.errors import UserError
from attnprobe.results.directory import CONFIG, TRAINED, RunDirectory
from attnprobe.results.files import read_yaml

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
    **{
        f"attnprobe.importance.{one}": f"attnprobe.importance.{family}"
        for family, several in _FAMILIES.items()
        for one in several.split()
    },
    "attnprobe.models.classifier.Recipe": "attnprobe.models.recipe.Recipe",
    "attnprobe.models.lexicon": "attnprobe.models.controls",
    "attnprobe.models.sparse": "attnprobe.models.attention",
}
"""Modules, and a class, that the settings of older runs name → where these are now."""


def read_settings(directory: Path) -> dict[str, Any]:
    """A run directory's config.yaml as plain data, compared with the manifest where the run is
    finished: nothing in it is resolved, and nothing constructed.

    Raises:
        FileNotFoundError, NotADirectoryError: there is none.
        UserError: it is damaged, or refers to other values or to the environment (`${…}`).
    """
    run = RunDirectory(directory)
    path = run.file(CONFIG) if run.is_finished else run / CONFIG
    if run.is_trained and not run.is_finished:
        path = run.located(CONFIG, run.read_listing(TRAINED)["files"][CONFIG])
    content = read_yaml(path)
    for place, _ in references(content):
        raise UserError(
            f"{path}: {place} holds ${{…}}. A run writes values, never references, so that this one was changed; what such a "
            f"reference asks for (a variable of the environment, say) is not looked up"
        )
    _name_as_today(content)
    return content


def _name_as_today(content: Any) -> None:
    for key, value in entries(content):
        if (
            key == "uniform"
            and content.get("_target_") == "attnprobe.models.pretrained.model.PretrainedClassifier"
        ):
            del content[key]
            content |= {"given": None if value is None else "uniform", "given_at": value or "last"}
        elif key == "_target_" and isinstance(value, str):
            module, _, name = value.rpartition(".")
            content[key] = MOVED.get(value, f"{MOVED.get(module, module)}.{name}")
        else:
            _name_as_today(value)


def references(content: Any, place: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Every place in settings whose name or value holds `${`, and which of these does."""
    for key, value in entries(content):
        here = (*place, str(key))
        for text in (key, value):
            if isinstance(text, str) and "${" in text:
                yield ascii(".".join(here)[:200])[1:-1], text
        yield from references(value, here)


def entries(content: Any) -> list[tuple[Any, Any]]:
    """What is directly within a mapping or a list, with its key or number."""
    if isinstance(content, Mapping):
        return list(content.items())
    return list(enumerate(content)) if isinstance(content, (list, tuple)) else []
