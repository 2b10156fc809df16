"""Every setting against its type, range and choices, before anything heavy is imported.

A part's arguments are checked against its class's constructor, which is read and not imported
(`attnprobe.schema.source`); so a class of another package needs no schema of its own.
"""

import sys
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any, get_args

from omegaconf import DictConfig, OmegaConf
from pydantic import ConfigDict, TypeAdapter, ValidationError

from attnprobe.errors import UserError
from attnprobe.schema import settings as schema
from attnprobe.schema import source
from attnprobe.schema.importances import with_installed
from attnprobe.schema.ranges import CLASSES
from attnprobe.schema.types import Name, Part, literals, type_of, words
from attnprobe.schema.words import listed, nearest, shown
from attnprobe.shown import visible

HYDRA = ("_target_", "_partial_", "_convert_", "_recursive_", "_args_")
"""Hydra's own keys of a part."""
GIVEN_LATER = {"data": ("seed",)}
PARTIAL = ("model", "encoder", "attention", "decoder", "question_encoder", "word_encoder", "word_attention",
           "sentence_encoder", "optimizer", "scheduler")  # fmt: skip
"""Parts that are constructed later, with what the data decide: these need `_partial_: true`."""
NAMED = ("probe.", "importance.")
"""Groups whose parts have names of their own."""


def check(config: Mapping[str, Any]) -> None:
    """Refuse a configuration in which a setting has a wrong type, range, key or choice.

    Args:
        config: conf/config.yaml as composed and resolved.

    Raises:
        UserError: one line with the setting, its value, what was expected, and the nearest known name.
    """
    check_keys("", config, schema.TOP, needed=schema.TOP)
    check_model(config["model"], config["training"])
    check_keys("training", config["training"], schema.TRAINING, needed=("epochs", "gradient_clip", "recipe"))
    check_keys("task", config["task"], schema.TASK, needed=schema.TASK)
    check_named("logger", config["logger"], schema.LOGGERS)
    tracker = config["logger"]["name"]
    if tracker not in ("none", "csv") and find_spec(tracker) is None:
        raise UserError(f"logger={tracker} needs pip install 'attnprobe[{tracker}]'")
    check_named("launcher", config["launcher"], schema.LAUNCHERS)
    if config["launcher"]["name"] == "submitit":
        check_keys("launcher.parameters", config["launcher"]["parameters"], schema.PARAMETERS, others=True)
    check_trainer(config["trainer"])
    check_part("data", config["data"])
    for name in ("encoder", "attention", "decoder", "question_encoder"):
        if config["model"].get(name) is not None:
            check_part(f"model.{name}", config["model"][name])
    check_part("training.recipe", config["training"]["recipe"])
    for name, part in config["probe"].items():
        check_part(f"probe.{name}", part)
    for name, part in config["importance"].items():
        check_part(f"importance.{name}", part)
    if config["study"] is not None:
        check_part("study", config["study"])


def check_model(model: Mapping[str, Any], training: Mapping[str, Any]) -> None:
    """A model of three stages, or a whole one, which may be trained already."""
    if "_target_" not in model:
        check_keys("model", model, schema.MODEL, needed=("name", "encoder", "attention", "decoder"), others=True)
        if training.get("epochs") == 0:
            raise UserError(
                "training.epochs=0: expected a whole number of at least 1; only a model that is trained already "
                "(model=pretrained) can be taken as it is"
            )
        return
    check_keys("model", model, {"name": schema.MODEL["name"]}, needed=("name",), others=True)
    check_part("model", model)
    recipe = training.get("recipe")
    if training.get("epochs") and isinstance(recipe, Mapping) and recipe.get("warmup") is None:
        raise UserError(
            f"model={shown(model['name'])} is trained already, and this recipe is for models from scratch: take it as it is "
            f"with training=none, or fine-tune it with training=finetune"
        )


def resolved(config: DictConfig) -> dict[str, Any]:
    """A composed configuration with every interpolation resolved.

    Raises:
        OmegaConfBaseException: one refers to nothing, or a value that must be given is not.
    """
    content = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(content, dict)
    return with_installed({str(key): value for key, value in content.items()})


def check_named(path: str, given: Mapping[str, Any], kinds: Mapping[str, Mapping[str, Any]]) -> None:
    """A mapping whose `name` says which settings it has."""
    name = given.get("name")
    if not isinstance(name, str) or name not in kinds:
        raise UserError(f"{path}.name={shown(name)}: expected {listed(kinds)}{nearest(str(name), kinds)}")
    check_keys(path, given, kinds[name], needed=kinds[name])


