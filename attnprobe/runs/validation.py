"""From composed settings to the objects that a run works with, checked on the way.

What is constructed (`_target_`) is imported, and pydantic checks its arguments by their annotations
(`attnprobe.core.settings`), once. Saved settings may come from anybody: `check_saved` imports only
classes of trusted packages, each has to be a class of the kind that its place asks for, and nothing
is called.
"""

import importlib
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, NoneType
from typing import Annotated, Any, get_args, get_origin

from hydra.utils import instantiate

from attnprobe.core.errors import UserError
from attnprobe.core.references import entries
from attnprobe.core.sanitise import visible
from attnprobe.core.settings import (
    Dropout,
    NotNegative,
    Part,
    Section,
    Share,
    Whole,
    arguments,
    check_arguments,
    check_value,
    construct,
    defer,
    listed,
    nearest,
    part_of,
    section_of,
    shown,
)
from attnprobe.data.module import TextDataModule
from attnprobe.models.attention import Attention
from attnprobe.models.decoders import Decoder
from attnprobe.models.encoders import Encoder, TextEncoder
from attnprobe.runs.configuration import Configuration, Stages, Training

OWN = "attnprobe"
TORCH = ("torch.optim", "torch.optim.lr_scheduler")
OPTIMIZER: dict[str, Any] = {
    "lr": NotNegative,
    "weight_decay": NotNegative,
    "eps": NotNegative,
    "betas": list[Dropout],
}
SCHEDULER: dict[str, Any] = {
    "factor": Share,
    "patience": Whole,
    "cooldown": Whole,
    "threshold": NotNegative,
    "eps": NotNegative,
}
"""Limits of torch's arguments, whose own annotations state none."""

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
"""Place → a class that may be used there."""
TARGET = "_target_"
DIRECTIVES = (TARGET, "_partial_", "_convert_", "_recursive_", "_args_")
"""Hydra's own keys of a part."""
STAGES = (TextEncoder, Attention, Decoder, Encoder)
"""Bases of classes that compute something: by their `forward`, or by what takes its place."""

Trusted = Sequence[str] | None
"""Packages besides attnprobe and torch.optim whose classes saved settings may name; None: settings
of a command line, which may name any class."""


def configured(content: Mapping[str, Any]) -> Configuration:
    """Check composed and resolved settings, and construct all that they name, each once.

    What takes long to import comes last: a mistake elsewhere need not wait for it. The tests import
    more than a model of three stages does, and a whole model is Hugging Face's.

    Raises:
        UserError: a setting has a wrong type, range, key or choice: one line with the setting, its
            value, what was expected, and the nearest known name.
    """
    check_arguments("", content, Configuration, complete=True)
    parameters = arguments(Configuration)
    model = content["model"]
    parts = dict(content)
    parts["data"] = built_part("data", content["data"] | {"seed": content["seed"]}, TextDataModule)
    if not is_whole(model):
        parts["model"] = built_model(model)
    for name in ("training", "trainer", "logger", "launcher", "task"):
        parts[name] = built_value(name, content[name], parameters[name].annotation)
    refuse_contradictions(parts["model"], parts["training"], parts["data"])
    for name in ("probe", "importance"):
        parts[name] = built_value(name, content[name], parameters[name].annotation)
    if content["study"] is not None:
        from attnprobe.findings.studies.base import Study

        parts["study"] = built_part("study", content["study"], Study)
    if is_whole(model):
        parts["model"] = built_model(model)
    return construct(Configuration, parts)


def refuse_contradictions(
    model: Mapping[str, Any] | Stages, training: Training, data: TextDataModule
) -> None:
    """Refuse settings of model, training and data that are right by themselves only.

    Args:
        model: its stages, or the settings of a whole model.
        training: its training.
        data: what it is trained on.

    Raises:
        UserError: a model from scratch is not to be trained; a recipe is not for a model that is
            trained already; no row is left for a training.
    """
    is_for_scratch = training.epochs > 0 and training.recipe.warmup is None
    if isinstance(model, Stages):
        encoder: Any = model.encoder
        if training.epochs == 0:
            raise UserError(
                "training.epochs=0: expected a whole number of at least 1; only a model that is "
                "trained already (model=pretrained) can be taken as it is"
            )
        if is_for_scratch and encoder.func.pretrained:
            raise UserError(
                f"model={shown(model.name)} has an encoder that is trained already, and this "
                f"recipe is for models from scratch: fine-tune it with training=finetune"
            )
    elif is_for_scratch:
        raise UserError(
            f"model={shown(model.get('name'))} is trained already, and this recipe is for models "
            f"from scratch: take it as it is with training=none, or fine-tune it with "
            f"training=finetune"
        )
    if training.epochs and not data.settings.trains:
        raise UserError(
            f"data.test_share=1 leaves no row for training.epochs={training.epochs}: expected a "
            f"number below 1, or training=none of a model that is trained already"
        )


def is_whole(model: Any) -> bool:
    """Whether settings name the class of a whole model, and not those of its stages."""
    return isinstance(model, Mapping) and TARGET in model


