"""The runs of a study side by side: numbers text by text, F1, and whether seeds attend alike."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from scipy.special import rel_entr

from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import Evidence
from attnprobe.evidence.statistics import f1_of, over_pairs, resampled_runs
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import first_of_text, read_results, repeats_of, texts_of

SPLIT = "test"


def numbers_by_text(run: Path, probe: str, metrics: Iterable[str] = ()) -> pd.DataFrame:
    """A probe's numbers, text by text.

    Args:
        run: its directory.
        probe: whose numbers they are.
        metrics: their names; all if none is named.

    Returns:
        One row per text, by `example_id`, a column per metric; no row where the run does not have
        the probe.
    """
    names = list(metrics)
    if probe not in RunDirectory(run).probes():
        return pd.DataFrame(columns=names)
    rows = read_results(run, probe=probe)
    rows = rows[rows["step"].isna() & (rows["example_id"] >= 0)].astype({"metric": str})
    wide = rows.pivot(index="example_id", columns="metric", values="value")
    wide = wide.rename_axis(columns=None)
    return wide[names] if names else wide


def numbers_of_split(run: Path, probe: str, metric: str) -> "pd.Series[float]":
    """A metric's numbers that are about the whole split, by step (the class, the epoch)."""
    rows = read_results(run, probe=probe)
    rows = rows[(rows["metric"] == metric) & (rows["example_id"] < 0)]
    return rows.set_index("step")["value"].sort_index()


def distinct_examples(run: RunDirectory, *columns: str) -> pd.DataFrame:
    """Some columns of the test examples by their ids, each text once."""
    table = run.examples(SPLIT, columns=["example_id", *columns]).to_pandas()
    return table[~table["example_id"].isin(repeats_of(texts_of(run)))]


Score = Callable[[Float[np.ndarray, "*any parts"]], Float[np.ndarray, "*any"]]
"""From the sums of its parts over texts to the number (`parts_of`)."""
Parts = Mapping[int, Float[np.ndarray, "texts parts"]]
"""Seed → what a score is made of, text by text."""


def parts_of(
    labels: Bool[np.ndarray, "texts classes"],
    predictions: Bool[np.ndarray, "texts classes"],
    score: Score,
    *,
    one_label: bool = True,
) -> Float[np.ndarray, "texts parts"]:
    """What a score is made of, text by text: the counts whose sums over the texts give it.

    - F1: true positives, false positives and false negatives; of class 1 where there are two
      classes, else of every class.
    - Balanced accuracy: for every class, whether the text has it and is predicted to, and whether
      it has it. Where a text may have several labels, then the same for not having each label.

    Args:
        labels: each text's classes.
        predictions: each text's predicted classes.
        score: `balanced_accuracy`, or else F1.
        one_label: whether each text has one class.
    """
    if score is balanced_accuracy:
        pairs = [(labels, predictions)]
        if not one_label:
            pairs.append((~labels, ~predictions))
        counts = [np.stack([label & predicted, label], -1) for label, predicted in pairs]
        parts = np.concatenate(counts, 1)
    else:
        parts = np.stack([labels & predictions, ~labels & predictions, labels & ~predictions], -1)
        if labels.shape[1] == 2:
            parts = parts[:, 1:]
    return parts.reshape(len(parts), -1).astype(np.float64)


def parts_of_run(run: Path, score: Score) -> Float[np.ndarray, "texts parts"]:
    """`parts_of` the test texts.

    The questions about one text are summed: they are resampled together.
    """
    directory = RunDirectory(run)
    table = distinct_examples(directory, "label", "prediction")
    first = first_of_text(texts_of(directory))
    classes = np.arange(len(directory.manifest()["classes"]))
    one_label = not isinstance(table["label"].iloc[0], list | np.ndarray)
    parts = parts_of(
        _has_class(table["label"], classes),
        _has_class(table["prediction"], classes),
        score,
        one_label=one_label,
    )
    texts = [first.get(example, example) for example in table["example_id"]]
    return pd.DataFrame(parts).groupby(np.array(texts)).sum().to_numpy()


def _has_class(cells: "pd.Series", classes: np.ndarray) -> Bool[np.ndarray, "texts classes"]:
    """Which classes each text has.

    Args:
        cells: of each text the number of its class, or the numbers of its classes.
        classes: all numbers.
    """
    if isinstance(cells.iloc[0], list | np.ndarray):
        return np.array([np.isin(classes, numbers) for numbers in cells])
    return cells.to_numpy()[:, None] == classes


def balanced_accuracy(sums: Float[np.ndarray, "*any parts"]) -> Float[np.ndarray, "*any"]:
    """Mean of the classes' recalls, 0 to 1, over the classes that occur.

    A guess that never changes has 1 / classes.
    """
    hits = sums[..., ::2]
    texts = sums[..., 1::2]
    occurs = texts > 0
    recalls = np.where(occurs, hits / np.where(occurs, texts, 1), 0)
    return recalls.sum(-1) / occurs.sum(-1).clip(1)


def performance(parts: Parts, score: Score = f1_of) -> Evidence:
    """Mean score, its interval over texts and seeds, 0 to 1."""
    stacked = np.stack(list(parts.values()))
    return Evidence(*resampled_runs(stacked, score, low=0, high=1), n=stacked.shape[1])


