"""From the rows of a source to encoded splits: a pure function of the settings and the rows."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np
from torch import Tensor

from attnprobe.batch import Task
from attnprobe.data import filters, rows
from attnprobe.data.batching import TextSplit
from attnprobe.data.checks import check_data
from attnprobe.data.classes import class_numbers, vocabulary_of
from attnprobe.data.examples import Examples, Lexicon
from attnprobe.data.files import SPLITS
from attnprobe.data.filters import Kept
from attnprobe.data.looks import Check
from attnprobe.data.pipeline import TextPipeline
from attnprobe.data.plant import check_plant, plant
from attnprobe.data.ragged import Ragged
from attnprobe.data.reader import Reader
from attnprobe.data.settings import DataSettings
from attnprobe.data.sources import Splits
from attnprobe.data.vocabulary import UNKNOWN
from attnprobe.errors import UserError

Counts = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Prepared:
    """A data set that is ready to be trained on.

    Attributes:
        splits: every split of `SPLITS`, encoded.
        pipeline: what turns new text into batches as these were made.
        counts: rows loaded, dropped for each reason, truncated and kept, per split; for the manifest.
        checks: what was looked at before anything is trained (`attnprobe.data.checks`).
        class_weight: weight of each class in the loss, or None.
    """

    splits: dict[str, TextSplit]
    pipeline: TextPipeline
    counts: Counts
    checks: list[Check]
    class_weight: Tensor | None


def prepare(settings: DataSettings, loaded: Splits) -> Prepared:
    """Read, divide, filter and encode the rows.

    Raises:
        UserError: the rows cannot be used as configured; the message says what to change.
    """
    task = Task.MULTI_LABEL if settings.columns.multi_label else Task.SINGLE_LABEL
    examples, lexicon, counts = read(settings, loaded)
    divide(examples, counts, settings)
    if settings.labels.plant is not None:
        plant_everywhere(settings.labels.plant, examples, lexicon, settings)
    spelling = list(lexicon)
    numbers, classes = class_numbers(examples, spelling, settings)

    def keep(choose: Callable[[str, Examples], Kept]) -> None:
        for split in SPLITS:
            kept = choose(split, examples[split])
            counts[split]["dropped"] |= kept.dropped
            counts[split] |= kept.facts
            examples[split] = examples[split].select(kept.mask)

    limits, labels = settings.limits, settings.labels
    keep(lambda split, part: filters.with_known_labels(split, part, numbers, labels))
    keep(lambda split, part: filters.answerable(split, part, numbers, labels))
    keep(lambda split, part: filters.at_most(split, part, limits, settings.splitting.split_seed))
    vocabulary = vocabulary_of(examples["train"], spelling, settings)
    keep(lambda split, part: filters.of_length(split, part, limits))
    keep(lambda split, part: filters.of_sentences(split, part, limits))

    vocabulary_id = np.array(vocabulary.encode(spelling), np.int32)
    splits = {}
    for split, part in ((split, examples[split]) for split in SPLITS):
        columns: dict[str, Any] = {"labels": rows.targets(part.labels, numbers, len(classes), task), **part.per_word}
        if part.question is not None:
            columns["question"] = part.question
        if part.candidates is not None:
            columns["candidates"] = answers(part.candidates, numbers, len(classes))
        splits[split] = TextSplit(part.example_id, part.words, vocabulary_id, columns, spelling, classes)
        counts[split]["truncated"] = int((part.length > part.words.lengths).sum())
        counts[split] |= contents(splits[split])
    per_class = rows.class_counts(splits["train"].labels, len(classes))
    if task is Task.SINGLE_LABEL and (per_class > 0).sum() < 2:
        raise UserError(
            f"after the length limits the training rows have one class only ({counts['train']['per class']}): "
            f"widen data.min_length={limits.min_length} or data.max_length={limits.max_length}"
        )
    pipeline = TextPipeline(
        rules=settings.rules,
        vocabulary=vocabulary,
        classes=classes,
        task=task,
        max_tokens=limits.max_tokens,
        question=settings.columns.question is not None,
        candidates_pattern=settings.columns.candidates_pattern,
    )
    weight = rows.class_weights(labels.class_weight, per_class, len(splits["train"]), task)
    checks = check_data(splits, counts, settings.rules.language if settings.rules.tokenizer == "spacy" else None)
    return Prepared(splits, pipeline, counts, checks, weight)


def read(settings: DataSettings, loaded: Splits) -> tuple[dict[str, Examples], Lexicon, Counts]:
    """The examples of the splits that the source has, every word in them, and what was counted."""
    if settings.splitting.pool:
        loaded = {"train": pooled(loaded, settings)}
    reader = Reader(settings.columns, settings.rules, settings.limits.max_tokens)
    lexicon = Lexicon()
    examples, counts = {}, {}
    for split in (split for split in SPLITS if split in loaded):
        count = counts[split] = {"loaded": len(loaded[split]), "dropped": {}}
        examples[split] = reader.read(split, loaded[split], lexicon, count)
    return examples, lexicon, counts


def plant_everywhere(kind: str, examples: dict[str, Examples], lexicon: Lexicon, settings: DataSettings) -> None:
    """Put a shortcut into every split, in place; the classes are those of the training rows' own labels.

    Raises:
        UserError: there are too many classes for this kind, or a planted word is in the data.
    """
    numbers, names = class_numbers(examples, list(lexicon), settings)
    classes = [next(raw for raw, number in numbers.items() if number == place) for place in range(len(names))]
    check_plant(kind, classes, lexicon)
    for order, split in enumerate(SPLITS):
        seed = (settings.splitting.split_seed, 10 + order)
        examples[split] = plant(kind, examples[split], classes, lexicon, seed, settings.limits.max_tokens)


def pooled(loaded: Splits, settings: DataSettings) -> datasets.Dataset:
    """All splits one after the other; of the columns only those that are read, as others may differ in type."""
    columns = {name for one in settings.columns.read for name in (one, one.split(".")[0])}
    parts = [loaded[split] for split in SPLITS if split in loaded]
    return datasets.concatenate_datasets(
        [part.select_columns([name for name in part.column_names if name in columns]) for part in parts]
    )


def divide(examples: dict[str, Examples], counts: Counts, settings: DataSettings) -> None:
    """Draw the splits that the source does not have from the training rows, in place."""
    shares = {"test": settings.splitting.test_share, "validation": settings.splitting.validation_share}
    for order, (split, share) in enumerate(shares.items()):
        if split in examples:
            continue
        training = examples["train"]
        generator = np.random.default_rng((settings.splitting.split_seed, order))
        if training.groups is not None:
            drawn = rows.divide_groups(np.unique(training.groups, return_inverse=True)[1], share, generator)
        else:
            # a multi-label row has no one class to be stratified by
            keys = ["" if settings.columns.multi_label else label[0] for label in training.labels]
            drawn = rows.divide(np.unique(keys, return_inverse=True)[1], share, generator)
        if not drawn.any() or drawn.all():
            raise UserError(
                f"{len(training)} rows are too few to draw a {split} split from (data.{split}_share={share}): give "
                f"more rows, or files of their own: 'data.path={{train: …, validation: …, test: …}}'"
            )
        examples[split], examples["train"] = training.select(drawn), training.select(~drawn)
        counts[split] = {"drawn from train": int(drawn.sum()), "dropped": {}}
        counts["train"][f"given to {split}"] = int(drawn.sum())


def contents(split: TextSplit) -> dict[str, Any]:
    """What a split holds in the end, for the manifest."""
    per_class = rows.class_counts(split.labels, len(split.classes)).tolist()
    counts = {
        "kept": len(split),
        "per class": dict(zip(split.classes, per_class, strict=True)),
        "tokens": len(split.words.flat),
        "tokens out of vocabulary": int((split.vocabulary_id[split.words.flat] == UNKNOWN).sum()),
    }
    question = split.columns.get("question")
    if isinstance(question, Ragged):
        counts["question tokens out of vocabulary"] = int((split.vocabulary_id[question.flat] == UNKNOWN).sum())
    return counts


def answers(candidates: list[list[str] | None], numbers: Mapping[str, int], classes: int) -> Ragged:
    """The class numbers of every row's candidates; those that are not classes cannot be answered and are left out."""
    every = range(classes)
    return Ragged.of(
        [
            np.array(every if names is None else sorted({numbers[name] for name in names if name in numbers}), np.int32)
            for names in candidates
        ],
        np.int32,
    )
