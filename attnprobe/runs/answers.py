"""Mistakes that Hydra and OmegaConf find, in one line: what was typed, what was expected, the
nearest known name."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.utils import get_class
from omegaconf import OmegaConf

from attnprobe.core.errors import UserError
from attnprobe.core.sanitise import visible
from attnprobe.core.settings import arguments, listed, nearest
from attnprobe.runs.composition import CONFIGURATION, composing

LONGEST = 600  # characters of a foreign message that are shown
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
CHECKPOINT = (
    "A classifier of Hugging Face's transformers is model=pretrained model.path=FOLDER, a folder as save_pretrained writes "
    "it, or model.path=OWNER/NAME on the hub; training=none takes it as it is"
)
EXTRAS = {
    "hydra/launcher/ray": "launcher=ray needs the Ray launcher: pip install 'attnprobe[ray]'",
    "hydra/sweeper/optuna": "hydra/sweeper=optuna needs Optuna's sweeper: pip install 'attnprobe[search]'",
}


def answer(error: BaseException, overrides: Sequence[str] = ()) -> str:
    """The one line that a mistake is answered with that was raised while the configuration of a
    command line was composed, resolved or constructed."""
    if found := next((one for one in (error, error.__cause__) if isinstance(one, UserError)), None):
        return str(found)  # a mistake that a constructor found comes wrapped
    kind = type(error).__name__
    text = str(error)
    if kind == "MissingConfigException":
        missing = str(getattr(error, "missing_cfg_file", "") or "")
        if missing in EXTRAS:
            return EXTRAS[missing]
        group, _, name = missing.rpartition("/")
        options = [one for one in getattr(error, "options", None) or () if one != "base"] or (
            choices(group) if group else []
        )
        given = next(
            (one for one in overrides if one.lstrip("+").startswith(group) and name in one),
            f"{group}={name}",
        )
        known = f" Known: {listed(options)}" if options else ""
        known += f". {CHECKPOINT}" if group == "model" else ""
        return f"{visible(given)}: there is no {visible(missing)} in conf/{nearest(name, options) or '.'}{known}"
    if kind == "OverrideParseException":  # Hydra's grammar cannot read it
        override = str(getattr(error, "override", ""))
        key, equals, value = override.partition("=")
        if not equals:
            return f"{visible(key)}: expected setting=value, such as seed=1"
        quoted = '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return f"{visible(override)}: the value cannot be read; put the name in quotes: {visible(key)}='{visible(quoted)}'"
    unknown = re.search(
        r"Could not (?:override|delete from config\.|append to config\.)[^']*'([^']*)'", text
    )
    if unknown and "already at" not in text:  # a setting that does not exist
        key = unknown[1]
        typed = visible(next((one for one in overrides if key in one.split("=")[0]), key))
        parent, _, last = key.split("@")[0].rpartition(".")
        # those of conf/ are known at once; to know all, classes have to be imported, and none of
        # theirs is at the top
        for optional in (False, True) if parent else (False,):
            names = list(dict.fromkeys([*known_settings(optional=optional), *GROUPS]))
            siblings = [one.rpartition(".")[2] for one in names if one.rpartition(".")[0] == parent]
            near = nearest(last, siblings)
            if near or last in siblings or not siblings:
                break
        if not siblings:
            return f"{typed}: there is no such setting{nearest(key.split('@')[0], names)}"
        if not parent or last not in siblings:  # it is only the last name that is unknown
            return f"{typed}: there is no such setting{near or '.'} Known here: {listed(siblings)}"
        room, _, part = parent.partition(".")
        if part and room in ("probe", "importance"):
            chosen_by = "probe=[…]" if room == "probe" else "importances=[…]"
            return f"{typed}: {visible(part)} is not chosen: add it to {chosen_by}, or leave this setting out"
        return f"{typed}: what is chosen here has no such setting; it belongs to another choice of {visible(room)}"
    if match := re.search(r"Interpolation key '(.*?)' not found(?:\s+full_key: (\S+))?", text):
        name = visible(match[1])
        if kind == "InterpolationKeyError" and match[2]:
            return f"{match[2]} refers to ${{{name}}}, which is not a setting: write a value, or the name of a setting"
        typed = " ".join(one for one in overrides if match[1] in one)
        return f"{visible(typed)}: ${{{name}}} is not a setting: write a value, or the name of a setting"
    if match := re.search(r"Missing mandatory value: (\S+)", text):
        # within a part of the configuration the whole name stands after it; where a setting refers
        # to it, that setting's does
        whole = re.search(rf"full_key: (\S+\.{re.escape(match[1])})\s*$", text, re.M)
        name = match[1] if whole is None else whole[1]
        return (
            f"{name}=???: a value must be given{f'. {CHECKPOINT}' if name == 'model.path' else ''}"
        )
    # a foreign message on one line, without the parts that say nothing to a user
    kept = [
        part
        for part in text.splitlines()
        if not re.match(r"\s*(object_type=|full_key: *$|See https?:)", part)
    ]
    line = visible(" ".join(" ".join(kept).split()))[:LONGEST]
    if "Config group override must be a string or a list" in text:
        chosen = [one for one in overrides if one.lstrip("+").split("=")[0].split("@")[0] in GROUPS]
        return (
            f"{visible(' '.join(chosen)) or text}: expected the name of a choice, a file of conf/"
        )
    if "Multiple values for" in text and (
        match := re.search(r"Multiple values for (\S+?)\.", text)
    ):
        return f"{match[1]} is given twice: {line}"
    return line or kind


def choices(group: str) -> list[str]:
    """The files of a group of this program's conf/."""
    return sorted(
        path.stem for path in (CONFIGURATION / group).glob("*.yaml") if path.stem != "base"
    )


@cache
def known_settings(*, optional: bool = True) -> tuple[str, ...]:
    """The dotted names of all settings as they are by default, and of all `optional` arguments that
    their classes take."""

    def dotted(content: Any, path: str) -> Iterator[str]:
        for key, value in content.items():
            yield f"{path}{key}"
            if isinstance(value, Mapping):
                yield from dotted(value, f"{path}{key}.")
                taken = (
                    arguments(get_class(value["_target_"]))
                    if optional and "_target_" in value
                    else ()
                )
                yield from (
                    f"{path}{key}.{argument}" for argument in taken if argument not in value
                )

    with nullcontext() if GlobalHydra.instance().is_initialized() else composing():
        content = OmegaConf.to_container(compose("config"))
    return tuple(dotted(content, ""))


def readable(argument: str) -> str:
    r"""A command-line argument as Hydra's grammar reads it: a plain value of other than ASCII
    letters gets quotes.

    >>> readable("data.text=评论"), readable("data.text=review"), readable("data.text='评论'")
    ("data.text='评论'", 'data.text=review', "data.text='评论'")
    """
    key, equals, value = argument.partition("=")
    if (
        not equals
        or not re.fullmatch(r"[+~]{0,2}[\w./@:-]+", key)
        or value.isascii()
        or re.search(r"[\[\]{}'\"$,\\]", value)
    ):
        return argument
    return f"{key}='{value}'"
