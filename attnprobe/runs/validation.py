"""The one check of settings, of a command line, of a sweep's and a study's runs, and of those that
a run directory holds.

What is constructed (`_target_`) is imported, and its arguments are checked by their annotations
(`attnprobe.core.settings`). Saved settings may come from anybody: of these only classes of the
packages that are trusted are imported, each has to be a class of the kind that its place asks for,
and nothing is called."""

import importlib
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

from annotated_types import Ge, Le

from attnprobe.core import settings as types
from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import visible
from attnprobe.core.settings import (
    arguments,
    check_arguments,
    check_settings,
    check_value,
    listed,
    nearest,
    part_of,
    setting_type,
    shown,
    words,
)
from attnprobe.data.module import TextDataModule
from attnprobe.importance.base import Importance
from attnprobe.models.attention import Attention
from attnprobe.models.decoders import Decoder
from attnprobe.models.encoders import Encoder, TextEncoder
from attnprobe.models.recipe import Recipe
from attnprobe.probes.base import Probe
from attnprobe.results.saved_settings import entries

OPTIONAL = str | None
TOP: dict[str, Any] = {
    **dict.fromkeys(("model", "training", "trainer", "logger", "launcher", "task"), dict[str, Any]),
    **dict.fromkeys(("probe", "importance"), dict[str, types.Part]),
    **dict.fromkeys(("teacher", "teacher_id", "run_dir", "run"), OPTIONAL),
    **dict.fromkeys(("figures", "verbose"), bool),
    "data": types.Part,
    "study": types.Part | None,
    "experiment": types.Name,
    "seed": types.Seed,
    "output": str,
    "importances": list[types.Name] | None,
    "teacher_overrides": list[str],
    "trusted": list[str] | str,
    "on_finished": Literal["error", "skip", "remeasure", "replace"] | None,
}
"""The settings of conf/config.yaml, and below those of its groups that are no classes."""
MODEL: dict[str, Any] = {
    "name": types.Name,
    "attention_name": str,
    "width": types.Size,
    "patience": types.Count,
}
TRAINING: dict[str, Any] = {
    "epochs": Annotated[int, Ge(0), Le(1_000_000)],
    "gradient_clip": types.Positive | None,
    "patience": types.Whole | None,
    "recipe": types.Part,
}
TASK: dict[str, Any] = {"name": Literal["classification", "qa"], "epsilon": types.Portion}
TRAINER: dict[str, Any] = {
    "accelerator": Literal["auto", "cpu", "gpu", "cuda", "mps", "tpu", "hpu"],
    "devices": Annotated[int, Ge(-1)] | list[types.Whole] | str,
    "strategy": str,
    "precision": Literal[
        "32-true",
        "64-true",
        "16-true",
        "bf16-true",
        "16-mixed",
        "bf16-mixed",
        "transformer-engine",
        "transformer-engine-float16",
        "32",
        "64",
        "16",
        "bf16",
        32,
        64,
        16,
    ],
}
OWN_TRAINER = (
    "max_epochs",
    "gradient_clip_val",
    "deterministic",
    "logger",
    "callbacks",
    "num_sanity_val_steps",
    "enable_model_summary",
    "use_distributed_sampler",
    "default_root_dir",
    "inference_mode",
)
"""Arguments of lightning.Trainer that a run gives itself."""
NONE: dict[str, Any] = {"name": str}
LOGGERS = {
    "none": NONE,
    "csv": NONE,
    "tensorboard": NONE,
    "mlflow": NONE | {"project": str, "tracking_uri": OPTIONAL},
    "wandb": NONE
    | dict.fromkeys(("project", "entity", "group"), OPTIONAL)
    | dict.fromkeys(("log_text", "log_model"), bool)
    | {"mode": Literal["online", "offline", "disabled", "shared"], "examples": types.Whole},
}
LAUNCHERS: dict[str, dict[str, Any]] = {
    "inline": NONE,
    "local": NONE | {"workers": types.Count | None},
    "ray": NONE,
    "submitit": NONE
    | {"cluster": Literal["slurm", "local"], "workers": types.Count, "parameters": dict[str, Any]},
}
SUBMITIT = {
    **dict.fromkeys(("timeout_min", "mem_gb"), types.Positive | None),
    **dict.fromkeys(("slurm_partition", "slurm_account"), OPTIONAL),
    "cpus_per_task": types.Count | None,
    "gpus_per_node": types.Whole | None,
}
"""Of launcher.parameters; any other of submitit's names is taken as it is."""
OPTIMIZER: dict[str, Any] = dict.fromkeys(("lr", "weight_decay", "eps"), types.NotNegative) | {
    "betas": list[types.Dropout]
}
SCHEDULER: dict[str, Any] = {"factor": types.Share} | dict.fromkeys(
    ("patience", "cooldown"), types.Whole
)
SCHEDULER |= dict.fromkeys(("threshold", "eps"), types.NotNegative)
"""Limits of arguments whose own annotations say none."""

