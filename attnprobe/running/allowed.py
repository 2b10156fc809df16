"""What saved settings may construct: classes of known bases, resolved and checked before anything is called.

A run directory may come from anybody. Its config.yaml names classes, and whatever it names would be called with the
arguments beside it. So every name is looked up here without calling anything, and has to be a class of the base that
its place asks for: `PLACES` says so for the outermost ones, and the annotations of a class's own arguments for those
within. No place takes a function, a method, or a class of any other kind.
"""

import importlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import torch

from attnprobe.data.module import TextDataModule
from attnprobe.data.sources import Source
from attnprobe.errors import UserError
from attnprobe.importance.base import Importance
from attnprobe.models.attention import Attention
from attnprobe.models.classifier import Recipe
from attnprobe.models.decoders import Decoder
from attnprobe.models.encoders import Encoder, TextEncoder
from attnprobe.models.objectives import Objective
from attnprobe.models.trained import TrainedModel
from attnprobe.probes.base import Probe
from attnprobe.results.saved import entries, shown

BASES = (
    TextDataModule,
    Source,
    TrainedModel,
    TextEncoder,
    Attention,
    Decoder,
    Recipe,
    Objective,
    Probe,
    Importance,
    torch.optim.Optimizer,
    torch.optim.lr_scheduler.LRScheduler,
)
"""The only kinds of classes that saved settings may name."""

PLACES: dict[tuple[str, ...], tuple[type, bool]] = {
    ("data",): (TextDataModule, False),
    ("model", "encoder"): (TextEncoder, True),
    ("model", "question_encoder"): (Encoder, True),
    ("model", "attention"): (Attention, True),
    ("model", "decoder"): (Decoder, True),
    ("training", "recipe"): (Recipe, False),
    ("probe", "*"): (Probe, False),
    ("importance", "*"): (Importance, False),
}
"""Place in the settings → the base of its class, and whether its construction is completed later (`_partial_`)."""

MOVED = ("tolerance", "chunk")
"""Settings of probes that are those of an importance now; runs of before have them, and they construct nothing."""

OWN, TORCH = "attnprobe", ("torch.optim", "torch.optim.lr_scheduler")
DOTTED = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)+")
REFUSED_KEYS = ("_recursive_", "_args_")
"""Hydra's keys that no configuration of ours uses."""


def check_classes(settings: Mapping[str, Any], path: Path, trusted: Sequence[str] = ()) -> None:
    """Look up and check every class that saved settings name, and the names of its arguments, before anything is called.

    Args:
        settings: a run's settings, as `read_settings` gives them.
        path: where they were read, for the messages.
        trusted: packages besides attnprobe and torch.optim that may bring subclasses of our bases. Importing a package
            runs its code, so that no other is imported.

    Raises:
        UserError: a class that may not be constructed, or that is used where another kind belongs.
    """
    if isinstance(trusted, str) or not all(isinstance(one, str) and one.isidentifier() for one in trusted):
        raise UserError(f"trusted={trusted!r}: expected a list of packages' names, such as [attnprobe_extra]")
    check_place(settings, (), path, trusted)


def check_place(content: Any, place: tuple[str, ...], path: Path, trusted: Sequence[str]) -> None:
    """Check one part of the settings, whose own place is not an object's argument, and everything within."""
    wanted = PLACES.get(place) or (PLACES.get((*place[:-1], "*")) if place else None)
    if place == ("model",) and isinstance(content, Mapping) and "_target_" in content:
        wanted = (TrainedModel, True)
    if wanted is not None and content is not None:
        check_object(content, place, wanted, path, trusted)
        return
    refuse_directives(content, place, path)
    for key, value in entries(content):
        check_place(value, (*place, str(key)), path, trusted)


def check_object(
    content: Any, place: tuple[str, ...], wanted: tuple[type, bool], path: Path, trusted: Sequence[str]
) -> None:
    """Check settings that construct one object of the base and of the kind (partial or not) that `wanted` says."""
    base, partial = wanted
    if not isinstance(content, Mapping) or not isinstance(content.get("_target_"), str):
        raise UserError(f"{path}: {shown(place)} names no class: expected _target_ with a subclass of {full(base)}")
    kind = allowed_class(content["_target_"], base, f"{path}: {shown(place)}", trusted)
    for key in REFUSED_KEYS:
        if key in content:
            raise UserError(f"{path}: {shown((*place, key))} is refused: no settings of attnprobe use it")
    if content.get("_partial_", False) is not partial or content.get("_convert_", "all") != "all":
        form = "with _partial_: true" if partial else "without _partial_"
        raise UserError(f"{path}: {shown(place)} has to be {form}, and with no _convert_ but all")
    arguments = parameters(kind)
    for key, value in content.items():
        here = (*place, str(key))
        if key in ("_target_", "_partial_", "_convert_"):
            continue
        if key not in arguments and place[0] == "probe" and key in MOVED:
            refuse_objects(value, here, path)
            continue
        if key not in arguments:
            raise UserError(f"{path}: {shown(here)}: {full(kind)} takes no argument of that name")
        inner = arguments[key]
        if inner is not None and isinstance(value, Mapping):
            check_object(value, here, inner, path, trusted)
        else:
            refuse_objects(value, here, path)


