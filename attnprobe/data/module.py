"""`TextDataModule`: from a source of rows to batches. A data set is a YAML of this class's arguments."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import torch
from jaxtyping import Float
from lightning import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from attnprobe.batch import Batch, Task
from attnprobe.data import rows
from attnprobe.data.batching import BucketSampler, Ragged, SortedSampler, TextSplit
from attnprobe.data.examples import Examples, Lexicon, Reader
from attnprobe.data.files import SPLITS, find_path
from attnprobe.data.fingerprint import data_fingerprint
from attnprobe.data.sources import Source, Splits
from attnprobe.data.teaching import Teacher, check_lessons
from attnprobe.data.text import TextPipeline, TextRules
from attnprobe.data.vectors import load_vectors, random_vectors
from attnprobe.data.vocabulary import SPECIAL, UNKNOWN, Vocabulary, build_vocabulary, document_frequency
from attnprobe.errors import UserError


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
        label_delimiter: separates the labels (or the candidates) of one cell.
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
        most: split → at most so many of its rows, drawn at random (by `split_seed`), and the others counted; splits that are
            not named keep all. The vocabulary comes from the training rows that are left.
        pool: put all splits together and divide anew.
        validation_share: where there is no validation split, this share of the training rows (after the test share
            is taken), the same of every class.
        test_share: where there is no test split, this share of all rows.
        split_seed: decides these divisions; apart from `seed`, so that all seeds see the same splits.
        class_weight: `none`, `balanced_positive`, `inverse_frequency` or one number per class.
        rationale: column that says which tokens are the reason for the label.
        rationale_kind: `mask` (one bool per token), `spans` (list of [start, end) token positions) or `sentences`
            (list of the numbers of sentences, from 0).
        question: column of the question that is asked of the text (or the hypothesis); None: nothing is asked. It is
            cleaned and tokenised as the text is, and shares its vocabulary.
        candidates: column of the classes that a row may be answered with, as a list or as text with
            `label_delimiter`; None, or a null cell: all classes.
        candidates_pattern: instead of a column: the words of the text that match this regular expression in full.
        classes_from: what the classes are: `labels`, the labels of the training rows (or those in `labels`);
            `candidates`, all that a training row may be answered with; `vocabulary`, every word.
        sentences: fill `Batch.sentence`: `spacy` (rules on the raw text), `rule` (full stops among the tokens, for text
            that is tokenised already), `column` (each text is a list of sentences) or None.
        max_sentences: keep texts of at most so many sentences.
        max_sentence_tokens: keep texts whose longest sentence has at most so many tokens.
        sentence_limits_on: the splits that these two limits hold for. Other splits keep all texts (Serrano & Smith
            filter the training and development documents alone).
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
        most: Mapping[str, int] | None = None,
        pool: bool = False,
        validation_share: float = 0.15,
        test_share: float = 0.2,
        split_seed: int = 0,
        class_weight: str | Sequence[float] = "none",
        rationale: str | None = None,
        rationale_kind: str = "mask",
        question: str | None = None,
        candidates: str | None = None,
        candidates_pattern: str | None = None,
        classes_from: str = "labels",
        sentences: str | None = None,
        max_sentences: int | None = None,
        max_sentence_tokens: int | None = None,
        sentence_limits_on: Sequence[str] = ("train", "validation"),
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
        choice("rationale_kind", rationale_kind, ("mask", "spans", "sentences"))
        choice("classes_from", classes_from, ("labels", "candidates", "vocabulary"))
        choice("missing_vectors", missing_vectors, ("zeros", "normal"))
        for setting, number in {"batch_size": batch_size, "eval_batch_size": eval_batch_size, "min_df": min_df}.items():
            if number < 1:
                raise UserError(f"data.{setting}={number}: expected at least 1")
        if max_tokens is not None and max_tokens < 1:
            raise UserError(f"data.max_tokens={max_tokens}: expected at least 1, or null for no limit")
        for setting, share in {"validation_share": validation_share, "test_share": test_share}.items():
            if not 0 < share < 1:
                raise UserError(f"data.{setting}={share}: expected a share between 0 and 1, such as 0.2")
        if wrong := {split: count for split, count in (most or {}).items() if split not in SPLITS or count < 1}:
            raise UserError(f"data.most={wrong}: expected some of {', '.join(SPLITS)}, each with at least 1")
        check_sentences(sentences, rationale_kind, max_sentences, max_sentence_tokens, sentence_limits_on)
        check_answers(classes_from, candidates, candidates_pattern, labels, multi_label=multi_label)
        self.name, self.source, self.path = name, source, path
        self.label, self.label_names = label, labels
        self.task = Task.MULTI_LABEL if multi_label else Task.SINGLE_LABEL
        self.unseen_labels = unseen_labels
        self.rules = TextRules(tuple(clean), tokenizer, tuple(token_rules), sentences)
        self.reader = Reader(
            text=text,
            label=label,
            rules=self.rules,
            question=question,
            candidates=candidates,
            candidates_pattern=candidates_pattern,
            rationale=rationale,
            rationale_kind=rationale_kind,
            filters=dict(filters or {}),
            multi_label=multi_label,
            label_delimiter=label_delimiter,
            max_tokens=max_tokens,
        )
        self.classes_from = classes_from
        self.max_sentences, self.max_sentence_tokens = max_sentences, max_sentence_tokens
        self.sentence_limits_on = tuple(sentence_limits_on)
        self.min_df, self.max_vocabulary = min_df, max_vocabulary
        self.min_length, self.max_length, self.drop_extremes = min_length, max_length, drop_extremes
        self.max_tokens, self.pool, self.most = max_tokens, pool, dict(most or {})
        self.validation_share, self.test_share, self.split_seed = validation_share, test_share, split_seed
        self.weighting = class_weight
        self.vectors, self.missing_vectors, self.embedding_size = vectors, missing_vectors, embedding_size
        self.seed, self.batch_size, self.eval_batch_size = seed, batch_size, eval_batch_size
        self.num_workers = num_workers

        self.counts: dict[str, dict[str, Any]] = {}
        """Rows loaded, dropped for each reason, truncated and kept, per split; for the manifest."""
        self.splits: dict[str, TextSplit] = {}
        self.words: list[str] = []

    def setup(self, stage: str | None = None) -> None:
        """Load and encode all splits, once.

        Raises:
            UserError: the rows cannot be used as configured; the message says what to change.
        """
        if self.splits:
            return
        loaded = self.source.load()
        if self.pool:
            loaded = {"train": pooled(loaded, self.reader.columns)}
        lexicon = Lexicon()
        examples = {}
        for split in (split for split in SPLITS if split in loaded):
            count = self.counts[split] = {"loaded": len(loaded[split]), "dropped": {}}
            examples[split] = self.reader.read(split, loaded[split], lexicon, count)
        words = list(lexicon)
        self.divide(examples)
        numbers, self.classes = self.class_numbers(examples, words)
        examples = {split: self.known_labels(split, examples[split], numbers) for split in SPLITS}
        examples = {split: self.answerable(split, examples[split], numbers) for split in SPLITS}
        examples = {split: self.drawn(split, examples[split]) for split in SPLITS}
        self.vocabulary = self.vocabulary_of(examples["train"], words)
        vocabulary_id = np.array(self.vocabulary.encode(words), np.int32)

        splits = {}
        for split in SPLITS:
            kept = self.of_sentences(split, self.of_length(split, examples[split]))
            splits[split] = TextSplit(
                example_id=kept.example_id,
                words=kept.words,
                vocabulary_id=vocabulary_id,
                labels=rows.targets(kept.labels, numbers, len(self.classes), self.task),
                rationale=kept.rationale,
                sentence=kept.sentence,
                question=kept.question,
                candidates=answers(kept.candidates, numbers, len(self.classes)),
                classes=len(self.classes),
            )
            self.count_kept(split, splits[split], int((kept.length > kept.words.lengths).sum()))
        counts = rows.class_counts(splits["train"].labels, len(self.classes))
        if self.task is Task.SINGLE_LABEL and (counts > 0).sum() < 2:
            raise UserError(
                f"after the length limits the training rows have one class only ({self.counts['train']['per class']}): "
                f"widen data.min_length={self.min_length} or data.max_length={self.max_length}"
            )
        self.class_weight = rows.class_weights(self.weighting, counts, len(splits["train"]), self.task)
        self.pipeline = TextPipeline(
            rules=self.rules,
            vocabulary=self.vocabulary,
            classes=self.classes,
            task=self.task,
            max_tokens=self.max_tokens,
            question=self.reader.question is not None,
            candidates_pattern=self.reader.candidates_pattern,
        )
        self.words, self.splits = words, splits

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

    def vocabulary_of(self, training: Examples, words: Sequence[str]) -> Vocabulary:
        """The words that are frequent enough in the training texts; a question counts as a text of its own."""
        frequency = document_frequency(training.words.flat, training.words.offsets, len(words))
        if training.question is not None:
            frequency += document_frequency(training.question.flat, training.question.offsets, len(words))
        return build_vocabulary(words, frequency, self.min_df, self.max_vocabulary)

    def class_numbers(self, examples: dict[str, Examples], words: Sequence[str]) -> tuple[dict[str, int], list[str]]:
        """Raw answer → class number, and the classes' names, wherever the classes come from."""
        if self.classes_from == "labels":
            return self.label_numbers(examples)
        training = examples["train"]
        if self.classes_from == "candidates":
            candidates = [names for names in training.candidates or [] if names is not None]
            return rows.class_map(None, [*candidates, *training.labels])
        classes = self.vocabulary_of(training, words).words[len(SPECIAL) :]
        place = {word: number for number, word in enumerate(classes)}
        given = [names for part in examples.values() for names in (*part.labels, *(part.candidates or [])) if names]
        numbers = {}
        for raw in {name for names in given for name in names}:
            tokens = self.rules.words(raw)  # an answer is read as the text is: "Kitchen" is the word "kitchen"
            if len(tokens) == 1 and tokens[0] in place:
                numbers[raw] = place[tokens[0]]
        return numbers, classes

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
            where = {"labels": "was not seen in training", "vocabulary": "is no word of the vocabulary"}.get(
                self.classes_from, "was neither a label nor a candidate in training"
            )
            where = "is not in data.labels" if self.label_names is not None else where
            if self.unseen_labels == "error":
                raise UserError(
                    f"a label of the {split} split {where}: {names[:300]}. Leave such rows out with "
                    f"data.unseen_labels=drop, or map them to a class in data.labels"
                )
            if not known.any():
                raise UserError(f"every label of the {split} split {where}: {names[:300]}. Check data.label")
        self.counts[split]["dropped"]["label is unseen"] = int((~known).sum())
        return examples if known.all() else examples.select(known)

    def answerable(self, split: str, examples: Examples, numbers: Mapping[str, int]) -> Examples:
        """The rows whose label is among their candidates."""
        if examples.candidates is None:
            return examples
        allowed = [None if names is None else {numbers.get(name) for name in names} for names in examples.candidates]
        answers = [numbers[label[0]] for label in examples.labels]
        among = np.array([one is None or answer in one for answer, one in zip(answers, allowed, strict=True)], bool)
        if not among.all():
            row = int(np.flatnonzero(~among)[0])
            message = (
                f"in {int((~among).sum())} of {len(examples)} rows of the {split} split the answer is not among the "
                f"candidates, first in row {examples.example_id[row]}: {examples.labels[row][0]!r} is none of "
                f"{', '.join(examples.candidates[row] or ['(no candidate)'])[:200]}"
            )
            if self.unseen_labels == "error":
                raise UserError(f"{message}. Leave such rows out with data.unseen_labels=drop")
            if not among.any():
                raise UserError(f"{message}. Check data.candidates and data.candidates_pattern")
        count = self.counts[split]
        count["dropped"]["answer is no candidate"] = int((~among).sum())
        sizes = [len(one - {None}) for one, kept in zip(allowed, among, strict=True) if one is not None and kept]
        count["candidates per row"] = {"min": min(sizes, default=0), "max": max(sizes, default=0)}
        count["any class may answer"] = sum(one is None for one in allowed)
        return examples if among.all() else examples.select(among)

    def drawn(self, split: str, examples: Examples) -> Examples:
        """So many of the rows as `most` allows, in their order."""
        most = self.most.get(split)
        if most is None or len(examples) <= most:
            return examples
        generator = np.random.default_rng((self.split_seed, 2 + SPLITS.index(split)))
        kept = np.zeros(len(examples), bool)
        kept[generator.choice(len(examples), most, replace=False)] = True
        self.counts[split]["dropped"]["over data.most"] = int((~kept).sum())
        return examples.select(kept)

    def of_sentences(self, split: str, examples: Examples) -> Examples:
        """The rows within the limits on sentences, in the splits that they hold for."""
        if examples.sentences is None or examples.longest_sentence is None:
            return examples
        here, every = split in self.sentence_limits_on, np.ones(len(examples), bool)
        few = examples.sentences <= self.max_sentences if here and self.max_sentences else every
        short = examples.longest_sentence <= self.max_sentence_tokens if here and self.max_sentence_tokens else every
        dropped = self.counts[split]["dropped"]
        dropped["too many sentences"], dropped["sentence too long"] = int((~few).sum()), int((few & ~short).sum())
        keep = few & short
        if not keep.any():
            raise UserError(
                f"no row of the {split} split has at most data.max_sentences={self.max_sentences} sentences of at most "
                f"data.max_sentence_tokens={self.max_sentence_tokens} tokens; the texts have at least "
                f"{examples.sentences.min()}, and the longest has at least {examples.longest_sentence.min()} tokens"
            )
        kept = examples.sentences[keep]
        self.counts[split]["sentences per text"] = {"min": int(kept.min()), "max": int(kept.max())}
        return examples if keep.all() else examples.select(keep)

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
        unknown = int((kept.vocabulary_id[kept.words.flat] == UNKNOWN).sum())
        self.counts[split] |= {
            "truncated": truncated,
            "kept": len(kept),
            "per class": dict(zip(self.classes, per_class, strict=True)),
            "tokens": len(kept.words.flat),
            "tokens out of vocabulary": unknown,
        }
        if kept.question is not None:
            asked = int((kept.vocabulary_id[kept.question.flat] == UNKNOWN).sum())
            self.counts[split]["question tokens out of vocabulary"] = asked

    def follow(self, teacher: Teacher) -> None:
        """Put what a teacher says about the examples into every batch.

        Raises:
            UserError: the teacher saw other classes, splits or words.
        """
        for split, part in self.splits.items():
            lessons = teacher.lessons[split]
            texts = [self.tokens_at(split, row) for row in range(len(part))]
            check_lessons(lessons, split, str(teacher.directory), self.classes, part.example_id, texts)
            self.splits[split] = replace(part, lessons=lessons)

    @property
    def sizes(self) -> dict[str, int]:
        """Examples per split."""
        return {split: len(part) for split, part in self.splits.items()}

    @property
    def fingerprint(self) -> str:
        """Ten hexadecimal digits that stand for all that is read of the examples, and for their order."""
        return data_fingerprint(self.splits, self.words, [*self.vocabulary.words, *self.classes])

    def input_files(self) -> dict[str, Path]:
        """The local files that all this is read from, by the setting that names them; needs no `setup`.

        Raises:
            UserError: a file is not there.
        """
        files = {f"data.path ({split})": path for split, path in self.source.files().items()}
        return files if self.vectors is None else files | {"data.vectors": find_path(self.vectors)}

    def tokens(self, split: str, example_id: int) -> list[str]:
        """The words at the content positions of one example, out-of-vocabulary words as they are in the text."""
        return self.tokens_at(split, self.splits[split].row_of(example_id))

    def tokens_at(self, split: str, row: int) -> list[str]:
        """As `tokens`, of the example stored at this row."""
        return [self.words[number] for number in self.splits[split].words[row].tolist()]

    def question(self, split: str, example_id: int) -> list[str] | None:
        """The words of one example's question; None where nothing is asked."""
        part = self.splits[split]
        if part.question is None:
            return None
        return [self.words[number] for number in part.question[part.row_of(example_id)].tolist()]

    def candidates(self, split: str, example_id: int) -> list[str] | None:
        """The classes that one example may be answered with; None where the data do not restrict them."""
        part = self.splits[split]
        if part.candidates is None:
            return None
        return [self.classes[number] for number in part.candidates[part.row_of(example_id)].tolist()]

    def rationale(self, split: str, example_id: int) -> list[bool] | None:
        """Which content positions are the reason for the label; None where the data do not say."""
        part = self.splits[split]
        if part.rationale is None:
            return None
        return part.rationale[part.row_of(example_id)].tolist() or None

    def batch_of(
        self,
        texts: Sequence[str | Sequence[str]],
        questions: Sequence[str] | None = None,
        candidates: Sequence[Sequence[str]] | None = None,
    ) -> Batch:
        """One batch of new texts, in this order; see `TextPipeline.batch_of`."""
        return self.pipeline.batch_of(texts, questions, candidates)

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
        """All validation examples, shortest first, for every process of a training on several devices: its metrics are
        then those of one device. (What the processes gather has every example as often as any other, which changes no
        mean and no curve; and a share of a short split could be empty.)"""
        part = self.splits["validation"]
        return self.loader(part, SortedSampler(part.words.lengths, self.eval_batch_size))

    def test_dataloader(self) -> DataLoader[Batch]:
        """All test examples, shortest first."""
        return self.evaluation("test")

    def predict_dataloader(self) -> list[DataLoader[Batch]]:
        """All examples of every split, in the order of `SPLITS`."""
        return [self.evaluation(split) for split in SPLITS]

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