OWN = "attnprobe"
TORCH = ("torch.optim", "torch.optim.lr_scheduler")
EXAMPLES = {
    "data": f"{OWN}.data.module.TextDataModule",
    "data.source": f"{OWN}.data.sources.FileSource",
    "model": f"{OWN}.models.pretrained.model.PretrainedClassifier",
    "model.encoder": f"{OWN}.models.encoders.LSTMEncoder",
    "model.attention": f"{OWN}.models.attention.AdditiveAttention",
    "model.decoder": f"{OWN}.models.decoders.LinearDecoder",
    "training.recipe.optimizer": "torch.optim.Adam",
    "training.recipe": f"{OWN}.models.recipe.Recipe",
    "probe": f"{OWN}.probes.permutation.Permutation",
    "importance": f"{OWN}.importance.gradients.Gradient",
    "study": f"{OWN}.findings.studies.audit.Audit",
}
"""A class that may be used in each place."""
DIRECTIVES = ("_target_", "_partial_", "_convert_", "_recursive_", "_args_")
"""Hydra's own keys of a part."""
MOVED = ("tolerance", "chunk")
"""Settings of probes that are those of an importance now; runs of before have them, and they
construct nothing."""

Trusted = Sequence[str] | None
"""Packages besides attnprobe and torch.optim whose classes saved settings may name; None: settings
of a command line, which may name any class."""
STAGES = {
    "encoder": TextEncoder,
    "attention": Attention,
    "decoder": Decoder,
    "question_encoder": Encoder,
}
"""The parts of a model that the data complete, with the base of their classes."""
PARTS: dict[str, tuple[type, bool]] = {
    "data": (TextDataModule, False),
    **{f"model.{name}": (base, True) for name, base in STAGES.items()},
    "training.recipe": (Recipe, False),
    "probe.*": (Probe, False),
    "importance.*": (Importance, False),
}
"""Place → the base of the class that is constructed there, and whether that is done later
(`_partial_`)."""
ABSENT = ("study", *(f"model.{name}" for name in STAGES))
"""Places where nothing may be constructed."""


