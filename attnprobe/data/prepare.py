"""From the rows of a source to encoded splits: a pure function of the settings and the rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np
from jaxtyping import Bool, Int
from torch import Tensor

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.core.settings import listed
from attnprobe.data import filters
from attnprobe.data.batching import TextSplit
from attnprobe.data.classes import class_numbers, class_weights, vocabulary_of
from attnprobe.data.data_warnings import Check, check_data
from attnprobe.data.examples import Examples, Lexicon, Ragged
from attnprobe.data.local_files import SPLITS
from attnprobe.data.pipeline import TextPipeline
from attnprobe.data.plant import PLANTED, plant_shortcut
from attnprobe.data.reader import Reader
from attnprobe.data.settings import DataSettings
from attnprobe.data.sources import Splits
from attnprobe.data.vocabulary import UNKNOWN, Vocabulary

Counts = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Prepared:
    """A data set that is ready to be trained on.

    Attributes:
        splits: the encoded splits.
        pipeline: everything between a new text and a batch.
        counts: per split the rows loaded, dropped for each reason, truncated and kept.
        checks: what is wrong with the data, and what is not.
        class_weight: the weight of each class in the loss; None: all weigh the same.
    """

    splits: dict[str, TextSplit]
    pipeline: TextPipeline
    counts: Counts
    checks: list[Check]
    class_weight: Tensor | None


@dataclass(frozen=True)
class ReadSplits:
    """All splits before the vocabulary: what their rows are, and after `tokenise` their words.

    Attributes:
        examples: the rows by split; before they are tokenised their labels and groups.
        origin: split → the split of the source that its rows come from.
        lexicon: every word in them.
        counts: what was counted while they were read.
    """

    examples: dict[str, Examples]
    origin: dict[str, str]
    lexicon: Lexicon
    counts: Counts

    @property
    def names(self) -> list[str]:
        """The splits that there are, in their usual order."""
        return [split for split in SPLITS if split in self.examples]

    def keep(self, choose: Callable[[str, Examples], filters.Kept]) -> None:
        """Filter every split, and count what is dropped.

        Args:
            choose: takes a split's name and its rows.
        """
        for split in self.names:
            kept = choose(split, self.examples[split])
            self.counts[split]["dropped"] |= kept.dropped
            self.counts[split] |= kept.facts
            self.examples[split] = self.examples[split][kept.mask]

    def tokenise(self, reader: Reader, loaded: Splits) -> None:
        """Read the words of the rows that are left.

        Args:
            reader: reads them.
            loaded: the rows of the source by split.

        Raises:
            UserError: a cell is not of its kind, or no row of a split can be used.
        """
        outlines = dict(self.examples)
        for origin in dict.fromkeys(self.origin[split] for split in self.names):
            splits = [split for split in self.names if self.origin[split] == origin]
            # in the order of the source, which numbers the words
            numbers = np.sort(np.concatenate([outlines[split].index for split in splits]))
            examples = reader.read(
                origin, loaded[origin], numbers, self.lexicon, self.counts[origin]
            )
            for split in splits:
                part = examples[examples.index.isin(outlines[split].index)]
                if part.empty:
                    raise reader.unusable(split, self.counts[origin]["dropped"])
                if "group" in outlines[split]:
                    part = part.assign(group=outlines[split]["group"])
                self.examples[split] = part


def prepare(settings: DataSettings, loaded: Splits) -> Prepared:
    """Read, divide, filter and encode the rows.

    Args:
        settings: the data set's settings.
        loaded: the rows of the source by split.

    Raises:
        UserError: the rows do not fit the settings, or none are left.
    """
    reader = Reader(settings, settings.rules, settings.max_tokens, settings.verbatim)
    splits, numbers, classes = with_classes(settings, reader, _asked_for(settings, loaded))
    spelling = list(splits.lexicon)
    # the vocabulary comes from the training rows before the length limits, as in the paper's code
    vocabulary = vocabulary_of(splits.examples, spelling, settings)
    splits.keep(lambda split, rows: filters.of_length(split, rows, settings))
    splits.keep(lambda split, rows: filters.of_sentences(split, rows, settings))

    task = Task.MULTI_LABEL if settings.multi_label else Task.SINGLE_LABEL
    vocabulary_id = np.array(vocabulary.encode(spelling), np.int32)
    kinds = reader.kinds if settings.plant is None else reader.kinds | PLANTED
    encoder = _Encoder(
        task=task,
        classes=classes,
        numbers=numbers,
        spelling=spelling,
        vocabulary_id=vocabulary_id,
        kinds=kinds,
        asks_labels=settings.asks_labels,
    )
    encoded = {
        split: encoder.encode(splits.examples[split], splits.counts[split])
        for split in splits.names
    }

    class_weight = _class_weight(settings, splits.counts, task) if settings.trains else None
    language = settings.rules.language if settings.rules.tokenizer == "spacy" else None
    checks = check_data(encoded, splits.counts, language, trains=settings.trains)
    pipeline = _pipeline(settings, task, vocabulary, classes)
    return Prepared(encoded, pipeline, splits.counts, checks, class_weight)


def _pipeline(
    settings: DataSettings, task: Task, vocabulary: Vocabulary, classes: Sequence[str]
) -> TextPipeline:
    """What turns new texts into batches as the rows were."""
    return TextPipeline(
        rules=settings.rules,
        vocabulary=vocabulary,
        classes=classes,
        task=task,
        max_tokens=settings.max_tokens,
        question=settings.question is not None,
        question_kind=settings.question_kind,
        attend_to=None if settings.text2 is None else settings.attend_to,
        candidates_pattern=settings.candidates_pattern,
        tags=settings.token is not None and not settings.trains,
    )


def _class_weight(settings: DataSettings, counts: Counts, task: Task) -> Tensor | None:
    """The weight of each class, by its training rows; a `UserError` where there is one class."""
    per_class = counts["train"]["per class"]
    class_counts = np.array(list(per_class.values()))
    if task is Task.SINGLE_LABEL and (class_counts > 0).sum() < 2:
        raise UserError(
            f"after the length limits the training rows have one class only ({per_class}): "
            f"widen data.min_length={settings.min_length} or data.max_length={settings.max_length}"
        )
    return class_weights(settings.class_weight, class_counts, counts["train"]["kept"], task)


@dataclass(frozen=True)
class _Encoder:
    """Turns tokenised rows into arrays of numbers.

    Attributes:
        task: single- or multi-label.
        classes: the classes' names.
        numbers: raw answer → class number.
        spelling: every word of the data set.
        vocabulary_id: the id of each of these words in the vocabulary.
        kinds: columns over the words by name, and the type that they are stored in.
        asks_labels: a row is a text and one of its labels.
    """

    task: Task
    classes: Sequence[str]
    numbers: Mapping[str, int]
    spelling: Sequence[str]
    vocabulary_id: Int[np.ndarray, " words"]
    kinds: Mapping[str, type]
    asks_labels: bool

    def encode(self, part: Examples, count: dict[str, Any]) -> TextSplit:
        """Encode one split; `count` gets its numbers of rows, words and unknown words."""
        unknown = self.vocabulary_id == UNKNOWN
        words = Ragged.of(part["words"], np.int32)
        labels, class_counts = self._labels(part)
        columns: dict[str, Any] = {"labels": labels}
        for name, kind in self.kinds.items():
            absent: np.ndarray = np.zeros(0, kind)
            columns[name] = Ragged.of([row.get(name, absent) for row in part["per_word"]], kind)
        if "question" in part:
            question = Ragged.of(part["question"], np.int32)
            columns["question"] = question
            count["question tokens out of vocabulary"] = int(unknown[question.flat].sum())
        if self.asks_labels:
            self._refuse_unknown_labels(columns["question"])
            columns["text_number"] = np.unique(part["group"], return_inverse=True)[1]
        if "candidates" in part:
            candidates = [self._candidates(names) for names in part["candidates"]]
            columns["candidates"] = Ragged.of(candidates, np.int32)

        count["truncated"] = int((part["length"] > words.lengths).sum())
        count["kept"] = len(part)
        count["per class"] = dict(zip(self.classes, class_counts.tolist(), strict=True))
        count["tokens"] = len(words.flat)
        count["tokens out of vocabulary"] = int(unknown[words.flat].sum())
        return TextSplit(
            example_id=part.index.to_numpy(),
            words=words,
            vocabulary_id=self.vocabulary_id,
            columns=columns,
            spelling=self.spelling,
            classes=self.classes,
            passages=part["passages"].tolist() if "passages" in part else None,
            slices=part["slice"].tolist() if "slice" in part else None,
        )

    def _refuse_unknown_labels(self, asked: Ragged) -> None:
        """Refuse labels that the training rows do not ask for often enough."""
        unknown = np.unique(asked.flat[self.vocabulary_id[asked.flat] == UNKNOWN])
        if len(unknown):
            names = sorted(self.spelling[number] for number in unknown.tolist())
            raise UserError(
                f"data.min_df and data.max_vocabulary count the names of labels, too, and the "
                f"training rows ask too rarely for {listed(names)}: lower data.min_df, raise "
                f"data.max_vocabulary, or leave these labels out"
            )

    def _labels(self, part: Examples) -> tuple[np.ndarray, Int[np.ndarray, " classes"]]:
        """The column of the labels, and how many rows each class has."""
        numbers = Ragged.of([self._class_numbers(row) for row in part["labels"]], np.int64)
        if self.task is Task.SINGLE_LABEL:
            return numbers.flat, np.bincount(numbers.flat, minlength=len(self.classes))
        labels = np.zeros((len(part), len(self.classes)), np.float32)
        row = np.repeat(np.arange(len(part)), numbers.lengths)
        labels[row, numbers.flat] = 1
        return labels, labels.sum(0).astype(np.int64)

    def _class_numbers(self, names: Sequence[str]) -> Int[np.ndarray, " labels"]:
        return np.array([self.numbers[name] for name in names], np.int64)

    def _candidates(self, names: Sequence[str] | None) -> Int[np.ndarray, " candidates"]:
        """The classes that a row may be answered with; names that are no classes are none."""
        if names is None:
            return np.arange(len(self.classes), dtype=np.int32)
        numbers = {self.numbers[name] for name in names if name in self.numbers}
        return np.array(sorted(numbers), np.int32)


def with_classes(
    settings: DataSettings, reader: Reader, loaded: Splits
) -> tuple[ReadSplits, Mapping[str, int], Sequence[str]]:
    """Read the rows whose answers are classes, or a sample of them.

    Args:
        settings: the data set's settings.
        reader: reads the rows.
        loaded: the rows of the source by split.

    Returns:
        The rows; raw answer → class number; and the names of the classes.

    Raises:
        UserError: the rows do not fit the settings, or none are left.
    """
    splits = outlined(settings, reader, loaded)

    def known_labels(split: str, rows: Examples) -> filters.Kept:
        return filters.with_known_labels(split, rows, numbers, settings)

    # where the classes are labels, no text of a row that has none need be tokenised
    are_labels = settings.classes_from == "labels" and settings.plant is None
    if are_labels:
        numbers, classes = class_numbers(splits.examples, (), settings)
        splits.keep(known_labels)
    splits.keep(lambda split, rows: filters.at_most(split, rows, settings))
    splits.tokenise(reader, loaded)

    if settings.plant is not None:
        plant_shortcut(splits.examples, splits.lexicon, settings)
    if not are_labels:
        numbers, classes = class_numbers(splits.examples, list(splits.lexicon), settings)
        splits.keep(known_labels)
    splits.keep(lambda split, rows: filters.answerable(split, rows, numbers, settings))
    return splits, numbers, classes


def _asked_for(settings: DataSettings, loaded: Splits) -> Splits:
    """The splits of a source that are used.

    Raises:
        UserError: a split is missing.
    """
    if settings.pool:
        loaded = {"train": _pooled(settings, loaded)}
    settings.check_splits(loaded)
    if not settings.trains and "test" not in loaded:
        loaded = {"test": loaded["train"]}
    return loaded


def outlined(settings: DataSettings, reader: Reader, loaded: Splits) -> ReadSplits:
    """Find the rows that can be used, and draw the splits that are missing.

    Splits that are missing are drawn from the training rows; where nothing is trained, all rows of
    a source without splits are test rows.

    Args:
        settings: the data set's settings.
        reader: reads the rows.
        loaded: the rows of the source by split.

    Raises:
        UserError: a column is missing, or too few rows are left to draw from.
    """
    examples: dict[str, Examples] = {}
    counts: Counts = {}
    for split in SPLITS:
        if split in loaded:
            counts[split] = {"loaded": len(loaded[split]), "dropped": {}}
            examples[split] = reader.outline(split, loaded[split], counts[split])
    origin = {split: split for split in examples}

    if settings.trains:
        shares = {"test": settings.test_share, "validation": settings.validation_share}
        for order, (split, share) in enumerate(shares.items()):
            if split in examples:
                continue
            training = examples["train"]
            generator = np.random.default_rng((settings.split_seed, order))
            drawn = _draw(training, share, generator, settings.multi_label)
            if not drawn.any() or drawn.all():
                raise UserError(
                    f"{len(training)} rows are too few to draw a {split} split from "
                    f"(data.{split}_share={share}){_largest_class(settings, training)}: give more "
                    f"rows, or files of their own: "
                    f"'data.path={{train: …, validation: …, test: …}}'"
                )
            examples[split] = training[drawn]
            examples["train"] = training[~drawn]
            origin[split] = "train"
            counts[split] = {"drawn from train": int(drawn.sum()), "dropped": {}}
            counts["train"][f"given to {split}"] = int(drawn.sum())
    return ReadSplits(examples, origin, Lexicon(), counts)


def _pooled(settings: DataSettings, loaded: Splits) -> datasets.Dataset:
    """The rows of all splits, with the columns that are read: others may differ in type."""
    roots = {path.split(".")[0] for path in settings.names}
    columns = roots | set(settings.names)  # a column, or a value within one
    parts = []
    for split in SPLITS:
        if split in loaded:
            part = loaded[split]
            parts.append(
                part.select_columns([name for name in part.column_names if name in columns])
            )
    return datasets.concatenate_datasets(parts)


def _largest_class(settings: DataSettings, training: Examples) -> str:
    """What a share is drawn of, where it is drawn of every class; else nothing."""
    if settings.multi_label or "group" in training or not len(training):
        return ""
    classes, rows = np.unique([labels[0] for labels in training["labels"]], return_counts=True)
    return f", of each of {len(classes):,} classes, the largest of which has {rows.max():,} rows"


def _draw(
    training: Examples, share: float, generator: np.random.Generator, multi_label: bool
) -> Bool[np.ndarray, " rows"]:
    """Draw a share of the rows: whole groups, or the same share of every class."""
    if "group" in training:
        names, group = np.unique(training["group"].astype(object), return_inverse=True)
        size = round(share * len(names))
        return np.isin(group, generator.permutation(len(names))[:size])

    # a multi-label row has no single class: all its rows are drawn from alike
    keys = ["" if multi_label else labels[0] for labels in training["labels"]]
    names, class_of_row = np.unique(keys, return_inverse=True)
    drawn = np.zeros(len(keys), bool)
    for number in range(len(names)):
        rows = np.flatnonzero(class_of_row == number)
        size = round(share * len(rows))
        drawn[generator.permutation(rows)[:size]] = True
    return drawn
