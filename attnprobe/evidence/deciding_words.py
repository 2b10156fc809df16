"""What "the attention is on the words that decide" means: measure, gates, guards and wording.

This module is the only place that defines it. Its test is `tests/evidence/test_deciding_words.py`,
its page the section on erasure in `docs/concepts.md`.

The definition, from a text to the sentence on the page:

1. **Per text.** The probe `attnprobe.probes.swaps` keeps random sets of words, makes filler of all
   others, and estimates what each word does to the probabilities of all classes. It stores the
   weight on words that move the prediction beyond that of even weights (*excess*), the most that
   this can be (*room*), and what the strongest word does (*strength*).
2. **Over texts.** `share_on_deciding_words` makes one number of them, the *share*: of the weight
   beyond chance, how much is on words that move the prediction. 0 for even weights and for any
   order by chance, 1 where all weight is on such words. A text counts by its strength, so that one
   whose class is known by what it lacks hardly counts.
3. **Gates.** Too few texts in which a word moves the prediction (`FEWEST_TEXTS`,
   `LEAST_STRENGTH`): the question cannot be asked.
4. **Yes** where the whole interval lies above `LEAST_SHARE`, and no class with words of its own has
   less. **No** where none of it does. Else it is open; so is a no by effects that too few passes
   tell (`LEAST_RELIABILITY`), as noise makes the share smaller.
5. **Guards.** Details that weaken a yes (`GUARDS`).
6. **Wording.** The sentences that say so, below.

To replace the measure by another one:

- write a probe that stores the new numbers, one per text, and give its `Reading` these `CLAIMS`;
- list its metrics in `SHARE_METRICS`, and make one number with an interval of them in
  `share_on_deciding_words`, whose `unasked` says when the question cannot be asked;
  `shares_of_classes` makes one per class, which the probe's table shows;
- set the thresholds, and keep, drop or replace the guards;
- word the sentences, and name the setting that runs the test (`TESTED_BY`);
- measure anew how often the verdict is right (`research.words`): the track record is of this very
  measure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import scipy
from jaxtyping import Bool, Float, Int

from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import Evidence, Measure, lowest_of, mean_of, values_of
from attnprobe.evidence.statistics import (
    UPPER_TAIL,
    students_half_width,
    wilson_of_half_width,
)
from attnprobe.results.pivot import classes_with, label_of, metrics_of_classes, text_of

# Thresholds.

LEAST_SHARE = 0.4
"""Share above which attention is said to be on the words that decide: at least two fifths of the
weight beyond chance."""
FEWEST_TEXTS = 10.0
"""Texts' worth of words that move the prediction below which the question is not asked: the sum of
the texts' weights."""
LEAST_STRENGTH = 0.005
"""Mean strength of the upper half of the texts below which no word moves the prediction. Of two
classes it is a change of a probability by 0.07."""
LEAST_DECIDED = 0.25
"""Mean weight of a class's texts below which the class is decided by no word of its own."""
LEAST_RELIABILITY = 0.9
"""Agreement of two halves of the passes on the strongest words below which there is no *no*: noise
in the effects makes the share smaller."""
LEAST_EFFECT = 0.01
"""Total variation distance from the prediction under equal weights below which the weights make no
difference."""
RECORD_PASSES = (400, 800, 1600)
"""Passes per text behind the track record: the first number, doubled where effects are not
reliable."""

# What the probe stores of each text.

SHARE_METRICS = ("swap_excess", "swap_room", "swap_strength")
OWN_METRICS = ("own_excess", "own_room", "own_strength")
OUTPUT_METRICS = ("output_excess", "output_room", "output_strength")
"""Each with `_class_` and a number after it, where there are three classes or more."""
EVERY_OUTPUT = tuple(f"{name}_class_*" for name in OUTPUT_METRICS)
RELIABILITY_METRICS = ("swap_reliability", "swap_strength")
PASSES_METRIC = "swap_passes"
ROUNDED_METRIC = "swap_in_bfloat16"
"""Stored where the passes multiplied matrices in bfloat16; those of the track record did not, but
for MiniLM's."""

# The numbers.

