"""What `conf/data/*.yaml` may say, in a few frozen groups, each of which checks itself.

The public keys are flat (`data.max_tokens=50`); `DataSettings.of` sorts them into these groups.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from difflib import get_close_matches
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, ClassVar, Literal

from annotated_types import Gt, Le

from attnprobe.core.errors import UserError
from attnprobe.core.settings import Checked, Count, Number, Positive, Seed, Share, Size, Whole
from attnprobe.data.columns import PLACED, Columns
from attnprobe.data.local_files import SPLITS, Reading
from attnprobe.data.text import TextRules


@dataclass(frozen=True)
class Labels(metaclass=Checked):
    """What the classes are.

    Attributes:
        labels: classes in order, or raw value → class name; None: the values in the training rows, sorted.
        unseen_labels: what to do with rows whose label has no training example (or is not in `labels`): `error` or
            `drop`.
        classes_from: what the classes are: `labels`, the labels of the training rows (or those in `labels`);
            `candidates`, all that a training row may be answered with; `vocabulary`, every word.
        class_weight: `none`, `balanced_positive`, `inverse_frequency` or one number per class.
        plant: None, or the kind of shortcut that decides every label instead (`attnprobe.data.prepare.KINDS`): the label
            becomes a class at random, words that say which are put into the text, and these are the rationale.
    """

    settings_place: ClassVar[str] = "data"

    labels: Sequence[Any] | Mapping[Any, Any] | None = None
    unseen_labels: Literal["error", "drop"] = "error"
    classes_from: Literal["labels", "candidates", "vocabulary"] = "labels"
    class_weight: Literal["none", "balanced_positive", "inverse_frequency"] | Sequence[Positive] = "none"
    plant: Literal["token", "ordered_pair", "token_in_context"] | None = None


@dataclass(frozen=True)
class Limits(metaclass=Checked):
    """Which rows are kept.

    Attributes:
        min_length: keep texts of *more* than that many tokens (strict, as in the paper's code).
        max_length: keep texts of *fewer* than that many tokens.
        drop_extremes: where a limit is None, take the split's own shortest or longest length for it. A quirk of
            the paper's code: the strict comparison loses the longest text(s) of every split.
        max_tokens: longer texts are cut to that many tokens, and counted.
        most: split → at most that many of its rows, drawn at random (by `split_seed`), and the others counted; splits
            that are not named keep all. The vocabulary comes from the training rows that are left.
        max_sentences: keep texts of at most that many sentences.
        max_sentence_tokens: keep texts whose longest sentence has at most that many tokens.
        sentence_limits_on: the splits that these two limits hold for. Other splits keep all texts (Serrano & Smith
            filter the training and development documents alone).
    """

    settings_place: ClassVar[str] = "data"

    min_length: Whole | None = None
    max_length: Count | None = None
    drop_extremes: bool = False
    max_tokens: Count | None = 4000
    most: Mapping[Literal[SPLITS], Count] | None = None
    max_sentences: Count | None = None
    max_sentence_tokens: Count | None = None
    sentence_limits_on: Sequence[Literal[SPLITS]] = ("train", "validation")


@dataclass(frozen=True)
class Splitting(metaclass=Checked):
    """How splits are drawn that the source does not have.

    Attributes:
        pool: put all splits together and divide them again.
        validation_share: where there is no validation split, this share of the training rows (after the test share
            is taken), the same of every class.
        test_share: where there is no test split, this share of all rows; 1: nothing is trained (`training=none`), so that
            every row is a test row, and no split is drawn from another.
        split_seed: decides these divisions; apart from the run's seed, so that all seeds see the same splits.
    """

    settings_place: ClassVar[str] = "data"

    pool: bool = False
    validation_share: Share = 0.15
    test_share: Annotated[Number, Gt(0), Le(1)] = 0.2
    split_seed: Seed = 0

    @property
    def trains(self) -> bool:
        """Whether there are rows to train on."""
        return self.test_share < 1

    def check(self, splits: Collection[str]) -> None:
        """Refuse, by a `UserError`, a source without training rows; where nothing is trained, without test rows too."""
        if "train" not in splits and (self.trains or "test" not in splits):
            raise UserError(
                f"there is no training file among the splits {', '.join(splits)}: expected 'data.path={{train: FILE, …}}', a "
                f"file, or a folder with train.*; a model that is trained already (training=none) needs a test file alone"
            )


@dataclass(frozen=True)
class Words(metaclass=Checked):
    """The vocabulary and its vectors.

    Attributes:
        min_df: a word of the vocabulary is in at least that many training texts (before the length limits, as in the
            paper's code).
        max_vocabulary: at most that many words.
        vectors: text file of word vectors, GloVe or fastText.
        missing_vectors: `zeros` or `normal`: rows of words that the file does not have.
        embedding_size: length of the word vectors where there is no file.
    """

    settings_place: ClassVar[str] = "data"

    min_df: Count = 1
    max_vocabulary: Count | None = None
    vectors: str | None = None
    missing_vectors: Literal["zeros", "normal"] = "zeros"
    embedding_size: Size = 300


@dataclass(frozen=True)
class Serving(metaclass=Checked):
    """How batches are made; apart from the order of training, these change no number.

    Attributes:
        batch_size: training examples per batch.
        eval_batch_size: examples per batch in validation and test.
        num_workers: processes that prepare batches.
    """

    settings_place: ClassVar[str] = "data"

    batch_size: Count = 32
    eval_batch_size: Count = 64
    num_workers: Whole = 0


@dataclass(frozen=True)
class DataSettings:
    """All of the above, which must go together."""

    columns: Columns = field(default_factory=Columns)
    labels: Labels = field(default_factory=Labels)
    rules: TextRules = field(default_factory=TextRules)
    reading: Reading = field(default_factory=Reading)
    limits: Limits = field(default_factory=Limits)
    splitting: Splitting = field(default_factory=Splitting)
    words: Words = field(default_factory=Words)
    serving: Serving = field(default_factory=Serving)

    def __post_init__(self) -> None:
        columns, rules, labels, limits = self.columns, self.rules, self.labels, self.limits
        # what needs sentences must have them
        if rules.sentences is None and columns.rationale_kind == "sentences":
            raise UserError("data.rationale_kind=sentences needs sentences: set data.sentences=rule, spacy or column")
        for setting in ("max_sentences", "max_sentence_tokens"):
            if rules.sentences is None and (limit := getattr(limits, setting)) is not None:
                raise UserError(
                    f"data.{setting}={limit} needs sentences: set data.sentences=spacy, or data.{setting}=null"
                )
        # characters are counted in the text as it is: what changes it before or after it is cut into tokens is refused
        changing = {"clean": list(rules.clean), "token_rules": [one for one in rules.token_rules if one not in PLACED]}
        for setting, steps in changing.items():
            if columns.rationale_kind == "characters" and steps:
                raise UserError(
                    f"data.{setting}: {steps[0]} changes the text, so that data.rationale_kind=characters can no longer be "
                    f"counted in it: leave it out (token_rules={list(PLACED)} may be there), or mark tokens with "
                    f"data.rationale_kind=mask"
                )
        if columns.rationale_kind == "characters" and rules.sentences == "column":
            raise UserError("data.sentences=column has no characters to count: use data.rationale_kind=mask or spans")
        # what a question may be answered with
        if labels.classes_from == "candidates" and not columns.restricted:
            raise UserError("data.classes_from=candidates needs data.candidates or data.candidates_pattern")
        if labels.classes_from != "labels" and (labels.labels is not None or columns.multi_label):
            raise UserError(
                f"data.classes_from={labels.classes_from} leaves no room for data.labels and data.multi_label: set "
                f"data.labels=null and data.multi_label=false, or data.classes_from=labels"
            )
        # a shortcut replaces labels and rationales, so there must be one label per row, and no question about it
        for setting, value in {
            "multi_label": columns.multi_label,
            "rationale": columns.rationale,
            "annotators": columns.annotators,
            "question": columns.question,
            "candidates": columns.candidates or columns.candidates_pattern,
        }.items():
            if labels.plant is not None and value:
                raise UserError(
                    f"data.plant={labels.plant} replaces labels and their reasons: it does not go with "
                    f"data.{setting}={value}"
                )

    @classmethod
    def of(cls, flat: Mapping[str, Any]) -> "DataSettings":
        """The groups that these flat settings belong to.

        Raises:
            UserError: a setting is unknown, or its value cannot be used.
        """
        groups: dict[str, type] = {one.name: one.type for one in fields(cls)}  # type: ignore[misc]
        known = {one.name: group for group, kind in groups.items() for one in fields(kind)}
        for name in flat:
            if name not in known:
                near = get_close_matches(name, known, 1)
                hint = f"; did you mean data.{near[0]}?" if near else ""
                raise UserError(f"data.{name}={flat[name]}: there is no such setting{hint}")
        return cls(**{
            group: kind(**{name: value for name, value in flat.items() if known[name] == group})
            for group, kind in groups.items()
        })  # fmt: skip

    @classmethod
    def signature(cls, constructor: Callable[..., None]) -> Signature:
        """What a constructor takes whose last argument is `**settings`, the flat settings by their names."""

        def default_of(one: Field[Any]) -> Any:
            if one.default_factory is not MISSING:
                return one.default_factory()
            return Parameter.empty if one.default is MISSING else one.default

        _, *given, _ = signature(constructor).parameters.values()
        settings = [
            Parameter(one.name, Parameter.KEYWORD_ONLY, default=default_of(one), annotation=one.type)
            for group in fields(cls)
            for one in fields(group.type)  # type: ignore[arg-type]
        ]
        return Signature([*given, *settings])
