"""The settings of a data set: flat (`data.max_tokens=50`), and checked also against each other."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Gt, Le

from attnprobe.core.errors import UserError
from attnprobe.core.settings import (
    Count,
    Number,
    Positive,
    Seed,
    Share,
    Size,
    Whole,
    construct,
)
from attnprobe.data.columns import PLACED, Columns
from attnprobe.data.dialect import FileFormat
from attnprobe.data.local_files import SPLITS
from attnprobe.data.text import TextRules


@dataclass(frozen=True)
class DataSettings(Columns, TextRules, FileFormat):
    """All settings of a data set but its source.

    Attributes:
        labels: classes in order, or raw value → class name; None: the values in the training rows,
            sorted.
        unseen_labels: what to do with rows whose label has no training example (or is not in
            `labels`): `error` or `drop`.
        classes_from: what the classes are: `labels`, the labels of the training rows (or those in
            `labels`); `candidates`, all that a training row may be answered with; `vocabulary`,
            every word.
        class_weight: `none`, `balanced_positive`, `inverse_frequency` or one number per class.
        plant: None, or the kind of shortcut that decides every label instead
            (`attnprobe.data.plant.KINDS`): the label becomes a class at random, words that say
            which are put into the text, and these are the rationale.
        min_length: keep texts of *more* than that many tokens (strict, as in the paper's code).
        max_length: keep texts of *fewer* than that many tokens.
        drop_extremes: where a limit is None, take the split's own shortest or longest length for
            it. A quirk of the paper's code: the strict comparison loses the longest text(s) of
            every split.
        max_tokens: longer texts are cut to that many tokens, and counted.
        verbatim: keep each text as it stands in its cell, character by character, for a model with
            a tokenizer of its own.
        most: split → at most that many of its rows, drawn at random (by `split_seed`), and the
            others counted; splits that are not named keep all. Where a row is a text and one of
            its labels, whole texts are drawn. The vocabulary comes from the training rows that are
            left.
        max_sentences: keep texts of at most that many sentences.
        max_sentence_tokens: keep texts whose longest sentence has at most that many tokens.
        sentence_limits_on: the splits that these two limits hold for. Other splits keep all texts
            (Serrano & Smith filter the training and development documents alone).
        pool: put all splits together and divide them again.
        validation_share: where there is no validation split, this share of the training rows (after
            the test share is taken), the same of every class.
        test_share: where there is no test split, this share of all rows; 1: nothing is trained
            (`training=none`), so that every row is a test row, and no split is drawn from another.
        split_seed: decides these divisions; apart from the run's seed, so that all seeds see the
            same splits.
        min_df: a word of the vocabulary is in at least that many training texts (before the length
            limits, as in the paper's code).
        max_vocabulary: at most that many words.
        vectors: text file of word vectors, GloVe or fastText.
        missing_vectors: `zeros` or `normal`: rows of words that the file does not have.
        embedding_size: length of the word vectors where there is no file.
        batch_size: training examples per batch.
        eval_batch_size: examples per batch in validation and test.
        num_workers: processes that prepare batches.
    """

    settings_place: ClassVar[str] = "data"

    labels: Sequence[Any] | Mapping[Any, Any] | None = None
    unseen_labels: Literal["error", "drop"] = "error"
    classes_from: Literal["labels", "candidates", "vocabulary"] = "labels"
    class_weight: Literal["none", "balanced_positive", "inverse_frequency"] | Sequence[Positive] = (
        "none"
    )
    plant: Literal["token", "ordered_pair", "token_in_context"] | None = None
    min_length: Whole | None = None
    max_length: Count | None = None
    drop_extremes: bool = False
    max_tokens: Count | None = 4000
    verbatim: bool = False
    most: Mapping[Literal[SPLITS], Count] | None = None
    max_sentences: Count | None = None
    max_sentence_tokens: Count | None = None
    sentence_limits_on: Sequence[Literal[SPLITS]] = ("train", "validation")
    pool: bool = False
    validation_share: Share = 0.15
    test_share: Annotated[Number, Gt(0), Le(1)] = 0.2
    split_seed: Seed = 0
    min_df: Count = 1
    max_vocabulary: Count | None = None
    vectors: str | None = None
    missing_vectors: Literal["zeros", "normal"] = "zeros"
    embedding_size: Size = 300
    batch_size: Count = 32
    eval_batch_size: Count = 64
    num_workers: Whole = 0

    def __post_init__(self) -> None:
        Columns.__post_init__(self)
        TextRules.__post_init__(self)
        self._check_sentences()
        self._check_characters()
        self._check_classes()
        self._check_plant()

    def _check_sentences(self) -> None:
        """Refuse settings that need sentences where there are none."""
        if self.sentences is not None:
            return
        if self.rationale_kind == "sentences":
            raise UserError(
                "data.rationale_kind=sentences needs sentences: set data.sentences=rule, spacy or "
                "column"
            )
        for setting in ("max_sentences", "max_sentence_tokens"):
            limit = getattr(self, setting)
            if limit is not None:
                raise UserError(
                    f"data.{setting}={limit} needs sentences: set data.sentences=spacy, or "
                    f"data.{setting}=null"
                )

    def _check_characters(self) -> None:
        """Refuse changes of a text whose characters are counted as they are in the cell."""
        if self.rationale_kind != "characters":
            return
        unplaced = [rule for rule in self.token_rules if rule not in PLACED]
        for setting, steps in (("clean", self.clean), ("token_rules", unplaced)):
            if steps:
                raise UserError(
                    f"data.{setting}: {steps[0]} changes the text, so that "
                    f"data.rationale_kind=characters can no longer be counted in it: leave it out "
                    f"(token_rules={list(PLACED)} may be there), or mark tokens with "
                    f"data.rationale_kind=mask"
                )
        if self.sentences == "column":
            raise UserError(
                "data.sentences=column has no characters to count: set data.rationale_kind=mask or "
                "spans"
            )

    def _check_classes(self) -> None:
        """Refuse classes from candidates or words where labels are to be the classes, too."""
        if self.classes_from == "candidates" and not self.restricted:
            raise UserError(
                "data.classes_from=candidates needs data.candidates or data.candidates_pattern"
            )
        if self.classes_from != "labels" and (self.labels is not None or self.multi_label):
            raise UserError(
                f"data.classes_from={self.classes_from} leaves no room for data.labels and "
                f"data.multi_label: set data.labels=null and data.multi_label=false, or "
                f"data.classes_from=labels"
            )

    def _check_plant(self) -> None:
        """Refuse a shortcut where rows may have several labels, or questions."""
        if self.plant is None:
            return
        for setting in (
            "multi_label",
            "rationale",
            "annotators",
            "question",
            "candidates",
            "candidates_pattern",
        ):
            value = getattr(self, setting)
            if value:
                raise UserError(
                    f"data.plant={self.plant} replaces labels and their reasons: it does not go "
                    f"with data.{setting}={value}"
                )

    @property
    def columns(self) -> Columns:
        """The settings that say which column holds what."""
        return self

    @cached_property
    def rules(self) -> TextRules:
        """How texts become tokens."""
        values = {rule.name: getattr(self, rule.name) for rule in fields(TextRules)}
        return construct(TextRules, values)

    @property
    def trains(self) -> bool:
        """Whether there are rows to train on."""
        return self.test_share < 1

    def check_splits(self, splits: Collection[str]) -> None:
        """Refuse a source that lacks a split.

        Raises:
            UserError: there are no training rows; where nothing is trained, no test rows either.
        """
        if "train" not in splits and (self.trains or "test" not in splits):
            raise UserError(
                f"there is no training file among the splits {', '.join(splits)}: expected "
                f"'data.path={{train: FILE, …}}', a file, or a folder with train.*; a model that "
                f"is trained already (training=none) needs a test file alone"
            )
