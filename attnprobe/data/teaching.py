"""What a trained run says about every example of its data, for runs that learn from it or are compared with it.

One safetensors file per split, `examples/<split>.safetensors` in the run's directory (`RunDirectory.outputs`):

    example_id  [n]           as in the tables, ascending
    text        [n]           a number that stands for the example's words, to see whether a student reads the same
    offsets     [n + 1]       the attention of example i is attention[offsets[i]:offsets[i + 1]]
    attention   [positions]   float32, over the content positions, sums to 1 per example
    probability [n, classes]  float32
"""

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from attnprobe.data.ragged import Ragged
from attnprobe.errors import UserError
from attnprobe.results.checksums import damaged
from attnprobe.results.directory import RunDirectory, outputs_file
from attnprobe.results.files import write_atomically


def text_number(words: Sequence[str]) -> int:
    """A number of 63 bits that two different texts hardly share.

    >>> text_number(["a", "film"]) == text_number(["a film"])
    False
    """
    digest = hashlib.blake2b("\0".join(words).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def write_teacher_outputs(
    path: Path,
    example_id: Int[np.ndarray, " rows"],
    text: Int[np.ndarray, " rows"],
    attention: Ragged,
    probability: Float[np.ndarray, "rows classes"],
    classes: Sequence[str],
) -> None:
    """Write one split's file, rows in any order."""
    order = np.argsort(example_id, kind="stable")
    sorted_attention = attention.select(order)
    tensors: dict[str, np.ndarray] = {
        "example_id": np.ascontiguousarray(example_id[order], np.int64),
        "text": np.ascontiguousarray(text[order], np.int64),
        "offsets": sorted_attention.offsets,
        "attention": sorted_attention.flat.astype(np.float32, copy=False),
        "probability": np.ascontiguousarray(probability[order], np.float32),
    }
    metadata = {"classes": json.dumps(list(classes), ensure_ascii=False)}
    write_atomically(path, lambda partial: save_file(tensors, partial, metadata))


class TeacherOutputs:
    """One split's file, opened and not read: the attention of an example is fetched when a batch asks for it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self.file = safe_open(path, framework="numpy")
            self.example_id, self.text, self.offsets = (
                self.file.get_tensor(name) for name in ("example_id", "text", "offsets")
            )
            self.classes: list[str] = json.loads(self.file.metadata()["classes"])
            self._attention = self.file.get_slice("attention")
            self._probability = self.file.get_slice("probability")
        except (SafetensorError, ValueError, KeyError, TypeError, OSError, RecursionError) as error:
            raise damaged(path, " ".join(str(error).split())[:200]) from None
        if reason := self._misfit():
            raise damaged(path, reason)

    def _misfit(self) -> str | None:
        """What of the file's parts does not belong together."""
        rows = len(self.example_id)
        if not isinstance(self.classes, list) or not all(isinstance(name, str) for name in self.classes):
            return "its classes are no list of names"
        expected = {
            "example_id": [rows], "text": [rows], "offsets": [rows + 1], "probability": [rows, len(self.classes)],
        }  # fmt: skip
        for name, shape in expected.items():
            if (found := self.file.get_slice(name).get_shape()) != shape:
                return f"{name} has the shape {found}, expected {shape}"
        if (np.diff(self.example_id) <= 0).any():
            return "example_id does not ascend"
        if (
            self.offsets[0] != 0
            or (np.diff(self.offsets) < 0).any()
            or [self.offsets[-1]] != self._attention.get_shape()
        ):
            return "offsets do not divide its attention among the examples"
        return None

    def __len__(self) -> int:
        return len(self.example_id)

    def attention(self, row: int) -> Float[np.ndarray, " positions"]:
        """The attention of the example stored at this row."""
        return self._attention[int(self.offsets[row]) : int(self.offsets[row + 1])]

    def probability(self, rows: Sequence[int]) -> Float[np.ndarray, "rows classes"]:
        """The class probabilities of the examples stored at these rows."""
        return np.concatenate([self._probability[row : row + 1] for row in rows])


@dataclass(frozen=True)
class Teacher:
    """A finished run that another run learns from, or is compared with.

    Attributes:
        directory: the run's directory.
        manifest: the run's manifest.
        outputs: split → what the run says about its examples.
    """

    directory: Path
    manifest: Mapping[str, Any]
    outputs: Mapping[str, TeacherOutputs]

    @classmethod
    def open(cls, directory: str | os.PathLike, splits: Sequence[str]) -> "Teacher":
        """Open a finished run's files, after comparing them with its manifest.

        Raises:
            UserError: no finished run there, or one without these files.
            DamagedRun: the manifest or one of the files is not as it was written.
        """
        run = RunDirectory(directory)
        if not run.is_finished:
            state = "is not finished (it has no manifest.json)" if run.path.exists() else "does not exist"
            raise UserError(
                f"teacher={directory} {state}: expected the directory of a finished run. Train it first, or let "
                f"teacher=auto find or train it"
            )
        manifest = run.manifest()
        for split in splits:
            if outputs_file(split) not in manifest["files"]:
                raise UserError(
                    f"teacher={directory} has no {outputs_file(split)}: its predictions are not there for all splits. "
                    f"Train it again with on_finished=replace"
                )
        return cls(run.path, manifest, {split: TeacherOutputs(run.outputs(split)) for split in splits})


def check_teacher_outputs(
    outputs: TeacherOutputs,
    split: str,
    teacher: str,
    classes: Sequence[str],
    example_id: Int[np.ndarray, " rows"],
    texts: Sequence[Sequence[str]],
) -> None:
    """Whether a teacher saw exactly these examples of a split, in these words.

    Raises:
        UserError: it did not; the first difference is named.
    """
    refused = f"teacher={teacher} does not fit this run's data: "
    if list(outputs.classes) != list(classes):
        raise UserError(f"{refused}its classes are {', '.join(outputs.classes)}, here they are {', '.join(classes)}")
    theirs, ours = set(outputs.example_id.tolist()), set(example_id.tolist())
    if theirs != ours:
        only = sorted(theirs - ours) or sorted(ours - theirs)
        side = "there and not here" if theirs - ours else "here and not there"
        raise UserError(
            f"{refused}another split: {len(theirs)} examples in {split} there, {len(ours)} here; example {only[0]} is "
            f"{side}. Same data.split_seed, shares, filters and length limits are needed"
        )
    for row, words in enumerate(texts):
        if len(words) == outputs.offsets[row + 1] - outputs.offsets[row] and text_number(words) == outputs.text[row]:
            continue
        number = int(outputs.offsets[row + 1] - outputs.offsets[row])
        if text_number(words) == outputs.text[row]:
            raise UserError(
                f"{refused}it attends to {number} positions of example {example_id[row]} in {split}, which has "
                f"{len(words)} words: a hierarchical model attends to sentences and cannot teach one that attends to words"
            )
        raise UserError(
            f"{refused}other data or another tokenisation: example {example_id[row]} of {split} has {number} tokens "
            f"there and {len(words)} here, or other words; here it starts '{' '.join(words[:8])}'. Same data set and "
            f"the same data.clean, tokenizer and token_rules are needed"
        )