def check_trainer(given: Mapping[str, Any]) -> None:
    """The settings for lightning.Trainer, some of which the run gives itself."""
    check_keys(
        "trainer", given, schema.TRAINER, needed=("accelerator", "devices", "strategy", "precision"), others=True
    )
    own = ("max_epochs", "gradient_clip_val", "deterministic", "logger", "callbacks", "num_sanity_val_steps",
           "enable_model_summary", "use_distributed_sampler", "default_root_dir", "inference_mode")  # fmt: skip
    for key in given:
        if key in own:
            raise UserError(f"trainer.{key}={shown(given[key])}: the run sets this itself; leave it out")
    rest = {key: value for key, value in given.items() if key not in schema.TRAINER}
    check_arguments("trainer", rest, "lightning.Trainer", partial=True)


def check_keys(
    path: str,
    given: Mapping[str, Any],
    known: Mapping[str, Any],
    *,
    needed: Mapping[str, Any] | tuple[str, ...] = (),
    others: bool = False,
) -> None:
    """The keys and values of one mapping.

    Args:
        path: where it is, `training`; "" at the top.
        given: what is given there.
        known: key → type.
        needed: keys that must be there.
        others: keys that are not known are taken as they are.
    """
    for key, value in given.items():
        setting = f"{path}.{key}" if path else str(key)
        if key in known:
            check_value(setting, value, known[key])
        elif not others:
            raise UserError(
                f"{visible(setting)}={shown(value)}: there is no such setting{nearest(str(key), known) or '.'} "
                f"Known here: {listed(known)}"
            )
    for key in needed:
        if key not in given:
            setting = f"{path}.{key}" if path else str(key)
            raise UserError(f"{setting} is missing: expected {words(known.get(key, Any))}")


def check_value(setting: str, value: Any, kind: Any) -> None:
    """One value against its type."""
    try:
        adapter(kind).validate_python(value)
    except (ValidationError, RecursionError):
        pass
    else:
        problem = named(value) if kind == Name else is_part(value, kind)
        if problem is None:
            return
        raise UserError(f"{visible(setting)}={shown(value)}: {problem}")
    expected = words(kind)
    hint = nearest(value, literals(kind)) if isinstance(value, str) else ""
    if isinstance(value, list):
        hint = next((close for one in value if isinstance(one, str) and (close := nearest(one, literals(kind)))), "")
    if isinstance(value, bool | int | float) and str in (kind, *get_args(kind)):
        hint = f"; as text it is written in two pairs of quotes: '{setting}=\"{shown(value)}\"'"
    raise UserError(f"{visible(setting)}={shown(value)}: expected {expected}{hint}")


@cache
def adapter(kind: Any) -> TypeAdapter[Any]:
    """pydantic's check of a type, which converts nothing: "3" is not a number."""
    return TypeAdapter(kind, config=ConfigDict(strict=True, arbitrary_types_allowed=True))


def named(text: str) -> str | None:
    """What is wrong with a text that names folders; None where nothing is."""
    if not text.strip() or text in (".", "..") or "/" in text or "\\" in text or "\0" in text or len(text) > 100:
        return "expected a name for folders and tables: up to 100 characters, none of them / or \\"
    return None


def is_part(value: Any, kind: Any) -> str | None:
    """What is wrong with something that should be constructed; None where nothing is."""
    parts = value.values() if kind == dict[str, Part] else [value] if kind == Part or Part in get_args(kind) else []
    if all(part is None or isinstance(part.get("_target_"), str) for part in parts):
        return None
    return f"expected {words(Part)}"