def check(config: Mapping[str, Any]) -> None:
    """Refuse a configuration, composed and resolved, in which a setting has a wrong type, range,
    key or choice.

    Raises:
        UserError: one line with the setting, its value, what was expected, and the nearest known
            name.
    """
    _check_group("", config, TOP)
    training = config["training"]
    model = config["model"]
    _check_group("training", training, TRAINING, optional=("patience",))
    _check_group("task", config["task"], TASK)
    for group, kinds in {"logger": LOGGERS, "launcher": LAUNCHERS}.items():
        name = config[group].get("name")
        if not isinstance(name, str) or name not in kinds:
            raise UserError(
                f"{group}.name={shown(name)}: expected {listed(kinds)}{nearest(str(name), kinds)}"
            )
        _check_group(group, config[group], kinds[name])
    tracker = config["logger"]["name"]
    if tracker not in ("none", "csv") and find_spec(tracker) is None:
        raise UserError(f"logger={tracker} needs pip install 'attnprobe[{tracker}]'")
    if config["launcher"]["name"] == "submitit":
        check_settings(
            "launcher.parameters", config["launcher"]["parameters"], SUBMITIT, others=True
        )
    _check_group(
        "trainer",
        {key: value for key, value in config["trainer"].items() if key in TRAINER},
        TRAINER,
    )
    further = {key: value for key, value in config["trainer"].items() if key not in TRAINER}
    if own := [key for key in further if key in OWN_TRAINER]:
        raise UserError(
            f"trainer.{own[0]}={shown(further[own[0]])}: the run sets this itself; leave it out"
        )
    if further or config["trainer"].get("strategy") != "auto":
        from lightning import Trainer  # takes 2 s that a mistake elsewhere need not wait for
        from lightning.pytorch.strategies import StrategyRegistry

        strategies = ("auto", *StrategyRegistry.available_strategies())
        check_value("trainer.strategy", config["trainer"]["strategy"], Literal[strategies])
        check_arguments("trainer", further, Trainer, {"num_nodes": types.Count})
    if "_target_" not in model:
        known = MODEL | dict.fromkeys(STAGES, types.Part) | {"question_encoder": types.Part | None}
        _check_group(
            "model",
            model,
            known,
            optional=("attention_name", "width", "patience", "question_encoder"),
        )
        if training["epochs"] == 0:
            raise UserError(
                "training.epochs=0: expected a whole number of at least 1; only a model that is trained already "
                "(model=pretrained) can be taken as it is"
            )
    elif training["epochs"] and training["recipe"].get("warmup") is None:
        raise UserError(
            f"model={shown(model.get('name'))} is trained already, and this recipe is for models from scratch: take it as "
            f"it is with training=none, or fine-tune it with training=finetune"
        )
    if (
        training["epochs"]
        and isinstance(config["data"], Mapping)
        and config["data"].get("test_share") == 1
    ):
        raise UserError(
            f"data.test_share=1 leaves no row for training.epochs={training['epochs']}: expected a number below 1, or "
            f"training=none of a model that is trained already"
        )
    # a whole model last: Hugging Face's takes seconds to import, which a mistake elsewhere need not
    # wait for
    _check_parts(
        dict(sorted(config.items(), key=lambda one: one[0] == "model" and "_target_" in model)),
        None,
    )


def check_saved(config: Mapping[str, Any], path: Path, trusted: Sequence[str] = ()) -> None:
    """Check every class that a run's settings name, and its arguments, before anything is called.

    Args:
        config: as `read_settings` gives them.
        path: where they were read, for the messages.
        trusted: packages besides attnprobe and torch.optim that may bring classes. Importing a
            package runs its code, so that no other is imported.
    """
    if isinstance(trusted, str) or not all(
        isinstance(one, str) and one.isidentifier() for one in trusted
    ):
        raise UserError(
            f"trusted={trusted!r}: expected a list of packages' names, such as [attnprobe_extra]"
        )
    try:
        _check_parts(config, trusted)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error.__cause__


def _check_parts(content: Any, trusted: Trusted, outer: str = "") -> None:
    """All that is constructed, at the places where it stands; nothing else, at any depth, may ask
    for an object."""
    for key, value in entries(content):
        place = f"{outer}.{key}" if outer else str(key)
        wanted = PARTS.get(place) or PARTS.get(f"{outer}.*")
        if place == "study" and value is not None:
            from attnprobe.findings.studies.base import Study

            wanted = (Study, False)
        if place == "model" and isinstance(value, Mapping) and "_target_" in value:
            from attnprobe.models.trained import TrainedModel

            wanted = (TrainedModel, True)
        if key in DIRECTIVES:
            raise UserError(
                f"{visible(place)[:200]} is refused: no object is constructed at this place"
            )
        if wanted is None or (value is None and place in ABSENT):
            _check_parts(value, trusted, place)
        else:
            _check_part(place, value, wanted, trusted)


