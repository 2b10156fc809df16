"""Generated damages of a checkpoint's folder. Every answer is a classifier or one line, and no file
is executed."""

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
    """The folder of this number, which is to become a classifier that reads a sentence."""
    source = random.Random(f"{seed}-{number}")
    place = folder / f"checkpoint{os.getpid()}"
    mark = folder / f"executed{os.getpid()}"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(checkpoint(source.choice(FAMILIES)), place)
    done = "; ".join(damage(place, mark, source) for _ in range(source.choice((1, 1, 2))))

    def attempt() -> None:
        try:
            task = Task.SINGLE_LABEL
            given = open_checkpoint(
                str(place), ["no", "yes"], task, trains=False, offline=True, labels={}
            )
            pieces = given.reader.read([["a", "fine", "film"]])[0].ids
            given.network(input_ids=torch.tensor([[*map(int, pieces)]]))
        finally:
            if mark.exists():
                mark.unlink()
                raise RuntimeError("a file of the checkpoint was executed")

    return done, attempt


def damage(place: Path, mark: Path, source: random.Random) -> str:
    """Change one thing in the folder; returns what."""
    path = source.choice(sorted(one for one in place.iterdir() if one.is_file()))
    kind = source.choice(KINDS)
    if kind == "entry":
        path = source.choice(sorted(place.glob("*.json")))
        try:
            whole = json.loads(path.read_bytes()) if path.is_file() else {}
        except ValueError:  # an earlier damage
            whole = {}
        if not isinstance(whole, dict) or not whole:
            return "nothing"
        target = whole
        key = source.choice(list(whole))
        if isinstance(whole[key], dict) and whole[key] and source.random() < 0.7:
            target = whole[key]
            key = source.choice(list(whole[key]))
        target[key] = value = source.choice(VALUES)
        path.write_text(json.dumps(whole))
        return f"{path.name}: {key}={value!r}"
    if kind == "bytes":
        path.write_bytes(damaged(path.read_bytes(), source))
    elif kind == "code":
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
    elif kind in ("pickle", "index"):
        outside = place.parent / f"outside{os.getpid()}.bin"
        weights = place / "model.safetensors"
        for one in (outside, place / "pytorch_model.bin"):
            one.write_bytes(pickle.dumps(Executed(mark)))
        names = {
            "classifier.weight": source.choice(
                ("pytorch_model.bin", f"../{outside.name}", "model.safetensors")
            )
        }
        path = place / source.choice(
            ("pytorch_model.bin.index.json", "model.safetensors.index.json")
        )
        if kind == "index":
            listed = source.choice((names, [], None, {"a": 3}))
            path.write_text(json.dumps({"metadata": {}, "weight_map": listed}))
            kind = f"index of {listed}"
        if source.random() < 0.7 and not weights.is_dir():  # a folder: an earlier damage
            weights.unlink(missing_ok=True)
    else:
        path.unlink()
        if kind == "link":
            path.symlink_to(source.choice(("/dev/zero", "/etc/passwd", "nowhere", path.name)))
        elif kind == "fifo":
            os.mkfifo(path)
        elif kind == "folder":
            path.mkdir()
    return f"{path.name}: {kind}"
