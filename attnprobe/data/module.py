"""`TextDataModule`: from a source of rows to batches. A data set is a YAML of this class's arguments."""

import hashlib
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import datasets
import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from lightning import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Sampler
from tqdm import tqdm

from attnprobe.batch import Batch, Task
from attnprobe.data import rows
from attnprobe.data.batching import BucketSampler, Ragged, SortedSampler, TextSplit
from attnprobe.data.sources import SPLITS, Source, Splits
from attnprobe.data.text import TextPipeline, TextRules
from attnprobe.data.vectors import load_vectors, random_vectors
from attnprobe.data.vocabulary import build_vocabulary, document_frequency
from attnprobe.errors import UserError


@dataclass(frozen=True)
class Examples:
    """Tokenised rows of one split, before the vocabulary; all fields run over the same rows.

    `words` numbers distinct words in order of appearance; `length` counts tokens before truncation. Whatever else
    belongs to a row (a question, the sentence of each token) becomes one more `Ragged` beside `words`.
    """

    example_id: Int[np.ndarray, " rows"]
    words: Ragged
    length: Int[np.ndarray, " rows"]
    labels: list[list[str]]
    rationale: Ragged | None = None

    def __len__(self) -> int:
        return len(self.example_id)

    def select(self, keep: Bool[np.ndarray, " rows"]) -> "Examples":
        """The rows where `keep` is True, in their order."""
        chosen = np.flatnonzero(keep)
        return Examples(
            self.example_id[chosen],
            self.words.select(chosen),
            self.length[chosen],
            [self.labels[row] for row in chosen.tolist()],
            None if self.rationale is None else self.rationale.select(chosen),
        )


class Lexicon(dict[str, int]):
    """Numbers words in the order in which they are asked for."""

    def __missing__(self, word: str) -> int:
        self[word] = len(self)
        return self[word]


