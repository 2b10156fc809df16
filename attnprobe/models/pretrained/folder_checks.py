"""Refuse what `transformers` would believe of a checkpoint's folder without asking.

A folder may be anybody's: its weights may be pickles, its tokenizer may make very long texts of
short ones, and its settings may fetch code.
"""

import base64
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from attnprobe.core.errors import UserError
from attnprobe.core.settings import nearest
from attnprobe.data.naming import HUB_NAME

INDEX = "model.safetensors.index.json"
TOKENIZER = "tokenizer.json"
CONFIG = "config.json"
ADAPTER = "adapter_config.json"
MOST_LAYERS = 1000
MOST_GROWTH = 1000
"""Characters that a tokenizer may make of one, before it cuts the text; a compatibility form (NFKC)
makes 18."""


def check_path(path: str) -> None:
    """Refuse a folder that is missing, or whose files would do harm; a name on the hub may pass.

    Raises:
        UserError: see `check_folder`; or nothing is there.
    """
    folder = Path(path)
    if folder.is_dir():
        check_folder(folder)
        return
    looks_local = folder.parent.is_dir() or not HUB_NAME.fullmatch(path)
    if "/" in path and looks_local and not folder.exists():
        near = nearest(folder.name, [sibling.name for sibling in folder.parent.glob("*")])
        raise UserError(
            f"model.path={path}: there is no such folder{near}; expected one as save_pretrained "
            f"writes it"
        )


def check_folder(folder: Path) -> None:
    """Refuse a folder whose files would do harm, or that is no whole model.

    Raises:
        UserError: names the file, and what was expected.
    """
    if (folder / ADAPTER).exists():
        raise UserError(
            f"model.path={folder} holds an adapter ({ADAPTER}), not the model that it changes: "
            f"expected both merged, with "
            f"peft.AutoPeftModelForSequenceClassification.from_pretrained(FOLDER)"
            f".merge_and_unload().save_pretrained(NEW)"
        )
    for file in folder.iterdir():
        if not (file.is_file() or file.is_dir()):
            raise UserError(
                f"{file} is a pipe, a device or a broken link: expected files as save_pretrained "
                f"writes them"
            )
    _check_index(folder / INDEX)
    _check_normalizer(folder / TOKENIZER)
    _check_config(folder / CONFIG)


def _json_object(file: Path) -> dict[str, Any]:
    """The content of a JSON file; empty where it is none: `transformers` says what is wrong."""
    with suppress(OSError, ValueError, RecursionError):
        content = json.loads(file.read_bytes())
        if isinstance(content, dict):
            return content
    return {}


def _check_index(file: Path) -> None:
    """Refuse an index of weights that names anything but safetensors of the same folder."""
    weight_map = _json_object(file).get("weight_map")
    names = {str(name) for name in weight_map.values()} if isinstance(weight_map, dict) else set()
    for name in sorted(names):
        if Path(name).name != name or not name.endswith(".safetensors"):
            raise UserError(
                f"{file} names the file {name[:100]!r}: expected files of this folder that end in "
                f".safetensors, as save_pretrained writes them (no .bin: pickles are not loaded)"
            )


def _check_normalizer(file: Path) -> None:
    """Refuse a tokenizer that may make very long texts of short ones."""
    rules = _json_object(file)
    growth = _growth([rules.get("normalizer"), rules.get("pre_tokenizer")])
    if growth > MOST_GROWTH:
        raise UserError(
            f"{file}: its normalizer may make {growth:.3g} characters of one: expected at most "
            f"{MOST_GROWTH:,}, as the tokenizers of published models do. Take the tokenizer that "
            f"belongs to the model"
        )


def _check_config(file: Path) -> None:
    """Refuse very many layers, or an attention that would be fetched from the hub, as code."""
    for name, value in _json_object(file).items():
        counts_layers = name.endswith(("layer", "layers")) and isinstance(value, int)
        too_deep = counts_layers and value > MOST_LAYERS
        is_fetched = name == "_attn_implementation" and "/" in str(value)
        if too_deep or is_fetched:
            raise UserError(
                f"{file}: {name}={str(value)[:60]} is not supported: expected a model of at most "
                f"{MOST_LAYERS:,} layers with the library's own attention"
            )


def _growth(rules: Any) -> float:
    """How many characters the rules of a tokenizer.json make of one, at most.

    Args:
        rules: normalizers and pre-tokenizers, nested in lists and objects.
    """
    growth = 1.0
    pending = [rules]
    while pending:
        rule = pending.pop()
        if isinstance(rule, list):
            pending += rule
        elif isinstance(rule, dict):
            pending += rule.values()
            growth *= _growth_of_rule(rule)
    return growth


def _growth_of_rule(rule: dict[str, Any]) -> float:
    """The factor of one normalizer or pre-tokenizer."""
    kind = rule.get("type")
    if kind == "ByteLevel":
        return 2.0
    if kind == "Precompiled":
        return _growth_of_table(rule)
    if kind not in ("Replace", "Prepend"):
        return 1.0

    pattern = rule.get("pattern")
    if kind == "Replace" and isinstance(pattern, dict) and pattern.get("String"):
        return max(1.0, len(str(rule.get("content"))) / len(str(pattern["String"])))
    # an expression may be found between any two characters
    return 1.0 + len(str(rule.get("content", rule.get("prepend"))))


def _growth_of_table(rule: dict[str, Any]) -> float:
    """The factor of SentencePiece's precompiled table.

    It holds its size, the table, then the texts that it leads to, with a zero after each.
    """
    with suppress(ValueError, TypeError):
        table = base64.b64decode(rule.get("precompiled_charsmap", ""))
        size = int.from_bytes(table[:4], "little")
        texts = table[4 + size :].split(b"\0")
        return float(max(1, *map(len, texts)))
    return 1.0
