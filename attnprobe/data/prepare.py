"""From the rows of a source to encoded splits: a pure function of the settings and the rows."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np
import pandas as pd
from torch import Tensor

from attnprobe.core.batch import Task
from attnprobe.core.errors import UserError
from attnprobe.data import rows
from attnprobe.data.batching import TextSplit
from attnprobe.data.columns import OPTIONAL
from attnprobe.data.data_warnings import Check, check_data
from attnprobe.data.examples import Examples, Lexicon, Ragged
from attnprobe.data.local_files import SPLITS
from attnprobe.data.pipeline import TextPipeline
from attnprobe.data.reader import Reader
from attnprobe.data.rows import Kept, class_numbers, vocabulary_of
from attnprobe.data.settings import DataSettings
from attnprobe.data.sources import Splits
from attnprobe.data.vocabulary import UNKNOWN

Counts = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Prepared:
    """A data set that is ready to be trained on: `counts` has the rows loaded, dropped for each
    reason, truncated and kept per split, and `class_weight` the weight of each class in the
    loss."""

    splits: dict[str, TextSplit]
    pipeline: TextPipeline
    counts: Counts
    checks: list[Check]
    class_weight: Tensor | None


def prepare(settings: DataSettings, loaded: Splits) -> Prepared:
    """Read, divide, filter and encode the rows."""
    task = Task.MULTI_LABEL if settings.multi_label else Task.SINGLE_LABEL
    examples, lexicon, counts, kinds = read_splits(settings, loaded)
    trains = settings.trains
    there = [split for split in SPLITS if split in examples]
    if settings.plant is not None:
        plant_shortcut(examples, lexicon, settings)
        kinds |= OWN
    spelling = list(lexicon)
    numbers, classes = class_numbers(examples, spelling, settings)

    def keep(choose: Callable[..., Kept], *arguments: Any) -> None:
        for split in there:
            kept = choose(split, examples[split], *arguments, settings)
            counts[split]["dropped"] |= kept.dropped
            counts[split] |= kept.facts
            examples[split] = examples[split][kept.mask]

    keep(rows.with_known_labels, numbers)
    keep(rows.answerable, numbers)
    keep(rows.at_most)
    vocabulary = vocabulary_of(examples, spelling, settings)
    keep(rows.of_length)
    keep(rows.of_sentences)

    vocabulary_id = np.array(vocabulary.encode(spelling), np.int32)
    splits = {}
    for split in there:
        part = examples[split]
        chosen = Ragged.of(
            [np.array([numbers[label] for label in row], np.int64) for row in part["labels"]],
            np.int64,
        )
        per_class = np.bincount(chosen.flat, minlength=len(classes))
        labels = chosen.flat
        if task is Task.MULTI_LABEL:
            labels = np.zeros((len(part), len(classes)), np.float32)
            labels[np.repeat(np.arange(len(part)), chosen.lengths), chosen.flat] = 1
            per_class = labels.sum(0).astype(np.int64)
        words = Ragged.of(part["words"], np.int32)
        columns: dict[str, Any] = {"labels": labels}
        for name, kind in kinds.items():
            columns[name] = Ragged.of(
                [one.get(name, np.zeros(0, kind)) for one in part["per_word"]], kind
            )
        unknown = vocabulary_id == UNKNOWN
        if "question" in part:
            asked = columns["question"] = Ragged.of(part["question"], np.int32)
            counts[split]["question tokens out of vocabulary"] = int(unknown[asked.flat].sum())
        if "candidates" in part:
            # candidates that are not classes cannot be answered
            allowed = [
                range(len(classes))
                if names is None
                else sorted({numbers[name] for name in names if name in numbers})
                for names in part["candidates"]
            ]
            columns["candidates"] = Ragged.of(
                [np.array(one, np.int32) for one in allowed], np.int32
            )
        splits[split] = TextSplit(
            part.index.to_numpy(), words, vocabulary_id, columns, spelling, classes
        )
        counts[split] |= {
            "truncated": int((part["length"] > words.lengths).sum()),
            "kept": len(part),
            "per class": dict(zip(classes, per_class.tolist(), strict=True)),
            "tokens": len(words.flat),
            "tokens out of vocabulary": int(unknown[words.flat].sum()),
        }
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
    size = len(splits["train"]) if trains else 0
    weight = rows.class_weights(settings.class_weight, per_class, size, task) if trains else None
    language = settings.rules.language if settings.rules.tokenizer == "spacy" else None
    checks = check_data(splits, counts, language, trains=trains)
    return Prepared(splits, pipeline, counts, checks, weight)


def read_splits(
    settings: DataSettings, loaded: Splits
) -> tuple[dict[str, Examples], Lexicon, Counts, dict[str, type]]:
    """The examples by split, every word in them, what was counted, and the columns over words.
    Splits that are not there are drawn from the training rows; where nothing is trained, all rows
    of a source without splits are test rows."""
    if settings.pool:
        # of the columns only those that are read, as others may differ in type
        named = [settings.text, settings.label, *(getattr(settings, one) for one in OPTIONAL)]
        named += [*settings.per_word.values(), *settings.filters]
        columns = {name for one in named if one for name in (one, one.split(".")[0])}
        parts = [loaded[split] for split in SPLITS if split in loaded]
        parts = [
            part.select_columns([name for name in part.column_names if name in columns])
            for part in parts
        ]
        loaded = {"train": datasets.concatenate_datasets(parts)}
    settings.check_splits(loaded)
    if not settings.trains and "test" not in loaded:
        loaded = {"test": loaded["train"]}
    reader = Reader(settings, settings.rules, settings.max_tokens)
    lexicon = Lexicon()
    examples = {}
    counts = {}
    for split in (split for split in SPLITS if split in loaded):
        count = counts[split] = {"loaded": len(loaded[split]), "dropped": {}}
        examples[split] = reader.read(split, loaded[split], lexicon, count)
    shares = (
        {"test": settings.test_share, "validation": settings.validation_share}
        if settings.trains
        else {}
    )
    for order, (split, share) in enumerate(shares.items()):
        if split in examples:
            continue
        training = examples["train"]
        generator = np.random.default_rng((settings.split_seed, order))
        if "group" in training:
            names, group = np.unique(training["group"].astype(object), return_inverse=True)
            drawn = np.isin(group, generator.permutation(len(names))[: round(share * len(names))])
        else:
            # the same share of every class; a multi-label row has no one class
            keys = ["" if settings.multi_label else label[0] for label in training["labels"]]
            names, of_row = np.unique(keys, return_inverse=True)
            drawn = np.zeros(len(keys), bool)
            for number in range(len(names)):
                of_class = np.flatnonzero(of_row == number)
                drawn[generator.permutation(of_class)[: round(share * len(of_class))]] = True
        if not drawn.any() or drawn.all():
            raise UserError(
                f"{len(training)} rows are too few to draw a {split} split from (data.{split}_share={share}): give "
                f"more rows, or files of their own: 'data.path={{train: …, validation: …, test: …}}'"
            )
        examples[split], examples["train"] = training[drawn], training[~drawn]
        counts[split] = {"drawn from train": int(drawn.sum()), "dropped": {}}
        counts["train"][f"given to {split}"] = int(drawn.sum())
    return examples, lexicon, counts, reader.kinds


SPELLED = ("question", "counterfactual")


def data_fingerprint(splits: Mapping[str, TextSplit], names: Sequence[str]) -> str:
    """Ten hexadecimal digits that stand for all that a model or a probe reads of the data: the
    texts with the words that the vocabulary lacks, every column of the batches, the vocabulary and
    the classes (`names`), and the order of all these."""
    digest = hashlib.sha256("\n".join(names).encode("utf-8", "surrogatepass"))
    for split, part in splits.items():
        spelled_columns = [part.columns.get(name) for name in SPELLED]
        flat = [
            part.words.flat,
            *(column.flat for column in spelled_columns if isinstance(column, Ragged)),
        ]
        # words are numbered anew as they first come: those of rows that were left out must not
        # change the others' numbers
        distinct, first, place = np.unique(
            np.concatenate(flat), return_index=True, return_inverse=True
        )
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


# Planted shortcuts: words that decide the label of any data, so that the reason for every label is
# known. After Bastings et al. 2022, "Will You Find These Shortcuts?", section 3, who plant into a
# part of the rows; here it is all there is to learn.

KINDS = ("token", "ordered_pair", "token_in_context")
"""What is planted: one word, another one for each class; two words, of which the first says the
class (of two); one of two words, somewhere after one of two context words: whether they belong
together says the class (of two)."""

WORDS = (
    "zyxal",
    "quovim",
    "brelpa",
    "drondle",
    "fimbrak",
    "glastev",
    "horpid",
    "jextrum",
    "kravole",
    "lustrem",
)
CONTEXT = ("nembria", "oskalith")
OWN: dict[str, type] = {"rationale": np.bool_, "counterfactual": np.int32}
"""The columns over the words that planting replaces."""


def plant_shortcut(examples: dict[str, Examples], lexicon: Lexicon, settings: DataSettings) -> None:
    """Give every row a label of the training rows at random, and put the words that say it into its
    text, in place; `rationale` is True at these words, and `counterfactual` has those that say the
    next class."""
    kind = str(settings.plant)
    numbers, names = class_numbers(examples, list(lexicon), settings)
    classes = [
        next(raw for raw, number in numbers.items() if number == place)
        for place in range(len(names))
    ]
    most = len(WORDS) if kind == "token" else 2
    if len(classes) > most:
        raise UserError(
            f"data.plant={kind} is for at most {most} classes, these data have {len(classes)}: choose two with data.labels "
            f"and data.unseen_labels=drop, or data.plant=token"
        )
    if there := [word for word in (*WORDS, *CONTEXT) if word in lexicon]:
        raise UserError(
            f"data.plant={kind}: the word {there[0]} is in the data already, so it cannot be a shortcut"
        )
    limit = settings.max_tokens
    for split, part in examples.items():
        planted = []
        for example_id, row in zip(part.index.tolist(), part.to_dict("records"), strict=True):
            # whatever else is in the split
            draw = np.random.default_rng(
                (settings.split_seed, 10 + SPLITS.index(split), example_id)
            )
            label = int(draw.integers(len(classes)))
            said, other = (
                lexicon.numbers(one) for one in planted_words(kind, label, len(classes), draw)
            )
            old = row["words"][: None if limit is None else max(limit - len(said), 0)]
            places = np.sort(draw.integers(0, len(old) + 1, len(said)))
            per_word = {
                "rationale": np.insert(np.zeros(len(old), bool), places, True),
                "counterfactual": np.insert(old, places, other),
            }
            for name, values in row["per_word"].items():
                if (
                    name not in OWN
                ):  # the planted words belong to a neighbour's sentence or text, and have no number
                    new = (
                        values[np.maximum(places - 1, 0)]
                        if name in ("sentence", "segment")
                        else np.nan
                    )
                    per_word[name] = np.insert(values[: len(old)], places, new)
            length = row["length"] + len(said)
            changed = {
                "words": np.insert(old, places, said),
                "labels": [classes[label]],
                "length": length,
            }
            planted.append(row | changed | {"per_word": per_word})
        examples[split] = pd.DataFrame(planted, index=part.index)


def planted_words(
    kind: str, label: int, classes: int, draw: np.random.Generator
) -> tuple[list[str], list[str]]:
    """The words that say this class, in the order of the text, and those that say the next one,
    after the last the first."""
    after = (label + 1) % classes
    if kind == "token":
        return [WORDS[label]], [WORDS[after]]
    if kind == "ordered_pair":
        return [WORDS[label], WORDS[after]], [WORDS[after], WORDS[label]]
    first = int(draw.integers(2))
    which = first if label else 1 - first
    return [CONTEXT[first], WORDS[which]], [CONTEXT[first], WORDS[1 - which]]