def check_part(path: str, part: Mapping[str, Any]) -> None:
    """Something that is constructed: its class, and the arguments given to it."""
    check_value(path, part, Part)
    target = part["_target_"]
    for key, kind in {"_partial_": bool, "_recursive_": bool}.items():
        if key in part:
            check_value(f"{path}.{key}", part[key], kind)
    if "_convert_" in part and part["_convert_"] not in ("none", "partial", "object", "all"):
        raise UserError(f"{path}._convert_={shown(part['_convert_'])}: expected none, partial, object or all")
    if "_args_" in part:
        raise UserError(f"{path}._args_={shown(part['_args_'])}: give arguments by name")
    partial = path.split(".")[-1] in PARTIAL and not path.startswith(NAMED)
    if partial and part.get("_partial_") is not True:
        raise UserError(
            f"{path}._partial_={shown(part.get('_partial_'))}: expected true, as its sizes come from the data"
        )
    if not partial and part.get("_partial_"):
        raise UserError(f"{path}._partial_=true: this part is constructed at once; leave _partial_ out")
    check_target(path, target)
    arguments = {str(key): value for key, value in part.items() if key not in HYDRA}
    check_arguments(path, arguments, target, partial=bool(part.get("_partial_")), later=GIVEN_LATER.get(path, ()))
    for key, value in arguments.items():
        if isinstance(value, Mapping) and "_target_" in value:
            check_part(f"{path}.{key}", value)


def check_target(path: str, target: str) -> None:
    """That there is such a class, and that it can be used here, as far as its source says."""
    module, name = source.home_of(target)
    where = f"{visible(path)}._target_={shown(target)}"
    if not all(part.isidentifier() for part in target.split(".")) or not module:
        raise UserError(f"{where}: expected the dotted name of a class, such as {example(path)}")
    wanted = schema.BASES.get(path) or schema.BASES.get(f"{path.rpartition('.')[0]}.*")
    declared = source.find_class(target)
    if declared is None:
        top = module.split(".")[0]
        if wanted is not None and top in sys.stdlib_module_names:
            raise UserError(f"{where}: expected a subclass of {wanted}, such as {example(path)}")
        if top == "attnprobe" or not source.exists(module):
            known = source.class_names(module)
            there = f"; {module} has {listed(known)}" if known else f", such as {example(path)}"
            raise UserError(f"{where}: there is no such class{nearest(name, known)}{there}")
        return
    line = source.bases(declared)
    if wanted is not None and line is not None and wanted not in {one.name for one in line}:
        raise UserError(f"{where}: expected a subclass of {wanted}, such as {example(path)}")


def example(path: str) -> str:
    """A class that may be used in a place."""
    examples = {
        "data": "attnprobe.data.module.TextDataModule",
        "data.source": "attnprobe.data.sources.FileSource",
        "model": "attnprobe.models.pretrained.model.PretrainedClassifier",
        "model.encoder": "attnprobe.models.encoders.LSTMEncoder",
        "model.attention": "attnprobe.models.attention.AdditiveAttention",
        "model.decoder": "attnprobe.models.decoders.LinearDecoder",
        "training.recipe.optimizer": "torch.optim.Adam",
        "training.recipe": "attnprobe.models.classifier.Recipe",
        "probe": "attnprobe.probes.permutation.Permutation",
        "importance": "attnprobe.importance.gradient.Gradient",
    }
    return examples.get(path) or examples.get(path.split(".")[0], "package.module.Class")


def check_arguments(
    path: str, given: Mapping[str, Any], target: str, *, partial: bool, later: tuple[str, ...] = ()
) -> None:
    """The arguments of a constructor whose source can be read."""
    made = constructor(target)
    if made is None:
        return
    kinds, required, open_ended = made
    for key, value in given.items():
        if key in kinds:
            check_value(f"{path}.{key}", value, kinds[key])
        elif not open_ended:
            raise UserError(
                f"{visible(f'{path}.{key}')}={shown(value)}: {target.split('.')[-1]} takes no such argument"
                f"{nearest(key, kinds) or '.'} It takes {listed(kinds) or 'none'}"
            )
    if not partial and (missing := [name for name in required if name not in given and name not in later]):
        raise UserError(f"{path}.{missing[0]} is missing: expected {words(kinds[missing[0]])}")


@cache
def constructor(target: str) -> tuple[dict[str, Any], tuple[str, ...], bool] | None:
    """The arguments of a class with their types, those without a default, and whether it takes any other."""
    made = source.constructor(target)
    declared = source.find_class(target)
    if made is None or declared is None:
        return None
    ours = declared.module.split(".")[0] == "attnprobe"
    kinds = {name: type_of(argument.annotation, ours=ours) for name, argument in made.arguments.items()}
    for one in reversed(source.bases(declared) or []):
        kinds |= {name: kind for name, kind in CLASSES.get(one.name, {}).items() if name in kinds}
    return kinds, tuple(name for name, argument in made.arguments.items() if argument.required), made.open_ended
