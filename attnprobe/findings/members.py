"""The runs of a study side by side: their numbers text by text, F1 over texts and seeds, and
whether seeds attend alike."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.special import rel_entr

from attnprobe.evidence.claims import Claim
from attnprobe.evidence.evidence import Evidence
from attnprobe.evidence.statistics import f1_of, over_pairs, resampled_runs
from attnprobe.results.directory import RunDirectory
from attnprobe.results.table import first_of_text, read_results, repeats_of

SPLIT = "test"


def measured(run: Path, probe: str, metrics: Iterable[str] = ()) -> pd.DataFrame:
    """One row per text, by `example_id`, a column per metric (all if none is named); no row where
    the run was not asked."""
    names = list(metrics)
    if probe not in RunDirectory(run).probes():
        return pd.DataFrame(columns=names)
    rows = read_results(run, probe=probe)
    rows = rows[rows["step"].isna() & (rows["example_id"] >= 0)].astype({"metric": str})
    wide = rows.pivot(index="example_id", columns="metric", values="value").rename_axis(
        columns=None
    )
    return wide[names] if names else wide


def whole(run: Path, probe: str, metric: str) -> "pd.Series[float]":
    """A metric's numbers that are about the whole split, by step (the class, the epoch)."""
    rows = read_results(run, probe=probe)
    return (
        rows[(rows["metric"] == metric) & (rows["example_id"] < 0)]
        .set_index("step")["value"]
        .sort_index()
    )


def distinct_examples(run: RunDirectory, *columns: str) -> pd.DataFrame:
    """Some columns of the test examples by their ids, each text once."""
    table = run.examples(SPLIT, columns=["example_id", *columns]).to_pandas()
    return table[~table["example_id"].isin(repeats_of(run))]


Score = Callable[[Float[np.ndarray, "*any parts"]], Float[np.ndarray, "*any"]]
"""The number that comes of the sums of its parts (`parts_of`) over texts."""
Parts = Mapping[int, Float[np.ndarray, "texts parts"]]
"""Seed → what a score is made of, text by text."""


def parts_of(
    given: np.ndarray, said: np.ndarray, score: Score, *, one_label: bool = True
) -> np.ndarray:
    """What a score is made of, of every text: `[texts, parts]`.

    F1: true positives, false positives and false negatives, of class 1 or of each class in turn
    where these are not two. Balanced accuracy: of each class in turn, whether the text is of it and
    found to be, and whether it is of it; of several labels per text then the same of not having the
    label.

    Args:
        given, said: each text's classes, and those that the model says, `[texts, classes]`.
    """
    if score is balanced_accuracy:
        pairs = [(given, said)] if one_label else [(given, said), (~given, ~said)]
        parts = np.concatenate([np.stack([of & found, of], -1) for of, found in pairs], 1)
    else:
        parts = np.stack([given & said, ~given & said, given & ~said], -1)
        parts = parts[:, 1:] if given.shape[1] == 2 else parts
    return parts.reshape(len(parts), -1).astype(np.float64)


def parts_of_run(run: Path, score: Score) -> Float[np.ndarray, "texts parts"]:
    """`parts_of` the test texts, summed over the questions about one text, which are drawn
    together."""
    directory = RunDirectory(run)
    table = distinct_examples(directory, "label", "prediction")
    first = first_of_text(directory)
    classes = np.arange(len(directory.manifest()["classes"]))
    several = isinstance(
        table["label"].iloc[0], list | np.ndarray
    )  # labels: the numbers of their classes
    if several:
        given, said = (
            np.array([np.isin(classes, one) for one in table[name]])
            for name in ("label", "prediction")
        )
    else:
        given, said = (
            table[name].to_numpy()[:, None] == classes for name in ("label", "prediction")
        )
    texts = table["example_id"].map(lambda one: first.get(one, one)).to_numpy()
    return (
        pd.DataFrame(parts_of(given, said, score, one_label=not several))
        .groupby(texts)
        .sum()
        .to_numpy()
    )


def balanced_accuracy(sums: Float[np.ndarray, "*any parts"]) -> Float[np.ndarray, "*any"]:
    """Mean of the classes' recalls, 0 to 1, over the classes that occur; a guess that never changes
    has 1 / classes."""
    found = sums[..., ::2]
    of = sums[..., 1::2]
    there = of > 0
    return np.where(there, found / np.where(there, of, 1), 0).sum(-1) / there.sum(-1).clip(1)


