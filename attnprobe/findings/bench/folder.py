"""The bench on the disk: models whose reasons are known, their texts, and what words do there.

    models.parquet        a row per model
    texts/NAME.parquet    a row per text of the model NAME
    runs/NAME/            the model itself, as a run directory

The format is told in docs/bench.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from jaxtyping import Bool, Float

from attnprobe.core.errors import UserError
from attnprobe.findings.bench.presence import MODELS, refuse_missing_bench
from attnprobe.importance.word_swaps import KeptWords
from attnprobe.results.files import write_atomically

TEXTS = "texts"
RUNS = "runs"
COPY_AGAIN = "copy the bench again from where it came"
HIGHEST = 2**16 - 1
"""The number that a probability of 1 is stored as."""
SCHEMA = pa.schema(
    {
        "model": pa.string(),
        "example_id": pa.int64(),
        "words": pa.list_(pa.string()),
        "deciding": pa.list_(pa.bool_()),
        "attention": pa.list_(pa.float32()),
        "label": pa.int16(),
        "prediction": pa.int16(),
        "kept": pa.binary(),
        "with_set": pa.binary(),
        "without_set": pa.binary(),
    }
)


@dataclass(frozen=True)
class BenchModel:
    """What is known of a model of the bench.

    Attributes:
        name: of the model.
        rule: name of the rule that labels its texts.
        kind: of the rule.
        encoder: of the model.
        attention: what its attention is by construction, or `learned`.
        draw: seed of texts, weights and everything random.
        half: which part of the rules it is of: `development`, `first` or `second`.
        classes: how many there are.
        texts: how many there are.
        passes: changed texts of each text that its sets are made of.
        accuracy: share of the texts that it decides rightly, mean of the classes.
        follows: share of the texts with their reason changed whose decision follows; NaN where no
            text has such a version.
        is_solved: whether it solves its task by the reason; the others have no texts.
    """

    name: str
    rule: str
    kind: str
    encoder: str
    attention: str
    draw: int
    half: str
    classes: int
    texts: int
    passes: int
    accuracy: float
    follows: float
    is_solved: bool


@dataclass(frozen=True)
class BenchText:
    """A text of a model.

    Attributes:
        example_id: its number in the model's test texts.
        words: of the text.
        deciding: the words that decide by the rule; none where something missing does.
        attention: the model's own weights, which sum to 1.
        label: by the rule.
        prediction: of the model.
        sets: random sets of its words, and what the model says with them and without them.
    """

    example_id: int
    words: tuple[str, ...]
    deciding: Bool[np.ndarray, " words"]
    attention: Float[np.ndarray, " words"]
    label: int
    prediction: int
    sets: KeptWords

    def as_row(self, model: str) -> dict[str, Any]:
        """The text as it is stored.

        Args:
            model: name of its model.
        """
        return {
            "model": model,
            "example_id": self.example_id,
            "words": self.words,
            "deciding": self.deciding,
            "attention": self.attention,
            "label": self.label,
            "prediction": self.prediction,
            "kept": np.packbits(self.sets.kept.numpy()).tobytes(),
            "with_set": packed_probabilities(self.sets.with_set),
            "without_set": packed_probabilities(self.sets.without_set),
        }

    @classmethod
    def of_row(cls, row: Mapping[str, Any], classes: int) -> "BenchText":
        """A text that was stored.

        Args:
            row: as of `as_row`.
            classes: of the model.
        """
        words = tuple(row["words"])
        with_set = unpacked_probabilities(row["with_set"], classes)
        pairs = len(with_set)
        bits = np.unpackbits(np.frombuffer(row["kept"], np.uint8), count=pairs * len(words))
        kept = torch.from_numpy(bits.reshape(pairs, len(words)).astype(bool))
        without_set = unpacked_probabilities(row["without_set"], classes)
        return cls(
            example_id=row["example_id"],
            words=words,
            deciding=np.array(row["deciding"], bool),
            attention=np.array(row["attention"], np.float64),
            label=row["label"],
            prediction=row["prediction"],
            sets=KeptWords(kept, with_set, without_set),
        )


def packed_probabilities(outcome: Float[torch.Tensor, "pairs classes"]) -> bytes:
    """Probabilities of all classes but the last in steps of 1 / `HIGHEST`, two bytes each."""
    steps = (outcome[:, :-1].double().numpy() * HIGHEST).round()
    return steps.astype("<u2").tobytes()


def unpacked_probabilities(content: bytes, classes: int) -> Float[torch.Tensor, "pairs classes"]:
    """The probabilities of all classes; the last has what the others leave."""
    steps = np.frombuffer(content, "<u2").reshape(-1, classes - 1)
    leading = torch.from_numpy(steps.astype(np.float64) / HIGHEST)
    last = (1 - leading.sum(-1, keepdim=True)).clamp(min=0)
    return torch.cat([leading, last], -1)


def unreadable(path: Path, error: Exception) -> UserError:
    """The answer to a file of a bench that is missing or damaged.

    Args:
        path: of the file.
        error: raised while it was read.
    """
    reason = " ".join(str(error).split())[:200]
    return UserError(f"{path} cannot be read: {reason}; {COPY_AGAIN}")


@dataclass(frozen=True)
class BenchFolder:
    """The folder of a bench.

    Attributes:
        path: of the folder.
    """

    path: Path

    @classmethod
    def open(cls, path: Path) -> "BenchFolder":
        """The folder of a bench that is there.

        Raises:
            UserError: no bench is there.
        """
        refuse_missing_bench(path)
        return cls(path)

    def models(self, pattern: str = "*") -> list[BenchModel]:
        """The models that solve their tasks, by name.

        Args:
            pattern: of their names, in which * stands for anything.

        Raises:
            UserError: there is no such model, or the table is of another format.
        """
        solved = [model for model in self.all_models() if model.is_solved]
        chosen = [model for model in solved if fnmatchcase(model.name, pattern)]
        if not chosen:
            names = ", ".join(model.name for model in solved)
            raise UserError(
                f"--models={pattern}: no model of {self.path} has such a name: expected a pattern "
                f"of {names[:200] or 'none, as none has solved its task'}"
            )
        return chosen

    def all_models(self) -> list[BenchModel]:
        """The models that were trained, by name; none where nothing is there yet.

        Raises:
            UserError: the table is of another format.
        """
        path = self.path / MODELS
        if not path.exists():
            return []
        try:
            rows = pd.read_parquet(path)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise unreadable(path, error) from None
        names = [field.name for field in fields(BenchModel)]
        missing = set(names) - set(rows.columns)
        if missing:
            raise UserError(
                f"{path} has no column {', '.join(sorted(missing))}: expected a bench of this "
                "version of attnprobe; make it again, or take that of the version's release"
            )
        return [BenchModel(*row) for row in rows[names].itertuples(index=False, name=None)]

    def run(self, model: str) -> Path:
        """The run directory of a model, whether it is there or not."""
        return self.path / RUNS / model

    def stored_run(self, model: str) -> Path:
        """The run directory of a model that is there.

        Raises:
            UserError: it is not there.
        """
        directory = self.run(model)
        if not directory.is_dir():
            raise UserError(
                f"{directory}, the model itself, is missing: expected a run directory of each "
                f"model; {COPY_AGAIN}"
            )
        return directory

    def texts(self, model: BenchModel) -> list[BenchText]:
        """The texts of a model.

        Raises:
            UserError: they are missing or damaged.
        """
        path = self.path / TEXTS / f"{model.name}.parquet"
        try:
            rows = pq.read_table(path, schema=SCHEMA).to_pylist()
            return [BenchText.of_row(row, model.classes) for row in rows]
        except (OSError, ValueError, pa.ArrowException) as error:
            raise unreadable(path, error) from None

    def add(self, model: BenchModel, texts: Sequence[BenchText]) -> None:
        """Store a model's texts, and then the model itself, so that no model lacks its texts."""
        rows = [text.as_row(model.name) for text in texts]
        if rows:
            table = pa.Table.from_pylist(rows, SCHEMA)
            target = self.path / TEXTS / f"{model.name}.parquet"
            write_atomically(target, lambda path: pq.write_table(table, path, compression="zstd"))
        models = {stored.name: stored for stored in self.all_models()}
        models[model.name] = model
        index = pd.DataFrame([asdict(models[name]) for name in sorted(models)])
        write_atomically(self.path / MODELS, lambda path: index.to_parquet(path, index=False))