def built_model(model: Mapping[str, Any]) -> Any:
    """The `Stages` of settings of a model, or the constructor of a whole model."""
    if not is_whole(model):
        return built_section("model", model, Stages)
    from attnprobe.models.trained import TrainedModel

    return built_part("model", model, TrainedModel, deferred=True)


def built_section(place: str, settings: Mapping[str, Any], section: type[Section]) -> Any:
    """A section and all parts in it, from settings whose names and values are checked here."""
    kind = section.kind_of(settings)
    check_arguments(place, settings, kind, complete=True)
    return construct(kind, _built_values(place, settings, kind))


def built_part(place: str, part: Any, base: type, *, deferred: bool = False) -> Any:
    """A part and all parts in it, from a mapping with `_target_`.

    Args:
        place: where it stands in the configuration.
        part: the mapping.
        base: what its class has to be a subclass of.
        deferred: the part needs more than its settings, so that its constructor is returned.
    """
    kind = _class_of_part(place, part, base, deferred, None)
    settings = _without_directives(part)
    limits: Mapping[str, Any] = {}
    if kind.__module__.startswith(TORCH[0]):
        limits = SCHEDULER if kind.__module__ == TORCH[1] else OPTIMIZER
    check_arguments(place, settings, kind, limits, complete=not deferred)
    values = _built_values(place, settings, kind)
    if deferred:
        return defer(place, kind, values)
    try:
        return construct(kind, values)
    except Exception as error:  # whatever a class of somebody else's raises
        if isinstance(error, UserError):
            raise
        reason = " ".join(str(error).split())[:400]
        raise UserError(
            f"{place}: {part[TARGET]} cannot be constructed with {', '.join(values)} "
            f"({type(error).__name__}: {reason}). HYDRA_FULL_ERROR=1 shows where"
        ) from error


def _built_values(place: str, settings: Mapping[str, Any], kind: type) -> dict[str, Any]:
    """The arguments of a class by name, what is a part constructed."""
    parameters = arguments(kind)
    values = {}
    for name, value in settings.items():
        hint = parameters[name].annotation if name in parameters else Any
        values[str(name)] = built_value(f"{place}.{name}", value, hint)
    return values


def built_value(place: str, value: Any, hint: Any) -> Any:
    """The value of one setting, or the object that its annotation asks for."""
    if not isinstance(value, Mapping):
        return value
    section = section_of(hint)
    if section is not None:
        return built_section(place, value, section)
    part = part_of(hint)
    if part is not None:
        base, deferred = part
        return built_part(place, value, base, deferred=deferred)
    part = _part_in_mapping(hint)
    if part is not None:
        base, deferred = part
        return {
            name: built_part(f"{place}.{name}", entry, base, deferred=deferred)
            for name, entry in value.items()
        }
    # of a class whose annotations do not say that it takes an object
    return instantiate(value) if TARGET in value else value


def _part_in_mapping(hint: Any) -> tuple[type, bool] | None:
    """`part_of` the values of an annotation such as `Mapping[str, Probe]`."""
    if get_origin(hint) is not Mapping:
        return None
    _, value = get_args(hint)
    return part_of(value)


def check_saved(config: Mapping[str, Any], path: Path, trusted: Sequence[str] = ()) -> None:
    """Check every class that a run's settings name before anything is called.

    Values are checked where something is constructed from them.

    Args:
        config: as `read_settings` gives them.
        path: where they were read, for the messages.
        trusted: packages besides attnprobe and torch.optim that may bring classes. Importing a
            package runs its code, so that no other is imported.

    Raises:
        UserError: a class is not trusted, or none of the kind that its place asks for; or an object
            is asked for where none is constructed.
    """
    if isinstance(trusted, str) or not all(_is_identifier(package) for package in trusted):
        raise UserError(
            f"trusted={trusted!r}: expected a list of packages' names, such as [attnprobe_extra]"
        )
    try:
        _check_saved_settings("", config, Configuration, trusted)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error.__cause__


def _is_identifier(package: Any) -> bool:
    return isinstance(package, str) and package.isidentifier()


def _check_saved_settings(
    outer: str, settings: Any, kind: type | None, trusted: Sequence[str]
) -> None:
    """Check the classes in a mapping or a list; `kind` says what its values are, where known."""
    parameters = {} if kind is None else arguments(kind)
    for name, value in entries(settings):
        place = f"{outer}.{name}" if outer else str(name)
        if name in DIRECTIVES:
            raise UserError(
                f"{visible(place)[:200]} is refused: no object is constructed at this place"
            )
        hint = parameters[name].annotation if name in parameters else Any
        _check_saved_value(place, value, hint, trusted)


