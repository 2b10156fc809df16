"""`TextDataModule`: from a source of rows to batches. A data set is a YAML of these settings
(attnprobe.data.settings)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.data import DataLoader

from attnprobe.core.batch import Batch, Task
from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked, Name, Seed
from attnprobe.data.batching import BucketSampler, TextSplit, short_enough
from attnprobe.data.data_warnings import UNKNOWN_WORDS, Check, check_pieces
from attnprobe.data.local_files import SPLITS, find_path
from attnprobe.data.pieces import PieceReader, with_pieces
from attnprobe.data.pipeline import TextPipeline
from attnprobe.data.prepare import Counts, data_fingerprint, prepare
from attnprobe.data.reader import Reader
from attnprobe.data.settings import DataSettings
from attnprobe.data.sources import FileSource, Source
from attnprobe.data.teacher import Teacher
from attnprobe.data.vocabulary import Vocabulary, load_vectors, random_vectors


class TextDataModule(metaclass=Checked):
    """Prepares a data set (attnprobe.data.prepare) and serves it in batches.

    Args:
        name: what the data set is called in tables and paths.
        source: where the rows come from.
        path: for `data=files`; the source reads it, here it is only recorded.
        seed: the run's seed: order of the training batches, random word vectors.
        settings: all other settings of conf/data/base.yaml (`attnprobe.data.settings`).
    """

    settings_place: ClassVar[str] = "data"

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
        self.settings = DataSettings(**settings)
        self.task = Task.MULTI_LABEL if self.settings.multi_label else Task.SINGLE_LABEL
        self.splits: dict[str, TextSplit] = {}
        self.counts: Counts = {}
        self.checks: list[Check] = []
        self.notes: tuple[str, ...] = ()

    # what `**settings` stands for, for everything that asks a class what it takes
    _given, _settings = (signature(one).parameters.values() for one in (__init__, DataSettings))
    __signature__ = Signature(
        [*[*_given][1:-1], *(one.replace(kind=Parameter.KEYWORD_ONLY) for one in _settings)]
    )
    pipeline: TextPipeline
    class_weight: Tensor | None

    def setup(self, stage: str | None = None) -> None:
        """Load and encode all splits, once."""
        if self.splits:
            return
        prepared = prepare(self.settings, self.source.load())
        self.notes = self.source.notes
        self.checks = prepared.checks
        self.counts = prepared.counts
        self.pipeline = prepared.pipeline
        self.class_weight = prepared.class_weight
        self.splits = prepared.splits
        # the texts as they were read are no longer needed; Arrow would keep their memory for itself
        pa.default_memory_pool().release_unused()

    @property
    def section(self) -> dict[str, Any]:
        """What was guessed while reading (`notes`), and the `checks`
        (`attnprobe.data.data_warnings.Check`), for the manifest."""
        return {"notes": list(self.notes), "checks": [asdict(check) for check in self.checks]}

    @property
    def vocabulary(self) -> Vocabulary:
        """Word ↔ id."""
        return self.pipeline.vocabulary

    @property
    def classes(self) -> Sequence[str]:
        """Names of the classes, in the order of the logits."""
        return self.pipeline.classes

    def read_pieces(self, reader: PieceReader) -> None:
        """Put the pieces that a pretrained model reads into every batch; words without any are left
        out, and counted. A `UserError` where the data ask questions, which no such model reads."""
        if (asked := self.settings.question) is not None:
            raise UserError(
                f"data.question={asked}: that is for models that answer questions (task=qa). A pretrained model reads a "
                f"second text as one of a pair: data.question=null data.text2={asked}"
            )
        for split, part in self.splits.items():
            self.splits[split], facts = with_pieces(part, reader)
            self.counts[split] |= facts
            del self.counts[split]["tokens out of vocabulary"]  # pieces spell any word
        self.pipeline = replace(self.pipeline, pieces=reader)
        self.checks = [check for check in self.checks if check.name != UNKNOWN_WORDS]
        self.checks += check_pieces(self.counts, reader.longest)

    def take_classes(self, names: Sequence[str], note: str) -> None:
        """Take the classes that a model has besides the data's, and that no row is of; `note` says
        which is which."""
        more = list(names[len(self.classes) :])
        self.pipeline = replace(self.pipeline, classes=[*self.classes, *more])
        for split, part in self.splits.items():
            columns = dict(part.columns)
            if self.task is Task.MULTI_LABEL:
                columns["labels"] = np.pad(part.labels, ((0, 0), (0, len(more))))
            self.splits[split] = replace(part, columns=columns, classes=self.classes)
            per_class = self.counts[split]["per class"] | dict.fromkeys(more, 0)
            self.counts[split] = self.counts[split] | {"per class": per_class}
        self.notes += (note,) if note else ()

    def attach_teacher(self, teacher: Teacher) -> None:
        """Put what a teacher says about the examples into every batch."""
        for split, part in self.splits.items():
            texts = (part.tokens(number) for number in part.example_id.tolist())
            outputs = teacher.outputs(split, self.classes, part.example_id, texts)
            self.splits[split] = replace(part, teacher=outputs)
        pa.default_memory_pool().release_unused()  # as above: the teacher's words are no longer needed

    @property
    def sizes(self) -> dict[str, int]:
        """Examples per split."""
        return {split: len(part) for split, part in self.splits.items()}

    @property
    def fingerprint(self) -> str:
        """Ten hexadecimal digits that stand for all that is read of the examples, and for their
        order."""
        return data_fingerprint(self.splits, [*self.vocabulary.words, *self.classes])

    def input_files(self) -> dict[str, Path]:
        """The local files that all this is read from, by the setting that names them; needs no
        `setup`."""
        files = {f"data.path ({split})": path for split, path in self.source.files().items()}
        vectors = self.settings.vectors
        return files if vectors is None else files | {"data.vectors": find_path(vectors)}

    def check_files(self) -> None:
        """Refuse, before anything is trained, local files that are not there, cannot be read, or
        lack a column."""
        self.input_files()
        if isinstance(self.source, FileSource):
            loaded = self.source.load()
            self.settings.check_splits(loaded)
            for table in loaded.values():
                Reader(self.settings, self.settings.rules).check_columns(table)

    def embeddings(self) -> Float[Tensor, "vocabulary embed"]:
        """The word vectors to start from; row 0 (padding) is zero. Puts the share of the vocabulary
        that the file has into `counts`."""
        words = self.settings
        generator = torch.Generator().manual_seed(self.seed)
        if words.vectors is None:
            return random_vectors(len(self.vocabulary), words.embedding_size, generator)
        matrix, found = load_vectors(
            words.vectors, self.vocabulary, missing=words.missing_vectors, generator=generator
        )
        self.counts["vectors"] = {"vocabulary": len(self.vocabulary), "found": found}
        return torch.from_numpy(matrix)

    def train_dataloader(self, rank: int = 0, processes: int = 1) -> DataLoader[Batch]:
        """Batches of similar length in random order; the order depends on (seed, epoch). Of several
        processes each has its share, and the trainer is constructed with
        `use_distributed_sampler=False`."""
        lengths = self.splits["train"].words.lengths
        return self.loader(
            "train", BucketSampler(lengths, self.settings.batch_size, self.seed, rank, processes)
        )

    def loader(self, split: str, sampler: Iterable[list[int]] | None = None) -> DataLoader[Batch]:
        """The examples of a split in the sampler's batches; without one all of them, shortest
        first, for every process of a training on several devices: the metrics are then those of one
        device."""
        part = self.splits[split]
        return DataLoader(
            part,
            sampler=sampler or short_enough(part.words.lengths, self.settings.eval_batch_size),
            batch_size=None,  # the sampler hands out lists of rows, and `part[rows]` is a batch
            num_workers=self.settings.num_workers,
            persistent_workers=self.settings.num_workers > 0,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator().manual_seed(
                self.seed
            ),  # else each pass would advance the global generator
        )
