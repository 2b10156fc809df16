"""From the rows of a source to encoded splits: a pure function of the settings and the rows."""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import datasets
import numpy as np
from torch import Tensor

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.data import rows
from attnprobe.data.batching import TextSplit
from attnprobe.data.data_warnings import Check, check_data
from attnprobe.data.examples import Examples, Lexicon, Ragged
from attnprobe.data.local_files import SPLITS
from attnprobe.data.pipeline import TextPipeline
from attnprobe.data.reader import Reader
from attnprobe.data.rows import Kept, class_numbers, known_rows, vocabulary_of
from attnprobe.data.settings import DataSettings
from attnprobe.data.sources import Source, Splits
from attnprobe.data.vocabulary import UNKNOWN

Counts = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Prepared:
    """A data set that is ready to be trained on.

    Attributes:
        splits: every split of `SPLITS`, encoded.
        pipeline: what turns new text into batches as these were made.
        counts: rows loaded, dropped for each reason, truncated and kept, per split; for the manifest.
        checks: what was looked at before anything is trained (`attnprobe.data.data_warnings`).
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
    task = Task.MULTI_LABEL if settings.multi_label else Task.SINGLE_LABEL
    examples, lexicon, counts = read_splits(settings, loaded)
    divide(examples, counts, settings)
    trains, there = settings.trains, [split for split in SPLITS if split in examples]
    if settings.plant is not None:
        plant_everywhere(examples, lexicon, settings)
    spelling = list(lexicon)
    numbers, classes = class_numbers(examples, spelling, settings)

    def keep(choose: Callable[..., Kept], *arguments: Any) -> None:
        for split in there:
            kept = choose(split, examples[split], *arguments, settings)
            counts[split]["dropped"] |= kept.dropped
            counts[split] |= kept.facts
            examples[split] = examples[split].select(kept.mask)

    keep(rows.with_known_labels, numbers)
    keep(rows.answerable, numbers)
    keep(rows.at_most)
    vocabulary = vocabulary_of(known_rows(examples, settings), spelling, settings)
    keep(rows.of_length)
    keep(rows.of_sentences)

    vocabulary_id = np.array(vocabulary.encode(spelling), np.int32)
    splits = {}
    for split in there:
        part = examples[split]
        chosen = Ragged.of([np.array([numbers[label] for label in row], np.int64) for row in part.labels], np.int64)
        per_class, labels = np.bincount(chosen.flat, minlength=len(classes)), chosen.flat
        if task is Task.MULTI_LABEL:
            labels = np.zeros((len(part), len(classes)), np.float32)
            labels[np.repeat(np.arange(len(part)), chosen.lengths), chosen.flat] = 1
            per_class = labels.sum(0).astype(np.int64)
        columns: dict[str, Any] = {"labels": labels, **part.per_word}
        if part.question is not None:
            columns["question"] = part.question
        if part.candidates is not None:
            # candidates that are not classes cannot be answered
            allowed = [
                range(len(classes)) if names is None else sorted({numbers[name] for name in names if name in numbers})
                for names in part.candidates
            ]
            columns["candidates"] = Ragged.of([np.array(one, np.int32) for one in allowed], np.int32)
        splits[split] = TextSplit(part.example_id, part.words, vocabulary_id, columns, spelling, classes)
        unknown = vocabulary_id == UNKNOWN
        counts[split] |= {
            "truncated": int((part.length > part.words.lengths).sum()),
            "kept": len(part),
            "per class": dict(zip(classes, per_class.tolist(), strict=True)),
            "tokens": len(part.words.flat),
            "tokens out of vocabulary": int(unknown[part.words.flat].sum()),
        }
        if part.question is not None:
            counts[split]["question tokens out of vocabulary"] = int(unknown[part.question.flat].sum())
    per_class = np.array(list(counts[there[0]]["per class"].values()))
    if trains and task is Task.SINGLE_LABEL and (per_class > 0).sum() < 2:
        raise UserError(
            f"after the length limits the training rows have one class only ({counts['train']['per class']}): "
            f"widen data.min_length={settings.min_length} or data.max_length={settings.max_length}"
        )
    pipeline = TextPipeline(
        rules=settings.rules,
        vocabulary=vocabulary,
        classes=classes,
        task=task,
        max_tokens=settings.max_tokens,
        question=settings.question is not None,
        attend_to=None if settings.text2 is None else settings.attend_to,
        candidates_pattern=settings.candidates_pattern,
        tags=settings.token is not None and not trains,
    )
    weight = None
    if trains:
        weight = rows.class_weights(settings.class_weight, per_class, len(splits["train"]), task)
    language = settings.rules.language if settings.rules.tokenizer == "spacy" else None
    checks = check_data(splits, counts, language, trains=trains)
    return Prepared(splits, pipeline, counts, checks, weight)


def read_splits(settings: DataSettings, loaded: Splits) -> tuple[dict[str, Examples], Lexicon, Counts]:
    """The examples of the splits that the source has, every word in them, and what was counted."""
    if settings.pool:
        # of the columns only those that are read, as others may differ in type
        columns = {name for one in settings.names for name in (one, one.split(".")[0])}
        parts = [loaded[split] for split in SPLITS if split in loaded]
        parts = [part.select_columns([name for name in part.column_names if name in columns]) for part in parts]
        loaded = {"train": datasets.concatenate_datasets(parts)}
    settings.check_splits(loaded)
    reader = Reader(settings, settings.rules, settings.max_tokens)
    lexicon = Lexicon()
    examples, counts = {}, {}
    for split in (split for split in SPLITS if split in loaded):
        count = counts[split] = {"loaded": len(loaded[split]), "dropped": {}}
        examples[split] = reader.read(split, loaded[split], lexicon, count)
    return examples, lexicon, counts


def divide(examples: dict[str, Examples], counts: Counts, settings: DataSettings) -> None:
    """Draw the splits that the source does not have from the training rows, in place. Where nothing is trained, all rows of a
    source without splits are test rows."""
    if not settings.trains:
        if "test" not in examples:
            examples["test"], counts["test"] = examples.pop("train"), counts.pop("train")
        return
    shares = {"test": settings.test_share, "validation": settings.validation_share}
    for order, (split, share) in enumerate(shares.items()):
        if split in examples:
            continue
        training = examples["train"]
        generator = np.random.default_rng((settings.split_seed, order))
        if training.groups is not None:
            names, of_row = np.unique(training.groups, return_inverse=True)
            drawn = np.isin(of_row, generator.permutation(len(names))[: round(share * len(names))])
        else:
            # a multi-label row has no one class to be stratified by
            keys = ["" if settings.multi_label else label[0] for label in training.labels]
            drawn = rows.divide(np.unique(keys, return_inverse=True)[1], share, generator)
        if not drawn.any() or drawn.all():
            raise UserError(
                f"{len(training)} rows are too few to draw a {split} split from (data.{split}_share={share}): give "
                f"more rows, or files of their own: 'data.path={{train: …, validation: …, test: …}}'"
            )
        examples[split], examples["train"] = training.select(drawn), training.select(~drawn)
        counts[split] = {"drawn from train": int(drawn.sum()), "dropped": {}}
        counts["train"][f"given to {split}"] = int(drawn.sum())


_kept: dict[str, Any] | None = None
"""While `read_once` lasts: what the last data set was made from, the data set, and what was guessed."""


@contextmanager
def read_once() -> Iterator[None]:
    """While this lasts the last data set stays in memory, and is not read again where settings, files and the files' sizes
    and times are the same: the members of a study train on the same texts."""
    global _kept
    before, _kept = _kept, {}
    try:
        yield
    finally:
        _kept = before


def prepared_from(settings: DataSettings, source: Source) -> tuple[Prepared, tuple[str, ...]]:
    """The prepared data set and what was guessed while it was read.

    Raises:
        UserError: the rows cannot be used as configured; the message says what to change.
    """
    if _kept is None:
        return prepare(settings, source.load()), source.notes
    asked = {name: value for name, value in vars(source).items() if name != "notes"}
    stamps = {split: (path, path.stat().st_size, path.stat().st_mtime_ns) for split, path in source.files().items()}
    made_from = settings, type(source), asked, stamps
    if _kept.get("made from") != made_from:
        _kept.clear()  # two at a time would need the memory of both
        _kept.update({"prepared": prepare(settings, source.load()), "notes": source.notes, "made from": made_from})
    # what a run adds to its data is not seen by the next one
    one = _kept["prepared"]
    counts = {split: dict(count) for split, count in one.counts.items()}
    return replace(one, splits=dict(one.splits), counts=counts, checks=list(one.checks)), _kept["notes"]


SPELLED = ("question", "counterfactual")
"""Columns whose entries are words."""


def data_fingerprint(splits: Mapping[str, TextSplit], names: Sequence[str]) -> str:
    """Ten hexadecimal digits that stand for all that a model or a probe reads of the data: the texts with the words that
    the vocabulary lacks, every column of the batches, and the order of all these.

    Args:
        splits: the examples.
        names: the vocabulary and the classes, in order.
    """
    digest = hashlib.sha256("\n".join(names).encode("utf-8", "surrogatepass"))
    for split, part in splits.items():
        spelled_columns = [part.columns.get(name) for name in SPELLED]
        flat = [part.words.flat, *(column.flat for column in spelled_columns if isinstance(column, Ragged))]
        # words are numbered anew as they first come: those of rows that were left out must not change the others' numbers
        distinct, first, place = np.unique(np.concatenate(flat), return_index=True, return_inverse=True)
        order = np.argsort(first)
        rank = np.empty(len(order), np.int64)
        rank[order] = np.arange(len(order))
        numbers = rank[place.ravel()]
        spelling = "\0".join(part.spelling[number] for number in distinct[order].tolist())
        digest.update(f"\0{split}\0".encode() + spelling.encode("utf-8", "surrogatepass"))
        arrays = {"id": part.example_id, "texts": part.words.offsets, "words": numbers}
        for name, column in sorted(part.columns.items()):
            if isinstance(column, Ragged):
                arrays[f"{name} offsets"] = column.offsets
            if name not in SPELLED:  # their words follow the texts' words
                arrays[name] = column.flat if isinstance(column, Ragged) else column
        for name, array in arrays.items():
            # a name and a size before each: what one column loses another cannot gain unnoticed
            digest.update(f"\0{name}:{array.dtype.str}:{array.shape}\0".encode())
            digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:10]


# Planted shortcuts: words that decide the label of any data, so that the reason for every label is known.
#
# After Bastings et al. 2022, *"Will You Find These Shortcuts?"*, section 3. Every row gets a class at random, and words that
# say which: they are the rationale. The text around them is as it was and says nothing about the label, because the label
# does not come from it. No text is longer than before by more than the planted words.
#
# Note:
# Bastings et al. plant into a part of the rows and keep the labels of the others; here the shortcut is in every row,
# so that it is all there is to be learnt.

KINDS = ("token", "ordered_pair", "token_in_context")
"""What is planted:

