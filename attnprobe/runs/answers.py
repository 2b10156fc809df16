"""One-line answers to mistakes that Hydra and OmegaConf find.

Each says what was typed, what was expected, and the nearest known name."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from hydra.utils import get_class
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import visible
from attnprobe.core.settings import arguments, listed, nearest
from attnprobe.runs.composition import CONFIGURATION, composing

LONGEST = 600
"""Characters of a foreign message that are shown."""
GROUPS = (
    "data",
    "model",
    "training",
    "trainer",
    "logger",
    "launcher",
    "probe",
    "importance",
    "task",
    "experiment",
    "training_on",
)
CHECKPOINT_PATH = (
    "model.path=FOLDER, a folder as save_pretrained writes it, or model.path=OWNER/NAME on the hub"
)
CHECKPOINT = (
    f"A classifier of Hugging Face's transformers is model=pretrained {CHECKPOINT_PATH}; "
    f"training=none takes it as it is"
)
MAPPINGS = ("data.filters", "data.labels", "data.per_word")
"""Settings that are mappings whose names are the user's."""
CHOSEN_BY = {"probe": "probe=[…]", "importance": "importances=[…]"}
"""Group of which several are chosen → the setting that does so."""
EXTRAS = {
    "hydra/launcher/ray": "launcher=ray needs the Ray launcher: pip install 'attnprobe[ray]'",
    "hydra/sweeper/optuna": (
        "hydra/sweeper=optuna needs Optuna's sweeper: pip install 'attnprobe[search]'"
    ),
}


def answer(error: BaseException, overrides: Sequence[str] = ()) -> str:
    """The one line that answers a mistake in a configuration.

    Args:
        error: raised while the configuration was composed, resolved or constructed.
        overrides: the command line's settings.
    """
    for raised in (error, error.__cause__):  # a constructor's own message comes wrapped
        if isinstance(raised, UserError):
            return str(raised)
    if isinstance(error, OSError) and error.filename and error.strerror:
        path = visible(str(error.filename))
        if os.path.exists(error.filename) and not os.access(error.filename, os.R_OK):
            return f"cannot read {path}: {error.strerror}. Ask its owner for the right to"
        return f"cannot write to {path}: {error.strerror}. Choose a writable place with output=…"
    kind = type(error).__name__
    if kind == "MissingConfigException":
        return _missing_choice(error, overrides)
    if kind == "OverrideParseException":
        return _unreadable(str(getattr(error, "override", "")))
    text = str(error)
    unknown = re.search(
        r"Could not (?:override|delete from config\.|append to config\.)[^']*'([^']*)'", text
    )
    if unknown and "already at" not in text:
        return _unknown_setting(unknown[1], overrides)
    unmergeable = re.search(r"Error merging override (.*)", text)
    if unmergeable:
        return _to_replace(unmergeable[1])
    reference = re.search(r"Interpolation key '(.*?)' not found(?:\s+full_key: (\S+))?", text)
    if reference:
        place = reference[2] if kind == "InterpolationKeyError" else None
        return _unknown_reference(reference[1], place, overrides)
    missing = re.search(r"Missing mandatory value: (\S+)", text)
    if missing:
        return _missing_value(missing[1], text)
    return _foreign(text, overrides) or kind


def _missing_choice(error: BaseException, overrides: Sequence[str]) -> str:
    """The answer to a choice that is no file of conf/."""
    missing = str(getattr(error, "missing_cfg_file", "") or "")
    if missing in EXTRAS:
        return EXTRAS[missing]
    group, _, name = missing.rpartition("/")
    options = [option for option in getattr(error, "options", None) or () if option != "base"]
    if not options and group:
        options = choices(group)
    typed = f"{group}={name}"
    for override in overrides:
        if override.lstrip("+").startswith(group) and name in override:
            typed = override
            break
    hint = f" Known: {listed(options)}" if options else ""
    if group == "model":
        hint += f". {CHECKPOINT}"
    return (
        f"{visible(typed)}: there is no {visible(missing)} in conf/"
        f"{nearest(name, options) or '.'}{hint}"
    )


