"""`TextDataModule`: from a source of rows to batches.

A data set is a YAML of these settings (`attnprobe.data.settings`).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import datasets
import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import DataLoader

from attnprobe.core.batch import Batch, Task
from attnprobe.core.errors import UserError
from attnprobe.core.hooks import Hooked
from attnprobe.core.settings import Name, Seed, construct
from attnprobe.data.batching import BucketSampler, TextSplit, short_enough
from attnprobe.data.data_warnings import UNKNOWN_WORDS, Check, check_pieces
from attnprobe.data.file_checks import check_files
from attnprobe.data.fingerprint import data_fingerprint
from attnprobe.data.local_files import SPLITS, find_path
from attnprobe.data.naming import name_of_files
from attnprobe.data.pieces import PieceReader, with_pieces
from attnprobe.data.pipeline import TextPipeline
from attnprobe.data.prepare import Counts, prepare
from attnprobe.data.settings import DataSettings
from attnprobe.data.sources import DatasetSource, FileSource, Source, Splits
from attnprobe.data.teacher import Teacher
from attnprobe.data.vocabulary import Vocabulary, load_vectors, random_vectors
from attnprobe.results.files import NamedRecord, record_of


def _with_settings(constructor: Callable[..., None]) -> Signature:
    """A constructor's arguments without `self`, and those of `DataSettings` for `**settings`."""
    arguments = list(signature(constructor).parameters.values())[1:-1]
    for setting in signature(DataSettings).parameters.values():
        arguments.append(setting.replace(kind=Parameter.KEYWORD_ONLY))
    return Signature(arguments)