- `token`: one word, another one for each class;
- `ordered_pair`: two words; which of them comes first is the class (two classes). Either word alone says nothing;
- `token_in_context`: one of two words, somewhere after one of two context words: the class is whether the two belong
  together (two classes). No single word says anything."""

WORDS = ("zyxal", "quovim", "brelpa", "drondle", "fimbrak", "glastev", "horpid", "jextrum", "kravole", "lustrem")
CONTEXT = ("nembria", "oskalith")
OWN: dict[str, type] = {"rationale": np.bool_, "counterfactual": np.int32}
"""The columns over the words that planting replaces."""


def plant_everywhere(examples: dict[str, Examples], lexicon: Lexicon, settings: DataSettings) -> None:
    """Put the shortcut `settings.plant` into every split, in place; the classes are those of the training rows' own labels.

    Raises:
        UserError: there are too many classes for this kind, or a planted word is in the data.
    """
    kind = str(settings.plant)
    numbers, names = class_numbers(examples, list(lexicon), settings)
    classes = [next(raw for raw, number in numbers.items() if number == place) for place in range(len(names))]
    most = len(WORDS) if kind == "token" else 2
    if len(classes) > most:
        raise UserError(
            f"data.plant={kind} is for at most {most} classes, these data have {len(classes)}: choose two with data.labels "
            f"and data.unseen_labels=drop, or data.plant=token"
        )
    if there := [word for word in (*WORDS, *CONTEXT) if word in lexicon]:
        raise UserError(f"data.plant={kind}: the word {there[0]} is in the data already, so it cannot be a shortcut")
    for split in examples:
        seed = (settings.split_seed, 10 + SPLITS.index(split))
        examples[split] = plant(kind, examples[split], classes, lexicon, seed, settings.max_tokens)


def plant(
    kind: str, examples: Examples, classes: Sequence[str], lexicon: Lexicon, seed: tuple[int, ...], limit: int | None
) -> Examples:
    """The same examples with other labels and the words that say them, at random places.

    Args:
        kind: one of `KINDS`.
        examples: one split.
        classes: the raw labels that are drawn from, all equally likely.
        lexicon: gets the planted words.
        seed: with the example's id it decides its label, words and places, whatever else is in the split.
        limit: texts are cut so that with the planted words they have no more than this many tokens.

    Returns:
        the examples, with `rationale` in `per_word`, True at the planted words, and `counterfactual`, the same text with
        the words that say the next class.
    """
    words, labels, length = [], [], []
    per_word: dict[str, list[np.ndarray]] = {name: [] for name in (*examples.per_word, *OWN)}
    for row, example_id in enumerate(examples.example_id.tolist()):
        draw = np.random.default_rng((*seed, example_id))
        label = int(draw.integers(len(classes)))
        said, other = (lexicon.numbers(one) for one in planted_words(kind, label, len(classes), draw))
        old = examples.words[row][: None if limit is None else max(limit - len(said), 0)]
        places = np.sort(draw.integers(0, len(old) + 1, len(said)))
        words.append(np.insert(old, places, said))
        labels.append([classes[label]])
        length.append(int(examples.length[row]) + len(said))
        for name, column in examples.per_word.items():
            if name not in OWN:
                values = column[row][: len(old)]
                if len(values):  # the planted words belong to a neighbour's sentence or text, and have no number
                    new = values[np.maximum(places - 1, 0)] if name in ("sentence", "segment") else np.nan
                    values = np.insert(values, places, new)
                per_word[name].append(values)
        per_word["rationale"].append(np.insert(np.zeros(len(old), bool), places, True))
        per_word["counterfactual"].append(np.insert(old, places, other))
    kinds = {name: values.flat.dtype.type for name, values in examples.per_word.items()} | OWN
    return replace(
        examples,
        words=Ragged.of(words, np.int32),
        length=np.array(length, np.int64),
        labels=labels,
        per_word={name: Ragged.of(values, kinds[name]) for name, values in per_word.items()},
    )


def planted_words(kind: str, label: int, classes: int, draw: np.random.Generator) -> tuple[list[str], list[str]]:
    """The words that say this class, in the order in which they occur in the text, and those that say the next one: of two
    classes the other one, of more the one after it, and after the last the first."""
    after = (label + 1) % classes
    if kind == "token":
        return [WORDS[label]], [WORDS[after]]
    if kind == "ordered_pair":
        return [WORDS[label], WORDS[after]], [WORDS[after], WORDS[label]]
    first = int(draw.integers(2))
    which = first if label else 1 - first
    return [CONTEXT[first], WORDS[which]], [CONTEXT[first], WORDS[1 - which]]
