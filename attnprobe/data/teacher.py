"""What a finished run, the teacher, says about every example, for runs that learn from it or are compared with it.

It is read from the examples' files of the teacher's directory, `examples/<split>.parquet` (`RunDirectory.examples`).
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from jaxtyping import Float, Int

from attnprobe.core.errors import UserError
from attnprobe.data.examples import Ragged
from attnprobe.results.directory import MANIFEST, RunDirectory, examples_file
from attnprobe.results.files import damaged

WORDS, SENTENCES = "tokens", "words"
"""Columns of the words of a text, and of the words of each of its sentences, which only a hierarchical model's run has."""
TYPES = {
    "attention": pa.list_(pa.float32()),
    "probability": pa.list_(pa.float64()),
    WORDS: pa.list_(pa.string()),
    SENTENCES: pa.list_(pa.list_(pa.string())),
}


@dataclass(frozen=True)
class TeacherOutputs:
    """What a teacher says about the examples of one split, in float32, for that is what a student is trained in.

    Attributes:
        attention: of each example, over its content positions; sums to 1.
        probability: of every class.
    """

    attention: Ragged
    probability: Float[np.ndarray, "rows classes"]


@dataclass(frozen=True)
class Teacher:
    """A finished run that another run learns from, or is compared with.

    Attributes:
        directory: the run's directory.
        manifest: the run's manifest.
    """

    directory: Path
    manifest: Mapping[str, Any]

    @classmethod
    def open(cls, directory: str | os.PathLike, splits: Sequence[str]) -> "Teacher":
        """Open a finished run, after comparing its examples' files with its manifest.

        Raises:
            UserError: no finished run there, or one without the examples of these splits.
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
        for name in map(examples_file, splits):
            if name not in manifest["files"]:
                raise UserError(
                    f"teacher={directory} has no {name}: its predictions are not there for all splits. "
                    f"Train it again with on_finished=replace"
                )
            run.file(name)
        return cls(run.path, manifest)

    def outputs(
        self, split: str, classes: Sequence[str], example_id: Int[np.ndarray, " rows"], texts: Iterable[Sequence[str]]
    ) -> TeacherOutputs:
        """What the teacher says about these examples of a split.

        Args:
            split: train, validation or test.
            classes: of this run's data.
            example_id: of this run's data, ascending.
            texts: the words of each example in this run's data.

        Raises:
            UserError: the teacher saw other examples, or these in other words; the first difference is named.
            DamagedRun: what it says is not as a run writes it.
        """
        self._compare(split, classes, example_id)
        ours = zip(example_id.tolist(), texts, strict=True)
        flat, lengths, probability = [np.zeros(0, np.float32)], [0], [np.zeros((0, len(classes)), np.float32)]
        for table in self._tables(split, len(classes)):
            positions = pc.list_value_length(table["attention"]).to_pylist()
            for theirs, attended, (number, words) in zip(table[WORDS].to_pylist(), positions, ours, strict=False):
                self._compare_words(split, number, words, theirs, attended)
            flat.append(pc.list_flatten(table["attention"]).to_numpy())
            lengths.extend(positions)
            values = pc.list_flatten(table["probability"]).to_numpy()
            probability.append(values.reshape(-1, len(classes)).astype(np.float32))
        return TeacherOutputs(Ragged(np.concatenate(flat), np.cumsum(lengths)), np.concatenate(probability))

    def _compare(self, split: str, classes: Sequence[str], example_id: Int[np.ndarray, " rows"]) -> None:
        theirs = self.manifest.get("classes")
        if theirs is None:
            raise damaged(self.directory / MANIFEST, "it does not name its classes")
        if theirs != list(classes):
            raise self._refusal(f"its classes are {', '.join(theirs)}, here they are {', '.join(classes)}")
        pieces = RunDirectory(self.directory).example_pieces(split, [])
        there, here = {number for piece in pieces for number in piece["example_id"].to_pylist()}, {*example_id.tolist()}
        if there != here:
            only = sorted(there - here) or sorted(here - there)
            side = "there and not here" if there - here else "here and not there"
            raise self._refusal(
                f"another split: {len(there)} examples in {split} there, {len(here)} here; example {only[0]} is "
                f"{side}. Same data.split_seed, shares, filters and length limits are needed"
            )

    def _compare_words(self, split: str, example: int, ours: Sequence[str], theirs: Sequence[str], number: int) -> None:
        """`number`: of the positions that the teacher attends to."""
        if list(ours) != list(theirs):
            raise self._refusal(
                f"other data or another tokenisation: example {example} of {split} has {len(theirs)} tokens there and "
                f"{len(ours)} here, or other words; here it starts '{' '.join(ours[:8])}'. Same data set and the same "
                f"data.clean, tokenizer and token_rules are needed"
            )
        if number != len(ours):
            raise self._refusal(
                f"it attends to {number} positions of example {example} in {split}, which has {len(ours)} words: "
                f"a hierarchical model attends to sentences and cannot teach one that attends to words"
            )

    def _refusal(self, reason: str) -> UserError:
        return UserError(f"teacher={self.directory} does not fit this run's data: {reason}")

    def _tables(self, split: str, classes: int) -> Iterator[pa.Table]:
        """The split's examples, part by part: attention, probabilities, and the words of the text as `WORDS`."""
        run = RunDirectory(self.directory)
        path = run.path / examples_file(split)
        schema = run.example_columns(split)
        names = ["attention", "probability", SENTENCES if SENTENCES in schema.names else WORDS]
        if wrong := [name for name in names if name not in schema.names or schema.field(name).type != TYPES[name]]:
            raise damaged(path, f"it has no column {wrong[0]} of the type {TYPES[wrong[0]]}")
        for table in run.example_pieces(split, names):
            if any(table[name].null_count for name in names):
                raise damaged(path, "an example has no attention, no probability or no words")
            if (pc.list_value_length(table["probability"]).to_numpy() != classes).any():
                raise damaged(path, f"an example has not {classes} probabilities, one for each class")
            if not all(np.isfinite(pc.list_flatten(table[name]).to_numpy()).all() for name in names[:2]):
                raise damaged(path, "a weight or a probability is not a number")
            if SENTENCES in names:
                texts = [[word for words in text for word in words or ()] for text in table[SENTENCES].to_pylist()]
                table = table.append_column(WORDS, [pa.array(texts, TYPES[WORDS])])
            yield table