class TextDataModule(metaclass=Hooked):
    """Prepares a data set (attnprobe.data.prepare) and serves it in batches.

    It is a `LightningDataModule`: `Trainer().fit(model, datamodule=data)`.

    Args:
        name: what the data set is called in tables and paths.
        source: where the rows come from.
        path: for `data=files`; the source reads it, here it is only recorded.
        seed: the run's seed: order of the training batches, random word vectors.
        settings: all other settings of conf/data/base.yaml (`attnprobe.data.settings`).
    """

    settings_place: ClassVar[str] = "data"
    hooks: ClassVar[str] = "lightning.LightningDataModule"
    trainer: Any = None
    """Lightning's trainer that asks for the batches; None: nobody's."""

    def __init__(
        self,
        name: Name,
        source: Source,
        *,
        path: str | Mapping[Literal[SPLITS], str] | None = None,
        seed: Seed = 0,
        **settings: Any,
    ):
        self.name = name
        self.source = source
        self.path = path
        self.seed = seed
        self.settings = construct(DataSettings, settings)
        self.task = Task.MULTI_LABEL if self.settings.multi_label else Task.SINGLE_LABEL
        self.splits: dict[str, TextSplit] = {}
        self.counts: Counts = {}
        self.checks: list[Check] = []
        self.notes: tuple[str, ...] = ()
        self.files: dict[str, NamedRecord] = {}

    __signature__ = _with_settings(__init__)
    pipeline: TextPipeline
    class_weight: Tensor | None

    @classmethod
    def from_files(
        cls,
        path: str | Mapping[Literal[SPLITS], str],
        *,
        name: str | None = None,
        **settings: Any,
    ) -> Self:
        """Texts of local files: .csv, .tsv, .jsonl, .parquet or .xlsx.

        Args:
            path: a file, a folder, or the file of each split (`attnprobe.data.sources.FileSource`).
            name: what the data set is called in tables and paths; None: as the file is.
            **settings: `text`, `label`, `seed` and all other settings of the class.

        Raises:
            UserError: a file is missing, or a setting is unknown or of a wrong type.
        """
        name = name_of_files(path) if name is None else name
        return cls(name, FileSource(path), path=path, **settings)

    @classmethod
    def from_dataset(
        cls,
        dataset: datasets.Dataset | datasets.DatasetDict,
        *,
        name: str = "texts",
        **settings: Any,
    ) -> Self:
        """Texts of a data set of the library `datasets`.

        Args:
            dataset: one of splits `train`, `validation` and `test`; or rows without splits, which
                are divided as `test_share` and `validation_share` say.
            name: what the data set is called in tables and paths.
            **settings: `text`, `label`, `seed` and all other settings of the class.

        Raises:
            UserError: there is no such split, or a setting is unknown or of a wrong type.
        """
        return cls(name, DatasetSource(dataset), **settings)

    def setup(self, stage: str | None = None) -> None:
        """Load and encode all splits, once."""
        if self.splits:
            return
        self.files = {
            split: NamedRecord(name=path.name, **record_of(path.resolve()))
            for split, path in self.source.files().items()
        }
        prepared = prepare(self.settings, self._loaded())
        self.notes = self.source.notes
        self.checks = prepared.checks
        self.counts = prepared.counts
        self.pipeline = prepared.pipeline
        self.class_weight = prepared.class_weight
        self.splits = prepared.splits
        # the texts as they were read are no longer needed; Arrow would keep their memory for itself
        pa.default_memory_pool().release_unused()

    def _loaded(self) -> Splits:
        """The source's rows, with the columns that the settings name."""
        self.source.columns = self.settings.names
        return self.source.load()

    @property
    def section(self) -> dict[str, Any]:
        """For the manifest: guesses while reading (`notes`), `Check`s (`checks`), and `files`."""
        return {
            "notes": list(self.notes),
            "checks": [asdict(check) for check in self.checks],
            "files": self.files,
        }

    @property
    def vocabulary(self) -> Vocabulary:
        """Word ↔ id."""
        return self.pipeline.vocabulary

    @property
    def classes(self) -> Sequence[str]:
        """Names of the classes, in the order of the logits."""
        return self.pipeline.classes

    def read_pieces(self, reader: PieceReader) -> None:
        """Put the pieces that a pretrained model reads into every batch.

        Words without any piece are left out, and counted.
        """
        for split, part in self.splits.items():
            self.splits[split], facts = with_pieces(part, reader)
            self.counts[split] |= facts
            del self.counts[split]["tokens out of vocabulary"]  # pieces spell any word
        self.pipeline = replace(self.pipeline, pieces=reader)
        self.checks = [check for check in self.checks if check.name != UNKNOWN_WORDS]
        self.checks += check_pieces(self.counts, reader.longest)

    def take_classes(self, names: Sequence[str], note: str) -> None:
        """Take the classes that a model has besides the data's; no row has them.

        Args:
            names: the model's classes, the data's first.
            note: says which class is which, or is empty.
        """
        more = list(names[len(self.classes) :])
        self.pipeline = replace(self.pipeline, classes=[*self.classes, *more])
        for split, part in self.splits.items():
            columns = dict(part.columns)
            if self.task is Task.MULTI_LABEL:
                columns["labels"] = np.pad(part.labels, ((0, 0), (0, len(more))))
            self.splits[split] = replace(part, columns=columns, classes=self.classes)
            class_counts = self.counts[split]["per class"] | dict.fromkeys(more, 0)
            self.counts[split] = self.counts[split] | {"per class": class_counts}
        if note:
            self.notes += (note,)

    def attach_teacher(self, teacher: Teacher) -> None:
        """Put what a teacher says about the examples into every batch."""
        for split, part in self.splits.items():
            texts = (part.tokens(number) for number in part.example_id.tolist())
            outputs = teacher.outputs(split, self.classes, part.example_id, texts)
            self.splits[split] = replace(part, teacher=outputs)
        pa.default_memory_pool().release_unused()  # as in `setup`: the teacher's words are used

    @property
    def sizes(self) -> dict[str, int]:
        """Examples per split."""
        return {split: len(part) for split, part in self.splits.items()}

    @property
    def fingerprint(self) -> str:
        """Ten hexadecimal digits for all that is read of the examples, and for their order."""
        return data_fingerprint(self.splits, [*self.vocabulary.words, *self.classes])

    def input_files(self) -> dict[str, Path]:
        """The local files of the data, by the setting that names them; needs no `setup`."""
        files = {f"data.path ({split})": path for split, path in self.source.files().items()}
        vectors = self.settings.vectors
        if vectors is not None:
            files["data.vectors"] = find_path(vectors)
        return files

    def check_files(self, *, read: bool = True) -> None:
        """Check local files before anything is trained.

        Args:
            read: also read them.

        Raises:
            UserError: a file is missing, cannot be read, or lacks a column.
        """
        self.input_files()
        if isinstance(self.source, FileSource):
            self.settings.check_splits(self.source.files())
            if read:
                check_files(self.source, self.settings)

    def embeddings(self) -> Float[Tensor, "vocabulary embed"]:
        """The word vectors to start from; row 0 (padding) is zero.

        Puts the number of words that the file of vectors has into `counts`.
        """
        settings = self.settings
        generator = torch.Generator().manual_seed(self.seed)
        if settings.vectors is None:
            return random_vectors(len(self.vocabulary), settings.embedding_size, generator)
        matrix, words = load_vectors(
            settings.vectors, self.vocabulary, missing=settings.missing_vectors, generator=generator
        )
        self.counts["vectors"] = {"vocabulary": len(self.vocabulary), "found": words}
        return torch.from_numpy(matrix)

    def train_dataloader(self) -> DataLoader[Batch]:
        """Batches of similar length in random order, which depends on (seed, epoch).

        Each of several processes has its share.
        """
        rank = 0
        processes = 1
        if self.trainer is not None:
            rank = self.trainer.global_rank
            processes = self.trainer.world_size
        part = self.splits["train"]
        sampler = BucketSampler(
            part.words.lengths,
            self.settings.batch_size,
            self.seed,
            rank,
            processes,
            part.text_number,
        )
        return self.loader("train", sampler)

    def val_dataloader(self) -> DataLoader[Batch]:
        """The validation texts, shortest first."""
        return self.loader("validation")

    def test_dataloader(self) -> DataLoader[Batch]:
        """The test texts, shortest first."""
        return self.loader("test")

    def predict_dataloader(self) -> DataLoader[Batch]:
        """The same as `test_dataloader`."""
        return self.loader("test")

    def loader(self, split: str, sampler: Iterable[list[int]] | None = None) -> DataLoader[Batch]:
        """The examples of a split in batches.

        Args:
            split: the split.
            sampler: the rows of each batch; None: all rows, shortest text first. Of several devices
                each has its share where the trainer distributes samplers, else all rows.

        Raises:
            UserError: there is no such split.
        """
        if split not in self.splits:
            raise UserError(
                f"data set {self.name} has no {split} split (it has {', '.join(self.splits)}): "
                f"give its file, or set test_share and validation_share"
            )
        part = self.splits[split]
        batches = sampler or short_enough(
            part.words.lengths, self.settings.eval_batch_size, text_number=part.text_number
        )
        return DataLoader(
            part,
            sampler=batches,
            batch_size=None,  # the sampler hands out lists of rows, and `part[rows]` is a batch
            num_workers=self.settings.num_workers,
            persistent_workers=self.settings.num_workers > 0,
            pin_memory=torch.cuda.is_available(),
            # else each pass would advance the global generator
            generator=torch.Generator().manual_seed(self.seed),
        )
