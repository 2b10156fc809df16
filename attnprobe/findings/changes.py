"""Two finished runs on the same texts: what changed in numbers, verdicts and examples."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.spatial.distance import jensenshannon

from attnprobe.core.errors import UserError
from attnprobe.core.metrics import Scale
from attnprobe.core.sanitise import visible
from attnprobe.evidence.statistics import interval
from attnprobe.evidence.verdicts import Answer
from attnprobe.findings.groups import Run, read_runs
from attnprobe.findings.headlines import scale_of_headline
from attnprobe.findings.judgement import Card, Judgement
from attnprobe.findings.stored import card_of_run
from attnprobe.findings.studies.base import STUDY, read_study
from attnprobe.plots.heatmap import label_text
from attnprobe.readings.reading import Headline
from attnprobe.readings.registry import present
from attnprobe.results.directory import WHOLE_SPLIT
from attnprobe.results.table import repeats_of, texts_of

CORRECT = "correct"
"""Share of right decisions, 0 to 1, of the texts that both runs have."""
SAME = {"accuracy", "exact_match"}
"""The same share, of all texts of each run and without an interval: not shown a second time."""
MOST_WORDS = 25
"""Words of a text that are shown."""


@dataclass(frozen=True)
class ChangedNumber:
    """A headline number of both runs.

    Attributes:
        probe: whose number it is.
        metric: its name.
        title: the name in words.
        n: texts that both runs have a number for; 0 for a number of the whole split.
        first: mean of the first run's numbers.
        second: mean of the second run's numbers.
        change: mean of the paired differences, second minus first.
        low: lower end of the change's 95 % interval (paired bootstrap over the texts); NaN for a
            number of the whole split.
        high: upper end of the interval.
    """

    probe: str
    metric: str
    title: str
    n: int
    first: float
    second: float
    change: float
    low: float = np.nan
    high: float = np.nan


@dataclass(frozen=True)
class ChangedVerdict:
    """What two runs say of one criterion.

    Attributes:
        criterion: its name, with the level where several are asked.
        first: the first run's answer.
        second: the second run's answer.
        change: `changed`, `only in A`, `only in B`, or empty.
        first_value: the number that the first answer goes by; NaN where nothing was tested.
        second_value: the number that the second answer goes by.
    """

    criterion: str
    first: str
    second: str
    change: str
    first_value: float
    second_value: float


@dataclass(frozen=True)
class Changes:
    """What changed from one run to another.

    Attributes:
        numbers: a row per headline number that both have; the columns are the attributes of
            `ChangedNumber`.
        verdicts: a row per criterion that either was tested on; the columns are the attributes of
            `ChangedVerdict`.
        sentences: what each run's own page says first of its attention.
        examples: a row per text that both have: `example_id text label first second attention`, the
            label (both, where their data differ), the predicted classes, and the JSD of the
            attentions in nats (NaN: over different units); other predictions first, then the
            largest.
        shared: number of texts that both have.
        first_only: number of texts that only the first run has.
        second_only: number of texts that only the second run has.
        flipped: number of shared texts with another prediction.
    """

    numbers: pd.DataFrame
    verdicts: pd.DataFrame
    sentences: tuple[str, str]
    examples: pd.DataFrame
    shared: int
    first_only: int
    second_only: int
    flipped: int


def run_at(place: str | os.PathLike) -> Run:
    """The one finished run in a directory.

    Args:
        place: a run's directory, or a study's, which stands for the run that it examined.

    Raises:
        UserError: no finished run there, or several.
    """
    path = Path(place)
    is_study = (path / STUDY).exists()
    runs = read_runs(read_study(path).runs[:1] if is_study else [place])
    if len(runs) > 1:
        names = ", ".join(str(run.directory) for run in runs[:3])
        raise UserError(
            f"{place} holds {len(runs)} finished runs ({names}, …): name the directory of one"
        )
    return runs[0]


def compare_runs(first: Run, second: Run) -> Changes:
    """Compare two runs text by text.

    Raises:
        UserError: they have no text in common, or their classes differ.
    """
    classes = tuple(first.manifest.get("classes", ()))
    second_classes = tuple(second.manifest.get("classes", ()))
    if classes != second_classes:
        raise UserError(
            f"{first.directory} has the classes {', '.join(classes)}, {second.directory} "
            f"{', '.join(second_classes)}: only runs on the same classes can be compared"
        )
    first_examples = examples_of(first)
    second_examples = examples_of(second)
    shared = first_examples.index.intersection(second_examples.index)
    if not len(shared):
        raise UserError(
            f"{first.directory} and {second.directory} have no test text in common: both must have "
            f"read the same file with the same data.split_seed"
        )
    before = first_examples.loc[shared]
    after = second_examples.loc[shared]

    numbers = [_changed_correctness(before, after)]
    numbers += _changed_headlines(first, second, before["example_id"].to_numpy())
    first_card = card_of_run(first)
    second_card = card_of_run(second)
    examples = changed_examples(before, after, classes)
    return Changes(
        numbers=_table(numbers, ChangedNumber),
        verdicts=changed_verdicts(first_card, second_card),
        sentences=(first_card.summary.words, second_card.summary.words),
        examples=examples,
        shared=len(shared),
        first_only=len(first_examples) - len(shared),
        second_only=len(second_examples) - len(shared),
        flipped=int((examples["first"] != examples["second"]).sum()),
    )


def examples_of(run: Run) -> pd.DataFrame:
    """The probed texts, indexed by number and words.

    The same number in another file would be another text.
    """
    wanted = ["example_id", "label", "prediction", "tokens", "attention"]
    table = run.files.examples(run.split, columns=wanted).to_pandas()
    table = table[~table["example_id"].isin(repeats_of(texts_of(run.files)))]
    words = [" ".join(map(str, tokens)) for tokens in table["tokens"]]
    return table.assign(words=words).set_index(["example_id", "words"], drop=False)


def _changed_correctness(before: pd.DataFrame, after: pd.DataFrame) -> ChangedNumber:
    def is_correct(examples: pd.DataFrame) -> "pd.Series[float]":
        words = examples[["prediction", "label"]].map(lambda cell: label_text(cell, ()))
        return (words["prediction"] == words["label"]).astype(float)

    return _paired(
        "performance",
        CORRECT,
        "accuracy (same texts)",
        is_correct(before),
        is_correct(after),
        reach=1.0,
    )


def _changed_headlines(first: Run, second: Run, example_ids: np.ndarray) -> Iterator[ChangedNumber]:
    """Every headline number that both runs have."""
    for reading in present(first.numbers):
        for number in reading.headlines_of(first.numbers.outline(reading.probe)):
            is_shown_already = reading.probe == "performance" and number.metric in SAME
            if number.spread or is_shown_already:
                continue
            change = _changed_headline(first, second, reading.probe, number, example_ids)
            if change is not None:
                yield change


def _changed_headline(
    first: Run, second: Run, probe: str, number: Headline, example_ids: np.ndarray
) -> ChangedNumber | None:
    """One headline number; None where a run does not have it for any of the shared texts."""
    rows = first.numbers.rows(probe, number.metrics)
    before = number.values(rows)
    after = number.values(second.numbers.rows(probe, number.metrics))
    is_of_whole_split = WHOLE_SPLIT in before.index and WHOLE_SPLIT in after.index
    if not is_of_whole_split:
        before = before.reindex(example_ids)
        after = after.reindex(example_ids)
    if not before.notna().any() or not after.notna().any():
        return None
    if is_of_whole_split:
        return _of_whole_split(probe, number, before, after)
    scale = scale_of_headline(rows, probe, number)
    return _paired(probe, number.key, number.title, before, after, reach=scale.high - scale.low)


def _of_whole_split(
    probe: str, number: Headline, before: "pd.Series[float]", after: "pd.Series[float]"
) -> ChangedNumber:
    """A number without texts behind it, and so without an interval."""
    return ChangedNumber(
        probe=probe,
        metric=number.key,
        title=number.title,
        n=0,
        first=before.iloc[0],
        second=after.iloc[0],
        change=after.iloc[0] - before.iloc[0],
    )


def _paired(
    probe: str,
    metric: str,
    title: str,
    before: "pd.Series[float]",
    after: "pd.Series[float]",
    *,
    reach: float,
) -> ChangedNumber:
    """The numbers of the same texts; those where either is undefined are left out.

    `reach` is the largest that the number can be minus the smallest.
    """
    pairs = pd.DataFrame({"first": before.to_numpy(float), "second": after.to_numpy(float)})
    pairs = pairs.dropna()
    change, low, high = interval(
        (pairs["second"] - pairs["first"]).to_numpy(), Scale("change", -reach, reach)
    )
    return ChangedNumber(
        probe=probe,
        metric=metric,
        title=title,
        n=len(pairs),
        first=pairs["first"].mean(),
        second=pairs["second"].mean(),
        change=change,
        low=low,
        high=high,
    )


def changed_verdicts(first: Card, second: Card) -> pd.DataFrame:
    """What two cards say of every criterion that either was tested on.

    Returns:
        A row per criterion, in alphabetical order; the columns are the attributes of
        `ChangedVerdict`.
    """
    before = first.named_lines()
    after = second.named_lines()
    verdicts = []
    for criterion in sorted({*before, *after}):
        verdict = _changed_verdict(criterion, before.get(criterion), after.get(criterion))
        if verdict is not None:
            verdicts.append(verdict)
    return _table(verdicts, ChangedVerdict)


def _changed_verdict(
    criterion: str, first: Judgement | None, second: Judgement | None
) -> ChangedVerdict | None:
    """What two cards say of one criterion; None where neither was tested on it."""
    first_answer = Answer.UNTESTED if first is None else first.answer
    second_answer = Answer.UNTESTED if second is None else second.answer
    if first_answer is Answer.UNTESTED and second_answer is Answer.UNTESTED:
        return None

    if second_answer is Answer.UNTESTED:
        change = "only in A"
    elif first_answer is Answer.UNTESTED:
        change = "only in B"
    elif first_answer is second_answer:
        change = ""
    else:
        change = "changed"
    return ChangedVerdict(
        criterion=criterion,
        first=str(first_answer),
        second=str(second_answer),
        change=change,
        first_value=np.nan if first is None else first.value,
        second_value=np.nan if second is None else second.value,
    )


def _table(rows: Sequence[ChangedNumber | ChangedVerdict], kind: type) -> pd.DataFrame:
    names = [field.name for field in fields(kind)]
    return pd.DataFrame([asdict(row) for row in rows], columns=names)


def changed_examples(
    before: pd.DataFrame, after: pd.DataFrame, classes: tuple[str, ...]
) -> pd.DataFrame:
    """Every text with both predictions and the distance of the attentions (see `Changes`)."""
    rows = pd.DataFrame(
        {
            "example_id": before["example_id"].to_numpy(),
            "text": [_shortened(words) for words in before["words"]],
            "label": [
                _both_labels(label_text(first, classes), label_text(second, classes))
                for first, second in zip(before["label"], after["label"], strict=True)
            ],
            "first": [label_text(label, classes) for label in before["prediction"]],
            "second": [label_text(label, classes) for label in after["prediction"]],
            "attention": [
                attention_jsd(first, second)
                for first, second in zip(before["attention"], after["attention"], strict=True)
            ],
        }
    )
    # lexsort's last key counts first: other predictions, and among them the largest distance
    order = np.lexsort((-rows["attention"].fillna(0), rows["first"] == rows["second"]))
    return rows.iloc[order].reset_index(drop=True)


def _both_labels(first: str, second: str) -> str:
    """A text's label in both runs' data, which need not be the same file."""
    return first if first == second else f"{first}, in B {second}"


def _shortened(words: str) -> str:
    return visible(" ".join(words.split(" ")[:MOST_WORDS]))


def attention_jsd(first: np.ndarray, second: np.ndarray) -> float:
    """JSD of two attentions in nats, 0 to ln 2; NaN where they are over different units."""
    if len(first) != len(second):
        return np.nan
    # scipy gives the root, and NaN for a rounding below 0
    return float(np.nan_to_num(jensenshannon(first, second)) ** 2)