class TextDataModule(LightningDataModule):
    """Loads, cleans, tokenises, filters and encodes a data set, and serves it in batches.

    Args:
        name: what the data set is called in tables and paths.
        source: where the rows come from.
        path: for `data=files`; the source reads it, here it is only recorded.
        text: column of the text.
        label: column of the label.
        labels: classes in order, or raw value → class name; None: the values in the training rows, sorted.
        multi_label: the label column holds several labels, as a list or as text with `label_delimiter`.
        label_delimiter: separates the labels of one cell.
        unseen_labels: what to do with rows whose label has no training example (or is not in `labels`): `error` or
            `drop`.
        filters: column → allowed value(s); other rows are left out.
        clean: steps on the text (`attnprobe.data.text.CLEANING`).
        tokenizer: `spacy` (English rules) or `whitespace`.
        token_rules: rules on the tokens (`attnprobe.data.text.TOKEN_RULES`).
        min_df: a word of the vocabulary is in at least so many training texts (before the length limits, as in the
            paper's code).
        max_vocabulary: at most so many words.
        min_length: keep texts of *more* than so many tokens (strict, as in the paper's code).
        max_length: keep texts of *fewer* than so many tokens.
        drop_extremes: where a limit is None, take the split's own shortest or longest length for it. A quirk of
            the paper's code: the strict comparison loses the longest text(s) of every split.
        max_tokens: longer texts are cut to so many tokens, and counted.
        pool: put all splits together and divide anew.
        validation_share: where there is no validation split, this share of the training rows (after the test share
            is taken), the same of every class.
        test_share: where there is no test split, this share of all rows.
        split_seed: decides these divisions; apart from `seed`, so that all seeds see the same splits.
        class_weight: `none`, `balanced_positive`, `inverse_frequency` or one number per class.
        rationale: column that says which tokens are the reason for the label.
        rationale_kind: `mask` (one bool per token) or `spans` (list of [start, end) token positions).
        vectors: text file of word vectors, GloVe or fastText.
        missing_vectors: `zeros` or `normal`: rows of words that the file does not have.
        embedding_size: length of the word vectors where there is no file.
        seed: the run's seed: order of the training batches, random word vectors.
        batch_size: training examples per batch.
        eval_batch_size: examples per batch in validation and test.
        num_workers: processes that prepare batches.
    """

    def __init__(
        self,
        name: str,
        source: Source,
        *,
        path: str | Mapping[str, str] | None = None,
        text: str = "text",
        label: str = "label",
        labels: Sequence[Any] | Mapping[Any, Any] | None = None,
        multi_label: bool = False,
        label_delimiter: str = ";",
        unseen_labels: str = "error",
        filters: Mapping[str, Any] | None = None,
        clean: Sequence[str] = (),
        tokenizer: str = "spacy",
        token_rules: Sequence[str] = ("lower",),
        min_df: int = 1,
        max_vocabulary: int | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        drop_extremes: bool = False,
        max_tokens: int | None = 4000,
        pool: bool = False,
        validation_share: float = 0.15,
        test_share: float = 0.2,
        split_seed: int = 0,
        class_weight: str | Sequence[float] = "none",
        rationale: str | None = None,
        rationale_kind: str = "mask",
        vectors: str | None = None,
        missing_vectors: str = "zeros",
        embedding_size: int = 300,
        seed: int = 0,
        batch_size: int = 32,
        eval_batch_size: int = 64,
        num_workers: int = 0,
    ):
        super().__init__()
        choice("unseen_labels", unseen_labels, ("error", "drop"))
        choice("rationale_kind", rationale_kind, ("mask", "spans"))
        choice("missing_vectors", missing_vectors, ("zeros", "normal"))
        for setting, number in {"batch_size": batch_size, "eval_batch_size": eval_batch_size, "min_df": min_df}.items():
            if number < 1:
                raise UserError(f"data.{setting}={number}: expected at least 1")
        if max_tokens is not None and max_tokens < 1:
            raise UserError(f"data.max_tokens={max_tokens}: expected at least 1, or null for no limit")
        for setting, share in {"validation_share": validation_share, "test_share": test_share}.items():
            if not 0 < share < 1:
                raise UserError(f"data.{setting}={share}: expected a share between 0 and 1, such as 0.2")
        self.name, self.source, self.path = name, source, path
        self.text, self.label, self.label_names = text, label, labels
        self.task = Task.MULTI_LABEL if multi_label else Task.SINGLE_LABEL
        self.label_delimiter, self.unseen_labels = label_delimiter, unseen_labels
        self.filters = dict(filters or {})
        self.rules = TextRules(tuple(clean), tokenizer, tuple(token_rules))
        self.min_df, self.max_vocabulary = min_df, max_vocabulary
        self.min_length, self.max_length, self.drop_extremes = min_length, max_length, drop_extremes
        self.max_tokens, self.pool = max_tokens, pool
        self.validation_share, self.test_share, self.split_seed = validation_share, test_share, split_seed
        self.weighting = class_weight
        self.rationale_column, self.rationale_kind = rationale, rationale_kind
        self.vectors, self.missing_vectors, self.embedding_size = vectors, missing_vectors, embedding_size
        self.seed, self.batch_size, self.eval_batch_size = seed, batch_size, eval_batch_size
        self.num_workers = num_workers

        self.counts: dict[str, dict[str, Any]] = {}
        """Rows loaded, dropped for each reason, truncated and kept, per split; for the manifest."""
        self.splits: dict[str, TextSplit] = {}
        self.words: list[str] = []

    def setup(self, stage: str | None = None) -> None:  # noqa: ARG002  Lightning's signature
        """Load and encode all splits, once.

        Raises:
            UserError: the rows cannot be used as configured; the message says what to change.
        """
        if self.splits:
            return
        loaded = self.source.load()
        if self.pool:
            loaded = {"train": pooled(loaded, [self.text, self.label, self.rationale_column, *self.filters])}
        lexicon = Lexicon()
        examples = {split: self.read(split, loaded[split], lexicon) for split in SPLITS if split in loaded}
        words = list(lexicon)
        self.divide(examples)
        numbers, self.classes = self.label_numbers(examples)
        examples = {split: self.known_labels(split, examples[split], numbers) for split in SPLITS}

        training = examples["train"].words
        frequency = document_frequency(training.flat, training.offsets, len(words))
        self.vocabulary = build_vocabulary(words, frequency, self.min_df, self.max_vocabulary)
        vocabulary_id = np.array(self.vocabulary.encode(words), np.int32)

        splits = {}
        for split in SPLITS:
            kept = self.of_length(split, examples[split])
            labels = rows.targets(kept.labels, numbers, len(self.classes), self.task)
            splits[split] = TextSplit(kept.example_id, kept.words, vocabulary_id, labels, kept.rationale)
            self.count_kept(split, splits[split], int((kept.length > kept.words.lengths).sum()))
        counts = rows.class_counts(splits["train"].labels, len(self.classes))
        if self.task is Task.SINGLE_LABEL and (counts > 0).sum() < 2:
            raise UserError(
                f"after the length limits the training rows have one class only ({self.counts['train']['per class']}): "
                f"widen data.min_length={self.min_length} or data.max_length={self.max_length}"
            )
        self.class_weight = rows.class_weights(self.weighting, counts, len(splits["train"]), self.task)
        self.pipeline = TextPipeline(self.rules, self.vocabulary, self.classes, self.task, self.max_tokens)
        self.words, self.splits = words, splits

    def read(self, split: str, table: datasets.Dataset, lexicon: Lexicon) -> Examples:
        """Rows that pass the filters and have a text and a label, tokenised."""
        count = self.counts.setdefault(split, {"loaded": len(table), "dropped": {}})
        texts = rows.column(table, self.text, "data.text")
        raw = rows.column(table, self.label, "data.label")
        marked = None if self.rationale_column is None else rows.column(table, self.rationale_column, "data.rationale")
        labels = rows.label_lists(raw, multi_label=self.task is Task.MULTI_LABEL, delimiter=self.label_delimiter)
        passed = np.ones(len(table), bool)
        for name, allowed in self.filters.items():
            before = passed.sum()
            passed &= rows.passes(table, {name: allowed})
            count["dropped"][f"filter {name}"] = int(before - passed.sum())
            if not passed.any():
                raise UserError(
                    f"data.filters: no row of the {split} split is left after {name}={allowed}; the column has "
                    f"{some_values(rows.column(table, name, 'data.filters column'))}"
                )

        dropped: Counter[str] = Counter({"text is null": 0, "label is null": 0, "text is empty": 0})
        misaligned = 0
        example_id, words, length, kept, marks = [], [], [], [], []
        chosen = np.flatnonzero(passed).tolist()
        for row in progress(chosen, f"read {split}"):
            text, label = texts[row], labels[row]
            if text is None or label is None:
                dropped["text is null" if text is None else "label is null"] += 1
                continue
            if not isinstance(text, str | int | float):
                raise UserError(f"data.text={self.text}: expected text, row {row} of {split} has {str(text)[:60]}")
            tokens = self.rules.tokens(str(text))
            if not tokens:
                dropped["text is empty"] += 1
                continue
            mark = None if marked is None else self.rationale_mask(marked[row], len(tokens))
            misaligned += marked is not None and mark is None
            length.append(len(tokens))
            tokens = tokens[: self.max_tokens]
            example_id.append(row)
            words.append(np.array([lexicon[token] for token in tokens], np.int32))
            kept.append(label)
            marks.append(np.zeros(0, bool) if mark is None else mark[: self.max_tokens])
        count["dropped"] |= dropped
        if marked is not None:
            count["rationale does not fit"] = misaligned
        if not words:
            reasons = ", ".join(f"{reason}: {number}" for reason, number in dropped.items() if number)
            raise UserError(
                f"no row of the {split} split can be used ({reasons}): choose other columns than data.text={self.text} "
                f"and data.label={self.label}, or other cleaning steps than data.clean={list(self.rules.clean)}"
            )
        return Examples(
            np.array(example_id, np.int64),
            Ragged.of(words, np.int32),
            np.array(length, np.int64),
            kept,
            None if marked is None else Ragged.of(marks, np.bool_),
        )

    def rationale_mask(self, marked: Any, length: int) -> Bool[np.ndarray, " tokens"] | None:
        """One bool per token, or None where there is none or it does not fit the tokens."""
        if marked is None:
            return None
        if self.rationale_kind == "mask":
            return np.array(marked, bool) if len(marked) == length else None
        mask = np.zeros(length, bool)
        for start, end in marked:
            if not 0 <= start <= end <= length:  # empty spans occur in ERASER's files
                return None
            mask[start:end] = True
        return mask

    def divide(self, examples: dict[str, Examples]) -> None:
        """Draw the splits that the source does not have from the training rows."""
        for order, (split, share) in enumerate({"test": self.test_share, "validation": self.validation_share}.items()):
            if split in examples:
                continue
            training = examples["train"]
            generator = np.random.default_rng((self.split_seed, order))
            # a multi-label row has no one class to be stratified by
            keys = ["" if self.task is Task.MULTI_LABEL else label[0] for label in training.labels]
            drawn = rows.divide(np.unique(keys, return_inverse=True)[1], share, generator)
            if not drawn.any() or drawn.all():
                raise UserError(
                    f"{len(training)} rows are too few to draw a {split} split from (data.{split}_share={share}): give "
                    f"more rows, or files of their own: 'data.path={{train: …, validation: …, test: …}}'"
                )
            examples[split], examples["train"] = training.select(drawn), training.select(~drawn)
            self.counts[split] = {"drawn from train": int(drawn.sum()), "dropped": {}}
            self.counts["train"][f"given to {split}"] = int(drawn.sum())

    def label_numbers(self, examples: dict[str, Examples]) -> tuple[dict[str, int], list[str]]:
        """Raw label → class number for every label that may occur, and the classes' names."""
        numbers, classes = rows.class_map(self.label_names, examples["train"].labels)
        seen = rows.count_labels(examples["train"].labels)
        trained = {numbers[label] for label in seen if label in numbers}
        least = 1 if self.task is Task.MULTI_LABEL else 2
        if len(trained) < least:
            found = ", ".join(f"{label}: {number}" for label, number in seen.most_common(8)) or "no label at all"
            expected = "" if self.label_names is None else f" among data.labels ({', '.join(classes)})"
            raise UserError(
                f"the training rows have fewer than {least} classes{expected} in the column data.label={self.label} "
                f"({found}): choose another column, or other data.filters or data.labels"
            )
        if empty := [name for number, name in enumerate(classes) if number not in trained]:
            raise UserError(
                f"data.labels: no training row has the class {', '.join(empty)}; the column {self.label} has "
                f"{', '.join(seen)}. Leave the class out of data.labels"
            )
        return numbers, classes

    def known_labels(self, split: str, examples: Examples, numbers: Mapping[str, int]) -> Examples:
        """The rows all of whose labels are classes."""
        known = np.array([all(label in numbers for label in labels) for labels in examples.labels], bool)
        if not known.all():
            unseen = rows.count_labels(examples.labels)
            names = ", ".join(f"{label} ({count} ×)" for label, count in unseen.most_common() if label not in numbers)
            where = "is not in data.labels" if self.label_names is not None else "was not seen in training"
            if self.unseen_labels == "error":
                raise UserError(
                    f"a label of the {split} split {where}: {names[:300]}. Leave such rows out with "
                    f"data.unseen_labels=drop, or map them to a class in data.labels"
                )
            if not known.any():
                raise UserError(f"every label of the {split} split {where}: {names[:300]}. Check data.label")
        self.counts[split]["dropped"]["label is unseen"] = int((~known).sum())
        return examples if known.all() else examples.select(known)

    def of_length(self, split: str, examples: Examples) -> Examples:
        """The rows within the length limits, which are strict."""
        length, extremes = examples.length, self.drop_extremes and len(examples) > 0
        least = length.min() if extremes and self.min_length is None else self.min_length
        most = length.max() if extremes and self.max_length is None else self.max_length
        long_enough = np.ones(len(length), bool) if least is None else length > least
        short_enough = np.ones(len(length), bool) if most is None else length < most
        dropped = self.counts[split]["dropped"]
        dropped["too short"], dropped["too long"] = int((~long_enough).sum()), int((~short_enough).sum())
        keep = long_enough & short_enough
        if not keep.any():
            raise UserError(
                f"no row of the {split} split has more than data.min_length={self.min_length} and fewer than "
                f"data.max_length={self.max_length} tokens; the texts have {length.min()} to {length.max()}"
            )
        return examples if keep.all() else examples.select(keep)

    def count_kept(self, split: str, kept: TextSplit, truncated: int) -> None:
        """Record what a split holds in the end."""
        per_class = rows.class_counts(kept.labels, len(self.classes)).tolist()
        unknown = int((kept.vocabulary_id[kept.words.flat] == 1).sum())
        self.counts[split] |= {
            "truncated": truncated,
            "kept": len(kept),
            "per class": dict(zip(self.classes, per_class, strict=True)),
            "tokens": len(kept.words.flat),
            "tokens out of vocabulary": unknown,
        }

    @property
    def sizes(self) -> dict[str, int]:
        """Examples per split."""
        return {split: len(part) for split, part in self.splits.items()}

    @property
    def fingerprint(self) -> str:
        """Ten hexadecimal digits that stand for all examples and their order."""
        digest = hashlib.sha256("\n".join([*self.vocabulary.words, *self.classes]).encode())
        for split in SPLITS:
            part = self.splits[split]
            ids = part.vocabulary_id[part.words.flat]
            for array in (part.example_id, part.words.offsets, ids, part.labels):
                digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:10]

    def tokens(self, split: str, example_id: int) -> list[str]:
        """The words at the content positions of one example, out-of-vocabulary words as they are in the text."""
        part = self.splits[split]
        return [self.words[number] for number in part.words[part.row_of(example_id)].tolist()]

    def rationale(self, split: str, example_id: int) -> list[bool] | None:
        """Which content positions are the reason for the label; None where the data do not say."""
        part = self.splits[split]
        if part.rationale is None:
            return None
        return part.rationale[part.row_of(example_id)].tolist() or None

    def batch_of(self, texts: Sequence[str]) -> Batch:
        """One batch of new texts, in this order; see `TextPipeline.batch_of`."""
        return self.pipeline.batch_of(texts)

    def embeddings(self) -> Float[Tensor, "vocabulary embed"]:
        """The word vectors to start from; row 0 (padding) is zero. Puts the share of the vocabulary that the file
        has into `counts`."""
        generator = torch.Generator().manual_seed(self.seed)
        if self.vectors is None:
            return random_vectors(len(self.vocabulary), self.embedding_size, generator)
        matrix, found = load_vectors(self.vectors, self.vocabulary, missing=self.missing_vectors, generator=generator)
        self.counts["vectors"] = {"vocabulary": len(self.vocabulary), "found": found}
        return torch.from_numpy(matrix)

    def train_dataloader(self) -> DataLoader[Batch]:
        """Batches of similar length in random order; the order depends on (seed, epoch)."""
        part = self.splits["train"]
        return self.loader(part, BucketSampler(part.words.lengths, self.batch_size, self.seed, *self.place))

    def val_dataloader(self) -> DataLoader[Batch]:
        """All validation examples, shortest first."""
        return self.evaluation("validation")

    def test_dataloader(self) -> DataLoader[Batch]:
        """All test examples, shortest first."""
        return self.evaluation("test")

    def evaluation(self, split: str) -> DataLoader[Batch]:
        """All examples of a split, shortest first, each exactly once over all processes."""
        part = self.splits[split]
        return self.loader(part, SortedSampler(part.words.lengths, self.eval_batch_size, *self.place))

    @property
    def place(self) -> tuple[int, int]:
        """This process's rank, and how many there are. The samplers heed both, hence the trainer has to be
        constructed with `use_distributed_sampler=False`."""
        trainer = self.trainer
        return (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)

    def loader(self, part: TextSplit, sampler: Sampler[list[int]]) -> DataLoader[Batch]:
        """The sampler hands out lists of rows, and `part[rows]` is a batch: hence `batch_size=None`."""
        return DataLoader(
            part,
            sampler=sampler,
            batch_size=None,
            num_workers=self.num_workers,
            persistent_workers=self.num_workers > 0,
            pin_memory=torch.cuda.is_available(),
            generator=torch.Generator().manual_seed(self.seed),  # else each pass would advance the global generator
        )


def choice(setting: str, value: str, allowed: Sequence[str]) -> None:
    """Check a setting that has a few legal values."""
    if value not in allowed:
        raise UserError(f"data.{setting}={value}: expected {' or '.join(allowed)}")


def pooled(loaded: Splits, columns: Sequence[str | None]) -> datasets.Dataset:
    """All splits one after the other; of the columns only these, as others may differ in type between the splits."""
    parts = [loaded[split] for split in SPLITS if split in loaded]
    return datasets.concatenate_datasets(
        [part.select_columns([name for name in part.column_names if name in columns]) for part in parts]
    )


def some_values(values: Sequence[Any]) -> str:
    """The most frequent values of a column, in words."""
    common = Counter(rows.canonical(value) for value in values).most_common(8)
    return ", ".join(f"{value} ({number} ×)" for value, number in common)


def progress(items: list[int], title: str) -> "tqdm[int]":
    """A progress bar that knows its total; a log file gets a line every half minute, and short work none."""
    quiet = os.environ.get("TQDM_DISABLE") == "1"
    interval = 0.1 if sys.stderr.isatty() else 30.0
    return tqdm(items, desc=title, unit=" texts", leave=False, delay=1.0, mininterval=interval, disable=quiet)