def _unreadable(override: str) -> str:
    """The answer to an argument that Hydra's grammar cannot read."""
    key, equals, value = override.partition("=")
    if not equals:
        return (
            f"{visible(key)}: expected setting=value, such as seed=1; a command stands behind the "
            f"name of the program alone: attnprobe --help lists them"
        )
    if value.startswith("["):
        return (
            f"{visible(override)}: the list cannot be read; put each element that has more than "
            f"letters and digits in quotes, such as \"{visible(key)}=['a=1','b=[c]']\""
        )
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    quoted = visible(f'"{escaped}"')
    return (
        f"{visible(override)}: the value cannot be read; put the name in quotes: "
        f"{visible(key)}='{quoted}'"
    )


def _unknown_setting(key: str, overrides: Sequence[str]) -> str:
    """The answer to a setting that does not exist."""
    typed = key
    for override in overrides:
        if key in override.split("=")[0]:
            typed = override
            break
    typed = visible(typed)
    if key == "experiment":
        return (
            f"{typed}: an experiment is chosen with a plus, +experiment=NAME, of "
            f"{listed(choices(key))}. Runs get a name of your own by output=FOLDER, and in W&B by "
            f"logger=wandb logger.group=NAME"
        )
    if key in MAPPINGS:
        return _to_replace(typed)
    parent, _, last = key.split("@")[0].rpartition(".")
    if parent in MAPPINGS:
        return f"{typed}: {parent} has no such name; add it with a plus: '+{typed}'"
    names, siblings = _settings_beside(parent, last)
    if last not in siblings:
        of_choices = _settings_beside(parent, last, _chosen_files(overrides))
        names, siblings = of_choices if of_choices[1] else (names, siblings)
    near = nearest(last, siblings)
    group, _, part = parent.partition(".")
    is_unchosen = group in CHOSEN_BY and part in choices(group)
    if is_unchosen and (not siblings or last in siblings):
        return (
            f"{typed}: {visible(part)} is not chosen: add it to {CHOSEN_BY[group]}, or leave this "
            f"setting out"
        )
    if not siblings:
        return f"{typed}: there is no such setting{nearest(key.split('@')[0], names)}"
    if not parent or last not in siblings:  # only the last name is unknown
        return f"{typed}: there is no such setting{near or '.'} Known here: {listed(siblings)}"
    return (
        f"{typed}: what is chosen here has no such setting; it belongs to another choice of "
        f"{visible(group)}"
    )


def _to_replace(typed: str) -> str:
    """The answer to a list or a mapping that cannot be merged with what is set already."""
    name, _, value = typed.partition("=")
    return (
        f"{visible(typed)}: it cannot be merged with what is set there already; put it in its "
        f"place: '~{visible(name)}' '+{visible(name)}={visible(value)}'"
    )


def _chosen_files(overrides: Sequence[str]) -> tuple[str, ...]:
    """Those settings of a command line that choose one file of conf/, such as `data=sst`."""
    chosen = []
    for override in overrides:
        group, _, choice = override.lstrip("+").partition("=")
        if group.split("/")[0] in GROUPS and re.fullmatch(r"\w+", choice):
            chosen.append(override)
    return tuple(chosen)


def _settings_beside(
    parent: str, last: str, chosen: tuple[str, ...] = ()
) -> tuple[list[str], list[str]]:
    """All known settings, and the last names of those that stand below `parent`.

    Those of conf/ are known at once. To know the optional ones classes have to be imported, which
    is only done where the first do not answer; no class's stand at the top.

    Args:
        parent: dotted name of a part of the configuration.
        last: name of a setting in it that was asked for.
        chosen: files of conf/ whose settings they are; without, those of the defaults.
    """
    names: list[str] = []
    siblings: list[str] = []
    for optional in (False, True) if parent else (False,):
        known = known_settings(chosen, optional=optional)
        names = list(dict.fromkeys([*known, *GROUPS]))
        siblings = [name.rpartition(".")[2] for name in names if name.rpartition(".")[0] == parent]
        if nearest(last, siblings) or last in siblings or not siblings:
            break
    return names, siblings