def allowed_class(target: str, base: type, where: str, trusted: Sequence[str]) -> type:
    """The class of this dotted name, found without calling anything.

    Raises:
        UserError: from outside the packages, not defined there, not a class, abstract, or not of the base.
    """
    refused = f"{where} asks for {target[:200]}, which"
    module, _, name = target.rpartition(".")
    package = target.split(".")[0]
    if not DOTTED.fullmatch(target):
        raise UserError(f"{refused} is not a name of a class")
    if not (package == OWN or module in TORCH or package in set(trusted) - {"torch"}):
        if any(issubclass(base, one) for one in (torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler)):
            expected = f"expected a class of {' or '.join(TORCH)}"
        else:
            expected = f"expected a subclass of {full(base)}"
        raise UserError(
            f"{refused} is outside the trusted packages ({', '.join([OWN, *TORCH, *trusted])}): {expected}. If you trust "
            f"{package}, name it: trusted=[{package}]"
        )
    try:
        named: Any = vars(importlib.import_module(module)).get(name)
    except ImportError as error:
        raise UserError(f"{refused} cannot be imported: {error}") from None
    if not issubclass(type(named), type):
        raise UserError(f"{refused} is not a class: only subclasses of {full(base)} may be used here")
    own_module = str(vars(named).get("__module__"))
    same = own_module == module if package == OWN else own_module.split(".")[0] == package
    if not same or named.__qualname__ != name or (module in TORCH and not own_module.startswith(TORCH[0])):
        raise UserError(
            f"{refused} is only another name for {own_module}.{named.__qualname__}: it is not defined there"
        )
    if base not in named.__mro__ or inspect.isabstract(named):
        raise UserError(f"{refused} is not a concrete subclass of {full(base)}: nothing else may be used here")
    assert isinstance(named, type)
    return named


def parameters(kind: type) -> dict[str, tuple[type, bool] | None]:
    """A class's arguments by name: the base and kind of the object that one takes, or None where it takes plain values."""
    try:
        hints = get_type_hints(vars(kind).get("__init__", kind.__init__))  # type: ignore[misc]
    except Exception:  # an annotation of a trusted package that cannot be looked up: then it takes plain values
        hints = {}
    names = list(inspect.signature(kind).parameters)
    return {name: wanted_object(hints.get(name)) for name in names}


def wanted_object(hint: Any) -> tuple[type, bool] | None:
    """The base of what an argument takes, and whether it takes something that constructs it.

    >>> wanted_object(Source | None)
    (<class 'attnprobe.data.sources.Source'>, False)
    >>> wanted_object(Callable[..., Encoder])
    (<class 'attnprobe.models.encoders.Encoder'>, True)
    >>> wanted_object(int | None)
    """
    if get_origin(hint) in (Union, UnionType):
        kinds = [one for one in map(wanted_object, get_args(hint)) if one is not None]
        return kinds[0] if len(kinds) == 1 else None
    if get_origin(hint) is Callable:
        inner = wanted_object(get_args(hint)[-1])
        return None if inner is None else (inner[0], True)
    return (hint, False) if isinstance(hint, type) and any(base in hint.__mro__ for base in BASES) else None


def refuse_objects(content: Any, place: tuple[str, ...], path: Path) -> None:
    """Raise a `UserError` where plain values, at any depth, ask for an object."""
    refuse_directives(content, place, path)
    for key, value in entries(content):
        refuse_objects(value, (*place, str(key)), path)


def refuse_directives(content: Any, place: tuple[str, ...], path: Path) -> None:
    """Raise a `UserError` where settings that are plain values hold a key that Hydra obeys."""
    for key, _ in entries(content):
        if key in ("_target_", "_partial_", "_convert_", *REFUSED_KEYS):
            raise UserError(f"{path}: {shown((*place, key))} is refused: no object is constructed at this place")


def full(one: type) -> str:
    """A class's dotted name."""
    return f"{one.__module__}.{one.__qualname__}"
