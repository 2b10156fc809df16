"""Generated damages of a checkpoint's folder.

Each ends in a classifier or one line, and no file is executed.
"""

import json
import os
import pickle
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from attnprobe.core.batch import Task
from attnprobe.data.passages import Passage, Passages
from attnprobe.models.pretrained.checkpoint import open_checkpoint
from tests.fuzz.files import damaged
from tests.models.pretrained.families import checkpoint

VALUES: tuple[Any, ...] = (
    None,
    0,
    -1,
    3,
    10**9,
    1.5,
    1e400,
    True,
    "",
    "x",
    "../x",
    "/dev/zero",
    [],
    ["a"],
    {},
    {"a": 1},
    "gelu",
    "a\nb",
    "\x1b[31m",
    {"0": "x"},
    {"": {"": {}}},
)
KINDS = (
    "entry",
    "entry",
    "entry",
    "bytes",
    "gone",
    "pickle",
    "index",
    "link",
    "fifo",
    "folder",
    "code",
)
FAMILIES = ("bert", "distilbert", "roberta", "gpt2", "llama", "deberta-v2", "modernbert-cls")


class Executed:
    """Pickled, it writes a file where it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def case(number: int, folder: Path, seed: int = 0) -> tuple[str, Callable[[], None]]:
    """The damaged folder of this number, which is to become a classifier that reads a sentence."""
    source = random.Random(f"{seed}-{number}")
    place = folder / f"checkpoint{os.getpid()}"
    mark = folder / f"executed{os.getpid()}"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(checkpoint(source.choice(FAMILIES)), place)
    damages = [damage(place, mark, source) for _ in range(source.choice((1, 1, 2)))]

    def attempt() -> None:
        try:
            classifier = open_checkpoint(
                str(place),
                ["no", "yes"],
                Task.SINGLE_LABEL,
                trains=False,
                offline=True,
                labels={},
            )
            words = Passage.of_words(["a", "fine", "film"])
            (pieces,) = classifier.reader.read([Passages((words,))])
            classifier.network(input_ids=torch.tensor([pieces.ids.tolist()]))
        finally:
            if mark.exists():
                mark.unlink()
                raise RuntimeError("a file of the checkpoint was executed")

    return "; ".join(damages), attempt


def damage(place: Path, mark: Path, source: random.Random) -> str:
    """Change one thing in the folder.

    Args:
        place: the folder.
        mark: a file that would be written if code in the folder were executed.
        source: decides what is changed, and how.

    Returns:
        What was changed.
    """
    path = source.choice(sorted(file for file in place.iterdir() if file.is_file()))
    kind = source.choice(KINDS)
    if kind == "entry":
        return change_entry(place, source)
    if kind == "bytes":
        path.write_bytes(damaged(path.read_bytes(), source))
    elif kind == "code":
        add_code(place, mark, source)
    elif kind in ("pickle", "index"):
        return add_pickle(place, mark, kind, source)
    else:
        replace_file(path, kind, source)
    return f"{path.name}: {kind}"


def change_entry(place: Path, source: random.Random) -> str:
    """Put another value into a JSON file."""
    path = source.choice(sorted(place.glob("*.json")))
    try:
        content = json.loads(path.read_bytes()) if path.is_file() else {}
    except ValueError:  # an earlier damage
        content = {}
    if not isinstance(content, dict) or not content:
        return "nothing"
    target = content
    key = source.choice(list(content))
    if isinstance(content[key], dict) and content[key] and source.random() < 0.7:
        target = content[key]
        key = source.choice(list(target))
    value = source.choice(VALUES)
    target[key] = value
    path.write_text(json.dumps(content))
    return f"{path.name}: {key}={value!r}"


def add_code(place: Path, mark: Path, source: random.Random) -> None:
    """Let the configuration name a module of the folder's own."""
    config = place / "config.json"
    if config.is_file():
        content = json.loads(config.read_text() or "{}")
        content["auto_map"] = {
            "AutoModelForSequenceClassification": "own.Model",
            "AutoConfig": "own.Config",
        }
        content["model_type"] = source.choice((content.get("model_type"), "own"))
        config.write_text(json.dumps(content))
    (place / "own.py").write_text(f"import pathlib; pathlib.Path({str(mark)!r}).touch()")


def add_pickle(place: Path, mark: Path, kind: str, source: random.Random) -> str:
    """Put a pickle that executes code beside the weights, or an index that names one."""
    outside = place.parent / f"outside{os.getpid()}.bin"
    weights = place / "model.safetensors"
    for file in (outside, place / "pytorch_model.bin"):
        file.write_bytes(pickle.dumps(Executed(mark)))
    targets = ("pytorch_model.bin", f"../{outside.name}", "model.safetensors")
    names = {"classifier.weight": source.choice(targets)}
    indices = ("pytorch_model.bin.index.json", "model.safetensors.index.json")
    path = place / source.choice(indices)
    if kind == "index":
        listed = source.choice((names, [], None, {"a": 3}))
        path.write_text(json.dumps({"metadata": {}, "weight_map": listed}))
        kind = f"index of {listed}"
    if source.random() < 0.7 and not weights.is_dir():  # a folder: an earlier damage
        weights.unlink(missing_ok=True)
    return f"{path.name}: {kind}"


def replace_file(path: Path, kind: str, source: random.Random) -> None:
    """Put a link, a pipe, a folder or nothing in a file's place."""
    path.unlink()
    if kind == "link":
        path.symlink_to(source.choice(("/dev/zero", "/etc/passwd", "nowhere", path.name)))
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