def difference(first: Parts, second: Parts, score: Score = f1_of) -> Evidence:
    """The score of one model minus that of another, paired by seed and text, −1 to 1.

    Args:
        first: parts of the model whose score comes first.
        second: parts of the model whose score is subtracted.
        score: makes a number of the sums.

    Returns:
        No interval with one seed, which says nothing of another training.
    """
    seeds = [seed for seed in first if seed in second]
    parts = np.stack([np.concatenate([first[seed], second[seed]], 1) for seed in seeds])

    def gain(sums: Float[np.ndarray, "*any parts"]) -> Float[np.ndarray, "*any"]:
        half = sums.shape[-1] // 2
        return score(sums[..., :half]) - score(sums[..., half:])

    value, low, high = resampled_runs(parts, gain, low=-1, high=1)
    if len(seeds) == 1:
        return Evidence(value, np.nan, np.nan, n=parts.shape[1])
    return Evidence(value, low, high, n=parts.shape[1])


# Do the seeds of one model attend alike? Every seed is the base in turn, and the yardstick is how
# far a shuffle of its attention is away.


SMALLEST = 0.1
"""Smallest relevant difference, as a share of the way from a shuffled attention to the same one."""
LEAST = 0.01
"""Nats of JSD that a shuffled attention must be away for the question to be asked: shuffling an
even one changes nothing."""
Attentions = Sequence[Float[np.ndarray, " words"]]
"""The weights of each text."""


@dataclass(frozen=True)
class Likeness:
    """How alike two attentions to a text are, of one text or of many.

    Attributes:
        jsd: of the two, in nats.
        jsd_of_shuffle: mean JSD of the first and all orders of the second's weights, in nats.
        same_top: whether the top word is the same, 0 or 1.
        same_top_by_chance: how likely that is where the top word is any, 0 to 1.
    """

    jsd: Any
    jsd_of_shuffle: Any
    same_top: Any
    same_top_by_chance: Any

    @classmethod
    def of_columns(cls, columns: Float[np.ndarray, "*any 4"]) -> "Likeness":
        """The columns that `compare_pairs` gives, by their names."""
        return cls(*np.moveaxis(columns, -1, 0))


def compare_attentions(p: Float[np.ndarray, " words"], q: Float[np.ndarray, " words"]) -> Likeness:
    """Compare two attentions to one text.

    The mean over all orders is exact: each weight of p meets every weight of q equally often.
    """
    mean = (p[:, None] + q) / 2
    # part of the JSD where weight i of the first meets weight j of the second
    divergence = (rel_entr(p[:, None], mean) + rel_entr(q, mean)) / 2
    return Likeness(
        jsd=divergence.diagonal().sum(),
        jsd_of_shuffle=divergence.sum() / len(p),
        same_top=float(p.argmax() == q.argmax()),
        same_top_by_chance=1 / len(p),
    )


def compare_pairs_of_runs(runs: Sequence[Path]) -> Float[np.ndarray, "runs runs texts 4"]:
    """`compare_pairs` for the attentions of runs on the same texts, by their directories."""
    attentions = []
    for run in runs:
        examples = distinct_examples(RunDirectory(run), "attention")
        weights = [np.array(text, np.float64) for text in examples["attention"]]
        attentions.append([text / text.sum() for text in weights])
    return compare_pairs(attentions)


def compare_pairs(runs: Sequence[Attentions]) -> Float[np.ndarray, "runs runs texts 4"]:
    """`compare_attentions` for every pair of runs, each run being the base of every other one.

    Returns:
        The fields of `Likeness` as columns (`Likeness.of_columns`); 0 on the diagonal.
    """
    result = np.zeros((len(runs), len(runs), len(runs[0]), 4))
    for first, second in combinations(range(len(runs)), 2):
        for text, (p, q) in enumerate(zip(runs[second], runs[first], strict=True)):
            result[first, second, text] = astuple(compare_attentions(p, q))
        result[second, first] = result[first, second]
    return result


def mean_likeness(pairs: Float[np.ndarray, "runs runs texts 4"]) -> Likeness:
    """The mean over all texts and pairs of different runs; `pairs`: of `compare_pairs`."""
    different = ~np.eye(len(pairs), dtype=bool)
    return Likeness.of_columns(pairs[different].mean((0, 1)))


def stability(pairs: Float[np.ndarray, "runs runs texts 4"]) -> Evidence:
    """1 − JSD to another seed / JSD to a shuffle of it, over all pairs of runs.

    Args:
        pairs: as `compare_pairs` gives them.

    Returns:
        1: the same attention; 0: no nearer than a shuffle. The interval is over texts and runs; two
        runs have none.
    """

    def nearness(sums: Float[np.ndarray, "*any 4"]) -> Float[np.ndarray, "*any"]:
        summed = Likeness.of_columns(sums)
        return 1 - summed.jsd / np.where(summed.jsd_of_shuffle > 0, summed.jsd_of_shuffle, np.nan)

    shuffled = mean_likeness(pairs).jsd_of_shuffle
    reason = "attention is so even that a shuffle changes nothing" if shuffled < LEAST else ""
    return Evidence(*over_pairs(pairs, nearness, high=1), n=pairs.shape[2], unasked=reason)


CLAIM = Claim(
    name="seeds_attend_alike",
    criterion="stability",
    statement=(
        "Another seed attends to the same words: its attention is nearer than a shuffle of it"
    ),
    source="attnprobe, after Wiegreffe & Pinter 2019, section 3.3",
    measure=lambda rows: None,
    quantity=(
        "1 − JSD(seeds) / JSD(a shuffled seed): 1 is the same attention, 0 no nearer than a "
        f"shuffle, every seed a base in turn; up to {SMALLEST} is no relevant difference"
    ),
    speaks="for",
    smallest=SMALLEST,
    primary=True,
)