def _unknown_reference(key: str, place: str | None, overrides: Sequence[str]) -> str:
    """The answer to `${key}`, which stands at `place` where that is known."""
    name = visible(key)
    if place:
        return (
            f"{place} refers to ${{{name}}}, which is not a setting: write a value, or the name of "
            f"a setting"
        )
    typed = " ".join(override for override in overrides if key in override)
    return (
        f"{visible(typed)}: ${{{name}}} is not a setting: write a value, or the name of a setting"
    )


def _missing_value(name: str, text: str) -> str:
    """The answer to a setting that has to be given."""
    # within a part of the configuration the whole name stands after it; where a setting refers to
    # it, that setting's does
    whole = re.search(rf"full_key: (\S+\.{re.escape(name)})\s*$", text, re.M)
    if whole is not None:
        name = whole[1]
    hint = f": {CHECKPOINT_PATH}" if name == "model.path" else ""
    return f"{name}=???: a value must be given{hint}"


def _foreign(text: str, overrides: Sequence[str]) -> str:
    """A foreign message on one line, without the parts that say nothing to a user."""
    uninformative = re.compile(r"\s*(object_type=|full_key: *$|See https?:)")
    parts = [part for part in text.splitlines() if not uninformative.match(part)]
    line = visible(" ".join(" ".join(parts).split()))[:LONGEST]
    if "Config group override must be a string or a list" in text:
        chosen = []
        for override in overrides:
            key = override.lstrip("+").split("=")[0]
            if key.split("@")[0] in GROUPS:
                chosen.append(override)
        typed = visible(" ".join(chosen)) or text
        return f"{typed}: expected the name of a choice, a file of conf/"
    repeated = re.search(r"Multiple values for (\S+?)\.", text)
    if repeated:
        return f"{repeated[1]} is given twice: {line}"
    return line


def choices(group: str) -> list[str]:
    """The files of a group of this program's conf/."""
    stems = [path.stem for path in (CONFIGURATION / group).glob("*.yaml")]
    return sorted(stem for stem in stems if stem != "base")


@cache
def known_settings(chosen: tuple[str, ...] = (), *, optional: bool = True) -> tuple[str, ...]:
    """The dotted names of all settings of a configuration; none where it cannot be composed.

    Args:
        chosen: files of conf/, such as `data=sst`, in place of the defaults.
        optional: also those of all arguments that its classes take; imports the classes.
    """
    with nullcontext() if GlobalHydra.instance().is_initialized() else composing():
        try:
            content = OmegaConf.to_container(compose("config", overrides=list(chosen)))
        except (HydraException, OmegaConfBaseException):
            return ()
    return tuple(_dotted_names(content, "", optional))


def _dotted_names(content: Any, outer: str, optional: bool) -> Iterator[str]:
    """The names in a mapping and in those within it, each after the names around it."""
    for key, value in content.items():
        yield f"{outer}{key}"
        if not isinstance(value, Mapping):
            continue
        yield from _dotted_names(value, f"{outer}{key}.", optional)
        if optional and "_target_" in value:
            for argument in arguments(get_class(value["_target_"])):
                if argument not in value:
                    yield f"{outer}{key}.{argument}"


def readable(argument: str) -> str:
    r"""A command-line argument as Hydra's grammar reads it.

    A plain value of other than ASCII letters gets quotes.

    >>> readable("data.text=评论"), readable("data.text=review"), readable("data.text='评论'")
    ("data.text='评论'", 'data.text=review', "data.text='评论'")
    """
    key, equals, value = argument.partition("=")
    is_setting = equals and re.fullmatch(r"[+~]{0,2}[\w./@:-]+", key)
    has_grammar = re.search(r"[\[\]{}'\"$,\\]", value)
    if not is_setting or value.isascii() or has_grammar:
        return argument
    return f"{key}='{value}'"