def _check_part(path: str, part: Any, wanted: tuple[type, bool], trusted: Trusted) -> None:
    """Something that is constructed: its class, and the arguments given to it."""
    check_value(path, part, Annotated[dict[str, Any], *types.Part.__metadata__])
    base, partial = wanted
    kind = _class_of(path, part["_target_"], base, trusted)
    if part.get("_partial_", False) is not partial:
        expected = (
            "true, as its sizes come from the data"
            if partial
            else "none: this part is constructed at once"
        )
        raise UserError(f"{path}._partial_={shown(part.get('_partial_'))}: expected {expected}")
    for key in ("_recursive_", "_args_", "_convert_"):
        if key in part and (key, part[key]) != ("_convert_", "all"):
            raise UserError(
                f"{visible(path)}.{key}={shown(part[key])} is refused: give arguments by name, and nothing else"
            )
    known = (
        DIRECTIVES if trusted is None or not path.startswith("probe.") else (*DIRECTIVES, *MOVED)
    )
    given = {str(key): value for key, value in part.items() if key not in known}
    limits: Mapping[str, Any] = {}
    if kind.__module__.startswith(TORCH[0]):
        limits = SCHEDULER if kind.__module__ == TORCH[1] else OPTIMIZER
    taken = arguments(kind)
    check_arguments(path, given, kind, {key: one for key, one in limits.items() if key in taken})
    missing = [
        name for name, one in taken.items() if one.default is one.empty and name not in given
    ]
    if missing and not partial:
        raise UserError(
            f"{path}.{missing[0]} is missing: expected {words(setting_type(taken[missing[0]].annotation))}"
        )
    for key, value in given.items():
        inner = part_of(taken[key].annotation) if key in taken else None
        if inner is not None and isinstance(value, Mapping):
            _check_part(f"{path}.{key}", value, inner, trusted)
        elif trusted is not None:
            _check_parts(value, trusted, f"{path}.{key}")


def _class_of(path: str, target: str, wanted: type, trusted: Trusted) -> type:
    """The class of a dotted name, found without calling anything."""
    where = f"{visible(path)}._target_={shown(target)}"
    example = EXAMPLES.get(path) or EXAMPLES.get(path.split(".")[0], "package.module.Class")
    module, _, name = target.rpartition(".")
    package = target.split(".")[0]
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", target):
        raise UserError(f"{where}: expected the dotted name of a class, such as {example}")
    if trusted is not None and not (
        package == OWN or module in TORCH or package in set(trusted) - {"torch"}
    ):
        raise UserError(
            f"{where} is outside the trusted packages ({', '.join([OWN, *TORCH, *trusted])}): expected such as {example}. "
            f"If you trust {package}, name it: trusted=[{package}]"
        )
    try:
        home = vars(importlib.import_module(module))
    except Exception as error:  # whatever a module of somebody else's raises
        if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
            raise UserError(f"{where}: there is no such class, such as {example}") from None
        raise UserError(f"{where} cannot be imported ({type(error).__name__}: {error})") from error
    kind: Any = home.get(name)
    if not issubclass(type(kind), type):
        classes = [
            key
            for key, one in home.items()
            if isinstance(one, type) and one.__module__ == module and key[0] != "_"
        ]
        there = (
            f"; {module} has {listed(classes)}"
            if classes and package not in sys.stdlib_module_names
            else ""
        )
        raise UserError(
            f"{where}: there is no such class{nearest(name, classes)}{there or f', such as {example}'}"
        )
    home_of = str(vars(kind).get("__module__"))
    same = home_of == module if package == OWN else home_of.split(".")[0] == package
    if trusted is not None and not (
        same and kind.__qualname__ == name and (module not in TORCH or home_of.startswith(TORCH[0]))
    ):
        raise UserError(
            f"{where} is only another name for {home_of}.{kind.__qualname__}: it is not defined there"
        )
    # a stage computes by its `forward`, or by what takes its place
    own = [
        one
        for one in ("forward", "states", "given")
        if getattr(kind, one, None) != getattr(wanted, one, None)
    ]
    if (
        wanted not in kind.__mro__
        or inspect.isabstract(kind)
        or (wanted in STAGES.values() and not own)
    ):
        base = f"{wanted.__module__}.{wanted.__name__}"
        raise UserError(f"{where}: expected a concrete subclass of {base}, such as {example}")
    assert isinstance(kind, type)
    return kind


def _check_group(
    path: str, given: Mapping[str, Any], known: Mapping[str, Any], optional: Sequence[str] = ()
) -> None:
    """A mapping of settings of which all but the optional ones must be there."""
    check_settings(path, given, known)
    for name in known:
        if name not in given and name not in optional:
            raise UserError(f"{path}.{name} is missing: expected {words(known[name])}".lstrip("."))