GROUPS = 20
"""Parts of the texts of which one at a time is left out for the interval (the jackknife)."""
IMAGINED_TEXTS = 2
"""Texts of full weight that every interval allows for at either end: however alike the texts of a
sample are, the next two may be at the worst, or at the best."""


@dataclass(frozen=True)
class Clusters:
    """What rows have in common: the same text is asked several questions, or for several labels.

    Attributes:
        text: number of each row's text.
        label: number of each row's label; None: rows ask for no labels.
        names: of the labels.
    """

    text: Int[np.ndarray, " rows"]
    label: Int[np.ndarray, " rows"] | None = None
    names: Sequence[str] = ()

    @classmethod
    def apart(cls, texts: int) -> "Clusters":
        """Each row is a text of its own."""
        return cls(np.arange(texts))

    def rows(self, chosen: Bool[np.ndarray, " rows"]) -> "Clusters":
        """Those of some of the rows."""
        label = None if self.label is None else self.label[chosen]
        return replace(self, text=self.text[chosen], label=label)

    @property
    def texts(self) -> int:
        """How many different texts there are."""
        return len(np.unique(self.text))


@dataclass(frozen=True)
class WeightedTexts:
    """What each text adds to the share, mean of the runs.

    Attributes:
        excess: text's weight × its excess.
        room: text's weight × its room.
        weight: how much the strongest word does beside the reference, 0 to 1.
        by_run: the same three of each run, `[3, runs, texts]`.
    """

    by_run: Float[np.ndarray, "three runs texts"]

    @property
    def excess(self) -> Float[np.ndarray, " texts"]:
        """Weight × excess."""
        return self.by_run[0].mean(0)

    @property
    def room(self) -> Float[np.ndarray, " texts"]:
        """Weight × room."""
        return self.by_run[1].mean(0)

    @property
    def weight(self) -> Float[np.ndarray, " texts"]:
        """The weight itself."""
        return self.by_run[2].mean(0)

    @property
    def shares_of_runs(self) -> Float[np.ndarray, " runs"]:
        """The share of each run; without those in which every word moves the prediction."""
        excess, room, _ = self.by_run.sum(-1)
        has_room = room > 0
        return excess[has_room] / room[has_room]