def check_sentences(
    sentences: str | None,
    rationale_kind: str,
    max_sentences: int | None,
    max_sentence_tokens: int | None,
    limits_on: Sequence[str],
) -> None:
    """What needs sentences must have them."""
    if rationale_kind == "sentences" and sentences is None:
        raise UserError("data.rationale_kind=sentences needs sentences: set data.sentences=rule, spacy or column")
    for setting, limit in {"max_sentences": max_sentences, "max_sentence_tokens": max_sentence_tokens}.items():
        if limit is None:
            continue
        if limit < 1:
            raise UserError(f"data.{setting}={limit}: expected at least 1, or null for no limit")
        if sentences is None:
            raise UserError(f"data.{setting}={limit} needs sentences: set data.sentences=spacy, or data.{setting}=null")
    if unknown := sorted(set(limits_on) - set(SPLITS)):
        raise UserError(f"data.sentence_limits_on names {', '.join(unknown)}: expected some of {', '.join(SPLITS)}")


def check_answers(
    classes_from: str, candidates: str | None, pattern: str | None, labels: object, *, multi_label: bool
) -> None:
    """The settings of what a question may be answered with must go together."""
    if candidates is not None and pattern is not None:
        raise UserError(
            f"data.candidates={candidates} and data.candidates_pattern={pattern} exclude each other: set one to null"
        )
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UserError(f"data.candidates_pattern={pattern} is no regular expression: {error}") from None
    restricted = candidates is not None or pattern is not None
    if classes_from == "candidates" and not restricted:
        raise UserError("data.classes_from=candidates needs data.candidates or data.candidates_pattern")
    if classes_from != "labels" and (labels is not None or multi_label):
        raise UserError(
            f"data.classes_from={classes_from} leaves no room for data.labels and data.multi_label: set "
            f"data.labels=null and data.multi_label=false, or data.classes_from=labels"
        )
    if restricted and multi_label:
        raise UserError("candidates are for one answer per row: set data.multi_label=false or data.candidates=null")


def answers(candidates: list[list[str] | None] | None, numbers: Mapping[str, int], classes: int) -> Ragged | None:
    """The class numbers of every row's candidates; those that are no class cannot be answered and are left out."""
    if candidates is None:
        return None
    every = range(classes)
    return Ragged.of(
        [
            np.array(every if names is None else sorted({numbers[name] for name in names if name in numbers}), np.int32)
            for names in candidates
        ],
        np.int32,
    )


def pooled(loaded: Splits, columns: Sequence[str]) -> datasets.Dataset:
    """All splits one after the other; of the columns only these, as others may differ in type between the splits."""
    parts = [loaded[split] for split in SPLITS if split in loaded]
    return datasets.concatenate_datasets(
        [part.select_columns([name for name in part.column_names if name in columns]) for part in parts]
    )