def performance(of: Parts, score: Score = f1_of) -> Evidence:
    """Mean score, its interval over texts and seeds, 0 to 1."""
    parts = np.stack(list(of.values()))
    return Evidence(*resampled_runs(parts, score, low=0, high=1), n=parts.shape[1])


def difference(of: Parts, to: Parts, score: Score = f1_of) -> Evidence:
    """The score of one model minus that of another, paired by seed and text, −1 to 1. One seed says
    nothing of another training: there is no interval then."""
    parts = np.stack([np.concatenate([of[seed], to[seed]], 1) for seed in of if seed in to])

    def gain(sums: Float[np.ndarray, "*any parts"]) -> Float[np.ndarray, "*any"]:
        half = sums.shape[-1] // 2
        return score(sums[..., :half]) - score(sums[..., half:])

    value, low, high = resampled_runs(parts, gain, low=-1, high=1)
    return Evidence(value, *((low, high) if len(parts) > 1 else (np.nan, np.nan)), n=parts.shape[1])


# Do the seeds of one model attend alike? Every seed is a base in turn, and a shuffled attention is
# the measure of unlike.


SMALLEST = 0.1
"""Smallest relevant difference, as a share of the way from a shuffled attention to the same one."""
LEAST = 0.01
"""Nats of JSD that a shuffled attention must be away for the question to be asked: shuffling an
even one changes nothing."""
Attentions = Sequence[Float[np.ndarray, " words"]]


def compared(one: Attentions, other: Attentions) -> Float[np.ndarray, "texts 4"]:
    """Per text: JSD of two attentions in nats; the mean JSD of the one and all orders of the
    other's weights (exactly: a weight meets every other one equally often); whether their top word
    is the same; and how likely that is by chance."""
    rows = []
    for p, q in zip(one, other, strict=True):
        middle = (p[:, None] + q) / 2
        apart = (rel_entr(p[:, None], middle) + rel_entr(q, middle)) / 2
        rows.append(
            (
                apart.diagonal().sum(),
                apart.sum() / len(p),
                float(p.argmax() == q.argmax()),
                1 / len(p),
            )
        )
    return np.array(rows, np.float64).reshape(-1, 4)


def of_pairs(runs: Sequence[Path]) -> Float[np.ndarray, "runs runs texts 4"]:
    """`pairwise` of the attentions of runs on the same texts, by their directories."""
    weights = []
    for run in runs:
        own = [
            np.array(one, np.float64)
            for one in distinct_examples(RunDirectory(run), "attention")["attention"]
        ]
        weights.append([one / one.sum() for one in own])
    return pairwise(weights)


def pairwise(runs: Sequence[Attentions]) -> Float[np.ndarray, "runs runs texts 4"]:
    """`compared`, for every run's attentions as the base of every other one; zeros on the
    diagonal."""
    result = np.zeros((len(runs), len(runs), len(runs[0]), 4))
    for base, other in combinations(range(len(runs)), 2):
        result[base, other] = result[other, base] = compared(runs[other], runs[base])
    return result


def stability(pairs: Float[np.ndarray, "runs runs texts 4"]) -> Evidence:
    """1 − JSD to the other seed / JSD to a shuffle of it (1: the same attention, 0: no nearer than
    a shuffle) of all pairs, with an interval over texts and runs; two runs have none."""

    def nearness(sums: Float[np.ndarray, "*any 4"]) -> Float[np.ndarray, "*any"]:
        return 1 - sums[..., 0] / np.where(sums[..., 1] > 0, sums[..., 1], np.nan)

    shuffled = pairs[~np.eye(len(pairs), dtype=bool)][..., 1].mean()
    why = "attention is so even that a shuffle changes nothing" if shuffled < LEAST else ""
    return Evidence(*over_pairs(pairs, nearness, high=1), n=pairs.shape[2], unasked=why)


CLAIM = Claim(
    name="seeds_attend_alike",
    criterion="stability",
    statement="Another seed attends to the same words: its attention is nearer than a shuffle of it",
    source="attnprobe, after Wiegreffe & Pinter 2019, section 3.3",
    measure=lambda rows: None,
    quantity=f"1 − JSD(seeds) / JSD(a shuffled seed): 1 is the same attention, 0 no nearer than a shuffle, every seed a base "
    f"in turn; up to {SMALLEST} is no relevant difference",
    speaks="for",
    smallest=SMALLEST,
    primary=True,
)