def reference_strength(strength: Float[np.ndarray, "runs texts"]) -> Float[np.ndarray, " runs"]:
    """Mean strength of the upper half of each run's texts; 0 where there is none."""
    texts = strength.shape[1]
    if not texts:
        return np.zeros(len(strength))
    ascending = np.sort(strength.clip(min=0), axis=1)
    return ascending[:, texts // 2 :].mean(1)


def text_weights(strength: Float[np.ndarray, "runs texts"]) -> Float[np.ndarray, "runs texts"]:
    """How much each text counts, 0 to 1: its strength beside the reference."""
    reference = reference_strength(strength)[:, None]
    return np.clip(strength.clip(min=0) / np.maximum(reference, np.finfo(float).tiny), 0, 1)


def mean_reliability(
    reliability: Float[np.ndarray, "runs texts"], strength: Float[np.ndarray, "runs texts"]
) -> float:
    """Agreement of the two halves of the passes, mean of the texts by their weight."""
    weights = text_weights(strength)
    return float((weights * reliability).sum() / max(weights.sum(), np.finfo(float).tiny))


def weighted_texts(
    excess: Float[np.ndarray, "runs texts"],
    room: Float[np.ndarray, "runs texts"],
    strength: Float[np.ndarray, "runs texts"],
) -> WeightedTexts:
    """What each text adds to the share."""
    weights = text_weights(strength)
    return WeightedTexts(np.stack([weights * excess, weights * room, weights]))


def share_on_deciding_words(
    excess: Float[np.ndarray, "runs texts"],
    room: Float[np.ndarray, "runs texts"],
    strength: Float[np.ndarray, "runs texts"],
    *,
    clusters: Clusters | None = None,
) -> Evidence:
    """The share of the weight, beyond chance, on words that move the prediction.

    It is Σ weight × excess / Σ weight × room over the texts, where a text's weight is its strength
    beside the reference (`text_weights`). Of several runs each text has its mean.

    Args:
        excess: weight on words that move the prediction, beyond that of even weights; NaN where a
            text was not examined.
        room: the most that it can be.
        strength: what the text's strongest word does.
        clusters: what texts have in common, where several questions are asked of one; None: each is
            another text.

    Returns:
        The share, −1 to 1, with its interval over texts, labels and runs; `n` counts the texts.
        `unasked` says why the question cannot be asked, where it cannot.
    """
    numbers = np.stack([excess, room, strength])
    is_examined = ~np.isnan(numbers).any((0, 1))
    clusters = (clusters or Clusters.apart(len(is_examined))).rows(is_examined)
    excess, room, strength = numbers[:, :, is_examined]
    texts = clusters.texts
    if not texts:
        return Evidence(np.nan, np.nan, np.nan, 0, unasked="no text of two words was examined")

    def share_without(left_out: np.ndarray) -> float:
        kept = ~left_out
        part = weighted_texts(excess[:, kept], room[:, kept], strength[:, kept])
        return _ratio(part.excess.sum(), part.room.sum())

    weighted = weighted_texts(excess, room, strength)
    share = _with_interval(weighted, share_without, clusters)
    reference = float(reference_strength(strength).mean())
    if reference < LEAST_STRENGTH:
        reason = (
            f"the words that do most change a probability by {np.sqrt(max(reference, 0)):.3f}: no "
            f"word moves the prediction (expected {np.sqrt(LEAST_STRENGTH):.3f} or more)"
        )
        return replace(share, unasked=reason)
    decided = float(weighted.weight.sum())
    if decided < FEWEST_TEXTS:
        reason = (
            f"{decided:.1f} texts' worth of {texts:,} have words that move the prediction: nothing "
            f"to point at (expected {FEWEST_TEXTS:g} or more)"
        )
        return replace(share, unasked=reason)
    return share


def _ratio(excess: float, room: float) -> float:
    return float(excess / room) if room > 0 else float("nan")


def _with_interval(
    weighted: WeightedTexts,
    share_without: Callable[[np.ndarray], float],
    clusters: Clusters,
    upper_tail: float = UPPER_TAIL,
) -> Evidence:
    """The share with its interval over texts, labels and runs.

    Texts: a jackknife over random groups with Student's quantile; a text is left out with all that
    is asked of it. Labels, where rows ask for them: the same over groups of labels. Runs: Student's
    interval of the runs' own shares. All together: the root of the sum of squares, as the half
    width of a symmetric interval.

    The ends are Wilson's, for as many texts as such a half width belongs to: the texts' mean weight
    on words that move the prediction is a share of 0 to 1, and where few texts decide it is skew.
    Where all texts are alike there is no width, so that the interval always allows for two texts at
    either end of the scale.

    Args:
        weighted: the texts.
        share_without: texts that are left out `[texts]` → the share of the others.
        clusters: what the texts have in common.
        upper_tail: quantile of the interval's upper end, 0.5 to 1.
    """
    texts = clusters.texts
    excess = float(weighted.excess.sum())
    room = float(weighted.room.sum())
    value = _ratio(excess, room)
    if np.isnan(value):
        return Evidence(value, np.nan, np.nan, texts)

    half = _jackknife_half_width(share_without, clusters.text, upper_tail)
    if clusters.label is not None:
        of_labels = _jackknife_half_width(share_without, clusters.label, upper_tail)
        half = float(np.hypot(half, of_labels))
    half = float(np.hypot(half, students_half_width(weighted.shares_of_runs, upper_tail)))

    # as a share of 0 to 1: the mean weight on words that move the prediction
    span = float(weighted.weight.sum()) / room
    least = 1 - span
    mass = float(np.clip((value - least) / span, 0, 1))
    ends = wilson_of_half_width(mass, half / span)

    worst = (excess - IMAGINED_TEXTS) / (room + IMAGINED_TEXTS)
    best = (excess + IMAGINED_TEXTS) / (room + IMAGINED_TEXTS)
    return Evidence(
        _clipped(value),
        _clipped(min(least + span * ends.low, worst)),
        _clipped(max(least + span * ends.high, best)),
        texts,
    )


def _jackknife_half_width(
    share_without: Callable[[np.ndarray], float],
    cluster: Int[np.ndarray, " texts"],
    upper_tail: float,
) -> float:
    """Half the width of the jackknife's interval over clusters, in random groups of them.

    0 where there is one cluster, which tells no spread.
    """
    _, number = np.unique(cluster, return_inverse=True)
    clusters = int(number.max()) + 1
    groups = min(GROUPS, clusters)
    if groups < 2:
        return 0.0
    group_of_row = (np.random.default_rng(0).permutation(clusters) % groups)[number]
    shares = np.array([share_without(group_of_row == group) for group in range(groups)])
    error = np.sqrt((groups - 1) / groups * np.nansum((shares - np.nanmean(shares)) ** 2))
    return float(scipy.stats.t.ppf(upper_tail, groups - 1) * error)


def _clipped(number: float) -> float:
    return float(np.clip(number, -1, 1))


@dataclass(frozen=True)
class ShareOfClass:
    """The share among the texts of one predicted class.

    Attributes:
        predicted_class: its number.
        texts: how many there are, mean of the runs.
        weight: of these texts, mean and interval, 0 to 1: how far words of theirs decide.
        share: with its interval over texts and runs.
    """

    predicted_class: int
    texts: float
    weight: Evidence
    share: Evidence

    @property
    def decided(self) -> float:
        """Texts' worth of words that move the prediction: the sum of the weights."""
        return self.texts * self.weight.value

    @property
    def has_words(self) -> bool:
        """Whether words of these texts decide: if not, their class is known by what they lack."""
        return self.weight.value >= LEAST_DECIDED

    @property
    def is_asked(self) -> bool:
        """Whether there are enough such texts to say anything."""
        return self.has_words and self.decided >= FEWEST_TEXTS

    @property
    def answer(self) -> str:
        """Yes, no or open; or why it is not asked."""
        if not self.has_words:
            return "decided by no word of its own"
        if not self.is_asked:
            return "too few texts"
        return answer_of_interval(self.share)


def answer_of_interval(share: Evidence) -> str:
    """Yes, no or open, by the interval alone."""
    if share.low > LEAST_SHARE:
        return "yes"
    return "no" if share.high < LEAST_SHARE else "open"


def shares_of_classes(
    excess: Float[np.ndarray, "runs texts"],
    room: Float[np.ndarray, "runs texts"],
    strength: Float[np.ndarray, "runs texts"],
    predicted_class: Int[np.ndarray, "runs texts"],
    *,
    clusters: Clusters | None = None,
    together: bool = False,
) -> list[ShareOfClass]:
    """The share among the texts of each predicted class, or of each other part of the texts.

    A text that the runs predict differently counts for each class in as many runs.

    Args:
        excess: as of `share_on_deciding_words`.
        room: as of `share_on_deciding_words`.
        strength: as of `share_on_deciding_words`.
        predicted_class: number of the class, or of the part.
        clusters: what the texts have in common; None: nothing.
        together: the intervals of all parts hold together in 95 % of samples (Bonferroni), so that
            parts may be picked out; else each does.
    """
    numbers = np.stack([excess, room, strength])
    is_examined = ~np.isnan(numbers).any((0, 1))
    clusters = (clusters or Clusters.apart(len(is_examined))).rows(is_examined)
    excess, room, strength = numbers[:, :, is_examined]
    predicted_class = predicted_class[:, is_examined]
    weighted = weighted_texts(excess, room, strength)
    parts = np.unique(predicted_class)
    tail = (1 - UPPER_TAIL) / (max(1, len(parts)) if together else 1)
    return [
        _share_of_class(weighted, predicted_class == number, int(number), clusters, 1 - tail)
        for number in parts
    ]


@dataclass(frozen=True)
class ShareOfLabel:
    """The share among the rows that ask for one label, whether the answer is no or yes.

    Attributes:
        label: its name.
        part: the share and what it is of; the class's number is that of the label.
    """

    label: str
    part: ShareOfClass


def shares_of_labels(
    excess: Float[np.ndarray, "runs texts"],
    room: Float[np.ndarray, "runs texts"],
    strength: Float[np.ndarray, "runs texts"],
    *,
    clusters: Clusters,
) -> list[ShareOfLabel]:
    """The share among the rows of each label, in the order of their numbers.

    Args:
        excess: as of `share_on_deciding_words`.
        room: as of `share_on_deciding_words`.
        strength: as of `share_on_deciding_words`.
        clusters: with labels.
    """
    of_labels = Questions([excess, room, strength], clusters).by_label()
    parts = shares_of_classes(*of_labels.columns, clusters=of_labels.clusters)
    return [ShareOfLabel(clusters.names[part.predicted_class], part) for part in parts]


def _share_of_class(
    weighted: WeightedTexts,
    is_of_class: Bool[np.ndarray, "runs texts"],
    number: int,
    clusters: Clusters,
    upper_tail: float,
) -> ShareOfClass:
    """The share among some of the texts.

    Args:
        weighted: all texts.
        is_of_class: the class's, by run.
        number: of the class.
        clusters: what the texts have in common.
        upper_tail: quantile of the upper end of the share's interval.
    """
    is_in_any_run = np.asarray(is_of_class.any(0))
    part = WeightedTexts((weighted.by_run * is_of_class)[:, :, is_in_any_run])
    weights = np.where(is_of_class, weighted.by_run[2], np.nan)[:, is_in_any_run]

    def share_without(left_out: np.ndarray) -> float:
        return _ratio(part.excess[~left_out].sum(), part.room[~left_out].sum())

    return ShareOfClass(
        number,
        texts=float(is_of_class.sum() / len(is_of_class)),
        weight=Evidence.of_runs(weights, reach=1.0).within(0, 1),
        share=_with_interval(part, share_without, clusters.rows(is_in_any_run), upper_tail),
    )


# From a table of the probe to the numbers.


@dataclass(frozen=True)
class Questions:
    """Numbers of every run and row: a text, or what is asked of it.

    Attributes:
        columns: of each metric; NaN where a run does not have a row.
        clusters: what the rows have in common.
    """

    columns: list[Float[np.ndarray, "runs rows"]]
    clusters: Clusters

    @classmethod
    def of(cls, rows: pd.DataFrame, metrics: Sequence[str]) -> "Questions":
        """Those of a wide table with a row per run and example."""
        by_question = rows.assign(_text=text_of(rows), _label=label_of(rows))
        keys = ["run_id", "split", "_text", "example_id"]
        by_question = by_question.astype({"run_id": str, "split": str}).set_index(keys)
        columns = [by_question[name].unstack([1, 2, 3]) for name in metrics]
        order = columns[0].columns.sort_values()
        places = order.to_frame(index=False)
        text = places.groupby(["split", "_text"], sort=False).ngroup().to_numpy()
        clusters = Clusters(text)
        if by_question["_label"].notna().all():
            first = by_question["_label"].groupby(level=["split", "_text", "example_id"]).first()
            names, label = np.unique(first.reindex(order).astype(str), return_inverse=True)
            clusters = Clusters(text, label, names.tolist())
        return cls([column[order].to_numpy(np.float64) for column in columns], clusters)

    def by_label(self) -> "Questions":
        """The same with a column of the label's number; labels are parts then, and no clusters."""
        assert self.clusters.label is not None
        label = np.broadcast_to(self.clusters.label, self.columns[0].shape)
        return Questions([*self.columns, label], replace(self.clusters, label=None))


def _questions(table: pd.DataFrame, *metrics: str) -> Questions | None:
    """Some metrics by run and row; None where the table lacks one, or no text was examined."""
    rows = values_of(table, *metrics)
    if rows is None or not rows[list(metrics)].notna().all(axis=1).any():
        return None
    return Questions.of(rows, metrics)


def _share(table: pd.DataFrame) -> Evidence | None:
    """The share in a table of the probe, with what keeps a yes or a no from it."""
    questions = _questions(table, *SHARE_METRICS)
    if questions is None:
        return None
    share = share_on_deciding_words(*questions.columns, clusters=questions.clusters)
    lowest = _lowest_of(_classes(table))
    if lowest is not None and lowest.share.value < LEAST_SHARE:
        share = replace(
            share,
            no_yes=f"in class_{lowest.predicted_class} the share is {lowest.share.value:.2f}",
        )
    reliability = _questions(table, *RELIABILITY_METRICS)
    if reliability is not None and mean_reliability(*reliability.columns) < LEAST_RELIABILITY:
        share = replace(
            share, no_no="what single words do is too small, or too varied, for so many passes"
        )

    return replace(share, record=_unusual_passes(table))


def _unusual_passes(table: pd.DataFrame) -> str:
    """How the passes differ from those that the track record is of; empty: they do not.

    What was measured in another way has, or lacks, a record of its own.
    """
    unusual = []
    passes = set(table["value"][table["metric"] == PASSES_METRIC].dropna())
    unusual_numbers = passes - set(RECORD_PASSES)
    if unusual_numbers:
        unusual.append(f"{min(unusual_numbers):.0f} passes")
    if (table["metric"] == ROUNDED_METRIC).any():
        unusual.append("bfloat16")
    return ", ".join(unusual)


def _classes(table: pd.DataFrame) -> list[ShareOfClass]:
    """The share of each predicted class in a table of the probe."""
    questions = _questions(table, *SHARE_METRICS, "predicted_class")
    return (
        []
        if questions is None
        else shares_of_classes(*questions.columns, clusters=questions.clusters)
    )


def _lowest_of(parts: Sequence[ShareOfClass]) -> ShareOfClass | None:
    """The part with the smallest share, of those with enough texts that words decide."""
    asked = [part for part in parts if part.is_asked]
    return min(asked, key=lambda part: part.share.value, default=None)


def _smallest_share(questions: Questions, name: str = "class_{}") -> Evidence | None:
    """The smallest share of the parts with enough texts that words decide.

    All shares are above a threshold where the smallest of their lower ends is, however many they
    are. But the smallest of several is low by chance, so that the upper end is the smallest of
    upper ends that hold together (Bonferroni).

    Args:
        questions: `SHARE_METRICS`, or others of their kind, and the number of the part.
        name: of a part, by its number.

    Returns:
        The share and the name of its part; None where no part has enough texts.
    """
    parts = shares_of_classes(*questions.columns, clusters=questions.clusters)
    joint_parts = shares_of_classes(*questions.columns, clusters=questions.clusters, together=True)
    lowest = _lowest_of(parts)
    if lowest is None:
        return None
    return replace(
        lowest.share,
        low=min(part.share.low for part in parts if part.is_asked),
        high=min(part.share.high for part in joint_parts if part.is_asked),
        part=name.format(lowest.predicted_class),
    )


def _lowest_share(table: pd.DataFrame) -> Evidence | None:
    """The smallest share of a predicted class."""
    questions = _questions(table, *SHARE_METRICS, "predicted_class")
    return None if questions is None else _smallest_share(questions)


def _least_decided(table: pd.DataFrame) -> Evidence | None:
    """How far words decide in the predicted class where they do least."""
    parts = [replace(part.weight, part=f"class_{part.predicted_class}") for part in _classes(table)]
    return lowest_of(parts, LEAST_DECIDED) if parts else None


def _own_share(table: pd.DataFrame) -> Evidence | None:
    """The share by what words do in texts that keep most of their words."""
    questions = _questions(table, *OWN_METRICS)
    if questions is None:
        return None
    return share_on_deciding_words(*questions.columns, clusters=questions.clusters)


def labels_in(table: pd.DataFrame) -> list[ShareOfLabel]:
    """The share of each label in a table of the probe; none where rows ask for no labels."""
    questions = _questions(table, *SHARE_METRICS)
    if questions is None or questions.clusters.label is None:
        return []
    return shares_of_labels(*questions.columns, clusters=questions.clusters)


def output_classes(table: pd.DataFrame) -> list[int]:
    """The classes of which a long table has numbers whether they are predicted or not."""
    return classes_with(table, "swaps", *OUTPUT_METRICS)


def questions_of_outputs(rows: pd.DataFrame, classes: Sequence[int]) -> Questions:
    """A row for each text and class, and beside `OUTPUT_METRICS` a column with the class's number.

    Args:
        rows: wide, with the metrics of these classes.
        classes: their numbers.
    """
    parts = [Questions.of(rows, metrics_of_classes(OUTPUT_METRICS, [number])) for number in classes]
    of_metrics = zip(*(part.columns for part in parts), strict=True)
    columns = [np.concatenate(of_metric, 1) for of_metric in of_metrics]
    texts = parts[0].clusters.text
    number = np.broadcast_to(np.repeat(np.asarray(classes), len(texts)), columns[0].shape)
    # all classes are asked, so that they are no sample: only texts are clusters
    return Questions([*columns, number], Clusters(np.tile(texts, len(classes))))


def _outputs(table: pd.DataFrame) -> Questions | None:
    """The texts and classes of a table of the probe; None of two classes."""
    classes = output_classes(table)
    metrics = metrics_of_classes(OUTPUT_METRICS, classes)
    rows = values_of(table, *metrics) if classes else None
    if rows is None or not rows[metrics].notna().all(axis=1).any():
        return None
    return questions_of_outputs(rows, classes)


def _share_of_outputs(table: pd.DataFrame) -> Evidence | None:
    """The share of all texts and classes."""
    outputs = _outputs(table)
    if outputs is None:
        return None
    excess, room, strength, _ = outputs.columns
    return share_on_deciding_words(excess, room, strength, clusters=outputs.clusters)


def _lowest_output(table: pd.DataFrame) -> Evidence | None:
    """The smallest share of a class, predicted or not."""
    outputs = _outputs(table)
    return None if outputs is None else _smallest_share(outputs)


def _lowest_label(table: pd.DataFrame) -> Evidence | None:
    """The smallest share of a label."""
    questions = _questions(table, *SHARE_METRICS)
    if questions is None or questions.clusters.label is None:
        return None
    of_labels = questions.by_label()
    lowest = _smallest_share(of_labels, "{}")
    if lowest is None:
        return None
    return replace(lowest, part=f"label {questions.clusters.names[int(lowest.part)]}")


# The claims.

LINE = ("erasure", "word")
"""Criterion and level of the claims: the line of the card that the answer goes by."""
SOURCE = "attnprobe: docs/results/calibration.md"

SHARE_CLAIM = Claim(
    name="weight_is_on_deciding_words",
    criterion="erasure",
    level="word",
    speaks="for",
    source=SOURCE,
    statement="The weight is on the words that decide",
    measure=Measure(
        (
            *SHARE_METRICS,
            "swap_reliability",
            "predicted_class",
            PASSES_METRIC,
            ROUNDED_METRIC,
        ),
        _share,
    ),
    quantity="share of the weight beyond chance that is on words that move the prediction, 0 to 1; "
    f"below 0 it is less than by chance; up to {LEAST_SHARE:g} is no relevant difference",
    smallest=LEAST_SHARE,
    primary=True,
)
LOWEST_CLASS_CLAIM = Claim(
    name="weight_is_on_deciding_words_in_every_class",
    criterion="erasure",
    level="word",
    source=SOURCE,
    threshold=LEAST_SHARE,
    statement="In every predicted class the weight is on the words that decide",
    measure=Measure((*SHARE_METRICS, "predicted_class"), _lowest_share),
    quantity="the same share, in the class where it is smallest",
)
LOWEST_LABEL_CLAIM = Claim(
    name="weight_is_on_deciding_words_of_every_label",
    criterion="erasure",
    level="word",
    source=SOURCE,
    threshold=LEAST_SHARE,
    statement="For every label the weight is on the words that decide",
    measure=Measure(SHARE_METRICS, _lowest_label),
    quantity="the same share, for the label where it is smallest",
)
ALL_OUTPUTS_CLAIM = Claim(
    name="weight_is_on_deciding_words_of_all_classes",
    criterion="erasure",
    level="word",
    source=SOURCE,
    threshold=LEAST_SHARE,
    statement="For all classes, predicted or not, the weight is on the words that decide",
    measure=Measure(EVERY_OUTPUT, _share_of_outputs),
    quantity="the same share, by the words that move the probability of each class in turn",
)
LOWEST_OUTPUT_CLAIM = Claim(
    name="weight_is_on_deciding_words_of_each_class",
    criterion="erasure",
    level="word",
    source=SOURCE,
    threshold=LEAST_SHARE,
    statement="For each class, predicted or not, the weight is on the words that decide",
    measure=Measure(EVERY_OUTPUT, _lowest_output),
    quantity="the same share, by the words that move the class's probability, where it is smallest",
)
EVERY_CLASS_CLAIM = Claim(
    name="every_class_has_such_words",
    criterion="erasure",
    level="word",
    source=SOURCE,
    threshold=LEAST_DECIDED,
    statement="Every predicted class is decided by words of its own",
    measure=Measure((*SHARE_METRICS, "predicted_class"), _least_decided),
    quantity="how far words decide, 0 to 1, in the class where they do least",
)
OWN_CONTEXT_CLAIM = Claim(
    name="weight_is_on_deciding_words_in_own_context",
    criterion="erasure",
    level="word",
    source=SOURCE,
    threshold=LEAST_SHARE,
    statement="The weight is on the words that decide where most other words stay",
    measure=Measure(OWN_METRICS, _own_share),
    quantity="the same share, by what words do in texts that keep most of their words: a cue that "
    "another one overrides does little there, and so does each of several that say the same",
)
WEIGHTS_MATTER_CLAIM = Claim(
    name="weights_move_the_prediction",
    criterion="erasure",
    level="word",
    source=SOURCE,
    threshold=LEAST_EFFECT,
    statement="Equal weights in place of attention's move the prediction",
    measure=mean_of("equal_weights_distance", reach=1.0, ends=(0, 1)),
    quantity="TVD, 0 to 1, mean of the texts",
)
TOP_WORD_CLAIM = Claim(
    name="top_word_is_strongest",
    criterion="erasure",
    level="word",
    source=SOURCE,
    threshold=0.5,
    statement="The most attended word is the one that moves the prediction most, in most texts",
    measure=mean_of("top_word_effect", reach=1.0, ends=(0, 1)),
    quantity="share of the texts",
)
CLAIMS = (
    SHARE_CLAIM,
    LOWEST_CLASS_CLAIM,
    LOWEST_LABEL_CLAIM,
    ALL_OUTPUTS_CLAIM,
    LOWEST_OUTPUT_CLAIM,
    EVERY_CLASS_CLAIM,
    OWN_CONTEXT_CLAIM,
    WEIGHTS_MATTER_CLAIM,
    TOP_WORD_CLAIM,
)

# The guards of a yes.


@dataclass(frozen=True)
class Guard:
    """A detail that weakens a yes where its number is smaller than `least`.

    Attributes:
        claim: the claim whose number it is; a yes without that number is an error.
        least: the smallest number that does not weaken the yes.
        doubt: a clause that says so; `{part}` stands for the class that the number is of.
    """

    claim: Claim
    least: float
    doubt: str


GUARDS = (
    Guard(WEIGHTS_MATTER_CLAIM, LEAST_EFFECT, doubt="equal weights would predict the same"),
    Guard(EVERY_CLASS_CLAIM, LEAST_DECIDED, doubt="{part} goes by no words of its own"),
)
"""The gravest doubt comes first; `attnprobe.findings.chip` applies them."""

# Wording.

TESTED_BY = "probe=[swaps]"
"""The setting that adds the test."""
ON_CARD = "on words that move the prediction"
"""What a yes says, on the line of the card."""
ON_GAUGE = "weight on words that move the prediction"
"""The quantity on the scale from chance to the best that is possible."""
YES_MEANS = (
    "at least two fifths of its weight, beyond what even weights have there, is on words that move "
    "the prediction when other words become filler"
)
YES_DOES_NOT_MEAN = "that it says how much each word decides"

# sentences; `attention` stands for "this attention" or more, `share` for a number in per cent
WHETHER = "whether {attention} points at the words that decide"
SHARE = "{share} of the weight beyond chance is on words that move the prediction"
NO_MORE_THAN_CHANCE = "{attention} is on words that move the prediction no more than by chance"
IN_PART = "in {part}, {share}"
CHANCE = 0.05
"""Share up to which a *no* is said to be chance."""
MUCH_LESS = 0.2
"""How far the share of a class has to be below that of all texts for the sentence to name it."""