def _check_saved_value(place: str, value: Any, hint: Any, trusted: Sequence[str]) -> None:
    """Check the classes in the value of one setting; outside of parts nothing may ask for one."""
    part = part_of(hint)
    section = section_of(hint)
    if place == "model" and is_whole(value):
        from attnprobe.models.trained import TrainedModel

        part = (TrainedModel, True)
    elif place == "model":
        section = Stages
    elif place == "study" and value is not None:
        from attnprobe.findings.studies.base import Study

        part = (Study, False)

    is_absent = value is None and NoneType in get_args(hint)
    parts = _part_in_mapping(hint)
    if part is not None and not is_absent:
        _check_saved_part(place, value, part, trusted)
    elif parts is not None and isinstance(value, Mapping):
        for name, entry in value.items():
            _check_saved_part(f"{place}.{name}", entry, parts, trusted)
    else:
        _check_saved_settings(place, value, section, trusted)


def _check_saved_part(
    place: str, part: Any, wanted: tuple[type, bool], trusted: Sequence[str]
) -> None:
    base, deferred = wanted
    kind = _class_of_part(place, part, base, deferred, trusted)
    _check_saved_settings(place, _without_directives(part), kind, trusted)


def _without_directives(part: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in part.items() if name not in DIRECTIVES}


def _class_of_part(place: str, part: Any, base: type, deferred: bool, trusted: Trusted) -> type:
    """The class of a part; its other directives say nothing but when it is constructed."""
    check_value(place, part, Annotated[dict[str, Any], *Part.__metadata__])
    kind = _class_named(place, part[TARGET], base, trusted)
    if part.get("_partial_", False) is not deferred:
        expected = (
            "true, as its sizes come from the data"
            if deferred
            else "none: this part is constructed at once"
        )
        raise UserError(f"{place}._partial_={shown(part.get('_partial_'))}: expected {expected}")
    for name in ("_recursive_", "_args_", "_convert_"):
        if name in part and (name, part[name]) != ("_convert_", "all"):
            raise UserError(
                f"{visible(place)}.{name}={shown(part[name])} is refused: give arguments by name, "
                f"and nothing else"
            )
    return kind


def _class_named(place: str, target: str, base: type, trusted: Trusted) -> type:
    """The class of a dotted name, found without calling anything."""
    setting = f"{visible(place)}.{TARGET}={shown(target)}"
    example = EXAMPLES.get(place) or EXAMPLES.get(place.split(".")[0], "package.module.Class")
    if not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", target):
        raise UserError(f"{setting}: expected the dotted name of a class, such as {example}")
    module_name, _, name = target.rpartition(".")
    if trusted is not None:
        _refuse_untrusted(setting, target, trusted, example)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a module of somebody else's raises
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent is not None and f"{module_name}.".startswith(f"{absent}."):
            raise UserError(f"{setting}: there is no such class, such as {example}") from None
        raise UserError(
            f"{setting} cannot be imported ({type(error).__name__}: {error})"
        ) from error
    kind: Any = vars(module).get(name)
    if not issubclass(type(kind), type):
        raise UserError(f"{setting}: {_no_such_class(module, name, example)}")
    if trusted is not None:
        _refuse_other_name(setting, target, kind)
    computes = any(
        getattr(kind, method, None) != getattr(base, method, None)
        for method in ("forward", "states", "given")
    )
    is_concrete = base in kind.__mro__ and not inspect.isabstract(kind)
    if not is_concrete or (base in STAGES and not computes):
        raise UserError(
            f"{setting}: expected a concrete subclass of {base.__module__}.{base.__name__}, "
            f"such as {example}"
        )
    assert isinstance(kind, type)
    return kind


def _refuse_untrusted(setting: str, target: str, trusted: Sequence[str], example: str) -> None:
    """Refuse a class whose package may not even be imported."""
    module_name = target.rpartition(".")[0]
    package = target.split(".")[0]
    if package == OWN or module_name in TORCH:
        return
    if package in trusted and package != "torch":
        return
    raise UserError(
        f"{setting} is outside the trusted packages ({', '.join([OWN, *TORCH, *trusted])}): "
        f"expected such as {example}. If you trust {package}, name it: trusted=[{package}]"
    )


def _refuse_other_name(setting: str, target: str, kind: type) -> None:
    """Refuse what a trusted module only imports: the class has to be defined under its name."""
    module_name, _, name = target.rpartition(".")
    package = target.split(".")[0]
    home = str(vars(kind).get("__module__"))
    if package == OWN:
        is_home = home == module_name
    elif module_name in TORCH:
        is_home = home.startswith(TORCH[0])
    else:
        is_home = home.split(".")[0] == package
    if not is_home or kind.__qualname__ != name:
        raise UserError(
            f"{setting} is only another name for {home}.{kind.__qualname__}: it is not defined "
            f"there"
        )


def _no_such_class(module: ModuleType, name: str, example: str) -> str:
    """What to say of a name that is no class, with the classes that the module defines."""
    classes = [
        key
        for key, value in vars(module).items()
        if isinstance(value, type) and value.__module__ == module.__name__ and key[0] != "_"
    ]
    is_standard = module.__name__.split(".")[0] in sys.stdlib_module_names
    hint = f", such as {example}"
    if classes and not is_standard:
        hint = f"; {module.__name__} has {listed(classes)}"
    return f"there is no such class{nearest(name, classes)}{hint}"
