"""What a finished run, the teacher, says about every example, for runs that learn from it or are
compared with it.

It is read from the examples' files of the teacher's directory, `examples/<split>.parquet`
(`RunDirectory.examples`)."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from jaxtyping import Float, Int

from attnprobe.core.errors import UserError
from attnprobe.data.examples import Ragged
from attnprobe.results.directory import RunDirectory, examples_file

WORDS = "tokens"
SENTENCES = "words"
"""Columns of the words of a text, and of the words of each of its sentences, which only a
hierarchical model's run has."""


@dataclass(frozen=True)
class TeacherOutputs:
    """What a teacher says about the examples of one split, in float32, in which a student is
    trained: the attention of each over its content positions, which sums to 1, and the probability
    of every class."""

    attention: Ragged
    probability: Float[np.ndarray, "rows classes"]


@dataclass(frozen=True)
class Teacher:
    """A finished run that another run learns from, or is compared with."""

    directory: Path
    manifest: Mapping[str, Any]

    @classmethod
    def open(cls, directory: str | os.PathLike, splits: Sequence[str]) -> "Teacher":
        """Open a finished run, after comparing its examples' files with its manifest; a `UserError`
        where there is none, or none with examples of these splits, a `DamagedRun` where a file is
        not as it was written."""
        run = RunDirectory(directory)
        if not run.is_finished:
            state = (
                "is not finished (it has no manifest.json)"
                if run.path.exists()
                else "does not exist"
            )
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
        self,
        split: str,
        classes: Sequence[str],
        example_id: Int[np.ndarray, " rows"],
        texts: Iterable[Sequence[str]],
    ) -> TeacherOutputs:
        """What the teacher says about these examples of a split; `example_id` (ascending), their
        words and the classes are of this run's data.

        Raises:
            UserError: the teacher saw other examples, or these in other words; the first difference
                is named.
        """
        unfit = f"teacher={self.directory} does not fit this run's data: "
        if (theirs := self.manifest["classes"]) != list(classes):
            raise UserError(
                f"{unfit}its classes are {', '.join(theirs)}, here they are {', '.join(classes)}"
            )
        run = RunDirectory(self.directory)
        spoken = SENTENCES if SENTENCES in run.example_columns(split).names else WORDS
        table = run.examples(split, ["example_id", "attention", "probability", spoken])
        there = {*table["example_id"].to_pylist()}
        here = {*example_id.tolist()}
        if there != here:
            only = sorted(there - here) or sorted(here - there)
            side = "there and not here" if there - here else "here and not there"
            raise UserError(
                f"{unfit}another split: {len(there)} examples in {split} there, {len(here)} here; example {only[0]} is "
                f"{side}. Same data.split_seed, shares, filters and length limits are needed"
            )
        positions = pc.list_value_length(table["attention"]).to_pylist()
        told = zip(table[spoken].to_pylist(), positions, example_id.tolist(), texts, strict=True)
        for said, attended, number, words in told:
            read = [word for sentence in said for word in sentence] if spoken == SENTENCES else said
            if read != list(words):
                raise UserError(
                    f"{unfit}other data or another tokenisation: example {number} of {split} has {len(read)} tokens there "
                    f"and {len(words)} here, or other words; here it starts '{' '.join(words[:8])}'. Same data set and the "
                    f"same data.clean, tokenizer and token_rules are needed"
                )
            if attended != len(words):
                raise UserError(
                    f"{unfit}it attends to {attended} positions of example {number} in {split}, which has {len(words)} "
                    f"words: a hierarchical model attends to sentences and cannot teach one that attends to words"
                )
        # copies: torch takes no array that may not be written to
        attention, probability = (
            pc.list_flatten(table[name]).to_numpy().copy() for name in ("attention", "probability")
        )
        probability = probability.reshape(-1, len(classes)).astype(np.float32)
        return TeacherOutputs(Ragged(attention, np.cumsum([0, *positions])), probability)
