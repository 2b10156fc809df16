"""Generated damages of a checkpoint's folder. Every answer is a classifier or one line, and no file is executed."""

import json
import os
import pickle
import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import torch

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.models.pretrained.checkpoint import open_checkpoint
from tests.fuzz.files import damaged
from tests.models.pretrained.families import checkpoint

VALUES: tuple[Any, ...] = (
    None, 0, -1, 3, 10**9, 1.5, 1e400, True, "", "x", "../x", "/dev/zero", [], ["a"], {}, {"a": 1}, "gelu", "a\nb",
    "\x1b[31m", {"0": "x"}, {"": {"": {}}},
)  # fmt: skip
FAMILIES = ("bert", "distilbert", "roberta", "gpt2", "llama", "deberta-v2", "modernbert-cls")


class Executed:
    """Pickled, it writes a file where it is loaded."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.mark,)


def failure(number: int, folder: Path, seed: int = 0) -> str | None:
    """What the folder of this number ends in, where that is neither a classifier nor one line."""
    source = random.Random(f"{seed}-{number}")
    place, mark = folder / f"checkpoint{os.getpid()}", folder / f"executed{os.getpid()}"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(checkpoint(source.choice(FAMILIES)), place)
    done = "; ".join(damage(place, mark, source) for _ in range(source.choice((1, 1, 2))))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            given = open_checkpoint(str(place), ["negative", "positive"], Task.SINGLE_LABEL, trains=False, offline=True)
            pieces = given.reader.read([["a", "fine", "film"]])[0].ids
            given.network(input_ids=torch.tensor([[*map(int, pieces)]]))
    except UserError as error:
        return f"{done}: {str(error)!r}" if "\n" in str(error) or not str(error).strip() else None
    except Exception as error:
        return f"{done}: {type(error).__name__}: {str(error)[:200]}"
    finally:
        if mark.exists():
            mark.unlink()
            return f"{done}: a file of the checkpoint was executed"  # noqa: B012 - nothing is worse
    return None


def damage(place: Path, mark: Path, source: random.Random) -> str:
    path = source.choice(sorted(one for one in place.iterdir() if one.is_file()))
    kind = source.choice(
        ("entry", "entry", "entry", "bytes", "gone", "pickle", "index", "link", "fifo", "folder", "code")
    )
    if kind == "entry":
        path = source.choice(sorted(place.glob("*.json")))
        try:
            content = json.loads(path.read_bytes()) if path.is_file() else {}
        except ValueError:  # an earlier damage
            content = {}
        if not isinstance(content, dict) or not content:
            return "nothing"
        key = source.choice(list(content))
        inner = content[key]
        if isinstance(inner, dict) and inner and source.random() < 0.7:
            content, key = inner, source.choice(list(inner))
        whole = json.loads(path.read_bytes())
        value = source.choice(VALUES)
        target = whole if content is not inner else whole[next(one for one in whole if whole[one] == inner)]
        target[key] = value
        path.write_text(json.dumps(whole))
        return f"{path.name}: {key}={value!r}"
    if kind == "bytes":
        path.write_bytes(damaged(path.read_bytes(), source))
        return f"{path.name} damaged"
    if kind == "code":
        config = place / "config.json"
        if config.is_file():
            content = json.loads(config.read_text() or "{}")
            content["auto_map"] = {"AutoModelForSequenceClassification": "own.Model", "AutoConfig": "own.Config"}
            content["model_type"] = source.choice((content.get("model_type"), "own"))
            config.write_text(json.dumps(content))
        (place / "own.py").write_text(f"import pathlib; pathlib.Path({str(mark)!r}).touch()")
        return "code of its own"
    weights = place / "model.safetensors"
    if kind in ("pickle", "index"):
        pickled = pickle.dumps(Executed(mark))
        outside = place.parent / f"outside{os.getpid()}.bin"
        outside.write_bytes(pickled)
        (place / "pytorch_model.bin").write_bytes(pickled)
        names = {"classifier.weight": source.choice(("pytorch_model.bin", f"../{outside.name}", "model.safetensors"))}
        ending = source.choice(("pytorch_model.bin.index.json", "model.safetensors.index.json"))
        if kind == "index":
            (place / ending).write_text(
                json.dumps({"metadata": {}, "weight_map": source.choice((names, [], None, {"a": 3}))})
            )
        if source.random() < 0.7 and not weights.is_dir():  # a folder: an earlier damage
            weights.unlink(missing_ok=True)
        return f"{kind}: {ending}, {names}"
    path.unlink()
    if kind == "link":
        path.symlink_to(source.choice(("/dev/zero", "/etc/passwd", "nowhere", path.name)))
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    return f"{path.name}: {kind}"
