"""What a finished run, the teacher, says about every example.

Runs learn from a teacher, or are compared with it. What it says is read from the examples' files of
its directory, `examples/<split>.parquet` (`RunDirectory.examples`)."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
from jaxtyping import Float, Int

from attnprobe.core.errors import UserError
from attnprobe.data.examples import Ragged
from attnprobe.results.directory import RunDirectory, examples_file

WORDS = "tokens"
"""Column of the words of a text."""
SENTENCES = "words"
"""Column of the words of each of a text's sentences, which only a hierarchical model's run has."""


@dataclass(frozen=True)
class TeacherOutputs:
    """What a teacher says about the examples of one split, in float32, as a student is trained.

    Attributes:
        attention: the attention of each example over its content positions, which sums to 1.
        probability: the probability of every class.
    """

    attention: Ragged
    probability: Float[np.ndarray, "rows classes"]

    def select(self, rows: Int[np.ndarray, " chosen"]) -> "TeacherOutputs":
        """What it says about the examples of these rows, in this order."""
        return TeacherOutputs(self.attention.select(rows), self.probability[rows])


@dataclass(frozen=True)
class Teacher:
    """A finished run that another run learns from, or is compared with."""

    directory: Path
    manifest: Mapping[str, Any]

    @classmethod
    def open(cls, directory: str | os.PathLike, splits: Sequence[str]) -> "Teacher":
        """Open a finished run, and compare its examples' files with its manifest.

        Args:
            directory: the run's directory.
            splits: the splits whose examples are needed.

        Raises:
            UserError: there is no finished run, or none with examples of these splits.
            DamagedRun: a file is not as it was written.
        """
        run = RunDirectory(directory)
        if not run.is_finished:
            state = "does not exist"
            if run.path.exists():
                state = "is not finished (it has no manifest.json)"
            raise UserError(
                f"teacher={directory} {state}: expected the directory of a finished run. Train it "
                f"first, or let teacher=auto find or train it"
            )
        manifest = run.manifest()
        for name in map(examples_file, splits):
            if name not in manifest["files"]:
                raise UserError(
                    f"teacher={directory} has no {name}: its predictions are not there for all "
                    f"splits. Train it again with on_finished=replace"
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
        """What the teacher says about these examples of a split.

        Args:
            split: the split.
            classes: names of the classes of this run's data.
            example_id: the examples of this run's data, ascending.
            texts: the words of each.

        Raises:
            UserError: the teacher saw other examples, or other words in these; the message names
                the first difference.
        """
        teacher_classes = self.manifest["classes"]
        if teacher_classes != list(classes):
            raise self._unfit(
                f"its classes are {', '.join(teacher_classes)}, here they are {', '.join(classes)}"
            )
        run = RunDirectory(self.directory)
        word_column = SENTENCES if SENTENCES in run.example_columns(split).names else WORDS
        table = run.examples(split, ["example_id", "attention", "probability", word_column])
        self._check_examples(split, set(table["example_id"].to_pylist()), set(example_id.tolist()))

        positions = pc.list_value_length(table["attention"]).to_pylist()
        teacher_texts = table[word_column].to_pylist()
        if word_column == SENTENCES:
            teacher_texts = [list(chain.from_iterable(sentences)) for sentences in teacher_texts]
        examples = zip(example_id.tolist(), teacher_texts, positions, texts, strict=True)
        for number, teacher_words, attended, words in examples:
            self._check_words(f"example {number} of {split}", teacher_words, list(words))
            if attended != len(words):
                raise self._unfit(
                    f"it attends to {attended} positions of example {number} in {split}, which has "
                    f"{len(words)} words: a hierarchical model attends to sentences and cannot "
                    f"teach one that attends to words"
                )

        # copies: torch takes no array that may not be written to
        attention = pc.list_flatten(table["attention"]).to_numpy().copy()
        probability = pc.list_flatten(table["probability"]).to_numpy().copy()
        probability = probability.reshape(-1, len(classes)).astype(np.float32)
        return TeacherOutputs(Ragged(attention, np.cumsum([0, *positions])), probability)

    def _unfit(self, difference: str) -> UserError:
        return UserError(f"teacher={self.directory} does not fit this run's data: {difference}")

    def _check_examples(self, split: str, teacher_ids: set[int], ids: set[int]) -> None:
        if teacher_ids == ids:
            return
        missing = sorted(teacher_ids - ids)
        side = "there and not here"
        if not missing:
            missing = sorted(ids - teacher_ids)
            side = "here and not there"
        raise self._unfit(
            f"another split: {len(teacher_ids)} examples in {split} there, {len(ids)} here; "
            f"example {missing[0]} is {side}. Same data.split_seed, shares, filters and length "
            f"limits are needed"
        )

    def _check_words(self, example: str, teacher_words: list[str], words: list[str]) -> None:
        if teacher_words != words:
            raise self._unfit(
                f"other data or another tokenisation: {example} has {len(teacher_words)} tokens "
                f"there and {len(words)} here, or other words; here it starts "
                f"'{' '.join(words[:8])}'. Same data set and the same data.clean, tokenizer and "
                f"token_rules are needed"
            )
